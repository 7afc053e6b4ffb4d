"""The command that repeats a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from lw2g.config.resolve import resolve
from lw2g.config.sources import named_options
from lw2g.config.structure import NONE
from lw2g.config.toml import flat, to_mapping
from lw2g.errors import ConfigError, Lw2gError
from lw2g.interfaces.component import Kind
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import ReportedRun

__all__ = ["command_of"]

_NAMED: tuple[Kind, ...] = ("baseline", "policy", "benchmark", "backbone")


def command_of(run: ReportedRun, catalogue: Catalogue) -> str:
    """Return a command line that resolves to the run's configuration.

    It omits today's defaults, and asks for the precision that the run asked for, which the hash of its record
    covers. If a component is not installed or has other options today, the command reads the run's own file.
    """
    origin = run.record.get("origin")
    if origin is not None:
        changed = {change["option"]: change["after"] for change in origin["changed"]}
        return _line("lw2g fork", origin["run"], "--at-task", str(origin["task"] + 1), *_settings(changed))
    try:
        first = _line("lw2g run", *_words(_as_asked(run), catalogue))
    except Lw2gError:  # a component is missing, or an option is new, gone or of another meaning
        file = str(run.path / "config.toml")
        first = _line("lw2g run", file, "--out", "NEW", *_settings(_not_in_file(run)))
    return " && ".join([first, *_continued(run)])


def _line(command: str, *words: str) -> str:
    return " ".join([command, *map(shlex.quote, words)])


def _as_asked(run: ReportedRun) -> Mapping[str, Any]:
    """Return the configuration of a run with the precision that it was asked for."""
    if run.asked_precision is None:
        return run.config
    return {**run.config, "run": {**run.config["run"], "precision": run.asked_precision}}


def _not_in_file(run: ReportedRun) -> dict[str, Any]:
    """Return what a run was asked for and its file does not hold: the file has what precision settled on."""
    asked = run.asked_precision
    return {} if asked == run.options.get("run.precision") else {"run.precision": asked}


def _words(config: Mapping[str, Any], catalogue: Catalogue) -> Iterator[str]:
    """Yield the words after ``lw2g run``.

    Raises:
        Lw2gError: The configuration no longer resolves to itself.
    """
    names = {section: config[section]["name"] for section in _NAMED}
    retrieval = (config.get("retrieval") or {}).get("name")
    constraints = list(config["constraints"]) or [NONE]
    # where a run is shown while it trains changes nothing in it
    trained = dict(config)
    trained.pop("trackers", None)
    wanted = flat(trained)

    def resolved(overrides: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options by dotted keys, as a run would have them with some overrides."""
        written = dict(overrides)
        for key, value in overrides.items():
            if value is None:
                written[key] = NONE
        resolution = resolve(
            catalogue, overrides=written, retrieval=retrieval, constraints=constraints, **names
        )
        return flat(to_mapping(resolution.config))

    # without these nothing resolves: the protocol, which chooses defaults, and options that have none
    needed = {"run.protocol": wanted["run.protocol"]}
    for section, name in names.items():
        for field in attrs.fields(catalogue.get(section, name).config):
            if field.default is attrs.NOTHING:
                key = f"{section}.{field.name}"
                needed[key] = wanted[key]
    defaults = resolved(needed)
    changed = {key: value for key, value in wanted.items() if defaults.get(key) != value}
    # a second time: a changed option may change the defaults of others
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
    """Return a value as ``--set`` reads it: TOML, or a bare word."""
    if value is None:
        return NONE
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _continued(run: ReportedRun) -> Iterator[str]:
    """Yield a command for each benchmark that came after the first."""
    for source in run.record.get("sources", ())[1:]:
        name, options = named_options(source["benchmark"])
        yield _line("lw2g continue", "NEW", "--benchmark", name, *_settings(options))
