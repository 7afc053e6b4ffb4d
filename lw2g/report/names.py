"""What rows are called: the composed components, and every option that has not the value of the preset."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from typing import Any

import attrs

from lw2g.config.describe import OWN_SECTIONS, OptionDescription, describe_options, plain
from lw2g.config.layers import Preset, choose_preset
from lw2g.config.model import BackboneSource
from lw2g.config.protocols import Protocol, choose_protocol
from lw2g.config.structure import NONE, unstructure
from lw2g.interfaces.component import BaselineComponent, BenchmarkComponent, Component, Kind
from lw2g.registry.catalogue import Catalogue
from lw2g.report.runs import OF_THE_MACHINE, Run

__all__ = ["AVERAGED", "OF_THE_TABLE", "Settings", "labels_of", "settings_of"]

AVERAGED = {"run.seed", "benchmark.order", "benchmark.order_seed", "benchmark.class_order"}
"""Options over whose values a row is averaged."""
OF_THE_TABLE = ("benchmark.name", "benchmark.increment", "benchmark.base")
"""Options that all rows of a table share."""
_ALONE: tuple[Kind, ...] = ("baseline", "retrieval", "policy", "benchmark", "backbone")
_SEVERAL: Mapping[str, Kind] = {"evidence": "evidence", "constraints": "constraint"}
_described_once = cache(describe_options)
_CONDITIONS = ("benchmark", "backbone", "run")
"""Sections that say nothing of the method."""


@attrs.frozen(kw_only=True)
class Settings:
    """The options of a run, beside what they are where a user says nothing.

    Attributes:
        values: All but those over which rows are averaged and those of the machine, by dotted keys. An option
            that the run's lw2g did not know has its default.
        preset: What the run's protocol sets; options of components that are not installed are left out.
        published: What options declare as published, as far as they do.
        ours: Options for which the preset holds no value of the authors, but one of lw2g.
        changed: The options that the run's record knows and that have another value than the preset's.
        began: For a fork after which task, and what its parent ran with otherwise; else empty.
    """

    values: Mapping[str, Any]
    preset: Mapping[str, Any]
    published: Mapping[str, Any]
    ours: Set[str]
    changed: Mapping[str, Any]
    began: str


def settings_of(run: Run, catalogue: Catalogue, protocol: str | None = None) -> Settings:
    """Return the options of a run; ``protocol`` replaces the one by which it chose its preset."""
    described = _described(run, catalogue)
    defaults = {key: _plain(one.default) for key, one in described.items()}
    values = defaults | run.options | {"constraints": sorted(run.config["constraints"])}
    protocol = protocol or run.record["protocol"]
    found = _preset(run, catalogue, protocol)
    preset = defaults | {key: _plain(value) for key, value in found.values.items() if key in defaults}
    preset["run.protocol"] = values.get("run.protocol")
    return Settings(
        values={key: value for key, value in values.items() if _tells(key)},
        preset=preset,
        ours=frozenset() if found.preset.official else frozenset(found.values),
        changed={
            key: value
            for key, value in run.options.items()
            if _tells(key) and key not in OF_THE_TABLE and value != preset.get(key, value)
        },
        published={key: _plain(one.published) for key, one in described.items() if one.published is not None},
        began=_began(run),
    )


def _tells(key: str) -> bool:
    """Whether an option tells rows apart."""
    return key not in AVERAGED | OF_THE_MACHINE and not key.startswith("trackers.")


def _plain(value: Any) -> Any:
    """Return a value as records hold it."""
    found = json.loads(json.dumps(unstructure(value)))
    return None if found == NONE else found


def _components(run: Run, catalogue: Catalogue) -> dict[str, Component]:
    """Return the installed components of a run by their sections."""
    config = run.config
    named: list[tuple[str, Kind, Any]] = [
        (kind, kind, (config.get(kind) or {}).get("name")) for kind in _ALONE
    ]
    for section, kind in _SEVERAL.items():
        named += [(f"{section}.{name}", kind, name) for name in config.get(section) or {}]
    return {
        section: catalogue.get(kind, name) for section, kind, name in named if name in catalogue.names(kind)
    }


def _described(run: Run, catalogue: Catalogue) -> dict[str, OptionDescription]:
    """Describe the options of a run by dotted keys, as far as its components are installed."""
    classes = [(name, one.config) for name, one in _components(run, catalogue).items()]
    classes += [*OWN_SECTIONS.items(), ("backbone", BackboneSource)]
    return {f"{section}.{one.name}": one for section, cls in classes for one in _described_once(cls)}  # type: ignore[arg-type]


def _preset(run: Run, catalogue: Catalogue, name: str) -> Protocol:
    """Return what a protocol sets for a run; nothing where its baseline or benchmark is not installed."""
    components = _components(run, catalogue)
    baseline, benchmark = components.get("baseline"), components.get("benchmark")
    if not isinstance(baseline, BaselineComponent) or not isinstance(benchmark, BenchmarkComponent):
        return Protocol(name=name, preset=Preset())
    found = choose_protocol(name, choose_preset(baseline, benchmark.family), baseline, benchmark, [])
    if (run.config.get("retrieval") or {}).get("name") == baseline.retrieval:
        return found
    others = {key: value for key, value in found.values.items() if not key.startswith("retrieval.")}
    return attrs.evolve(found, values=others)


def _began(run: Run) -> str:
    """Say where a fork began, and which options its parents had otherwise."""
    parts, origin = [], run.record.get("origin")
    while origin is not None:
        changed = [one for one in origin.get("changed", ()) if _tells(one["option"])]
        before = ", ".join(f"{one['option']} {plain(one['before'])}" for one in changed)
        parts.append(f"forked after task {origin['task'] + 1}" + (f" from {before}" if before else ""))
        origin = origin.get("origin")
    return ", ".join(parts)


# -- labels ----------------------------------------------------------------------------------------------


def labels_of(
    runs: Sequence[Run], settings: Sequence[Settings], catalogue: Catalogue
) -> tuple[list[str], dict[str, Any]]:
    """Return a name for each row, and what the names leave out since all rows share it.

    A name is ``baseline[option=value,...] x policy[...]``, then whatever else is not the method's own.
    Conditions (options of benchmark, backbone and run) and numbers such as epochs are left out of the names
    where they are the same in all rows.

    Args:
        runs: The first run of each row.
        settings: Those of these runs.
        catalogue: Tells which retrieval and constraints are a method's own.
    """
    changed = [one.changed for one in settings]
    shared = {
        key: value
        for key, value in (changed[0] if changed else {}).items()
        if (key.partition(".")[0] in _CONDITIONS or type(value) in (int, float))
        and all(key in other and other[key] == value for other in changed)
    }
    labels = []
    for run, one, own in zip(runs, settings, changed, strict=True):
        shown = {key: value for key, value in own.items() if key not in shared}
        parts = [*_composed(run, catalogue, shown), one.began]
        if run.state != "finished":
            parts.append(f"{run.done} of {run.tasks or '?'} tasks")
        labels.append(", ".join(filter(None, parts)))
    return _told_apart(labels, runs, settings), shared


def _composed(run: Run, catalogue: Catalogue, shown: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a name: what is composed, and the sections whose options are to be shown."""
    config, installed = run.config, _components(run, catalogue)
    options: dict[str, list[str]] = defaultdict(list)
    for key, value in shown.items():
        section, _, option = key.rpartition(".")
        options[section].append(option if value is True else f"{option}={_short(value)}")

    def named(name: str, section: str) -> str:
        found = options.pop(section, None)
        return f"{name}[{','.join(found)}]" if found else name

    yield " x ".join(named(config[kind]["name"], kind) for kind in ("baseline", "policy"))
    retrieval = (config.get("retrieval") or {}).get("name")
    if retrieval is not None:
        text = named(retrieval, "retrieval")
        if text != getattr(installed.get("baseline"), "retrieval", None):
            yield f"retrieval {text}"
    names = sorted(config["constraints"])
    texts = [named(name, f"constraints.{name}") for name in names]
    if texts != sorted(getattr(installed.get("policy"), "default_constraints", ())):
        yield "+".join(texts) or "no constraints"
    for section in list(options):
        yield named(section, section)


def _short(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")) if isinstance(value, list | dict) else plain(value)


def _told_apart(labels: Sequence[str], runs: Sequence[Run], settings: Sequence[Settings]) -> list[str]:
    """Add to equal names what their rows differ in, or where they lie.

    They differ in options of which no preset is known, or in what their table mixes.
    """
    rivals: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for label, one in zip(labels, settings, strict=True):
        rivals[label].append(one.values)
    found = []
    for label, one in zip(labels, settings, strict=True):
        own = [
            f"{key} {plain(value)}"
            for key, value in one.values.items()
            if any(key not in other or other[key] != value for other in rivals[label])
        ]
        found.append(", ".join([label, *own]))
    counts = Counter(found)
    return [
        label if counts[label] == 1 else f"{label}, {run.path.name}"
        for label, run in zip(found, runs, strict=True)
    ]
