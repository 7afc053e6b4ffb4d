"""Options of policies and measures; those of policies that compare by a rule say which."""

from __future__ import annotations

from typing import Any, Literal

import attrs
from attrs.validators import and_, deep_iterable, ge, le, lt, matches_re

from lw2g.plugin import option

__all__ = [
    "AffinityConfig",
    "BudgetConfig",
    "CapacityConfig",
    "EnergyConfig",
    "FixedConfig",
    "KeepConfig",
    "MarginConfig",
    "MinConfig",
    "PlainConfig",
    "ThresholdConfig",
    "TrialConfig",
    "TrialPolicyConfig",
    "TrustRegionConfig",
]

_FINITE_MARGIN = and_(ge(0.0), lt(float("inf")))
_MEASURE = "name of the measure that decides; `lw2g plugins` lists them"
_READING = "whether tasks alike share a set (affinity), or tasks unlike (hindrance)"
_MARGIN = "standard errors by which what has to be proved must clear the threshold"


def _name(default: str) -> Any:
    return option(default, _MEASURE, validator=matches_re(r"[a-z][a-z0-9]*(-[a-z0-9+]+)*"))


@attrs.frozen(kw_only=True)
class PlainConfig:
    """A component without options."""


# -- policies ------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class MarginConfig:
    """Options of the policies that grow when every old space hinders more than the pre-trained one."""

    margin: float = option(
        0.0,
        "standard errors by which Z must exceed 0 before a set is added",
        validator=_FINITE_MARGIN,
        published=0.0,
    )


@attrs.frozen(kw_only=True)
class MinConfig(MarginConfig):
    """Options of ``min``."""

    reading: Literal["ours", "text", "algorithm", "release"] = option(
        "ours",
        "how the paper is taken: ours (spaces per head, averaged evidence, updates kept off old spaces), by "
        "the letter of its text, of its algorithm (which reuses the set of greatest Z), or by its release",
        literal={
            "text": "full-width spaces, one draw over the gradient's own images, gradients projected",
            "algorithm": "as its text, but the set of greatest Z is reused, as Algorithm 1 has it",
            "release": "angles are those of random spaces of equal rank, which the released code's follow; "
            "one threshold, that of the last set",
        },
    )


@attrs.frozen(kw_only=True)
class AffinityConfig:
    """Options of ``affinity``."""

    margin: float = option(
        0.0, "standard errors by which Z must exceed the threshold to share a set", validator=_FINITE_MARGIN
    )
    threshold: float = option(
        0.0,
        "degrees of Z above which a task counts as like a set's tasks",
        validator=and_(ge(-90.0), le(90.0)),
    )
    scale: Literal["value", "chance"] = option(
        "value",
        "Z itself, or Z less that of random spaces of the same ranks (chance): independent of the ranks",
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
    """Options of ``fixed``."""

    map: tuple[int, ...] = option(
        (),
        "the set of each task, such as [0, 0, 1]: its id, or the next number for a new one",
        validator=[deep_iterable(ge(0)), _names_sets_in_turn],
    )


@attrs.frozen(kw_only=True)
class ThresholdConfig:
    """Options of ``threshold``."""

    measure: str = _name("energy")
    reading: Literal["affinity", "hindrance"] = option("affinity", _READING)
    scale: Literal["value", "chance", "position", "errors"] = option(
        "position",
        "what is held against the threshold: the value; less its null (chance); its place between null (0) "
        "and what the set's own tasks give (position, 1); less its null in standard errors (errors)",
    )
    threshold: float | None = option(
        None, "where sharing begins, in that scale; empty: 0.5 for a position, else 0"
    )
    margin: float = option(0.0, _MARGIN, validator=_FINITE_MARGIN)
    burden: Literal["grow", "reuse"] = option(
        "reuse", "what has to be proved: that a task needs a set of its own (grow), or that it may share"
    )


@attrs.frozen(kw_only=True)
class TrustRegionConfig:
    """Options of ``trust-region``."""

    threshold: float | None = option(
        None, "length from which a site votes for sharing; empty: 0.5, or 0 beyond chance", published=0.5
    )
    scale: Literal["value", "chance"] = option(
        "value",
        "the length itself, or less that in a random space of the same rank (chance)",
        published="value",
    )


@attrs.frozen(kw_only=True)
class CapacityConfig:
    """Options of ``capacity``."""

    threshold: float = option(
        0.5,
        "relative length outside the old space below which a set has no room",
        validator=and_(ge(0.0), le(1.0)),
        published=0.5,
    )
    margin: float = option(0.0, _MARGIN, validator=_FINITE_MARGIN, published=0.0)


@attrs.frozen(kw_only=True)
class TrialPolicyConfig:
    """Options of the policy ``trial``."""

    threshold: float = option(0.0, "nats by which reuse must be better than growth")
    margin: float = option(1.0, _MARGIN, validator=_FINITE_MARGIN)
    burden: Literal["grow", "reuse"] = option(
        "reuse", "what has to be proved: that a task needs a set of its own (grow), or that it may share"
    )


@attrs.frozen(kw_only=True)
class KeepConfig:
    """Options of ``keep``."""

    margin: float = option(
        1.0,
        "standard errors of the paired difference by which a new set must beat the best old one",
        validator=_FINITE_MARGIN,
    )


@attrs.frozen(kw_only=True)
class BudgetConfig:
    """Options of ``budget``."""

    sets: int = option(2, "sets at most; the first tasks get them", validator=ge(1))
    measure: str = _name("energy")
    reading: Literal["affinity", "hindrance"] = option("affinity", _READING)


# -- measures ------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class EnergyConfig:
    """Options of ``energy``."""

    centre: bool = option(
        True, "whether activations are centred; the energy of their mean would hide everything else"
    )


@attrs.frozen(kw_only=True)
class TrialConfig:
    """Options of the measure ``trial``."""

    steps: int = option(30, "optimizer steps that copies are trained for", validator=ge(0))
    draws: int = option(2, "draws of the new classes' head to try", validator=ge(1))
