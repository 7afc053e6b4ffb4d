"""Reads TOML and JSON files, parses single values, and writes resolved configurations."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from lw2g.config.settings import OWN_SECTIONS, BackboneChoice, Chosen, ExperimentConfig, Resolved
from lw2g.config.structure import NONE, unstructure
from lw2g.errors import ConfigError, DataError, misspelt, shown
from lw2g.ground.texts import text_of
from lw2g.interfaces.tables import leaves
from lw2g.registry.kinds import COMPONENTS, SECTIONS

__all__ = [
    "dump_resolved",
    "flat",
    "is_deeper",
    "parse_json",
    "parse_value",
    "read_json",
    "read_text",
    "read_toml",
    "to_mapping",
    "to_toml",
]

_MAY_BE_EMPTY = ("carry", "evidence", "head", "trackers")
"""Sections omitted if empty; an empty [constraints] is a choice."""
_DEEPEST = 50
"""The deepest nesting of files that is read; lw2g writes less than half of it."""
_LONGEST_KEY = 32
"""The most parts of a dotted key that are read: the steps of tomllib grow with their square."""
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
# possessive quantifiers: what is no key is not tried again in another way
_LONG_KEY = re.compile(rf"(?:\.[ \t]*+{_PART}[ \t]*+){{{_LONGEST_KEY}}}")
_TWICE = re.compile(r"(?:Cannot (?:declare|mutate|overwrite|redefine)|Duplicate) .*\(at (?:line (\d+)|end)")
"""What tomllib says of a key that stands twice, and in which line it ends."""


def read_toml(path: Path, example: str = "lw2g config") -> dict[str, Any]:
    """Read a TOML file.

    Args:
        path: The file.
        example: The command that shows how such a file is written.

    Raises:
        ConfigError: It cannot be read, is not TOML, or is nested too deeply for recursive functions.
    """
    text = ""
    remedy = f"correct it; `{example}` shows how one is written"
    try:
        text = text_of(path)
        if _LONG_KEY.search(text):  # before tomllib sees it
            raise ConfigError(f"{str(path)!r} has a key of more than {_LONGEST_KEY} parts", "shorten it")
        content = tomllib.loads(text)
    except IsADirectoryError as error:
        raise ConfigError(f"{str(path)!r} is a folder and no TOML file", "give the path of one") from error
    except OSError as error:
        hint = misspelt(path, folders=False) if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(
            f"{str(path)!r} cannot be read: {error.strerror}{hint}", "give the path of a TOML file"
        ) from error
    except ValueError as error:  # no TOML, no UTF-8, or a number of too many digits
        raise ConfigError(f"{str(path)!r} is no TOML: {_reason_in(text, error)}", remedy) from error
    except RecursionError as error:
        raise ConfigError(f"{str(path)!r} is no TOML that can be read: nested too deeply", remedy) from error
    if is_deeper(content, _DEEPEST):
        raise ConfigError(f"{str(path)!r} is nested too deeply")
    return content


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        DataError: It cannot be read or is not JSON.
    """
    return parse_json(read_text(path), path)


def read_text(path: Path) -> str:
    """Read a text file of a run without translating line ends.

    Raises:
        DataError: It cannot be read or is not text.
    """
    try:
        return text_of(path)
    except OSError as error:
        is_mine = not isinstance(error, PermissionError)
        remedy = "give a run's directory" if is_mine else "give yourself the right to read it"
        raise DataError(f"{str(path)!r} cannot be read: {error.strerror}", remedy) from error
    except ValueError as error:
        raise DataError(f"{str(path)!r} is no text", "restore the file, or give another one") from error


def parse_json(text: str, path: Path) -> Any:
    """Return the value of a JSON file's text.

    Raises:
        DataError: It is not JSON, or is nested too deeply for recursive functions.
    """
    try:
        content = json.loads(text)
    except RecursionError as error:
        raise DataError(f"{str(path)!r} is no JSON: nested too deeply", "restore the file") from error
    except ValueError as error:
        raise DataError(f"{str(path)!r} is no JSON: {_reason(error)}", "restore the file") from error
    if is_deeper(content, _DEEPEST):
        raise DataError(f"{str(path)!r} is nested too deeply", "restore the file")
    return content


