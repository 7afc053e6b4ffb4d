"""The catalogue: all usable components with their origin, and the problems with plugins."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, overload

import attrs

from lw2g import __version__
from lw2g.errors import PluginError, UnknownComponentError, closest, nearest
from lw2g.interfaces.component import (
    KINDS,
    Alias,
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
from lw2g.interfaces.defaults import FROZEN_BASELINE
from lw2g.interfaces.metric import CORE_METRICS, Metric
from lw2g.registry.kinds import HOOKS
from lw2g.registry.manager import (
    DISABLE_VARIABLE,
    Origin,
    PluginSet,
    Problem,
    attempt,
    clashes,
    disabled_plugins,
    load_plugins,
    own_name,
    records_of,
)
from lw2g.registry.markers import PROJECT
from lw2g.registry.record_faults import fault_of

__all__ = ["LOCAL", "Catalogue", "Registered", "load_catalogue"]

LOCAL = "local-"
"""How the names of components begin that are objects of a Python program."""

Key = tuple[Kind, str]


@attrs.frozen(kw_only=True)
class Registered:
    """A component and its origin."""

    component: Component
    origin: Origin

    @property
    def key(self) -> Key:
        """Kind and name."""
        return self.component.kind, self.component.name


@attrs.frozen(kw_only=True, eq=False)  # to compare two would take milliseconds, and caches have them as keys
class Catalogue:
    """All components by name.

    Attributes:
        entries: The usable components.
        refused: Components that exist but cannot be used, with the reason.
        problems: All problems with plugins; the other plugins keep working.
        disabled: Plugins that the user disabled.
        made_with: Who offered the components of the run or the model that is opened. Their names stand for
            the components of these distributions alone.
        rest: Loads the catalogue of more plugins, in the end of all; :meth:`find` and :meth:`get` ask it for
            the names that are missing here. None where all are loaded.
    """

    entries: Mapping[Key, Registered]
    refused: Mapping[Key, Problem] = attrs.field(factory=dict)
    problems: tuple[Problem, ...] = ()
    disabled: tuple[str, ...] = ()
    made_with: Mapping[Key, Origin] = attrs.field(factory=dict)
    rest: Callable[[], Catalogue] | None = attrs.field(default=None, repr=False)

    @property
    def whole(self) -> Catalogue:
        """The catalogue of all plugins, for what asks for other components than those in use."""
        return self if self.rest is None else self.rest().whole

    def find(self, kind: Kind, name: str) -> Registered | None:
        """Return the usable component of this kind and name with its origin; None without one."""
        key = (kind, name)
        entry = self.entries.get(key)
        if entry is None and self.rest is not None:
            entry = self.rest().find(kind, name)
            if entry is not None and not _is_of(entry.origin, self.made_with.get(key)):
                return None  # a namesake of another distribution would answer otherwise
        return entry

    @overload
    def get(self, kind: Literal["baseline"], name: str) -> BaselineComponent: ...
    @overload
    def get(self, kind: Literal["head"], name: str) -> HeadComponent: ...
    @overload
    def get(self, kind: Literal["carry"], name: str) -> CarryComponent: ...
    @overload
    def get(self, kind: Literal["retrieval"], name: str) -> RetrievalComponent: ...
    @overload
    def get(self, kind: Literal["policy"], name: str) -> PolicyComponent: ...
    @overload
    def get(self, kind: Literal["evidence"], name: str) -> EvidenceComponent: ...
    @overload
    def get(self, kind: Literal["constraint"], name: str) -> ConstraintComponent: ...
    @overload
    def get(self, kind: Literal["benchmark"], name: str) -> BenchmarkComponent: ...
    @overload
    def get(self, kind: Literal["backbone"], name: str) -> BackboneComponent: ...
    @overload
    def get(self, kind: Literal["tracker"], name: str) -> TrackerComponent: ...
    @overload
    def get(self, kind: Literal["metric"], name: str) -> Metric: ...
    def get(self, kind: Kind, name: str) -> Component:
        """Return the component of this kind and name.

        Raises:
            UnknownComponentError: No plugin registers it; the message suggests the nearest name.
            PluginError: A plugin registers it, but it cannot be used; or that of the run or the model that
                is opened is gone.
        """
        return self.registered(kind, name).component

    def registered(self, kind: Kind, name: str) -> Registered:
        """Return the component of this kind and name with its origin.

        Raises:
            UnknownComponentError: As :meth:`get`.
            PluginError: Likewise.
        """
        entry = self.find(kind, name)
        if entry is not None:
            return entry
        if self.rest is not None:
            origin = self.made_with.get((kind, name))
            if origin is not None and origin.distribution is not None:
                raise self.whole._gone(kind, name, origin)
            # knows why there is no such component, and all names that the message may suggest
            return self.whole.registered(kind, name)
        if (kind, name) in self.refused:
            problem = self.refused[kind, name]
            raise PluginError(f"{kind} {name!r} cannot be used: {problem.text}", problem.remedy)
        self._require_loaded(name)
        raise self._unknown(kind, name)

    def retrieval_of(self, baseline: BaselineComponent) -> RetrievalComponent | None:
        """Return the retrieval strategy that a baseline's record names; None where it names none.

        Raises:
            PluginError: There is none of that name, which is the plugin's mistake.
        """
        name = baseline.retrieval
        if name is None:
            return None
        if self.find("retrieval", name) is None:
            origin = self.registered("baseline", baseline.name).origin
            known = ", ".join(map(repr, self.whole.names("retrieval")))
            raise PluginError(
                f"{origin}: baseline {baseline.name!r} names the retrieval {name!r}", f"there are {known}"
            )
        return self.get("retrieval", name)

    def with_component(self, component: Component) -> Catalogue:
        """Return a catalogue in which a component replaces the one with its kind and name."""
        entry = self.registered(component.kind, component.name)
        changed = {entry.key: attrs.evolve(entry, component=component)}
        return attrs.evolve(self, entries={**self.entries, **changed})

    def grows(self, baseline: str) -> bool:
        """Return whether a policy decides on a baseline's sets; if not, it is named without its policy.

        True for a baseline that is not installed.
        """
        entry = self.find("baseline", baseline)
        if entry is None or not isinstance(entry.component, BaselineComponent):
            return True
        return entry.component.growth != "fixed"

    def names(self, kind: Kind) -> tuple[str, ...]:
        """Return the names of all usable components of a kind, sorted."""
        return tuple(sorted(name for entry_kind, name in self.entries if entry_kind == kind))

    def components(self) -> tuple[Registered, ...]:
        """Return all usable components, by kind and then by name."""
        return tuple(self.entries[kind, name] for kind in KINDS for name in self.names(kind))

    @property
    def metrics(self) -> tuple[Registered, ...]:
        """All metrics: lw2g's own, then those of plugins by name."""
        origin = Origin(plugin=PROJECT, distribution=PROJECT, version=__version__)
        metrics = [Registered(component=metric, origin=origin) for metric in CORE_METRICS.values()]
        metrics += [self.entries["metric", name] for name in self.names("metric")]
        return tuple(metrics)

    def called(self, name: str) -> tuple[Registered, ...]:
        """Return the components of this name, of all kinds.

        Raises:
            UnknownComponentError: There is none; the message suggests the nearest name.
            PluginError: There is one that cannot be used, or a plugin of that name that cannot be loaded.
        """
        entries = tuple(entry for entry in self.components() if entry.component.name == name)
        if entries:
            return entries
        self._require_loaded(name)
        raise self._unknown("component", name)

    def _require_loaded(self, name: str) -> None:
        """Raise a ``PluginError`` that says why if a component or a plugin of this name cannot be used."""
        problems = [problem for (_, refused), problem in self.refused.items() if refused == name]
        problems += [problem for problem in self.problems if problem.is_of(name)]
        if problems:
            raise PluginError("\n".join(dict.fromkeys(map(str, problems)))) from problems[0].error

    def heir_of(self, name: str) -> tuple[Registered, Alias] | None:
        """Return the component that users look for by a name of others, with hyphens or not; or None."""
        for entry in self.components():
            for alias in entry.component.aliases:
                if alias.name.replace("-", "") == name.replace("-", ""):
                    return entry, alias
        return None

    def _gone(self, kind: Kind, name: str, origin: Origin) -> PluginError:
        """Return why a component of a known plugin is not here, and what to install."""
        for problem in (*filter(None, [self.refused.get((kind, name))]), *self.problems):
            if (problem.plugin, problem.distribution) == origin.key:
                return PluginError(f"{kind} {name!r} cannot be used: {problem.text}", problem.remedy)
        if origin.plugin in self.disabled:
            return PluginError(
                f"{kind} {name!r} is of {origin}, which {DISABLE_VARIABLE} leaves out",
                f"take {origin.plugin!r} out of it",
            )
        return PluginError(
            f"{kind} {name!r} of {origin} is not installed", f"install {origin.distribution} {origin.version}"
        )

    def _unknown(self, kind: Kind | Literal["component"], name: str) -> UnknownComponentError:
        """Return the error of an unknown name: what was meant, what it is called here, or where to look."""
        whole = "`lw2g plugins` says what there is"
        remedy = whole if kind == "component" else f"`lw2g plugins {kind}` lists all"
        if name.startswith(LOCAL):
            remedy = f"give the object as local={{{kind!r}: ...}} to lw2g.resume, continue_run, fork or load"
            return UnknownComponentError(f"{kind} {name!r} is not installed", remedy)
        spelled = name.lower().replace("_", "-").replace(" ", "-").replace("+", "-plus")
        heir = self.heir_of(spelled)
        if heir is not None:
            entry, alias = heir
            meaning, typed = alias_text(entry.component, alias)
            if kind == "baseline" and entry.component.kind == "head":
                typed = f"--baseline {FROZEN_BASELINE} {typed}"
            return UnknownComponentError(f"no {kind} is called {name!r}; {meaning}", typed)
        of_kind = [entry for entry in self.components() if kind in (entry.component.kind, "component")]
        known = sorted({entry.component.name for entry in of_kind})
        known += [alias.name for entry in of_kind for alias in entry.component.aliases]
        if kind == "baseline" and ("head", spelled) in self.entries:
            typed = f"--baseline {FROZEN_BASELINE} --set baseline.head={spelled}"
            return UnknownComponentError(f"no baseline is called {name!r}, but a head", typed)
        meant = nearest(spelled, known)
        # a name of one's own often has the kind in it, as in my-policy: that is no misspelt kind
        parts = set(spelled.split("-")[1:]).intersection(KINDS)
        if kind == "component":  # a kind may be meant, and among names of all kinds many are a bit alike
            near = closest(spelled, [*known, *(one for one in KINDS if one not in parts)], near=0.8)
            if near in KINDS:
                what = f"no component is called {name!r}; {near!r} is a kind"
                remedy = f"`lw2g plugins {near}` lists its components, `lw2g check --kind {near}` checks them"
                return UnknownComponentError(what, remedy)
            meant = "" if near is None else f" (did you mean {near!r}?)"
        if not meant:
            broken = {problem.plugin for problem in self.problems} - set(self.disabled)
            if broken:
                remedy += f" (plugins with problems: {', '.join(sorted(broken))}; `lw2g doctor` says which)"
            if self.disabled:
                remedy += f" ({DISABLE_VARIABLE} leaves out: {', '.join(self.disabled)})"
        if not meant or parts:
            remedy += "; a plugin of your own is found once it is installed: pip install -e FOLDER"
        return UnknownComponentError(f"no {kind} is called {name!r}{meant}", remedy)


