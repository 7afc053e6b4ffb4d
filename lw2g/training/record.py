"""The run directory: configuration, events, predictions and the record, in files that anything can read.

``record.json``'s keys are stable. Percentages are 0 to 100, undefined values are null, never NaN.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from safetensors.numpy import load_file, save

from lw2g import metrics
from lw2g.errors import DataError
from lw2g.interfaces.growth import CandidateEvidence
from lw2g.interfaces.tracker import Event
from lw2g.training.checkpoint import write_atomically
from lw2g.training.evaluation import Predictions

__all__ = ["EventLog", "RunDirectory", "candidate_entry", "run_metrics"]

Matrix = list[list[float | None]]


class RunDirectory:
    """The files of one run.

    Args:
        path: The directory itself; made when the first file is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie."""
        return self.path / "checkpoints"

    @property
    def config(self) -> Path:
        """The complete, resolved configuration."""
        return self.path / "config.toml"

    def write_config(self, text: str) -> None:
        """Write ``config.toml``."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.config, text.encode())

    def write_samples(self, ids: Sequence[str]) -> None:
        """Write ``samples.json``: the ids that the predictions' ``sample`` column counts."""
        write_atomically(self.path / "samples.json", json.dumps(list(ids)).encode())

    def write_predictions(self, task: int, predictions: Predictions) -> None:
        """Write the predictions of one evaluation, one row per sample, as safetensors of int32 columns."""
        folder = self.path / "predictions"
        folder.mkdir(exist_ok=True)
        columns = {
            field.name: getattr(predictions, field.name).astype(np.int32)
            for field in attrs.fields(Predictions)
        }
        write_atomically(folder / f"task-{task:03d}.safetensors", save(columns))

    def read_predictions(self, task: int) -> Predictions:
        """Return the predictions that were made after a task.

        Raises:
            DataError: There are none.
        """
        path = self.path / "predictions" / f"task-{task:03d}.safetensors"
        if not path.exists():
            raise DataError(f"no predictions at {str(path)!r}; the run has not finished task {task}")
        columns = {name: value.astype(np.int64) for name, value in load_file(path).items()}
        return Predictions(**columns)

    def read_record(self) -> dict[str, Any]:
        """Return the content of ``record.json``.

        Raises:
            DataError: There is none, or it is no JSON.
        """
        path = self.path / "record.json"
        try:
            record: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise DataError(f"{str(path)!r} cannot be read; the run has not finished a task") from error
        return record

    def write_record(self, record: dict[str, Any]) -> None:
        """Write ``record.json``."""
        text = json.dumps(record, indent=1, allow_nan=False)
        write_atomically(self.path / "record.json", text.encode())


class EventLog:
    """The tracker that every run has: one JSON object a line in ``events.jsonl``."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def on_event(self, event: Event) -> None:
        """Append the event, except for the many steps."""
        kind = type(event).__name__
        if kind == "Stepped":
            return
        self._file.write(json.dumps({"event": kind, **attrs.asdict(event)}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def candidate_entry(candidate: CandidateEvidence) -> dict[str, Any]:
    """Return a candidate's evidence as the record holds it."""
    return attrs.asdict(candidate)


def run_metrics(
    accuracy: Matrix, retrieval: Matrix | None, task_to_set: Sequence[int] | None, samples: Sequence[int]
) -> dict[str, Any]:
    """Return all metrics of a run, finished or not (definitions: ruling r).

    Args:
        accuracy: ``A[i][t]`` in percent, None for ``i > t``.
        retrieval: The same for retrieved sets; None where the baseline makes no hard choice.
        task_to_set: The map; None where sets mean nothing.
        samples: Test samples of each seen task.
    """
    sets = dict(enumerate(task_to_set)) if task_to_set is not None else None
    return {
        "faa": metrics.faa(accuracy),
        "faa_samples": metrics.faa_samples(accuracy, samples),
        "caa": metrics.caa(accuracy),
        "ffm": metrics.ffm(accuracy),
        "ffm_code": metrics.ffm_code(accuracy),
        "bwt": metrics.bwt(accuracy),
        "pra": None if retrieval is None else metrics.pra(retrieval),
        "ssp": None if sets is None else metrics.ssp(sets),
        "chance_pra": None if retrieval is None or sets is None else metrics.chance_pra(sets),
    }
