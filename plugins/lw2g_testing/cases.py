"""Checks of components: promises by kind, the component under test, and what comes of checking it.

A check is a function ``check_*`` of one :class:`Subject`; the first line of its docstring is the promise. It
returns nothing, raises :class:`ContractViolation` with what the author must do, or raises
:class:`NotApplicable` if data, weights or a package are missing on this machine, or if another check reports
the failure. A component's cases leave out checks that do not concern it.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar
from unittest import SkipTest

import attrs

from lw2g.errors import PluginError, closest, message_of
from lw2g.ground.docstrings import docstring
from lw2g.ground.meant import lacking_class
from lw2g.interfaces.component import BaselineComponent, Component, Kind
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.boundary import made_of

__all__ = [
    "CHECKS",
    "NOT_THE_AUTHOR_S",
    "Check",
    "CheckResult",
    "ContractCase",
    "ContractViolation",
    "NotApplicable",
    "NotBuilt",
    "RaisedError",
    "Subject",
    "check",
    "error_line",
    "line_of_author",
    "methods_of",
    "told_line",
]

T = TypeVar("T")


class ContractViolation(AssertionError):
    """A component breaks a promise; the message says what its author must do."""


class RaisedError(ContractViolation):
    """A component's code raises an error, which other checks of it would meet again."""


class NotApplicable(SkipTest):
    """A check cannot run; pytest counts it as skipped.

    What the component needs is missing on this machine, or another check reports the failure.
    """


UNBUILT = "cannot be built: "
"""How the message of a component begins that cannot be built: no other check says more of it."""
NOT_THE_AUTHOR_S = sys.stdlib_module_names | {
    *("lw2g", "lw2g_testing"),
    *("attr", "numpy", "pluggy", "scipy", "sklearn", "timm", "torch", "torchvision"),
}
"""Packages in which no author of a component looks for a fault."""


class NotBuilt(Exception):
    """The component of a small run cannot be built: the argument is its target, the cause says why."""


def error_line(error: BaseException) -> str:
    """Return a description of an error on one line, with its place in the component's code."""
    if isinstance(error, NotBuilt) and error.__cause__ is not None:
        why = error_line(error.__cause__).removeprefix(f"{PluginError.__name__}: ")
        target = str(error)
        # no line of the plugin is at fault, but what it lacks
        if not line_of_author(error.__cause__) and target not in why:
            why += f" (build of {target!r})"
        return f"{UNBUILT}{why}"
    text = " ".join(message_of(error).split()) or "without a message"
    if isinstance(error, attrs.exceptions.FrozenInstanceError):
        text += "; change a copy: attrs.evolve(record, name=value)"
    lacking = lacking_class(error)
    for name, method in lacking[1].items() if lacking is not None else ():
        text += f"; it has {name!r} (did you mean {method!r}?)"
    line = f"{type(error).__name__}: {text}"
    place = line_of_author(error)
    return f"{line} ({place})" if place else line


def line_of_author(error: BaseException) -> str:
    """Return the line of the component's code that raised an error, as :func:`told_line` does; or nothing."""
    lacking = lacking_class(error)
    if lacking is not None:  # which Python raises where the class is called, and not where it is written
        return _line_of_class(*lacking)
    # a module that cannot be imported has its line in the cause of the error
    raised: BaseException | None = error
    while raised is not None:
        if isinstance(raised, SyntaxError) and raised.filename:
            return told_line(raised.filename, raised.lineno or 1)
        # the innermost call of the author's: what that one calls in turn may have raised the error
        for frame, number in reversed(list(traceback.walk_tb(raised.__traceback__))):
            package = str(frame.f_globals.get("__name__")).partition(".")[0]
            file = frame.f_code.co_filename
            # code that is generated has no file
            if package not in NOT_THE_AUTHOR_S and not file.startswith("<"):
                return told_line(file, number, frame.f_code.co_name)
        raised = raised.__cause__
    return _line_of_misspelt(error)


