"""The check of a baseline's training steps: they teach the labels that the batch has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lw2g.disk.checkpoint import Checkpoint
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.phase import TrainingPhase
from lw2g.learning.session import Session
from lw2g_testing.cases import ContractViolation, NotApplicable, Subject, check, methods_of
from lw2g_testing.guards import seeded
from lw2g_testing.moved_session import MovedSession
from lw2g_testing.small_run import begin, learned, opened

_ROUNDING = 1e-6
"""Share of a gradient that two computations of the same may differ by."""


@check("baseline")
def check_steps_teach_the_labels(subject: Subject) -> None:
    """A step of training does not lower the logits of its images' own classes, nor raise others over them."""
    run = learned(subject)
    parts = run.session.parts
    trained = [info.index for info in parts.infos if parts.baseline.trains(info)]
    if not trained:
        raise NotApplicable("no task trains")
    # the last one, where numbers within the task are classes of another task
    task = trained[-1]
    checkpoint = run.checkpoints[task - 1] if task else None
    baseline = run.session.parts.baseline
    lowered = _lower_own(opened(subject, checkpoint), task)
    # one that is not is enough: of replay, the labels are not the batch's
    if (lowered and all(lowered)) or _lower_own_untaught(subject, task):
        raise ContractViolation(
            f"in task {task + 1} the loss falls as the logits of its images' own classes fall; "
            "compare all columns of the logits with batch.labels, which are numbers of the stream's classes, "
            f"and return a loss that is to be minimised ({methods_of(baseline, 'step', 'phases')})"
        )
    raised = _raise_own(subject, checkpoint, task)
    if raised and not any(raised):
        raise ContractViolation(
            f"in task {task + 1} what a step learns from labels makes another class of the task likelier "
            "than the images' own; compare each label with the column from which logits takes its class, and "
            f"return a loss that is to be minimised ({methods_of(baseline, 'step', 'phases', 'logits')})"
        )


@check("baseline")
def check_steps_write_no_gradient(subject: Subject) -> None:
    """A step of training returns its loss, and leaves no gradient at what is trained."""
    learned(subject)  # a step that fails is told there
    session = opened(subject)
    context = begin(session, 0)
    batch = MovedSession(session=session).of_task(0)
    baseline = session.parts.baseline
    with seeded(12):
        for phase in baseline.phases(context):
            if not isinstance(phase, TrainingPhase):
                continue
            baseline.requires_grad_(False)
            for parameter in phase.trained:
                parameter.requires_grad_(True)
                parameter.grad = None
            with torch.enable_grad():
                try:
                    phase.step(batch)
                except Exception:  # without what an earlier phase leaves; in the small run it had that
                    continue
            if any(parameter.grad is not None for parameter in phase.trained):
                raise ContractViolation(
                    f"the step of phase {phase.name!r} leaves a gradient, to which its loss's is added; "
                    "return the whole loss without calling backward: lw2g does "
                    f"({methods_of(baseline, 'step', 'phases')})"
                )


def _lower_own(session: Session, task: int) -> list[bool]:
    """Return what :func:`_lowers_own` does of all training phases of a task, which is begun here."""
    context = begin(session, task)
    batch = MovedSession(session=session).of_task(task)
    baseline = session.parts.baseline
    lowered: list[bool] = []
    with seeded(12):
        for phase in baseline.phases(context):
            if isinstance(phase, TrainingPhase):
                lowered += _lowers_own(baseline, phase, batch)
    return lowered


def _lower_own_untaught(subject: Subject, task: int) -> bool:
    """Return whether training lowers the logits of own classes where no task before has been learned.

    What a ComputePhase writes into the head of old classes may be so large that the softmax of new ones
    underflows: they then have no gradient. The head's initial values are small.
    """
    try:
        session = opened(subject)
        for before in range(task):
            begin(session, before)
        lowered = _lower_own(session, task)
    except Exception:  # what earlier tasks leave may be needed; in the small run it was there
        return False
    return bool(lowered) and all(lowered)


def _raise_own(subject: Subject, checkpoint: Checkpoint | None, task: int) -> list[bool]:
    """Return, of each training phase, whether what it learns from labels raises answers of own classes.

    It is asked by gradients of what is trained, wherever a classifier stands: of the loss with the images'
    labels less that with other labels of the task, from which all cancels that no label enters, such as
    replay; and of how far the answers of own classes are above those of the others.

    Empty without a phase that can be asked: one that moves by labels what answers do not depend on yet, such
    as a classifier that is thrown away or copied later, has no such answer.
    """
    own, others = (_gradients(subject, checkpoint, task, shifted=shifted) for shifted in (False, True))
    raised = []
    for phase, (loss, margin) in own.items():
        if phase not in others:
            continue
        along = 0.0
        is_whole = True
        for ours, theirs, above in zip(loss, others[phase][0], margin, strict=True):
            learned = ours - theirs
            # what no label enters leaves rounding at most
            if float(learned.norm()) <= _ROUNDING * float(ours.norm()):
                continue
            is_whole &= bool(above.any())
            along += float((learned * above).sum())
        # descent goes against the gradient
        if is_whole and along:
            raised.append(along < 0)
    return raised


