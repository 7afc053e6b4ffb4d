"""Building block: options that several methods share. Imports no torch, so that listing plugins is fast."""

from __future__ import annotations

from typing import Any, Literal

import attrs
from attrs.validators import deep_iterable, ge, gt, min_len, optional

from lw2g.interfaces.defaults import DEFAULT_CARRY, DEFAULT_MOTION
from lw2g.interfaces.options import option
from lw2g.vit.pool_words import LAYERS_HELP, POOL_HELP, PoolWord, check_layers, in_timm

__all__ = [
    "AdapterSetOptions",
    "HeadOptions",
    "LowRankOptions",
    "PrefixOptions",
    "ReplayOptions",
    "ScheduleOptions",
    "StatisticsMode",
    "Stepping",
    "SteppingOptions",
    "UpOnReuse",
    "WeightedPrefixOptions",
    "blocks_option",
    "layers_option",
    "pool_option",
    "schedule_option",
    "targets_option",
]

StatisticsMode = Literal["multi-centroid", "variance", "covariance"]
UpOnReuse = Literal["project", "freeze", "free"]
Stepping = Literal["official", "exact"]


def blocks_option(default: tuple[int, ...], help: str, *, empty: bool = False) -> Any:
    """Declare an option that lists blocks; its default is the published value."""
    members: Any = deep_iterable(ge(0), iterable_validator=min_len(0 if empty else 1))
    return option(default, help, validator=members, converter=tuple, published=default)


def pool_option(default: PoolWord | None = "default", help: str = POOL_HELP) -> Any:
    """Declare the option of a backbone that says how a feature is made of the model's output."""
    return option(default, help, converter=in_timm, role="fingerprint")


def layers_option() -> Any:
    """Declare the option of a backbone that says of how many of its last layers features are joined."""
    return option(1, LAYERS_HELP, validator=check_layers, role="fingerprint")


def schedule_option(default: Literal["constant", "step", "cosine"]) -> Any:
    """Declare the option that names a schedule."""
    return option(
        default,
        "learning rate over a task's epochs: constant, a tenth after every decay_epochs, or a cosine to 1e-5",
    )


_STEPPING = (
    "official: every epoch but the first has the schedule's rate of the epoch before, as in the released "
    "code; exact: its own rate"
)
_CONSTANT = {"schedule": ("constant",)}


# without slots, like the next ones: a config class can derive from several of them
@attrs.frozen(kw_only=True, slots=False)
class SteppingOptions:
    """How the formula of a schedule is applied to the epochs."""

    stepping: Stepping = option("official", _STEPPING, published="official")


@attrs.frozen(kw_only=True, slots=False)
class RandomFeatureOptions:
    """The width of heads with random features."""

    head_features: int = option(
        2000,
        "random features of heads with some: ridge (0: none), klda; the state is their square in float64 "
        "(10000: 0.8 GB)",
        validator=ge(0),
    )


@attrs.frozen(kw_only=True, slots=False)
class HeadOptions(RandomFeatureOptions):
    """The head that predicts from the features on which the linear head is trained."""

    head: str = option(
        "linear",
        "head that predicts: the trained linear head, or a closed-form head on sums over features",
        published="linear",
        names="head",
        own=("linear",),
    )
    head_carry: str = option(
        DEFAULT_CARRY,
        "how statistics of old classes follow when a task moves their features: sums of a closed-form head, "
        "or the Gaussians on which replay trains the linear head; gated holds classes far from the new ones",
        names="carry",
    )
    head_gated: str = option(
        DEFAULT_MOTION, "the motion that head_carry=gated fits and gates", names="carry", wrapped=True
    )
    head_residual: bool = option(
        False,
        "whether a carried scatter gets what the carry leaves unexplained on held-out classes",
        unless={"head_carry": ("none",)},
    )


@attrs.frozen(kw_only=True, slots=False)
class ScheduleOptions(SteppingOptions):
    """Learning-rate schedules of the HiDe-Prompt family (timm's)."""

    stepping: Stepping = option("official", _STEPPING, published="official", unless=_CONSTANT)
    schedule: Literal["constant", "step", "cosine"] = schedule_option("constant")
    decay_epochs: int = option(
        30,
        "epochs between the drops of the step schedule",
        validator=ge(1),
        only={"schedule": ("step",)},
    )
    warmup_epochs: int = option(
        0,
        "epochs over which a step or cosine schedule rises from 1e-6, in place of its own rates",
        validator=ge(0),
        unless=_CONSTANT,
    )
    schedule_tasks: Literal["all", "first"] = option(
        "all",
        "tasks with the schedule; the others are trained at the full rate",
        literal={"first": "the release keeps stepping the scheduler of the first task's optimizer"},
        unless=_CONSTANT,
    )


