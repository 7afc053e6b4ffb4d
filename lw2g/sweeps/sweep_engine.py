"""Runs the cells of a sweep: a few at a time, noting failures, and stopping where they can be resumed."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from types import FrameType
from typing import Any

from lw2g.config.own_rule import own_rule, rule_note
from lw2g.config.resolve import resolve
from lw2g.config.settings import ExperimentConfig
from lw2g.config.toml import flat, to_mapping
from lw2g.config.unread import unread_options
from lw2g.errors import ConfigError, Lw2gError, problems_in, problems_of
from lw2g.ground.notes import tell_note_once
from lw2g.interfaces.defaults import DEFAULT_FIXED_POLICY
from lw2g.pixels.small_drawings import require_drawings
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.progress import STOPS
from lw2g.sweeps.executors import Executor, Future
from lw2g.sweeps.grid import Cell
from lw2g.sweeps.job import BUSY, INTERRUPTED, Job
from lw2g.sweeps.sweep_directory import Status, SweepDirectory

__all__ = ["require_valid", "run_sweep"]

_LOOK = 1.0
"""The least number of seconds between two looks at the files of all cells."""
_SPARED = 20
"""How many times as long as a look took the engine waits: on a slow disk looking takes no more than 5 %."""
_LONGEST_REASON = 300
_ERROR = re.compile(r"error: |[\w.]+(Error|Exception)\b")


def require_valid(cells: Sequence[Cell], catalogue: Catalogue, *, rehearsed: bool = False) -> None:
    """Resolve all cells, so that every mistake shows before the first cell starts; tell their notes once.

    Args:
        cells: The cells.
        catalogue: The components.
        rehearsed: Whether they rehearse others, which have been checked: their own settings say nothing new.

    Raises:
        ConfigError: Some cells cannot be used; the message lists each problem once, with its cells.
    """
    problems: dict[str, list[str]] = {}
    notes: dict[str, None] = {}
    rows_by_rule: dict[str, dict[str, str]] = defaultdict(dict)
    twins = _Twins(catalogue)
    for cell in cells:
        try:
            resolved = resolve(catalogue, file=cell.tables())
            require_drawings(resolved, catalogue, "--set backbone.name=")
            if not rehearsed:
                twins.require_none(resolved.config)
        except Lw2gError as error:
            for text in problems_of(str(error)):
                problems.setdefault(text, []).append(cell.label)
        else:
            notes |= dict.fromkeys(resolved.notes)
            own = own_rule(resolved.config, catalogue, cell.settings)
            if own:
                rows_by_rule[own][cell.row or cell.label] = resolved.config.baseline.name
    if problems:
        lines = [f"{text} (in {_cells(labels)})" for text, labels in problems.items()]
        raise ConfigError(problems_in("the cells", lines))
    if not rehearsed:
        for text in (*notes, *_on_rules(rows_by_rule)):
            tell_note_once(text)


def _on_rules(rows_by_rule: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield a note per rule of lw2g, with the methods, by their rows, that run under it."""
    for own, methods in rows_by_rule.items():
        named = ", ".join(dict.fromkeys(methods.values()))
        told = rule_note(own, named, f'policy = "{DEFAULT_FIXED_POLICY}"')
        yield f"{told} (in {_listed(list(methods))})"


