"""Options of the prompt baselines. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs.validators import ge, gt, lt, optional

from lw2g.plugin import (
    PrefixOptions,
    ReplayOptions,
    ScheduleOptions,
    WeightedPrefixOptions,
    blocks_option,
    option,
    schedule_option,
)

__all__ = [
    "CPromptConfig",
    "CodaPromptConfig",
    "DualPromptConfig",
    "HidePromptConfig",
    "L2PConfig",
    "OsPromptConfig",
    "SPromptPlusPlusConfig",
]


@attrs.frozen(kw_only=True)
class CodaPromptConfig(WeightedPrefixOptions):
    """Options of ``coda-prompt``."""

    orthogonality: float = option(
        0.0,
        "weight of the orthogonality penalty; the release gave it up (0) for an orthogonal start",
        validator=ge(0),
        published=0.0,
    )


@attrs.frozen(kw_only=True)
class CPromptConfig:
    """Options of ``cprompt``; defaults are the authors' for CIFAR-100."""

    blocks: tuple[int, ...] = blocks_option((0, 5), "blocks before which a set's prompts enter, for good")
    length: int = option(50, "tokens of each prompt", validator=ge(1), published=50)
    init_from: Literal["previous", "random"] = option(
        "previous",
        "what a new set starts from: the most recently trained set, or U(-1, 1) / sqrt(dim)",
        published="previous",
    )
    epochs: int = option(18, "passes over a task's training images", validator=ge(0))
    batch_size: int = option(16, "images per step", validator=ge(1), published=16, role="batch")
    lr: float = option(0.01, "learning rate of SGD, a cosine to 0 in each task", validator=gt(0))
    weight_decay: float = option(5e-4, "L2 coefficient; none for a reused set", validator=ge(0))
    smoothing: float = option(
        1.0, "weight of the term that keeps old classifiers uncertain", validator=ge(0), published=1.0
    )
    temperature: float = option(
        1.2,
        "temperature that flattens the target of an old classifier",
        validator=ge(1),
        unless={"smoothing": (0,)},
    )
    margin: float = option(
        0.0,
        "by how much the new classifier must be more certain than an old one, so that this is left alone",
        unless={"smoothing": (0,)},
    )


@attrs.frozen(kw_only=True)
class DualPromptConfig(PrefixOptions):
    """Options of ``dual-prompt``."""

    blocks: tuple[int, ...] = blocks_option((2, 3, 4), "blocks that get a set's E-prompt")
    length: int = option(20, "E-prompt tokens per block", validator=ge(1), published=20)
    shared_blocks: tuple[int, ...] = blocks_option((0, 1), "blocks that get the shared G-prompt", empty=True)
    shared_length: int = option(5, "G-prompt tokens per block", validator=ge(1), published=5)


@attrs.frozen(kw_only=True)
class HidePromptConfig(PrefixOptions, ReplayOptions):
    """Options of ``hide-prompt``; defaults are the authors' for CIFAR-100."""

    length: int = option(5, "prefix tokens per block", validator=ge(1))
    epochs: int = option(50, "passes over a task's training images", validator=ge(0))
    schedule: Literal["constant", "step", "cosine"] = schedule_option("step")
    head_factor: float = option(
        0.1, "learning rate of the head, as a multiple of the prompts'", validator=gt(0)
    )
    ensemble: float = option(
        0.01,
        "weight of the mean of the other sets in a new set (0.1 for self-supervised backbones)",
        validator=[ge(0), lt(1)],
    )
    contrastive: float = option(0.1, "weight of the contrastive term", validator=ge(0))


@attrs.frozen(kw_only=True)
class L2PConfig(ScheduleOptions):
    """Options of ``l2p``; defaults are those of the HiDe-Prompt family for CIFAR-100."""

    pool_size: int = option(10, "prompts in the pool", validator=ge(1), published=10)
    length: int = option(5, "tokens per prompt", validator=ge(1), published=5)
    top_k: int = option(4, "prompts per image (the paper and PILOT: 5)", validator=ge(1))
    pool: Literal["class-token", "prompt-mean"] = option(
        "class-token", "what the head is fed: the class token, or the mean of the prompt tokens (PILOT)"
    )
    pull: float = option(0.1, "weight of the loss that pulls selected keys to the queries", validator=ge(0))
    vote: Literal["sample", "batch"] = option(
        "sample",
        "sample: every image selects for itself; batch: all use what the batch selects most often",
        literal={"batch": "test batches come from one task, so a majority vote leaks task identity"},
    )
    epochs: int = option(5, "passes over a task's training images", validator=ge(0))
    batch_size: int = option(24, "images per step", validator=ge(1), role="batch")
    lr: float = option(
        0.03, "learning rate at 256 images per step; scaled by batch_size / 256", validator=gt(0)
    )
    clip_norm: float | None = option(
        1.0, "bound of the gradient norm", validator=optional(gt(0)), published=1.0
    )


@attrs.frozen(kw_only=True)
class OsPromptConfig(WeightedPrefixOptions):
    """Options of ``os-prompt``."""

    variant: Literal["os", "os++"] = option("os", "OS-Prompt, or OS-Prompt++ with its reference term")
    reference_weight: float = option(
        1e-4,
        "weight of the reference term of os++",
        validator=ge(0),
        published=1e-4,
        unless={"variant": ("os",)},
    )
    qr: Literal["paper", "code"] = option(
        "paper",
        "what the reference term compares: query-pool similarities, or queries",
        literal={"code": "the released term has no keys in it: it pulls raw block queries to the feature"},
        unless={"variant": ("os",), "reference_weight": (0,)},
    )


@attrs.frozen(kw_only=True)
class SPromptPlusPlusConfig(PrefixOptions):
    """Options of ``s-prompt-plus-plus``."""

    length: int = option(20, "prefix tokens per block", validator=ge(1), published=20)
