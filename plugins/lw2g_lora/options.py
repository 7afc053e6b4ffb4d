"""Options of the low-rank baselines. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs.validators import ge, gt, in_, le, lt, optional

from lw2g.blocks.options import (
    LowRankOptions,
    ReplayOptions,
    ScheduleOptions,
    TrainedFactorsOptions,
    blocks_option,
)
from lw2g.interfaces.options import option

__all__ = [
    "CLoraConfig",
    "HideLoraConfig",
    "InfLoraConfig",
]


@attrs.frozen(kw_only=True)
class CLoraConfig(TrainedFactorsOptions):
    """Options of ``c-lora``; defaults are those of InfLoRA's comparison on CIFAR-100."""

    rank: int = option(64, "rank of an update", validator=ge(1), published=64)
    lr: float = option(0.001, "learning rate of Adam, not scaled", validator=gt(0), published=0.001)
    penalty: float = option(
        0.5,
        "weight of the overlap with earlier updates (of fourth order in an update); 0: sequential LoRA",
        validator=ge(0),
        published=0.5,
    )


@attrs.frozen(kw_only=True)
class HideLoraConfig(TrainedFactorsOptions, ScheduleOptions, ReplayOptions):
    """Options of ``hide-lora``; defaults are those of one of the authors' processes on CIFAR-100."""

    blocks: tuple[int, ...] = blocks_option(
        (0, 1, 2, 3, 4), "blocks that get a set's updates; empty for all", empty=True
    )
    rank: int = option(8, "rank of an update", validator=ge(1))
    init_from: Literal["previous", "random"] = option(
        "previous",
        "what a new set starts from: the most recently trained set, or a random one (never averaged then)",
        validator=in_(("previous", "random")),
        published="previous",
    )
    batch_size: int = option(24, "images per step", validator=ge(1))
    lr: float = option(
        0.01, "learning rate at 256 images per step; scaled by batch_size / 256", validator=gt(0)
    )
    clip_norm: float | None = option(
        2.0, "bound of the gradient norm", validator=optional(gt(0)), published=2.0
    )
    ensemble: float = option(
        0.1, "weight of the mean of the other sets' factors in a new set", validator=[ge(0), lt(1)]
    )
    contrastive: float = option(0.01, "weight of the contrastive term", validator=ge(0))
    temperature: float = option(0.8, "temperature of the contrastive term", validator=gt(0), published=0.8)

    @property
    def effective_lr(self) -> float:
        """The learning rate an optimizer sees: linear in the batch size."""
        return self.lr * self.batch_size / 256


@attrs.frozen(kw_only=True)
class InfLoraConfig(LowRankOptions):
    """Options of ``inflora``; defaults are those of InfLoRA-b5 for CIFAR-100."""

    blocks: tuple[int, ...] = blocks_option(
        (0, 1, 2, 3, 4), "blocks that get a set's updates; empty for all (InfLoRA without b5)", empty=True
    )
    lr: float = option(0.001, "learning rate of Adam, not scaled", validator=gt(0))
    design: Literal["pcp", "pc"] = option(
        "pcp",
        "what the down factor leads: P C P (the paper's projected inputs) or P C",
        validator=in_(("pcp", "pc")),
        literal={"pc": "the release projects the second moment on one side only"},
    )
    reuse: Literal["continue", "redesign"] = option(
        "continue",
        "a reused set goes on with its down factor, or is folded and designed anew: then reuse equals growth "
        "and the number of sets is a label",
        validator=in_(("continue", "redesign")),
    )
    transform: Literal["train", "test"] = option(
        "train",
        "transform under which design and memory read a task's images",
        validator=in_(("train", "test")),
        published="train",
    )
    memory_energy: float = option(
        0.95, "share of input energy that the memory holds after task 1", validator=[gt(0), le(1)]
    )
    memory_power: Literal[2, 4] = option(
        4,
        "energies are squared singular values (2, the paper) or their squares (4, as released and tuned)",
        validator=in_((2, 4)),
        published=4,
    )
    memory_residual: Literal["pcp", "pc"] = option(
        "pc",
        "what later tasks add to the memory leads P C (as released and tuned), or P C P (the paper's "
        "projected inputs; fewer directions)",
        validator=in_(("pcp", "pc")),
        published="pc",
    )
    memory_rule: Literal["reach", "below"] = option(
        "below",
        "the memory of task 1 reaches the energy, or stays one direction below it (as released); later tasks "
        "always reach it",
        validator=in_(("reach", "below")),
        published="below",
    )
