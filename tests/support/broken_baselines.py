"""Baselines that each break one promise, beside how the check of that promise says so."""

from __future__ import annotations

import re
from typing import Any

import attrs
import pytest

from lw2g.interfaces.component import BaselineComponent
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.markers import hookimpl
from lw2g.testing import ContractCase, contract_cases, tiny_catalogue
from lw2g_prompts.plugin import S_PROMPT_PLUS_PLUS

__all__ = ["SANE", "BrokenBaselines", "kept"]

SANE = S_PROMPT_PLUS_PLUS
"""What the broken ones derive from: it keeps every promise."""


class BrokenBaselines:
    """The broken baselines of a module of tests; a plugin that offers them.

    Attributes:
        cases: ``(component, check that must fail, words of its message)`` each, for ``parametrize``.
    """

    def __init__(self) -> None:
        self.cases: list[Any] = []
        self._catalogue: Catalogue | None = None

    def breaks(self, check: str, words: str, base: BaselineComponent = SANE, **changes: Any) -> Any:
        """Return a decorator that notes down a baseline which breaks one promise."""

        def note(build: type) -> type:
            name = f"broken-{build.__name__.lower()}"
            record = attrs.evolve(base, name=name, build=build, presets={}, tuned={}, **changes)
            self.cases.append(pytest.param(record, check, words, id=build.__name__))
            return build

        return note

    @hookimpl
    def lw2g_baselines(self) -> list[BaselineComponent]:
        """Offer all of them."""
        return [one.values[0] for one in self.cases]

    def require_failure(self, component: BaselineComponent, check: str, words: str) -> None:
        """Assert that a check of a component fails with these words."""
        self._catalogue = self._catalogue or tiny_catalogue(self)
        cases = contract_cases(component, catalogue=self._catalogue)
        (case,) = [one for one in cases if one.check.name == check]
        result = case.result()
        assert result.status == "failed"
        assert re.search(words, result.message)


def kept(*modules: str) -> list[ContractCase]:
    """Return the checks of these modules for all registered baselines."""
    return [
        case
        for case in contract_cases()
        if case.check.kind == "baseline" and case.check.function.__module__.endswith(modules)
    ]
