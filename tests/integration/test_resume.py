"""An interrupted run ends as an uninterrupted one, wherever it was interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lw2g.config.resolve import Resolved
from lw2g.errors import DataError
from lw2g.interfaces.tracker import EpochEnded, Event, Stepped, TaskEvaluated, Warned
from lw2g.registry.catalogue import Catalogue
from lw2g.training.progress import Interrupted
from lw2g.training.runner import resume, start

COMPARED = ("metrics", "accuracy_matrix", "retrieval_matrix", "decisions", "task_to_set")


class CrashError(Exception):
    """Stands for a power cut: nothing is written after it."""


class Watch:
    """Counts events, remembers warnings, and may crash or ask to stop at one of them."""

    def __init__(self, at: int = -1, act: Callable[[], None] | None = None) -> None:
        self.at, self.act, self.count = at, act, 0
        self.warnings: list[str] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, Warned):
            self.warnings.append(event.message)
        if isinstance(event, Stepped):
            return
        self.count += 1
        if self.count == self.at and self.act is not None:
            self.act()

    def close(self) -> None:
        """Nothing to close."""


def crash() -> None:
    raise CrashError


def same(record: dict[str, Any], reference: dict[str, Any]) -> None:
    assert {key: record[key] for key in COMPARED} == {key: reference[key] for key in COMPARED}


@pytest.mark.slow
@pytest.mark.parametrize(("baseline", "policy"), [("dual-prompt", "min"), ("hide-prompt", "one")])
def test_a_crash_at_any_event_changes_nothing_in_the_end(
    baseline: str, policy: str, catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path
) -> None:
    """Crashed at one event after another and resumed each time, the record is that of a quiet run."""
    resolved = quick({"benchmark.random_crops": True}, baseline=baseline, policy=policy)
    counter = Watch()
    reference = start(resolved, catalogue, tmp_path / "quiet", [counter])
    directory = tmp_path / "crashed"
    with pytest.raises(CrashError):
        start(resolved, catalogue, directory, [Watch(4, crash)])
    crashes = 0
    for _ in range(counter.count):
        try:
            record = resume(directory, catalogue, [Watch(10, crash)])
        except CrashError:
            crashes += 1
            continue
        break
    else:
        pytest.fail("the run never ended")
    assert crashes >= 2
    same(record, reference)
    same(json.loads((directory / "record.json").read_text()), reference)


def test_a_stop_request_within_an_epoch_saves_the_step(
    catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path
) -> None:
    """Ctrl-C in the middle of an epoch stops at the next step, and the rest is as if nothing happened."""
    resolved = quick({"baseline.batch_size": 4})
    reference = start(resolved, catalogue, tmp_path / "quiet")
    directory = tmp_path / "stopped"

    class Press:
        def __init__(self) -> None:
            self.done = False

        def on_event(self, event: Event) -> None:
            if isinstance(event, Stepped) and event.epochs > 1 and not self.done:
                self.done = True
                os.kill(os.getpid(), signal.SIGINT)

        def close(self) -> None:
            """Nothing to close."""

    with pytest.raises(Interrupted, match="lw2g resume"):
        start(resolved, catalogue, directory, [Press()])
    headers = [json.loads(path.read_text()) for path in (directory / "checkpoints").glob("*.json")]
    assert any(header["progress"]["position"]["step"] > 0 for header in headers)
    same(resume(directory, catalogue), reference)


def test_a_damaged_checkpoint_is_passed_over_and_said(
    catalogue: Catalogue,
    quick: Callable[..., Resolved],
    finished: tuple[Path, dict[str, Any]],
    tmp_path: Path,
) -> None:
    """The newest checkpoint is cut short: resume says so, uses the previous one, and ends the same."""
    _, reference = finished
    directory = tmp_path / "run"

    class AfterSecondTask:
        def on_event(self, event: Event) -> None:
            if isinstance(event, EpochEnded) and event.task == 2:
                raise CrashError

        def close(self) -> None:
            """Nothing to close."""

    with pytest.raises(CrashError):
        start(quick(), catalogue, directory, [AfterSecondTask()])
    newest = max((directory / "checkpoints").glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:100])
    watch = Watch()
    same(resume(directory, catalogue, [watch]), reference)
    assert any(newest.stem in line and "checksum" in line for line in watch.warnings)


def test_a_finished_run_resumes_to_itself(
    catalogue: Catalogue, finished: tuple[Path, dict[str, Any]]
) -> None:
    """Nothing is done twice: the record stays and nothing is evaluated again."""
    directory, reference = finished
    seen: list[Event] = []

    class Collect(Watch):
        def on_event(self, event: Event) -> None:
            seen.append(event)

    assert resume(directory, catalogue, [Collect()]) == reference
    assert not any(isinstance(event, TaskEvaluated) for event in seen)


def test_changed_data_are_refused(
    catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path
) -> None:
    """A run does not go on with another benchmark than it began with."""
    directory = tmp_path / "run"
    with pytest.raises(CrashError):
        start(quick(), catalogue, directory, [Watch(12, crash)])
    text = (directory / "config.toml").read_text()
    assert "train = 12" in text
    (directory / "config.toml").write_text(text.replace("train = 12", "train = 13"))
    with pytest.raises(DataError, match="benchmark has changed since the run began"):
        resume(directory, catalogue)


@pytest.mark.slow
def test_kill_minus_nine_is_survived(
    catalogue: Catalogue, finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """A process killed for real leaves a run that resumes to the same record."""
    _, reference = finished
    directory = tmp_path / "killed"
    script = f"""
import os, signal
from pathlib import Path
import torch
torch.set_num_threads(1)
from lw2g.config.toml import read_toml
from lw2g.config.resolve import resolve
from lw2g.interfaces.tracker import EpochEnded
from lw2g.testing.tiny import tiny_catalogue
from lw2g.training.runner import start

class Kill:
    def on_event(self, event):
        if isinstance(event, EpochEnded) and event.task == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    def close(self):
        pass

catalogue = tiny_catalogue()
resolved = resolve(catalogue, file=Path({str(finished[0] / "config.toml")!r}))
start(resolved, catalogue, Path({str(directory)!r}), [Kill()])
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, timeout=240)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert not (directory / "predictions" / "task-001.safetensors").exists()
    same(resume(directory, catalogue), reference)