def _line_of_misspelt(error: BaseException) -> str:
    """Return the line of the author's method that has nearly the name of one that lw2g called; or nothing."""
    if not isinstance(error, AttributeError) or error.obj is None or error.name is None:
        return ""
    made = type(error.obj)
    near = closest(error.name, dir(made))
    if near is None or made.__module__.partition(".")[0] in NOT_THE_AUTHOR_S:
        return ""
    return _line_of_class(made, {near: error.name})


def _line_of_class(made: type, meant: Mapping[str, str]) -> str:
    """Return the line of a class that lacks methods, or that of the first one that has the wrong name."""
    written: Any = getattr(made, next(iter(meant)), made) if meant else made
    try:
        file, (lines, first) = inspect.getfile(written), inspect.getsourcelines(written)
    except (OSError, TypeError):  # without a source, or no function
        return ""
    # the first lines may be decorators
    number = next(
        (at for at, line in enumerate(lines, first) if line.lstrip().startswith(("class ", "def "))), first
    )
    return told_line(file, number)


def told_line(file: str, number: int, function: str = "") -> str:
    """Return a line of a file with its place, the file from the working directory on where it is below."""
    where = f", in {function}" if function else ""
    return f"{_from_here(file)}:{number}{where}: {linecache.getline(file, number).strip()}"


def methods_of(component: object, *names: str) -> str:
    """Return some methods for a message, each of the author's own with its file and line."""
    told = []
    for name in names:
        method: Any = inspect.unwrap(getattr(component, name))  # torch.no_grad(), say, wraps it
        code: Any = getattr(method, "__code__", None)
        package = str(method.__module__).partition(".")[0]
        if code is None or package in NOT_THE_AUTHOR_S:
            told.append(name)
        else:
            told.append(f"{name} ({_from_here(code.co_filename)}:{code.co_firstlineno})")
    return " and ".join(told)


def _lines_of_named(message: str, subject: Subject) -> str:
    """Return in brackets where the author's methods begin that a message names; empty if it has a line."""
    component = subject.component
    made = made_of(subject.catalogue.entries[component.kind, component.name])
    if re.search(r"\.py:\d", message) or not isinstance(made, type):
        return ""
    promised = dir(component.interface.load())
    named = [word for word in dict.fromkeys(re.findall(r"\w+", message)) if word in promised]
    functions = [name for name in named if inspect.isfunction(getattr(made, name, None))]
    told = [methods_of(made, name) for name in functions]
    placed = [one for one in told if " " in one]  # of the author's own
    return f"; see {' and '.join(placed)}" if placed else ""


def _from_here(file: str) -> Path:
    """Return a file's path, from the working directory on where it is below."""
    path = Path(file)
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


@attrs.frozen(kw_only=True, eq=False)
class Subject:
    """The component under test, with the tiny benchmark and backbone around it.

    Attributes:
        component: The record under test.
        catalogue: All installed components, the tiny ones, and the one under test.
        options: Options of the component that differ from their defaults.
        device: Device of small runs, as ``run.device``; tensors that checks build themselves are on the CPU.
    """

    component: Any
    catalogue: Catalogue
    options: Mapping[str, Any] = attrs.field(factory=dict)
    device: str = "cpu"
    _kept: dict[Hashable, Any] = attrs.field(factory=dict, init=False)

    @property
    def config(self) -> Any:
        """The component's options: its defaults except for :attr:`options`."""
        return self.component.config(**self.options)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the first result of ``make``: expensive work that several checks share."""
        if key not in self._kept:
            self._kept[key] = make()
        result: T = self._kept[key]
        return result


@attrs.frozen(kw_only=True)
class Check:
    """One promise that components of a kind keep.

    Attributes:
        kind: The kind of components.
        function: Checks a subject.
        applies: Returns whether the promise concerns a subject; if not, the check is not collected.
    """

    kind: Kind
    function: Callable[[Subject], None]
    applies: Callable[[Subject], bool]

    @property
    def name(self) -> str:
        """The function's name without ``check_``."""
        return self.function.__name__.removeprefix("check_")

    @property
    def promise(self) -> str:
        """First line of the function's docstring."""
        return docstring(self.function).partition("\n")[0]


CHECKS: list[Check] = []
"""All checks, in the order in which they run."""


