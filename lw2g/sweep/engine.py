"""Running the cells of a sweep: so many at a time, failures noted, and stopped where they can go on."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Generic, TypeVar

import attrs

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, Lw2gError
from lw2g.registry.catalogue import Catalogue
from lw2g.sweep.executor import Executor, Job
from lw2g.sweep.grid import Cell, listed
from lw2g.sweep.store import Status, SweepDirectory
from lw2g.training.lock import one_writer, writer_of

__all__ = ["require_valid", "run_sweep"]

H = TypeVar("H")
_INTERRUPTED = 130
_PAUSE = 0.4
_LONGEST_REASON = 300
_ERROR = re.compile(r"error: |[\w.]+(Error|Exception)\b")


def require_valid(cells: Sequence[Cell], catalogue: Catalogue) -> None:
    """Resolve all cells, so that no mistake comes to light after hours.

    Raises:
        ConfigError: Some cannot be used; every problem stands once, with the cells that have it.
    """
    problems: dict[str, list[str]] = {}
    for cell in cells:
        try:
            resolve(catalogue, file=cell.tables())
        except Lw2gError as error:
            problems.setdefault(str(error), []).append(cell.label)
    if problems:
        raise ConfigError("\n".join(f"{text} (in {_cells(labels)})" for text, labels in problems.items()))


def _cells(labels: Sequence[str]) -> str:
    return f"the cell {labels[0]!r}" if len(labels) == 1 else f"{len(labels)} cells: {listed(labels)}"


def run_sweep(
    store: SweepDirectory,
    cells: Sequence[Cell],
    executor: Executor[Any],
    watch: Callable[[Sequence[Status]], None] = lambda statuses: None,
) -> list[Status]:
    """Run what is not finished of the cells, in their order, and return where each stands in the end.

    Finished cells stay, interrupted ones are gone on with, failed ones are left as they are. What somebody
    else is writing is waited for. SIGINT and SIGTERM stop the cells that run, which can be gone on with.

    Args:
        store: Where the sweep lies.
        cells: What it consists of.
        executor: Where it runs.
        watch: Is told a few times a second where all cells stand.

    Raises:
        DataError: Another sweep is writing there.
    """
    store.path.mkdir(parents=True, exist_ok=True)
    with one_writer(store.path):
        store.write(cells)
        return _Sweep(store, cells, executor, watch).go()


@attrs.define(kw_only=True)
class _Running(Generic[H]):
    """A job under way.

    Attributes:
        handle: What the executor knows it by.
        offset: Where in the log what it prints begins.
    """

    handle: H
    offset: int


class _Sweep:
    """A sweep under way: which cells run, and how often it was asked to stop."""

    def __init__(
        self,
        store: SweepDirectory,
        cells: Sequence[Cell],
        executor: Executor[Any],
        watch: Callable[[Sequence[Status]], None],
    ) -> None:
        self._store, self._executor, self._watch = store, executor, watch
        self._statuses = {cell.name: store.status(cell) for cell in cells}
        self._running: dict[str, _Running[Any]] = {}
        self._left: set[str] = set()  # stopped by somebody else: not begun again by this sweep
        self._asked = self._passed_on = 0

    def go(self) -> list[Status]:
        """Run until nothing is left to run, or nothing runs any more after a request to stop."""
        with self._listening():
            while self._running or (not self._asked and self._is_more()):
                self._submit()
                self._pass_on_request()
                self._collect()
                self._watch(list(self._statuses.values()))
                time.sleep(_PAUSE)
        self._watch(list(self._statuses.values()))
        return list(self._statuses.values())

    def _is_more(self) -> bool:
        return any(self._is_due(name) or one.state == "running" for name, one in self._statuses.items())

    def _is_due(self, name: str) -> bool:
        return self._statuses[name].state in ("waiting", "interrupted") and name not in self._left

    def _submit(self) -> None:
        """Fill the free slots with the next cells that nobody writes."""
        for name in filter(self._is_due, self._statuses):
            if self._asked or len(self._running) >= self._executor.slots:
                return
            status = self._statuses[name]
            self._running[name] = self._begin(status.cell)
            self._statuses[name] = attrs.evolve(status, state="running")

    def _begin(self, cell: Cell) -> _Running[Any]:
        run, log = str(self._store.run(cell)), self._store.log(cell)
        begun = self._store.has_begun(cell)
        arguments = ("resume", run) if begun else ("run", str(self._store.config(cell)), "--out", run)
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{chr(10) if file.tell() else ''}$ lw2g {' '.join(arguments)}\n")
            offset = file.tell()
        job = Job(name=cell.name, arguments=arguments, log=log)
        return _Running(handle=self._executor.submit(job), offset=offset)

    def _pass_on_request(self) -> None:
        if self._passed_on < self._asked:
            self._passed_on = self._asked
            for one in self._running.values():
                self._executor.cancel(one.handle)

    def _collect(self) -> None:
        """Look how the cells that run are getting on; note what became of those that ended."""
        for name, status in self._statuses.items():
            if status.state != "running":
                continue
            mine = self._running.get(name)
            code = None if mine is None else self._executor.poll(mine.handle)
            if mine is not None and code is not None:
                del self._running[name]
                self._note_end(status.cell, code, mine.offset)
            found = self._store.status(status.cell)
            self._statuses[name] = attrs.evolve(found, state="running") if name in self._running else found

    def _note_end(self, cell: Cell, code: int, offset: int) -> None:
        """Note a failure; a run that was stopped is none."""
        if code == _INTERRUPTED or (code != 0 and self._asked):
            self._left.add(cell.name)
        elif writer_of(self._store.run(cell)) is not None:
            self._left.add(cell.name)  # a process that outlived its sweep was there first
        elif code != 0:
            self._store.note_failure(cell, f"exit code {code}: {self._last_words(cell, code, offset)}")

    def _last_words(self, cell: Cell, code: int, offset: int) -> str:
        """Return the last error that a process told of, else its last line, else what ended it."""
        with self._store.log(cell).open("rb") as file:
            file.seek(offset)
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if _ERROR.match(line)]
        if code < 0:
            return f"ended by {signal.Signals(-code).name}" + (" (out of memory?)" if code == -9 else "")
        found = (errors or lines or ["it said nothing"])[-1].removeprefix("error: ").strip()
        return found if len(found) <= _LONGEST_REASON else f"{found[:_LONGEST_REASON]}..."

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Count requests to stop; a signal that is ignored, as under nohup, stays so."""

        def count(number: int, frame: FrameType | None) -> None:
            self._asked += 1

        wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {one: signal.getsignal(one) for one in wanted}
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, count)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
