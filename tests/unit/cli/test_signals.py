"""How a process ends that a signal or a plugin ends: with what was half made removed, and never with 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_IN_A_FOLDER = """
import signal, sys
from pathlib import Path
from tempfile import TemporaryDirectory
from lw2g.cli.signals import unwinding
with unwinding(), TemporaryDirectory(dir=sys.argv[1]) as made:
    (Path(made) / "photo.png").write_bytes(b"private")
    signal.raise_signal(int(sys.argv[2]))
"""
_IN_A_FINALIZER = """
import signal, sys, time, weakref
from lw2g.cli.signals import unwinding
def stop(*_):
    signal.raise_signal(int(sys.argv[2]))
class Held:
    def __del__(self):
        if sys.argv[1] == "finalizer":
            stop()
class Slow:
    def __del__(self):
        time.sleep(0.02)
try:
    with unwinding():
        held = Held()
        callback = weakref.ref(held, stop if sys.argv[1] == "callback" else None)
        del held
        Slow()  # where the signal comes a second time
        time.sleep(20)
        print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""
_IN_A_LIBRARY = """
import signal, sys, time
from pathlib import Path
import click
from lw2g.cli.main import main
from lw2g.cli.signals import saying_what_is_left
from lw2g.errors import DataError
from lw2g.vit import opened_checkpoint
number, how = int(sys.argv[1]), sys.argv[2]
class Torn(Exception):
    pass
def load_file(path):
    # as safetensors does where a signal comes while it calls Python
    try:
        signal.raise_signal(number)
        time.sleep(20)
    except BaseException as stop:
        caught = stop
    error = Torn("invalid header")
    error.__cause__ = caught if how == "with its cause" else None
    raise error
opened_checkpoint.load_file = load_file
opened_checkpoint.format_of = lambda path: "safetensors"
@click.command()
def read():
    try:
        with saying_what_is_left(Path("new")):
            opened_checkpoint.read_weights(Path(sys.executable))
    except DataError:
        if how != "eaten":
            raise
    print("went on")
main.get_command = lambda ctx, name: read
main(["read"])
"""
_ANSWERED = """
import signal, sys
from lw2g.cli.signals import unwinding
from lw2g.errors import ConfigError
from lw2g.ground.interruption import answered
with unwinding():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as stop:
        if sys.argv[1] == "by an error":
            raise ConfigError("stopped", "go on") from stop
        answered()
    raise ConfigError("stopped", "go on")
"""
_LEAVING = """
import os, sys
from pathlib import Path
from lw2g.cli.execute import _under_progress
_under_progress(lambda listeners: os._exit(int(sys.argv[1])), Path("runs/one"))
"""
_FORKING = """
import os
from pathlib import Path
from lw2g.cli.signals import telling_of_exits
with telling_of_exits(Path("runs/one")):
    if not (child := os.fork()):
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
os._exit(0)
"""


def python(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    arguments = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, env=os.environ)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU])
def test_a_signal_leaves_nothing_half_made(number: signal.Signals, tmp_path: Path) -> None:
    """Temporary folders are removed, and the process still ends by the signal."""
    done = python(_IN_A_FOLDER, tmp_path, int(number))
    assert (done.returncode, done.stderr) == (-number, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["finalizer", "callback"])
@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGTERM, (-signal.SIGTERM, "")), (signal.SIGINT, (0, "interrupted\n"))]
)
def test_a_signal_is_not_lost_where_python_swallows_its_exception(
    where: str, number: signal.Signals, ends: tuple[int, str]
) -> None:
    """It comes again after the finalizer or the callback of a weak reference, and nothing is printed."""
    done = python(_IN_A_FINALIZER, where, int(number))
    assert (done.returncode, done.stdout, done.stderr) == (*ends, "")


@pytest.mark.parametrize("how", ["alone", "with its cause"])
@pytest.mark.parametrize(
    ("number", "ends"),
    [
        (signal.SIGTERM, (-signal.SIGTERM, "")),
        (signal.SIGINT, (130, "error: interrupted; nothing was written\n")),
    ],
)
def test_a_signal_is_not_told_as_the_error_that_a_library_makes_of_it(
    number: signal.Signals, ends: tuple[int, str], how: str
) -> None:
    """No file of weights is called damaged because somebody pressed Ctrl-C while it was read."""
    done = python(_IN_A_LIBRARY, int(number), how)
    assert (done.returncode, done.stderr) == ends
    assert done.stdout == ""


def test_a_signal_that_was_eaten_ends_the_command_all_the_same() -> None:
    """Who skips what cannot be read goes on, and the process then ends as it was asked to."""
    done = python(_IN_A_LIBRARY, int(signal.SIGTERM), "eaten")
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")


@pytest.mark.parametrize("how", ["by an error", "and forgotten"])
def test_an_error_that_answers_a_signal_is_told(how: str) -> None:
    """A command that catches Ctrl-C says what it wants to say."""
    assert "ConfigError: stopped" in python(_ANSWERED, how).stderr


@pytest.mark.parametrize(("asked", "got"), [(0, 1), (3, 3)])
def test_a_plugin_cannot_end_a_run_as_if_it_were_finished(asked: int, got: int) -> None:
    """`os._exit(0)` within a run says how it goes on and has another exit code."""
    done = python(_LEAVING, asked)
    assert done.returncode == got
    assert done.stderr.endswith(
        "a plugin ended this process within the run; resume with: lw2g resume runs/one\n"
    )


def test_processes_that_a_run_starts_end_as_they_want() -> None:
    """Those that decode images, say; and after the run so does the process itself."""
    done = python(_FORKING)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
