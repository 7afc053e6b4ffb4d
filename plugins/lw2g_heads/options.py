"""Options of the heads. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import attrs
from attrs.validators import ge, gt, le, lt, optional

from lw2g.plugin import option

__all__ = [
    "AnaCPConfig",
    "AutoConfig",
    "CosineConfig",
    "KldaConfig",
    "LdaConfig",
    "MahalanobisConfig",
    "RidgeConfig",
    "TextConfig",
    "lacks_text",
]


@attrs.frozen(kw_only=True)
class AutoConfig:
    """Options of ``auto``."""

    units: int = option(
        0,
        "random units beside half of the layers, under ridge, as another candidate; its sums are another "
        "square of these layers and units in float64; 0: none",
        validator=ge(0),
    )


@attrs.frozen(kw_only=True)
class CosineConfig:
    """Options of ``cosine``: none."""


@attrs.frozen(kw_only=True)
class LdaConfig:
    """Options of ``lda``."""

    shrinkage: float = option(
        0.01,
        "share of the covariance that a multiple of the identity with equal trace replaces",
        validator=[ge(0), le(1)],
    )


@attrs.frozen(kw_only=True)
class KldaConfig(LdaConfig):
    """Options of ``klda``, in addition to ``baseline.head_features``."""


@attrs.frozen(kw_only=True)
class MahalanobisConfig:
    """Options of ``mahalanobis``."""

    diagonal: float = option(
        1.0,
        "multiple of the mean variance added to the diagonal; published: 1, on ImageNet-R 10",
        validator=gt(0),
        published=1.0,
    )
    off_diagonal: float = option(
        0.0,
        "multiple of the mean covariance of two features added to the others; published: 0, on ImageNet-R 10",
        validator=ge(0),
        published=0.0,
    )


@attrs.frozen(kw_only=True)
class RidgeConfig:
    """Options of ``ridge``, in addition to ``baseline.head_features``."""

    penalty: Literal["running", "task", "gcv", "fixed"] = option(
        "running",
        "what chooses the penalty: held-out errors of all tasks so far (running) or of the last one (task, "
        "RanPAC), generalised cross-validation on the sums (gcv), or nothing (fixed); gcv and fixed do not "
        "depend on the cut into tasks",
    )
    value: float = option(
        1.0,
        "the penalty of fixed; 0 only with a cut spectrum (least squares of minimal norm)",
        validator=ge(0),
    )
    cut: float = option(
        0.0,
        "share of the spectrum cut off, from its small end (TSVD, LoRanPAC: 0.25); 0: none",
        validator=[ge(0), lt(1)],
    )
    lift: Literal["relu", "gelu", "top-k", "none"] = option(
        "relu", "what follows the random map: relu (RanPAC), gelu (AnaCP), top-k (Fly-CL), or nothing"
    )
    row_nonzeros: int = option(
        0, "features that each random feature reads (Fly-CL: 300 of 768); 0: all", validator=ge(0)
    )
    beside: float = option(
        0.0,
        "squared length of random features over that of the features, beside which they stand then; 0: they "
        "stand in their place",
        validator=ge(0),
    )
    kept: float = option(
        0.3,
        "top-k: share of the random features that an image keeps",
        validator=[gt(0), le(1)],
        published=0.3,
        only={"lift": ("top-k",)},
    )


@attrs.frozen(kw_only=True)
class AnaCPConfig:
    """Options of ``anacp``, in addition to ``baseline.head_features``."""

    members: int = option(3, "random maps, each with sums of its own", validator=ge(1), published=3)
    penalty: float = option(100.0, "penalty of both regressions", validator=gt(0), published=100.0)
    draws: int = option(100, "Gaussian features drawn of each class", validator=ge(1), published=100)
    map_back: Literal["inverse-root", "root"] = option(
        "inverse-root",
        "how spread class means go back to features: whitened a second time, as released, or by the root of "
        "the covariance",
        published="inverse-root",
        literal={"inverse-root": "means are whitened twice, which pushes them apart beyond orthogonality"},
    )


@attrs.frozen(kw_only=True)
class TextConfig:
    """Options of ``text``; ``file`` has to be given."""

    file: Path | None = option(
        None,
        "file of text vectors (.safetensors or .npz), as lgcl reads it; with the model's 'projection' where "
        "features have another width",
        converter=attrs.converters.optional(Path),
    )
    width: int = option(512, "width of text vectors (CLIP B/32, B/16: 512; L/14: 768)", validator=ge(1))
    mix: Literal["none", "cosine", "lda", "mahalanobis", "ridge"] = option(
        "none", "head whose scores are added; it sees projected features of length 1"
    )
    weight: float | None = option(
        None,
        "weight of these scores; empty: the one of least log loss on a fifth of the training images",
        validator=optional(ge(0)),
    )


def lacks_text(config: Any) -> tuple[str, str] | None:
    """Return the option that names no file, with how to get one."""
    if config.file is None:
        return "head.text.file", "write one with python -m lw2g_constraints.export"
    return None
