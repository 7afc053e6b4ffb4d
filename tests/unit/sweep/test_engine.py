"""Sweeps with an executor that plays the processes: what is run, gone on with, left, and said."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lw2g.config.directory import LOCK
from lw2g.errors import ConfigError
from lw2g.registry.catalogue import Catalogue
from lw2g.report.runs import read_run
from lw2g.sweep.claims import Claims
from lw2g.sweep.engine import run_sweep
from lw2g.sweep.executors import Executor, load_executor
from lw2g.sweep.grid import Cell
from lw2g.sweep.job import Job
from lw2g.sweep.store import SweepDirectory, differences_now

CELLS = [
    Cell(settings={"baseline.name": "dual-prompt", "run.seed": seed}, label=f"seed {seed}") for seed in (0, 1)
]


class Played(Executor[Job]):
    """An executor of one slot whose jobs end when they are looked at, as ``act`` says; lists what it ran."""

    pause = 0

    def __init__(self, act: Callable[[Job, Path], int | None], slots: int = 1, retries: int = 0) -> None:
        self.act, self.slots, self.retries = act, slots, retries
        self.ran: list[str] = []
        self.names: list[str] = []
        self.cancelled = self.closed = 0

    def submit(self, job: Job) -> Job:
        """Note the command."""
        self.ran.append(job.arguments()[0])
        self.names.append(job.name)
        job.log.write_text((job.log.read_text() if job.log.exists() else "") + f"\n$ lw2g {self.ran[-1]}\n")
        return job

    def poll(self, handle: Job) -> int | None:
        """Do what the process does, and end."""
        return self.act(handle, handle.run)

    def cancel(self, handle: Job) -> None:
        """Count requests."""
        self.cancelled += 1

    def close(self) -> None:
        """Count that it was closed."""
        self.closed += 1


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepDirectory:
    """The directory of a sweep that nobody has to wait for."""
    monkeypatch.setattr("lw2g.sweep.engine._LOOK", 0)
    monkeypatch.setattr("lw2g.sweep.engine._SPARED", 0)
    return SweepDirectory(tmp_path / "sweep")


@pytest.fixture
def finish(finished) -> Callable[[Job, Path], int]:
    """What a process does that finishes its run."""

    def act(job: Job, run: Path) -> int:
        shutil.copytree(finished[0], run, dirs_exist_ok=True)
        return 0

    return act


def interrupt(job: Job, run: Path) -> int:
    """What a process does that somebody stops after it has begun."""
    run.mkdir(exist_ok=True)
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
    """What libraries print after the error of a bug is not taken for it, nor what an attempt before said."""

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
    interrupt(store.job(CELLS[0]), run)
    if not begun:
        (run / "config.toml").unlink()
    lock(run)
    seen: list[str] = []

    def watch(statuses) -> None:
        seen.append(statuses[0].state)
        if statuses[1].state == "finished":
            (run / LOCK).unlink(missing_ok=True)

    executor = Played(finish)
    run_sweep(store, CELLS, executor, watch)
    assert (seen[0], executor.ran) == ("running", ["run", "resume" if begun else "run"])


def lock(run: Path) -> None:
    """Write a run directory from this very process, as far as others see."""
    run.mkdir(exist_ok=True)
    (run / LOCK).write_text(json.dumps({"pid": os.getpid(), "host": os.uname().nodename, "since": "now"}))


def test_a_dead_hosts_cell_is_taken_over(store, finish):
    """While another host's heart beats its cell is left alone; once it is silent, the cell goes on here."""
    run = store.run(CELLS[0])
    store.write(CELLS[:1])
    interrupt(store.job(CELLS[0]), run)
    (run / LOCK).write_text(json.dumps({"pid": 1, "host": "elsewhere", "since": "then"}))
    seen: list[tuple[str, int]] = []

    def watch(statuses) -> None:
        seen.append((statuses[0].state, len(executor.ran)))
        if len(seen) == 3:
            os.utime(run / LOCK, (0, 0))

    executor = Played(finish)
    (found,) = run_sweep(store, CELLS[:1], executor, watch)
    assert (seen[:3], executor.ran, found.state) == ([("running", 0)] * 3, ["resume"], "finished")


