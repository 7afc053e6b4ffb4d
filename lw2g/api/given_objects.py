"""Objects of a Python program as components: classes, instances and functions get a record made for them.

Their names begin with ``local-``, in configurations and records too, so that a reader sees that they are
not installed. Images become the benchmark ``given``.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import attrs

from lw2g.config.settings import MODEL_KINDS, ExperimentConfig
from lw2g.errors import ConfigError, error_text, shown
from lw2g.ground.docstrings import docstring
from lw2g.ground.spelling import expands_paths
from lw2g.interfaces.component import KINDS, Component, Kind, Lazy, NoOptions
from lw2g.interfaces.declared import misspelt_in
from lw2g.interfaces.defaults import GIVEN_BENCHMARK, OWN_FAMILY
from lw2g.interfaces.tracker import Event, Tracker
from lw2g.registry.catalogue import LOCAL, Catalogue, load_catalogue
from lw2g.registry.kinds import COMPONENTS
from lw2g.registry.manager import OF_PROGRAM
from lw2g.registry.markers import hookimpl
from lw2g.runtime.shield import Shield

__all__ = ["Locals", "as_names", "catalogue_of", "split_trackers"]

_WITH_THE_BACKBONE = ("baseline", "retrieval", "constraint")
"""Kinds that a run builds with its own context, so that an instance cannot exist before."""
_POLICY_DEFAULTS = {"margin": 0.0, "burden": None}
"""What a policy may leave out."""
_FIELD_DEFAULTS: Mapping[Kind, Mapping[str, Any]] = {
    "benchmark": {"family": OWN_FAMILY},
}
"""Fields of a kind's record that an object may leave out, where the record itself asks for them."""
_MADE = {"name", "config", "build", "summary"}
"""Fields that are made of the object itself, whatever its attributes say."""


class Locals:
    """The objects that a call was given in place of names, and the catalogue that knows them."""

    def __init__(self) -> None:
        self._records: dict[str, list[Component]] = {}
        self._images: Any = None

    @classmethod
    def of(cls, objects: Mapping[str, Any] | None) -> Locals:
        """Return those of the argument ``local``, kind -> object or list of objects."""
        made = cls()
        for kind, value in (objects or {}).items():
            if kind not in COMPONENTS:
                raise ConfigError(f"local: no such kind {kind!r}", f"kinds are: {', '.join(COMPONENTS)}")
            known = cast("Kind", kind)
            # where a kind has one component, a list is the object itself, such as the images of a benchmark
            objects_of_kind = _listed(value) if COMPONENTS[known].several else [value]
            for one in objects_of_kind:
                made.name(known, one)
        return made

    def name(self, kind: Kind, value: Any) -> Any:
        """Return the name of a component; register it if it is an object."""
        if value is None or isinstance(value, str):
            return value
        if kind == "benchmark" and not (isinstance(value, Component | type) or hasattr(value, "stream")):
            self._images = value
            return GIVEN_BENCHMARK
        record = _record(kind, value)
        self._records.setdefault(COMPONENTS[kind].hook, []).append(record)
        return record.name

    def catalogue(self, directory: Path | None = None, kinds: Collection[Kind] = KINDS) -> Catalogue:
        """Load all components, these included.

        Args:
            directory: A run or a model that is opened with them: it names its plugins, and the others are
                loaded when it lacks one. None for all at once.
            kinds: As for :func:`lw2g.registry.catalogue.load_catalogue`.
        """
        known = None
        if directory is not None:
            from lw2g.disk.origins import made_with

            known = made_with(directory)

        # a plugin is a module with hooks: one is made of the records, and found as all others are
        module: Any = ModuleType(OF_PROGRAM)
        for hook, records in self._records.items():
            setattr(module, hook, hookimpl(_returning(records)))
        plugins = [module] if self._records else []
        catalogue = load_catalogue(plugins=plugins, made_with=known, kinds=kinds)
        if self._images is not None:
            # its options are plain values, as those of every component; the images are passed in addition
            given = catalogue.get("benchmark", GIVEN_BENCHMARK)
            build = Lazy(given.build.target, {"images": self._images})  # type: ignore[attr-defined]
            catalogue = catalogue.with_component(attrs.evolve(given, build=build))
        return catalogue

    def require_reach(self, config: ExperimentConfig, devices: int | None = None) -> None:
        """Refuse further processes that cannot have the objects.

        Raises:
            ConfigError: The run has several processes, or workers to which the objects must be pickled.
        """
        if (devices or config.run.devices) > 1 and (self._records or self._images is not None):
            raise ConfigError(
                "run.devices: objects of this program exist in one process only",
                "leave devices out, or write a plugin (lw2g new-plugin)",
            )
        import multiprocessing  # slow to import, and seldom asked

        # auto takes no workers where they are not forked
        if config.run.workers not in (0, "auto") and multiprocessing.get_start_method() != "fork":
            try:
                pickle.dumps(self._images)
            except Exception as error:  # whatever its __reduce__ raises
                raise ConfigError(
                    f"run.workers: the images cannot be pickled for other processes ({error_text(error)})",
                    "define their class in a module, or leave run.workers at 0",
                ) from error


