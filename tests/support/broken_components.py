"""Components that each break one promise, beside how the check of that promise says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import attrs
import pytest
import torch

from lw2g.registry.catalogue import Catalogue, Registered
from lw2g.registry.manager import Origin
from lw2g_testing import ContractCase, ContractViolation, contract_cases, tiny_catalogue
from lw2g_testing.cases import CHECKS

__all__ = ["Broken", "evolving", "kept", "require_failure"]


class Broken:
    """The broken components of a module of tests.

    Args:
        record: Makes the component of a name and of what is broken, and of what else the decorator is given.

    Attributes:
        cases: ``(component, check that must fail, words of its message)`` each, for ``parametrize``.
    """

    def __init__(self, record: Callable[..., Any]) -> None:
        self.record, self.cases = record, []

    def breaks(self, check: str, words: str, **said: Any) -> Any:
        """Return a decorator that notes down what breaks one promise, and how the check says so."""

        def note(broken: Any) -> Any:
            record = self.record(f"broken-{broken.__name__.lower().replace('_', '-')}", broken, **said)
            self.cases.append(pytest.param(record, check, words, id=broken.__name__))
            return broken

        return note

    def fail(self) -> Callable[..., None]:
        """Return a test: each component fails its check, which says what the author must do."""

        @pytest.mark.parametrize(("record", "check", "words"), self.cases)
        def fails_with_what_to_do(record: Any, check: str, words: str) -> None:
            with torch.random.fork_rng():
                require_failure(record, check, words)

        return fails_with_what_to_do

    def tests(self, kind: str, sane: Any = None) -> Iterator[Callable[..., None]]:
        """Yield tests: each component fails its check, each check has one that fails it, ``sane`` passes."""

        def every_check_is_broken() -> None:
            checks = {check.name for check in CHECKS if check.kind == kind}
            assert checks == {case.values[1] for case in self.cases}

        def what_they_derive_from_passes() -> None:
            results = [case.result() for case in contract_cases(self.record("sane", sane))]
            assert [result.message for result in results if result.status != "passed"] == []
            assert torch.is_grad_enabled()

        yield self.fail()
        yield every_check_is_broken
        if sane is not None:
            yield what_they_derive_from_passes


def evolving(sane: Any, **always: Any) -> Callable[..., Any]:
    """Return what makes a broken component of a sane one: its record with another class.

    Args:
        sane: The record; a ``base`` that the decorator is given stands in for it.
        **always: Attributes of the record that change in any case.
    """

    def record(name: str, build: type, base: Any = sane, **changes: Any) -> Any:
        return attrs.evolve(base, name=name, build=build, **always, **changes)

    return record


@cache
def _installed() -> Catalogue:
    return tiny_catalogue()


@cache
def _registered() -> list[ContractCase]:
    return contract_cases(catalogue=_installed())


def kept(kind: str) -> list[ContractCase]:
    """Return the checks of all registered components of a kind; a component's checks share one run."""
    return [case for case in _registered() if case.check.kind == kind]


def require_failure(record: Any, check: str, words: str) -> None:
    """Assert that a check of a component fails with these words."""
    # the installed plugins are loaded once for all broken components
    entries = dict(_installed().entries)
    entries[record.kind, record.name] = Registered(component=record, origin=Origin(plugin="broken"))
    catalogue = attrs.evolve(_installed(), entries=entries)
    (case,) = [one for one in contract_cases(record, catalogue=catalogue) if one.check.name == check]
    with pytest.raises(ContractViolation, match=words):
        case.run()
