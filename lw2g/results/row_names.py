"""The names of rows: the composed components, and every option that differs from the preset."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from functools import cache
from typing import Any

import attrs

from lw2g.config.describe import OWN_OPTIONS, OptionDescription, describe_options, plain
from lw2g.config.layers import Preset, choose_preset, with_short, word_of
from lw2g.config.protocols import Protocol, choose_protocol
from lw2g.config.roles import role_of_key
from lw2g.config.structure import NONE, structure, unstructure
from lw2g.interfaces.component import (
    BackboneComponent,
    BaselineComponent,
    BenchmarkComponent,
    Component,
    PolicyComponent,
)
from lw2g.interfaces.defaults import METHODS
from lw2g.interfaces.options import UNCOUNTED
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.kinds import SECTIONS, place_of
from lw2g.results.found_runs import ReportedRun
from lw2g.results.run_draws import order_draws_tests

__all__ = [
    "PRECISION",
    "TABLE_OPTIONS",
    "Settings",
    "baseline_of",
    "components_of",
    "composed_name",
    "drawn_images",
    "giver_marks",
    "has_known_weights",
    "is_condition",
    "labels_of",
    "method_of",
    "named_by_grid",
    "settings_of",
    "unread_by",
    "weights_name",
]

TABLE_OPTIONS = ("benchmark.name", "benchmark.increment", "benchmark.base")
"""Options that all rows of a table share: how reports are laid out, not what options are."""
PRECISION = "run.precision"
"""The option whose value ``auto`` is settled when a run starts."""
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
    defaults: dict[str, Any] = {}
    published: dict[str, Any] = {}
    for key, option in _described(run, catalogue).items():
        defaults[key] = _as_stored(option.default)
        if option.published is not None:
            published[key] = _as_stored(option.published)

    options = dict(run.options)
    if run.asked_precision is not None:
        # a row is what was asked for: what auto settled on is of the machine
        options[PRECISION] = run.asked_precision
    values = defaults | options | {"constraints": sorted(run.config["constraints"])}

    chosen = _protocol_of(run, catalogue, protocol or run.record["protocol"])
    preset = dict(defaults)
    for key, value in chosen.values.items():
        if key in defaults:
            preset[key] = _as_stored(value)
    # which protocol chose the preset is in the conditions of the table: it is no change of a row
    preset["run.protocol"] = values.get("run.protocol")
    changed = {}
    for key, value in options.items():
        differs = key not in TABLE_OPTIONS and value != preset.get(key, value)
        if differs and _distinguishes(key, run, catalogue):
            changed[key] = value
    return Settings(
        values={key: value for key, value in values.items() if _distinguishes(key, run, catalogue)},
        preset=preset,
        ours=frozenset() if chosen.preset.official else frozenset(chosen.values),
        changed=changed,
        published=published,
        began=_began(run, catalogue),
    )


def preset_of(run: ReportedRun, catalogue: Catalogue) -> Mapping[str, Any]:
    """Return the values that the options of a run have where nobody sets them, by dotted keys."""
    protocol = run.record.get("protocol") or run.options["run.protocol"]  # without a record it is in the file
    return settings_of(run, catalogue, protocol).preset


def _distinguishes(key: str, run: ReportedRun, catalogue: Catalogue) -> bool:
    """Whether an option of a run distinguishes rows."""
    if key.startswith("trackers."):
        return False
    role = role_of_key(key, run.config, catalogue)
    return role != "draw" and role not in UNCOUNTED


def _as_stored(value: Any) -> Any:
    """Return a value as records store it."""
    stored = json.loads(json.dumps(unstructure(value)))
    if stored == NONE:
        return None
    return stored


def components_of(run: ReportedRun, catalogue: Catalogue) -> dict[str, Component]:
    """Return the installed components of a run by section."""
    components: dict[str, Component] = {}
    for section, record in SECTIONS.items():
        table = run.config.get(section) or {}
        # a section of several components, such as constraints, has a table by the name of each
        names = list(table) if record.several else [table.get("name")]
        for name in names:
            if name in catalogue.names(record.kind):
                components[place_of(record.kind, name)] = catalogue.get(record.kind, name)
    return components


def unread_by(run: ReportedRun, catalogue: Catalogue) -> set[str]:
    """Return the options of a run that nothing has read, by dotted keys."""
    unread = set()
    for place, component in components_of(run, catalogue).items():
        options = _options(run, place, component)
        if options is not None:
            unread |= {f"{place}.{name}" for name in component.unread(options)}
    return unread


def drawn_images(run: ReportedRun, catalogue: Catalogue) -> str:
    """Return which images the seed of a run's class order draws, as its benchmark says; empty for none."""
    if order_draws_tests(run):
        return "training and test images"
    benchmark = components_of(run, catalogue).get("benchmark")
    options = None if benchmark is None else _options(run, "benchmark", benchmark)
    return getattr(options, "drawn_images", "")