def _returning(records: Sequence[Component]) -> Callable[[], Sequence[Component]]:
    """Return a hook that returns these records."""

    def hook() -> Sequence[Component]:
        return records

    return hook


@expands_paths
def catalogue_of(
    objects: Mapping[str, Any] | None,
    directory: str | Path,
    *,
    goes_on: bool = False,
    devices: int | None = None,
) -> Catalogue:
    """Return the components of a run or a model, and the objects of the argument ``local``.

    Args:
        objects: The objects, by kind.
        directory: The run or the model.
        goes_on: Whether it is a run that goes on with them; else it is used as a model.
        devices: Number of its processes from now on; None for the configured number.

    Raises:
        ConfigError: The run has processes that would lack the objects.
    """
    local = Locals.of(objects)
    catalogue = local.catalogue(Path(directory), KINDS if goes_on else MODEL_KINDS)
    if objects and goes_on:
        from lw2g.disk.stored_run import resolved_of

        local.require_reach(resolved_of(Path(directory), catalogue).config, devices)
    return catalogue


def as_names(kind: Kind, value: Any, local: Locals) -> tuple[str, ...] | None:
    """Return names from one name or object, or a list of them; None stays."""
    if value is None:
        return None
    return tuple(local.name(kind, one) for one in _listed(value))


def _listed(value: Any) -> Sequence[Any]:
    """Return a list as it is, and anything else as a list of one."""
    if isinstance(value, list | tuple):
        return value
    return [value]


def _record(kind: Kind, thing: Any) -> Component:
    """Return the record of what a program gives in place of a component's name.

    Args:
        kind: The kind of the component.
        thing: A record, a network (of a backbone), a class, an instance or a function.

    Raises:
        ConfigError: The object cannot be such a component.
    """
    if type(thing).__module__ == "builtins" and not callable(thing):  # a number, a table
        raise ConfigError(
            f"{kind}: {shown(thing)} is no name and no {kind}", f"`lw2g plugins {kind}` lists the names"
        )
    if isinstance(thing, COMPONENTS[kind]):
        if thing.name.startswith(LOCAL):
            return thing
        return attrs.evolve(thing, name=LOCAL + thing.name)
    if kind == "backbone":
        # imports torch, which a program without a model may do without
        from lw2g.api.model_object import architecture_of, model_component

        return model_component(LOCAL + _kebab(architecture_of(thing), kind), thing)
    instance_too_early = kind in _WITH_THE_BACKBONE and not isinstance(thing, type)
    if instance_too_early or isinstance(thing, Component):
        raise ConfigError(
            f"{kind}: {_own_name(thing)!r} is no class of a {kind}",
            "give the class; the run builds it with its backbone",
        )
    if kind == "baseline":
        # imports torch, which a program without a model may do without
        from lw2g.interfaces.baseline import Baseline

        if not issubclass(thing, Baseline):
            raise ConfigError(
                f"baseline: {_own_name(thing)!r} is no subclass of lw2g.plugin.Baseline",
                "`lw2g new-plugin NAME --kind baseline` writes one",
            )
    return _made_record(kind, thing)


def _made_record(kind: Kind, thing: Any) -> Component:
    """Make the record of a class, an instance or a function.

    Its attributes with the names of the record's fields (``growth``, ``measures``, ``default_constraints``,
    ...) set them, and a class ``Config`` declares options.
    """
    own_name = _own_name(thing)
    _require_no_misspelt(kind, thing)
    fields: dict[str, Any] = {
        **_FIELD_DEFAULTS.get(kind, {}),
        **_attributes_for(COMPONENTS[kind], thing),
        "name": LOCAL + _kebab(own_name, kind),
        "config": getattr(thing, "Config", NoOptions),  # without the class it has no options
        "build": _builder(kind, thing),
        "summary": (docstring(thing) or own_name).splitlines()[0],
    }
    return COMPONENTS[kind](**fields)


def _attributes_for(record: type[Component], thing: Any) -> dict[str, Any]:
    """Return the attributes of an object that have the name of a field of a record."""
    names = (field.name for field in attrs.fields(record))
    return {name: getattr(thing, name) for name in names if hasattr(thing, name)}


