"""Benchmarks that continue a run: resolves them, and stores them next to the run's configuration."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from lw2g.config.settings import Chosen
from lw2g.config.structure import NONE, structure, unstructure
from lw2g.config.toml import read_toml
from lw2g.errors import ConfigError
from lw2g.interfaces.options import options_of_role, types_of
from lw2g.registry.catalogue import Catalogue

__all__ = [
    "dump_source",
    "load_source",
    "lost_places",
    "moved_source",
    "named_options",
    "place_options",
    "places_of",
    "resolve_source",
]

_SECTION = "benchmark."


def resolve_source(catalogue: Catalogue, name: str, overrides: Mapping[str, Any]) -> Chosen:
    """Return a benchmark with its options.

    Args:
        catalogue: Holds the benchmark.
        name: Its name.
        overrides: Options by their dotted keys, such as ``{"benchmark.increment": 5}``.

    Raises:
        ConfigError: An option is unknown or belongs to another section.
        UnknownComponentError: There is no such benchmark.
    """
    component = catalogue.get("benchmark", name)
    strange = [key for key in overrides if not key.startswith(_SECTION)]
    if strange:
        raise ConfigError(
            f"{strange[0]}: a run continues as it is configured; only benchmark.* can be set for new classes",
            "for other choices see lw2g fork",
        )
    options = {}
    for key, value in {**component.like_for_like, **overrides}.items():
        if key.startswith(_SECTION):  # like-for-like has options of the backbone as well
            options[key.removeprefix(_SECTION)] = value
    return _structured(name, component.config, options)


def moved_source(chosen: Chosen, settings: Mapping[str, Any]) -> Chosen:
    """Return a benchmark whose data lie elsewhere.

    Args:
        chosen: The benchmark.
        settings: By dotted keys, options that no result depends on (their role is ``"machine"``).

    Raises:
        ConfigError: Another option is among them, or a value does not fit.
    """
    kind = type(chosen.config)
    places = [_SECTION + name for name in options_of_role(kind, "machine")]
    strange = [key for key in settings if key not in places]
    if strange:
        may = f"say where its data lie now ({', '.join(places)})" if places else "leave it out"
        raise ConfigError(
            f"--set {strange[0]}: a run continues as it is configured",
            f"{may}, name a --benchmark with new classes, or see lw2g fork",
        )
    named = {key.removeprefix(_SECTION): value for key, value in settings.items()}
    return _structured(chosen.name, kind, unstructure(chosen.config) | named)


def place_options(config_class: type[Any]) -> list[str]:
    """Return the names of the options of a benchmark that say where its data lie.

    They are of role ``"machine"`` and of a type that takes a path, or several.
    """
    hints = types_of(config_class)
    return [name for name in options_of_role(config_class, "machine") if _takes_path(hints[name])]


def _takes_path(hint: Any) -> bool:
    return hint is Path or any(map(_takes_path, typing.get_args(hint)))


def places_of(chosen: Chosen) -> dict[str, list[Path]]:
    """Return where the data of a benchmark lie, by dotted keys of the options that say so."""
    places = {}
    for name in place_options(type(chosen.config)):
        value = getattr(chosen.config, name)
        listed = value if isinstance(value, list | tuple) else [value]
        if found := [place for place in listed if isinstance(place, Path)]:
            places[_SECTION + name] = found
    return places


def lost_places(chosen: Chosen) -> list[str]:
    """Return, by dotted keys, the options of a benchmark that name a place where nothing lies."""
    return [key for key, found in places_of(chosen).items() if not all(place.exists() for place in found)]


def _structured(name: str, kind: type[Any], options: Mapping[str, Any]) -> Chosen:
    config, problems = structure(kind, options)
    if config is None:
        lines = [f"{_SECTION}{key}: {text}" for key, text in problems]
        raise ConfigError("\n".join(lines))
    return Chosen(name=name, config=config)


def dump_source(chosen: Chosen) -> str:
    """Return a benchmark as TOML."""
    options = {key: NONE if value is None else value for key, value in unstructure(chosen.config).items()}
    return tomli_w.dumps({"benchmark": {"name": chosen.name, **options}})


def load_source(catalogue: Catalogue, path: Path) -> Chosen:
    """Return the benchmark that :func:`dump_source` wrote.

    Raises:
        ConfigError: It cannot be read, or an option no longer exists.
        UnknownComponentError: The benchmark no longer exists.
    """
    table = read_toml(path)["benchmark"]
    return resolve_source(catalogue, *named_options(table))


def named_options(table: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a benchmark in a table, and its options there by their dotted keys."""
    options = {_SECTION + key: value for key, value in table.items()}
    return options.pop(_SECTION + "name"), options
