"""Checkpoints: what has changed since the last finished task, in one sealed safetensors file, never a pickle.

``task-003.safetensors`` is the state at the end of a task and is kept; ``task-003.step-000007.safetensors`` a
state within it, of which the last few are kept until it ends. Both hold the tensors that differ from the end
of the task before and name that file by its checksum; the state itself is put together from the first task
on. So every finished task can be restored, and what a task adds to the disk does not depend on how many came
before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from lw2g.disk.background import Background
from lw2g.disk.checkpoint_files import CheckpointFiles, checkpoint_name
from lw2g.disk.differences import apply, changes
from lw2g.disk.sealed import UNSEALED, seal_tensors, unseal_tensors, write_atomically
from lw2g.errors import DataError

__all__ = ["Checkpoint", "CheckpointStore", "part", "under"]

FORMAT = 2
_KEPT = 2  # checkpoints within a task


@attrs.frozen(kw_only=True, eq=False)
class Checkpoint:
    """The state that a run can continue from.

    Attributes:
        tensors: All state by name; empty before anything was learned.
        progress: JSON-able: the run's position, and what must be unchanged to continue.
        ledger: JSON-able: the results so far. Its lists only grow.
        task_done: The task that is finished, None within a task.
        base: Within a task: the end of the task before; None within the first.
    """

    tensors: Mapping[str, Tensor]
    progress: Mapping[str, Any]
    ledger: Mapping[str, Any] = attrs.field(factory=dict)
    task_done: int | None = None
    base: Checkpoint | None = None


_NOTHING = Checkpoint(tensors={}, progress={})


class CheckpointStore(CheckpointFiles):
    """The checkpoints of one run.

    Args:
        directory: Where they lie; made when the first one is written.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._base = _NOTHING
        self._base_sum = ""
        self._background = Background()
        self._files: list[tuple[int, int | None]] | None = None

    @property
    def base(self) -> Mapping[str, Tensor]:
        """The tensors at the end of the last finished task, to be read only; empty within the first."""
        return self._base.tensors

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and delete those that it makes superfluous.

        Args:
            checkpoint: What to write.

        Returns:
            Its file.
        """
        path = self.save_behind(checkpoint)
        self.wait()
        return path

    def save_behind(self, checkpoint: Checkpoint) -> Path:
        """Copy a checkpoint and write it in the background; the caller may change its tensors at once.

        An error in the writing is raised by the next call, or by :meth:`wait`.

        Args:
            checkpoint: What to write.

        Returns:
            Its file, which exists after :meth:`wait`.
        """
        self.wait()
        base = self._base
        done = checkpoint.task_done
        tensors = {}
        for name, value in checkpoint.tensors.items():
            # one that was taken over from the base is neither copied nor compared
            is_of_base = value is base.tensors.get(name)
            tensors[name] = value if is_of_base else value.detach().cpu().contiguous()
        changed, sliced = changes(base.tensors, tensors)
        # copies: the caller goes on learning while they are written
        stored = {name: value.clone() for name, value in changed.items()}
        entry = {
            "format": FORMAT,
            "base": self._base_sum,
            "task_done": done,
            "sliced": sliced,
            "dropped": [name for name in base.tensors if name not in tensors],
            "progress": dict(checkpoint.progress),
            "ledger": _gained(base.ledger, checkpoint.ledger),
        }
        metadata = {"lw2g": json.dumps(entry, allow_nan=False), "sha256": UNSEALED}
        file, surplus = self._place(done)
        if done is not None:
            kept = {}
            for name, value in tensors.items():
                if name in sliced:
                    kept[name] = value.clone()  # of this one, slices alone are stored
                elif name in stored:
                    kept[name] = stored[name]
                else:
                    kept[name] = base.tensors[name]
            self._base = attrs.evolve(checkpoint, tensors=kept, ledger=_gained({}, checkpoint.ledger))

        def write() -> None:
            """Write the file, and then remove those that it makes superfluous."""
            self._directory.mkdir(parents=True, exist_ok=True)
            content, checksum = seal_tensors(save_tensors(stored, metadata))
            write_atomically(self._directory / file, content)
            if done is not None:
                self._base_sum = checksum  # read after the next wait only
            # after the new file: a process that is killed in between leaves one too many, never one too few
            for other in surplus:
                (self._directory / other).unlink(missing_ok=True)

        self._background.run(write)
        return self._directory / file

    def replace(self, checkpoint: Checkpoint) -> Path:
        """Write the checkpoint of the last finished task anew; nothing may build on it yet.

        Args:
            checkpoint: What to write.

        Returns:
            Its file.

        Raises:
            DataError: One that it builds on is damaged.
        """
        self.wait()
        self._rebuild_base(checkpoint.task_done or 0)
        return self.save(checkpoint)

    def wait(self) -> None:
        """Wait until everything is written.

        Raises:
            OSError: It could not be written.
        """
        self._background.wait()

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the latest state whose files are all undamaged, and a line about damaged ones.

        Later checkpoints build on it.
        """
        self.wait()
        self._files = None
        complaints: list[str] = []
        count = 1 + max(self.finished, default=-1)
        try:
            self._rebuild_base(count)
        except DataError as error:
            complaints.append(_end_is_damaged(error, self._current, count))
        for task, number in reversed(self._steps()):
            if task != self._current:
                continue  # left from a task that is finished, or from one whose base is damaged
            try:
                step, _ = self._read(checkpoint_name(task, number), self._base, self._base_sum)
            except DataError as error:
                complaints.append(f"checkpoint {error}; skipped")
            else:
                return attrs.evolve(_copy(step), base=self._copied_base()), complaints
        return self._copied_base(), complaints

    def require_finished(self, task: int | None = None) -> int:
        """Return a finished task, the last one where none is named; its checkpoint is there, damaged or not.

        Raises:
            DataError: The task is not finished.
        """
        finished = self.finished
        if task is None:
            if not finished:
                raise DataError("no task is finished")
            return finished[-1]
        if task not in finished:
            what = f"task {task + 1} is not finished"
            if not finished:
                raise DataError(what)
            raise DataError(f"{what}, the last one is {finished[-1] + 1}", "choose an earlier one")
        return task

    def of_task(self, task: int | None = None) -> Checkpoint:
        """Return the checkpoint of a finished task, of the last one where none is named.

        Raises:
            DataError: The task is not finished, or its checkpoint or one that it builds on is damaged.
        """
        *_, last = self.up_to(task)
        return last

    def up_to(self, task: int | None = None) -> Iterator[Checkpoint]:
        """Yield the checkpoint of every finished task up to one, up to the last where none is named.

        Raises:
            DataError: As :meth:`of_task`.
        """
        wanted = self.require_finished(task)
        checkpoint = _NOTHING
        checksum = ""
        # the state is put together from the first task on: each file holds what its task has changed
        for earlier in range(wanted + 1):
            try:
                checkpoint, checksum = self._read(checkpoint_name(earlier), checkpoint, checksum)
            except DataError as error:
                remedy = ""
                if earlier:
                    remedy = f"the models of tasks 1 to {earlier} are whole; choose one of them with --task"
                raise DataError(
                    f"the model after task {wanted + 1} cannot be restored: checkpoint {error}", remedy
                ) from error
            yield checkpoint

    def _rebuild_base(self, count: int) -> None:
        """Put the end of the ``count``-th task together from the files of all tasks up to it.

        Raises:
            DataError: One of them is damaged or lost. The base is then the end of the task before it.
        """
        self._base = _NOTHING
        self._base_sum = ""
        for task in range(count):
            self._base, self._base_sum = self._read(checkpoint_name(task), self._base, self._base_sum)

    def _copied_base(self) -> Checkpoint | None:
        """Return a copy of the end of the last finished task; None within the first."""
        if self._base is _NOTHING:
            return None
        return _copy(self._base)

    @property
    def _current(self) -> int:
        """The task under way."""
        done = self._base.task_done
        return 0 if done is None else done + 1

    def _place(self, done: int | None) -> tuple[str, list[str]]:
        """Return the name of the next file, and those of the files that are superfluous once it is there.

        That is all but the last steps of the task under way, and what builds on a task now learned anew. The
        folder is read once: this process is the only one that writes there.
        """
        if self._files is None:
            self._files = [*((task, None) for task in self.finished), *self._steps()]
        ends = []  # of tasks
        steps = []  # within the task under way
        last = -1
        for task, step in self._files:
            if step is None:
                ends.append((task, step))
                continue
            last = max(last, step)  # numbers of steps are never given twice
            if task == self._current:
                steps.append((task, step))
        new: tuple[int, int | None]
        if done is None:
            new = (self._current, last + 1)
            stay = {*ends, *[*steps, new][-_KEPT:]}
        else:
            new = (done, None)
            stay = {new, *(end for end in ends if end[0] < done)}
        surplus = []
        others = []
        for entry in self._files:
            if entry not in stay:
                surplus.append(checkpoint_name(*entry))
            elif entry != new:
                others.append(entry)
        self._files = [*others, new]
        return checkpoint_name(*new), surplus

    def _read(self, name: str, base: Checkpoint, base_sum: str) -> tuple[Checkpoint, str]:
        """Return a checkpoint that builds on another, and its checksum."""
        content, entry, checksum = unseal_tensors(self._directory / name)
        if entry.get("format") != FORMAT:
            raise DataError(f"{name!r} has format {entry.get('format')!r} instead of {FORMAT}")
        if entry["base"] != base_sum:
            raise DataError(f"{name!r} builds on another end of the task before it")
        ledger = dict(entry["ledger"])
        for name, value in ledger.items():
            if isinstance(value, list):
                ledger[name] = [*base.ledger.get(name, ()), *value]
        checkpoint = Checkpoint(
            tensors=apply(base.tensors, load_tensors(content), entry["sliced"], entry["dropped"]),
            progress=entry["progress"],
            ledger=ledger,
            task_done=entry["task_done"],
        )
        return checkpoint, checksum


