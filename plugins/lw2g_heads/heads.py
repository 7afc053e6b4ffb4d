"""Builds the heads from the classifiers in closed form of :mod:`lw2g.blocks`."""

from __future__ import annotations

from lw2g.blocks.closed_form import Cosine
from lw2g.blocks.discriminants import Discriminant, KernelDiscriminant, Mahalanobis
from lw2g.blocks.ridge import Ridge
from lw2g.errors import ConfigError
from lw2g.interfaces.head import HeadContext
from lw2g_heads.options import CosineConfig, KldaConfig, LdaConfig, MahalanobisConfig, RidgeConfig

__all__ = ["cosine", "klda", "lda", "mahalanobis", "ridge"]


def cosine(config: CosineConfig, context: HeadContext) -> Cosine:
    """Build ``cosine``: the nearest class mean by cosine."""
    return Cosine(context.dim, context.num_classes)


def lda(config: LdaConfig, context: HeadContext) -> Discriminant:
    """Build ``lda``: class means and one covariance."""
    return Discriminant(context.dim, context.num_classes, config.shrinkage)


def mahalanobis(config: MahalanobisConfig, context: HeadContext) -> Mahalanobis:
    """Build ``mahalanobis``: class means, each class with its own covariance."""
    return Mahalanobis(context.dim, context.num_classes, config.diagonal)


def ridge(config: RidgeConfig, context: HeadContext) -> Ridge:
    """Build ``ridge``: regression of one-hot labels on features, or on random features."""
    return Ridge(context.dim, context.num_classes, context.features, context.seed, carried=context.carried)


def klda(config: KldaConfig, context: HeadContext) -> KernelDiscriminant:
    """Build ``klda``: class means and one covariance of random Fourier features.

    Raises:
        ConfigError: There are no random features.
    """
    if not context.features:
        raise ConfigError(
            "baseline.head_features: 0 leaves 'klda' nothing to work on", "raise it, or use 'lda'"
        )
    return KernelDiscriminant(
        context.dim,
        context.num_classes,
        context.features,
        context.seed,
        config.shrinkage,
        carried=context.carried,
    )