def test_two_drivers_share_a_sweep(store, finish):
    """What one has claimed the other leaves, and does the rest: no cell is done twice, none is left over."""
    cells = [Cell(settings={"run.seed": seed}, label=str(seed)) for seed in range(6)]
    other = Played(finish, slots=2)

    def first(job: Job, run: Path) -> int:
        if not other.ran:
            store_of_other = SweepDirectory(store.path)
            thread = threading.Thread(target=run_sweep, args=(store_of_other, cells[:5], other))
            thread.start()
            while len(other.ran) < 4:
                time.sleep(0.001)
            assert [one.state for one in store.statuses(cells[:1])] == ["queued"]
            finish(job, run)
            thread.join()
            return 0
        return finish(job, run)

    mine = Played(first)
    found = run_sweep(store, cells, mine)
    assert [one.state for one in found] == ["finished"] * 6
    assert sorted(mine.names + other.names) == sorted(cell.name for cell in cells)
    assert (mine.names[0], len(other.names)) == (cells[0].name, 4)
    assert not list((store.path / ".drivers").glob("*-*"))


def test_what_a_dead_driver_had_claimed_is_taken_over(store, finish):
    """Claims are worth what their driver's heartbeat is."""
    dead = Claims(store.path)
    with dead.driving():
        assert dead.take([CELLS[0].name]) == {CELLS[0].name}
        (here,) = (store.path / ".drivers").glob("*-*")
        assert store.status(CELLS[0]).state == "queued"
        os.utime(here / LOCK, (0, 0))
        assert store.status(CELLS[0]).state == "waiting"
        executor = Played(finish)
        run_sweep(store, CELLS[:1], executor)
    assert executor.ran == ["run"]


def test_a_killed_job_is_gone_on_with_as_often_as_allowed(store, finish):
    """A signal's end is no mistake of the run's; after the last retry it is a failure."""
    executor = Played(lambda job, run: interrupt(job, run) and -signal.SIGKILL, retries=2)
    (found,) = run_sweep(store, CELLS[:1], executor)
    assert executor.ran == ["run", "resume", "resume"]
    assert (found.state, executor.closed) == ("failed", 1)


def test_a_job_that_ends_without_finishing_has_failed(store):
    """An exit code of 0 is believed only where there is a finished run: no cell is tried for ever."""
    (found,) = run_sweep(store, CELLS[:1], Played(lambda job, run: 0))
    assert (found.state, found.reason) == ("failed", "exit code 0: it said nothing")


def test_a_job_that_came_second_has_not_failed(store, finish):
    """One whose run somebody else writes, or has finished, is refused: that is no failure."""
    turns = iter([lambda run: lock(run), lambda run: (run / LOCK).unlink()])

    def second(job: Job, run: Path) -> int:
        next(turns)(run)
        if (run / LOCK).exists():
            return 2
        finish(job, run)
        return 2

    def watch(statuses) -> None:
        if statuses[0].state == "running" and len(executor.ran) == 1:
            seen.append(statuses[0].state)
            (store.run(CELLS[0]) / LOCK).write_text("{}")

    seen: list[str] = []
    executor = Played(second)
    (found,) = run_sweep(store, CELLS[:1], executor, watch)
    assert (set(seen), executor.ran, found.state) == ({"running"}, ["run", "run"], "finished")


def test_cancelled_cells_stop_and_do_not_begin(store, finish):
    """A job that does not run yet is withdrawn, one that waits stays; the next sweep begins both."""

    def wait(job: Job, run: Path) -> int | None:
        store.cancel(CELLS)
        return -signal.SIGTERM if executor.cancelled else None

    executor = Played(wait)
    found = run_sweep(store, CELLS, executor)
    assert (executor.ran, executor.cancelled) == (["run"], 1)
    assert [one.state for one in found] == ["waiting", "waiting"]
    again = Played(finish)
    run_sweep(store, CELLS, again)
    assert again.ran == ["run", "run"]


