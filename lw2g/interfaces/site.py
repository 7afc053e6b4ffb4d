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
from lw2g.geometry.subspace import Subspace
from lw2g.vit.taps import Tap

__all__ = ["Owner", "Restriction", "Site"]

Owner = Literal["set", "shared"]


@attrs.frozen(kw_only=True, eq=False)
class Site:
    """One protected and measured place of a baseline.

    Attributes:
        name: Stable across sets and tasks, e.g. ``"blocks.2.prefix_key"``; also the site's position for
            run-wide spaces.
        parameter: The parameter that holds it; its last axis multiplies the activation.
        index: Leading index into the parameter: ``parameter[index]`` is ``[rows..., dim]``.
        tap: Where the activation is read.
        owner: ``"set"``: the site belongs to a parameter set and is constrained when that set is reused;
            ``"shared"``: to parameters shared by all tasks, constrained from the second task on.
        measured: Whether the site counts in HFC.
        soft: Whether soft constraints (CPK) act on it.
        derive: For an activation computed from the tapped one (LoRA's ``z = D x``): maps the tap's space to
            the activation's (``image(D, space)``), evaluated when the memory absorbs a task.
        derive_moment: Beside ``derive``, where the energy is to be cut in the activation's own space: maps
            the tap's second moment to the activation's (``moment.image(D)``). An image of a space whose rank
            exceeds that of D is everything; a cut after the map leaves room.

    Raises:
        ValueError: ``derive_moment`` was given without ``derive``.
    """

    name: str
    parameter: nn.Parameter
    index: tuple[int, ...] = ()
    tap: Tap
    owner: Owner = "set"
    measured: bool = True
    soft: bool = True
    derive: Callable[[Subspace], Subspace] | None = None
    derive_moment: Callable[[SecondMoment], SecondMoment] | None = None

    def __attrs_post_init__(self) -> None:
        if self.derive is None and self.derive_moment is not None:
            raise ValueError("expected derive beside derive_moment but got derive_moment alone")

    @property
    def cut_at_tap(self) -> bool:
        """Whether energy is cut at the tap, and not after the map to a derived activation."""
        return self.derive_moment is None

    def moment(self, tapped: SecondMoment) -> SecondMoment:
        """Return the second moment whose energy is cut, from that at the tap."""
        return tapped if self.derive_moment is None else self.derive_moment(tapped)

    def space(self, cut: Subspace) -> Subspace:
        """Return the activation's space from what was cut out of :meth:`moment`."""
        return cut if self.derive is None or not self.cut_at_tap else self.derive(cut)

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
