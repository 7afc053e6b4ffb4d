"""Further processes that know the tiny components, and what a run with them must share with one alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from lw2g.config.model import RunConfig
from lw2g.interfaces.tracker import EpochEnded, Event
from lw2g.training.files.checkpoint import CheckpointStore
from lw2g.training.processes.assembling import assembled
from lw2g.training.processes.team import Team

FEW = {"benchmark.random_crops": True, "benchmark.tasks": 2, "benchmark.test": 3}
"""Images of a run that is quick and has everything."""
TOLERANCE = 1e-5
_LEARNED = ("baseline/", "pool/", "retrieval/", "routing/")
"""Of the tensors of a checkpoint; the basis of a space may be another one of the same space."""


class AtEpoch:
    """Does something at the end of the first epoch of a task."""

    def __init__(self, task: int, act: Callable[[], None]) -> None:
        self.task, self.act = task, act

    def on_event(self, event: Event) -> None:
        if isinstance(event, EpochEnded) and (event.task, event.epoch) == (self.task, 0):
            self.act()

    def close(self) -> None:
        """Nothing to close."""


@contextmanager
def installed(folder: Path) -> Iterator[None]:
    """Let further processes find the tiny components within the block, as an installed plugin."""
    info = folder / "lw2g_tiny-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lw2g-tiny\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[lw2g]\ntiny = lw2g_tiny:plugin\n")
    (folder / "lw2g_tiny.py").write_text(
        "from lw2g.testing.tiny import TinyPlugin\n\nplugin = TinyPlugin()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


@contextmanager
def pair(folder: Path) -> Iterator[Team]:
    """Yield this process as the first of two."""
    with installed(folder), assembled(RunConfig(device="cpu"), 2) as team:
        yield team


def followers() -> list[int]:
    """Return the further processes of this one."""
    found = []
    for thread in Path("/proc/self/task").iterdir():
        for pid in (thread / "children").read_text().split():
            if b"lw2g.training.processes.following" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


def require_alike(one: Path, other: Path, records: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Require of two runs the same decisions, predictions and, after every task, parameters."""
    first, second = records
    for key in ("task_to_set", "accuracy_matrix", "retrieval_matrix"):
        assert first[key] == second[key], key
    stores = [CheckpointStore(directory / "checkpoints") for directory in (one, other)]
    for checkpoints in zip(*(store.up_to() for store in stores), strict=True):
        learned, same = (
            {name: value for name, value in checkpoint.tensors.items() if name.startswith(_LEARNED)}
            for checkpoint in checkpoints
        )
        assert learned.keys() == same.keys()
        for name, value in learned.items():
            torch.testing.assert_close(same[name], value, rtol=TOLERANCE, atol=TOLERANCE, msg=name)
