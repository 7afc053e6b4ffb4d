"""A run directory has one writer at a time, and a dead one is no obstacle."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lw2g.config.directory import LOCK, STOP
from lw2g.errors import ConfigError, DataError
from lw2g.training.files.lock import VARIABLE, ask_to_stop, one_writer, writer_of

HOLD = """
import sys
from pathlib import Path
from lw2g.training.files.lock import one_writer
with one_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of the directory until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {VARIABLE: "1.2"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.communicate("")


def test_the_lock_names_its_owner_and_goes_with_it(tmp_path: Path) -> None:
    """While it is held it says who holds it; afterwards there is no file."""
    with one_writer(tmp_path) as before:
        assert before is None
        owner = json.loads((tmp_path / "lock").read_text())
        assert (owner["pid"], owner["host"]) == (os.getpid(), socket.gethostname())
        with pytest.raises(DataError, match=f"being written by process {os.getpid()}"), one_writer(tmp_path):
            pass
    assert not (tmp_path / "lock").exists()


def test_another_process_is_kept_out_until_it_ends(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """The message names the owner; once that ends, the directory is free."""
    with (
        pytest.raises(DataError, match=f"process {holder.pid} on .*; wait for it"),
        one_writer(tmp_path),
    ):
        pass
    holder.communicate("")
    with one_writer(tmp_path) as before:
        assert before is None


def test_a_killed_owner_is_said_and_replaced(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """Its lock file is still there, but the system has freed it."""
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert (tmp_path / "lock").exists()
    with one_writer(tmp_path) as before:
        assert before is not None
        assert f"process {holder.pid} on host" in before
    assert not (tmp_path / "lock").exists()


def foreign(directory: Path, silent: float, **said: Any) -> None:
    """A lock that a process of another host has left, whose last heartbeat was some seconds ago."""
    path = directory / LOCK
    path.write_text(json.dumps({"pid": os.getpid(), "host": "elsewhere", "since": "then"} | said))
    os.utime(path, (time.time() - silent,) * 2)


@pytest.mark.parametrize("said", [{}, {"host": socket.gethostname(), "boot": "before"}])
def test_an_owner_elsewhere_is_dead_once_it_is_silent(tmp_path: Path, monkeypatch, said) -> None:
    """Its heartbeat decides, for another host as for this one before it was started again."""
    monkeypatch.setattr("lw2g.training.files.lock._SETTLING", 0)
    foreign(tmp_path, 30, **said)
    with pytest.raises(DataError, match=r"free after 60 s$"), one_writer(tmp_path):
        pass
    found = writer_of(tmp_path)
    assert found is not None
    assert (found.host, found.here) == (said.get("host", "elsewhere"), False)
    assert 30 <= found.silent < 60
    foreign(tmp_path, 61, **said)
    assert writer_of(tmp_path) is None
    with one_writer(tmp_path) as before:
        assert before is not None
        assert f"process {os.getpid()} on host" in before
        assert json.loads((tmp_path / LOCK).read_text())["host"] == socket.gethostname()
    assert not (tmp_path / LOCK).exists()


def test_the_owner_says_how_long_it_may_be_silent(tmp_path: Path) -> None:
    """Its own word holds, whatever the one who looks would allow itself."""
    foreign(tmp_path, 61, stale_after=100)
    assert writer_of(tmp_path) is not None
    foreign(tmp_path, 11, stale_after=10)
    assert writer_of(tmp_path) is None


def test_what_a_dead_host_has_locked_is_begun_anew(tmp_path: Path, monkeypatch, holder) -> None:
    """A file server may hold a lock of a host that is gone: the silent owner's file is replaced."""
    monkeypatch.setattr("lw2g.training.files.lock._SETTLING", 0)
    foreign(tmp_path, 61)
    with one_writer(tmp_path):
        owner = json.loads((tmp_path / LOCK).read_text())
        assert owner["host"] == socket.gethostname()
    holder.wait(60)  # it has noticed
    assert holder.returncode == 1


@pytest.mark.parametrize("told", ["0", "soon", "nan"])
def test_a_wrong_time_of_silence_is_refused(tmp_path: Path, monkeypatch, told) -> None:
    """What is no number of seconds is named, and nothing is left behind."""
    monkeypatch.setenv(VARIABLE, told)
    with pytest.raises(ConfigError, match=f"{VARIABLE}: expected .* got '{told}'"), one_writer(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def until(reached: Callable[[], bool]) -> None:
    """Wait for something that another thread or process does soon."""
    for _ in range(6_000):
        if reached():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")


def test_the_heart_beats_while_the_lock_is_held(tmp_path: Path, monkeypatch) -> None:
    """The file's time is renewed, and a request to stop that lies there is handed on once, and taken away."""
    monkeypatch.setenv(VARIABLE, "0.6")
    asked: list[int] = []
    (tmp_path / STOP).touch()  # meant for somebody before
    with one_writer(tmp_path, lambda: asked.append(1)):
        os.utime(tmp_path / LOCK, (0, 0))
        until(lambda: (tmp_path / LOCK).stat().st_mtime > 0)
        assert (asked, ask_to_stop(tmp_path)) == ([], True)
        until(lambda: bool(asked))
        assert not (tmp_path / STOP).exists()
    assert (asked, ask_to_stop(tmp_path)) == ([1], False)
    assert not any(thread.name == "lw2g-heartbeat" for thread in threading.enumerate())


def test_who_has_lost_its_lock_ends(tmp_path: Path, holder) -> None:
    """A process that was taken for dead finds another name in its lock, says so, and writes no more."""
    foreign(tmp_path, 0)
    assert holder.wait(60) == 1
    assert "was taken over by another process; ended" in holder.stderr.read()
    assert json.loads((tmp_path / LOCK).read_text())["host"] == "elsewhere"


def test_no_thread_is_beside_a_fork(tmp_path: Path) -> None:
    """The heart stops before a process forks, and goes on in the parent alone."""
    script = """
import os, sys, threading
from pathlib import Path
os.register_at_fork(before=lambda: print("threads", threading.active_count(), flush=True))
from lw2g.training.files.lock import one_writer
with one_writer(Path(sys.argv[1])):
    if os.fork() == 0:
        os._exit(threading.active_count())
    print("child", os.waitstatus_to_exitcode(os.wait()[1]), "parent", threading.active_count())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "threads 1\nchild 1 parent 2\n"


def test_a_link_is_no_lock(tmp_path: Path) -> None:
    """What a link points to is never written."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(DataError, match="is a link"), one_writer(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "mine"
