"""Checks of what lasts: through a resume, a checkpoint and an export, in protected spaces and in old sets."""

from __future__ import annotations

import torch
from torch import Tensor

from lw2g.disk.predictions import Predictions
from lw2g.interfaces.component import BaselineComponent
from lw2g.learning.session import Session
from lw2g.model.parts import lasting
from lw2g_testing.cases import ContractViolation, NotApplicable, Subject, check, methods_of
from lw2g_testing.changes import changed, modules_of, numbers_of, plain_tensors, same_predictions
from lw2g_testing.guards import bearing, seeded
from lw2g_testing.moved_session import declares, require_own_rows, require_sites
from lw2g_testing.small_run import (
    NO_RUN,
    Learned,
    SmallRun,
    begin,
    evaluate,
    learned,
    opened,
    resumed,
    run_again,
)

PROTECTED = float(torch.finfo(torch.float32).eps)
"""Largest change of linear outputs of unit activations inside a protected space, by rounding to float32.

It is relative to the parameter's largest entry times the square root of its width.
"""


@check("baseline", "retrieval")
def check_resumes_to_the_same_bits(subject: Subject) -> None:
    """A run resumed within a task ends with the parameters and predictions of the uninterrupted run."""
    first = learned(subject)
    rest = resumed(subject)
    task, what = _first_difference(first, rest)
    if what is None:
        _require_same_numbers(first, rest)
        return
    # a run that never gives the same bits has another fault, and another remedy
    again, unlike = _first_difference(first, run_again(subject))
    if unlike is not None:
        raise ContractViolation(
            f"{unlike} of two runs with the same seed differ after task {again + 1}; draw from torch's "
            "global generator (in a ComputePhase from TaskContext.generator)"
        )
    plain = _plain(first.session, rest.session)
    raise ContractViolation(
        f"{what} of a resumed run and of an uninterrupted one differ after task {task + 1}; keep in "
        f"parameters or buffers whatever later steps depend on{plain}, and draw as the framework seeds"
    )


def _plain(first: Session, other: Session) -> str:
    """Return in brackets which tensors differ that no checkpoint holds; empty if there is none."""
    names = changed(plain_tensors(modules_of(first)), plain_tensors(modules_of(other)))
    return f" (no checkpoint holds {', '.join(map(repr, names))})" if names else ""


def _require_same_numbers(first: SmallRun, rest: SmallRun) -> None:
    """Refuse a number that a resumed run has otherwise: a longer run may show what a small one does not.

    Raises:
        ContractViolation: There is one.
    """
    kept = numbers_of(modules_of(rest.session))
    for name, value in numbers_of(modules_of(first.session)).items():
        if kept.get(name) != value:
            raise ContractViolation(
                f"attribute {name!r} is {value} at the end of a run and {kept.get(name, 'none')} at that "
                "of a resumed one; keep it in a buffer, which a checkpoint holds"
            )


def _first_difference(first: SmallRun, second: SmallRun) -> tuple[int, str | None]:
    """Return the first task after which two runs differ, and the name of what differs, else -1 and None."""
    for task, state in sorted(second.after.items()):
        what = first.after[task].difference(state)
        if what is not None:
            return task, what
    return -1, None


@check("baseline", "retrieval")
def check_checkpoint_predicts_the_same(subject: Subject) -> None:
    """Loaded from the checkpoint of a finished task, a run gives the predictions of that time."""
    run = learned(subject)
    require_own_rows(subject)
    for task in dict.fromkeys((0, run.tasks - 1)):
        with bearing(
            f"loading the checkpoint of task {task + 1}",
            "give every tensor of a state dict the shape that it has in a newly built module (for a set: one "
            "made by new_set(None))",
        ):
            session = opened(subject, run.checkpoints[task])
        if not _agree(evaluate(session, task), run.after[task]):
            plain = _plain(run.session, session)
            raise ContractViolation(
                f"loaded from the checkpoint of task {task + 1}, features or predictions are others than "
                f"before; register as parameter or buffer whatever a prediction depends on{plain}"
            )


@check("baseline", "retrieval", applies=lambda subject: declares(subject, "learning_only"))
def check_answers_without_what_only_learning_reads(subject: Subject) -> None:
    """State declared in learning_only changes no prediction: exported models leave it out."""
    run = learned(subject)
    last = run.tasks - 1
    session = opened(subject, run.checkpoints[last])
    for module in (session.parts.baseline, session.parts.retrieval):
        if module is None:
            continue
        state = module.state_dict()
        unread = [state[name] for name in state.keys() - lasting(module, state).keys()]
        # options may leave a part out, which is None then
        named = [name for name in module.learning_only if getattr(module, name, name) is not None]
        if named and not unread:
            raise ContractViolation(
                f"learning_only {module.learning_only!r} names nothing in the state; correct it"
            )
        for value in unread:  # nothing that is computed from NaN stays as it was
            value.fill_(torch.nan if value.is_floating_point() else 0)
    if not _agree(evaluate(session, last), run.after[last]):
        raise ContractViolation(
            "predictions differ without what learning_only names; name only what nothing but learning reads"
        )


def _agree(now: tuple[Predictions, Tensor], before: Learned) -> bool:
    predictions, features = now
    return same_predictions(predictions, before.predictions) and not changed(
        {"": before.features}, {"": features}
    )


def _is_protected(subject: Subject) -> bool:
    component: BaselineComponent = subject.component
    return not component.joint and component.has_sites


@check("baseline", applies=_is_protected)
def check_protection_holds(subject: Subject) -> None:
    """Training a reused set changes its parameters, but no linear output of old activations."""
    require_sites(subject)
    run = learned(subject)
    after = run.after[1].sites
    free = trained = 0
    for name, (old, space) in run.after[0].sites.items():
        if name not in after or space is None:
            continue
        new, _ = after[name]
        moved = (new - old).double()
        # the outputs of all activations in the space are combinations of those of its basis vectors
        inside = float(space.to(dtype=moved.dtype).on(moved).abs().max())
        # the rounding of a row's product grows like the root of its length
        tolerance = PROTECTED * float(torch.stack([old, new]).abs().max()) * space.dim**0.5
        if inside > tolerance:
            raise ContractViolation(
                f"site {name!r} moves by {inside:.1e} inside the space of its old activations (tolerance "
                f"{tolerance:.1e}) when task 2 is learned; change its parameter only in a TrainingPhase with "
                "host=True, on which constraints act"
            )
        free += not space.is_full  # a full space leaves no direction to train in
        trained += float(moved.abs().max()) > tolerance
    parts = opened(subject).parts
    if free and not trained and parts.baseline.trains(parts.infos[1]):
        raise ContractViolation(
            "no site of a reused set, or shared one, is trained in task 2; put its parameter into the "
            "groups of a TrainingPhase with host=True, whether the set is new or not; or its learning rate "
            "is too small to move it"
        )


@check("baseline", applies=lambda subject: subject.component.growth == "sets")
def check_new_sets_are_new(subject: Subject) -> None:
    """new_set returns a set of its own, also where it is given one to start from."""
    with seeded(13):
        try:
            session = opened(subject)
            begin(session, 0)
        except Exception as error:  # a plugin's code may raise anything: learns_a_small_stream reports it
            raise NotApplicable(NO_RUN) from error
        parts = session.parts
        source = parts.pool.newest
        try:
            made = parts.baseline.new_set(source)
        except Exception:  # one that starts from no set, or from several, need not take this one
            return
    if made is source:
        raise ContractViolation(
            f"{methods_of(parts.baseline, 'new_set')} returns the set that it starts from; return a copy "
            "(copy.deepcopy), which trains alone"
        )
