"""A run directory has one writer at a time, and a dead one is no obstacle."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lw2g.errors import DataError
from lw2g.training.lock import one_writer

HOLD = """
import sys
from pathlib import Path
from lw2g.training.lock import one_writer
with one_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock of the directory until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


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


def test_an_owner_on_another_host_must_be_looked_for(tmp_path: Path) -> None:
    """What cannot be known from here is left to the user, with what to do."""
    (tmp_path / "lock").write_text(json.dumps({"pid": 7, "host": "elsewhere", "since": "then"}))
    with (
        pytest.raises(DataError, match=r"process 7 on host 'elsewhere' .* remove"),
        one_writer(tmp_path),
    ):
        pass
    assert (tmp_path / "lock").exists()


def test_a_link_is_no_lock(tmp_path: Path) -> None:
    """What a link points to is never written."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(DataError, match="is a link"), one_writer(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "mine"
