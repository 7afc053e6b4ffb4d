"""The command that makes a run again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from lw2g.config.resolve import resolve
from lw2g.config.structure import NONE
from lw2g.config.toml import flat, to_mapping
from lw2g.errors import ConfigError, Lw2gError
from lw2g.interfaces.component import Kind
from lw2g.registry.catalogue import Catalogue
from lw2g.report.runs import Run

__all__ = ["command_of"]

_NAMED: tuple[Kind, ...] = ("baseline", "policy", "benchmark", "backbone")


def command_of(run: Run, catalogue: Catalogue) -> str:
    """Return a command line that resolves to the run's configuration, however it was written.

    What goes without saying today is left out. Where that cannot be told, since a component is not
    installed or knows other options today, the command reads the run's own file.
    """
    origin = run.record.get("origin")
    if origin is not None:
        changed = {one["option"]: one["after"] for one in origin["changed"]}
        return _line("lw2g fork", origin["run"], "--at-task", str(origin["task"] + 1), *_settings(changed))
    try:
        first = _line("lw2g run", *_words(run.config, catalogue))
    except Lw2gError:
        first = _line("lw2g run", str(run.path / "config.toml"), "--out", "NEW")
    return " && ".join([first, *_continued(run)])


def _line(command: str, *words: str) -> str:
    return " ".join([command, *map(shlex.quote, words)])


def _words(config: Mapping[str, Any], catalogue: Catalogue) -> Iterator[str]:
    """Return the words after ``lw2g run``.

    Raises:
        Lw2gError: The configuration does not resolve to itself any more.
    """
    names = {section: config[section]["name"] for section in _NAMED}
    retrieval = (config.get("retrieval") or {}).get("name")
    constraints = list(config["constraints"]) or [NONE]
    wanted = flat({key: value for key, value in config.items() if key != "trackers"})

    def resolved(overrides: Mapping[str, Any]) -> dict[str, Any]:
        said = {key: NONE if value is None else value for key, value in overrides.items()}
        found = resolve(catalogue, overrides=said, retrieval=retrieval, constraints=constraints, **names)
        return flat(to_mapping(found.config))

    needed = {"run.protocol": wanted["run.protocol"]} | {
        f"{section}.{field.name}": wanted[f"{section}.{field.name}"]
        for section, name in names.items()
        for field in attrs.fields(catalogue.get(section, name).config)
        if field.default is attrs.NOTHING
    }
    defaults = resolved(needed)
    changed = {key: value for key, value in wanted.items() if defaults.get(key) != value}
    again = resolved(needed | changed)
    if any(again.get(key) != value for key, value in wanted.items()):
        raise ConfigError(f"{names['baseline']!r}: these options mean something else today")
    for section, name in names.items():
        yield from (f"--{section}", name)
    if retrieval is not None:
        yield from ("--retrieval", retrieval)
    for name in constraints:
        yield from ("--constraint", name)
    yield from _settings(needed | changed | {"run.seed": wanted["run.seed"]})


def _settings(values: Mapping[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        yield from ("--set", f"{key}={_written(value)}")


def _written(value: Any) -> str:
    """Return a value as ``--set`` reads it: TOML, and bare words as they are."""
    if value is None:
        return NONE
    return value if isinstance(value, str) else json.dumps(value)


def _continued(run: Run) -> Iterator[str]:
    for source in run.record.get("sources", ())[1:]:
        benchmark = {f"benchmark.{key}": value for key, value in source["benchmark"].items() if key != "name"}
        name = source["benchmark"]["name"]
        yield _line("lw2g continue", "NEW", "--benchmark", name, *_settings(benchmark))