def check(
    *kinds: Kind, applies: Callable[[Subject], bool] = lambda subject: True
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Return a decorator that adds a function to the checks of some kinds.

    Args:
        *kinds: The kinds.
        applies: Returns whether the promise concerns a component; if not, the check is not collected.
    """

    def add(function: Callable[[Subject], None]) -> Callable[[Subject], None]:
        CHECKS.extend(Check(kind=kind, function=function, applies=applies) for kind in kinds)
        return function

    return add


@attrs.frozen(kw_only=True)
class CheckResult:
    """The result of one check of one component.

    Attributes:
        kind: Kind of the component.
        component: Its name.
        check: Name of the check.
        promise: The promise that it checks.
        status: ``"passed"``, ``"failed"`` or ``"skipped"`` (the check cannot run here).
        message: What the author must do, or why it was skipped.
        seconds: Duration.
        error: The violation, whose cause has the traceback; None unless it failed.
    """

    kind: Kind
    component: str
    check: str
    promise: str
    status: Literal["passed", "failed", "skipped"]
    message: str
    seconds: float
    error: ContractViolation | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen(kw_only=True, eq=False)
class ContractCase:
    """One check of one component; ``run()`` is a test."""

    check: Check
    subject: Subject

    def __str__(self) -> str:
        return f"{self.check.kind}-{self.subject.component.name}-{self.check.name}"

    def run(self) -> None:
        """Run the check.

        Raises:
            ContractViolation: The component breaks the promise, or its code raises an error.
            NotApplicable: Something that the component needs is missing on this machine, or another check
                reports why this one cannot run.
        """
        try:
            self.check.function(self.subject)
        except NotApplicable:
            raise
        except Exception as error:  # a plugin's code may raise anything
            violation: type[ContractViolation] = RaisedError
            message = error_line(error)
            if isinstance(error, ContractViolation):
                violation = type(error)
                message = str(error)
            # its retrieval may be somebody else's: the message must name the component at fault
            message += _lines_of_named(message, self.subject)
            component = self.subject.component
            strategy = component.retrieval if isinstance(component, BaselineComponent) else None
            if message.startswith(UNBUILT):
                strategy = None
            if strategy is not None and not _keeps_its_promises(strategy, self.subject):
                message = (
                    f"retrieval {strategy!r} breaks a promise of its own; see `lw2g check {strategy}` first. "
                    f"Found: {message}"
                )
            raise violation(message) from error

    def result(self) -> CheckResult:
        """Run the check and return its result; an error in the component's code is a failure too."""
        began = time.perf_counter()
        status: Literal["passed", "failed", "skipped"] = "passed"
        message = ""
        error: ContractViolation | None = None
        try:
            self.run()
        except NotApplicable as reason:
            status = "skipped"
            message = str(reason)
        except ContractViolation as violation:
            status = "failed"
            message = str(violation)
            error = violation
        return CheckResult(
            kind=self.check.kind,
            component=self.subject.component.name,
            check=self.check.name,
            promise=self.check.promise,
            status=status,
            message=message,
            seconds=time.perf_counter() - began,
            error=error,
        )


def cases_of(
    component: Component, catalogue: Catalogue, options: Mapping[str, Any], device: str
) -> Iterator[ContractCase]:
    """Yield the checks that concern a component."""
    subject = Subject(component=component, catalogue=catalogue, options=options, device=device)
    for candidate in CHECKS:
        if candidate.kind == component.kind and candidate.applies(subject):
            yield ContractCase(check=candidate, subject=subject)


_SOUND: dict[tuple[int, str], tuple[Component, bool]] = {}
"""Strategies that were checked in this process, by identity and device, and whether they passed."""


def _keeps_its_promises(name: str, host: Subject) -> bool:
    """Return whether a retrieval strategy passes its own checks, found out once for each device."""
    entry = host.catalogue.find("retrieval", name)
    if entry is None:  # the baseline names one that nobody has; there is nothing to check
        return True
    strategy = entry.component
    key = (id(strategy), host.device)
    if key not in _SOUND:
        cases = cases_of(strategy, host.catalogue, {}, host.device)
        # the strategy itself is kept, so that no other object gets its identity
        _SOUND[key] = (strategy, all(case.result().status != "failed" for case in cases))
    return _SOUND[key][1]
