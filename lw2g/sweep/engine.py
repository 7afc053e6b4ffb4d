"""Running the cells of a sweep: so many at a time, failures noted, and stopped where they can be resumed."""

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

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, Lw2gError
from lw2g.registry.catalogue import Catalogue
from lw2g.sweep.executors import Executor, Future
from lw2g.sweep.grid import Cell, listed
from lw2g.sweep.job import BUSY, INTERRUPTED, Job
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
    executor: Executor,
    watch: Callable[[Sequence[Status]], None] = lambda statuses: None,
) -> list[Status]:
    """Run what is not finished of the cells, in their order, and return where each stands in the end.

    Finished cells stay, interrupted ones are resumed, failed ones are left as they are. What somebody else
    runs is waited for, and taken over if that one dies: several drivers may share a sweep. SIGINT and SIGTERM
    stop the cells that run, which can be resumed.

    Args:
        store: Where the sweep lies; cells and executor are noted there.
        cells: What it consists of.
        executor: Where it runs; closed in the end.
        watch: Is told a few times a second where all cells stand.
    """
    with closing(executor):
        store.write(cells, executor.settings)
        return _Sweep(store, cells, executor, watch).go()


class _Sweep:
    """A sweep under way: which cells run, and how often it was asked to stop."""

    def __init__(
        self,
        store: SweepDirectory,
        cells: Sequence[Cell],
        executor: Executor,
        watch: Callable[[Sequence[Status]], None],
    ) -> None:
        self._store, self._executor, self._watch = store, executor, watch
        self._statuses = {one.cell.name: one for one in store.statuses(cells)}
        self._jobs = {cell.name: store.job(cell) for cell in cells}
        self._futures: dict[str, Future] = {}
        self._withdrawn: set[str] = set()
        self._tries: Counter[str] = Counter()
        self._asked = self._passed_on = 0
        self._next_look = 0.0

    def go(self) -> list[Status]:
        """Run until nothing is left to run, or nothing runs any more after a request to stop."""
        with self._listening():
            while self._futures or (not self._asked and self._is_more()):
                self._pass_on_request()
                self._collect()
                self._submit()
                self._look()
                self._watch(list(self._statuses.values()))
                time.sleep(self._executor.pause)
        self._watch(list(self._statuses.values()))
        return list(self._statuses.values())

    def _is_more(self) -> bool:
        """Whether a cell is to be begun, or run by somebody who might die."""
        return any(one.open or one.state == "running" for one in self._statuses.values())

    def _is_due(self, name: str) -> bool:
        return self._statuses[name].open and name not in self._futures

    def _submit(self) -> None:
        """Fill the free slots with the next cells that nobody runs."""
        room = 0 if self._asked else self._executor.slots - len(self._futures)
        due = list(islice(filter(self._is_due, self._statuses), max(room, 0)))
        self._refresh(due)  # others may have been at them since the last look
        due = list(filter(self._is_due, due))
        if due:
            futures = self._executor.submit([self._jobs[name] for name in due])
            self._futures |= zip(due, futures, strict=True)
            self._tries.update(due)

    def _pass_on_request(self) -> None:
        if self._passed_on < self._asked:
            self._passed_on = self._asked
            self._cancel(self._futures)

    def _cancel(self, names: Iterable[str]) -> None:
        for name in names:
            self._executor.cancel(self._jobs[name], self._futures[name])

    def _collect(self) -> None:
        """Note what became of the jobs that ended."""
        for name in [name for name, future in self._futures.items() if future.done()]:
            code = _code(self._jobs[name], self._futures.pop(name))
            self._refresh([name])
            self._note_end(name, code)
            self._refresh([name])

    def _look(self) -> None:
        """Look now and then how cells are getting on that run here or elsewhere, and which are cancelled."""
        began = time.monotonic()
        if began < self._next_look:
            return
        self._refresh(name for name, one in self._statuses.items() if one.state not in ("finished", "failed"))
        withdrawn = {name for name in self._futures if self._statuses[name].cancelled} - self._withdrawn
        self._withdrawn |= withdrawn
        self._cancel(withdrawn)
        now = time.monotonic()
        self._next_look = now + max(_LOOK, _SPARED * (now - began))

    def _refresh(self, names: Iterable[str]) -> None:
        cells = [self._statuses[name].cell for name in names]
        self._statuses |= {one.cell.name: one for one in self._store.statuses(cells)}

    def _note_end(self, name: str, code: int) -> None:
        """Note a failure; a run that was stopped is none, nor is one that somebody else runs or has run."""
        found = self._statuses[name]
        if found.state in ("finished", "running") or found.cancelled or self._asked or code == BUSY:
            return
        if code == INTERRUPTED:
            self._store.cancel([found.cell])
        elif not (code < 0 and self._tries[name] <= self._executor.retries):
            self._store.note_failure(found.cell, f"exit code {code}: {_last_words(self._jobs[name], code)}")

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


def _code(job: Job, future: Future) -> int:
    """Return the exit code of a job that ended; -9 of one that died without a word."""
    try:
        return future.result()
    except Exception as error:  # whatever an engine has in place of a result
        with job.log.open("a") as log:
            log.write(f"error: {' '.join(str(error).split())}\n")
        return -signal.SIGKILL


def _last_words(job: Job, code: int) -> str:
    """Return the last error that a process told of, else its last line, else what ended it."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}" + (" (out of memory?)" if code == -9 else "")
    lines = job.last_words()
    errors = [line for line in lines if _ERROR.match(line)]
    found = (errors or lines or ["it said nothing"])[-1].removeprefix("error: ").strip()
    return found if len(found) <= _LONGEST_REASON else f"{found[:_LONGEST_REASON]}..."
