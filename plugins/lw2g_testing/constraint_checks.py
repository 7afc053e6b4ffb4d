"""Checks of a constraint: it removes parts of updates, adds none, and leaves the host alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast, get_args

import attrs
import torch
from torch import Tensor

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.constraint import Constraint, Target
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.memory import SubspaceMemory
from lw2g.interfaces.phase import StepOutput
from lw2g.interfaces.site import Restriction, Site
from lw2g.learning.evidence.spaces import absorb_task
from lw2g.learning.protection import Protection, SiteRule
from lw2g.learning.session_parts import RunParts
from lw2g.maths.subspace import Subspace
from lw2g_testing.cases import ContractViolation, Subject, check
from lw2g_testing.guards import available, bearing, seeded
from lw2g_testing.small_run import begin, opened

_TARGETS: tuple[Target, ...] = get_args(Target)
_ROUNDING = 1e-5
"""Share of a norm that may be lost or won by float32 rounding."""
_DRAWS = (
    ", and the host draws otherwise than without it; use context.generator(purpose), or torch's in extra_loss"
)


# -- the session of a constraint ----------------------------------------------------------------------------


class WatchedMemory(SubspaceMemory):
    """A memory that notes whether it was read."""

    was_read = False

    def space(self, set_id: int | None, site: Site) -> Subspace | None:
        """Return the space, and take note."""
        self.was_read = True
        return super().space(set_id, site)

    def ranks(self, owner: int | str) -> dict[str, int]:
        """Return the ranks, and take note."""
        self.was_read = True
        return super().ranks(owner)


@attrs.frozen(kw_only=True, eq=False)
class Stage:
    """A constraint within a task: the first task grows a set, the second reuses it.

    Attributes:
        parts: Of the session; their memory notes whether it was read.
        constraint: The constraint.
        context: What constraints know of the task.
    """

    parts: RunParts
    constraint: Constraint
    context: TaskContext

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites that the task trains."""
        baseline = self.parts.baseline
        return (*baseline.sites(self.context.parameters), *baseline.shared_sites())

    def step(self) -> tuple[Batch, StepOutput]:
        """Return a batch and what the host's step gives for it, features with a gradient to the set."""
        batch = next(iter(self.context.statistics(4)))
        for site in self.sites:
            site.parameter.requires_grad_(True)
        with torch.enable_grad():
            features = self.parts.baseline.features(batch, self.parts.pool.force(self.context.set_id))
        return batch, StepOutput(loss=features.square().mean(), features=features)

    def restrictions(self) -> list[tuple[Site, Restriction]]:
        """Return the restrictions by site."""
        found = []
        for site in self.sites:
            restriction = self.constraint.restriction(site, self.context)
            if restriction is not None:
                found.append((site, restriction))
        return found

    def extra_loss(self) -> Tensor | None:
        """Return the loss that the constraint adds to a step."""
        return self.constraint.extra_loss(*self.step(), self.context)

    def effect(self) -> tuple[dict[str, tuple[float, tuple[int, ...], bytes]], bytes | None]:
        """Return restrictions by site and the loss of one batch, as values that compare."""
        rules = {}
        for site, restriction in self.restrictions():
            space = restriction.subspace
            basis = space.basis.detach().cpu().contiguous().numpy().tobytes()
            rules[site.name] = (restriction.strength, space.ranks, basis)
        with seeded(1):
            loss = self.extra_loss()
        if loss is None:
            return rules, None
        return rules, loss.detach().cpu().numpy().tobytes()


# -- checks -------------------------------------------------------------------------------------------------


@check("constraint")
def check_constraint_lives_through_a_run(subject: Subject) -> None:
    """It works from the first task on, for new and reused sets, with or without keys and features."""
    for bare in (False, True):
        with warnings.catch_warnings(action="ignore"):  # it may well say that it has nothing to do
            for stage in _tasks(subject, bare=bare):
                _require_a_step(stage, bare=bare)


def _require_a_step(stage: Stage, *, bare: bool) -> None:
    """Refuse a constraint that fails in a step of training; with ``bare`` its output has a loss alone."""
    batch, output = stage.step()
    where = f"in task {stage.context.task.index + 1}"
    remedy = "return None where nothing is absorbed yet"
    if bare:
        output = StepOutput(loss=output.loss)
        where = "without keys and features"
        remedy = "return None where it has nothing to act on"
    with bearing(f"{where}, restriction or extra_loss", remedy):
        stage.restrictions()
        loss = stage.constraint.extra_loss(batch, output, stage.context)
    if loss is not None and not (isinstance(loss, Tensor) and loss.ndim == 0 and bool(loss.isfinite())):
        raise ContractViolation(
            f"{where}, extra_loss returns {loss!r}; return a finite tensor without dimensions, or None for "
            "no loss"
        )
    if stage.constraint.on not in _TARGETS:
        raise ContractViolation(
            f"its attribute on is {stage.constraint.on!r}; set it to 'update' or 'gradient'"
        )


