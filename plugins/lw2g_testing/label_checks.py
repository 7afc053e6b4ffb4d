"""The check of a baseline's training steps: they teach the labels that the batch has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.phase import TrainingPhase
from lw2g_testing.cases import ContractViolation, NotApplicable, Subject, check, methods_of
from lw2g_testing.guards import seeded
from lw2g_testing.moved_session import MovedSession
from lw2g_testing.small_run import begin, learned, opened


@check("baseline")
def check_steps_teach_the_labels(subject: Subject) -> None:
    """A step of training does not lower the logits of its images' own classes."""
    run = learned(subject)
    parts = run.session.parts
    trained = [info.index for info in parts.infos if parts.baseline.trains(info)]
    if not trained:
        raise NotApplicable("no task trains")
    # the last one, where numbers within the task are classes of another task
    task = trained[-1]
    session = opened(subject, run.checkpoints[task - 1] if task else None)
    context = begin(session, task)
    batch = MovedSession(session=session).of_task(task)
    baseline = session.parts.baseline
    lowered: list[bool] = []
    with seeded(12):
        for phase in baseline.phases(context):
            if isinstance(phase, TrainingPhase):
                lowered += _lowers_own(baseline, phase, batch)
    # one that is not is enough: of replay, the labels are not the batch's
    if lowered and all(lowered):
        raise ContractViolation(
            f"in task {task + 1} the loss falls as the logits of its images' own classes fall; "
            "compare all columns of the logits with batch.labels, which are numbers of the stream's classes, "
            f"and return a loss that is to be minimised ({methods_of(baseline, 'step', 'phases')})"
        )


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
