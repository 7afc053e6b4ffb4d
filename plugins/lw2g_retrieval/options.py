"""Options of the retrieval strategies. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs.validators import ge, gt, le, optional

from lw2g.plugin import ReplayOptions, blocks_option, option

__all__ = [
    "CentroidsConfig",
    "ClassKeysConfig",
    "ClassPredictorOptions",
    "ClassifierConfig",
    "KeyCosineConfig",
    "LdaConfig",
    "LoraClassifierConfig",
    "MahalanobisConfig",
    "OracleConfig",
    "RidgeConfig",
]


@attrs.frozen(kw_only=True)
class CentroidsConfig:
    """Options of ``centroids``."""

    clusters: int = option(5, "k-means centroids per task", validator=ge(1))
    metric: Literal["euclidean", "cosine", "manhattan"] = option(
        "euclidean",
        "nearness of a query to a centroid; cosine and manhattan (S-Prompts' code) normalise the features "
        "before clustering",
    )


@attrs.frozen(kw_only=True)
class ClassKeysConfig:
    """Options of ``class-keys``.

    Only decay through plain SGD keeps the directions of keys without gradient; Adam turns them.
    """

    lr_factor: float = option(
        1.0, "learning rate of the keys, as a multiple of the host phase's", validator=gt(0), published=1.0
    )
    weight_decay: float = option(
        0.0,
        "L2 coefficient, for a host trained by SGD: it shortens all keys, and short keys turn faster",
        validator=ge(0),
    )


@attrs.frozen(kw_only=True)
class ClassPredictorOptions(ReplayOptions):
    """Options that strategies share which predict a class to name a task."""

    epochs: int = option(20, "passes over a task's training images", validator=ge(0), published=20)
    batch_size: int = option(24, "images per step", validator=ge(1), role="batch")
    lr: float = option(
        5e-4, "learning rate at 256 images per step; scaled by batch_size / 256", validator=gt(0)
    )
    clip_norm: float | None = option(
        1.0, "bound of the gradient norm", validator=optional(gt(0)), published=1.0
    )
    replay_lr: float = option(
        0.005,
        "learning rate of replay at 256 samples a step; scaled by replay_batch / 256",
        validator=gt(0),
        unless={"replay_epochs": (0,)},
    )
    replay_batch: int = option(
        24,
        "samples of replay per step, and drawn per cluster in an epoch",
        validator=ge(1),
        published=24,
        unless={"replay_epochs": (0,)},
    )


@attrs.frozen(kw_only=True)
class ClassifierConfig(ClassPredictorOptions):
    """Options of ``classifier``."""


@attrs.frozen(kw_only=True)
class KeyCosineConfig:
    """Options of ``key-cosine``."""

    pull: float = option(1.0, "weight of the loss that pulls the key towards the queries", validator=ge(0))
    lr_factor: float = option(
        1.0, "learning rate of the keys, as a multiple of the host's", validator=gt(0), published=1.0
    )
    keys: Literal["per-task", "per-set"] = option(
        "per-task",
        "per-task: every task has a key, old keys stay; per-set: tasks that share a set share its key",
    )
    vote: Literal["sample", "batch"] = option(
        "sample",
        "sample: every sample gets its own set; batch: the majority of the test batch decides",
        literal={"batch": "test batches come from one task, so a majority vote leaks task identity"},
    )


@attrs.frozen(kw_only=True)
class LdaConfig:
    """Options of ``lda``."""

    shrinkage: float = option(
        0.01,
        "share of the covariance that gives way to a multiple of the identity of equal trace",
        validator=[ge(0), le(1)],
    )


@attrs.frozen(kw_only=True)
class MahalanobisConfig:
    """Options of ``mahalanobis``."""

    diagonal: float = option(
        1.0,
        "constant added to each variance, as a multiple of the mean variance (10 on ImageNet-R)",
        validator=ge(0),
        published=1.0,
    )


@attrs.frozen(kw_only=True)
class RidgeConfig:
    """Options of ``ridge``."""

    features: int = option(
        1000,
        "width M of the random projection, 0 for none; every checkpoint holds M x M numbers",
        validator=ge(0),
        published=10_000,
    )


@attrs.frozen(kw_only=True)
class LoraClassifierConfig(ClassPredictorOptions):
    """Options of ``lora-classifier``; defaults are those of one of the authors' processes on CIFAR-100."""

    blocks: tuple[int, ...] = blocks_option(
        (0, 1, 2, 3, 4), "blocks that get the shared update; empty for all", empty=True
    )
    rank: int = option(8, "rank of the shared update", validator=ge(1))
    lr: float = option(
        0.01, "learning rate at 256 images per step; scaled by batch_size / 256", validator=gt(0)
    )
    clip_norm: float | None = option(
        2.0, "bound of the gradient norm", validator=optional(gt(0)), published=2.0
    )
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
class OracleConfig:
    """``oracle`` has no options."""