def _overrides(method: str) -> Callable[[Subject], bool]:
    """Return what says of a constraint whether it has a method of its own: True where it cannot be built."""

    def applies(subject: Subject) -> bool:
        made_of = subject.once("class", lambda: _class_of(subject))
        return getattr(made_of, method, None) is not getattr(Constraint, method)

    return applies


def _class_of(subject: Subject) -> type[Any] | None:
    try:
        return type(subject.component.build(subject.config, opened(subject).parts.baseline.context))
    except Exception:  # a stranger's code may raise anything: a check reports it
        return None


@check("constraint", applies=_overrides("restriction"))
def check_restrictions_take_away_alone(subject: Subject) -> None:
    """Restrictions fit their sites, keep zero, lengthen nothing; a hard one applied twice acts as once."""
    for stage in _tasks(subject):
        for site, restriction in stage.restrictions():
            _require_taking_away(site, restriction, hard=stage.constraint.hard)


def _require_taking_away(site: Site, restriction: Restriction, *, hard: bool) -> None:
    """Refuse a restriction that does not fit its site, or does more to a change than take some of it away."""
    row_width = site.parameter.shape[-1]
    dim = restriction.subspace.dim
    if row_width != dim:
        raise ContractViolation(
            f"site {site.name!r} has rows of {row_width} and gets a space of {dim}; return the space of the "
            "activation that multiplies the rows (site.activation.image maps the tap's)"
        )
    if hard and restriction.strength != 1:
        raise ContractViolation(
            f"it is hard and has strength {restriction.strength!r} at site {site.name!r}; return strength 1, "
            "or declare hard = False"
        )
    for target in _TARGETS:
        _require_projecting(site, restriction, target, hard=hard)


def _require_projecting(site: Site, restriction: Restriction, target: Target, *, hard: bool) -> None:
    """Refuse a restriction that moves zero or lengthens a change, and a hard one that acts a second time.

    A projection does none of the three. Comparisons are negated (``not a <= b``), so that NaN is refused.
    """
    change = torch.randn(site.view(site.parameter).shape, generator=torch.Generator().manual_seed(5))
    length = float(change.norm())
    from_zero = _bend(site, restriction, target, change * 0, hard=hard)
    if not bool((from_zero == 0).all()):
        raise ContractViolation(
            f"zero at site {site.name!r} becomes {float(from_zero.abs().max()):.3g}; return a space with a "
            "finite orthonormal basis (Subspace.build makes one, from a moment without energy, too)"
        )
    once = _bend(site, restriction, target, change, hard=hard)
    if not float(once.norm()) <= length * (1 + _ROUNDING):
        raise ContractViolation(
            f"a change of norm {length:.4g} at site {site.name!r} leaves with "
            f"{float(once.norm()):.4g}; return a space of orthonormal columns (Subspace.build, extend, "
            "union) and a strength from 0 to 1"
        )
    if not hard:  # a soft one takes away a share each time
        return
    twice = _bend(site, restriction, target, once, hard=hard)
    if not float((twice - once).norm()) <= _ROUNDING * length:
        raise ContractViolation(
            f"applied twice at site {site.name!r} it removes more than once; return a space with "
            "orthonormal columns (Subspace.build, Subspace.extend)"
        )


@check("constraint")
def check_asks_for_what_it_reads(subject: Subject) -> None:
    """It declares needs_memory if it reads the memory, and absorbs if it overrides absorb."""
    for stage in _tasks(subject):
        constraint = stage.constraint
        memory = cast(WatchedMemory, stage.parts.memory)
        memory.was_read = False
        stage.restrictions()
        stage.extra_loss()
        if memory.was_read and not constraint.needs_memory:
            raise ContractViolation(
                "it reads context.memory and declares needs_memory = False; declare it True, else the "
                "memory stays empty"
            )
        if type(constraint).absorb is not Constraint.absorb and not constraint.absorbs:
            raise ContractViolation(
                "it overrides absorb and declares absorbs = False; declare it True, else it is never called"
            )


@check("constraint")
def check_constraint_state_round_trips(subject: Subject) -> None:
    """Restored from its state dict, it gives the same restrictions and the same loss."""
    for stage in _tasks(subject):
        state = stage.constraint.state_dict()
        copied = {}
        for key, value in state.items():
            if not isinstance(value, Tensor):
                raise ContractViolation(
                    f"state_dict holds {key!r}, which is no tensor; return tensors by name"
                )
            copied[key] = value.detach().clone()
        restored = _constraint(subject, stage.parts)
        restored.load_state_dict(copied)
        restored.begin_task(stage.context)
        if attrs.evolve(stage, constraint=restored).effect() != stage.effect():
            raise ContractViolation(
                f"restored from its state_dict it acts otherwise in task {stage.context.task.index + 1}; "
                "keep all that absorb and begin_task have learned in state_dict, and take it in "
                "load_state_dict"
            )


