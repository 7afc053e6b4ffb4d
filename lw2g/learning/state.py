"""From a session to a checkpoint and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from lw2g.disk.checkpoint import Checkpoint, part, under
from lw2g.errors import DataError
from lw2g.interfaces.pool import Pool
from lw2g.learning.phases import PhaseProgress, optimizer_tensors
from lw2g.learning.protection import Protection
from lw2g.learning.session import Session
from lw2g.model.manifest import TaskNote, described
from lw2g.model.parts import fill, tensors_of, widened

__all__ = [
    "Position",
    "beginning",
    "fingerprints",
    "kept_numbers",
    "position_of",
    "require_same",
    "restore",
    "snapshot",
]


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
    protection: Protection | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    base: Mapping[str, Tensor] | None = None,
) -> Checkpoint:
    """Return a checkpoint with everything that a continuation needs.

    Args:
        session: The run.
        position: Where it stands.
        ledger: What it has found.
        protection: That of the task under way.
        optimizer: That of the phase under way.
        base: The tensors at the end of the task before. Those of sets are taken from there, for learning a
            task changes no set but its own, and within a task those of the memory, which grows at its end.
    """
    tensors = _kept(session, base, within=position.within)
    if protection is not None:
        tensors |= under("protection", protection.state_dict())
    if optimizer is not None:
        tensors |= under("optimizer", optimizer_tensors(optimizer))
    return attrs.evolve(beginning(session, position, ledger), tensors=tensors)


def _kept(session: Session, base: Mapping[str, Tensor] | None, *, within: bool) -> dict[str, Tensor]:
    """Return what a session keeps from task to task.

    Args:
        session: The run.
        base: As for :func:`snapshot`.
        within: Whether a task is under way.
    """
    parts = session.parts
    base = {} if base is None else base
    tensors = tensors_of(parts, _sets(parts.pool, base))
    tensors |= under("evidence", parts.growth.stored.state_dict())
    tensors |= under("merging", parts.merging)
    if within and base:
        tensors |= _of(base, "memory")
    else:
        tensors |= under("memory", parts.memory.state_dict())
    for name, constraint in parts.constraints.items():
        tensors |= under(f"constraint.{name}", constraint.state_dict())
    return tensors


def kept_numbers(session: Session, base: Mapping[str, Tensor] | None = None) -> int:
    """Return the number of values that a session keeps from task to task, those of kept pixels included.

    Args:
        session: The run.
        base: As for :func:`snapshot`.
    """
    total = 0
    for tensor in _kept(session, base, within=False).values():
        # counts and places are integers of other kinds; uint8 are pixels
        if tensor.is_floating_point() or tensor.dtype == torch.uint8:
            total += tensor.numel()
    return total


def _sets(pool: Pool, base: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of all sets: as they are of the last task's set and of those new to the base."""
    newest = set(pool.task_to_set[-1:])  # learning a task changes no set but its own
    moved = {str(set_id) for set_id in newest}
    still: dict[str, Tensor] = {}
    in_base: set[str] = set()
    for name, value in base.items():
        if not name.startswith("pool/"):
            continue
        owner = name[len("pool/") : name.index(".")]
        in_base.add(owner)
        if owner not in moved:
            still[name] = value
    moving = newest | {set_id for set_id in pool.ids if str(set_id) not in in_base}
    return still | under("pool", pool.state_dict(sorted(moving)))


def _of(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name: value for name, value in tensors.items() if name.startswith(f"{prefix}/")}


def beginning(session: Session, position: Position, ledger: Mapping[str, Any]) -> Checkpoint:
    """Return a checkpoint of a newly opened session, without any state."""
    progress = {
        "position": {
            "task": position.task,
            "within": position.within,
            "phase": position.phase,
            "epoch": position.progress.epoch,
            "step": position.progress.step,
        },
        "fingerprints": fingerprints(session),
        "model": described(session.parts),
    }
    begun = session.parts.infos[: position.task + int(position.within)]
    entries = {**ledger, "tasks": [TaskNote.of(info).as_mapping() for info in begun]}
    return Checkpoint(tensors={}, progress=progress, ledger=entries)


def require_same(session: Session, checkpoint: Checkpoint) -> None:
    """Refuse data or weights other than those the run began with.

    Raises:
        DataError: The benchmark or the weights are not those the run began with.
    """
    before = checkpoint.progress["fingerprints"]
    # with new classes from a further benchmark, a run has what it had without them
    beginnings = {source.fingerprint for source in session.data.sources[:-1]}
    for what, now in fingerprints(session).items():
        if before[what] != now and not (what == "benchmark" and before[what] in beginnings):
            raise DataError(
                f"the {what} has changed since the run began (fingerprint {now[:12]} instead of "
                f"{before[what][:12]})",
                "restore it, or start a new run",
            )


def restore(session: Session, checkpoint: Checkpoint, begun: int = 0) -> Position:
    """Restore a session from a checkpoint and return the run's position.

    Args:
        session: A new session, or one that was restored to an earlier task.
        checkpoint: The state.
        begun: The tasks that the session has begun already.

    Raises:
        DataError: The benchmark or the weights are not those the run began with.
        ConfigError: The checkpoint knows fewer sources than the session, and its state cannot grow with them.
    """
    require_same(session, checkpoint)
    narrow = checkpoint.progress["fingerprints"]["benchmark"] != session.data.stream.fingerprint

    def adapt(state: dict[str, Tensor], module: nn.Module, whose: str) -> dict[str, Tensor]:
        """Return a module's state, with rows of the module as built for classes that have come since."""
        return widened(state, module.state_dict(), whose) if narrow else state

    parts = session.parts
    tensors = checkpoint.tensors
    position = checkpoint.progress["position"]
    # a task within which the checkpoint was taken has begun, too
    for index in range(begun, position["task"] + int(position["within"])):
        parts.begin_task(index)
    if tensors:  # none where nothing has been learned
        device = parts.engine.device
        fill(parts, tensors, checkpoint.ledger["task_to_set"], adapt)
        parts.memory.load_state_dict(part(tensors, "memory"), device)
        parts.growth.stored.load_state_dict(part(tensors, "evidence"), parts.growth.measures.keys())
        for name, value in part(tensors, "merging").items():
            parts.merging[name] = value.to(device)
        for name, constraint in parts.constraints.items():
            constraint.load_state_dict(part(tensors, f"constraint.{name}"))
    return position_of(checkpoint)


def position_of(checkpoint: Checkpoint) -> Position:
    """Return the run's position in a checkpoint."""
    tensors = checkpoint.tensors
    position = checkpoint.progress["position"]
    return Position(
        task=position["task"],
        within=position["within"],
        phase=position["phase"],
        progress=PhaseProgress(
            epoch=position["epoch"], step=position["step"], optimizer=part(tensors, "optimizer")
        ),
        protection=part(tensors, "protection"),
    )


def fingerprints(session: Session) -> dict[str, str]:
    """Return what identifies a run's data and weights."""
    return {
        "benchmark": session.data.stream.fingerprint,
        "backbone": session.parts.backbone.fingerprint.sha256,
    }
