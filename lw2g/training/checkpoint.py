"""Checkpoints: tensors in safetensors, progress in JSON, both verified by checksum, never a pickle.

A checkpoint is two files with one number. Both are written under a temporary name, synced and renamed, the
JSON last: a checkpoint exists once its JSON does. Checkpoints of finished tasks are kept, of those within a
task the last two.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from lw2g.errors import DataError

__all__ = ["Checkpoint", "CheckpointStore", "write_atomically"]


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is either whole or not there, even after a crash."""
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@attrs.frozen(kw_only=True, eq=False)
class Checkpoint:
    """What a run can go on from.

    Attributes:
        tensors: All state by name.
        progress: JSON-able: where the run stands and its record so far.
        task_done: The task that is finished, None within a task.
    """

    tensors: Mapping[str, Tensor]
    progress: Mapping[str, Any]
    task_done: int | None = None


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        directory: Where they lie; made when the first one is written.
        keep: How many checkpoints within a task are kept.
    """

    def __init__(self, directory: Path, keep: int = 2) -> None:
        self._directory, self._keep = directory, keep

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and drop those it makes superfluous; return its JSON file."""
        self._directory.mkdir(parents=True, exist_ok=True)
        numbers = self._numbers()
        name = f"{(numbers[-1] + 1 if numbers else 0):06d}"
        tensors = {key: value.detach().cpu().contiguous() for key, value in checkpoint.tensors.items()}
        content = save_tensors(_separate(tensors))
        header = {
            "task_done": checkpoint.task_done,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "progress": dict(checkpoint.progress),
        }
        header["header_sha256"] = _header_sum(header)
        write_atomically(self._directory / f"{name}.safetensors", content)
        path = self._directory / f"{name}.json"
        write_atomically(path, json.dumps(header).encode())
        self._prune(after_task=checkpoint.task_done is not None)
        return path

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest checkpoint that is whole, and one line for each damaged one passed over."""
        return self._first_whole(lambda done: True)

    def newest_of_task(self, task: int | None) -> tuple[Checkpoint | None, list[str]]:
        """Return the checkpoint of a finished task, the last one where none is named; likewise."""
        return self._first_whole(lambda done: done is not None and task in (None, done))

    def _first_whole(self, wanted: Callable[[int | None], bool]) -> tuple[Checkpoint | None, list[str]]:
        complaints: list[str] = []
        for number in reversed(self._numbers()):
            try:
                checkpoint = self._read(number)
            except DataError as error:
                complaints.append(str(error))
                continue
            if wanted(checkpoint.task_done):
                return checkpoint, complaints
        return None, complaints

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob("[0-9]*.json"))

    def _read(self, number: int) -> Checkpoint:
        path = self._directory / f"{number:06d}.json"
        tensors_path = path.with_suffix(".safetensors")
        try:
            header = json.loads(path.read_bytes())
            content = tensors_path.read_bytes()
            whole = header["header_sha256"] == _header_sum(header)
            sound = header["sha256"] == hashlib.sha256(content).hexdigest()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"checkpoint {path.name} cannot be read ({type(error).__name__}); skipped"
            ) from error
        if not (whole and sound):
            damaged = path.name if not whole else tensors_path.name
            raise DataError(f"checkpoint file {damaged} does not match its checksum; skipped")
        return Checkpoint(
            tensors=load_tensors(content), progress=header["progress"], task_done=header["task_done"]
        )

    def _prune(self, *, after_task: bool) -> None:
        within = [number for number in self._numbers() if self._task_done(number) is None]
        surplus = within if after_task else within[: -self._keep]
        for number in surplus:
            for suffix in (".json", ".safetensors"):
                (self._directory / f"{number:06d}{suffix}").unlink(missing_ok=True)

    def _task_done(self, number: int) -> int | None:
        try:
            header = json.loads((self._directory / f"{number:06d}.json").read_bytes())
            done = header["task_done"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return done if isinstance(done, int) else None


def _header_sum(header: Mapping[str, Any]) -> str:
    content = {key: value for key, value in header.items() if key != "header_sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors that share storage: safetensors stores each on its own."""
    seen: set[int] = set()
    found: dict[str, Tensor] = {}
    for key, value in tensors.items():
        pointer = value.untyped_storage().data_ptr()
        whole = value.numel() * value.element_size() == value.untyped_storage().nbytes()
        shared = value.numel() > 0 and (pointer in seen or not whole)
        found[key] = value.clone() if shared else value
        seen.add(pointer)
    return found


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors under ``prefix/`` with the prefix removed."""
    start = f"{prefix}/"
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}


def under(prefix: str, tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors with ``prefix/`` before every name."""
    return {f"{prefix}/{name}": torch.as_tensor(value) for name, value in tensors.items()}