@check("constraint", applies=_overrides("restriction"))
def check_restriction_draws_nothing(subject: Subject) -> None:
    """Its restrictions draw from no global generator: the host draws as it does without them."""
    for stage in _tasks(subject, still=True):
        with seeded(1) as generators:
            stage.restrictions()
            generators.refuse_draws("restriction", _DRAWS)


@check("constraint", applies=_overrides("extra_loss"))
def check_extra_loss_leaves_the_host_alone(subject: Subject) -> None:
    """Its loss changes no value of the host, sends the backbone no gradient, and draws from torch alone."""
    for stage in _tasks(subject, still=True):
        losses = []
        # one seed of torch, two of numpy and Python: only what torch draws may be in the loss
        for others in (1, 2):
            with seeded(1, others=others) as generators:
                losses.append(_harmless_loss(stage))
                generators.refuse_draws("extra_loss", _DRAWS, "torch")
        if not _equal(*losses):
            raise ContractViolation(
                f"extra_loss is {losses[0]} and then {losses[1]} for one batch and one torch seed; draw from "
                "torch's global generator alone, which is seeded before every step"
            )


def _harmless_loss(stage: Stage) -> Tensor | None:
    """Return the loss of one step; it has left the host as it was and sends the backbone no gradient."""
    parameters = [site.parameter for site in stage.sites]
    batch, output = stage.step()

    def values() -> list[Tensor]:
        """Return copies of all that a loss of the constraint must leave as it is."""
        of_the_host = (*parameters, output.loss, batch.images, batch.query, batch.labels)
        return [tensor.detach().clone() for tensor in of_the_host]

    before = values()
    loss = stage.constraint.extra_loss(batch, output, stage.context)
    same = all(map(torch.equal, before, values()))
    if not same or any(parameter.grad is not None for parameter in parameters):
        raise ContractViolation(
            "extra_loss changes values or gradients of the host; return a loss, and leave the rest to the "
            "optimizer"
        )
    if loss is not None and loss.requires_grad:
        torch.autograd.backward(loss)
    for parameter in parameters:
        parameter.grad = None
    if any(part.grad is not None or part.requires_grad for part in stage.parts.backbone.parameters()):
        raise ContractViolation(
            "extra_loss sends a gradient into the backbone; it is frozen: use output.features, keys and "
            "batch.query, and leave requires_grad alone"
        )
    return loss


# -- leading a constraint through tasks ---------------------------------------------------------------------


def _constraint(subject: Subject, parts: RunParts) -> Constraint:
    def build() -> Constraint:
        made: Constraint = subject.component.build(subject.config, parts.baseline.context)
        return made

    return available(build)


def _tasks(subject: Subject, *, still: bool = False, bare: bool = False) -> Iterator[Stage]:
    """Lead a fresh constraint through three tasks and yield it within each.

    Args:
        subject: The constraint's component.
        still: Whether a draw from a global generator in ``begin_task`` is a violation.
        bare: Whether the baseline has no retrieval strategy.
    """
    with seeded(0):
        session = opened(subject)
        constraint = _constraint(subject, session.parts)
        memory = WatchedMemory(session.parts.memory.options)
        parts = attrs.evolve(session.parts, memory=memory, constraints={"checked": constraint})
        session = attrs.evolve(session, parts=parts)
    for index, task in enumerate(session.data.stream.tasks):
        with seeded(1):
            context = begin(session, index)
            evidence_sample = parts.evidence_sample(index, session.data.image_set([task.train], train=False))
            if bare:
                context = attrs.evolve(context, retrieval=None)
        with seeded(1) as generators, bearing("begin_task", "it is called for every task, the first too"):
            available(lambda: constraint.begin_task(context))  # noqa: B023
            if still:
                generators.refuse_draws("begin_task", _DRAWS)
        yield Stage(parts=parts, constraint=constraint, context=context)
        with seeded(1), bearing("absorb", "it is called for every site of a finished task"):
            absorb_task(parts, context, evidence_sample)


def _equal(first: Tensor | None, second: Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    return torch.equal(first, second)


# -- bending ------------------------------------------------------------------------------------------------


def _bend(site: Site, restriction: Restriction, target: Target, change: Tensor, *, hard: bool) -> Tensor:
    """Return what a rule leaves of a change, through the framework's own protection."""
    zeroed_site = attrs.evolve(site, parameter=torch.nn.Parameter(torch.zeros_like(site.parameter)))
    protection = Protection([SiteRule(site=zeroed_site, restriction=restriction, on=target, hard=hard)])
    moved = zeroed_site.parameter.data
    if target == "gradient":
        moved = zeroed_site.parameter.grad = torch.zeros_like(zeroed_site.parameter)
    protection.before_step()
    zeroed_site.view(moved).copy_(change)
    if target == "gradient":
        protection.after_backward()
    else:
        protection.after_step()
    return zeroed_site.view(moved).clone()
