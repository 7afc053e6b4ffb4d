"""Registers growth policies and measures; their code is imported when one is built."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from lw2g.interfaces.growth import GrowthPolicy

__all__ = ["lw2g_evidence", "lw2g_policies"]

_LW2G = "LW2G: Learning Whether to Grow for Prompt-based Continual Learning"


def _min(config: MarginConfig) -> GrowthPolicy:
    from lw2g_growth.policies import MinPolicy

    return MinPolicy(margin=config.margin)


def _max(config: MarginConfig) -> GrowthPolicy:
    from lw2g_growth.policies import MaxPolicy

    return MaxPolicy(margin=config.margin)


def _random(config: MarginConfig) -> GrowthPolicy:
    from lw2g_growth.policies import RandomPolicy

    return RandomPolicy(margin=config.margin)


def _one(config: PlainConfig) -> GrowthPolicy:
    from lw2g_growth.policies import OnePolicy

    return OnePolicy()


def _always(config: PlainConfig) -> GrowthPolicy:
    from lw2g_growth.policies import AlwaysPolicy

    return AlwaysPolicy()


def _fixed(config: FixedConfig) -> GrowthPolicy:
    from lw2g.errors import ConfigError
    from lw2g_growth.policies import FixedPolicy

    if not config.map:
        raise ConfigError("policy 'fixed' needs 'map'; say the set of each task: --set policy.map=[0,0,1]")
    return FixedPolicy(config.map)


def _by_rule(config: AffinityConfig | ThresholdConfig | CapacityConfig | TrialPolicyConfig) -> GrowthPolicy:
    from lw2g_growth.policies import RulePolicy

    return RulePolicy(config.rule)


def _trust_region(config: TrustRegionConfig) -> GrowthPolicy:
    from lw2g_growth.policies import VotePolicy

    return VotePolicy(config.rule)


def _budget(config: BudgetConfig) -> GrowthPolicy:
    from lw2g_growth.policies import BudgetPolicy

    return BudgetPolicy(config.sets, config.rule)


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
            build=_min,
            screen="least",
            deviations=(PLAIN_IMAGES,),
        ),
        PolicyComponent(
            name="max",
            config=MarginConfig,
            summary="grow like min, but reuse the set that hinders most (ablation)",
            citation=_LW2G,
            build=_max,
            deviations=(PLAIN_IMAGES,),
        ),
        PolicyComponent(
            name="rnd",
            config=MarginConfig,
            summary="grow like min, but reuse a set at random (ablation)",
            citation=_LW2G,
            build=_random,
            deviations=(PLAIN_IMAGES,),
        ),
        PolicyComponent(
            name="one",
            config=PlainConfig,
            summary="all tasks train one set (ablation)",
            citation=_LW2G,
            build=_one,
            measures=(),
        ),
        PolicyComponent(
            name="always",
            config=PlainConfig,
            summary="every task gets a set of its own, as the published baselines do",
            build=_always,
            measures=(),
            default_constraints=(),
            adds_always=True,
        ),
        PolicyComponent(
            name="affinity",
            config=AffinityConfig,
            summary="like tasks share a set: reuse the set of greatest Z above a threshold, else grow",
            build=_by_rule,
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
            build=_by_rule,
            measures=_named_measure,
        ),
        PolicyComponent(
            name="trust-region",
            config=TrustRegionConfig,
            summary="reuse where at half of the sites most of the gradient lies in the old space, else grow",
            citation="Lin et al., TRGP: Trust Region Gradient Projection for Continual Learning, ICLR 2022",
            build=_trust_region,
            measures=("projection",),
            screen="most",
        ),
        PolicyComponent(
            name="capacity",
            config=CapacityConfig,
            summary="grow where too little of the gradient lies outside every old space, else reuse",
            citation="Liang and Li, Adaptive Plasticity Improvement for Continual Learning (API), CVPR 2023",
            build=_by_rule,
            measures=("capacity",),
            screen="least",
        ),
        PolicyComponent(
            name="trial",
            config=TrialPolicyConfig,
            summary="reuse the set with which copies learn the task better than with one of its own: dear",
            build=_by_rule,
            measures=("trial",),
        ),
        PolicyComponent(
            name="budget",
            config=BudgetConfig,
            summary="at most so many sets: the first tasks get them, the others the best by a measure",
            build=_budget,
            measures=_named_measure,
        ),
    ]
