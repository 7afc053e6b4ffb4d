"""What the framework relies on in a constraint: it takes away, never adds, and leaves the host alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Literal

import attrs
import torch
from torch import Tensor

from lw2g.interfaces.constraint import Constraint, ConstraintContext
from lw2g.interfaces.phase import StepOutput
from lw2g.interfaces.site import Restriction, Site
from lw2g.testing.constraint_stage import TASKS, ConstraintStage
from lw2g.testing.guards import available, bearing, seeded
from lw2g.testing.kit import ContractViolation, NotApplicable, Subject, check
from lw2g.training.protection import Protection, SiteRule

__all__ = [
    "check_asks_for_what_it_reads",
    "check_constraint_lives_through_a_run",
    "check_constraint_state_round_trips",
    "check_extra_loss_disturbs_no_draws",
    "check_extra_loss_is_a_finite_scalar",
    "check_extra_loss_spares_host_and_backbone",
    "check_hard_rules_are_idempotent",
    "check_hard_rules_remove_everything",
    "check_keys_and_features_may_be_missing",
    "check_norm_never_grows",
    "check_restrictions_fit_their_sites",
    "check_zero_stays_zero",
]

Moment = Literal["gradient", "update"]
_MOMENTS: tuple[Moment, ...] = ("gradient", "update")
_ROUNDING = 1e-5
"""Share of a norm that may be lost or won by float32 rounding."""


@check("constraint")
def check_constraint_lives_through_a_run(subject: Subject) -> None:
    """It works from the first task on, without any history, on sets that are new and reused."""
    for stage, constraint, context in _tasks(subject):
        where = f"in task {context.task.task.index + 1}"
        remedy = "before the first task is absorbed the memory is empty: return None for no rule or loss"
        with bearing(f"{where}, restriction or extra_loss", remedy):
            _restrictions(stage, constraint, context)
            constraint.extra_loss(*stage.step(context), context.task)
        if constraint.on not in _MOMENTS:
            raise ContractViolation(
                f"its attribute on is {constraint.on!r}; set it to 'update' or 'gradient'"
            )


@check("constraint")
def check_restrictions_fit_their_sites(subject: Subject) -> None:
    """A restriction's space is as wide as the rows of the site that it restricts."""
    for stage, constraint, context in _tasks(subject):
        for site, restriction in _restrictions(stage, constraint, context):
            width, dim = site.parameter.shape[-1], restriction.subspace.dim
            if width != dim:
                raise ContractViolation(
                    f"site {site.name!r} has rows of {width} and gets a space of {dim}; return the space of "
                    "the activation that multiplies the rows (site.activation.image maps the tap's)"
                )


@check("constraint")
def check_hard_rules_remove_everything(subject: Subject) -> None:
    """A hard constraint removes the whole component inside its space (strength 1)."""
    for stage, constraint, context in _tasks(subject):
        for site, restriction in _restrictions(stage, constraint, context):
            if constraint.hard and restriction.strength != 1:
                raise ContractViolation(
                    f"it is hard and has strength {restriction.strength!r} at site {site.name!r}; return "
                    "strength 1, or declare hard = False"
                )


@check("constraint")
def check_zero_stays_zero(subject: Subject) -> None:
    """A zero gradient and a zero update stay zero."""
    for site, bent, _ in _bent(subject, scale=0.0):
        if not bool((bent == 0).all()):
            raise ContractViolation(
                f"zero at site {site.name!r} becomes {float(bent.abs().max()):.3g}; return a space with a "
                "finite orthonormal basis (subspace.build makes one, from a moment without energy, too)"
            )


@check("constraint")
def check_norm_never_grows(subject: Subject) -> None:
    """Neither a gradient nor an update is longer after the rule than before it."""
    for site, bent, change in _bent(subject):
        before, after = float(change.norm()), float(bent.norm())
        if not after <= before * (1 + _ROUNDING):
            raise ContractViolation(
                f"a change of norm {before:.4g} at site {site.name!r} leaves with {after:.4g}; return a "
                "space of orthonormal columns (subspace.build, extend, union) and a strength from 0 to 1"
            )


@check("constraint")
def check_hard_rules_are_idempotent(subject: Subject) -> None:
    """Applying a hard rule to what it left changes nothing more."""
    if not _constraint(subject, ConstraintStage.make()).hard:
        raise NotApplicable("it is a soft constraint")
    for stage, constraint, context in _tasks(subject):
        for site, restriction in _restrictions(stage, constraint, context):
            for moment in _MOMENTS:
                change = _change(site)
                once = _bend(site, restriction, moment, change, hard=True)
                twice = _bend(site, restriction, moment, once, hard=True)
                if not float((twice - once).norm()) <= _ROUNDING * float(change.norm()):
                    raise ContractViolation(
                        f"applied twice at site {site.name!r} it removes more than once; return a space with "
                        "orthonormal columns (lw2g.geometry.subspace.build, extend, union)"
                    )


