"""Registers growth policies and measures."""

from __future__ import annotations

from lw2g.errors import ConfigError
from lw2g.interfaces.component import PolicyComponent
from lw2g.interfaces.deviations import PLAIN_IMAGES
from lw2g.registry.markers import hookimpl
from lw2g_growth.measures import lw2g_evidence
from lw2g_growth.options import (
    AffinityConfig,
    BudgetConfig,
    CapacityConfig,
    FixedConfig,
    MarginConfig,
    PlainConfig,
    ThresholdConfig,
    TrialPolicyConfig,
    TrustRegionConfig,
)
from lw2g_growth.policies import (
    AlwaysPolicy,
    BudgetPolicy,
    FixedPolicy,
    MaxPolicy,
    MinPolicy,
    OnePolicy,
    RandomPolicy,
    RulePolicy,
    VotePolicy,
)

__all__ = ["lw2g_evidence", "lw2g_policies"]

_LW2G = "LW2G: Learning Whether to Grow for Prompt-based Continual Learning"


def _fixed(config: FixedConfig) -> FixedPolicy:
    if not config.map:
        raise ConfigError("policy 'fixed' needs 'map'; say the set of each task: --set policy.map=[0,0,1]")
    return FixedPolicy(config.map)


def _named_measure(config: ThresholdConfig | BudgetConfig) -> tuple[str, ...]:
    return (config.measure,)


@hookimpl
def lw2g_policies() -> list[PolicyComponent]:
    """Offer the policies of this package."""
    return [
        PolicyComponent(
            name="min",
            config=MarginConfig,
            summary="grow iff every old space hinders more than the pre-trained one, else reuse the least",
            citation=_LW2G,
            build=lambda config: MinPolicy(margin=config.margin),
            screen="least",
            deviations=(PLAIN_IMAGES,),
        ),
        PolicyComponent(
            name="max",
            config=MarginConfig,
            summary="grow like min, but reuse the set that hinders most (ablation)",
            citation=_LW2G,
            build=lambda config: MaxPolicy(margin=config.margin),
            deviations=(PLAIN_IMAGES,),
        ),
        PolicyComponent(
            name="rnd",
            config=MarginConfig,
            summary="grow like min, but reuse a set at random (ablation)",
            citation=_LW2G,
            build=lambda config: RandomPolicy(margin=config.margin),
            deviations=(PLAIN_IMAGES,),
        ),
        PolicyComponent(
            name="one",
            config=PlainConfig,
            summary="all tasks train one set (ablation)",
            citation=_LW2G,
            build=lambda _: OnePolicy(),
            measures=(),
        ),
        PolicyComponent(
            name="always",
            config=PlainConfig,
            summary="every task gets a set of its own, as the published baselines do",
            build=lambda _: AlwaysPolicy(),
            measures=(),
            default_constraints=(),
            adds_always=True,
        ),
        PolicyComponent(
            name="affinity",
            config=AffinityConfig,
            summary="like tasks share a set: reuse the set of greatest Z above a threshold, else grow",
            build=lambda config: RulePolicy(config.rule),
            screen="most",
        ),
        PolicyComponent(
            name="fixed",
            config=FixedConfig,
            summary="a given map of tasks to sets: what other decisions would have brought",
            build=_fixed,
            measures=(),
        ),
        PolicyComponent(
            name="threshold",
            config=ThresholdConfig,
            summary="reuse the set of best standing by any measure that clears a threshold, else grow",
            build=lambda config: RulePolicy(config.rule),
            measures=_named_measure,
        ),
        PolicyComponent(
            name="trust-region",
            config=TrustRegionConfig,
            summary="reuse where at half of the sites most of the gradient lies in the old space, else grow",
            citation="Lin et al., TRGP: Trust Region Gradient Projection for Continual Learning, ICLR 2022",
            build=lambda config: VotePolicy(config.rule),
            measures=("projection",),
            screen="most",
        ),
        PolicyComponent(
            name="capacity",
            config=CapacityConfig,
            summary="grow where too little of the gradient lies outside every old space, else reuse",
            citation="Liang and Li, Adaptive Plasticity Improvement for Continual Learning (API), CVPR 2023",
            build=lambda config: RulePolicy(config.rule),
            measures=("capacity",),
            screen="least",
        ),
        PolicyComponent(
            name="trial",
            config=TrialPolicyConfig,
            summary="reuse the set with which copies learn the task better than with one of its own: dear",
            build=lambda config: RulePolicy(config.rule),
            measures=("trial",),
        ),
        PolicyComponent(
            name="budget",
            config=BudgetConfig,
            summary="at most so many sets: the first tasks get them, the others the best by a measure",
            build=lambda config: BudgetPolicy(config.sets, config.rule),
            measures=_named_measure,
        ),
    ]
