"""The functions of lw2g for plugins: what is installed, what it takes, and a new package.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from lw2g.config.describe import OptionDescription, describe_options
from lw2g.config.describe import meant_elsewhere as meant
from lw2g.config.describe import places_of as places
from lw2g.config.facts import aliases, differences, traits, values_of
from lw2g.config.settings import OWN_SECTIONS
from lw2g.config.unknown import unknown_name
from lw2g.errors import UnknownComponentError
from lw2g.ground.docstrings import docstring
from lw2g.ground.spelling import expands_paths
from lw2g.interfaces.component import KINDS, Component, Kind
from lw2g.registry.catalogue import Catalogue, Registered, load_catalogue
from lw2g.registry.kinds import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lw2g.registry.command_set import CommandSet
    from lw2g.registry.manager import Origin

__all__ = [
    "KINDS",
    "OWN_SECTIONS",
    "SCAFFOLDED_KINDS",
    "Description",
    "commands",
    "components",
    "describe",
    "meaning_of_kind",
    "meant_elsewhere",
    "names_of",
    "new_plugin",
    "places_of",
    "summary_of",
]


SCAFFOLDED_KINDS = (*KINDS, "command")
"""What :func:`new_plugin` writes."""


@attrs.frozen(kw_only=True)
class Description:
    """A component, or a section of options that belongs to none.

    Attributes:
        kind: Its kind; ``section`` for a section.
        name: Its name.
        summary: One line.
        options: Its options.
        origin: The plugin that registers it; None for a section.
        citation: Where it was published; empty if nowhere.
        traits: What its record says of it, one line each.
        notes: Its presets, what differs from the published method, and other names, one line each.
    """

    kind: str
    name: str
    summary: str
    options: Sequence[OptionDescription]
    origin: Origin | None = None
    citation: str = ""
    traits: Sequence[str] = ()
    notes: Sequence[str] = ()


def components(run: Path | None = None) -> Catalogue:
    """List all components with their origin, and the problems with plugins; other plugins keep working.

    Args:
        run: A run or a model: the plugins that it was made with are loaded, and the others when a name is
            asked for that these lack. None for all.
    """
    if run is None:
        return load_catalogue()
    from lw2g.disk.origins import made_with

    return load_catalogue(made_with=made_with(run))


def commands() -> CommandSet:
    """List the commands of installed packages with their origin, and the problems with these packages."""
    from lw2g.registry.command_set import load_commands

    return load_commands()


def describe(name: str, *, kind: Kind | None = None) -> list[Description]:
    """Describe the components called ``name``, of all kinds.

    ``growth``, ``routing`` and ``run`` describe the options that belong to no component, such as seed and
    device.

    Args:
        name: The components' name, or that of a section.
        kind: The kind of the one that is meant; None for those of all kinds.

    Raises:
        UnknownComponentError: There is none; the message suggests the nearest name.
        PluginError: There is one that cannot be used.
    """
    if kind is not None:
        return [_description(_of_kind(kind, name))]
    section = OWN_SECTIONS.get(name)
    if section is not None:
        summary = docstring(section).partition("\n")[0]
        return [Description(kind="section", name=name, summary=summary, options=describe_options(section))]
    try:
        entries = components().called(name)
    except UnknownComponentError as error:
        if name not in commands().entries:
            raise UnknownComponentError(unknown_name("component", name, error)) from None
        what = f"no component is called {name!r}, but a command"
        raise UnknownComponentError(what, f"`lw2g {name} --help` describes it") from None
    return list(map(_description, entries))


def _of_kind(kind: Kind, name: str) -> Registered:
    """Return the component of a kind and name.

    Raises:
        UnknownComponentError: There is none; the message suggests the nearest name.
        PluginError: It cannot be used.
    """
    catalogue = components()
    try:
        catalogue.get(kind, name)
    except UnknownComponentError as error:
        raise UnknownComponentError(unknown_name(kind, name, error)) from None
    return catalogue.entries[kind, name]


def _description(entry: Registered) -> Description:
    component = entry.component
    notes = (*values_of(component), *differences(component), *aliases(component))
    return Description(
        kind=component.kind,
        name=component.name,
        summary=component.summary,
        options=describe_options(component.config),
        origin=entry.origin,
        citation=component.citation,
        traits=tuple(traits(component)),
        notes=notes,
    )


def summary_of(component: Component) -> str:
    """Return the summary, with the names by which users look for the component."""
    if not component.aliases:
        return component.summary
    names = ", ".join(alias.name for alias in component.aliases)
    return f"{component.summary} (known as {names})"


def meaning_of_kind(kind: Kind) -> str:
    """Return what components of a kind are, in a sentence: the first of their record's docstring."""
    return docstring(COMPONENTS[kind]).partition("\n")[0]


def names_of(*kinds: Kind) -> dict[str, str]:
    """Return the names of all usable components, and their summaries.

    Args:
        *kinds: The kinds; all if none is given.
    """
    summaries = {}
    for entry in components().components():
        if entry.component.kind in (kinds or KINDS):
            summaries[entry.component.name] = entry.component.summary
    return summaries


def places_of(option: str, others: Iterable[str] = ()) -> list[str]:
    """Return the dotted keys of all options with this name or that most like it, those of baselines first.

    Args:
        option: The name.
        others: What else may be meant: nothing is returned where one of these is more like it.
    """
    return places(option, components(), others)


def meant_elsewhere(option: str) -> str:
    """Return what an option of another library is here; empty for others, and where one here has its name.

    Args:
        option: The name, without a section.
    """
    return meant(option, components())


@expands_paths
def new_plugin(
    name: str, *, kind: Kind | Literal["command"], out: str | Path | None = None
) -> tuple[list[Path], list[str]]:
    """Write an installable package with a small working component or command called ``name``, and its tests.

    ``name`` is kebab-case, such as my-method. It names what the package offers, its distribution and folder.

    Args:
        name: The name of the component or command.
        kind: What the plugin offers.
        out: The package's folder; None for ./NAME.

    Returns:
        The files, and the commands that install, test and use the package.

    Raises:
        ConfigError: The name cannot be used, or the folder is in use.
    """
    from lw2g.api.scaffold.package import Scaffold, check_name, write_package

    # a component may have the name of a command
    check_name(name, load_catalogue(), commands=commands().entries if kind == "command" else ())
    scaffold = Scaffold(name=name, kind=kind)
    directory = Path(out or name)
    files = list(write_package(scaffold, directory))
    install = f'python -m pip install -e "{directory}[test]"'
    test = f"python -m pytest -q {directory}"
    return files, [install, test, *scaffold.next_steps(directory)]
