"""Sites: the places where a parameter multiplies an activation, so that it can be measured and protected.

Every projection follows one rule: a gradient is projected along the axis that multiplies an activation, off
the representation subspace of that activation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import attrs
from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace, image
from lw2g.vit.taps import Tap

__all__ = ["Activation", "Owner", "Restriction", "Site"]

Owner = Literal["set", "shared"]


@attrs.frozen(kw_only=True, eq=False)
class Activation:
    """What a parameter multiplies: the rows x at a tap, or rows ``z = D x`` computed from them.

    Attributes:
        tap: Where x is read.
        map: Returns the present D ``[r, dim]``, such as LoRA's down factor for an up factor; None for x.
        cut: Where the share of energy selects directions. ``"tap"``: among those of x. The space of z is then
            the image of the space of x, which preserves ``up down x`` for every x in it, but is all of R^r
            once the space of x has r independent images. ``"map"``: among the directions of z, which leaves
            some free.
        exact: Whether the parameter multiplies these rows and nothing else, so that its gradient lies in
            their span. False for an approximation: a prompt token meets the image tokens only after a norm
            and a projection, so its protection holds approximately.

    Raises:
        ValueError: ``cut = "map"`` without a map.
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
        """Whether the activation's space is the image of the tap's space (``cut = "tap"`` with a map)."""
        return self.map is not None and self.cut == "tap"

    def moment(self, tapped: SecondMoment) -> SecondMoment:
        """Return the second moment in which the share of energy selects directions, given the tap's.

        Raises:
            ConfigError: The rows are those of single heads, of which a map of whole rows has no image.
        """
        if self.map is None or self.cut == "tap":
            return tapped
        matrix = self.map()
        if matrix.shape[1] != tapped.matrix.shape[1]:
            raise ConfigError(
                "growth.tap: queries by head have no image under a map of whole rows",
                "set growth.heads=joint",
            )
        return tapped.image(matrix)

    def image(self, tapped: Subspace) -> Subspace:
        """Return the image of a space at the tap, whatever ``cut`` is."""
        return tapped if self.map is None else image(self.map(), tapped)

    def space(self, tapped: SecondMoment, build: Callable[[SecondMoment], Subspace]) -> Subspace:
        """Return the activation's space, given the second moment at the tap; ``build`` selects directions."""
        cut = build(self.moment(tapped))
        return self.image(cut) if self.is_image else cut


def _activation(read: Activation | Tap) -> Activation:
    return Activation(tap=read) if isinstance(read, Tap) else read


@attrs.frozen(kw_only=True, eq=False)
class Site:
    """A part of a parameter that multiplies an activation, and is measured and protected.

    Attributes:
        name: Stable across sets and tasks, such as ``"blocks.2.prefix_key"``.
        parameter: The parameter; its last axis multiplies the activation.
        index: Leading index into the parameter: ``parameter[index]`` is ``[rows..., dim]``.
        activation: What the last axis multiplies; a tap stands for the rows that are read there.
        owner: ``"set"``: the parameter belongs to a set and is constrained when that set is reused;
            ``"shared"``: all tasks share it, and it is constrained from the second task on.
        measured: Whether the site counts in HFC.
        soft: Whether soft constraints (CPK) act on it.
        per_sample: Whether a forward also accepts a shared parameter with a leading batch axis, one value per
            sample. The evidence then runs several groups of images in one forward.
    """

    name: str
    parameter: nn.Parameter
    index: tuple[int, ...] = ()
    activation: Activation = attrs.field(converter=_activation)
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
