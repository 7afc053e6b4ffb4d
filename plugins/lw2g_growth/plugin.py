"""Registers growth policies and measures; their code is imported when one is built."""

from __future__ import annotations

from typing import Any

from lw2g.plugin import PLAIN_IMAGES, EvidenceComponent, PolicyComponent, hookimpl, lazy
from lw2g_growth.options import (
    AffinityConfig,
    BudgetConfig,
    CapacityConfig,
    EnergyConfig,
    FixedConfig,
    KeepConfig,
    MarginConfig,
    MinConfig,
    PlainConfig,
    ThresholdConfig,
    TrialConfig,
    TrialPolicyConfig,
    TrustRegionConfig,
)

__all__ = ["lw2g_evidence", "lw2g_policies"]

_LW2G = "LW2G: Learning Whether to Grow for Prompt-based Continual Learning"


_RULE = "lw2g_growth.policies:RulePolicy"


_LETTER = {
    "growth.heads": "joint",
    "growth.evidence": "literal",
    "constraints.orthogonal.on": "gradient",
    "constraints.cpk.on": "gradient",
}
# the released code takes the energy of a Gram matrix, so of the fourth power of singular values, and stops
# one basis short of the threshold
_RELEASED = {"growth.energy_power": 4, "growth.rule": "below"}


def _literal_options(config: MinConfig) -> dict[str, Any]:
    """Return the options that a reading of the paper has in other sections."""
    match config.reading:
        case "ours":
            return {}
        case "text" | "algorithm":
            return _LETTER
        case "release":
            return _LETTER | _RELEASED


def _named_measure(config: ThresholdConfig | BudgetConfig) -> tuple[str, ...]:
    return (config.measure,)


@hookimpl
def lw2g_policies() -> list[PolicyComponent]:
    """Offer the policies of this package."""
    return [
        PolicyComponent(
            name="min",
            config=MinConfig,
            summary="grow iff every old space hinders more than the pre-trained one, else reuse the least",
            citation=_LW2G,
            build=lazy("lw2g_growth.policies:min_policy"),
            brings=_literal_options,
            screen="least",
            deviations=(PLAIN_IMAGES,),
        ),
        PolicyComponent(
            name="max",
            config=MarginConfig,
            summary="grow like min, but reuse the set that hinders most (ablation)",
            citation=_LW2G,
            build=lazy("lw2g_growth.policies:MaxPolicy"),
            deviations=(PLAIN_IMAGES,),
        ),
        PolicyComponent(
            name="rnd",
            config=MarginConfig,
            summary="grow like min, but reuse a set at random (ablation)",
            citation=_LW2G,
            build=lazy("lw2g_growth.policies:RandomPolicy"),
            deviations=(PLAIN_IMAGES,),
        ),
        PolicyComponent(
            name="one",
            config=PlainConfig,
            summary="all tasks train one set (ablation)",
            citation=_LW2G,
            build=lazy("lw2g_growth.policies:OnePolicy"),
            measures=(),
        ),
        PolicyComponent(
            name="always",
            config=PlainConfig,
            summary="every task gets a set of its own, as the published baselines do",
            build=lazy("lw2g_growth.policies:AlwaysPolicy"),
            measures=(),
            default_constraints=(),
            adds_always=True,
        ),
        PolicyComponent(
            name="affinity",
            config=AffinityConfig,
            summary="like tasks share a set: reuse the set of greatest Z above a threshold, else grow",
            build=lazy(_RULE, reading="affinity", burden="reuse"),
            screen="most",
        ),
        PolicyComponent(
            name="fixed",
            config=FixedConfig,
            summary="a given map of tasks to sets, to try other decisions",
            build=lazy("lw2g_growth.policies:FixedPolicy"),
            measures=(),
        ),
        PolicyComponent(
            name="threshold",
            config=ThresholdConfig,
            summary="reuse the set of best standing by any measure that clears a threshold, else grow",
            build=lazy(_RULE, begin={"position": 0.5}),
            measures=_named_measure,
        ),
        PolicyComponent(
            name="trust-region",
            config=TrustRegionConfig,
            summary="reuse where at half of the sites most of the gradient lies in the old space, else grow",
            citation="Lin et al., TRGP: Trust Region Gradient Projection for Continual Learning, ICLR 2022",
            build=lazy(
                "lw2g_growth.policies:VotePolicy",
                measure="projection",
                reading="affinity",
                burden="reuse",
                begin={"value": 0.5},
            ),
            measures=("projection",),
            screen="most",
        ),
        PolicyComponent(
            name="capacity",
            config=CapacityConfig,
            summary="grow where too little of the gradient lies outside every old space, else reuse",
            citation="Liang and Li, Adaptive Plasticity Improvement for Continual Learning (API), CVPR 2023",
            build=lazy(_RULE, measure="capacity"),
            measures=("capacity",),
            screen="least",
        ),
        PolicyComponent(
            name="trial",
            config=TrialPolicyConfig,
            summary="reuse the set with which copies learn the task better than with a new one: expensive",
            build=lazy(_RULE, measure="trial", reading="affinity"),
            measures=("trial",),
        ),
        PolicyComponent(
            name="keep",
            config=KeepConfig,
            summary="train a new set first, and keep it if it beats the best old one: dear",
            build=lazy("lw2g_growth.keeping:KeepPolicy"),
            measures=("outcome",),
        ),
        PolicyComponent(
            name="budget",
            config=BudgetConfig,
            summary="a number of sets at most: the first tasks get them, the others the best by a measure",
            build=lazy("lw2g_growth.policies:BudgetPolicy"),
            measures=_named_measure,
        ),
    ]


@hookimpl
def lw2g_evidence() -> list[EvidenceComponent]:
    """Offer the measures of this package."""
    return [
        EvidenceComponent(
            name="hindrance",
            config=PlainConfig,
            summary="Z: degrees by which the old space hinders the gradient more than the pre-trained one",
            citation=_LW2G,
            build=lazy("lw2g_growth.hindrance_measure:Hindrance"),
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
            summary="held-out loss that reuse saves over growth after some steps on copies: expensive",
            build=lazy("lw2g_growth.trial_policy:Trial"),
        ),
        EvidenceComponent(
            name="outcome",
            config=PlainConfig,
            summary="error on images set apart that a set saves over a new one trained to the end: dearest",
            build=lazy("lw2g_growth.keeping:Outcome"),
        ),
    ]