def _options(run: ReportedRun, place: str, component: Component) -> Any:
    """Return the options of a run's component as its code reads them; None if it refuses them."""
    given = {}
    for name in attrs.fields_dict(component.config):  # an older version may have had others
        if f"{place}.{name}" in run.options:
            given[name] = run.options[f"{place}.{name}"]
    options, _ = structure(component.config, given)
    return options


def _described(run: ReportedRun, catalogue: Catalogue) -> dict[str, OptionDescription]:
    """Describe the options of a run's installed components, and lw2g's own, by dotted keys."""
    sections = [(place, component.config) for place, component in components_of(run, catalogue).items()]
    described = {}
    for section, config in (*sections, *OWN_OPTIONS):
        for option in _described_once(config):  # type: ignore[arg-type]  # a class is hashable
            described[f"{section}.{option.name}"] = option
    return described


def _protocol_of(run: ReportedRun, catalogue: Catalogue, name: str) -> Protocol:
    """Return a protocol's values for a run; none if its baseline or benchmark is not installed."""
    components = components_of(run, catalogue)
    baseline = components.get("baseline")
    benchmark = components.get("benchmark")
    if not isinstance(baseline, BaselineComponent) or not isinstance(benchmark, BenchmarkComponent):
        return Protocol(name=name, preset=Preset())
    protocol = choose_protocol(name, choose_preset(baseline, benchmark.family), baseline, benchmark, [])
    if (run.config.get("retrieval") or {}).get("name") == baseline.retrieval:
        return protocol
    # the values for the method's own retrieval say nothing about another one
    others = {}
    for key, value in protocol.values.items():
        if not key.startswith("retrieval."):
            others[key] = value
    return attrs.evolve(protocol, values=others)


def _began(run: ReportedRun, catalogue: Catalogue) -> str:
    """Return after which task a fork began, and what its parents had otherwise."""
    parts = []
    origin = run.record.get("origin")
    while origin is not None:  # a fork may come from a fork
        before = {}
        for change in origin.get("changed", ()):
            if _distinguishes(change["option"], run, catalogue):
                before[change["option"]] = change["before"]
        text = f"forked after task {origin['task'] + 1}"
        otherwise = list(_otherwise(before, catalogue))
        if otherwise:
            text += f" from {', '.join(otherwise)}"
        parts.append(text)
        origin = origin.get("origin")
    return ", ".join(parts)


def _otherwise(before: Mapping[str, Any], catalogue: Catalogue) -> Iterator[str]:
    """Yield the components and options that a fork's parent had otherwise, in the form of names of rows.

    Args:
        before: The parent's values of what the fork has changed; None for options of new components.
        catalogue: Knows the defaults, which go without saying beside the name of a component.
    """
    names = {key.removesuffix(".name"): name for key, name in before.items() if key.endswith(".name")}
    constraints = {f"constraints.{name}": name for name in before.get("constraints", ())}
    named = names | constraints
    options: dict[str, list[str]] = defaultdict(list)
    for key, value in before.items():
        place, _, option = key.rpartition(".")
        is_named = place in named or ("constraints" in before and place.startswith("constraints."))
        if (
            option == "name"
            or key == "constraints"
            or (is_named and value == _defaults_of(place, named.get(place), catalogue).get(option))
        ):
            continue
        options[place].append(_option(option, value))
    for place, name in names.items():
        yield f"{place} {_bracketed(name, options.pop(place, []))}"
    if "constraints" in before:
        together = "+".join(_bracketed(name, options.pop(place, [])) for place, name in constraints.items())
        yield together or "no constraints"
    for place, of_place in options.items():
        yield _bracketed(place.removeprefix("constraints."), of_place)


def _defaults_of(place: str, name: str | None, catalogue: Catalogue) -> dict[str, Any]:
    """Return the defaults of a component's options; empty if it is not installed."""
    entry = None if name is None else catalogue.find(SECTIONS[place.partition(".")[0]].kind, name)
    if entry is None:
        return {}
    described = _described_once(entry.component.config)  # type: ignore[arg-type]  # a class is hashable
    return {option.name: _as_stored(option.default) for option in described}


# -- labels ----------------------------------------------------------------------------------------------


def labels_of(
    runs: Sequence[ReportedRun], settings: Sequence[Settings], catalogue: Catalogue
) -> tuple[list[str], dict[str, Any]]:
    """Return a name for each row, and the options that the names omit because all rows share them.

    The label that a grid gives a row is its name where no other row has the same one.

    Any other name is ``baseline[option=value,...] x policy[...]``, or the baseline alone if it does not grow,
    then all choices that are not the method's own. Names omit conditions (options of benchmark, backbone and
    run) and numbers such as epochs if all rows share them. The name of a stored run ends in its giver's mark.

    Args:
        runs: The first run of each row.
        settings: The settings of these runs.
        catalogue: Knows a method's own retrieval and constraints.
    """
    shared = _shared_by_all([options.changed for options in settings])
    marks = giver_marks(runs)
    labels = []
    for run, options in zip(runs, settings, strict=True):
        label = composed_name(run, options, shared, catalogue)
        labels.append(label if run.given is None else f"{label}, {marks[str(run.given)]}")
    by_grids = list(map(named_by_grid, runs))
    counts = Counter(by_grids)
    names = []
    for by_grid, composed in zip(by_grids, _distinguished(labels, runs, settings), strict=True):
        names.append(by_grid if by_grid and counts[by_grid] == 1 else composed)
    return names, shared


def named_by_grid(run: ReportedRun) -> str:
    """Return the label that a grid gave a row, of unfinished runs with their tasks; empty without one."""
    return ", ".join([run.label, *_tasks(run)]) if run.label else ""


def composed_name(
    run: ReportedRun, settings: Settings, left_out: Container[str], catalogue: Catalogue
) -> str:
    """Return the name of a row from its components and changed options, but those that are left out."""
    shown = {key: value for key, value in settings.changed.items() if key not in left_out}
    return ", ".join(filter(None, (*_composed(run, catalogue, shown), settings.began, run.old, *_tasks(run))))


def _tasks(run: ReportedRun) -> list[str]:
    """Return how far an unfinished run has come; nothing of a finished one."""
    return [] if run.state == "finished" else [f"{run.done} of {run.tasks or '?'} tasks"]


def giver_marks(runs: Sequence[ReportedRun]) -> dict[str, str]:
    """Return how the names of rows mark who gave them, by what a store tells of it; numbered if several."""
    givers = list(dict.fromkeys(str(run.given) for run in runs if run.given is not None))
    if len(givers) == 1:
        return {givers[0]: "stored"}
    return {giver: f"stored {number}" for number, giver in enumerate(givers, start=1)}


