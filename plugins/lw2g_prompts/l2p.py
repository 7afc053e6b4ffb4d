"""L2P: one pool of small prompts for all tasks, of which every image selects a few by their keys.

Wang et al., "Learning to Prompt for Continual Learning", CVPR 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import attrs
import torch
from attrs.validators import ge, gt, in_, optional
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.heads import linear_head
from lw2g.blocks.schedules import step_at
from lw2g.errors import ConfigError
from lw2g.interfaces.baseline import Baseline, mask_logits
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.component import BaselineComponent
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.options import option
from lw2g.interfaces.phase import ParameterGroup, Phase, StepOutput, TrainingPhase, constant
from lw2g.interfaces.pool import Routing
from lw2g.interfaces.site import Activation, Site
from lw2g.vit.taps import Tap
from lw2g.vit.tokens import TokenInjection

__all__ = ["L2P", "L2P_COMPONENT", "L2PConfig", "PromptPool"]


@attrs.frozen(kw_only=True)
class L2PConfig:
    """Options of ``l2p``; defaults are those of the HiDe-Prompt family for CIFAR-100."""

    pool_size: int = option(10, "prompts in the pool", validator=ge(1), published=10)
    length: int = option(5, "tokens per prompt", validator=ge(1), published=5)
    top_k: int = option(4, "prompts per image (the paper and PILOT: 5)", validator=ge(1))
    pool: Literal["class-token", "prompt-mean"] = option(
        "class-token",
        "what the head is fed: the class token, or the mean of the prompt tokens (PILOT)",
        validator=in_(("class-token", "prompt-mean")),
    )
    pull: float = option(0.1, "weight of the loss that pulls selected keys to the queries", validator=ge(0))
    vote: Literal["sample", "batch"] = option(
        "sample",
        "sample: every image selects for itself; batch: all use what the batch selects most often",
        validator=in_(("sample", "batch")),
        literal={"batch": "test batches come from one task, so a majority vote leaks task identity"},
    )
    epochs: int = option(5, "passes over a task's training images", validator=ge(0))
    batch_size: int = option(24, "images per step", validator=ge(1))
    lr: float = option(
        0.03, "learning rate at 256 images per step; scaled by batch_size / 256", validator=gt(0)
    )
    decay_epoch: int | None = option(
        None, "epoch, from 0, at which the learning rate drops to a tenth", validator=optional(ge(1))
    )
    clip_norm: float | None = option(
        1.0, "bound of the gradient norm", validator=optional(gt(0)), published=1.0
    )


class PromptPool(nn.Module):
    """Prompts and their keys, drawn from U(-1, 1).

    Args:
        size: Number of prompts.
        length: Tokens per prompt.
        dim: Width of the backbone.

    Attributes:
        prompt: ``[size, length, dim]``.
        key: ``[size, dim]``.
    """

    def __init__(self, size: int, length: int, dim: int) -> None:
        super().__init__()
        self.prompt = nn.Parameter(torch.empty(size, length, dim).uniform_(-1, 1))
        self.key = nn.Parameter(torch.empty(size, dim).uniform_(-1, 1))

    def match(self, query: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return cosines ``[B, size]`` of queries ``[B, dim]`` and keys, and the nearest ``[B, count]``."""
        # not a matrix product: it would round differently in batches of another size, or in bfloat16
        cosines = functional.cosine_similarity(query[:, None], self.key[None], dim=-1)
        return cosines, cosines.topk(count, dim=1).indices


