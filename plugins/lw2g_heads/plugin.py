"""Registers the heads; their code is imported when one is built."""

from __future__ import annotations

from lw2g.plugin import Alias, Deviation, HeadComponent, hookimpl, lazy
from lw2g_heads import options

__all__ = ["ANACP", "AUTO", "COSINE", "KLDA", "LDA", "MAHALANOBIS", "RIDGE", "TEXT", "lw2g_heads"]

AUTO = HeadComponent(
    name="auto",
    config=options.AutoConfig,
    summary="lda or ridge, on the last layer or on several: chosen by images of each task that are left out",
    build=lazy("lw2g_heads.solved_heads:auto"),
    random_features=False,
    backbone={"layers": "auto"},
)

COSINE = HeadComponent(
    name="cosine",
    config=options.CosineConfig,
    summary="the nearest class mean by cosine (NCM)",
    build=lazy("lw2g_heads.solved_heads:cosine"),
    random_features=False,
    control=True,
    aliases=(Alias(name="ncm", differs="by cosine to means of features as they are; some take distances"),),
)

LDA = HeadComponent(
    name="lda",
    config=options.LdaConfig,
    summary="linear discriminant analysis: class means and one covariance; scores are posteriors",
    build=lazy("lw2g_heads.solved_heads:lda"),
    random_features=False,
    aliases=(
        Alias(
            name="slda",
            differs="with shrinkage relative to the mean variance, and exact moments; published: 1e-4 "
            "absolute, and a covariance that depends on the order of images",
            options=("head.lda.shrinkage=0.0001",),
        ),
    ),
)

MAHALANOBIS = HeadComponent(
    name="mahalanobis",
    config=options.MahalanobisConfig,
    summary="the nearest class mean, each class under its own covariance of normalised features (FeCAM)",
    citation="Goswami et al., FeCAM: Exploiting the Heterogeneity of Class Distributions, NeurIPS 2023",
    build=lazy("lw2g_heads.solved_heads:mahalanobis"),
    random_features=False,
    aliases=(
        Alias(
            name="fecam",
            differs="with the release's setting for ViTs, and a class that comes again merged exactly; on "
            "ImageNet-R it sets diagonal and off_diagonal to 10; Tukey's power is not offered, for features "
            "of a ViT are signed",
        ),
    ),
)

_FIXED = ("head.ridge.penalty=fixed", "head.ridge.value=230")
_RECURSIVE = (
    "solved from sums, which gives the weights of its recursion; its penalty 0.1 is 230 beside random "
    "numbers of variance 1 and 768 features"
)
_CUT_OPTIONS = ("head.ridge.cut=0.25", "head.ridge.penalty=fixed", "head.ridge.value=0")
_CUT = (
    "with the spectrum of all sums cut exactly; published: a stream of truncated factors, which depends on "
    "the cut into tasks and takes less memory only above 20,000 random features"
)

RIDGE = HeadComponent(
    name="ridge",
    config=options.RidgeConfig,
    summary="ridge regression of labels on random features, or on the features themselves (RanPAC)",
    citation="McDonnell et al., RanPAC: Random Projections and Pre-trained Models, NeurIPS 2023",
    build=lazy("lw2g_heads.solved_heads:ridge"),
    without_tasks={"penalty": "gcv"},
    aliases=(
        Alias(
            name="ranpac-phase-2",
            differs="on the baseline's features; the baseline 'ranpac' has both phases",
            options=("head.ridge.penalty=task",),
        ),
        Alias(name="acil", differs=_RECURSIVE, options=_FIXED),
        Alias(name="g-acil", differs=_RECURSIVE, options=_FIXED),
        Alias(name="gacl", differs=_RECURSIVE, options=_FIXED),
        Alias(
            name="ds-al",
            differs="which is its main stream; its second one, which depends on the order of tasks, is not "
            "offered",
            options=_FIXED,
        ),
        Alias(
            name="fly-cl",
            differs="with the penalty chosen on the sums of all tasks; published: on the last task",
            options=("head.ridge.lift=top-k", "head.ridge.row_nonzeros=300", "head.ridge.penalty=gcv"),
        ),
        Alias(name="tsvd", differs=_CUT, options=_CUT_OPTIONS),
        Alias(name="loranpac", differs=_CUT, options=_CUT_OPTIONS),
    ),
)

KLDA = HeadComponent(
    name="klda",
    config=options.KldaConfig,
    summary="linear discriminant analysis of random Fourier features; the first task fixes their bandwidth",
    citation="Momeni et al., Continual Learning Using Only Large Language Model Embeddings (KLDA), 2024",
    build=lazy("lw2g_heads.solved_heads:klda"),
)


ANACP = HeadComponent(
    name="anacp",
    config=options.AnaCPConfig,
    summary="ridge regression towards spread class means, then a classifier fitted to Gaussian features",
    citation="Momeni et al., AnaCP: Analytic Contrastive Projection for Continual Learning, NeurIPS 2025",
    build=lazy("lw2g_heads.solved_heads:anacp"),
    deviations=(
        Deviation(
            topic="head.covariance",
            value="within classes, merged exactly, shrunk by 0.01 of its mean variance",
            published="a merge that counts batches twice, plus 1e-4 once",
            note="the release's depends on the cut into tasks",
        ),
        Deviation(
            topic="head.targets",
            value="spread in the C - 1 directions that C class means have",
            published="in C directions",
            note="the last one is rounding, which the release turns into a direction of length 1",
        ),
    ),
)

TEXT = HeadComponent(
    name="text",
    config=options.TextConfig,
    summary="cosines to class names in text (CLIP zero-shot), alone or mixed with a head in closed form",
    citation="Radford et al., Learning Transferable Visual Models From Language Supervision, ICML 2021",
    build=lazy("lw2g_heads.solved_heads:text"),
    lacks=options.lacks_text,
    aliases=(
        Alias(
            name="continual-clip",
            differs="with the sentences of the file of text vectors; published: 'a bad photo of a NAME.'",
            options=("head.text.file=FILE",),
        ),
    ),
)


@hookimpl
def lw2g_heads() -> list[HeadComponent]:
    """Return the heads."""
    return [ANACP, AUTO, COSINE, KLDA, LDA, MAHALANOBIS, RIDGE, TEXT]
