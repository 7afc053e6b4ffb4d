"""Loads plugins into a pluggy manager, one entry point at a time, so that a broken plugin affects no other.

pluggy itself silently drops a second entry point with the same name, ignores a misspelt hook, and lets an
import error of one plugin end the program. Here each of these becomes a :class:`Problem`.

An import that hangs (on a network, say) cannot be stopped from within. Ctrl-C names the plugin, and
``LW2G_DISABLE_PLUGINS`` skips it without importing it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint
from typing import Any, TypeVar

import attrs
import pluggy

from lw2g.errors import PluginError, error_text, nearest, with_remedy
from lw2g.ground.plugin_lines import line_of_plugin
from lw2g.registry.installed import entry_points
from lw2g.registry.kinds import HOOKS_BY_GROUP, SPECIFICATIONS
from lw2g.registry.markers import COMMANDS, PROJECT

__all__ = [
    "DISABLE_VARIABLE",
    "OF_PROGRAM",
    "Origin",
    "PluginSet",
    "Problem",
    "attempt",
    "clashes",
    "disabled_plugins",
    "load_plugins",
    "own_name",
    "records_of",
]

DISABLE_VARIABLE = "LW2G_DISABLE_PLUGINS"
OF_PROGRAM = "local"
"""The plugin that stands for the objects that a program gives in place of names."""
"""Environment variable with the names of disabled plugins, separated by commas."""

T = TypeVar("T")
_ALL_HOOKS = tuple(hook for hooks in HOOKS_BY_GROUP.values() for hook in hooks)


@attrs.frozen(kw_only=True)
class Origin:
    """The plugin that registers a component.

    Attributes:
        plugin: Name of the entry point.
        distribution: Name of the installed distribution; None for a plugin object from Python.
        version: Version of that distribution.
    """

    plugin: str
    distribution: str | None = None
    version: str | None = None

    @property
    def key(self) -> tuple[str, str | None]:
        """Entry point and distribution."""
        return self.plugin, self.distribution

    @property
    def first_party(self) -> bool:
        """Whether the plugin comes with lw2g itself."""
        return self.distribution == PROJECT

    def __str__(self) -> str:
        if self.distribution is None:
            return "this program" if self.plugin == OF_PROGRAM else f"plugin {self.plugin!r}"
        return f"plugin {self.plugin!r} ({self.distribution} {self.version})"


@attrs.frozen(kw_only=True)
class Problem:
    """A problem with one plugin.

    Attributes:
        plugin: Name of the entry point.
        distribution: Name of the installed distribution, if any.
        version: Its version.
        what: What is wrong.
        remedy: What to do about it.
        error: What its code raised, if anything.
    """

    plugin: str
    distribution: str | None
    version: str | None
    what: str
    remedy: str
    error: BaseException | None = attrs.field(default=None, eq=False, repr=False)

    @classmethod
    def of(
        cls, origin: Origin, what: str, remedy: str | None = None, error: BaseException | None = None
    ) -> Problem:
        """Return a problem with one plugin; the default remedy is to fix or disable it."""
        return cls(**attrs.asdict(origin), what=what, remedy=remedy or _fix_or_disable(origin), error=error)

    @classmethod
    def raised(cls, origin: Origin, what: str, error: BaseException) -> Problem:
        """Return that a plugin's code raised an error, with the line that did."""
        return cls.of(origin, f"{what}: {error_text(error)}{line_of_plugin(error)}", error=error)

    @property
    def text(self) -> str:
        """The plugin and what is wrong with it, without the remedy."""
        origin = Origin(plugin=self.plugin, distribution=self.distribution, version=self.version)
        return f"{origin} {self.what}"

    def is_of(self, name: str) -> bool:
        """Whether the plugin or its distribution has this name, with hyphens or underscores."""
        with_underscores = name.replace("-", "_")
        if self.plugin.replace("-", "_") == with_underscores:
            return True
        return (self.distribution or "").replace("-", "_") == with_underscores

    def __str__(self) -> str:
        return with_remedy(self.text, self.remedy)


