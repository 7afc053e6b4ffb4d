"""The frozen expert in the framework: whether a run has one, and the phase that it learns in."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from lw2g.blocks.chosen_head import ChosenHead
from lw2g.blocks.expert import FrozenExpert
from lw2g.blocks.statistics import collect_features
from lw2g.config.settings import ModelConfig
from lw2g.errors import ConfigError
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.context import BuildContext, TaskContext, derive_seed
from lw2g.interfaces.phase import ComputePhase
from lw2g.vit.own_feature import own_columns

__all__ = ["add_expert", "expert_of", "expert_phase"]

_WITHOUT_IMAGES = {
    "frozen": (
        "routing.expert: scores of this head are no log likelihoods, and routing.held_back=0 leaves no "
        "images that fit their temperature",
        "raise it, or use baseline.head=lda",
    ),
    "auto": (
        "routing.expert: beside 'auto' the head's answer has a temperature, and routing.held_back=0 leaves "
        "no images that fit it",
        "raise it, or use routing.expert=frozen",
    ),
}
"""What is said where no image can fit the temperature of the head, and what to do."""


def add_expert(baseline: Baseline, config: ModelConfig, context: BuildContext) -> None:
    """Give a baseline its frozen expert, if the configuration asks for one.

    Its state is the baseline's from then on: checkpoints, exports and processes carry it along.

    Raises:
        ConfigError: The head's scores cannot become a posterior.
    """
    if config.routing.expert == "none":
        return
    chosen = _chosen(context) if config.routing.expert == "auto" else None
    # a mix of several sets' answers is a posterior that was fitted already
    fitted = config.routing.mix == 1 and (chosen is not None or not baseline.likelihood)
    if fitted and not config.routing.held_back:
        raise ConfigError(*_WITHOUT_IMAGES[config.routing.expert])
    expert = FrozenExpert(context.backbone.width, context.num_classes, fitted=fitted, chosen=chosen)
    baseline.frozen_expert = expert.to(context.device)


def _chosen(context: BuildContext) -> ChosenHead:
    """Return the head that is chosen by left-out images, with a temperature."""
    width = context.backbone.width
    head = ChosenHead(
        width,
        context.num_classes,
        derive_seed(context.seed, "expert", width),
        layers=context.backbone.fingerprint.layers,
        own=own_columns(context.backbone),
    )
    head.fit_temperature()
    return head


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
        expert.classifier.learn(rows, labels, context.generator("frozen-expert"))
        expert.classifier.observe(rows, labels)

    return ComputePhase(name="frozen-expert", run=run)
