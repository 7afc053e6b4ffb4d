"""Registers the measures; their code is imported when one is built."""

from __future__ import annotations

from lw2g.interfaces.component import EvidenceComponent, lazy
from lw2g.registry.markers import hookimpl
from lw2g_growth.options import EnergyConfig, PlainConfig, TrialConfig

__all__ = ["lw2g_evidence"]


@hookimpl
def lw2g_evidence() -> list[EvidenceComponent]:
    """Offer the measures of this package."""
    return [
        EvidenceComponent(
            name="hindrance",
            config=PlainConfig,
            summary="Z: degrees by which the old space hinders the gradient more than the pre-trained one",
            citation="LW2G: Learning Whether to Grow for Prompt-based Continual Learning",
            build=lazy("lw2g_growth.hindrance:Hindrance"),
        ),
        EvidenceComponent(
            name="energy",
            config=EnergyConfig,
            summary="share of the task's activation energy outside the old tasks' spaces",
            build=lazy("lw2g_growth.energy:Energy"),
        ),
        EvidenceComponent(
            name="novelty",
            config=PlainConfig,
            summary="standard deviations by which the task is reconstructed worse than a set's own images",
            citation="Wang et al., Self-Expansion of Pre-trained Models with Mixture of Adapters for "
            "Continual Learning (SEMA), CVPR 2025",
            build=lazy("lw2g_growth.energy:Novelty"),
        ),
        EvidenceComponent(
            name="projection",
            config=PlainConfig,
            summary="relative length of the task's gradient inside the old space",
            citation="Lin et al., TRGP: Trust Region Gradient Projection for Continual Learning, ICLR 2022",
            build=lazy("lw2g_growth.projection:Projection"),
        ),
        EvidenceComponent(
            name="capacity",
            config=PlainConfig,
            summary="relative length of the task's gradient outside the old space: the room that is left",
            citation="Liang and Li, Adaptive Plasticity Improvement for Continual Learning (API), CVPR 2023",
            build=lazy("lw2g_growth.projection:Capacity"),
        ),
        EvidenceComponent(
            name="gradient-agreement",
            config=PlainConfig,
            summary="cosine of the task's mean gradient with that of the set's tasks when they began",
            citation="Lin et al., Beyond Not-Forgetting: Continual Learning with Backward Knowledge Transfer "
            "(CUBER), NeurIPS 2022",
            build=lazy("lw2g_growth.agreement:Agreement"),
        ),
        EvidenceComponent(
            name="centroid",
            config=PlainConfig,
            summary="largest cosine of new class means with those of a set, less what all have in common",
            citation="Roy et al., Convolutional Prompting meets Language Models for Continual Learning "
            "(ConvPrompt), CVPR 2024",
            build=lazy("lw2g_growth.class_means:Centroid"),
        ),
        EvidenceComponent(
            name="confusion",
            config=PlainConfig,
            summary="share of the task's images that retrieval would give to old tasks of a set",
            build=lazy("lw2g_growth.class_means:Confusion"),
        ),
        EvidenceComponent(
            name="logme",
            config=PlainConfig,
            summary="gain in log evidence of a linear model of the new classes under a set",
            citation="You et al., LogME: Practical Assessment of Pre-trained Models for Transfer Learning, "
            "ICML 2021",
            build=lazy("lw2g_growth.separation:LogMe"),
        ),
        EvidenceComponent(
            name="loo-ncm",
            config=PlainConfig,
            summary="gain in leave-one-out accuracy of the nearest class mean under a set",
            build=lazy("lw2g_growth.separation:LeaveOneOut"),
        ),
        EvidenceComponent(
            name="trial",
            config=TrialConfig,
            summary="held-out loss that reuse saves over growth after some steps on copies: dear",
            build=lazy("lw2g_growth.trial:Trial"),
        ),
    ]