@check("constraint")
def check_asks_for_what_it_reads(subject: Subject) -> None:
    """It declares needs_memory where it reads the memory, and absorbs where it has a method absorb."""
    for stage, constraint, context in _tasks(subject):
        _restrictions(stage, constraint, context)
        constraint.extra_loss(*stage.step(context), context.task)
        if stage.memory.was_read and not constraint.needs_memory:
            raise ContractViolation(
                "it reads context.memory and declares needs_memory = False; declare it True, else the "
                "memory stays empty"
            )
        stage.memory.was_read = False
        if type(constraint).absorb is not Constraint.absorb and not constraint.absorbs:
            raise ContractViolation(
                "it overrides absorb and declares absorbs = False; declare it True, else it is never called"
            )


@check("constraint")
def check_constraint_state_round_trips(subject: Subject) -> None:
    """Restored from its state, it restricts and guides the next task as it would have."""
    for stage, constraint, context in _tasks(subject):
        state = constraint.state_dict()
        wrong = [key for key, value in state.items() if not isinstance(value, Tensor)]
        if wrong:
            raise ContractViolation(
                f"state_dict holds {wrong[0]!r}, which is no tensor; return tensors by name"
            )
        restored = _constraint(subject, stage)
        restored.load_state_dict({key: value.detach().clone() for key, value in state.items()})
        restored.begin_task(context)
        if _said(stage, restored, context) != _said(stage, constraint, context):
            raise ContractViolation(
                f"restored from its state_dict it acts otherwise in task {context.task.task.index + 1}; keep "
                "all that absorb and begin_task have learned in state_dict, and take it in load_state_dict"
            )


@check("constraint")
def check_extra_loss_is_a_finite_scalar(subject: Subject) -> None:
    """The loss it adds is None or one finite number."""
    for stage, constraint, context in _tasks(subject):
        loss = constraint.extra_loss(*stage.step(context), context.task)
        if loss is not None and not (isinstance(loss, Tensor) and loss.ndim == 0 and bool(loss.isfinite())):
            raise ContractViolation(
                f"extra_loss returns {loss!r}; return a finite tensor without dimensions, or None for no loss"
            )


@check("constraint")
def check_extra_loss_spares_host_and_backbone(subject: Subject) -> None:
    """The loss it adds sends no gradient into the backbone and changes no value of the host."""
    for stage, constraint, context in _tasks(subject):
        parameters = [site.parameter for site in stage.sites(context)]
        before = [parameter.detach().clone() for parameter in parameters]
        batch, output = stage.step(context)
        kept = (output.loss.detach().clone(), batch.images.clone(), batch.query.clone(), batch.labels.clone())
        loss = constraint.extra_loss(batch, output, context.task)
        now = (output.loss.detach(), batch.images, batch.query, batch.labels)
        same = all(map(torch.equal, (*before, *kept), (*(one.detach() for one in parameters), *now)))
        if not same or any(parameter.grad is not None for parameter in parameters):
            raise ContractViolation(
                "extra_loss changes values or gradients of the host; return a loss, and leave the rest to "
                "the optimizer"
            )
        backbone = stage.build.backbone
        if loss is not None and loss.requires_grad:
            torch.autograd.backward(loss)
        for parameter in parameters:
            parameter.grad = None
        if any(one.grad is not None or one.requires_grad for one in backbone.parameters()):
            raise ContractViolation(
                "extra_loss sends a gradient into the backbone; it is frozen: use output.features, keys and "
                "batch.query, and leave requires_grad alone"
            )


@check("constraint")
def check_extra_loss_disturbs_no_draws(subject: Subject) -> None:
    """It draws in extra_loss alone, from torch's global generator, so that the host draws as without it."""
    for stage, constraint, context in _tasks(subject, still=True):
        with seeded(1) as generators:
            _restrictions(stage, constraint, context)
            _refuse_draws("restriction", generators.moved())
        found = []
        for others in (1, 2):
            with seeded(1, others=others) as generators:
                found.append(constraint.extra_loss(*stage.step(context), context.task))
                _refuse_draws("extra_loss", tuple(name for name in generators.moved() if name != "torch"))
        if not _equal(*found):
            raise ContractViolation(
                f"extra_loss is {found[0]} and then {found[1]} for one batch and one torch seed; draw from "
                "torch's global generator alone, which is seeded before every step"
            )


