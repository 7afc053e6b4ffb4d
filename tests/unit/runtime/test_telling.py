"""Progress beside a run: lines now and then, and a bar on a terminal, in one wording."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import suppress

import pytest
from rich.console import Console

from lw2g.cli.bars import Bars
from lw2g.runtime import telling
from lw2g.runtime.telling import CommandLog, Telling, shown_to_programs


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that a test moves on."""
    now = [100.0]
    monkeypatch.setattr("lw2g.runtime.telling.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """A terminal on which a command logs."""
    screen = io.StringIO()
    shown = Console(file=screen, force_terminal=True, width=100, _environ={})
    monkeypatch.setattr(telling, "console", lambda stderr: shown)
    monkeypatch.setattr("lw2g.runtime.telling.sys.stderr.isatty", lambda: True, raising=False)
    logger = logging.getLogger("lw2g.progress")
    handler = CommandLog()
    logger.addHandler(handler)
    yield screen
    logger.removeHandler(handler)


def test_a_line_comes_now_and_then(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """How many of all, how fast, and how long the rest takes; nothing at once, and nothing at the end."""
    with caplog.at_level(logging.INFO, logger="lw2g.progress"), Telling("reading", 100) as tell:
        for _ in range(10):
            clock[0] += 2.0
            tell(10)
    assert caplog.messages == [
        "reading: 30 of 100 images, 5.0 images/s, about 0:00:14 left",
        "reading: 60 of 100 images, 5.0 images/s, about 0:00:08 left",
        "reading: 90 of 100 images, 5.0 images/s, about 0:00:02 left",
    ]


@pytest.mark.parametrize("own", [None, logging.NullHandler()], ids=["nothing", "its own"])
def test_a_program_sees_what_a_command_shows(
    clock: list[float],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    own: logging.Handler | None,
) -> None:
    """Unless it has set up logging of its own; afterwards the logger is as it was."""
    logger = logging.getLogger("lw2g.progress")
    monkeypatch.setattr(logger, "propagate", False)  # pytest has handlers at the root
    handlers = [own] if own else []
    monkeypatch.setattr(logger, "handlers", [*handlers])
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    with shown_to_programs(), Telling("reading", 100) as tell:
        clock[0] += 6.0
        tell(10)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ([] if own else ["reading: 10 of 100 images, 1.7 images/s, about 0:00:54 left"])
    assert (logger.handlers, logger.level) == (handlers, logging.NOTSET)


def test_a_terminal_gets_a_bar_that_goes_at_the_end(clock: list[float], terminal: io.StringIO) -> None:
    """Also where the block fails; a note stands above it, and work within shows no second bar."""
    with suppress(KeyboardInterrupt), Telling("reading", 100) as tell:
        tell(10)
        assert terminal.getvalue() == ""  # what is done soon shows none
        clock[0] += 4.0
        tell(10)
        assert Telling.shown is not None
        Telling.shown.refresh()
        with Telling("inner", 5) as inner:
            clock[0] += 4.0
            inner(3)
        logging.getLogger("lw2g.progress").warning("note: [one] of them")
        raise KeyboardInterrupt
    text = terminal.getvalue()
    assert "20 of 100 images, 5.0 images/s, " in text
    assert "about 0:00:16 left" in text
    assert "note: [one] of them" in text
    assert "inner" not in text
    assert Telling.shown is None
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back


def test_bytes_are_told_in_units(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """A download is told in units, with a total or without; the next step counts anew."""
    with caplog.at_level(logging.INFO, logger="lw2g.progress"), Bars() as bars:
        for name, total in (("a.zip", 2048 * 1024), ("b.zip", None)):
            bars.report(name, 0, total)
            clock[0] += 8.0
            bars.report(name, 1024 * 1024, total)
    assert caplog.messages == [
        "a.zip: 1 MiB of 2 MiB, 128 KiB/s, about 0:00:08 left",
        "b.zip: 1 MiB, 128 KiB/s",
    ]
