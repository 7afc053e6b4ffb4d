"""Loading of plugins into a pluggy manager, one entry point at a time, so that one bad plugin stays alone.

pluggy itself drops a second entry point of the same name without a word, ignores a misspelt hook, and lets an
import error of one plugin end the program. Here each of them becomes a :class:`Problem`.

A plugin that hangs at import (on a network, say) is not bounded: nothing can stop an import from within.
Ctrl-C says which plugin it was, and ``LW2G_DISABLE_PLUGINS`` leaves it out without importing it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

import attrs
import pluggy

from lw2g.errors import PluginError, nearest, told
from lw2g.registry import hookspecs
from lw2g.registry.markers import PROJECT

__all__ = ["DISABLE_VARIABLE", "Origin", "PluginSet", "Problem", "attempt", "load_plugins"]

DISABLE_VARIABLE = "LW2G_DISABLE_PLUGINS"
"""Environment variable: names of plugins that are not loaded, separated by commas."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Origin:
    """Where a component comes from.

    Attributes:
        plugin: Name of the entry point.
        distribution: Name of the installed distribution; None for a plugin object that was handed in.
        version: Version of that distribution.
    """

    plugin: str
    distribution: str | None = None
    version: str | None = None

    @property
    def first_party(self) -> bool:
        """Whether the plugin comes with lw2g itself."""
        return self.distribution == PROJECT

    def __str__(self) -> str:
        if self.distribution is None:
            return f"plugin {self.plugin!r}"
        return f"plugin {self.plugin!r} ({self.distribution} {self.version})"


@attrs.frozen(kw_only=True)
class Problem:
    """What is wrong with one plugin.

    Attributes:
        plugin: Name of the entry point.
        distribution: Name of the installed distribution, None where there is none.
        version: Its version.
        what: What is wrong.
        remedy: What to do about it.
    """

    plugin: str
    distribution: str | None
    version: str | None
    what: str
    remedy: str

    @classmethod
    def of(cls, origin: Origin, what: str, remedy: str | None = None) -> Problem:
        """Return a problem of one plugin; the remedy defaults to fixing or disabling it."""
        return cls(**attrs.asdict(origin), what=what, remedy=remedy or _fix_or_disable(origin))

    def __str__(self) -> str:
        origin = Origin(plugin=self.plugin, distribution=self.distribution, version=self.version)
        return f"{origin} {self.what}; {self.remedy}"


@attrs.frozen(kw_only=True, eq=False)
class PluginSet:
    """The plugins that could be loaded, and what was wrong with the others.

    Attributes:
        manager: The pluggy manager in which they are registered.
        origins: Origin by the name under which a plugin is registered.
        problems: What was found.
        disabled: Names of plugins that were left out on request.
    """

    manager: pluggy.PluginManager
    origins: dict[str, Origin]
    problems: list[Problem]
    disabled: tuple[str, ...]


