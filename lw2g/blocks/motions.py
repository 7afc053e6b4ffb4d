"""Building block: what carries return, what they have moved so far, and when a run should warn.

A motion is fitted to the new classes and applied to the old ones. Where the new classes move much farther
than those of earlier tasks did, it is likely to carry old classes too far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from lw2g.blocks.carrying import take_shape
from lw2g.errors import ContractError, shown
from lw2g.interfaces.carry import Motion

__all__ = ["ALARMING", "Motions", "TaskMotion", "require_motion", "require_moved"]

ALARMING = 3.0
"""Ratio of the new classes' motion to the median of earlier tasks' from which a run warns.

The next whole number above the largest ratio of 28 steps on the development streams (2.1, at 64 px): a stream
of one kind of images stays quiet. It tells that a task is unlike the earlier ones, not that harm was done:
docs/carries.md.
"""
_HELD = 0.5
"""An old class that takes less than this share of a motion counts as held back by the gate."""


@attrs.frozen(kw_only=True)
class TaskMotion:
    """What a task moved.

    Attributes:
        task: Its index.
        new: Mean distance that the means of its own classes went; with several sets, under the one where it
            is largest.
        old: Mean distance that the means of old classes were carried.
        times: ``new`` in medians of earlier tasks'; None for the first task that moved any.
        held: The targets of the old classes that a gate has held back.
        carried: Number of old classes.
    """

    task: int
    new: float
    old: float
    times: float | None
    held: tuple[int, ...]
    carried: int

    @property
    def alarming(self) -> bool:
        """Whether the new classes went so far that carrying is in doubt."""
        return self.times is not None and self.times >= ALARMING


class Motions(nn.Module):
    """A log of motions; a checkpoint holds its buffers.

    Attributes:
        tasks: Task, number of old classes, and the bits of ``new`` and ``old`` (:class:`TaskMotion`),
            ``[tasks, 4]`` int64. Bits, because storage counts floating numbers, and a log is no statistic.
        held: Task and target of each class that a gate held back, ``[n, 2]`` int64.
    """

    tasks: Tensor
    held: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("tasks", torch.zeros(0, 4, dtype=torch.int64))
        self.register_buffer("held", torch.zeros(0, 2, dtype=torch.int64))

    def note(self, task: int, moved: Sequence[tuple[Tensor, Tensor, Tensor]], targets: Sequence[int]) -> None:
        """Note what a task has moved.

        Args:
            task: Its index.
            moved: Under each set concerned how far the mean of each new class went, how far that of each old
                class was carried, and the share of the motion that this one took; ``[k]``, ``[n]``, ``[n]``.
            targets: The target of each of these old classes, set by set.
        """
        new = torch.stack([new.mean() for new, _, _ in moved]).max()  # of the set that moved them most
        old = torch.cat([old for _, old, _ in moved]).cpu()
        shares = torch.cat([share for _, _, share in moved]).cpu()
        # one table of integers: lengths stand in it by their bits
        bits = torch.stack([new.cpu(), old.mean()]).double().view(torch.int64).tolist()
        row = torch.tensor([[task, len(old), *bits]])
        self.tasks = torch.cat([self.tasks, row.to(self.tasks)])
        # each target once: its classes may have been carried under several sets
        slow = set(torch.tensor(targets)[shares < _HELD].tolist())
        held = torch.tensor(sorted(slow), dtype=torch.int64)
        rows = torch.stack([torch.full_like(held, task), held], 1)
        self.held = torch.cat([self.held, rows.to(self.held)])

    def entries(self) -> Iterator[TaskMotion]:
        """Yield what each task has moved."""
        held = self.held.tolist()
        before = list[float]()  # how far earlier tasks moved their own classes
        # back from their bits
        lengths = self.tasks.cpu()[:, 2:].contiguous().view(torch.float64).tolist()
        for (task, carried, *_), (new, old) in zip(self.tasks.tolist(), lengths, strict=True):
            times = None
            # earlier tasks that moved nothing are no measure
            if before and median(before):
                times = new / median(before)
            yield TaskMotion(
                task=task,
                new=new,
                old=old,
                times=times,
                held=tuple(target for where, target in held if where == task),
                carried=carried,
            )
            before.append(new)

    def as_findings(self) -> list[dict[str, Any]]:
        """Return the entries as in a record."""
        return [
            attrs.asdict(entry) | {"held": list(entry.held), "alarming": entry.alarming}
            for entry in self.entries()
        ]

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        for name in ("tasks", "held"):
            state.setdefault(prefix + name, self.get_buffer(name))  # checkpoints had no log before
            take_shape(self, name, state, prefix)
        super()._load_from_state_dict(state, prefix, *others)


def require_motion(found: object, candidates: Sequence[str], name: str) -> tuple[Motion, int]:
    """Return the motion that a carry's ``fit`` returned, and the position of its candidate.

    Args:
        found: What it returned.
        candidates: The names of its motions.
        name: The carry's name, for the message.

    Raises:
        ContractError: It is something else.
    """
    match found:
        case (Motion() as motion, str(chosen)) if chosen in candidates:
            return motion, candidates.index(chosen)
    whose = f"carry {name!r}"
    remedy = f"return a Motion and the name of one of the candidates {list(candidates)}"
    raise ContractError(f"{whose}, fit: returned {shown(found)}", remedy, whose)


def require_moved(moved: object, shape: Sequence[int], name: str) -> None:
    """Refuse what a carry's motion makes of the means of old classes if it is no place for each of them.

    Args:
        moved: What its ``rows`` returned.
        shape: That of the means, ``[m, dim]``.
        name: The carry's name, for the message.

    Raises:
        ContractError: It is something else, or not finite.
    """
    if not isinstance(moved, Tensor):
        what = shown(moved)
    elif list(moved.shape) != list(shape):
        what = str(list(moved.shape))
    elif not bool(moved.isfinite().all()):
        what = "numbers that are not finite"
    else:
        return
    whose = f"carry {name!r}"
    remedy = f"return finite numbers {list(shape)}: where each row is after the drift"
    raise ContractError(f"{whose}, fit: the rows of its motion returned {what}", remedy, whose)
