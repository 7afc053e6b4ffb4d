"""Experiments as TOML, and JSON files: reading them, parsing one value, writing a resolved configuration."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from lw2g.config.model import BackboneChoice, Chosen, ExperimentConfig, Resolved
from lw2g.config.structure import NONE, unstructure
from lw2g.errors import ConfigError, DataError

__all__ = [
    "dump_resolved",
    "flat",
    "parse_json",
    "parse_value",
    "read_json",
    "read_text",
    "read_toml",
    "to_mapping",
    "to_toml",
]

_MAY_BE_EMPTY = ("evidence", "trackers")
"""Sections that say nothing where nothing stands in them; no constraint is a choice."""
_DEEPEST = 50
"""Levels of JSON that are read; nothing that lw2g writes has half as many."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        ConfigError: It cannot be read or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{str(path)!r} cannot be read: {error.strerror}; give the path of a TOML file"
        ) from error
    except ValueError as error:  # no TOML, no UTF-8, or a number of too many digits
        raise ConfigError(f"{str(path)!r} is no TOML: {str(error).partition(';')[0]}") from error
    except RecursionError as error:
        raise ConfigError(f"{str(path)!r} is no TOML that can be read: nested too deeply") from error


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: It cannot be read or is no JSON.
    """
    return parse_json(read_text(path), path)


def read_text(path: Path) -> str:
    """Read a file of a run, every character as it lies there.

    Raises:
        DataError: It cannot be read or is no text.
    """
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read: {error.strerror}; give a run's directory") from error
    except ValueError as error:
        raise DataError(f"{str(path)!r} is no text ({error}); restore the file") from error


def parse_json(text: str, path: Path) -> Any:
    """Return the value of a JSON file's text.

    Raises:
        DataError: It is no JSON, or nested too deeply for those who go through it.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).partition(";")[0]
        raise DataError(f"{str(path)!r} is no JSON: {reason}; restore the file") from error
    level = [found]
    for _ in range(_DEEPEST):
        if not level:
            return found
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    raise DataError(f"{str(path)!r} is nested too deeply; restore the file")


def parse_value(text: str) -> Any:
    """Read one TOML value; what is none is taken as a string, but for the numbers TOML is strict about.

    >>> parse_value("[1, 2]"), parse_value("0.5"), parse_value(".5"), parse_value("joint")
    ([1, 2], 0.5, 0.5, 'joint')
    """
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return float(text) if re.fullmatch(r"[+-]?(\d+\.|\.\d+)(e[+-]?\d+)?", text) else text
    return table["value"] if table.keys() == {"value"} else text


def to_mapping(config: ExperimentConfig) -> dict[str, Any]:
    """Return the configuration as nested plain values in the layout of the TOML file; None stays None."""
    return {
        "baseline": _section(config.baseline),
        "retrieval": None if config.retrieval is None else _section(config.retrieval),
        "policy": _section(config.policy),
        "evidence": {chosen.name: unstructure(chosen.config) for chosen in config.evidence},
        "constraints": {chosen.name: unstructure(chosen.config) for chosen in config.constraints},
        "benchmark": _section(config.benchmark),
        "backbone": _section(config.backbone),
        "growth": unstructure(config.growth),
        "routing": unstructure(config.routing),
        "run": unstructure(config.run),
        "trackers": {chosen.name: unstructure(chosen.config) for chosen in config.trackers},
    }


def to_toml(config: ExperimentConfig) -> str:
    """Return the configuration as a complete TOML file, which resolves to an equal configuration.

    An option without a value is written as ``"none"``, so that no preset can fill it when the file is read
    again.
    """
    sections = {name: value for name, value in to_mapping(config).items() if value is not None}
    sections = {name: value for name, value in sections.items() if value or name not in _MAY_BE_EMPTY}
    return tomli_w.dumps(_without_null(sections))


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by their dotted keys; the word ``none`` is None.

    >>> flat({"run": {"seed": 1}, "retrieval": "none"})
    {'run.seed': 1, 'retrieval': None}
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = None if value == NONE else value
    return found


def dump_resolved(resolved: Resolved) -> str:
    """Return the configuration as TOML with a comment that names its preset."""
    return f"# preset: {resolved.preset}\n\n{to_toml(resolved.config)}"


def _section(chosen: Chosen | BackboneChoice) -> dict[str, Any]:
    section: dict[str, Any] = {"name": chosen.name}
    if isinstance(chosen, BackboneChoice):
        section["weights"] = None if chosen.weights is None else str(chosen.weights)
        section["image_size"] = chosen.image_size
    return section | unstructure(chosen.config)


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_null(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    return NONE if value is None else value
