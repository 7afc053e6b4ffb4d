"""Registers the growth policies; their code is imported when one is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from attrs.validators import and_, deep_iterable, ge, lt

from lw2g.interfaces.component import PolicyComponent
from lw2g.interfaces.deviations import PLAIN_IMAGES
from lw2g.interfaces.options import option
from lw2g.registry.markers import hookimpl

if TYPE_CHECKING:
    from lw2g.interfaces.growth import GrowthPolicy

__all__ = ["AffinityConfig", "FixedConfig", "MarginConfig", "PlainConfig", "lw2g_policies"]

_LW2G = "LW2G: Learning Whether to Grow for Prompt-based Continual Learning"
_FINITE_MARGIN = and_(ge(0.0), lt(float("inf")))


@attrs.frozen(kw_only=True)
class PlainConfig:
    """A policy without options."""


@attrs.frozen(kw_only=True)
class MarginConfig:
    """Options of the policies that grow when every old space hinders more than the pre-trained one.

    Attributes:
        margin: Standard errors of Z.
    """

    margin: float = option(
        0.0,
        "standard errors by which Z must exceed 0 before a set is added",
        validator=_FINITE_MARGIN,
        published=0.0,
    )


@attrs.frozen(kw_only=True)
class AffinityConfig:
    """Options of ``affinity``.

    Attributes:
        margin: Standard errors of Z.
        threshold: Degrees, between -90 and 90.
    """

    margin: float = option(
        0.0, "standard errors by which Z must exceed the threshold to share a set", validator=_FINITE_MARGIN
    )
    threshold: float = option(
        0.0,
        "degrees of Z above which a task counts as like a set's tasks",
        validator=and_(ge(-90.0), attrs.validators.le(90.0)),
    )


def _names_sets_in_turn(_config: object, field: attrs.Attribute[Any], sets: tuple[int, ...]) -> None:
    """Sets that exist, or the next one."""
    new = 0
    for task, named in enumerate(sets):
        if named > new:
            raise ValueError(
                f"'{field.name}' gives task {task + 1} set {named}, and only the sets 0 to {new} can exist "
                f"by then (new ones are numbered in turn): {list(sets)}"
            )
        new = max(new, named + 1)


@attrs.frozen(kw_only=True)
class FixedConfig:
    """Options of ``fixed``.

    Attributes:
        map: Set of each task, by their ids from 0.
    """

    map: tuple[int, ...] = option(
        (),
        "the set of each task, such as [0, 0, 1]: its id, or the next number for a new one",
        validator=[deep_iterable(ge(0)), _names_sets_in_turn],
    )


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


def _affinity(config: AffinityConfig) -> GrowthPolicy:
    from lw2g_growth.policies import AffinityPolicy

    return AffinityPolicy(margin=config.margin, threshold=config.threshold)


@hookimpl
def lw2g_policies() -> list[PolicyComponent]:
    """Offer min, max, rnd, one, always, affinity and fixed."""
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
            needs_evidence=False,
        ),
        PolicyComponent(
            name="always",
            config=PlainConfig,
            summary="every task gets a set of its own, as the published baselines do",
            build=_always,
            needs_evidence=False,
            default_constraints=(),
            adds_always=True,
        ),
        PolicyComponent(
            name="affinity",
            config=AffinityConfig,
            summary="like tasks share a set: reuse the set of greatest Z above a threshold, else grow",
            build=_affinity,
            screen="most",
        ),
        PolicyComponent(
            name="fixed",
            config=FixedConfig,
            summary="a given map of tasks to sets: what other decisions would have brought",
            build=_fixed,
            needs_evidence=False,
        ),
    ]
