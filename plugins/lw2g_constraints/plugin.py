"""Registers the constraints; their code is imported when one is built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs
from attrs.validators import and_, ge, gt, in_, le

from lw2g.interfaces.component import ConstraintComponent
from lw2g.interfaces.options import option
from lw2g.registry.markers import hookimpl

if TYPE_CHECKING:
    from lw2g.interfaces.constraint import Constraint
    from lw2g.interfaces.context import BuildContext

__all__ = ["CpkConfig", "OrthogonalConfig", "PgpConfig", "lw2g_constraints"]

_LW2G = "LW2G: Learning Whether to Grow for Prompt-based Continual Learning"
_PGP = "Prompt Gradient Projection for Continual Learning, ICLR 2024"
_ON = "update: after the optimizer step, exact; gradient: before it, from which Adam leaks"


@attrs.frozen(kw_only=True)
class OrthogonalConfig:
    """Options of ``orthogonal``.

    Attributes:
        on: When the rule acts.
    """

    on: Literal["update", "gradient"] = option(
        "update", _ON, validator=in_(("update", "gradient")), published="gradient"
    )


@attrs.frozen(kw_only=True)
class CpkConfig:
    """Options of ``cpk``.

    Attributes:
        phi: Share kept of the component inside the pre-trained space.
        on: When the rule acts.
    """

    phi: float = option(
        0.5,
        "share kept of the component inside the pre-trained space; 1 switches the rule off",
        validator=and_(ge(0.0), le(1.0)),
    )
    on: Literal["update", "gradient"] = option(
        "update", _ON, validator=in_(("update", "gradient")), published="gradient"
    )


@attrs.frozen(kw_only=True)
class PgpConfig:
    """Options of ``pgp``.

    Attributes:
        energy: Share of the energy that a space must reach.
        power: Power of the singular values that counts as energy.
        rule: Least rank that reaches the energy, or one less.
        on: When the rule acts.
    """

    energy: float = option(
        0.5, "share of the energy that a space must reach", validator=and_(gt(0.0), le(1.0)), published=0.5
    )
    power: Literal[2, 4] = option(
        2,
        "power of the singular values that counts as energy",
        validator=in_((2, 4)),
        literal={4: "the released code squares the energies"},
    )
    rule: Literal["reach", "below"] = option(
        "reach",
        "reach: least rank that reaches the energy; below: one less",
        validator=in_(("reach", "below")),
        literal={"below": "the released code stops one direction short"},
    )
    on: Literal["update", "gradient"] = option(
        "update", _ON, validator=in_(("update", "gradient")), published="gradient"
    )


def _orthogonal(config: OrthogonalConfig, context: BuildContext) -> Constraint:
    from lw2g_constraints.orthogonal import Orthogonal

    return Orthogonal(on=config.on)


def _cpk(config: CpkConfig, context: BuildContext) -> Constraint:
    from lw2g_constraints.cpk import PretrainedKnowledge

    return PretrainedKnowledge(phi=config.phi, on=config.on)


def _pgp(config: PgpConfig, context: BuildContext) -> Constraint:
    from lw2g.interfaces.memory import SpaceOptions
    from lw2g_constraints.pgp import PromptGradientProjection

    spaces = SpaceOptions(energy=config.energy, power=config.power, rule=config.rule)
    return PromptGradientProjection(spaces=spaces, device=context.device, on=config.on)


@hookimpl
def lw2g_constraints() -> list[ConstraintComponent]:
    """Offer orthogonal, cpk and pgp."""
    return [
        ConstraintComponent(
            name="orthogonal",
            config=OrthogonalConfig,
            summary="a reused set moves only outside the space of its old tasks",
            citation=_LW2G,
            build=_orthogonal,
        ),
        ConstraintComponent(
            name="cpk",
            config=CpkConfig,
            summary="every task gives up part of its motion inside the pre-trained space",
            citation=_LW2G,
            build=_cpk,
        ),
        ConstraintComponent(
            name="pgp",
            config=PgpConfig,
            summary="every set moves only outside the space of all old tasks",
            citation=_PGP,
            build=_pgp,
        ),
    ]
