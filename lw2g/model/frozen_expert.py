"""The frozen expert in the framework: whether a run has one, and the phase that it learns in."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from lw2g.blocks.expert import FrozenExpert
from lw2g.blocks.statistics import collect_features
from lw2g.config.settings import ModelConfig
from lw2g.errors import ConfigError
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import ComputePhase

__all__ = ["add_expert", "expert_of", "expert_phase"]


def add_expert(baseline: Baseline, config: ModelConfig, context: BuildContext) -> None:
    """Give a baseline its frozen expert, if the configuration asks for one.

    Its state is the baseline's from then on: checkpoints, exports and processes carry it along.

    Raises:
        ConfigError: The head's scores cannot become a posterior.
    """
    if config.routing.expert == "none":
        return
    # a mix of several sets' answers is a posterior that was fitted already
    fitted = not baseline.likelihood and config.routing.mix == 1
    if fitted and not config.routing.held_back:
        raise ConfigError(
            "routing.expert: scores of this head are no log likelihoods, and routing.held_back=0 leaves no "
            "images that fit their temperature",
            "raise it, or use baseline.head=lda",
        )
    expert = FrozenExpert(context.backbone.width, context.num_classes, fitted=fitted)
    baseline.frozen_expert = expert.to(context.device)


def expert_of(baseline: Baseline) -> FrozenExpert | None:
    """Return a baseline's frozen expert."""
    return cast(FrozenExpert | None, baseline.frozen_expert)


def expert_phase(baseline: Baseline, context: TaskContext) -> ComputePhase | None:
    """Return the phase that adds a task's un-prompted features to the expert's sums; None without one.

    It forwards no image whose query is known.
    """
    expert = expert_of(baseline)
    if expert is None:
        return None

    def run(progress: Callable[[int, int], None]) -> None:
        rows, labels = collect_features(context, lambda batch: batch.query, progress)
        expert.lda.learn(rows, labels, context.generator("frozen-expert"))

    return ComputePhase(name="frozen-expert", run=run)
