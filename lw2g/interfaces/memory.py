"""The memory: representation subspaces of old tasks, per set and site; one per shared site of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs
import torch
from torch import Tensor

from lw2g.interfaces.site import Site
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace
from lw2g.vit.taps import Tap

__all__ = ["SpaceOptions", "SubspaceMemory"]


@attrs.frozen(kw_only=True)
class SpaceOptions:
    """How spaces are built from second moments.

    Attributes:
        energy: Share of the energy that a space must capture (epsilon in LW2G).
        power: 2: energies are squared singular values (LW2G's paper); 4: their squares (its released code).
        rule: The rank of a first build: ``"reach"`` the least one that reaches the energy, ``"below"`` one
            less (released code). Later extensions always reach it.
    """

    energy: float
    power: Literal[2, 4] = 2
    rule: Literal["reach", "below"] = "reach"

    def build(self, moment: SecondMoment) -> Subspace:
        """Return the leading space of a second moment."""
        return Subspace.build(moment, self.energy, power=self.power, rule=self.rule)

    def extend(self, space: Subspace, moment: SecondMoment) -> Subspace:
        """Return the space extended by the directions that the moment adds."""
        return space.extend(moment, self.energy, power=self.power)


class SubspaceMemory:
    """Spaces by ``(set id or None, site name)``; None stands for shared sites."""

    def __init__(self, options: SpaceOptions) -> None:
        self.options = options
        self._spaces: dict[str, Subspace] = {}
        self._plain: dict[tuple[str, Tap], str] = {}

    @staticmethod
    def key(set_id: int | None, site: Site) -> str:
        """Return the key of a site's space."""
        if set_id is None or site.owner == "shared":
            return f"shared/{site.name}"
        return f"{set_id}/{site.name}"

    def space(self, set_id: int | None, site: Site) -> Subspace | None:
        """Return the space that protects a site of a set (or a shared site); None before its first task."""
        return self._spaces.get(self.key(set_id, site))

    def absorb(self, set_id: int | None, site: Site, moment: SecondMoment) -> None:
        """Extend a site's space by a finished task's activations (LW2G section 4, stage 2).

        If the space is the image of a tap's space, the tap's space is that of the site without a map at the
        same owner and tap, which must be absorbed first; without such a site the memory keeps it separately.
        """
        key = self.key(set_id, site)
        activation = site.activation
        # sites of one owner at one tap multiply the same rows
        place = (key.removesuffix(site.name), activation.tap)
        if not activation.is_image:
            self._spaces[key] = self._grown(self._spaces.get(key), activation.moment(moment))
            if activation.map is None:
                self._plain[place] = key
            return
        # the space at the tap is what grows: the map changes from task to task, and so does its image
        tapped = self._plain.get(place)
        if tapped is None:
            tapped = f"{key}@tap"
            self._spaces[tapped] = self._grown(self._spaces.get(tapped), moment)
        self._spaces[key] = activation.image(self._spaces[tapped])

    def _grown(self, old: Subspace | None, moment: SecondMoment) -> Subspace:
        return self.options.build(moment) if old is None else self.options.extend(old, moment)

    def ranks(self, owner: int | str) -> dict[str, int]:
        """Return the ranks by key for one set, or for the ``"shared"`` sites."""
        prefix = f"{owner}/"
        return {
            key: space.rank
            for key, space in self._spaces.items()
            if key.startswith(prefix) and not key.endswith("@tap")
        }

    @property
    def basis_vectors(self) -> int:
        """Number of stored basis vectors, those of images included."""
        return sum(space.rank for space in self._spaces.values())

    def state_dict(self) -> dict[str, Tensor]:
        """Return all spaces as ``"<key>|basis"`` and ``"<key>|ranks"``."""
        return {
            f"{key}|{name}": value
            for key, space in self._spaces.items()
            for name, value in space.state().items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Restore what :meth:`state_dict` returned."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in state.items():
            key, part = name.rsplit("|", 1)
            parts.setdefault(key, {})[part] = value.to(device) if part == "basis" else value
        self._spaces = {key: Subspace.from_state(part) for key, part in parts.items()}
