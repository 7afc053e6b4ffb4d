"""Options of the heads. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

import attrs
from attrs.validators import ge, gt, le

from lw2g.interfaces.options import option

__all__ = ["CosineConfig", "KldaConfig", "LdaConfig", "MahalanobisConfig", "RidgeConfig"]


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
class KldaConfig:
    """Options of ``klda``, beside ``baseline.head_features``."""

    shrinkage: float = option(
        0.01,
        "share of the covariance that a multiple of the identity with equal trace replaces",
        validator=[ge(0), le(1)],
    )


@attrs.frozen(kw_only=True)
class MahalanobisConfig:
    """Options of ``mahalanobis``."""

    diagonal: float = option(
        1.0, "multiple of the mean variance added to the diagonal", validator=gt(0), published=1.0
    )


@attrs.frozen(kw_only=True)
class RidgeConfig:
    """Options of ``ridge``, beside ``baseline.head_features``: none."""
