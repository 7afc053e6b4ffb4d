"""An interrupted run ends as an uninterrupted one, wherever it was interrupted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from listening import At
from lw2g.config.directory import new_directory
from lw2g.disk.checkpoint import CheckpointStore
from lw2g.disk.record import RunDirectory
from lw2g.disk.sealed import seal_json, sha256_of, unseal_json
from lw2g.errors import DataError
from lw2g.interfaces.tracker import EpochEnded, Event, Stepped, TaskDecided, TaskEvaluated, Warned
from lw2g.lifecycle.runner import resume, start
from lw2g.model.saved import open_model
from lw2g.runtime.progress import Interrupted
from runs import untimed


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


class Signal:
    """Sends this process a signal at the first event of a kind, and again if asked."""

    def __init__(self, kind: type[Event], number: signal.Signals, times: int = 1, *, epochs: int = 1) -> None:
        self.kind, self.number, self.times, self.epochs = kind, number, times, epochs

    def on_event(self, event: Event) -> None:
        while self.times and isinstance(event, self.kind) and getattr(event, "epochs", 1) >= self.epochs:
            self.times -= 1
            os.kill(os.getpid(), self.number)

    def close(self) -> None:
        """Nothing to close."""


def crash() -> None:
    raise CrashError


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file but the log, to which a finished run adds that it was opened again."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "events.jsonl"
    }


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of a finished run."""
    return Path(shutil.copytree(finished[0], tmp_path / "copy"))


def same(record: dict[str, Any], reference: dict[str, Any]) -> None:
    """The whole record is the same, times aside."""
    assert untimed(record) == untimed(reference)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("baseline", "policy", "events"), [("dual-prompt", "min", 10), ("hide-prompt", "one", 16)]
)
def test_a_crash_at_any_event_changes_nothing_in_the_end(
    baseline, policy, events, catalogue, quick, tmp_path
):
    """Crashed at one event after another and resumed each time, the record is that of a quiet run."""
    carried = {"baseline.head": "lda", "baseline.head_carry": "auto", "growth.merge": 0.5}
    resolved = quick(
        {"benchmark.random_crops": True, **(carried if policy == "one" else {})},
        baseline=baseline,
        policy=policy,
    )
    counter = Watch()
    reference = start(resolved, catalogue, tmp_path / "quiet", [counter])
    directory = tmp_path / "crashed"
    with pytest.raises(CrashError):
        start(resolved, catalogue, directory, [Watch(4, crash)])
    crashes = 0
    for _ in range(counter.count):
        try:
            record = resume(directory, catalogue, [Watch(events, crash)])
        except CrashError:
            crashes += 1
            continue
        break
    else:
        pytest.fail("the run never ended")
    assert crashes >= 2
    same(record, reference)
    same(json.loads((directory / "record.json").read_text()), reference)


@pytest.mark.parametrize("speed", ["exact", "fast"])
def test_a_stop_request_within_an_epoch_saves_the_step(catalogue, quick, tmp_path, speed):
    """Ctrl-C in the middle of an epoch stops at the next step, and the rest is as if nothing happened."""
    chosen = {"benchmark.random_crops": True, "run.speed": speed, "growth.measures": ["energy"]}
    resolved = quick({"baseline.batch_size": 4, **chosen})
    reference = start(resolved, catalogue, tmp_path / "quiet", tasks=1)
    directory = tmp_path / "stopped"

    with pytest.raises(Interrupted, match=r"lw2g\.resume"):
        start(resolved, catalogue, directory, [Signal(Stepped, signal.SIGINT, epochs=2)], tasks=1)
    checkpoint, _ = CheckpointStore(directory / "checkpoints").newest()
    assert checkpoint is not None
    assert checkpoint.progress["position"]["step"] > 0
    same(resume(directory, catalogue), reference)


def test_a_damaged_checkpoint_is_passed_over_and_said(catalogue, quick, finished, tmp_path):
    """The newest checkpoint is cut short: resume says so, uses the previous one, and ends the same."""
    _, reference = finished
    directory = tmp_path / "run"
    cut = At(lambda event: isinstance(event, EpochEnded) and event.task == 2, crash)
    with pytest.raises(CrashError):
        start(quick({"growth.measures": ["energy"]}), catalogue, directory, [cut])
    newest = max((directory / "checkpoints").glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:100])
    watch = Watch()
    same(resume(directory, catalogue, [watch]), reference)
    assert any(newest.name in line for line in watch.warnings)


def test_a_finished_run_resumes_to_itself(catalogue, finished):
    """Nothing is done twice: the files stay and nothing is evaluated again."""
    directory, reference = finished
    before = contents(directory)
    seen: list[Event] = []

    class Collect(Watch):
        def on_event(self, event: Event) -> None:
            seen.append(event)

    assert resume(directory, catalogue, [Collect()]) == reference
    assert not any(isinstance(event, TaskEvaluated) for event in seen)
    assert contents(directory) == before