def alias_text(component: Component, alias: Alias) -> tuple[str, str]:
    """Return what a name leads to and how it differs, and what to type for it."""
    named = f"--{component.kind} {component.name}"
    if component.kind == "head":  # an option of the baseline names it
        named = f"--set baseline.head={component.name}"
    typed = " ".join([named, *(f"--set {setting}" for setting in alias.options)])
    return f"it is {component.kind} {component.name!r} here, {alias.differs}", typed


def load_catalogue(
    *,
    plugins: Sequence[object] = (),
    entry_points: bool = True,
    disabled: Collection[str] | None = None,
    made_with: Mapping[Key, Origin] | None = None,
    kinds: Collection[Kind] = KINDS,
) -> Catalogue:
    """Load plugins and collect their components.

    Every call builds its own manager. A plugin's error does not end the call: it becomes one of
    ``problems``, and the other plugins keep working.

    With ``made_with`` plugins are loaded in three stages: its plugins of ``kinds``, all its plugins, and all
    plugins. Each stage but the first is another call, made once, when a name is missing from those before.

    Args:
        plugins: Plugin objects to register in addition to the installed ones.
        entry_points: Whether to load installed plugins.
        disabled: Names of installed plugins to skip; None reads the environment variable
            ``LW2G_DISABLE_PLUGINS`` (names separated by commas).
        made_with: Who offered the components of the run or the model that is opened, by kind and name; a name
            that several plugins register stays that of its own. None or empty: all are loaded at once.
        kinds: Kinds of ``made_with`` whose plugins are loaded at once.
    """
    if disabled is None:
        disabled = disabled_plugins() if entry_points else ()
    made_with = made_with or {}
    wanted: Callable[[Origin], bool] | None = None
    rest: Callable[[], Catalogue] | None = None
    if made_with:
        wanted = _plugins_of(made_with, kinds)
        is_second_stage = set(kinds) == set(KINDS)
        next_stage = functools.partial(
            load_catalogue,
            plugins=plugins,
            entry_points=entry_points,
            disabled=disabled,
            made_with=None if is_second_stage else made_with,
        )
        rest = functools.cache(next_stage)
    loaded = load_plugins(plugins=plugins, from_entry_points=entry_points, disabled=disabled, wanted=wanted)
    problems = list(loaded.problems)
    refused: dict[Key, Problem] = {}
    usable = _usable(loaded, made_with, refused, problems)
    entries = _unambiguous(usable, refused, problems)
    return Catalogue(
        entries=entries,
        refused=refused,
        problems=tuple(problems),
        disabled=loaded.disabled,
        made_with=made_with,
        rest=rest,
    )