def _reason_in(text: str, error: ValueError) -> str:
    """Return what a parser says of a TOML text; of a key that stands twice, where."""
    found = _TWICE.match(str(error))
    if found is None:
        return _reason(error)
    lines = text.rstrip().split("\n")
    number = int(found[1] or len(lines))
    return f"a key stands twice, again in line {number}: {shown(lines[number - 1].strip())}"


def _reason(error: ValueError) -> str:
    """Return what a parser says, without a remedy of Python.

    Of a number with more than 4300 digits Python says "...; use sys.set_int_max_str_digits() to increase the
    limit", which no user of lw2g can do.
    """
    if isinstance(error, UnicodeDecodeError):
        return "it holds no text"
    return str(error).partition(";")[0]


def is_deeper(content: Any, levels: int) -> bool:
    """Return whether lists and tables are nested in more than some levels; without recursion.

    >>> is_deeper({"a": [1]}, 2), is_deeper({"a": [1]}, 1)
    (False, True)
    """
    # level by level: a file of strangers may be nested deeper than Python can recurse
    level = [content]
    for _ in range(levels):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
        if not below:
            return False
        level = below
    return any(isinstance(value, dict | list) for value in level)


def parse_value(text: str) -> Any:
    """Read one TOML value; other text becomes a float if it looks like ``.5`` or ``1.``, else a string.

    >>> parse_value("[1, 2]"), parse_value("0.5"), parse_value(".5"), parse_value("joint")
    ([1, 2], 0.5, 0.5, 'joint')
    """
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        if re.fullmatch(r"[+-]?(\d+\.|\.\d+)(e[+-]?\d+)?", text):
            return float(text)
        return text
    if table.keys() != {"value"}:  # the text had further lines
        return text
    return table["value"]


def to_mapping(config: ExperimentConfig) -> dict[str, Any]:
    """Return the configuration as nested plain values in the layout of the TOML file; None stays None."""
    tables: dict[str, Any] = {}
    for section, record in SECTIONS.items():
        tables[section] = {} if record.several else None
    for kind, component in config.chosen():
        record = COMPONENTS[kind]
        if record.several:  # a table for each, by its name
            tables[record.section][component.name] = unstructure(component.config)
        else:
            tables[record.section] = _section(component)
    for section in OWN_SECTIONS:
        tables[section] = unstructure(getattr(config, section))
    return tables


def to_toml(config: ExperimentConfig) -> str:
    """Return the configuration as a complete TOML file, which resolves to an equal configuration.

    None is written as ``"none"``, so that no preset fills the option when the file is read again.
    """
    sections = {}
    for name, value in to_mapping(config).items():
        if value is None or (not value and name in _MAY_BE_EMPTY):
            continue
        sections[name] = _without_null(value)
    return tomli_w.dumps(sections)


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of nested tables by their dotted keys; the word ``none`` is None.

    >>> flat({"run": {"seed": 1}, "retrieval": "none"})
    {'run.seed': 1, 'retrieval': None}
    """
    return {key: None if value == NONE else value for key, value in leaves(table)}


def dump_resolved(resolved: Resolved) -> str:
    """Return the configuration as TOML, with its preset in a comment."""
    return f"# preset: {resolved.preset}\n\n{to_toml(resolved.config)}"


def as_toml_holds(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return tables as a TOML file would give them back, with the word ``NONE`` for None.

    Raises:
        ConfigError: A value has no form in TOML.
    """
    try:
        return tomllib.loads(tomli_w.dumps(_without_null(content)))
    except TypeError as error:
        raise ConfigError(f"{name}: {error}", "give texts, numbers, lists and dicts alone") from error


def _section(chosen: Chosen | BackboneChoice) -> dict[str, Any]:
    section: dict[str, Any] = {"name": chosen.name}  # first, as people write it
    if isinstance(chosen, BackboneChoice):
        section["weights"] = None if chosen.weights is None else str(chosen.weights)
        section["image_size"] = chosen.image_size
    return section | unstructure(chosen.config)


def _without_null(value: Any) -> Any:
    """Return a value with the word ``NONE`` for None, which TOML does not have."""
    if isinstance(value, Mapping):
        return {key: _without_null(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    if value is None:
        return NONE
    return value