@check("constraint")
def check_keys_and_features_may_be_missing(subject: Subject) -> None:
    """It goes along with a baseline that has no retrieval strategy and gives no features."""
    with warnings.catch_warnings(action="ignore"):  # it may well say that it has nothing to do
        for stage, constraint, context in _tasks(subject, bare=True):
            batch, output = stage.step(context)
            bare = StepOutput(loss=output.loss)
            with bearing(
                "without keys and features, extra_loss", "return None where it has nothing to act on"
            ):
                loss = constraint.extra_loss(batch, bare, context.task)
            if loss is not None and not bool(loss.isfinite()):
                raise ContractViolation(
                    f"without keys and features, extra_loss is {loss}; return None for no loss"
                )


# -- leading a constraint through tasks ---------------------------------------------------------------------


def _constraint(subject: Subject, stage: ConstraintStage) -> Constraint:
    def build() -> Constraint:
        made: Constraint = subject.component.build(subject.config, stage.build)
        return made

    return available(build)


def _tasks(
    subject: Subject, *, still: bool = False, bare: bool = False
) -> Iterator[tuple[ConstraintStage, Constraint, ConstraintContext]]:
    """Lead a fresh constraint through three tasks and yield it in the midst of each.

    Args:
        subject: The constraint's component.
        still: Whether a draw from a global generator at either end of a task is a violation.
        bare: Whether the baseline has no retrieval strategy.
    """
    stage = ConstraintStage.make()
    constraint = _constraint(subject, stage)
    for index in range(TASKS):
        context = stage.begin(index)
        if bare:
            context = attrs.evolve(context, task=attrs.evolve(context.task, retrieval=None))
        with seeded(1) as generators, bearing("begin_task", "it is called for every task, the first too"):
            available(lambda context=context: constraint.begin_task(context))  # type: ignore[misc]
            _refuse_draws("begin_task", generators.moved() if still else ())
        yield stage, constraint, context
        with seeded(1) as generators, bearing("absorb", "it is called for every site of a finished task"):
            stage.finish(constraint, context)
            _refuse_draws("absorb", generators.moved() if still else ())


def _refuse_draws(where: str, moved: tuple[str, ...]) -> None:
    if moved:
        raise ContractViolation(
            f"{where} draws from the global generator of {' and '.join(moved)}, and the host draws otherwise "
            "than without it; use context.task.generator(purpose), or torch's in extra_loss"
        )


def _restrictions(
    stage: ConstraintStage, constraint: Constraint, context: ConstraintContext
) -> list[tuple[Site, Restriction]]:
    asked = ((site, constraint.restriction(site, context)) for site in stage.sites(context))
    return [(site, restriction) for site, restriction in asked if restriction is not None]


def _said(
    stage: ConstraintStage, constraint: Constraint, context: ConstraintContext
) -> tuple[dict[str, tuple[float, tuple[int, ...], bytes]], bytes | None]:
    """Return restrictions by site and the loss of one batch, as values that compare."""
    rules = {
        site.name: (
            restriction.strength,
            restriction.subspace.ranks,
            restriction.subspace.basis.detach().cpu().contiguous().numpy().tobytes(),
        )
        for site, restriction in _restrictions(stage, constraint, context)
    }
    with seeded(1):
        loss = constraint.extra_loss(*stage.step(context), context.task)
    return rules, None if loss is None else loss.detach().cpu().numpy().tobytes()


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other if one is None or other is None else torch.equal(one, other)


# -- bending ------------------------------------------------------------------------------------------------


def _bent(subject: Subject, scale: float = 1.0) -> Iterator[tuple[Site, Tensor, Tensor]]:
    """Yield what becomes of a change at every restricted site, as gradient and as update, and the change.

    Raises:
        NotApplicable: The constraint restricts no site.
    """
    found = False
    for stage, constraint, context in _tasks(subject):
        for site, restriction in _restrictions(stage, constraint, context):
            found = True
            for moment in _MOMENTS:
                change = _change(site) * scale
                yield site, _bend(site, restriction, moment, change, hard=constraint.hard), change
    if not found:
        raise NotApplicable("it restricts no site")


def _change(site: Site) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(site.view(site.parameter).shape, generator=generator)


def _bend(site: Site, restriction: Restriction, moment: Moment, change: Tensor, *, hard: bool) -> Tensor:
    """Return what a rule leaves of a change, through the framework's own protection."""
    own = attrs.evolve(site, parameter=torch.nn.Parameter(torch.zeros_like(site.parameter)))
    protection = Protection([SiteRule(site=own, restriction=restriction, on=moment, hard=hard)])
    moved = own.parameter.data
    if moment == "gradient":
        moved = own.parameter.grad = torch.zeros_like(own.parameter)
    protection.before_step()
    own.view(moved).copy_(change)
    if moment == "gradient":
        protection.after_backward()
    else:
        protection.after_step()
    return own.view(moved).clone()