def _plugins_of(made_with: Mapping[Key, Origin], kinds: Collection[Kind]) -> Callable[[Origin], bool]:
    """Return the test whether a plugin offered components of some kinds to a run or a model."""
    its_plugins = {origin.key for (kind, _), origin in made_with.items() if kind in kinds}

    def wanted(origin: Origin) -> bool:
        return origin.key in its_plugins

    return wanted


def _usable(
    loaded: PluginSet, made_with: Mapping[Key, Origin], refused: dict[Key, Problem], problems: list[Problem]
) -> list[Registered]:
    """Return the components whose records can be used, and add the others to ``refused`` and ``problems``."""
    usable = []
    for entry in _collect(loaded, problems):
        if made_with and not _stays(entry, made_with):
            continue
        problem = _refusal(entry)
        if problem is None:
            usable.append(entry)
        else:
            refused[entry.key] = problem
            problems.append(problem)
    return usable


def _unambiguous(
    usable: Sequence[Registered], refused: dict[Key, Problem], problems: list[Problem]
) -> dict[Key, Registered]:
    """Return the components whose name is theirs alone, and add clashes to ``refused`` and ``problems``."""
    # names are made unique before they are compared: a stranger's clash with lw2g's is none
    by_key: dict[Key, list[Registered]] = {}
    for entry in _with_own_names(usable, problems):
        by_key.setdefault(entry.key, []).append(entry)
    for key, rivals in by_key.items():
        if len(rivals) > 1:  # no order of installation decides which one is meant
            clash = clashes(*key, [entry.origin for entry in rivals])
            refused[key] = clash[0]
            problems.extend(clash)
    entries = {}
    for key, rivals in by_key.items():
        # a key may also be refused because one of its records cannot be used
        if key not in refused:
            entries[key] = rivals[0]
    return entries