def _end_is_damaged(error: DataError, task: int, count: int) -> str:
    """Return the line about a damaged end of a task, with which all ends that build on it are lost.

    Args:
        error: What is wrong with its file.
        task: The task whose end is damaged, counted from 0; the line counts from 1.
        count: Number of tasks that were finished.
    """
    lost = ""
    if task + 1 < count:
        lost = f", with it what builds on it up to task {count}"
    after = "the beginning"
    if task:
        after = f"the end of task {task}"  # the one before it
    return f"checkpoint {error}{lost}; going on from {after}"


def _copy(checkpoint: Checkpoint) -> Checkpoint:
    """Return a copy that may be changed; the next checkpoint is compared with the original."""
    return attrs.evolve(
        checkpoint,
        tensors={name: value.clone() for name, value in checkpoint.tensors.items()},
        ledger={name: copy(value) for name, value in checkpoint.ledger.items()},
    )


def _gained(before: Mapping[str, Any], ledger: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ledger with what its lists have gained since an earlier one; other values whole."""
    gained = {}
    for name, value in ledger.items():
        if isinstance(value, list):
            known = before.get(name)
            value = value[len(known) :] if isinstance(known, list) else list(value)
        gained[name] = value
    return gained


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors under ``prefix/`` with the prefix removed."""
    start = f"{prefix}/"
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}


def under(prefix: str, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors with ``prefix/`` before every name."""
    return {f"{prefix}/{name}": torch.as_tensor(value) for name, value in tensors.items()}
