"""The names of rows: the composed components, and every option that differs from the preset."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from typing import Any

import attrs

from lw2g.config.describe import OWN_OPTIONS, OptionDescription, describe_options, plain
from lw2g.config.layers import Preset, choose_preset
from lw2g.config.protocols import Protocol, choose_protocol
from lw2g.config.structure import NONE, unstructure
from lw2g.interfaces.component import BackboneComponent, BaselineComponent, BenchmarkComponent, Component
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.kinds import SECTIONS, place_of
from lw2g.reports.runs import OF_THE_MACHINE, ReportedRun

__all__ = [
    "AVERAGED",
    "OF_THE_TABLE",
    "OWN_DATA",
    "PRECISION",
    "Settings",
    "has_known_weights",
    "labels_of",
    "method_of",
    "settings_of",
    "weights_name",
]

AVERAGED = {"run.seed", "benchmark.order", "benchmark.order_seed", "benchmark.class_order"}
"""Options whose values a row averages over."""
OF_THE_TABLE = ("benchmark.name", "benchmark.increment", "benchmark.base")
"""Options that all rows of a table share."""
PRECISION = "run.precision"
"""The option whose value ``auto`` is settled when a run starts."""
OWN_DATA = "folder"
"""The benchmark whose data are the user's."""
_described_once = cache(describe_options)
_CONDITIONS = ("benchmark", "backbone", "run")
"""Sections that do not describe the method."""


@attrs.frozen(kw_only=True)
class Settings:
    """The options of a run, beside the values they have by default.

    Attributes:
        values: Options by dotted keys, without those of the machine and those that rows average over. An
            option newer than the run has its default.
        preset: The values of the run's protocol, for installed components.
        published: The published values that options declare.
        ours: Options whose preset value comes from lw2g, not from the authors.
        changed: Options of the run's record that differ from the preset.
        began: For a fork, the task it began after and the changed options of its parents; else empty.
    """

    values: Mapping[str, Any]
    preset: Mapping[str, Any]
    published: Mapping[str, Any]
    ours: Set[str]
    changed: Mapping[str, Any]
    began: str


def settings_of(run: ReportedRun, catalogue: Catalogue, protocol: str | None = None) -> Settings:
    """Return the options of a run; ``protocol`` replaces the protocol that chose its preset."""
    described = _described(run, catalogue)
    defaults = {key: _plain(option.default) for key, option in described.items()}
    options = dict(run.options)
    if run.asked_precision is not None:
        # a row is what was asked for: what auto settled on is of the machine
        options[PRECISION] = run.asked_precision
    values = defaults | options | {"constraints": sorted(run.config["constraints"])}
    protocol = protocol or run.record["protocol"]
    chosen = _preset(run, catalogue, protocol)
    preset = defaults | {key: _plain(value) for key, value in chosen.values.items() if key in defaults}
    preset["run.protocol"] = values.get("run.protocol")
    return Settings(
        values={key: value for key, value in values.items() if _distinguishes(key)},
        preset=preset,
        ours=frozenset() if chosen.preset.official else frozenset(chosen.values),
        changed={
            key: value
            for key, value in options.items()
            if _distinguishes(key) and key not in OF_THE_TABLE and value != preset.get(key, value)
        },
        published={
            key: _plain(option.published) for key, option in described.items() if option.published is not None
        },
        began=_began(run),
    )


def _distinguishes(key: str) -> bool:
    """Whether an option distinguishes rows."""
    return key not in AVERAGED | OF_THE_MACHINE and not key.startswith("trackers.")


def _plain(value: Any) -> Any:
    """Return a value as records store it."""
    stored = json.loads(json.dumps(unstructure(value)))
    return None if stored == NONE else stored


def _components(run: ReportedRun, catalogue: Catalogue) -> dict[str, Component]:
    """Return the installed components of a run by section."""
    components: dict[str, Component] = {}
    for section, record in SECTIONS.items():
        table = run.config.get(section) or {}
        for name in table if record.several else (table.get("name"),):
            if name in catalogue.names(record.kind):
                components[place_of(record.kind, name)] = catalogue.get(record.kind, name)
    return components


def _described(run: ReportedRun, catalogue: Catalogue) -> dict[str, OptionDescription]:
    """Describe the options of a run's installed components, and lw2g's own, by dotted keys."""
    installed = ((place, component.config) for place, component in _components(run, catalogue).items())
    return {
        f"{section}.{option.name}": option
        for section, config in (*installed, *OWN_OPTIONS)
        for option in _described_once(config)  # type: ignore[arg-type]  # a class is hashable
    }


def _preset(run: ReportedRun, catalogue: Catalogue, name: str) -> Protocol:
    """Return a protocol's values for a run; none if its baseline or benchmark is not installed."""
    components = _components(run, catalogue)
    baseline, benchmark = components.get("baseline"), components.get("benchmark")
    if not isinstance(baseline, BaselineComponent) or not isinstance(benchmark, BenchmarkComponent):
        return Protocol(name=name, preset=Preset())
    protocol = choose_protocol(name, choose_preset(baseline, benchmark.family), baseline, benchmark, [])
    if (run.config.get("retrieval") or {}).get("name") == baseline.retrieval:
        return protocol
    others = {key: value for key, value in protocol.values.items() if not key.startswith("retrieval.")}
    return attrs.evolve(protocol, values=others)