def test_changed_data_are_refused(catalogue, quick, tmp_path, monkeypatch):
    """A run does not go on with another benchmark than it began with, and nothing is written."""
    directory = tmp_path / "run"
    with pytest.raises(CrashError):
        start(quick(), catalogue, directory, [Watch(12, crash)])
    before = contents(directory)
    monkeypatch.setattr(
        "lw2g.learning.state.fingerprints",
        lambda session: {"benchmark": "0" * 64, "backbone": "0" * 64},
    )
    with pytest.raises(DataError, match="benchmark has changed since the run began"):
        resume(directory, catalogue)
    assert contents(directory) == before


@pytest.mark.parametrize("use", [resume, open_model])
def test_an_edited_configuration_is_refused(use, copied, catalogue):
    """Whoever edits an option is told which one, and nothing is written: not even the log."""
    config = copied / "config.toml"
    text = config.read_text()
    assert "\nlr = 0.03\n" in text
    config.write_text(text.replace("\nlr = 0.03\n", "\nlr = 0.13\n"))
    before = contents(copied)
    with pytest.raises(
        DataError, match=r"not the one the run began with \(baseline.lr is 0.13 and was 0.03\)"
    ):
        use(copied, catalogue)
    config.write_text(text.replace("lr", "rl", 1))
    with pytest.raises(DataError, match="not the one the run began with"):
        use(copied, catalogue)
    config.write_text(text)
    assert contents(copied) == before | {"config.toml": text.encode()}


def test_a_lost_or_damaged_record_is_written_anew(copied, catalogue, finished):
    """The record of a finished run comes back from its newest checkpoint; samples.json likewise."""
    record = copied / "record.json"
    for damage in (record.unlink, lambda: record.write_bytes(record.read_bytes().replace(b"1", b"2", 1))):
        damage()
        (copied / "samples.json").write_text("[]")
        watch = Watch()
        same(resume(copied, catalogue, [watch]), finished[1])
        assert any("record.json" in line for line in watch.warnings)
        same(unseal_json(record), finished[1])
        files = unseal_json(record)["files"]
        assert sha256_of(copied / "samples.json") == files["samples.json"]


def test_lost_or_damaged_predictions_are_made_anew(copied, catalogue, finished, monkeypatch):
    """From the checkpoint of their task, to the same bits; what would have others is named and left."""
    before = contents(copied)
    first, second = (copied / "predictions" / f"task-00{task}.safetensors" for task in (0, 1))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    watch = Watch()
    assert resume(copied, catalogue, [watch]) == finished[1]
    assert contents(copied) == before
    assert [line.partition(" is ")[0][-20:] for line in watch.warnings] == [first.name, second.name]
    first.unlink()
    monkeypatch.setattr("lw2g.lifecycle.repair.packed", lambda predictions: b"other")
    resume(copied, catalogue, [watch := Watch()])
    assert "other bits here; put it back" in watch.warnings[0]
    assert not first.exists()


def test_a_damaged_middle_task_is_refused_or_learned_anew(copied, catalogue, finished):
    """No model is passed off as another one; what is whole can be asked for, and resume repairs the rest."""
    middle = copied / "checkpoints" / "task-001.safetensors"
    content = middle.read_bytes()
    middle.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    for task in (None, 2, 3):
        with pytest.raises(DataError, match=r"task-001\.safetensors.*with task\b.*lw2g\.resume"):
            open_model(copied, catalogue, task)
    assert open_model(copied, catalogue, 1).task == 1
    watch = Watch()
    same(resume(copied, catalogue, [watch]), finished[1])
    assert any("task-001.safetensors" in line and "end of task 1" in line for line in watch.warnings)
    assert open_model(copied, catalogue).task == 3


def test_the_record_of_another_run_is_not_believed(copied, catalogue, finished):
    """Whole records of other files, or of another configuration, give way to the run's own."""
    record = unseal_json(copied / "record.json")
    for name in ("config.toml", "predictions/task-002.safetensors"):
        other = record | {"metrics": record["metrics"] | {"faa": 91.67}}
        other["files"] = record["files"] | {name: "0" * 64}
        (copied / "record.json").write_bytes(seal_json(other))
        watch = Watch()
        same(resume(copied, catalogue, [watch]), finished[1])
        assert any("written anew from the newest checkpoint" in line for line in watch.warnings)


def test_a_lost_checkpoint_is_said_before_its_task_is_learned_again(copied, catalogue, finished):
    """Nobody wonders why a finished run learns, and it ends with the same record."""
    (copied / "checkpoints/task-002.safetensors").unlink()
    watch = Watch()
    same(resume(copied, catalogue, [watch]), finished[1])
    on_decisions = "counts directions and compares no tasks"
    told = [warning for warning in watch.warnings if on_decisions not in warning]
    assert told == ["the checkpoint of task 3 is lost; the task is learned again"]


def test_without_any_checkpoint_an_edited_configuration_is_refused(copied, catalogue):
    """The record of the old configuration is not written over by that of another one."""
    shutil.rmtree(copied / "checkpoints")
    (copied / "config.toml").write_text((copied / "config.toml").read_text() + "# mine\n")
    with pytest.raises(DataError, match="is not the one the run began with"):
        resume(copied, catalogue)


