"""The files of checkpoints: how they are called, which are there, and whether they are whole.

Nothing here needs torch, so that a run can be verified at once; :mod:`lw2g.disk.checkpoint` reads what is in
them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lw2g.config.directory import CHECKPOINTS, RECORD
from lw2g.disk.sealed import unseal_tensors
from lw2g.errors import DataError

__all__ = ["CheckpointFiles", "checkpoint_name", "is_without_record"]

_DONE = re.compile(r"task-(\d{3,})\.safetensors")
_STEP = re.compile(r"task-(\d{3,})\.step-(\d{6,})\.safetensors")


def checkpoint_name(task: int, step: int | None = None) -> str:
    """Return the name of a checkpoint: of the end of a task, or of a step within it."""
    return f"task-{task:03d}.safetensors" if step is None else f"task-{task:03d}.step-{step:06d}.safetensors"


def is_without_record(run: Path) -> bool:
    """Return whether a run has finished a task and its record is gone, which ``lw2g resume`` writes anew."""
    return bool(CheckpointFiles(run / CHECKPOINTS).finished) and not (run / RECORD).exists()


class CheckpointFiles:
    """The files of one run's checkpoints.

    Args:
        directory: Where they lie; it need not be there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def examine(self) -> Iterator[tuple[str, int, str | None, Mapping[str, Any]]]:
        """Yield every file's name, its task, its problem (None: none), and the new entries of its ledger."""
        # the first task's file builds on none; a file within a task on that of the task before
        sums = {-1: ""}
        ends = [(task, None) for task in range(1 + max(self.finished, default=-1))]
        for task, step in [*ends, *self._steps()]:
            name = checkpoint_name(task, step)
            ledger: Mapping[str, Any] = {}
            complaint = None
            try:
                _, entry, checksum = unseal_tensors(self._directory / name)
                if entry["base"] != sums.get(task - 1):
                    complaint = "builds on a file that is damaged or another one"
                ledger = entry["ledger"]
            except DataError as error:
                complaint = str(error).removeprefix(f"{name!r} ")
            if step is None and complaint is None:
                sums[task] = checksum
            yield name, task, complaint, ledger

    @property
    def finished(self) -> list[int]:
        """The finished tasks that have a checkpoint, damaged or not."""
        return sorted(int(match[1]) for match in map(_DONE.fullmatch, self._names()) if match)

    @property
    def has_learned(self) -> bool:
        """Whether a file holds something learned, damaged or not: not the beginning alone."""
        return bool(self.finished) or any(step for _, step in self._steps())

    def _steps(self) -> list[tuple[int, int]]:
        return sorted(
            (int(match[1]), int(match[2])) for match in map(_STEP.fullmatch, self._names()) if match
        )

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._directory) as entries:
                return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []
