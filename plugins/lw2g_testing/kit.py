"""The contract kit: named checks per kind of component, each of one promise that the framework relies on.

In a plugin's tests::

    import pytest
    from lw2g.testing import contract_cases

    @pytest.mark.parametrize("case", contract_cases("my-baseline"), ids=str)
    def test_contract(case):
        case.run()

From the command line: ``lw2g check my-baseline``, ``lw2g check --all``. What a check is, and how one is
added: :mod:`lw2g_testing.cases`. Checks need neither pytest nor hypothesis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lw2g.interfaces.component import Component
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.kinds import HOOKS
from lw2g.registry.markers import hookimpl

# imported because they register checks
from lw2g_testing import (  # noqa: F401
    authored_checks,
    backbone_checks,
    baseline_checks,
    benchmark_checks,
    carry_checks,
    constraint_checks,
    evidence_checks,
    gaussian_checks,
    head_checks,
    label_checks,
    lasting_checks,
    metric_checks,
    policy_checks,
    retrieval_checks,
    site_checks,
    tracker_checks,
)
from lw2g_testing.cases import (
    CHECKS,
    Check,
    CheckResult,
    ContractCase,
    ContractViolation,
    NotApplicable,
    Subject,
    cases_of,
    check,
)
from lw2g_testing.chosen_checks import TINY
from lw2g_testing.tiny import tiny_catalogue

__all__ = [
    "CHECKS",
    "Check",
    "CheckResult",
    "ContractCase",
    "ContractViolation",
    "NotApplicable",
    "Subject",
    "check",
    "contract_cases",
]


def contract_cases(
    *components: str | Component,
    catalogue: Catalogue | None = None,
    options: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> list[ContractCase]:
    """Return all checks that concern the given components.

    Args:
        components: Names of registered components (all kinds of that name), or records, registered or not; by
            default all registered ones but the tiny ones, on which checks run.
        catalogue: The catalogue of components; by default all installed ones and the tiny ones.
        options: Options that differ from the components' defaults.
        device: Device of small runs; any but ``"cpu"`` uses deterministic kernels.

    Raises:
        UnknownComponentError: No registered component has the name.
        PluginError: A component cannot be used as it is registered.
    """
    records = [component for component in components if isinstance(component, Component)]
    names = [component for component in components if isinstance(component, str)]
    if catalogue is None:
        catalogue = _catalogue_with(records)
    chosen: list[Component] = [catalogue.get(record.kind, record.name) for record in records]
    for name in names:
        chosen += [entry.component for entry in catalogue.called(name)]
    if not components:
        chosen = [entry.component for entry in catalogue.components() if entry.component.name != TINY]
    cases: list[ContractCase] = []
    for component in chosen:
        cases += cases_of(component, catalogue, options or {}, device)
    return cases


def _catalogue_with(records: Sequence[Component]) -> Catalogue:
    """Return all installed components, the tiny ones, and those of some records that no plugin registers."""
    catalogue = tiny_catalogue()
    registered = [entry.component for entry in catalogue.components()]
    new = [_Offer(record) for record in records if record not in registered]
    return tiny_catalogue(*new) if new else catalogue


class _Offer:
    """A plugin object that registers one record."""

    def __init__(self, record: Component) -> None:
        self.__name__ = f"{record.name} (given)"  # by which messages call the plugin
        hook = next(hook for hook, kind in HOOKS.items() if isinstance(record, kind))

        def offer() -> list[Component]:
            return [record]

        offer.__name__ = hook  # by which messages of pluggy call it
        setattr(self, hook, hookimpl(offer))