def _shared_by_all(changed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the conditions, and the numbers, that all rows changed alike.

    A name such as ``none`` stays in the label even so: it tells which method the row is.
    """
    if not changed:
        return {}
    shared = {}
    for key, value in changed[0].items():
        is_number = type(value) in (int, float)  # True and False are choices
        if not is_condition(key) and not is_number:
            continue
        if all(_has(other, key, value) for other in changed):
            shared[key] = value
    return shared


def is_condition(key: str) -> bool:
    """Whether an option is of what a method runs under: benchmark, backbone or run."""
    return key.partition(".")[0] in _CONDITIONS


def _has(options: Mapping[str, Any], key: str, value: Any) -> bool:
    """Whether an option is there with this value, which may be None."""
    return key in options and bool(options[key] == value)


def method_of(run: ReportedRun, settings: Settings, left_out: Container[str], catalogue: Catalogue) -> str:
    """Return what a label stands for: the components, and the options that differ from the preset.

    Those that are left out, such as what all rows of a table share, stand elsewhere.
    """
    shown = {key: value for key, value in settings.changed.items() if key not in left_out}
    return ", ".join(_composed(run, catalogue, shown))


def _composed(run: ReportedRun, catalogue: Catalogue, shown: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a name: the components, and the sections with options to show."""
    config = run.config
    installed = components_of(run, catalogue)
    options = _by_section(config, shown)

    def with_options(name: str, section: str) -> str:
        """Return a name with the options of its section, which no later part repeats."""
        return _bracketed(name, options.pop(section, []))

    method = _baseline(config, options.pop("baseline", []))
    if catalogue.grows(config["baseline"]["name"]):  # else a policy decides nothing
        method += f" x {with_options(config['policy']['name'], 'policy')}"
    yield method
    retrieval = (config.get("retrieval") or {}).get("name")
    if retrieval is not None:
        text = with_options(retrieval, "retrieval")
        # the method's own strategy, with its options unchanged, goes without saying
        baseline = installed.get("baseline")
        own_retrieval = baseline.retrieval if isinstance(baseline, BaselineComponent) else None
        if text != own_retrieval:
            yield f"retrieval {text}"
    constraints = [with_options(name, f"constraints.{name}") for name in sorted(config["constraints"])]
    policy = installed.get("policy")
    brought = policy.default_constraints if isinstance(policy, PolicyComponent) else ()
    if constraints != sorted(brought):
        yield "+".join(constraints) or "no constraints"
    for section in list(options):  # of what has no name in the parts above, such as growth
        yield with_options(section, section)


def baseline_of(run: ReportedRun, settings: Settings) -> str:
    """Return the first part of a name: the baseline, and its options that differ from the preset."""
    options = _by_section(run.config, settings.changed)
    return _baseline(run.config, options.get("baseline", []))


def _by_section(config: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the options to show as text, those of each section together."""
    meant = with_short({}, METHODS.get(word_of(config), {}))
    options: dict[str, list[str]] = defaultdict(list)
    for key, value in shown.items():
        if key in meant:  # the word says it
            continue
        section, _, option = key.rpartition(".")
        options[section].append(_option(option, value))
    return options


def _option(name: str, value: Any) -> str:
    return name if value is True else f"{name}={_short(value)}"


def _baseline(config: Mapping[str, Any], options: Sequence[str]) -> str:
    name = _bracketed(config["baseline"]["name"], options)
    word = word_of(config)
    return f"{name} (--{word})" if word else name


def _bracketed(name: str, options: Sequence[str]) -> str:
    return f"{name}[{','.join(options)}]" if options else name


def _short(value: Any) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, separators=(",", ":"))
    return plain(value)


def _distinguished(
    labels: Sequence[str], runs: Sequence[ReportedRun], settings: Sequence[Settings]
) -> list[str]:
    """Append the differing options to equal names, or the runs' folders.

    Such rows differ in options without a known preset, or in what their table mixes.
    """
    rivals: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for label, options in zip(labels, settings, strict=True):
        rivals[label].append(options.values)
    longer = []
    for label, options in zip(labels, settings, strict=True):
        parts = [label]
        for key, value in options.values.items():
            if not all(_has(other, key, value) for other in rivals[label]):
                parts.append(f"{key} {plain(value)}")
        longer.append(", ".join(parts))

    counts = Counter(longer)
    unique = []
    for label, run in zip(longer, runs, strict=True):
        if counts[label] == 1:
            unique.append(label)
        else:
            unique.append(f"{label}, {run.path.name}")
    return unique


def has_known_weights(record: Mapping[str, Any], catalogue: Catalogue) -> bool:
    """Return whether a run's weights are what their name says: fetched by it, or a file of a known hash."""
    backbone = record["backbone"]
    if backbone.get("source") not in ("file", "object"):
        return True
    for name in catalogue.names("backbone"):
        component = catalogue.get("backbone", name)
        if not isinstance(component, BackboneComponent):
            continue
        if any(backbone["sha256"].startswith(known) for known in component.hashes):
            return True
    return False


def weights_name(record: Mapping[str, Any], catalogue: Catalogue) -> str:
    """Return a name of a run's weights and, unless it is the class token, of what features are pooled from.

    A file that nobody knows and an object are named by their hashes. Features of one model under two
    poolings, or of several layers and one, do not compare. Which of them a run has chosen by itself is a part
    of its method, and does.
    """
    name = _name_of_weights(record, catalogue)
    asked = record["config"]["backbone"]
    if asked.get("layers") == "auto" and asked.get("pool") == "default":
        return name
    pool = record["backbone"].get("pool", "token")  # older records know the class token alone
    layers = record["backbone"].get("layers", 1)  # older records know one layer alone
    if pool != "token":
        name = f"{name}, {pool} pooling"
    if layers > 1:
        name = f"{name}, {layers} layers"
    return name


def _name_of_weights(record: Mapping[str, Any], catalogue: Catalogue) -> str:
    backbone = record["backbone"]
    if not has_known_weights(record, catalogue):
        architecture = backbone["timm_name"].partition(".")[0]
        return f"{backbone['source']} {backbone['sha256'][:8]} ({architecture})"
    names = dict.fromkeys((record["config"]["backbone"]["name"], backbone["timm_name"]))
    return f"{' '.join(names)} {backbone['sha256'][:8]}"
