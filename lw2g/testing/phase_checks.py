"""What baselines and retrieval strategies promise of the phases they ask for; none is run to see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import torch

from lw2g.interfaces.component import BaselineComponent
from lw2g.interfaces.phase import ComputePhase, TrainingPhase
from lw2g.testing.bench import TASKS, Bench, begin, changed, everything, lay_out_or_skip, seeded
from lw2g.testing.kit import ContractViolation, Subject, check

__all__ = [
    "check_phases_change_nothing",
    "check_phases_have_names",
    "check_phases_train_what_is_theirs",
]


@attrs.frozen(kw_only=True, eq=False)
class _Plan:
    """What is done with one task, and what asking for it has changed.

    Attributes:
        bench: As the task has begun.
        task: The task, from 0.
        own: The phases of the subject.
        all: Those of retrieval strategy and baseline together.
        moved: Names of tensors that changed, or what else did.
    """

    bench: Bench
    task: int
    own: Sequence[TrainingPhase | ComputePhase]
    all: Sequence[TrainingPhase | ComputePhase]
    moved: Sequence[str]


def _plans(subject: Subject) -> Iterable[_Plan]:
    """Yield the phases of three tasks: a new set, the same set again if the policy may do so, a new one."""
    bench = lay_out_or_skip(subject, 0)
    for index in range(TASKS):
        with seeded(10 + index):
            begin(bench, index, reuse=index == 1)
            context = bench.context(index)
            before, draws = everything(bench.modules), torch.get_rng_state()
            first = [] if bench.retrieval is None else list(bench.retrieval.phases(context))
            second = list(bench.baseline.phases(context))
            moved = changed(before, everything(bench.modules))
            if not torch.equal(draws, torch.get_rng_state()):
                moved.append("torch's global generator")
        own = second if isinstance(subject.component, BaselineComponent) else first
        yield _Plan(bench=bench, task=index, own=own, all=[*first, *second], moved=moved)


@check("baseline")
@check("retrieval")
def check_phases_change_nothing(subject: Subject) -> None:
    """Asking for a task's phases changes nothing; what must change is done in a phase."""
    for plan in _plans(subject):
        if plan.moved:
            raise ContractViolation(
                f"phases() of task {plan.task + 1} changes {plan.moved[0]!r}; do it in a ComputePhase, "
                "which is not run again after a resume"
            )


@check("baseline")
@check("retrieval")
def check_phases_have_names(subject: Subject) -> None:
    """The phases of a task have different names, by which their random numbers are drawn."""
    for plan in _plans(subject):
        names = [phase.name for phase in plan.all]
        twice = [phase.name for phase in plan.own if names.count(phase.name) > 1]
        if twice:
            raise ContractViolation(
                f"several phases of task {plan.task + 1} are named {twice[0]!r}; name each differently, and "
                "those of a retrieval strategy 'retrieval...'"
            )


@check("baseline")
@check("retrieval")
def check_phases_train_what_is_theirs(subject: Subject) -> None:
    """A baseline trains the task's set and shared parameters, a retrieval strategy its own; nothing else."""
    for plan in _plans(subject):
        bench = plan.bench
        mine = {"retrieval"}
        trained = [(phase.name, phase.trained) for phase in plan.own if isinstance(phase, TrainingPhase)]
        if isinstance(subject.component, BaselineComponent):
            mine = {"baseline", f"set {bench.pool.task_to_set[plan.task]}"}
        elif bench.retrieval is not None:
            groups = bench.retrieval.parameter_groups(bench.context(plan.task), 0.1)
            trained += [("parameter_groups", group.parameters) for group in groups]
        owners = {
            id(parameter): (owner, name)
            for owner, module in (*bench.modules.items(), ("backbone", bench.backbone))
            for name, parameter in module.named_parameters()
        }
        for phase, parameters in trained:
            for parameter in parameters:
                owner, name = owners.get(id(parameter), ("nobody", "unregistered parameter"))
                if owner not in mine:
                    raise ContractViolation(
                        f"{phase!r} of task {plan.task + 1} trains {name!r} of {owner}; train parameters of "
                        f"{' and '.join(sorted(mine))} alone, registered there so that a checkpoint holds "
                        "them"
                    )