@attrs.frozen(kw_only=True)
class PrefixOptions(ScheduleOptions, HeadOptions):
    """Options that all prefix methods share; a method overrides defaults as its authors chose."""

    blocks: tuple[int, ...] = blocks_option((0, 1, 2, 3, 4), "blocks that get a set's prefix")
    length: int = option(20, "prefix tokens per block", validator=ge(1))
    init_from: Literal["previous", "random"] = option(
        "previous",
        "what a new set starts from: the most recently trained set, or U(-1, 1)",
    )
    gather: Literal["per-sample", "reshaped"] = option(
        "per-sample",
        "how prefixes are distributed over a batch: to each sample its own, or as in most released ports",
        literal={"reshaped": "a missing transpose mixes keys and values across the batch"},
    )
    epochs: int = option(40, "passes over a task's training images", validator=ge(0))
    batch_size: int = option(24, "images per step", validator=ge(1), role="batch")
    lr: float = option(
        0.03, "learning rate at 256 images per step; scaled by batch_size / 256", validator=gt(0)
    )
    clip_norm: float | None = option(
        1.0, "bound of the gradient norm", validator=optional(gt(0)), published=1.0
    )

    @property
    def effective_lr(self) -> float:
        """The learning rate an optimizer sees: linear in the batch size."""
        return self.lr * self.batch_size / 256


def _is_even(_instance: object, field: attrs.Attribute[int], value: int) -> None:
    """Even."""
    if value % 2:
        raise ValueError(f"'{field.name}' must be even: {value}")


@attrs.frozen(kw_only=True)
class WeightedPrefixOptions(SteppingOptions):
    """Options that methods with weighted prefixes share; defaults are CODA-Prompt's for CIFAR-100."""

    blocks: tuple[int, ...] = blocks_option((0, 1, 2, 3, 4), "blocks that get a prefix")
    components: int = option(10, "components that a set has per block", validator=ge(1))
    length: int = option(
        8, "prefix vectors per component, half keys, half values", validator=[ge(2), _is_even], published=8
    )
    init: Literal["exact", "official"] = option(
        "exact",
        "how new components, keys and masks become orthogonal to those of the live sets",
        published="official",
        literal={"official": "the released Gram-Schmidt is not orthogonal once old rows have been trained"},
    )
    keys_on_reuse: Literal["freeze", "free"] = option(
        "freeze",
        "whether a reused set's keys and masks are trained; frozen ones keep the weights of old queries",
        on_reuse=True,
    )
    values_on_reuse: Literal["free", "freeze"] = option(
        "free", "whether a reused set's prefix values are trained", on_reuse=True
    )
    epochs: int = option(20, "passes over a task's training images", validator=ge(0))
    batch_size: int = option(128, "images per step", validator=ge(1), published=128, role="batch")
    lr: float = option(0.001, "learning rate of Adam, not scaled", validator=gt(0), published=0.001)


def _are_distinct(_instance: object, field: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    """Distinct."""
    if len(set(value)) != len(value):
        raise ValueError(f"'{field.name}' must not repeat: {value}")


def targets_option(default: tuple[Literal["q", "k", "v"], ...]) -> Any:
    """Declare an option that lists projections; its default is the published value."""
    members: Any = [min_len(1), _are_distinct]
    return option(
        default, "projections that are updated", validator=members, converter=tuple, published=default
    )


@attrs.frozen(kw_only=True)
class LowRankOptions(HeadOptions):
    """Options that all low-rank methods share; a method overrides defaults as its authors chose."""

    blocks: tuple[int, ...] = blocks_option((), "blocks that get a set's updates; empty for all", empty=True)
    targets: tuple[Literal["q", "k", "v"], ...] = targets_option(("k", "v"))
    rank: int = option(10, "rank of an update", validator=ge(1))
    epochs: int = option(20, "passes over a task's training images", validator=ge(0))
    batch_size: int = option(128, "images per step", validator=ge(1), role="batch")
    head_factor: float = option(
        1.0, "learning rate of the head over that of the updates", validator=gt(0), published=1.0
    )


@attrs.frozen(kw_only=True, slots=False)
class ReplayOptions:
    """Options that all methods with replay share; a method overrides defaults as its authors chose."""

    statistics: StatisticsMode = option(
        "multi-centroid",
        "statistics kept of a class's features",
        published="multi-centroid",
    )
    clusters: int = option(
        10,
        "clusters per class of multi-centroid",
        validator=ge(1),
        published=10,
        only={"statistics": ("multi-centroid",)},
    )
    replay_epochs: int = option(30, "epochs of replay from the statistics", validator=ge(0), published=30)
    replay_lr: float = option(
        0.005,
        "learning rate of replay",
        validator=gt(0),
        published=0.005,
        unless={"replay_epochs": (0,)},
    )
    replay_batch: int = option(
        120,
        "samples of replay per step, and drawn per cluster in an epoch",
        validator=ge(1),
        published=120,
        unless={"replay_epochs": (0,)},
    )


@attrs.frozen(kw_only=True)
class AdapterSetOptions:
    """Options that adapter methods share; defaults are EASE's for CIFAR-100."""

    bottleneck: int = option(64, "inner width of an adapter", validator=ge(1))
    init_from: Literal["previous", "random"] = option(
        "random",
        "what a new set starts from: the most recently trained set, or a random one",
    )
    up_on_reuse: UpOnReuse = option(
        "freeze",
        "up-projections of a reused set: protected like the down-projections, frozen, or free (with all "
        "biases: then old outputs drift); the space of a narrow bottleneck is soon full",
        on_reuse=True,
    )
    epochs: int = option(20, "passes over a task's training images", validator=ge(0))
    batch_size: int = option(48, "images per step", validator=ge(1), role="batch")
    lr: float = option(0.025, "learning rate of SGD with momentum 0.9, half a cosine to 0", validator=gt(0))
    weight_decay: float = option(5e-4, "L2 coefficient on all trained parameters", validator=ge(0))