class L2P(Baseline):
    """The pool of prompts is the only set: entries are not owned by tasks, so nothing can grow.

    Images select prompts by their un-prompted features, in training as in testing. Prompts enter in front of
    the class token, without position embedding.
    """

    feature_scope = "pool"

    def __init__(self, config: L2PConfig, context: BuildContext) -> None:
        super().__init__(context)
        if config.top_k > config.pool_size:
            raise ConfigError(
                f"baseline.top_k: {config.top_k!r} prompts cannot be selected out of {config.pool_size!r}; "
                "lower it or raise baseline.pool_size"
            )
        self.config = config
        self.head = linear_head(context.backbone.dim, context.num_classes).to(context.device)

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return the pool of prompts."""
        config = self.config
        return PromptPool(config.pool_size, config.length, self.context.backbone.dim).to(self.context.device)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return what is pooled under the selected prompts, ``[B, dim]``."""
        prompts = cast(PromptPool, routing.sets[0])
        rows = prompts.prompt[self.select(batch.query, prompts)[1]].flatten(1, 2)
        injection = TokenInjection({0: rows}, position="before-cls", keep=True)
        if self.config.pool == "class-token":
            return self.context.backbone.features(batch.images, (injection,))
        return self.context.backbone.tokens(batch.images, (injection,))[:, : rows.shape[1]].mean(dim=1)

    def select(self, query: Tensor, prompts: PromptPool) -> tuple[Tensor, Tensor]:
        """Return cosines ``[B, pool_size]`` and selected prompts ``[B, top_k]`` of queries ``[B, dim]``."""
        cosines, chosen = prompts.match(query, self.config.top_k)
        if self.config.vote == "batch":
            votes = torch.bincount(chosen.flatten(), minlength=self.config.pool_size)
            chosen = votes.topk(self.config.top_k).indices.expand_as(chosen)
        return cosines, chosen

    def logits(self, features: Tensor) -> Tensor:
        """Return logits of the linear head, ``[B, num_classes]``."""
        return cast(Tensor, self.head(features))

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return cross-entropy over the task's classes and the pull of the selected keys."""
        features = self.features(batch, context.pool.force(context.set_id))
        logits = mask_logits(self.logits(features), context.task.classes)
        cosines, chosen = self.select(batch.query, cast(PromptPool, context.parameters))
        pull = cosines.gather(1, chosen).sum(dim=1).mean()
        loss = functional.cross_entropy(logits, batch.labels) - self.config.pull * pull
        return StepOutput(loss=loss, features=features)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: prompts, keys and head together."""
        config = self.config
        trained = (*context.parameters.parameters(), *self.head.parameters())
        phase = TrainingPhase(
            name="prompts",
            groups=(ParameterGroup(parameters=trained, lr=config.lr * config.batch_size / 256),),
            step=lambda batch: self.step(batch, context),
            epochs=config.epochs,
            batch_size=config.batch_size,
            schedule=constant if config.decay_epoch is None else step_at(config.decay_epoch),
            clip_norm=config.clip_norm,
            host=True,
        )
        return (phase,)

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the rows of all prompts against the image tokens that they join; keys are no site."""
        prompt = cast(PromptPool, parameters).prompt
        return (
            Site(
                name="blocks.0.tokens",
                parameter=prompt,
                activation=Activation(tap=Tap(block=0, kind="block_in")),
            ),
        )


_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "cifar100": {"baseline.lr": 0.03, "baseline.epochs": 5, "baseline.pull": 0.1, "baseline.top_k": 4},
    "imagenet-r": {"baseline.lr": 0.005, "baseline.epochs": 50, "baseline.pull": 0.1, "baseline.top_k": 4},
    # the number of epochs was not published; the drop is there for runs that are long enough
    "cub200": {"baseline.lr": 0.03, "baseline.decay_epoch": 30, "baseline.pull": 0.1, "baseline.top_k": 4},
    "five-datasets": {"baseline.pull": 0.5},
}

_QUICK: Mapping[str, Any] = {"baseline.epochs": 5, "baseline.batch_size": 32, "baseline.lr": 0.05}

L2P_COMPONENT = BaselineComponent(
    name="l2p",
    config=L2PConfig,
    summary="one pool of prompts for all tasks; every image selects a few by their keys",
    citation="Wang et al., Learning to Prompt for Continual Learning, CVPR 2022",
    build=L2P,
    growth="fixed",
    presets=_PRESETS,
    tuned={"digits": _QUICK, "glyphs": _QUICK, "folder": _QUICK},
)
