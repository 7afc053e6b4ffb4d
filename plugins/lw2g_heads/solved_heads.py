"""Builds the heads from the classifiers in closed form of :mod:`lw2g.blocks`."""

from __future__ import annotations

import attrs

from lw2g.plugin import (
    ChosenHead,
    ClosedForm,
    ConfigError,
    Cosine,
    Discriminant,
    HeadContext,
    KernelDiscriminant,
    Mahalanobis,
    Ridge,
)
from lw2g_heads.anacp import AnaCP
from lw2g_heads.options import (
    AnaCPConfig,
    AutoConfig,
    CosineConfig,
    KldaConfig,
    LdaConfig,
    MahalanobisConfig,
    RidgeConfig,
    TextConfig,
)
from lw2g_heads.text_head import TextHead

__all__ = ["anacp", "auto", "cosine", "klda", "lda", "mahalanobis", "ridge", "text"]


def auto(config: AutoConfig, context: HeadContext) -> ChosenHead:
    """Build ``auto``: one of a few heads, chosen by left-out images."""
    return ChosenHead(
        context.dim,
        context.num_classes,
        context.seed,
        layers=context.layers,
        own=context.own,
        units=config.units,
    )


def cosine(config: CosineConfig, context: HeadContext) -> Cosine:
    """Build ``cosine``: the nearest class mean by cosine."""
    return Cosine(context.dim, context.num_classes)


def lda(config: LdaConfig, context: HeadContext) -> Discriminant:
    """Build ``lda``: class means and one covariance."""
    return Discriminant(context.dim, context.num_classes, config.shrinkage)


def mahalanobis(config: MahalanobisConfig, context: HeadContext) -> Mahalanobis:
    """Build ``mahalanobis``: class means, each class with its own covariance."""
    return Mahalanobis(context.dim, context.num_classes, config.diagonal, config.off_diagonal)


def ridge(config: RidgeConfig, context: HeadContext) -> Ridge:
    """Build ``ridge``: regression of one-hot labels on features, or on random features.

    Raises:
        ConfigError: Options contradict each other.
    """
    if config.penalty != "fixed" and config.value != 1.0:
        raise ConfigError(
            f"head.ridge.value: {config.value!r} is not used, because {config.penalty!r} chooses the penalty",
            "set head.ridge.penalty=fixed, or leave it out",
        )
    # without penalty and cut, (G + 0 I) cannot be factored while there are fewer images than features
    if config.penalty == "fixed" and not config.value and not config.cut:
        raise ConfigError(
            "head.ridge.value: 0 leaves the sums singular", "raise it, or cut: head.ridge.cut=0.25"
        )
    # another value than the default has been asked for, and would do nothing
    if not context.features and (config.lift != "relu" or config.row_nonzeros):
        raise ConfigError(
            "head.ridge.lift: there is no random map while baseline.head_features is 0", "raise head_features"
        )
    if config.beside and (not context.features or config.lift != "relu" or config.row_nonzeros):
        raise ConfigError(
            f"head.ridge.beside: {config.beside!r} is for random features of relu that read all features",
            "set head.ridge.lift=relu, head.ridge.row_nonzeros=0 and baseline.head_features from 1, or leave "
            "it out",
        )
    if config.cut and context.carried:
        raise ConfigError(
            "head.ridge.cut: no carry is known for a cut spectrum", "set baseline.head_carry=none, or cut=0"
        )
    return Ridge(
        context.dim,
        context.num_classes,
        context.features,
        context.seed,
        config.value,
        choice=config.penalty,
        cut=config.cut,
        lift=config.lift,
        row_nonzeros=config.row_nonzeros,
        kept=config.kept,
        share=config.beside,
        carried=context.carried,
    )


def anacp(config: AnaCPConfig, context: HeadContext) -> AnaCP:
    """Build ``anacp``: a projection towards spread class means, then ridge regression of Gaussian features.

    Raises:
        ConfigError: There are no random features.
    """
    if not context.features:
        raise ConfigError(
            "baseline.head_features: 0 leaves 'anacp' nothing to work on", "raise it, or use 'lda'"
        )
    return AnaCP(
        context.dim,
        context.num_classes,
        context.features,
        context.seed,
        members=config.members,
        penalty=config.penalty,
        draws=config.draws,
        map_back=config.map_back,
    )


def text(config: TextConfig, context: HeadContext) -> TextHead:
    """Build ``text``: cosines to class names, alone or mixed with a head in closed form.

    Raises:
        ConfigError: There is no file, or a weight without a head to weigh.
    """
    if config.file is None:
        raise ConfigError(
            "head.text.file: the head 'text' has no file of text vectors",
            "write one with python -m lw2g_constraints.export, and name it here",
        )
    if config.mix == "none" and config.weight is not None:
        raise ConfigError(
            "head.text.weight: text alone has nothing to weigh", "set head.text.mix=lda, or leave it out"
        )
    # both heads read the same rows: features that have been mapped to the space of text
    with_text = _head_with_text(config.mix, attrs.evolve(context, dim=config.width))
    return TextHead(
        context.dim,
        context.num_classes,
        config.width,
        config.file,
        "head.text.file",
        with_text,
        config.weight,
    )


def _head_with_text(name: str, context: HeadContext) -> ClosedForm | None:
    """Return the head that text is combined with, for features of the width of text."""
    match name:
        case "cosine":
            return Cosine(context.dim, context.num_classes)
        case "lda":
            return Discriminant(context.dim, context.num_classes)
        case "mahalanobis":
            return Mahalanobis(context.dim, context.num_classes)
        case "ridge":
            # a penalty from sums fits features of length 1, whose sums are small
            return Ridge(context.dim, context.num_classes, context.features, context.seed, choice="gcv")
        case _:
            return None


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
