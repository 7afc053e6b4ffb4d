"""Sweeps with an executor that plays the processes: what is run, gone on with, left, and said."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from lw2g.config.directory import LOCK
from lw2g.errors import DataError
from lw2g.registry.catalogue import Catalogue
from lw2g.sweep.engine import run_sweep
from lw2g.sweep.executor import Job, LocalExecutor
from lw2g.sweep.grid import Cell
from lw2g.sweep.store import SweepDirectory, differences_now

CELLS = [
    Cell(settings={"baseline.name": "dual-prompt", "run.seed": seed}, label=f"seed {seed}") for seed in (0, 1)
]


@attrs.define
class Played:
    """An executor of one slot whose jobs end when they are looked at, as ``act`` says; lists what it ran."""

    act: Callable[[Job, Path], int]
    ran: list[str] = attrs.field(factory=list)
    slots: int = 1
    cancelled: int = 0

    def submit(self, job: Job) -> Job:
        """Note the command."""
        self.ran.append(job.arguments[0])
        return job

    def poll(self, handle: Job) -> int | None:
        """Do what the process does, and end."""
        return self.act(handle, Path(handle.arguments[-1]))

    def cancel(self, handle: Job) -> None:
        """Count requests."""
        self.cancelled += 1


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepDirectory:
    """The directory of a sweep that nobody has to wait for."""
    monkeypatch.setattr("lw2g.sweep.engine._PAUSE", 0)
    return SweepDirectory(tmp_path / "sweep")


@pytest.fixture
def finish(finished) -> Callable[[Job, Path], int]:
    """What a process does that finishes its run."""

    def act(job: Job, run: Path) -> int:
        shutil.copytree(finished[0], run, dirs_exist_ok=True)
        return 0

    return act


def interrupt(job: Job, run: Path) -> int:
    """What a process does that is stopped after it has begun."""
    run.mkdir()
    (run / "config.toml").write_text("[run]\nseed = 1")
    return 130


def fail(job: Job, run: Path) -> int:
    """What a process does that meets a mistake."""
    job.log.write_text(job.log.read_text() + "error: no such data; fetch them\nnot this\n")
    return 2


def states(store: SweepDirectory) -> list[str]:
    """Where all cells stand."""
    return [store.status(cell).state for cell in CELLS]


def test_finished_stay_and_interrupted_go_on(store, finish):
    """A stopped cell is not begun again at once, but resumed by the next sweep; finished ones are left."""
    run_sweep(store, CELLS[:1], Played(finish))
    stopped = Played(interrupt)
    run_sweep(store, CELLS, stopped)
    assert (stopped.ran, states(store)) == (["run"], ["finished", "interrupted"])
    resumed = Played(finish)
    found = run_sweep(store, CELLS, resumed)
    assert (resumed.ran, [one.state for one in found]) == (["resume"], ["finished", "finished"])
    assert found[0].run is not None
    assert found[0].run.done == found[0].run.tasks == len(found[0].run.record["accuracy_matrix"])
    assert store.cells() == CELLS


def test_a_failed_cell_is_left_with_its_reason(store, finish):
    """The others go on; the last error of the log is the reason; only a retry tries again."""
    failing = Played(lambda job, run: fail(job, run) if job.name == CELLS[0].name else finish(job, run))
    found = run_sweep(store, CELLS, failing)
    assert [one.state for one in found] == ["failed", "finished"]
    assert found[0].reason == "exit code 2: no such data; fetch them"
    again = Played(finish)
    run_sweep(store, CELLS, again)
    assert again.ran == []
    store.note_failure(CELLS[0], None)
    run_sweep(store, CELLS, again)
    assert (again.ran, states(store)) == (["run"], ["finished", "finished"])


def test_a_traceback_is_told_by_its_error(store):
    """What libraries print after the error of a bug is not taken for it, and each attempt begins a line."""

    def crash(job: Job, run: Path) -> int:
        with job.log.open("a") as log:
            log.write(
                "Traceback ...\n  File\ntorch.OutOfMemoryError: of 3 GiB\nlibrary: leaked\nSee its page"
            )
        return 1

    for _ in range(2):
        (found,) = run_sweep(store, CELLS[:1], Played(crash))
        assert found.reason == "exit code 1: torch.OutOfMemoryError: of 3 GiB"
        store.note_failure(CELLS[0], None)
    assert store.log(CELLS[0]).read_text().count("\n$ lw2g run ") == 1


def test_a_signal_that_kills_is_named(store):
    """A process without last words is told of by its signal."""
    found = run_sweep(store, CELLS[:1], Played(lambda job, run: -signal.SIGKILL))
    assert found[0].reason == "exit code -9: ended by SIGKILL (out of memory?)"


def test_a_request_to_stop_is_passed_on(store):
    """The first signal lets nothing new begin and asks what runs to stop; that is no failure."""
    asked: list[int] = []

    def stopped(job: Job, run: Path) -> int | None:
        if not asked:
            os.kill(os.getpid(), signal.SIGTERM)
        asked.append(executor.cancelled)
        return -signal.SIGTERM if executor.cancelled else None

    executor = Played(stopped)
    found = run_sweep(store, CELLS, executor)
    assert (executor.ran, executor.cancelled) == (["run"], 1)
    assert [one.state for one in found] == ["waiting", "waiting"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("begun", [True, False])
def test_what_somebody_else_writes_is_waited_for(store, finish, begun):
    """A cell whose lock a live process holds is running, written or not, and not begun a second time."""
    store.write(CELLS)
    run = store.run(CELLS[0])
    interrupt(Job(name="", arguments=(), log=run), run)
    if not begun:
        (run / "config.toml").unlink()
    (run / LOCK).write_text(json.dumps({"pid": os.getpid(), "host": os.uname().nodename, "since": "now"}))
    seen: list[str] = []

    def watch(statuses) -> None:
        seen.append(statuses[0].state)
        if statuses[1].state == "finished":
            (run / LOCK).unlink(missing_ok=True)

    executor = Played(finish)
    run_sweep(store, CELLS, executor, watch)
    assert (seen[0], executor.ran) == ("running", ["run", "resume" if begun else "run"])


def test_one_sweep_at_a_time(store):
    """A second sweep of the same directory is refused while the first one lasts."""

    def second(job: Job, run: Path) -> int:
        with pytest.raises(DataError, match="is being written by process"):
            run_sweep(store, CELLS, Played(interrupt))
        return 130

    assert run_sweep(store, CELLS[:1], Played(second))[0].state == "waiting"


def test_what_would_be_resolved_otherwise_is_named(store, finish, catalogue: Catalogue, finished):
    """A finished cell whose settings mean something else now says which options."""
    record = finished[1]
    settings = {"run.seed": 42, "benchmark.name": "tiny", "backbone.name": "tiny"} | {
        f"baseline.{key}": value for key, value in record["config"]["baseline"].items()
    }
    settings |= {key: value for key, value in _others(record).items() if value is not None}
    settings["run.precision"] = "auto"  # the run took one: no difference
    settings["run.evaluation_batch"] = 99  # changes no number
    same = Cell(settings=settings, label="same")
    moved = Cell(settings=settings | {"growth.energy": 0.5}, label="moved")
    run_sweep(store, [same, moved], Played(finish))
    assert differences_now(store.status(same), catalogue) == []
    assert differences_now(store.status(moved), catalogue) == ["growth.energy: 0.95 then, 0.5 now"]
    kept = store.set_aside(moved)
    assert (store.status(moved).state, (kept / "record.json").exists()) == ("waiting", True)


def _others(record) -> dict[str, object]:
    config = record["config"]
    return {
        f"{section}.{key}": value for section in ("run", "growth") for key, value in config[section].items()
    }


def test_a_local_process_ends_with_its_code_and_log(tmp_path):
    """The executor runs lw2g itself; what it prints is appended to the log."""
    job = Job(name="x", arguments=("no-such-command",), log=tmp_path / "log")
    job.log.write_text("before\n")
    executor = LocalExecutor(2)
    handle = executor.submit(job)
    assert handle.wait(60) == executor.poll(handle) == 2
    assert job.log.read_text().startswith("before\nUsage: ")