@attrs.frozen(kw_only=True, eq=False)
class PluginSet:
    """The loaded plugins, and the problems with the others.

    Attributes:
        manager: The pluggy manager with the loaded plugins.
        origins: Origin by the registered name of a plugin.
        problems: All problems.
        disabled: Names of plugins that the user disabled.
    """

    manager: pluggy.PluginManager
    origins: dict[str, Origin]
    problems: list[Problem]
    disabled: tuple[str, ...]


def disabled_plugins() -> set[str]:
    """Return the names of the plugins that the user disabled by ``LW2G_DISABLE_PLUGINS``."""
    names = os.environ.get(DISABLE_VARIABLE, "").split(",")
    return set(filter(None, map(str.strip, names)))


def load_plugins(
    *,
    group: str = PROJECT,
    plugins: Sequence[object] = (),
    from_entry_points: bool = True,
    disabled: Collection[str] = (),
    wanted: Callable[[Origin], bool] | None = None,
) -> PluginSet:
    """Build a manager with all plugins that can be loaded.

    Args:
        group: The entry-point group of installed plugins.
        plugins: Plugin objects (modules or instances) to register in addition to the installed ones.
        from_entry_points: Whether to load installed plugins.
        disabled: Names of entry points to skip.
        wanted: Whether to load the installed plugin of an origin; None for all.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(SPECIFICATIONS)
    loaded = PluginSet(manager=manager, origins={}, problems=[], disabled=tuple(sorted(disabled)))
    if from_entry_points:
        # lw2g's own first: of several plugins with one name, the first is kept if it is lw2g's
        installed = sorted(entry_points(group=group), key=_origin_order)
        chosen = [entry_point for entry_point in installed if entry_point.name not in disabled]
        if wanted is not None:
            chosen = [entry_point for entry_point in chosen if wanted(_origin(entry_point))]
        for entry_point in _without_clashes(chosen, loaded.problems):
            _load(loaded, entry_point)
    for plugin in plugins:
        # a module has a name, and an object that of its class
        _register(loaded, plugin, Origin(plugin=getattr(plugin, "__name__", type(plugin).__name__)))
    if from_entry_points and disabled and group == PROJECT:  # of commands alone it would be told twice
        loaded.problems.extend(_unknown_disabled(disabled))
    return loaded


def _load(loaded: PluginSet, entry_point: EntryPoint) -> None:
    """Import an installed plugin and register it."""
    origin = _origin(entry_point)
    num_before = len(loaded.problems)
    had_torch = "torch" in sys.modules
    # None cannot tell a failure: the entry point may name anything
    plugin = attempt(entry_point.load, origin, "cannot be imported", loaded.problems)
    if len(loaded.problems) > num_before:
        return
    if "torch" in sys.modules and not had_torch:
        waiting, place = "what lists components", "the module that `lazy` names"
        if entry_point.group == COMMANDS:
            waiting, place = "every `lw2g --help`", "the module of the command"
        what = f"imports torch in {entry_point.module!r}, and {waiting} waits for it"
        loaded.problems.append(Problem.of(origin, what, f"import it in {place}"))
    _register(loaded, plugin, origin)
    if origin.plugin in loaded.origins:
        loaded.problems.extend(_uncalled_hooks(loaded, entry_point, origin))


def attempt(action: Callable[[], T], origin: Origin, what: str, problems: list[Problem]) -> T | None:
    """Run a plugin's code; if it raises, add a problem with that plugin and return None.

    Raises:
        PluginError: The user pressed Ctrl-C in the code of a third-party plugin.
    """
    try:
        return action()
    # a plugin may raise anything, even SystemExit, and the other plugins must keep working
    except (Exception, SystemExit) as error:
        problems.append(Problem.raised(origin, what, error))
        return None
    except KeyboardInterrupt as stop:
        # Ctrl-C ends everything; only if a stranger's import hangs does the message help
        if origin.distribution is None or origin.first_party:
            raise
        raise PluginError(f"{origin} was interrupted", _fix_or_disable(origin)) from stop


def _fix_or_disable(origin: Origin) -> str:
    if origin.distribution is None:
        return "fix it"
    return f"fix or uninstall {origin.distribution!r}, or set {DISABLE_VARIABLE}={origin.plugin}"


def _origin(entry_point: EntryPoint) -> Origin:
    distribution = entry_point.dist
    if distribution is None:  # metadata that importlib cannot read
        return Origin(plugin=entry_point.name)
    name, version = _name_and_version(distribution)
    return Origin(plugin=entry_point.name, distribution=name, version=version)


@lru_cache(maxsize=64)
def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Return name and version; importlib parses the metadata anew for each, and for each entry point."""
    return distribution.name, distribution.version