def _stays(entry: Registered, made_with: Mapping[Key, Origin]) -> bool:
    """Whether a name stands for this component, if a run or a model is opened that has its own from there.

    A name that it has not is looked up among all plugins: a stranger's may be one that lw2g has, or clash.
    """
    origin = entry.origin
    known = made_with.get(entry.key)
    if known is None:
        return origin.first_party or origin.distribution is None
    return _is_of(origin, known)


def _is_of(origin: Origin, known: Origin | None) -> bool:
    """Whether a component comes from where a run or a model has it from, as far as that is known.

    Its plugin may have another name by now.
    """
    return known is None or known.distribution in (None, origin.distribution)


def _collect(loaded: PluginSet, problems: list[Problem]) -> Iterable[Registered]:
    """Yield the components of all plugins, in the order of hooks."""
    for hook, expected in HOOKS.items():
        for component, origin in records_of(loaded, hook, expected, problems):
            yield Registered(component=component, origin=origin)


def _with_own_names(entries: Sequence[Registered], problems: list[Problem]) -> Iterable[Registered]:
    """Yield components; a stranger's whose name lw2g has itself is called ``distribution:name``."""
    ours = {entry.key for entry in entries if entry.origin.first_party}
    for entry in entries:
        if entry.origin.first_party or entry.key not in ours:
            yield entry
            continue
        qualified, problem = own_name(*entry.key, entry.origin)
        problems.append(problem)
        yield Registered(component=attrs.evolve(entry.component, name=qualified), origin=entry.origin)


def _refusal(entry: Registered) -> Problem | None:
    """Return why a record cannot be used, or None; the check runs code of its config class."""
    kind, name = entry.key
    raised: list[Problem] = []
    fails = f"registers {kind} {name!r} whose config fails"
    fault = attempt(lambda: fault_of(entry.component), entry.origin, fails, raised)
    if raised:
        return raised[0]
    return None if fault is None else Problem.of(entry.origin, fault)
