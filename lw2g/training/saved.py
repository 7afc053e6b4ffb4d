"""A run opened for use: predictions for image files from its newest or a named task's checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from lw2g.config.resolve import load_resolved
from lw2g.errors import DataError
from lw2g.interfaces.baseline import mask_logits
from lw2g.interfaces.stream import TaskData
from lw2g.registry.catalogue import Catalogue
from lw2g.training.checkpoint import CheckpointStore
from lw2g.training.decoding import chunks
from lw2g.training.record import RunDirectory
from lw2g.training.session import Session, open_session
from lw2g.training.state import restore

__all__ = ["SavedRun", "open_run"]


class _Files:
    """Image files as an image source."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def ids(self) -> Sequence[str]:
        return [str(path) for path in self._paths]

    def image(self, index: int) -> Tensor:
        path = self._paths[index]
        try:
            with Image.open(path) as opened:
                pixels = np.array(opened.convert("RGB"))
        except (OSError, UnidentifiedImageError) as error:
            raise DataError(f"{str(path)!r} cannot be read as an image; give image files") from error
        return torch.from_numpy(pixels).permute(2, 0, 1)


class SavedRun:
    """A run as it stood after a task.

    Args:
        session: Restored from the checkpoint.
        task: The last task it has learned.
    """

    def __init__(self, session: Session, task: int) -> None:
        self._session, self.task = session, task

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the seen classes, in class order."""
        return self._session.stream.class_names[: self._session.info(self.task).seen]

    @torch.no_grad()
    def predict(self, paths: Sequence[Path]) -> list[dict[str, Any]]:
        """Return ``{path, class, class_index, task, set}`` of image files; task and set count from 0.

        ``task`` and ``set`` are what retrieval chose, None where the baseline makes no hard choice.

        Raises:
            DataError: A file cannot be read as an image, or retrieval needs to be told the task.
        """
        session, seen = self._session, len(self.classes)
        if getattr(session.retrieval, "control", False):
            raise DataError("retrieval of this run is told the task; it can only be evaluated, not used")
        size = session.config.run.evaluation_batch
        unlabelled = np.zeros(len(paths), dtype=np.int64)
        data = TaskData(source=_Files(paths), indices=np.arange(len(paths)), labels=unlabelled)
        images = session.image_set([data], train=False)
        history = [session.info(index) for index in range(self.task + 1)]
        task_of_class = torch.cat([torch.full((len(info.classes),), info.index) for info in history])
        found: list[dict[str, Any]] = []
        for positions in chunks(range(len(paths)), size):
            padded = positions + [positions[0]] * (size - len(positions))
            batch = next(iter(images.batches([padded])))
            tasks = sets = None
            with session.engine.autocast():
                if session.retrieval is not None:
                    known = [info.index for info in history]
                    query = session.retrieval.query(batch).float()
                    tasks = session.retrieval.retrieve(query, known, task_of_class.to(session.engine.device))
                    sets = session.pool.sets_of(tasks)
                routing = session.pool.route(sets)
                logits = session.baseline.logits(session.baseline.features(batch, routing).float())
            classes = mask_logits(logits, range(seen)).argmax(1).tolist()
            for row, position in enumerate(positions):
                found.append(
                    {
                        "path": str(paths[position]),
                        "class": self.classes[classes[row]],
                        "class_index": classes[row],
                        "task": None if tasks is None else int(tasks[row]),
                        "set": None if sets is None else int(sets[row]),
                    }
                )
        return found


def open_run(directory: Path, catalogue: Catalogue, task: int | None = None) -> SavedRun:
    """Open a run for use.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        task: The task (from 0) after which it is wanted; None for the last finished one.

    Raises:
        DataError: There is no such run, or it has not finished a task (or not this one).
    """
    files = RunDirectory(directory)
    if not files.config.exists():
        raise DataError(f"no run at {str(directory)!r}: it has no config.toml; start one with lw2g run")
    checkpoint, complaints = CheckpointStore(files.checkpoints).newest_of_task(task)
    for line in complaints:
        warnings.warn(line, stacklevel=2)
    if checkpoint is None or checkpoint.task_done is None:
        wanted = "a task" if task is None else f"task {task}"
        raise DataError(f"run {str(directory)!r} has not finished {wanted}; go on: lw2g resume {directory}")
    session = open_session(load_resolved(files.config, catalogue).config, catalogue)
    restore(session, checkpoint)
    return SavedRun(session, checkpoint.task_done)