def _began(run: ReportedRun) -> str:
    """Return after which task a fork began, and the changed options of its parents."""
    parts, origin = [], run.record.get("origin")
    while origin is not None:
        changed = [change for change in origin.get("changed", ()) if _distinguishes(change["option"])]
        before = ", ".join(f"{change['option']} {plain(change['before'])}" for change in changed)
        parts.append(f"forked after task {origin['task'] + 1}" + (f" from {before}" if before else ""))
        origin = origin.get("origin")
    return ", ".join(parts)


# -- labels ----------------------------------------------------------------------------------------------


def labels_of(
    runs: Sequence[ReportedRun], settings: Sequence[Settings], catalogue: Catalogue
) -> tuple[list[str], dict[str, Any]]:
    """Return a name for each row, and the options that the names omit because all rows share them.

    The label that a grid gives a row is its name where no other row has the same one.

    Any other name is ``baseline[option=value,...] x policy[...]``, or the baseline alone if it does not grow,
    then all choices that are not the method's own. Names omit conditions (options of benchmark, backbone and
    run) and numbers such as epochs if all rows share them.

    Args:
        runs: The first run of each row.
        settings: The settings of these runs.
        catalogue: Knows a method's own retrieval and constraints.
    """
    changed = [own.changed for own in settings]
    shared = {
        key: value
        for key, value in (changed[0] if changed else {}).items()
        if (key.partition(".")[0] in _CONDITIONS or type(value) in (int, float))
        and all(key in other and other[key] == value for other in changed)
    }
    labels = []
    for run, own in zip(runs, settings, strict=True):
        shown = {key: value for key, value in own.changed.items() if key not in shared}
        parts = [*_composed(run, catalogue, shown), own.began]
        if run.state != "finished":
            parts.append(f"{run.done} of {run.tasks or '?'} tasks")
        if run.given is not None:
            parts.append(str(run.given))
        labels.append(", ".join(filter(None, parts)))
    told = Counter(run.label for run in runs)
    composed = _distinguished(labels, runs, settings)
    names = []
    for run, name in zip(runs, composed, strict=True):
        is_usable = run.label != "" and told[run.label] == 1 and run.state == "finished"
        names.append(run.label if is_usable else name)
    return names, shared


def method_of(run: ReportedRun, catalogue: Catalogue) -> str:
    """Return what a label stands for: the components, and every option that differs from the preset."""
    return ", ".join(_composed(run, catalogue, settings_of(run, catalogue).changed))


def _composed(run: ReportedRun, catalogue: Catalogue, shown: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a name: the components, and the sections with options to show."""
    config, installed = run.config, _components(run, catalogue)
    options: dict[str, list[str]] = defaultdict(list)
    for key, value in shown.items():
        section, _, option = key.rpartition(".")
        options[section].append(option if value is True else f"{option}={_short(value)}")

    def named(name: str, section: str) -> str:
        shown_options = options.pop(section, None)
        return f"{name}[{','.join(shown_options)}]" if shown_options else name

    method = ("baseline", "policy") if catalogue.grows(config["baseline"]["name"]) else ("baseline",)
    yield " x ".join(named(config[kind]["name"], kind) for kind in method)
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


def _distinguished(
    labels: Sequence[str], runs: Sequence[ReportedRun], settings: Sequence[Settings]
) -> list[str]:
    """Append the differing options to equal names, or the runs' folders.

    Such rows differ in options without a known preset, or in what their table mixes.
    """
    rivals: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for label, own in zip(labels, settings, strict=True):
        rivals[label].append(own.values)
    longer = []
    for label, own in zip(labels, settings, strict=True):
        differing = [
            f"{key} {plain(value)}"
            for key, value in own.values.items()
            if any(key not in other or other[key] != value for other in rivals[label])
        ]
        longer.append(", ".join([label, *differing]))
    counts = Counter(longer)
    return [
        label if counts[label] == 1 else f"{label}, {run.path.name}"
        for label, run in zip(longer, runs, strict=True)
    ]


def has_known_weights(record: Mapping[str, Any], catalogue: Catalogue) -> bool:
    """Return whether a run's weights are what their name says: fetched by it, or a file of a known hash."""
    backbone = record["backbone"]
    if backbone.get("source") not in ("file", "object"):
        return True
    for name in catalogue.names("backbone"):
        component = catalogue.get("backbone", name)
        hashes = component.hashes if isinstance(component, BackboneComponent) else ()
        if any(backbone["sha256"].startswith(known) for known in hashes):
            return True
    return False


def weights_name(record: Mapping[str, Any], catalogue: Catalogue) -> str:
    """Return a name of a run's weights and, unless it is the class token, of what features are pooled from.

    A file that nobody knows and an object are named by their hashes. Features of one model under two poolings
    do not compare.
    """
    name, pool = _name_of_weights(record, catalogue), record["backbone"].get("pool", "token")
    return name if pool == "token" else f"{name}, {pool} pooling"


def _name_of_weights(record: Mapping[str, Any], catalogue: Catalogue) -> str:
    backbone = record["backbone"]
    if not has_known_weights(record, catalogue):
        architecture = backbone["timm_name"].partition(".")[0]
        return f"{backbone['source']} {backbone['sha256'][:8]} ({architecture})"
    names = dict.fromkeys((record["config"]["backbone"]["name"], backbone["timm_name"]))
    return f"{' '.join(names)} {backbone['sha256'][:8]}"
