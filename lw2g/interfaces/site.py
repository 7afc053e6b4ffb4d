"""Sites: the places where a parameter multiplies an activation, and so can be measured and protected.

The one rule behind every projection: a gradient is projected along the axis that multiplies an activation,
with the representation subspace of that activation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs
from torch import Tensor, nn

from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import Subspace, image
from lw2g.vit.taps import Tap

__all__ = ["Activation", "Owner", "Restriction", "Site"]

Owner = Literal["set", "shared"]


@attrs.frozen(kw_only=True, eq=False)
class Activation:
    """What a parameter multiplies: the rows x at a tap, or rows ``z = D x`` computed from them.

    Attributes:
        tap: Where x is read.
        map: Returns D ``[r, dim]`` as it is now (LoRA's down factor behind an up factor); None for x itself.
        cut: Where the energy of z is cut. ``"tap"``: among the directions of x; the space of z is the image
            of x's, which keeps ``up down x`` for every x in it, but is everything once the space of x has
            more directions than D has rows. ``"map"``: among the directions of z, which leaves room.
        exact: Whether the parameter multiplies these rows and nothing else, so that its gradient is made of
            them. False for a stand-in: a prompt token meets the image tokens beside it only behind a norm and
            a projection, so what protects it holds approximately.

    Raises:
        ValueError: ``cut = "map"`` was given without a map.
    """

    tap: Tap
    map: Callable[[], Tensor] | None = None
    cut: Literal["tap", "map"] = "tap"
    exact: bool = True

    def __attrs_post_init__(self) -> None:
        if self.cut == "map" and self.map is None:
            raise ValueError("expected a map beside cut = 'map' but got none")

    @property
    def is_image(self) -> bool:
        """Whether the space is made from the tap's: energy is cut there, before the map."""
        return self.map is not None and self.cut == "tap"

    def moment(self, tapped: SecondMoment) -> SecondMoment:
        """Return the second moment whose energy is cut, from that at the tap."""
        return tapped.image(self.map()) if self.map is not None and self.cut == "map" else tapped

    def image(self, tapped: Subspace) -> Subspace:
        """Return the space of the activation that is all of the tap's space, wherever energy is cut."""
        return tapped if self.map is None else image(self.map(), tapped)

    def space(self, tapped: SecondMoment, build: Callable[[SecondMoment], Subspace]) -> Subspace:
        """Return the activation's space from the second moment at the tap; ``build`` cuts the energy."""
        cut = build(self.moment(tapped))
        return self.image(cut) if self.is_image else cut


@attrs.frozen(kw_only=True, eq=False)
class Site:
    """One protected and measured place of a baseline.

    Attributes:
        name: Stable across sets and tasks, e.g. ``"blocks.2.prefix_key"``; also the site's position for
            run-wide spaces.
        parameter: The parameter that holds it; its last axis multiplies the activation.
        index: Leading index into the parameter: ``parameter[index]`` is ``[rows..., dim]``.
        activation: What the last axis multiplies.
        owner: ``"set"``: the site belongs to a parameter set and is constrained when that set is reused;
            ``"shared"``: to parameters shared by all tasks, constrained from the second task on.
        measured: Whether the site counts in HFC.
        soft: Whether soft constraints (CPK) act on it.
        per_sample: Of a shared site: whether a forward also takes the parameter with a batch axis in front,
            a value per sample. Evidence then asks several groups of images at once.
    """

    name: str
    parameter: nn.Parameter
    index: tuple[int, ...] = ()
    activation: Activation
    owner: Owner = "set"
    measured: bool = True
    soft: bool = True
    per_sample: bool = False

    def view(self, tensor: Tensor) -> Tensor:
        """Return the site's part of ``tensor`` (the parameter, its gradient, ...), ``[..., dim]``."""
        return tensor[self.index] if self.index else tensor

    def rows(self, tensor: Tensor) -> Tensor:
        """Return the site's part of ``tensor`` as ``[rows, dim]``."""
        part = self.view(tensor)
        return part.reshape(-1, part.shape[-1])


@attrs.frozen(kw_only=True, eq=False)
class Restriction:
    """A constraint's rule at one site: remove ``strength`` of the component inside ``subspace``.

    Attributes:
        subspace: The protected space.
        strength: 1 removes the component (a hard rule), 0 leaves it.
    """

    subspace: Subspace
    strength: float = attrs.field(default=1.0, validator=[attrs.validators.ge(0), attrs.validators.le(1)])