@pytest.mark.parametrize("at", ["write_goal", "write_samples", "write_config"])
def test_a_run_killed_before_its_configuration_is_started_again(
    at, catalogue, quick, tmp_path, monkeypatch, finished
):
    """Resume says what to do, and the same directory takes the same run."""
    resolved, directory = quick({"growth.measures": ["energy"]}), tmp_path / "run"

    def killed(*arguments: object) -> None:
        (directory / ".config.toml.0123.lw2g-part").write_text("half")
        (directory / "goal.json").write_text("{}")
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, at, killed)
        with pytest.raises(CrashError), new_directory(resolved.config, directory):
            start(resolved, catalogue, directory)
    with pytest.raises(DataError, match=rf"start it again: lw2g run with --out {directory}"):
        resume(directory, catalogue)
    with new_directory(resolved.config, directory):
        same(start(resolved, catalogue, directory), finished[1])
    assert not (directory / "goal.json").exists()


def test_a_run_killed_after_its_configuration_is_resumed(catalogue, quick, tmp_path, monkeypatch):
    """Its goal is known by then, whatever trackers do."""
    directory = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("lw2g.lifecycle.runner.build_trackers", lambda *arguments, **options: crash())
        with pytest.raises(CrashError):
            start(quick(), catalogue, directory, tasks=1)
    assert len(resume(directory, catalogue)["accuracy_matrix"]) == 1


@pytest.mark.parametrize("lost", [False, True], ids=["killed", "checkpoints lost"])
def test_what_precision_was_asked_for_outlives_an_early_kill(lost, catalogue, quick, tmp_path, monkeypatch):
    """Killed before its first step, or left without a checkpoint, a run of ``auto`` has the same record."""
    resolved = quick({"run.precision": "auto"})
    reference = start(resolved, catalogue, tmp_path / "quiet", tasks=1)
    assert reference["precision"]["asked"] == "auto"
    directory = tmp_path / "killed"
    if lost:
        shutil.copytree(tmp_path / "quiet", directory)
        shutil.rmtree(directory / "checkpoints")
    else:
        with monkeypatch.context() as patch:
            patch.setattr("lw2g.lifecycle.runner.build_trackers", lambda *arguments, **options: crash())
            with pytest.raises(CrashError):
                start(resolved, catalogue, directory, tasks=1)
    same(resume(directory, catalogue), reference)


def test_a_linked_checkpoint_folder_is_refused(copied, catalogue):
    """Nothing is written or cleared away behind a link."""
    elsewhere = copied.parent / "elsewhere"
    (copied / "checkpoints").rename(elsewhere)
    (copied / "checkpoints").symlink_to(elsewhere)
    before = contents(elsewhere)
    with pytest.raises(DataError, match="checkpoints' is a link"):
        resume(copied, catalogue)
    assert contents(elsewhere) == before


def test_leftovers_of_a_killed_process_go(copied, catalogue):
    """What lw2g was writing when it was killed is cleared away, and nothing else."""
    (copied / ".record.json.0123.lw2g-part").write_text("half")
    (copied / ".mine.part").write_text("mine")
    resume(copied, catalogue)
    assert [path.name for path in copied.iterdir() if path.name.startswith(".")] == [".mine.part"]


@pytest.mark.slow
def test_kill_minus_nine_is_survived(catalogue, finished, tmp_path):
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
from lw2g_testing.tiny import tiny_catalogue
from lw2g.lifecycle.runner import start

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


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU]
)
def test_a_signal_outside_training_stops_at_once(number, catalogue, quick, tmp_path):
    """Nothing is lost by it: what was saved stands, the lock is given back, handlers are as before."""
    before = signal.getsignal(number)
    directory, trainings = tmp_path / "run", Watch()
    with pytest.raises(Interrupted, match=r"lw2g\.resume"):
        start(quick(), catalogue, directory, [trainings, Signal(TaskDecided, number)])
    assert trainings.count == 2  # begun and decided, nothing else
    assert signal.getsignal(number) is before
    assert not (directory / "lock").exists()
    assert CheckpointStore(directory / "checkpoints").newest()[0] is not None


def test_a_second_signal_within_a_batch_stops_at_once(catalogue, quick, tmp_path, capfd):
    """The first is answered before the batch has ended, the second does not wait for it."""
    directory = tmp_path / "run"
    with pytest.raises(Interrupted):
        start(quick({"baseline.batch_size": 4}), catalogue, directory, [Signal(Stepped, signal.SIGINT, 2)])
    assert capfd.readouterr().err.count("stopping after this batch ...") == 1
    checkpoint, _ = CheckpointStore(directory / "checkpoints").newest()
    assert checkpoint is not None
    assert not checkpoint.tensors


def test_a_signal_while_opening_leaves_nothing(catalogue, quick, tmp_path, monkeypatch):
    """Before anything is written, there is nothing to resume and no directory."""
    monkeypatch.setattr(
        "lw2g.lifecycle.runner.open_session",
        lambda *arguments, **options: os.kill(os.getpid(), signal.SIGTERM),
    )
    with pytest.raises(KeyboardInterrupt):
        start(quick(), catalogue, tmp_path / "run")
    assert not (tmp_path / "run").exists()