class _Twins:
    """The cells so far, by all that a run reads of them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._unread_by_read: dict[str, dict[str, Any]] = {}

    def require_none(self, config: ExperimentConfig) -> None:
        """Refuse a cell that differs from an earlier one in options alone that nothing reads."""
        words = unread_options(self._catalogue, config)
        read: dict[str, Any] = {}
        unread: dict[str, Any] = {}
        for key, value in flat(to_mapping(config)).items():
            (unread if key in words else read)[key] = value
        other = self._unread_by_read.setdefault(json.dumps(read, default=str), unread)
        differing = [key for key in unread if unread[key] != other[key]]
        if differing:
            raise ConfigError(f"cells differ in {differing[0]} alone, which {words[differing[0]]}")


def _cells(labels: Sequence[str]) -> str:
    if len(labels) == 1:
        return f"the cell {labels[0]!r}"
    return f"{len(labels)} cells: {_listed(labels)}"


def run_sweep(
    store: SweepDirectory,
    cells: Sequence[Cell],
    executor: Executor,
    watch: Callable[[Sequence[Status]], None] = lambda statuses: None,
    columns: str | None = None,
) -> list[Status]:
    """Run the unfinished cells in their order and return the final status of each.

    Finished and failed cells are left alone, interrupted ones are resumed. Several drivers may share a sweep:
    each waits for the cells that another one runs, and takes them over if that driver dies. SIGINT,
    SIGTERM and their like stop the running cells; they can be resumed.

    Args:
        store: The sweep's directory; it notes cells, executor and columns.
        cells: The cells of the sweep.
        executor: Runs the cells; closed in the end.
        watch: Receives the status of all cells a few times a second.
        columns: The columns of the sweep's table; None for the usual ones.

    Raises:
        ConfigError: The cells that run at a time need more processes than there are cores or GPUs.
    """
    with closing(executor):
        executor.require_room(cells)
        store.write(cells, executor.settings, columns)
        return _Sweep(store, cells, executor, watch).go()


class _Sweep:
    """A running sweep: the submitted cells, and how often it was asked to stop."""

    def __init__(
        self,
        store: SweepDirectory,
        cells: Sequence[Cell],
        executor: Executor,
        watch: Callable[[Sequence[Status]], None],
    ) -> None:
        self._store = store
        self._executor = executor
        self._watch = watch
        self._statuses = {status.cell.name: status for status in store.statuses(cells)}
        self._jobs = {cell.name: store.job(cell) for cell in cells}
        self._futures: dict[str, Future] = {}
        self._withdrawn: set[str] = set()
        self._tries: Counter[str] = Counter()
        self._num_requests = 0
        self._num_passed_on = 0
        self._next_look = 0.0

    def go(self) -> list[Status]:
        """Run until no cell is left, or until the last running cell has stopped on request."""
        with self._listening():
            while self._futures or (not self._num_requests and self._is_more()):
                self._pass_on_request()
                self._collect()
                self._submit()
                self._look()
                self._watch(list(self._statuses.values()))
                time.sleep(self._executor.pause)
        self._watch(list(self._statuses.values()))
        return list(self._statuses.values())

    def _is_more(self) -> bool:
        """Whether a cell is open, or run by another driver, which might die."""
        return any(status.open or status.state == "running" for status in self._statuses.values())

    def _is_due(self, name: str) -> bool:
        return self._statuses[name].open and name not in self._futures

    def _submit(self) -> None:
        """Fill the free slots with the next open cells."""
        room = self._executor.slots - len(self._futures)
        if self._num_requests or room <= 0:
            return
        due = list(islice(filter(self._is_due, self._statuses), room))
        self._refresh(due)  # another driver may have started them since the last look
        due = list(filter(self._is_due, due))
        if due:
            futures = self._executor.submit([self._jobs[name] for name in due])
            self._futures |= zip(due, futures, strict=True)
            self._tries.update(due)

    def _pass_on_request(self) -> None:
        if self._num_passed_on < self._num_requests:
            self._num_passed_on = self._num_requests
            self._cancel(self._futures)

    def _cancel(self, names: Iterable[str]) -> None:
        for name in names:
            self._executor.cancel(self._jobs[name], self._futures[name])

    def _collect(self) -> None:
        """Note how the ended jobs ended."""
        for name in [name for name, future in self._futures.items() if future.done()]:
            code = _code(self._jobs[name], self._futures.pop(name))
            self._refresh([name])  # what the run left decides what its end means
            self._note_end(name, code)
            self._refresh([name])

    def _look(self) -> None:
        """Refresh the status of unfinished cells now and then, and cancel the submitted ones on request."""
        began = time.monotonic()
        if began < self._next_look:
            return
        unfinished = []
        for name, status in self._statuses.items():
            if status.state not in ("finished", "failed"):
                unfinished.append(name)
        self._refresh(unfinished)
        # each is cancelled once: a second request would stop it where it cannot be resumed
        withdrawn = {name for name in self._futures if self._statuses[name].cancelled} - self._withdrawn
        self._withdrawn |= withdrawn
        self._cancel(withdrawn)
        now = time.monotonic()
        self._next_look = now + max(_LOOK, _SPARED * (now - began))

    def _refresh(self, names: Iterable[str]) -> None:
        cells = [self._statuses[name].cell for name in names]
        self._statuses |= {status.cell.name: status for status in self._store.statuses(cells)}

    def _note_end(self, name: str, code: int) -> None:
        """Note a failure, unless the run was stopped, or another driver runs or has run it."""
        status = self._statuses[name]
        if status.state in ("finished", "running") or code == BUSY:
            return
        if status.cancelled or self._num_requests:
            return
        if code == INTERRUPTED:  # somebody stopped this run alone, so no driver is to start it again
            self._store.cancel([status.cell])
            return
        if code < 0 and self._tries[name] <= self._executor.retries:  # a signal: it is still due
            return
        self._store.note_failure(status.cell, f"exit code {code}: {_last_words(self._jobs[name], code)}")

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Count signals as requests to stop; ignored signals (nohup) and other threads are left alone."""

        def count(number: int, frame: FrameType | None) -> None:
            self._num_requests += 1

        if threading.current_thread() is not threading.main_thread():  # Python lets no other set handlers
            yield
            return
        before = {}
        for number in STOPS:
            before[number] = signal.getsignal(number)
            if before[number] != signal.SIG_IGN:
                signal.signal(number, count)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _code(job: Job, future: Future) -> int:
    """Return the exit code of an ended job; -9 if the executor has none."""
    try:
        return future.result()
    except Exception as error:  # an executor may raise anything in place of a result
        with job.log.open("a", encoding="utf-8") as log:
            log.write(f"error: {' '.join(str(error).split())}\n")
        return -signal.SIGKILL


def _last_words(job: Job, code: int) -> str:
    """Return the signal that ended a process, else its last error, else its last line."""
    if code == -signal.SIGKILL:
        return "ended by SIGKILL (out of memory?)"
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    lines = job.last_words()
    errors = [line for line in lines if _ERROR.match(line)]
    last = (errors or lines or ["it printed nothing"])[-1]
    reason = last.removeprefix("error: ").strip()
    if len(reason) > _LONGEST_REASON:
        return f"{reason[:_LONGEST_REASON]}..."
    return reason


def _listed(names: Sequence[str], longest: int = 3) -> str:
    """Return the first few names and the number of the others, in one line."""
    text = ", ".join(map(repr, names[:longest]))
    if len(names) > longest:
        text += f" and {len(names) - longest} more"
    return text
