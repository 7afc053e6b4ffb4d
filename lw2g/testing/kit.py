"""The contract kit: named checks per kind of component, each one promise that the framework relies on.

In a plugin's tests::

    import pytest
    from lw2g.testing import contract_cases

    @pytest.mark.parametrize("case", contract_cases("my-baseline"), ids=str)
    def test_contract(case):
        case.run()

From the command line: ``lw2g check my-baseline``, ``lw2g check --all``. A check is a function ``check_*`` of
one :class:`Subject`; its docstring's first line is the promise. It returns nothing, raises
:class:`ContractViolation` with what the author must do, or :class:`NotApplicable` with the reason. Checks
need neither pytest nor hypothesis.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar
from unittest import SkipTest

import attrs
import torch

from lw2g.errors import UnknownComponentError, nearest
from lw2g.interfaces.component import KINDS, BaselineComponent, Component, Kind
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.hookspecs import HOOKS
from lw2g.registry.markers import hookimpl
from lw2g.testing.tiny import tiny_catalogue

__all__ = [
    "CHECKS",
    "Check",
    "CheckResult",
    "ContractCase",
    "ContractViolation",
    "NotApplicable",
    "Subject",
    "check",
    "checks_of",
    "contract_cases",
    "told",
]

T = TypeVar("T")


class ContractViolation(AssertionError):
    """A component breaks a promise; the message says what its author must do."""


class CausedElsewhere(ContractViolation):
    """A promise is broken, but by another component than the one under test.

    Attributes:
        cause: Kind and name of that component.
    """

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class NotApplicable(SkipTest):
    """The promise says nothing about this component; pytest counts it as skipped."""


def told(error: BaseException) -> str:
    """Return how a message tells of an error: on one line, with the place in the component's code."""
    text = " ".join(str(error).split()) or "without a message"
    library = str(Path(torch.__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if library not in frame.filename]
    where = f" (in {frames[-1].name}, {Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{where}"


@attrs.frozen(kw_only=True, eq=False)
class Subject:
    """The component under test, with the tiny benchmark and backbone around it.

    Attributes:
        component: The record under test.
        catalogue: All installed components, the tiny ones, and the one under test.
        options: Options of the component that differ from their defaults.
        retrieval: The retrieval strategy of a baseline, by name; None for the baseline's own.
        device: Where small runs are made, as ``run.device``; what is laid out by hand stays on the CPU.
    """

    component: Any
    catalogue: Catalogue
    options: Mapping[str, Any] = attrs.field(factory=dict)
    retrieval: str | None = None
    device: str = "cpu"
    _kept: dict[Hashable, Any] = attrs.field(factory=dict, init=False)

    @property
    def config(self) -> Any:
        """The component's options: its defaults but for :attr:`options`."""
        return self.component.config(**self.options)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returned the first time: costly work that several checks look at."""
        if key not in self._kept:
            self._kept[key] = make()
        found: T = self._kept[key]
        return found


@attrs.frozen(kw_only=True)
class Check:
    """One promise that components of a kind keep.

    Attributes:
        kind: Of which components.
        function: What looks at a subject.
    """

    kind: Kind
    function: Callable[[Subject], None]

    @property
    def name(self) -> str:
        """The function's name without ``check_``."""
        return self.function.__name__.removeprefix("check_")

    @property
    def promise(self) -> str:
        """First line of the function's docstring."""
        return (self.function.__doc__ or "").strip().splitlines()[0]


_PLAIN = "tiny"

CHECKS: list[Check] = []
"""All checks, in the order in which they run."""


def check(kind: Kind) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Return a decorator that adds a function to the checks of a kind."""

    def add(function: Callable[[Subject], None]) -> Callable[[Subject], None]:
        CHECKS.append(Check(kind=kind, function=function))
        return function

    return add


def checks_of(kind: Kind) -> tuple[Check, ...]:
    """Return the checks of one kind of component, in order."""
    return tuple(one for one in CHECKS if one.kind == kind)


@attrs.frozen(kw_only=True)
class CheckResult:
    """How one check of one component ended.

    Attributes:
        kind: Kind of the component.
        component: Its name.
        check: Name of the check.
        promise: What it promises.
        status: ``"passed"``, ``"failed"`` or ``"skipped"`` (the promise says nothing about the component).
        message: What the author must do, or why it was skipped.
        seconds: How long it took.
        cause: Kind and name of the component that a failure is due to, where it is another one.
    """

    kind: Kind
    component: str
    check: str
    promise: str
    status: Literal["passed", "failed", "skipped"]
    message: str
    seconds: float
    cause: str | None = None


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
            ContractViolation: The promise is broken, or the component's code raises an error.
            CausedElsewhere: It is broken by the baseline's retrieval strategy.
            NotApplicable: The promise says nothing about this component.
        """
        try:
            self.check.function(self.subject)
        except NotApplicable:
            raise
        # A stranger's code may raise anything.
        except Exception as error:
            message = str(error) if isinstance(error, ContractViolation) else told(error)
            strategy = self.subject.component.retrieval if self._holds_without_its_retrieval() else None
            if strategy is not None:
                raise CausedElsewhere(
                    f"retrieval {strategy}",
                    f"retrieval {strategy!r}, not the baseline, is the cause (with the nearest mean query in "
                    f"its place the promise holds); see `lw2g check {strategy}`. Found: {message}",
                ) from error
            raise ContractViolation(message) from error

    def _holds_without_its_retrieval(self) -> bool:
        """Whether a baseline that names a retrieval strategy keeps the promise with the plainest one."""
        component = self.subject.component
        if not isinstance(component, BaselineComponent) or component.retrieval in (None, _PLAIN):
            return False
        other = self.subject.once("plain", lambda: attrs.evolve(self.subject, retrieval=_PLAIN))
        try:
            self.check.function(other)
        # whatever it is, the baseline does not keep the promise with another strategy either
        except Exception:
            return False
        return True

    def result(self) -> CheckResult:
        """Run the check and return how it ended; an error in the component's code is a failure, too."""
        began = time.perf_counter()
        status: Literal["passed", "failed", "skipped"] = "passed"
        message, cause = "", None
        try:
            self.run()
        except NotApplicable as reason:
            status, message = "skipped", str(reason)
        except ContractViolation as violation:
            status, message = "failed", str(violation)
            cause = violation.cause if isinstance(violation, CausedElsewhere) else None
        return CheckResult(
            kind=self.check.kind,
            component=self.subject.component.name,
            check=self.check.name,
            promise=self.check.promise,
            status=status,
            message=message,
            seconds=time.perf_counter() - began,
            cause=cause,
        )


def contract_cases(
    *components: str | Component,
    catalogue: Catalogue | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> list[ContractCase]:
    """Return every check of every given component; without any, of all registered ones.

    Args:
        components: Names of registered components (all kinds of that name), or records, registered or not.
        catalogue: Where components come from; by default everything installed, and the tiny ones.
        options: Options that differ from the components' defaults.
        device: Where checks of training make their runs; other than ``"cpu"`` with deterministic kernels.

    Raises:
        UnknownComponentError: No registered component has the name.
        PluginError: A component cannot be used as it is registered.
    """
    records = [one for one in components if isinstance(one, Component)]
    if catalogue is None:
        catalogue = tiny_catalogue()
        known = [entry.component for entry in catalogue.components()]
        if new := [record for record in records if record not in known]:
            catalogue = tiny_catalogue(*(_Offer(record) for record in new))
    named = [found for one in components if isinstance(one, str) for found in _called(catalogue, one)]
    chosen = [catalogue.get(record.kind, record.name) for record in records] + named
    if not components:
        chosen = [entry.component for entry in catalogue.components() if entry.component.name != "tiny"]
    return [case for component in chosen for case in _cases(component, catalogue, options or {}, device)]


def _cases(
    component: Component, catalogue: Catalogue, options: Mapping[str, Any], device: str
) -> Iterator[ContractCase]:
    subject = Subject(component=component, catalogue=catalogue, options=options, device=device)
    for one in checks_of(component.kind):
        yield ContractCase(check=one, subject=subject)


def _called(catalogue: Catalogue, name: str) -> Sequence[Component]:
    found = [catalogue.get(kind, name) for kind in KINDS if name in catalogue.names(kind)]
    if found:
        return found
    for kind, other in catalogue.refused:
        if other == name:
            catalogue.get(kind, name)  # tells why it cannot be used
    known = sorted({entry.component.name for entry in catalogue.components()})
    raise UnknownComponentError(
        f"no component is called {name!r}{nearest(name, known)}; run `lw2g plugins` for all names"
    )


class _Offer:
    """A plugin object that registers one record."""

    def __init__(self, record: Component) -> None:
        self.__name__ = f"{record.name} (given)"
        hook = next(hook for hook, kind in HOOKS.items() if isinstance(record, kind))

        def offer() -> list[Component]:
            return [record]

        offer.__name__ = hook
        setattr(self, hook, hookimpl(offer))
