"""Registers the heads; their code is imported when one is built."""

from __future__ import annotations

from lw2g.interfaces.component import HeadComponent, lazy
from lw2g.registry.markers import hookimpl
from lw2g_heads import options

__all__ = ["COSINE", "KLDA", "LDA", "MAHALANOBIS", "RIDGE", "lw2g_heads"]

COSINE = HeadComponent(
    name="cosine",
    config=options.CosineConfig,
    summary="the nearest class mean by cosine (NCM)",
    build=lazy("lw2g_heads.heads:cosine"),
)

LDA = HeadComponent(
    name="lda",
    config=options.LdaConfig,
    summary="linear discriminant analysis: class means and one covariance; scores are posteriors",
    build=lazy("lw2g_heads.heads:lda"),
)

MAHALANOBIS = HeadComponent(
    name="mahalanobis",
    config=options.MahalanobisConfig,
    summary="the nearest class mean, each class under its own covariance of normalised features (FeCAM)",
    citation="Goswami et al., FeCAM: Exploiting the Heterogeneity of Class Distributions, NeurIPS 2023",
    build=lazy("lw2g_heads.heads:mahalanobis"),
)

RIDGE = HeadComponent(
    name="ridge",
    config=options.RidgeConfig,
    summary="ridge regression of labels on random features, or on the features themselves (RanPAC)",
    citation="McDonnell et al., RanPAC: Random Projections and Pre-trained Models, NeurIPS 2023",
    build=lazy("lw2g_heads.heads:ridge"),
)

KLDA = HeadComponent(
    name="klda",
    config=options.KldaConfig,
    summary="linear discriminant analysis of random Fourier features; the first task fixes their bandwidth",
    citation="Momeni et al., Continual Learning Using Only Large Language Model Embeddings (KLDA), 2024",
    build=lazy("lw2g_heads.heads:klda"),
)


@hookimpl
def lw2g_heads() -> list[HeadComponent]:
    """Return the heads."""
    return [COSINE, KLDA, LDA, MAHALANOBIS, RIDGE]
