"""Protection: applies the rules of all constraints to the sites of a task's host phase.

Rules act twice in a step: on the gradient (after clipping, before the optimizer step) and on the update
(after the step). Each time soft rules come first, one after the other, then the union of the hard spaces
once: the maps do not commute, and a soft rule after a hard one could push a component back into the hard
space.

A soft rule on updates bends the displacement of this step. A hard one removes the in-space part of the
displacement *since the task began*: float errors of the steps then do not add up, and whatever the optimizer
adds (momentum, rescaling, weight decay) is covered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

import attrs
import torch
from torch import Tensor, nn

from lw2g.errors import ContractError, DataError
from lw2g.interfaces.constraint import Constraint, Target
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.site import Restriction, Site
from lw2g.maths.subspace import Subspace, union

__all__ = ["Protection", "SiteRule"]


@attrs.frozen(kw_only=True, eq=False)
class SiteRule:
    """One constraint's rule at one site for one task.

    Attributes:
        site: Where.
        restriction: Which space, and how much of the component inside it goes.
        on: When: on the gradient or on the update.
        hard: Whether the component must vanish.

    Raises:
        ContractError: The space does not fit the site, or a hard rule leaves part of the component.
    """

    site: Site
    restriction: Restriction
    on: Target
    hard: bool

    def __attrs_post_init__(self) -> None:
        width = self.site.parameter.shape[-1]
        dim = self.restriction.subspace.dim
        if width != dim:
            raise ContractError(
                f"constraint at site {self.site.name!r} has a space of width {dim} for rows of {width}",
                "the space must be that of the activation which multiplies the parameter's last axis",
            )
        if self.hard and self.restriction.strength != 1:
            raise ContractError(
                f"hard constraint at site {self.site.name!r} has strength {self.restriction.strength!r}",
                "a hard rule removes the whole component (strength 1), else declare hard = False",
            )


class Protection:
    """The rules of one task, applied in place around every optimizer step of its host phases.

    Call order of a step: backward, clipping, :meth:`after_backward`, :meth:`before_step`, the optimizer step,
    :meth:`after_step`. Create it when the task begins: hard rules on updates hold on to the values of that
    moment. Spaces are cast once to the parameters' dtype and device.
    """

    def __init__(self, rules: Iterable[SiteRule] = ()) -> None:
        """Gather rules by place; rules at the same part of a parameter act together.

        Raises:
            ContractError: Two sites of one owner share a name, or parts of a parameter overlap.
        """
        groups: dict[tuple[int, tuple[int, ...]], list[SiteRule]] = {}
        for rule in rules:
            if _acts(rule.restriction):
                groups.setdefault((id(rule.site.parameter), rule.site.index), []).append(rule)
        sites = [group[0].site for group in groups.values()]
        _check_disjoint(sites)
        self._places: dict[str, _Place] = {}
        for site, group in zip(sites, groups.values(), strict=True):
            self._places[_name(site)] = _Place(group)
        if len(self._places) < len(groups):
            raise ContractError(
                f"sites {[_name(site) for site in sites]!r} repeat a name",
                "a baseline must name each site of a set, and each shared one, differently",
            )

    @classmethod
    def for_task(
        cls,
        constraints: Sequence[Constraint],
        sites: Iterable[Site],
        context: TaskContext,
        trained: Iterable[nn.Parameter],
    ) -> Protection:
        """Return the protection of a task from its constraints.

        Args:
            constraints: The run's constraints, after their ``begin_task``.
            sites: Sites of the task's set and of shared parameters.
            context: The task.
            trained: Parameters of the host phases; sites of other parameters are left alone, even if another
                phase moves them.
        """
        wanted = {id(parameter) for parameter in trained}
        rules: list[SiteRule] = []
        for site in sites:
            if id(site.parameter) not in wanted:
                continue
            for constraint in constraints:
                restriction = constraint.restriction(site, context)
                if restriction is not None:
                    rules.append(
                        SiteRule(site=site, restriction=restriction, on=constraint.on, hard=constraint.hard)
                    )
        return cls(rules)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to apply."""
        return not self._places

    @torch.no_grad()
    def after_backward(self) -> None:
        """Bend the gradients; parameters without one are skipped."""
        _bend_all([place.gradient_removals() for place in self._places.values()])

    @torch.no_grad()
    def before_step(self) -> None:
        """Remember the values that soft rules on updates start from."""
        kept = []
        values = []
        for place in self._places.values():
            if place.before is not None:
                kept.append(place.before)
                values.append(place.part)
        _copy_all(kept, values)

    @torch.no_grad()
    def after_step(self) -> None:
        """Bend the updates."""
        _bend_all([place.update_removals() for place in self._places.values()])

    def state_dict(self) -> dict[str, Tensor]:
        """Return what a checkpoint within the task must hold: values at the task's start, and the spaces.

        It holds the spaces because another machine, or parameters that have moved since, would give slightly
        different ones, and the run would not continue to the same bits.
        """
        state: dict[str, Tensor] = {}
        for name, place in self._places.items():
            for key, value in place.state().items():
                state[f"{name}|{key}"] = value
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            DataError: The state belongs to other rules.
        """
        # a place without an entry has to be missed below
        parts: dict[str, dict[str, Tensor]] = {name: {} for name in self._places}
        for key, value in state.items():
            owner, part = key.split("|", 1)
            parts.setdefault(owner, {})[part] = value
        wrong: list[str] = []
        for name, given in parts.items():
            place = self._places.get(name)
            if place is None or place.state().keys() != given.keys():
                wrong.append(name)
        if wrong:
            raise DataError(
                f"checkpoint does not fit the constraints at {sorted(wrong)!r}",
                "resume with the constraints and options that the run began with",
            )
        for name, place in self._places.items():
            place.load(parts[name])


class _Place:
    """A part of a parameter that has rules, with the values that they must remember.

    Attributes:
        before: Its values before a step, from which soft rules on updates measure; None without such rules.
    """

    def __init__(self, rules: Sequence[SiteRule]) -> None:
        site = rules[0].site
        self._site = site
        self._gradient = _Bend(rules, "gradient")
        self._update = _Bend(rules, "update")
        values = site.view(site.parameter.data)
        # a hard rule measures from the beginning of the task, a soft one from that of each step
        self._start: Tensor | None = None
        self.before: Tensor | None = None
        if self._update.hard is not None:
            self._start = values.clone()
        if self._update.soft:
            self.before = values.clone()

    def gradient_removals(self) -> list[_Removal]:
        """Return what has to go from the site's gradient: soft restrictions first, then the hard one."""
        gradient = self._site.parameter.grad
        if gradient is None:
            return []
        part = self._site.view(gradient)
        removals = [_Removal(part, restriction) for restriction in self._gradient.soft]
        if self._gradient.hard is not None:
            removals.append(_Removal(part, self._gradient.hard))
        return removals

    @property
    def part(self) -> Tensor:
        """The site's values, ``[..., dim]``."""
        return self._site.view(self._site.parameter.data)

    def update_removals(self) -> list[_Removal]:
        """Return what has to go from the site's values after a step, in the same order."""
        part = self.part
        removals = [_Removal(part, restriction, self.before) for restriction in self._update.soft]
        if self._update.hard is not None:
            removals.append(_Removal(part, self._update.hard, self._start))
        return removals

    def state(self) -> dict[str, Tensor]:
        """Return what a run within a task has to restore, by name."""
        state: dict[str, Tensor] = {}
        for kind, bend in (("gradient", self._gradient), ("update", self._update)):
            for key, value in bend.state().items():
                state[f"{kind}.{key}"] = value
        if self._start is not None:
            state["start"] = self._start
        return state

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._gradient.load(state, "gradient.")
        self._update.load(state, "update.")
        if self._start is not None:
            self._start.copy_(state["start"])


