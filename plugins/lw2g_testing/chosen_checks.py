"""The function of lw2g that checks components against the contract of their kind.

Importing this module imports neither torch nor a component.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from lw2g.config.structure import structure
from lw2g.errors import ConfigError
from lw2g.registry.kinds import place_of

if TYPE_CHECKING:
    from lw2g.interfaces.component import Component, Kind
    from lw2g.registry.catalogue import Catalogue
    from lw2g.registry.manager import Problem
    from lw2g_testing.cases import ContractCase

__all__ = ["TINY", "Checks", "checks_of"]

TINY = "tiny"
"""The name of the benchmark and the backbone on which checks run; checking all leaves them out."""


@attrs.frozen(kw_only=True)
class Checks:
    """The checks of some components; each runs when its ``result`` is asked for.

    Attributes:
        cases: A check of one component each.
        problems: Those with the plugins of these components.
        others: Those with other plugins.
    """

    cases: Sequence[ContractCase]
    problems: Sequence[Problem]
    others: Sequence[Problem]


def checks_of(
    *names: str,
    everything: bool = False,
    kind: Kind | None = None,
    settings: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Checks:
    """Check components against the contract of their kind, promise by promise.

    Checks use little data and download nothing; a check that needs something this machine lacks is skipped
    with the reason.

    Args:
        *names: The components.
        everything: Whether to check all components.
        kind: Only components of this kind.
        settings: Options of the checked component, such as ``energy=0.9`` or ``baseline.energy=0.9``.
        device: Device of the checks that train, such as cuda; kernels are always deterministic.

    Raises:
        ConfigError: No component is chosen, or the device or an option cannot be used.
        UnknownComponentError: A name is not registered.
        PluginError: A component cannot be used as it is registered.
    """
    import lw2g_testing

    # names and options are refused before torch is imported, which what is tiny is made with
    listed = lw2g_testing.tiny_catalogue() if TINY in names else lw2g_testing.load_catalogue()
    chosen = _chosen(listed, names, everything=everything, kind=kind)
    options = _options(chosen, settings or {})
    from lw2g.runtime.engine import open_engine

    open_engine(device, "32-true")  # a missing device is the user's mistake, not a component's
    catalogue = lw2g_testing.tiny_catalogue()
    cases = lw2g_testing.contract_cases(*chosen, catalogue=catalogue, options=options, device=device)
    checked = {listed.entries[component.kind, component.name].origin.key for component in chosen}
    problems: list[Problem] = []
    others: list[Problem] = []
    # of the first catalogue: a plugin that imports torch for its records is seen while nobody else has
    for problem in listed.problems:
        is_checked = (problem.plugin, problem.distribution) in checked
        (problems if is_checked else others).append(problem)
    return Checks(cases=list(cases), problems=problems, others=others)


def _chosen(
    catalogue: Catalogue, names: Sequence[str], *, everything: bool, kind: Kind | None
) -> list[Component]:
    """Return the records of the components to check.

    Raises:
        ConfigError: The call names none, or names some in addition to all, or the kind has no component.
        UnknownComponentError: A name is not registered.
        PluginError: A component cannot be used as it is registered.
    """
    if everything and names:
        raise ConfigError("--all and names exclude each other", "leave one out")
    if not everything and not names:
        raise ConfigError("nothing to check", "give names (`lw2g plugins` lists them) or --all")
    chosen: list[Component] = []
    if everything:
        for entry in catalogue.components():
            component = entry.component
            if component.name != TINY and kind in (None, component.kind):
                chosen.append(component)
        if not chosen:
            raise ConfigError(f"no {kind or 'component'} is registered", "`lw2g doctor` says why")
        return chosen
    for name in names:
        if kind is not None:
            chosen.append(catalogue.get(kind, name))
        else:
            chosen += [entry.component for entry in catalogue.called(name)]
    return chosen


def _options(chosen: Sequence[Component], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return options, converted to the types that the component's config declares.

    Raises:
        ConfigError: They do not fit the component, or several components are chosen.
    """
    if not table:
        return {}
    if len(chosen) != 1:
        listed = ", ".join(f"{component.kind} {component.name}" for component in chosen)
        raise ConfigError(f"--set is for one component, not for {listed}", "name one, with --kind if need be")
    (component,) = chosen
    section = f"{place_of(component.kind, component.name)}."  # which an experiment writes before each of them
    table = {key.removeprefix(section): value for key, value in table.items()}
    config, problems = structure(component.config, table)
    if problems:
        details = "; ".join(f"{key}: {text}" if key else text for key, text in problems)
        raise ConfigError(f"{component.kind} {component.name!r}: {details}")
    # as attributes, options have their declared types; they are written by their aliases
    fields = {field.alias: field.name for field in attrs.fields(component.config)}
    return {key: getattr(config, str(fields[key])) for key in table}