def _require_no_misspelt(kind: Kind, thing: Any) -> None:
    """Refuse a value of a class, or of a function, whose name is nearly that of a field that it does not set.

    Raises:
        ConfigError: There is one.
    """
    fields = {field.name for field in attrs.fields(COMPONENTS[kind])} - _MADE
    if kind == "policy":
        fields |= set(_POLICY_DEFAULTS)
    unset = [name for name in fields if not hasattr(thing, name)]
    owner = thing if isinstance(thing, type) or inspect.isroutine(thing) else type(thing)
    misspelt = misspelt_in(owner, fields, unset)
    if misspelt is not None:
        name, meant = misspelt
        raise ConfigError(
            f"{kind} {_own_name(thing)!r}: no field {name!r} (did you mean {meant!r}?)",
            f"rename it; an attribute of your own may be called {'_' + name!r}",
        )


def _own_name(thing: Any) -> str:
    """Return the name of a class or a function, or that of an instance's class."""
    return str(getattr(thing, "__name__", type(thing).__name__))


def _kebab(name: str, kind: str) -> str:
    """Return a class's name as the name of a component.

    >>> _kebab("MyLoRA_2", "baseline"), _kebab("<lambda>", "policy")
    ('my-lo-ra-2', 'policy')
    """
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower())
    if not words or words == ["lambda"]:
        return kind
    return "-".join(words)


def _builder(kind: Kind, thing: Any) -> Callable[..., Any]:
    """Return the ``build`` of a record; a class takes as many of its last arguments as it can."""
    if isinstance(thing, type):
        count = _arguments(kind, thing)

        def make(*arguments: Any) -> Any:
            """Make an object of the class."""
            # options come first: a class that takes fewer arguments does without them
            first = max(len(arguments) - count, 0)
            return thing(*arguments[first:])

    elif kind == "policy" and inspect.isroutine(thing):
        taken = _arguments(kind, thing)

        def make(*arguments: Any) -> Any:
            return _FunctionPolicy(thing, taken)

    else:

        def make(*arguments: Any) -> Any:
            return copy.deepcopy(thing)  # every run begins with it as it was given

    def build(*arguments: Any) -> Any:
        """Make the object; a policy that does not say its margin and its burden gets the usual ones."""
        made = make(*arguments)
        if kind == "policy":
            for name, value in _POLICY_DEFAULTS.items():
                if not hasattr(made, name):
                    setattr(made, name, value)
        return made

    build.__wrapped__ = thing  # type: ignore[attr-defined]  # whose lines messages name
    return build


def _arguments(kind: Kind, thing: Callable[..., Any]) -> int:
    """Return how many positional arguments a function or class takes.

    Raises:
        ConfigError: It does not say, as some that are written in C.
    """
    try:
        parameters = inspect.signature(thing).parameters.values()
    except ValueError as error:
        raise ConfigError(
            f"{kind}: {_own_name(thing)!r} is no {kind}: it does not say what arguments it takes",
            f"give one written in Python; `lw2g plugins {kind}` lists the names",
        ) from error
    kinds = [parameter.kind for parameter in parameters]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 2  # no builder is given more
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(kind in by_place for kind in kinds)


class _FunctionPolicy:
    """A growth policy from ``function(evidence)`` or ``function(evidence, rng)``."""

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        self._function = function
        self._count = count

    def decide(self, evidence: Any, rng: Any) -> Any:
        """Return the function's decision."""
        return self._function(*(evidence, rng)[: self._count])


# -- trackers --------------------------------------------------------------------------------------------


class _Callback:
    """A tracker from an object without ``close``, or from a function of an event."""

    def __init__(self, thing: Any) -> None:
        self._receive: Callable[[Event], Any] = getattr(thing, "on_event", thing)
        self._close: Callable[[], Any] = getattr(thing, "close", lambda: None)

    def on_event(self, event: Event) -> None:
        """Pass an event on."""
        self._receive(event)

    def close(self) -> None:
        """Close the object if it can be closed."""
        self._close()


def _listener_of(thing: Any) -> Tracker:
    """Return the tracker of an object with ``on_event``, or of a function that takes an event.

    Its errors become warnings of the run, as those of every tracker.

    Raises:
        ConfigError: It is neither.
    """
    own_name = _own_name(thing)
    if isinstance(thing, type) or not (hasattr(thing, "on_event") or callable(thing)):
        raise ConfigError(
            f"trackers: {own_name!r} receives no events",
            "give a name, an object with on_event, or a function",
        )
    return Shield(f"tracker {own_name!r}", lambda: _Callback(thing))


def split_trackers(trackers: Any) -> tuple[list[str], Sequence[Tracker]]:
    """Return the names among trackers, and the others as listeners."""
    names = []
    listeners = []
    for one in _listed(() if trackers is None else trackers):
        if isinstance(one, str):
            names.append(one)
        else:
            listeners.append(_listener_of(one))
    return names, listeners