def _origin_order(entry_point: EntryPoint) -> tuple[bool, str, str]:
    origin = _origin(entry_point)
    return (not origin.first_party, origin.plugin, origin.distribution or "")


def _without_clashes(entries: Sequence[EntryPoint], problems: list[Problem]) -> Iterable[EntryPoint]:
    """Skip entry points whose name another distribution uses too; lw2g keeps its own names."""
    by_name: dict[str, list[EntryPoint]] = {}
    for entry_point in entries:
        by_name.setdefault(entry_point.name, []).append(entry_point)
    # pluggy would take the first and drop the others without a word
    for same in by_name.values():
        first, *others = same
        refused_ones = same
        if not others or _origin(first).first_party:
            yield first
            refused_ones = others
        for refused in refused_ones:
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
    """Register a plugin with pluggy; what is wrong with it becomes a problem, and it is left out."""
    name = origin.plugin
    if plugin is None:  # None means a blocked name to pluggy
        loaded.problems.append(Problem.of(origin, "is None", "name a module or an object with hooks"))
        return
    if name in loaded.origins or loaded.manager.is_registered(plugin):
        loaded.problems.append(Problem.of(origin, "is not loaded: it is registered already", "name it once"))
        return
    before = len(loaded.problems)
    # pluggy reads every attribute; an error there would leave the plugin half registered
    attempt(lambda: _read(plugin), origin, "has an attribute that cannot be read", loaded.problems)
    if len(loaded.problems) > before:
        return
    try:
        loaded.manager.register(plugin, name=name)
    except pluggy.PluginValidationError as error:
        if loaded.manager.is_registered(plugin):  # older releases of pluggy keep it
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
    """Yield hooks that pluggy would silently ignore: misspelt ones, and those without the marker."""
    callers = manager.get_hookcallers(plugin) or []
    specified = set[str]()
    named = set[str]()
    for caller in callers:
        named.add(caller.name)
        if caller.has_spec():
            specified.add(caller.name)
    for name in dir(plugin):
        if name.startswith("lw2g_") and _is_function(plugin, name):
            named.add(name)
    for name in sorted(named - specified):
        if name in _ALL_HOOKS:
            what = f"has {name!r} without the marker"
            remedy = "decorate it with lw2g.plugin.hookimpl"
        else:
            what = f"has {name!r}, which is no hook{nearest(name, _ALL_HOOKS)}"
            remedy = f"use one of {', '.join(_ALL_HOOKS)}"
        yield Problem.of(origin, what, remedy)
    if not specified and not named:
        yield Problem.of(origin, "has no hooks", f"define one of {', '.join(_ALL_HOOKS)}")


