"""Running the cells of a sweep: so many at a time, failures noted, and stopped where they can go on."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from types import FrameType
from typing import Any

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, Lw2gError
from lw2g.registry.catalogue import Catalogue
from lw2g.sweep.executors.base import Executor
from lw2g.sweep.grid import Cell, listed
from lw2g.sweep.job import INTERRUPTED, Job
from lw2g.sweep.store import Status, SweepDirectory

__all__ = ["require_valid", "run_sweep"]

_LOOK, _SPARED = 1.0, 20
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
    else runs, or has claimed, is waited for, and taken over if that one dies: several drivers may share a
    sweep. SIGINT and SIGTERM stop the cells that run, which can be gone on with.

    Args:
        store: Where the sweep lies; cells and executor are noted there.
        cells: What it consists of.
        executor: Where it runs; closed in the end.
        watch: Is told a few times a second where all cells stand.
    """
    with closing(executor):
        store.write(cells, executor.settings)
        with store.claims.driving():
            return _Sweep(store, cells, executor, watch).go()


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
        self._statuses = {one.cell.name: one for one in store.statuses(cells)}
        self._handles: dict[str, Any] = {}
        self._others = store.claims.of_others()
        self._cancelled: set[str] = set()
        self._told: set[str] = set()  # cancelled before they ran
        self._tries: Counter[str] = Counter()
        self._asked = self._passed_on = 0
        self._next_look = 0.0

    def go(self) -> list[Status]:
        """Run until nothing is left to run, or nothing runs any more after a request to stop."""
        with self._listening():
            while self._handles or (not self._asked and self._is_more()):
                self._pass_on_request()
                self._collect()
                self._submit()
                self._look()
                self._watch(list(self._statuses.values()))
                time.sleep(self._executor.pause)
        self._watch(list(self._statuses.values()))
        return list(self._statuses.values())

    def _is_more(self) -> bool:
        """Whether a cell is to be begun, or in the hands of somebody who might die."""
        return any(self._is_due(name) or self._is_others(name) for name in self._statuses)

    def _is_due(self, name: str) -> bool:
        mine = name not in self._others and name not in self._cancelled
        return mine and self._statuses[name].open

    def _is_others(self, name: str) -> bool:
        if name in self._handles:
            return False
        state = self._statuses[name].state
        claimed = name in self._others and name not in self._cancelled
        return state == "running" or (claimed and state not in ("finished", "failed"))

    def _submit(self) -> None:
        """Fill the free slots with the next cells that nobody sees to."""
        room = 0 if self._asked else self._executor.slots - len(self._handles)
        due = list(islice(filter(self._is_due, self._statuses), max(room, 0)))
        if not due:
            return
        mine = self._store.claims.take(due)
        self._others |= set(due) - mine
        self._refresh(self._statuses[name].cell for name in mine)  # others may have been at them meanwhile
        idle = [name for name in mine if self._statuses[name].state != "queued"]
        if idle:
            self._store.claims.release(idle)
        jobs = [self._store.job(self._statuses[name].cell) for name in due if name in mine.difference(idle)]
        if jobs:
            with self._executor.together():
                self._handles |= {job.name: self._executor.submit(job) for job in jobs}
            self._tries.update(job.name for job in jobs)

    def _pass_on_request(self) -> None:
        if self._passed_on < self._asked:
            self._passed_on = self._asked
            for handle in self._handles.values():
                self._executor.cancel(handle)

    def _collect(self) -> None:
        """Note what became of the jobs that ended."""
        codes = {name: self._executor.poll(handle) for name, handle in self._handles.items()}
        ended = {name: code for name, code in codes.items() if code is not None}
        if not ended:
            return
        for name in ended:
            del self._handles[name]
        self._store.claims.release(list(ended))
        for status in self._store.statuses(self._statuses[name].cell for name in ended):
            self._note_end(status, ended[status.cell.name])
            self._refresh([status.cell])

    def _look(self) -> None:
        """Look now and then how cells are getting on that run here or elsewhere, and which are cancelled."""
        began = time.monotonic()
        if began < self._next_look:
            return
        self._others = self._store.claims.of_others()
        self._cancelled = self._store.cancelled()
        self._refresh(
            self._statuses[name].cell
            for name in self._statuses
            if name in self._handles or self._is_others(name)
        )
        for name in (self._handles.keys() & self._cancelled) - self._told:
            if self._statuses[name].state != "running":  # who runs is asked by a file
                self._told.add(name)
                self._executor.cancel(self._handles[name])
        now = time.monotonic()
        self._next_look = now + max(_LOOK, _SPARED * (now - began))

    def _refresh(self, cells: Iterable[Cell]) -> None:
        self._statuses |= {one.cell.name: one for one in self._store.statuses(cells)}

    def _note_end(self, found: Status, code: int) -> None:
        """Note a failure; a run that was stopped is none, and somebody may have been there first."""
        name = found.cell.name
        if found.state in ("finished", "running") or self._asked or name in self._store.cancelled():
            return
        if code == INTERRUPTED:
            self._cancelled.add(name)
            self._store.cancel([found.cell])
        elif not (code < 0 and self._tries[name] <= self._executor.retries):
            words = _last_words(self._store.job(found.cell), code)
            self._store.note_failure(found.cell, f"exit code {code}: {words}")

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Count requests to stop; a signal that is ignored, as under nohup, stays so.

        Outside the main thread signals are left alone.
        """

        def count(number: int, frame: FrameType | None) -> None:
            self._asked += 1

        wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        reached = threading.current_thread() is threading.main_thread()
        before = {one: signal.getsignal(one) for one in wanted if reached}
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, count)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _last_words(job: Job, code: int) -> str:
    """Return the last error that a process told of, else its last line, else what ended it."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}" + (" (out of memory?)" if code == -9 else "")
    lines = job.last_words()
    errors = [line for line in lines if _ERROR.match(line)]
    found = (errors or lines or ["it said nothing"])[-1].removeprefix("error: ").strip()
    return found if len(found) <= _LONGEST_REASON else f"{found[:_LONGEST_REASON]}..."
