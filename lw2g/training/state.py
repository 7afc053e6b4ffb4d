"""From a session to a checkpoint and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g.errors import DataError
from lw2g.training.checkpoint import Checkpoint, part, under
from lw2g.training.phases import PhaseProgress, optimizer_tensors
from lw2g.training.protection import Protection
from lw2g.training.session import Session

__all__ = ["Position", "restore", "snapshot"]


@attrs.define(kw_only=True)
class Position:
    """Where a run stands.

    Attributes:
        task: The task to go on with.
        within: Whether that task has its set already.
        phase: The phase to go on with.
        progress: Where that phase stands.
        protection: State of the task's protection, empty at its beginning.
    """

    task: int = 0
    within: bool = False
    phase: int = 0
    progress: PhaseProgress = attrs.field(factory=PhaseProgress)
    protection: dict[str, Tensor] = attrs.field(factory=dict)


def snapshot(
    session: Session,
    position: Position,
    ledger: Mapping[str, Any],
    protection: Protection | None,
    optimizer: torch.optim.Optimizer | None,
) -> Checkpoint:
    """Return a checkpoint of everything that a continuation needs."""
    tensors = {
        **under("baseline", session.baseline.state_dict()),
        **under("pool", session.pool.state_dict()),
        **under("memory", session.memory.state_dict()),
    }
    if session.retrieval is not None:
        tensors |= under("retrieval", session.retrieval.state_dict())
    for name, constraint in session.constraints.items():
        tensors |= under(f"constraint.{name}", constraint.state_dict())
    if protection is not None:
        tensors |= under("protection", protection.state_dict())
    if optimizer is not None:
        tensors |= under("optimizer", optimizer_tensors(optimizer))
    progress = {
        "position": {
            "task": position.task,
            "within": position.within,
            "phase": position.phase,
            "epoch": position.progress.epoch,
            "step": position.progress.step,
        },
        "fingerprints": _fingerprints(session),
        "ledger": dict(ledger),
    }
    return Checkpoint(tensors=tensors, progress=progress)


def restore(session: Session, checkpoint: Checkpoint) -> tuple[Position, dict[str, Any]]:
    """Put a session into the state of a checkpoint; return where it stands and its ledger.

    Raises:
        DataError: The benchmark or the weights are not those the run began with.
    """
    progress, tensors = checkpoint.progress, checkpoint.tensors
    for what, now in _fingerprints(session).items():
        if progress["fingerprints"][what] != now:
            raise DataError(
                f"the {what} has changed since the run began (fingerprint {now[:12]} instead of "
                f"{progress['fingerprints'][what][:12]}); restore it, or start a new run"
            )
    place, ledger = progress["position"], progress["ledger"]
    begun = place["task"] + 1 if place["within"] else place["task"]
    for index in range(begun):
        session.begin_task(index)
    session.baseline.load_state_dict(part(tensors, "baseline"))
    session.pool.restore(ledger["task_to_set"], part(tensors, "pool"), lambda: session.new_set(None))
    session.memory.load_state_dict(part(tensors, "memory"), session.engine.device)
    if session.retrieval is not None:
        session.retrieval.load_state_dict(part(tensors, "retrieval"))
    for name, constraint in session.constraints.items():
        constraint.load_state_dict(part(tensors, f"constraint.{name}"))
    position = Position(
        task=place["task"],
        within=place["within"],
        phase=place["phase"],
        progress=PhaseProgress(
            epoch=place["epoch"], step=place["step"], optimizer=part(tensors, "optimizer")
        ),
        protection=part(tensors, "protection"),
    )
    return position, ledger


def _fingerprints(session: Session) -> dict[str, str]:
    return {"benchmark": session.stream.fingerprint, "backbone": session.backbone.fingerprint.sha256}