def test_who_runs_is_cancelled_by_a_file_alone(store, finish):
    """A run that is being written has the request in its directory: a signal beside it would hurry it."""

    def stop(job: Job, run: Path) -> int | None:
        if not (run / LOCK).exists():
            lock(run)
            interrupt(job, run)
            store.cancel(CELLS)
            return None
        if looks.append(1) or len(looks) < 3:
            return None
        (run / LOCK).unlink()
        return 130

    looks: list[int] = []
    executor = Played(stop)
    found = run_sweep(store, CELLS, executor)
    assert executor.cancelled == 0
    assert [one.state for one in found] == ["interrupted", "waiting"]


def test_many_cells_are_looked_at_few_times(store, finish, monkeypatch):
    """A thousand queued cells cost reads in proportion, whatever the number of polls."""
    cells = [Cell(settings={"run.seed": seed}, label=str(seed)) for seed in range(12)]
    reads: list[Path] = []
    monkeypatch.setattr("lw2g.sweep.store.read_run", lambda path: reads.append(path) or read_run(path))
    monkeypatch.setattr("lw2g.sweep.engine._LOOK", 3600)
    polls = Counter()

    def later(job: Job, run: Path) -> int | None:
        polls[job.name] += 1
        return finish(job, run) if polls[job.name] == 5 else None

    run_sweep(store, cells, Played(later, slots=4))
    assert max(Counter(reads).values()) <= 5


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


def job_of(tmp_path: Path) -> Job:
    """A job whose configuration names what there is not."""
    (tmp_path / "config").write_text("[nonsense]")
    return Job(name="x", run=tmp_path / "run", config=tmp_path / "config", log=tmp_path / "log")


@pytest.mark.parametrize("tethered", [False, True])
def test_a_process_ends_with_its_code_and_log(tmp_path, tethered):
    """A job runs lw2g itself; what it prints is appended to the log, under the command."""
    job = job_of(tmp_path)
    job.log.write_text("before\n")
    process = job.start({"OMP_NUM_THREADS": "1"}, tethered=tethered)
    assert process.wait(60) == 2
    assert job.log.read_text().startswith(f"before\n\n$ lw2g run {job.config} --out {job.run}\n")
    assert job.last_words()[0].startswith("error: ")
    job.run.mkdir()
    (job.run / "config.toml").touch()
    assert job.arguments() == ("resume", str(job.run))


def test_a_tethered_process_goes_with_its_parent(tmp_path):
    """What a killed worker has started is asked to stop; who was late to be tethered does not begin."""
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); time.sleep(600)"
    )
    child = (
        "import os, sys, time\n"
        "sys.argv = ['', str(os.getppid()), '--help']\n"
        "import runpy\n"
        "runpy.run_module = lambda *_, **__: (print('tethered', flush=True), time.sleep(600))\n"
        "import lw2g.sweep.tether as tether; tether._main()"
    )
    with subprocess.Popen([sys.executable, "-c", script, child], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    for _ in range(1_000):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            break
        time.sleep(0.01)
    else:
        raise AssertionError("it lives on")
    late = [sys.executable, "-m", "lw2g.sweep.tether", "1", "--help"]
    assert subprocess.run(late, capture_output=True, check=False).stdout == b""


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
    monkeypatch.setattr(
        Job, "start", lambda self, environment: SimpleNamespace(poll=lambda: 0, told=environment)
    )
    executor = load_executor(settings, tmp_path)
    handles = [executor.submit(job_of(tmp_path)) for _ in range(executor.slots)]
    assert executor.slots == slots
    assert [handle.process.told.get("CUDA_VISIBLE_DEVICES") for handle in handles] == given
    assert [executor.poll(handle) for handle in reversed(handles)] == [0] * slots
    assert executor.submit(job_of(tmp_path)).gpus == given[-1]


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
    monkeypatch.delitem(sys.modules, f"lw2g.sweep.executors.{name}", raising=False)
    with pytest.raises(
        ConfigError, match=rf"executor '{name}': .*{package}.*; pip install 'lw2g\[{extra}\]'"
    ):
        load_executor({"name": name}, tmp_path)