def _gradients(
    subject: Subject, checkpoint: Checkpoint | None, task: int, *, shifted: bool
) -> dict[str, tuple[list[Tensor], list[Tensor]]]:
    """Return by phase the gradients of its loss, and of the answers of own classes above those of others.

    Args:
        subject: The baseline.
        checkpoint: The end of the task before.
        task: The task.
        shifted: Whether the images have the label of the task's next class in place of their own.
    """
    session = opened(subject, checkpoint)
    context = begin(session, task)
    now = MovedSession(session=session)
    batch = now.of_task(task)
    classes = torch.unique(batch.labels)
    following = classes[(torch.searchsorted(classes, batch.labels) + 1) % len(classes)]
    rows = torch.arange(len(batch), device=batch.labels.device)
    asked = batch
    if shifted:
        asked = Batch(
            labels=following, samples=batch.samples, images=lambda: batch.images, query=lambda: batch.query
        )
    found: dict[str, tuple[list[Tensor], list[Tensor]]] = {}
    with seeded(12):
        for phase in now.baseline.phases(context):
            if not isinstance(phase, TrainingPhase):
                continue
            now.baseline.requires_grad_(False)
            trained = list(phase.trained)
            for parameter in trained:
                parameter.requires_grad_(True)
            with torch.enable_grad():
                try:
                    loss = phase.step(asked).loss
                    features = now.baseline.features(batch, now.pool.force(context.set_id))
                    logits = now.baseline.logits(now.as_answers(features))
                except Exception:  # a plugin's code may raise anything; in the small run it did not
                    continue
                margin = (logits[rows, batch.labels] - logits[rows, following]).mean()
            found[phase.name] = (_of(loss, trained), _of(margin, trained))
    return found


def _of(value: Tensor, trained: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradient of a value at each parameter, zero where it does not depend on one."""
    if not value.requires_grad:
        return [torch.zeros_like(parameter) for parameter in trained]
    gradients = torch.autograd.grad(value, trained, allow_unused=True)
    pairs = zip(gradients, trained, strict=True)
    return [torch.zeros_like(parameter) if one is None else one for one, parameter in pairs]


def _lowers_own(baseline: Baseline, phase: TrainingPhase, batch: Batch) -> list[bool]:
    """Return, of each tensor of logits of the batch, whether descent on the phase's loss lowers own classes.

    Empty without such a tensor (a task may have a classifier of its own), or if the step fails without what
    an earlier phase leaves.
    """
    baseline.requires_grad_(False)
    for parameter in phase.trained:
        parameter.requires_grad_(True)
    with torch.enable_grad(), _logits_kept(baseline, len(batch)) as kept:
        try:
            loss = phase.step(batch).loss
        except Exception:  # a plugin's code may raise anything; in the small run it did not
            return []
    kept = [logits for logits in kept if logits.requires_grad]
    if not kept:
        return []
    gradients = torch.autograd.grad(loss, kept, allow_unused=True)
    rows = torch.arange(len(batch), device=batch.labels.device)
    return [bool(one[rows, batch.labels].sum() > 0) for one in gradients if one is not None]


@contextmanager
def _logits_kept(baseline: Baseline, images: int) -> Iterator[list[Tensor]]:
    """Keep what ``logits`` and linear heads over all classes return for so many images."""
    kept: list[Tensor] = []
    classes = baseline.context.num_classes

    def keep(logits: Any) -> None:
        if isinstance(logits, Tensor) and logits.shape == (images, classes):
            kept.append(logits)

    original = baseline.logits

    def noted(*given: Any, **named: Any) -> Tensor:
        logits = original(*given, **named)
        keep(logits)
        return logits

    handles = [
        module.register_forward_hook(lambda module, given, logits: keep(logits))
        for module in baseline.modules()
        if isinstance(module, nn.Linear) and module.out_features == classes
    ]
    vars(baseline)["logits"] = noted
    try:
        yield kept
    finally:
        del vars(baseline)["logits"]
        for handle in handles:
            handle.remove()
