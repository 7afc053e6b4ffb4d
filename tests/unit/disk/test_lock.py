"""A run directory has one writer at a time, and a dead one is no obstacle."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from lw2g.config.directory import LOCK
from lw2g.disk.lock import BusyError, Writer, one_writer, writer_of
from lw2g.errors import DataError

HOLD = """
import os, sys, time
from pathlib import Path
from lw2g.disk.lock import one_writer
with one_writer(Path(sys.argv[1])):
    began, begun = os.pipe()
    child = os.fork()
    if not child:
        os.closerange(0, 3)
        os.write(begun, b".")
        time.sleep(60)
    os.read(began, 1)  # what a fork forgets is forgotten by then
    print(child, flush=True)
    sys.stdin.read()
    os.kill(child, 9)
"""


class Holder:
    """Another process that holds the lock of a directory until its input ends, and has forked meanwhile."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.child = int(self.process.stdout.readline())


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    """A holder of the lock of the test's directory."""
    made = Holder(tmp_path)
    yield made
    made.process.communicate("")


def test_the_lock_names_its_owner_and_goes_with_it(tmp_path: Path) -> None:
    """While it is held it says who holds it; afterwards there is no file."""
    with one_writer(tmp_path) as before:
        owner = writer_of(tmp_path)
        assert before is None
        assert owner is not None
        assert (owner.pid, owner.host) == (os.getpid(), socket.gethostname())
        with pytest.raises(BusyError, match=f"being written by process {os.getpid()} on"):
            one_writer(tmp_path).__enter__()
        assert writer_of(tmp_path) == owner
    assert (writer_of(tmp_path), list(tmp_path.iterdir())) == (None, [])


def test_another_process_is_kept_out_until_it_ends(tmp_path: Path, holder: Holder) -> None:
    """The message names the owner; once that ends, the directory is free."""
    with pytest.raises(BusyError, match=f"process {holder.process.pid} on .*; wait for it"):
        one_writer(tmp_path).__enter__()
    holder.process.communicate("")
    with one_writer(tmp_path) as before:
        assert before is None


def test_a_killed_owner_is_told_and_replaced(tmp_path: Path, holder: Holder) -> None:
    """Its file is still there, but the system has freed it, even if a process lives that it forked."""
    holder.process.kill()
    holder.process.wait()
    assert writer_of(tmp_path) is None
    with one_writer(tmp_path) as before:
        assert before is not None
        assert f"process {holder.process.pid} on host" in str(before)
    assert not (tmp_path / LOCK).exists()
    os.kill(holder.child, signal.SIGKILL)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"pid": "x"}', b"[" * 4000, b"\xff"],
    ids=["empty", "list", "text", "deep", "bytes"],
)
def test_a_file_that_says_nothing_is_free(tmp_path: Path, content: bytes) -> None:
    """Only the system's lock counts, whatever stands in the file, and however new it is."""
    (tmp_path / LOCK).write_bytes(content)
    os.utime(tmp_path / LOCK, (2e9, 2e9))
    assert writer_of(tmp_path) is None
    with one_writer(tmp_path) as before:
        assert before == (Writer() if content else None)
        (tmp_path / LOCK).write_bytes(content)
        assert str(writer_of(tmp_path)) == "another process"


def test_who_looks_does_not_keep_a_writer_out(tmp_path: Path) -> None:
    """A look takes the lock for a moment, too; a writer that meets it tries again."""
    over = Event()

    def look() -> None:
        while not over.is_set():
            writer_of(tmp_path)

    threads = [Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(60):
            (tmp_path / LOCK).touch()
            with one_writer(tmp_path):
                pass
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_the_lock_of_a_removed_file_is_worth_nothing(tmp_path: Path, monkeypatch) -> None:
    """Between opening and locking its owner may end and another begin: that one is the writer."""
    flock, others = fcntl.flock, []

    def in_between(handle: int, how: int) -> None:
        if not others:
            (tmp_path / LOCK).unlink()
            others.append(os.open(tmp_path / LOCK, os.O_CREAT | os.O_RDWR))
            os.write(others[0], json.dumps({"pid": 7, "host": "here", "since": "now"}).encode())
            flock(others[0], fcntl.LOCK_EX)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", in_between)
    with pytest.raises(BusyError, match="process 7 on"):
        one_writer(tmp_path).__enter__()
    os.close(others[0])
    assert (tmp_path / LOCK).exists()


def test_only_the_own_file_is_removed(tmp_path: Path) -> None:
    """Where a directory was moved away and made anew, its new writer keeps its lock."""
    (tmp_path / "run").mkdir()
    with one_writer(tmp_path / "run"):
        (tmp_path / "run").rename(tmp_path / "aside")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / LOCK).touch()
    assert (tmp_path / "run" / LOCK).exists()


def test_without_locks_nothing_is_written(tmp_path: Path, monkeypatch) -> None:
    """A file system that cannot tell of a second writer is refused in one line."""

    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(DataError, match=r"cannot be locked \(No locks available\)"):
        one_writer(tmp_path).__enter__()
    assert writer_of(tmp_path) is None


def test_a_link_is_no_lock(tmp_path: Path) -> None:
    """What a link points to is never written."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(DataError, match="is a link"):
        one_writer(tmp_path).__enter__()
    assert (tmp_path / "precious").read_text() == "mine"
