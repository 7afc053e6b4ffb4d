"""Attempts at a cell with real processes: one at a time, stopped on request, gone with who started them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lw2g.disk.lock import holder_of, one_writer
from lw2g.sweeps.grid import Cell
from lw2g.sweeps.job import BUSY, INTERRUPTED, Attempt, Job
from lw2g.sweeps.sweep_directory import SweepDirectory

COUNTS = """
import signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
print("begun", flush=True)
while len(asked) < int(sys.argv[1]):
    time.sleep(0.01)
time.sleep(0.3)
sys.exit(100 + len(asked))
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job whose configuration names what there is not."""
    store = SweepDirectory(tmp_path / "sweep")
    cell = Cell(settings={"run.nonsense": 1}, label="x")
    store.write([cell])
    return store.job(cell)


def until(reached: Callable[[], object]) -> None:
    """Wait for something that another thread or process does soon."""
    for _ in range(6_000):
        if reached():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")


def counting(monkeypatch: pytest.MonkeyPatch, requests: int) -> list[subprocess.Popen[bytes]]:
    """Let jobs start a process that ends after so many requests to stop; return those that began."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(self: Job, environment) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", COUNTS, str(requests)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        begun.append(process)
        return process

    monkeypatch.setattr(Job, "start", start)
    return begun


def test_a_process_ends_with_its_code_and_log(job):
    """A job runs lw2g itself; what it prints is appended to the log, under the command."""
    job.log.write_text("before\n")
    assert Attempt(job, {}).run() == 2
    words = f"run {job.config} --settled {job.sweep / 'settled'} --out {job.run}"
    assert job.log.read_text().startswith(f"before\n\n$ lw2g {words}\n")
    assert job.last_words()[0].startswith("error: ")
    job.run.mkdir(exist_ok=True)
    (job.run / "config.toml").touch()
    assert job.arguments() == ("resume", str(job.run))


def test_a_cell_has_one_attempt_at_a_time(job, monkeypatch):
    """The second of two begins nothing, however long the first one's process needs until it locks its run."""
    begun = counting(monkeypatch, 1)
    with ThreadPoolExecutor() as pool:
        first = Attempt(job, {})
        future = pool.submit(first.run)
        until(lambda: begun)
        assert (Attempt(job, {}).run(), len(begun)) == (BUSY, 1)
        first.ask()
    assert (future.result(), holder_of(job.lock)) == (101, None)


def test_a_run_that_is_still_written_is_waited_for(job, monkeypatch):
    """What a killed worker has left behind saves what it learned before another process begins."""
    begun = counting(monkeypatch, 1)
    job.run.mkdir()
    with ThreadPoolExecutor() as pool, one_writer(job.run):
        attempts = [Attempt(job, {}), Attempt(job, {})]
        waiting = pool.submit(attempts[0].run)
        until(lambda: holder_of(job.lock))
        attempts[0].ask()
        assert (waiting.result(), begun) == (INTERRUPTED, [])
        waiting = pool.submit(attempts[1].run)
        time.sleep(0.2)
        assert begun == []
        until(lambda: holder_of(job.lock))
        job.cancelled.touch()
        assert (waiting.result(), begun) == (INTERRUPTED, [])


@pytest.mark.parametrize(("ways", "requests", "code"), [(1, 1, 101), (2, 2, 102)])
def test_who_asks_once_more_is_heard(job, monkeypatch, ways, requests, code):
    """A file and the sweep that ask are one request; the sweep's second one is passed on."""
    begun = counting(monkeypatch, requests)
    attempt = Attempt(job, {})
    with ThreadPoolExecutor() as pool:
        future = pool.submit(attempt.run)
        until(lambda: begun)
        job.cancelled.touch()
        for _ in range(ways):
            attempt.ask()
        assert future.result() == code


@pytest.mark.parametrize("how", ["interrupt", "handler"])
def test_a_worker_that_makes_room_waits_for_its_run(job, monkeypatch, how):
    """Ray interrupts, submitit calls from a signal's handler: the run is asked once, and waited for."""
    begun = counting(monkeypatch, 1)
    attempt = Attempt(job, {})
    ended: list[int | None] = []

    def make_room(number, frame) -> None:
        if how == "interrupt":
            raise KeyboardInterrupt
        attempt.stop()
        ended.append(begun[0].poll())

    before = signal.signal(signal.SIGALRM, make_room)
    monkeypatch.setattr("lw2g.sweeps.job.time.sleep", lambda _: begun and signal.raise_signal(signal.SIGALRM))
    try:
        code = attempt.run()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (code, begun[0].wait()) == ((INTERRUPTED, 101) if how == "interrupt" else (101, 101))
    assert set(ended) <= {101}
    assert holder_of(job.lock) is None


@pytest.mark.parametrize(
    ("left", "kept"),
    [({"lock": ""}, None), ({"predictions/task-0.npz": "x", "lock": ""}, ["lock", "predictions"])],
)
def test_what_ended_before_its_configuration_is_begun_anew(job, monkeypatch, left, kept):
    """A cell that was killed, or found no room, before config.toml is no obstacle; nothing is deleted."""
    counting(monkeypatch, 0)
    for name, content in left.items():
        (job.run / name).parent.mkdir(parents=True, exist_ok=True)
        (job.run / name).write_text(content)
    assert Attempt(job, {}).run() == 100
    stale = job.sweep / ".stale" / f"{job.name}-1"
    assert job.run.exists() is (kept is None)
    assert (sorted(path.name for path in stale.iterdir()) if stale.exists() else None) == kept
    (job.run / "checkpoints").mkdir(parents=True, exist_ok=True)
    (job.run / "config.toml").touch()
    assert Attempt(job, {}).run() == 100
    assert (job.run / "checkpoints").exists()


def test_a_process_goes_with_who_started_it(job):
    """A killed worker's process is asked to stop; one that is tethered too late does not begin."""
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); time.sleep(60)"
    )
    child = (
        "import os, sys, time\n"
        "sys.argv = ['', str(os.getppid()), '--help']\n"
        "import runpy\n"
        "runpy.run_module = lambda *_, **__: (print('tethered', flush=True), time.sleep(60))\n"
        "import lw2g.sweeps.tether as tether; tether._main()"
    )
    with subprocess.Popen([sys.executable, "-c", script, child], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    status = Path(f"/proc/{pid}/stat")
    until(lambda: not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z")
    late = [sys.executable, "-m", "lw2g.sweeps.tether", "1", "--help"]
    assert subprocess.run(late, capture_output=True, check=False).stdout == b""