def load_plugins(
    *, plugins: Sequence[object] = (), from_entry_points: bool = True, disabled: Collection[str] = ()
) -> PluginSet:
    """Build a manager with all plugins that can be loaded.

    Args:
        plugins: Plugin objects (modules or instances) to register beside the installed ones.
        from_entry_points: Whether installed plugins are looked for.
        disabled: Names of entry points that are not loaded.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    loaded = PluginSet(manager=manager, origins={}, problems=[], disabled=tuple(sorted(disabled)))
    found = sorted(entry_points(group=PROJECT), key=_origin_order) if from_entry_points else []
    for entry_point in _without_clashes([e for e in found if e.name not in disabled], loaded.problems):
        origin, before = _origin(entry_point), len(loaded.problems)
        plugin = attempt(entry_point.load, origin, "cannot be imported", loaded.problems)
        if len(loaded.problems) == before:
            _register(loaded, plugin, origin)
    for plugin in plugins:
        _register(loaded, plugin, Origin(plugin=getattr(plugin, "__name__", type(plugin).__name__)))
    if from_entry_points:
        loaded.problems.extend(_unknown_disabled(disabled, [entry_point.name for entry_point in found]))
    return loaded


def attempt(action: Callable[[], T], origin: Origin, what: str, problems: list[Problem]) -> T | None:
    """Run a plugin's code; whatever it raises becomes a problem of that plugin, and None is returned.

    Raises:
        PluginError: Ctrl-C was pressed meanwhile, and the plugin is not one of lw2g's own.
    """
    try:
        return action()
    # The one place that catches everything: a stranger's code may raise anything, even the request to end the
    # program, and the promise is that the other plugins keep working. Nothing is swallowed: the error is
    # shown with its plugin.
    except (Exception, SystemExit) as error:
        problems.append(Problem.of(origin, f"{what}: {told(error)}"))
        return None
    except KeyboardInterrupt as stop:
        if origin.distribution is None or origin.first_party:
            raise
        raise PluginError(f"{origin} was interrupted; {_fix_or_disable(origin)}") from stop


def _fix_or_disable(origin: Origin) -> str:
    if origin.distribution is None:
        return "fix it"
    return f"fix or uninstall {origin.distribution!r}, or set {DISABLE_VARIABLE}={origin.plugin}"


def _origin(entry_point: EntryPoint) -> Origin:
    distribution = entry_point.dist
    return Origin(
        plugin=entry_point.name,
        distribution=distribution.name if distribution else None,
        version=distribution.version if distribution else None,
    )


def _origin_order(entry_point: EntryPoint) -> tuple[bool, str, str]:
    origin = _origin(entry_point)
    return (not origin.first_party, origin.plugin, origin.distribution or "")


def _without_clashes(found: Sequence[EntryPoint], problems: list[Problem]) -> Iterable[EntryPoint]:
    """Leave out entry points whose name another distribution uses too; lw2g keeps its own names."""
    by_name: dict[str, list[EntryPoint]] = {}
    for entry_point in found:
        by_name.setdefault(entry_point.name, []).append(entry_point)
    for same in by_name.values():
        first, *others = same
        keeps = not others or _origin(first).first_party
        if keeps:
            yield first
        for refused in others if keeps else same:
            origin = _origin(refused)
            rivals = ", ".join(str(_origin(other).distribution) for other in same if other is not refused)
            problems.append(
                Problem.of(
                    origin,
                    f"is not loaded: its entry-point name {origin.plugin!r} is also used by {rivals}",
                    f"rename the entry point of {origin.distribution!r} or uninstall it",
                )
            )


def _register(loaded: PluginSet, plugin: object, origin: Origin) -> None:
    name = origin.plugin
    if plugin is None:  # to pluggy, a blocked name
        loaded.problems.append(Problem.of(origin, "is None", "name a module or an object with hooks"))
        return
    if name in loaded.origins or loaded.manager.is_registered(plugin):
        loaded.problems.append(Problem.of(origin, "is not loaded: it is registered already", "name it once"))
        return
    before = len(loaded.problems)
    # pluggy reads every attribute; one that raises would leave the plugin half registered
    attempt(lambda: _read(plugin), origin, "has an attribute that cannot be read", loaded.problems)
    if len(loaded.problems) > before:
        return
    try:
        loaded.manager.register(plugin, name=name)
    except pluggy.PluginValidationError as error:
        if loaded.manager.is_registered(plugin):  # older releases of pluggy keep half of it
            loaded.manager.unregister(plugin)
        reason = " ".join(str(error).split())
        loaded.problems.append(Problem.of(origin, f"has a hook that does not fit: {reason}"))
        return
    loaded.origins[name] = origin
    loaded.problems.extend(_hook_problems(loaded.manager, plugin, origin))


def _read(plugin: object) -> None:
    for name in dir(plugin):
        getattr(plugin, name, None)


def _hook_problems(manager: pluggy.PluginManager, plugin: object, origin: Origin) -> Iterable[Problem]:
    """Find hooks that pluggy would ignore in silence: misspelt ones, and ones without the marker."""
    callers = manager.get_hookcallers(plugin) or []
    known = {caller.name for caller in callers if caller.has_spec()}
    named = {caller.name for caller in callers} | {
        name for name in dir(plugin) if name.startswith("lw2g_") and _is_function(plugin, name)
    }
    for name in sorted(named - known):
        if name in hookspecs.HOOKS:
            what, remedy = (
                f"has {name!r} without the marker",
                "decorate it with lw2g.registry.markers.hookimpl",
            )
        else:
            what = f"has {name!r}, which is no hook{nearest(name, hookspecs.HOOKS)}"
            remedy = f"use one of {', '.join(hookspecs.HOOKS)}"
        yield Problem.of(origin, what, remedy)
    if not known and not named:
        yield Problem.of(origin, "has no hooks", f"define one of {', '.join(hookspecs.HOOKS)}")


def _is_function(plugin: object, name: str) -> bool:
    value: Any = getattr(plugin, name, None)
    return callable(value) and not isinstance(value, type)


def _unknown_disabled(disabled: Collection[str], installed: Sequence[str]) -> Iterable[Problem]:
    for name in sorted(set(disabled) - set(installed)):
        yield Problem(
            plugin=name,
            distribution=None,
            version=None,
            what=f"is named in {DISABLE_VARIABLE} but not installed{nearest(name, installed)}",
            remedy="correct the name or leave it out",
        )