class _Bend:
    """The rules that act at one place on one target: some soft ones, then at most one hard space."""

    def __init__(self, rules: Sequence[SiteRule], target: Target) -> None:
        parameter = rules[0].site.parameter
        soft: list[Restriction] = []
        hard: list[Subspace] = []
        for rule in rules:
            if rule.on != target:
                continue
            if rule.hard:
                hard.append(rule.restriction.subspace)
            else:
                soft.append(_cast(rule.restriction, parameter))
        self.soft = tuple(soft)
        self.hard: Restriction | None = None
        if hard:
            # hard spaces act at once: where they are not orthogonal, each would put components of others back
            self.hard = _cast(Restriction(subspace=_united(hard)), parameter)

    def state(self) -> dict[str, Tensor]:
        """Return basis and ranks of every rule's space, as ``soft0.basis``, ..., ``hard.ranks``."""
        rules = {f"soft{number}": rule for number, rule in enumerate(self.soft)}
        if self.hard is not None:
            rules["hard"] = self.hard
        state: dict[str, Tensor] = {}
        for name, rule in rules.items():
            for key, value in rule.subspace.state().items():
                state[f"{name}.{key}"] = value
        return state

    def load(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Take the spaces that :meth:`state` described, its keys after ``prefix``; strengths stay.

        They are the same rules of a resumed task, but solved anew their spaces could differ by rounding.
        """

        def with_stored_space(name: str, rule: Restriction) -> Restriction:
            """Return a rule with the space that the state has of it, on the device of its own."""
            space_state = {key: state[f"{prefix}{name}.{key}"] for key in ("basis", "ranks")}
            space = Subspace.from_state(space_state).to(device=rule.subspace.basis.device)
            return attrs.evolve(rule, subspace=space)

        self.soft = tuple(with_stored_space(f"soft{number}", rule) for number, rule in enumerate(self.soft))
        if self.hard is not None:
            self.hard = with_stored_space("hard", self.hard)


@attrs.frozen(eq=False)
class _Removal:
    """The restricted component of ``part - origin``, which is to be taken out of ``part``.

    Attributes:
        part: Rows of a gradient or of a parameter, ``[..., dim]``.
        restriction: A space and the share of the component in it that goes.
        origin: Rows from which the parameter has moved; None for 0.
    """

    part: Tensor
    restriction: Restriction
    origin: Tensor | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the movement stays."""
        return self.restriction.subspace.is_full and self.restriction.strength == 1


def _bend_all(places: Sequence[Sequence[_Removal]]) -> None:
    """Take the removals of each place out, one after the other, and those of all places together.

    A place is a block's part of a parameter, and a small step on a GPU waits for launches: a list of tensors
    takes one where its tensors take one each, with the same bits.

    Args:
        places: Of each place, in order; all of gradients, or all of updates.
    """
    for turn in zip_longest(*places):
        removals = [removal for removal in turn if removal is not None]
        whole = [removal for removal in removals if removal.is_whole]
        # nothing may be left, not even a rounding error
        ends = [torch.zeros_like(one.part) if one.origin is None else one.origin for one in whole]
        _copy_all([one.part for one in whole], ends)
        _remove([removal for removal in removals if not removal.is_whole])


def _remove(removals: Sequence[_Removal]) -> None:
    """Take restricted components out of their parts in place."""
    parts = [one.part for one in removals]
    origins = [one.origin for one in removals if one.origin is not None]
    # gradients have no origin, and all values have one
    moved = torch._foreach_sub(parts, origins) if origins else parts
    by_strength: dict[float, tuple[list[Tensor], list[Tensor]]] = {}
    for removal, rows in zip(removals, moved, strict=True):
        restriction = removal.restriction
        bent, inside = by_strength.setdefault(restriction.strength, ([], []))
        bent.append(removal.part)
        inside.append(restriction.subspace.on(rows))
    for strength, (bent, inside) in by_strength.items():
        torch._foreach_sub_(bent, inside, alpha=strength)


def _copy_all(places: list[Tensor], values: list[Tensor]) -> None:
    """Copy each value to its place."""
    if places:
        torch._foreach_copy_(places, values)


def _acts(restriction: Restriction) -> bool:
    return restriction.strength > 0 and not restriction.subspace.is_empty


def _cast(restriction: Restriction, like: Tensor) -> Restriction:
    return attrs.evolve(restriction, subspace=restriction.subspace.to(dtype=like.dtype, device=like.device))


def _united(spaces: Sequence[Subspace]) -> Subspace:
    return spaces[0] if len(spaces) == 1 else union(*spaces)


def _name(site: Site) -> str:
    return f"{site.owner}/{site.name}"


def _check_disjoint(sites: Sequence[Site]) -> None:
    """Refuse parts of a parameter that contain each other: rules at one would undo those at the other."""
    for site in sites:
        for other in sites:
            # an index is that of the first axes: one that begins with another lies inside it
            inside = other.index[: len(site.index)] == site.index
            if site is not other and site.parameter is other.parameter and inside:
                raise ContractError(
                    f"site {other.name!r} is a part of site {site.name!r}",
                    "split them into sites that do not overlap",
                )
