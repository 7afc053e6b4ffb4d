"""The kinds of components: the one list that discovery, configurations, runs and reports use; all hooks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lw2g.interfaces.component import (
    BackboneComponent,
    BaselineComponent,
    BenchmarkComponent,
    CarryComponent,
    Component,
    ConstraintComponent,
    EvidenceComponent,
    HeadComponent,
    Kind,
    PolicyComponent,
    RetrievalComponent,
    TrackerComponent,
)
from lw2g.interfaces.metric import Metric
from lw2g.registry.markers import COMMANDS, PROJECT, hookspec

__all__ = [
    "COMMAND_HOOK",
    "COMPONENTS",
    "HOOKS",
    "HOOKS_BY_GROUP",
    "SECTIONS",
    "SINGLE",
    "SPECIFICATIONS",
    "place_of",
]

COMPONENTS: Mapping[Kind, type[Component]] = {
    record.kind: record
    for record in (
        BaselineComponent,
        HeadComponent,
        CarryComponent,
        RetrievalComponent,
        PolicyComponent,
        EvidenceComponent,
        ConstraintComponent,
        BenchmarkComponent,
        BackboneComponent,
        TrackerComponent,
        Metric,
    )
}
"""The record class of every kind."""

SECTIONS: Mapping[str, type[Component]] = {
    record.section: record for record in COMPONENTS.values() if record.section
}
"""The record class by the configuration section that names such components."""

SINGLE: tuple[Kind, ...] = tuple(
    kind for kind, record in COMPONENTS.items() if record.section and not record.several
)
"""The kinds of which an experiment has one component at most: each has a name, and a section of its own."""

HOOKS: Mapping[str, type[Component]] = MappingProxyType(
    {record.hook: record for record in COMPONENTS.values()}
)
"""The class of the records of components that each hook returns in a list; hooks take no arguments."""

COMMAND_HOOK = "lw2g_commands"
"""The hook that returns a list of :class:`~lw2g.interfaces.command.Command`."""

HOOKS_BY_GROUP: Mapping[str, tuple[str, ...]] = {PROJECT: tuple(HOOKS), COMMANDS: (COMMAND_HOOK,)}
"""The hooks that are called of the modules which an entry-point group names."""


SPECIFICATIONS = type("Specifications", (), dict.fromkeys((*HOOKS, COMMAND_HOOK), hookspec(lambda: [])))
"""The hook specifications for pluggy."""


def place_of(kind: Kind, name: str) -> str:
    """Return the configuration section with the options of a component.

    >>> place_of("policy", "min"), place_of("constraint", "cpk")
    ('policy', 'constraints.cpk')
    """
    record = COMPONENTS[kind]
    if record.several:  # a table for each component
        return f"{record.section}.{name}"
    return record.section