def _uncalled_hooks(loaded: PluginSet, entry_point: EntryPoint, origin: Origin) -> Iterable[Problem]:
    """Yield hooks that nobody calls: a hook is called of the modules that its own entry-point group names."""
    plugin = loaded.manager.get_plugin(origin.plugin)
    implemented = {caller.name for caller in loaded.manager.get_hookcallers(plugin) or []}
    for group, hooks in HOOKS_BY_GROUP.items():
        of_group = sorted(implemented.intersection(hooks))
        if group == entry_point.group or not of_group:
            continue
        # a module that both groups name may have the hooks of both
        modules = {other.value for other in entry_points(group=group)}
        if entry_point.value not in modules:
            what = f"has {of_group[0]!r}, which is called of modules in the entry-point group {group!r} alone"
            yield Problem.of(origin, what, f"name {entry_point.value!r} in that group, too")


def _is_function(plugin: object, name: str) -> bool:
    value: Any = getattr(plugin, name, None)
    return callable(value) and not isinstance(value, type)


def _unknown_disabled(disabled: Collection[str]) -> Iterable[Problem]:
    """Yield the disabled names that are none of an installed plugin, be it of components or of commands."""
    names: list[str] = []
    for group in HOOKS_BY_GROUP:
        names += [entry_point.name for entry_point in entry_points(group=group)]
    for name in sorted(set(disabled) - set(names)):
        yield Problem(
            plugin=name,
            distribution=None,
            version=None,
            what=f"is named in {DISABLE_VARIABLE} but not installed{nearest(name, names)}",
            remedy="correct the name or leave it out",
        )


def records_of(
    loaded: PluginSet, hook: str, expected: type[T], problems: list[Problem]
) -> Iterator[tuple[T, Origin]]:
    """Call a hook of each plugin, one by one, and yield the records of the right class."""
    implementations = getattr(loaded.manager.hook, hook).get_hookimpls()
    for implementation in sorted(implementations, key=lambda hookimpl: str(hookimpl.plugin_name)):
        origin = loaded.origins[implementation.plugin_name]
        num_before = len(problems)
        records: Any = attempt(implementation.function, origin, f"fails in {hook}", problems)
        if len(problems) > num_before:  # not None alone, which a hook may return, too
            continue
        if not isinstance(records, list | tuple):
            problems.append(
                Problem.of(origin, f"returns {type(records).__name__} from {hook}, not a list of records")
            )
            continue
        for record in records:
            if isinstance(record, expected):
                yield record, origin
            else:
                what = f"returns {_article(record)} from {hook}, which takes {expected.__name__} only"
                problems.append(Problem.of(origin, what))


def _article(record: object) -> str:
    if isinstance(record, type):
        return f"{record.__name__} (a class)"
    return repr(type(record).__name__)


def own_name(kind: str, name: str, origin: Origin) -> tuple[str, Problem]:
    """Return what a stranger's component or command is called whose name lw2g has itself, and the problem.

    A release of lw2g may take a name that a plugin has. The name is then lw2g's, and what the plugin offers
    stays in reach as ``distribution:name``.
    """
    owner = origin.distribution or origin.plugin
    qualified = f"{re.sub(r'[^a-z0-9]+', '-', owner.lower())}:{name}"
    what = f"registers {kind} {name!r}, which lw2g has itself; its own is called {qualified!r}"
    return qualified, Problem.of(origin, what, f"rename it in {owner!r} to have it without the prefix")


def clashes(kind: str, name: str, origins: Collection[Origin]) -> list[Problem]:
    """Return one problem per plugin that registers a name which another plugin registers too.

    None of them is used, so that the meaning of a name does not depend on which plugins are installed.
    """
    in_order = sorted(origins, key=lambda origin: (origin.first_party, origin.plugin))
    everyone = " and ".join(map(str, in_order))
    problems = []
    for origin in dict.fromkeys(in_order):
        what = f"registers {kind} {name!r}, which is registered by {everyone}; neither is used"
        problems.append(Problem.of(origin, what, _fix_clash(origin)))
    return problems


def _fix_clash(origin: Origin) -> str:
    if origin.first_party or origin.distribution is None:
        return "rename the other one or disable its plugin"
    return f"rename it in {origin.distribution!r}, or set {DISABLE_VARIABLE}={origin.plugin}"
