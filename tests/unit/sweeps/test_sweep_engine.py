"""Sweeps with an executor that plays the processes: what is run, resumed, left, and said."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

import pytest

from lw2g.disk.lock import locked, one_writer
from lw2g.errors import ConfigError
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import read_run
from lw2g.sweeps.executors import Executor, load_executor
from lw2g.sweeps.grid import Cell
from lw2g.sweeps.job import BUSY, Attempt, Job
from lw2g.sweeps.sweep_directory import SweepDirectory, differences_now
from lw2g.sweeps.sweep_engine import run_sweep

Act = Callable[[Job], int | None]

CELLS = [
    Cell(settings={"baseline.name": "dual-prompt", "run.seed": seed}, label=f"seed {seed}") for seed in (0, 1)
]


class Playing:
    """A job that ends when it is looked at, as ``act`` says."""

    def __init__(self, job: Job, act: Act) -> None:
        self.job, self.act = job, act

    def done(self) -> bool:
        """Do what the process does."""
        self.code = self.act(self.job)
        return self.code is not None

    def result(self) -> int:
        """Return the exit code."""
        assert self.code is not None
        return self.code


class Played(Executor):
    """An executor whose jobs are played; lists what it ran."""

    pause = 0

    def __init__(self, act: Act, slots: int = 1, retries: int = 0) -> None:
        self.act, self.slots, self.retries = act, slots, retries
        self.ran: list[str] = []
        self.names: list[str] = []
        self.cancelled = self.closed = 0

    def submit(self, jobs: Sequence[Job]) -> list[Playing]:
        """Note the commands."""
        for job in jobs:
            self.ran.append(job.arguments()[0])
            self.names.append(job.name)
            with job.log.open("a") as log:
                log.write(f"\n$ lw2g {self.ran[-1]}\n")
        return [Playing(job, self.act) for job in jobs]

    def cancel(self, job: Job, future: Playing) -> None:
        """Count requests."""
        self.cancelled += 1

    def close(self) -> None:
        """Count that it was closed."""
        self.closed += 1


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepDirectory:
    """The directory of a sweep that nobody has to wait for."""
    monkeypatch.setattr("lw2g.sweeps.sweep_engine._LOOK", 0)
    monkeypatch.setattr("lw2g.sweeps.sweep_engine._SPARED", 0)
    return SweepDirectory(tmp_path / "sweep")


@pytest.fixture
def finish(finished) -> Act:
    """What a process does that finishes its run."""

    def act(job: Job) -> int:
        shutil.copytree(finished[0], job.run, dirs_exist_ok=True)
        return 0

    return act


def interrupt(job: Job) -> int:
    """What a process does that somebody stops after it has begun."""
    job.run.mkdir(exist_ok=True)
    (job.run / "config.toml").write_text("[run]\nseed = 1")
    return 130


def fail(job: Job) -> int:
    """What a process does that meets a mistake."""
    with job.log.open("a") as log:
        log.write("error: no such data; fetch them\nnot this\n")
    return 2


def states(store: SweepDirectory) -> list[str]:
    """Where all cells stand."""
    return [one.state for one in store.statuses(CELLS)]


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
    assert (store.cells(), resumed.closed) == (CELLS, 1)


def test_a_failed_cell_is_left_with_its_reason(store, finish):
    """The others go on; the last error of the log is the reason; only a retry tries again."""
    failing = Played(lambda job: fail(job) if job.name == CELLS[0].name else finish(job))
    found = run_sweep(store, CELLS, failing)
    assert [one.state for one in found] == ["failed", "finished"]
    assert found[0].reason == "exit code 2: no such data; fetch them"
    again = Played(finish)
    run_sweep(store, CELLS, again)
    assert again.ran == []
    store.note_failure(CELLS[0], None)
    run_sweep(store, CELLS, again)
    assert (again.ran, states(store)) == (["run"], ["finished", "finished"])


def crash(job: Job) -> int:
    """What a process does that meets a bug; libraries print after its error."""
    with job.log.open("a") as log:
        log.write("Traceback ...\n  File\ntorch.OutOfMemoryError: of 3 GiB\nlibrary: leaked\nSee its page")
    return 1


def die(job: Job) -> int:
    """What an engine does that lost a job."""
    raise RuntimeError("job 12\nwas lost")


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (crash, "exit code 1: torch.OutOfMemoryError: of 3 GiB"),
        (lambda job: -signal.SIGKILL, "exit code -9: ended by SIGKILL (out of memory?)"),
        (lambda job: 0, "exit code 0: it printed nothing"),
    ],
)
def test_a_failure_says_what_ended_it(store, act, reason):
    """The error of this attempt alone, or the signal; exit code 0 is believed of a finished run only."""
    for before in (fail, act):
        (found,) = run_sweep(store, CELLS[:1], Played(before))
        store.note_failure(CELLS[0], None)
    assert (found.state, found.reason) == ("failed", reason)


def test_a_job_that_its_engine_lost_counts_as_killed(store, finish, monkeypatch):
    """What the engine raises stands in the log, and the job is tried again as often as allowed."""
    monkeypatch.setattr(Playing, "result", lambda self: 0 if self.act(self.job) is None else die(self.job))
    executor = Played(interrupt, retries=1)
    (found,) = run_sweep(store, CELLS[:1], executor)
    assert (executor.ran, found.state) == (["run", "resume"], "failed")
    assert store.job(CELLS[0]).last_words()[-1] == "error: job 12 was lost"


@pytest.mark.parametrize(("retries", "ran"), [(0, 1), (2, 3)])
def test_a_killed_job_is_resumed_as_often_as_allowed(store, retries, ran):
    """A signal's end is no mistake of the run's; after the last retry it is a failure."""
    executor = Played(lambda job: interrupt(job) and -signal.SIGKILL, retries=retries)
    (found,) = run_sweep(store, CELLS[:1], executor)
    assert executor.ran == (["run"] + ["resume"] * retries)[:ran]
    assert found.state == "failed"


def test_a_request_to_stop_is_passed_on(store):
    """The first signal lets nothing new begin and asks what runs to stop; that is no failure."""
    asked: list[int] = []

    def stopped(job: Job) -> int | None:
        if not asked:
            os.kill(os.getpid(), signal.SIGTERM)
        asked.append(executor.cancelled)
        return -signal.SIGTERM if executor.cancelled else None

    executor = Played(stopped)
    found = run_sweep(store, CELLS, executor)
    assert (executor.ran, executor.cancelled) == (["run"], 1)
    assert [one.state for one in found] == ["waiting", "waiting"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("writes", [one_writer, locked])
@pytest.mark.parametrize("begun", [True, False])
def test_what_somebody_else_runs_is_waited_for(store, finish, writes, begun):
    """A cell whose run is written, or that another sweep attempts, runs; once that ends it is due."""
    store.write(CELLS)
    job = store.job(CELLS[0])
    job.run.mkdir()
    if begun:
        interrupt(job)
    other, seen = ExitStack(), []
    other.enter_context(writes(job.run if writes is one_writer else job.lock))

    def watch(statuses) -> None:
        seen.append(statuses[0].state)
        if [one.state for one in statuses] == ["running", "finished"]:
            assert statuses[0].writer.pid == os.getpid()
            other.close()

    executor = Played(finish)
    found = run_sweep(store, CELLS, executor, watch)
    assert (seen[0], executor.ran) == ("running", ["run", "resume" if begun else "run"])
    assert [one.state for one in found] == ["finished", "finished"]


def test_what_another_driver_has_finished_meanwhile_is_not_begun(store, finish, monkeypatch):
    """Others may have been at a cell since the last look: it is looked at again before it is submitted."""
    monkeypatch.setattr("lw2g.sweeps.sweep_engine._LOOK", 3600)

    def both(job: Job) -> int:
        finish(store.job(CELLS[1]))
        return finish(job)

    executor = Played(both)
    found = run_sweep(store, CELLS, executor)
    assert (executor.names, [one.state for one in found]) == ([CELLS[0].name], ["finished", "finished"])


def test_a_job_that_came_second_has_not_failed(store, finish):
    """One whose cell somebody else runs, or ran, ends without a failure; the cell goes on when it is free."""
    others = ExitStack()

    def second(job: Job) -> int:
        if len(executor.ran) == 1:
            others.enter_context(locked(job.lock))
            return BUSY
        if len(executor.ran) == 2:
            return BUSY
        finish(job)
        return 2

    def watch(statuses) -> None:
        if statuses[0].state == "running":
            others.close()

    executor = Played(second)
    (found,) = run_sweep(store, CELLS[:1], executor, watch)
    assert (executor.ran, found.state) == (["run"] * 3, "finished")


def test_cancelled_cells_stop_and_do_not_begin(store, finish):
    """A job under way is asked once, and a cell that waits stays; the next sweep begins both."""

    def wait(job: Job) -> int | None:
        store.cancel(CELLS)
        looks.append(executor.cancelled)
        return interrupt(job) and -signal.SIGTERM if len(looks) == 5 else None

    looks: list[int] = []
    executor = Played(wait)
    found = run_sweep(store, CELLS, executor)
    assert (executor.ran, looks) == (["run"], [0, 1, 1, 1, 1])
    assert [one.state for one in found] == ["interrupted", "waiting"]
    again = Played(finish)
    run_sweep(store, CELLS, again)
    assert again.ran == ["resume", "run"]


def test_many_cells_are_looked_at_few_times(store, finish, monkeypatch):
    """A thousand queued cells cost reads in proportion, whatever the number of polls."""
    cells = [Cell(settings={"run.seed": seed}, label=str(seed)) for seed in range(12)]
    reads: list[Path] = []
    monkeypatch.setattr(
        "lw2g.sweeps.sweep_directory.read_run", lambda path: reads.append(path) or read_run(path)
    )
    monkeypatch.setattr("lw2g.sweeps.sweep_engine._LOOK", 3600)
    polls = Counter()

    def later(job: Job) -> int | None:
        polls[job.name] += 1
        return finish(job) if polls[job.name] == 5 else None

    run_sweep(store, cells, Played(later, slots=4))
    assert max(Counter(reads).values()) <= 5


def test_what_would_be_resolved_otherwise_is_named(store, finish, catalogue: Catalogue, finished):
    """A finished cell whose settings mean something else now says which options."""
    record = finished[1]
    settings = {"run.seed": 42, "backbone.name": "tiny"} | {
        f"{section}.{key}": value
        for section in ("baseline", "benchmark")
        for key, value in record["config"][section].items()
    }
    settings |= {key: value for key, value in _others(record).items() if value is not None}
    settings["run.precision"] = "auto"  # the run took one: no difference
    settings["run.evaluation_batch"] = 99  # changes no number
    same = Cell(settings=settings, label="same")
    moved = Cell(settings=settings | {"growth.energy": 0.5}, label="moved")
    run_sweep(store, [same, moved], Played(finish))
    assert differences_now(store.status(same), catalogue) == []
    assert differences_now(store.status(moved), catalogue) == ["growth.energy: 0.95 then, 0.5 now"]
    kept = store.job(moved).set_aside()
    assert (store.status(moved).state, (kept / "record.json").exists()) == ("waiting", True)


def _others(record) -> dict[str, object]:
    config = record["config"]
    return {
        f"{section}.{key}": value for section in ("run", "growth") for key, value in config[section].items()
    }


@pytest.mark.parametrize(
    ("settings", "gpus", "slots", "given"),
    [
        ({}, None, 1, [None]),
        ({"jobs": 3}, "0,1", 3, [None, None, None]),
        ({"gpus_per_job": 1}, "0,1", 2, ["0", "1"]),
        ({"gpus_per_job": 0.5, "jobs": 3}, "4,6", 3, ["4", "6", "4"]),
        ({"gpus_per_job": 2, "jobs": 9}, "0,1,2,3,4", 2, ["0,1", "2,3"]),
    ],
)
def test_local_jobs_have_gpus_of_their_own(tmp_path, monkeypatch, settings, gpus, slots, given):
    """As many jobs run as the GPUs have room for, each sees its own, and who ends gives its place back."""
    if gpus is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    together, seen = Barrier(slots), []

    def run(attempt: Attempt) -> int:
        seen.append(attempt.environment.get("CUDA_VISIBLE_DEVICES"))
        together.wait(60)
        return 0

    monkeypatch.setattr(Attempt, "run", run)
    executor = load_executor(settings, tmp_path)
    assert executor.slots == slots
    for turn in (1, 2):
        jobs = [Job(name=f"{turn} {slot}", sweep=tmp_path) for slot in range(slots)]
        assert [future.result() for future in executor.submit(jobs)] == [0] * slots
        assert Counter(seen) == Counter(given * turn)
    executor.close()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": "rai"}, r"no such executor 'rai' \(did you mean 'ray'\?\)"),
        ({"job": 1}, r"executor.job: no such option \(did you mean 'jobs'\?\)"),
        ({"jobs": 0}, "executor.jobs: "),
        ({"gpus_per_job": 1.5}, "expected a share of one GPU, or whole ones, but got 1.5"),
        ({"gpus_per_job": 3}, "3 of 2 GPUs cannot be given"),
    ],
)
def test_an_executor_that_cannot_be_had_says_why(tmp_path, monkeypatch, settings, says):
    """One line, and nothing is written."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ConfigError, match=says):
        load_executor(settings, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("ray", "ray", "sweep"), ("slurm", "submitit", "slurm")]
)
def test_an_executor_without_its_package_names_the_extra(tmp_path, monkeypatch, name, package, extra):
    """The engines are optional."""
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"lw2g.sweeps.executors.{name}", raising=False)
    with pytest.raises(
        ConfigError, match=rf"executor '{name}': .*{package}.*; pip install 'lw2g\[{extra}\]'"
    ):
        load_executor({"name": name}, tmp_path)
