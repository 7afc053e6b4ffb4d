"""What runs of one table have in common: the names of their data, protocols and splits."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from lw2g.config.describe import plain
from lw2g.config.protocols import OFFICIAL
from lw2g.config.roles import keys_of_role
from lw2g.config.toml import flat
from lw2g.disk.protocol import digest_of, protocol_name
from lw2g.errors import ConfigError
from lw2g.interfaces.component import BenchmarkComponent
from lw2g.interfaces.options import options_of_role
from lw2g.registry.catalogue import Catalogue
from lw2g.results import MIXABLE
from lw2g.results.found_runs import ReportedRun
from lw2g.results.row_names import drawn_images, weights_name
from lw2g.results.same_data import options_apart, sizes_apart, split_names

__all__ = [
    "benchmark_title",
    "comparable",
    "conditions_of",
    "data_names",
    "drawn_in_rows",
    "mixes_in_words",
    "names_of_mixable",
    "refuse_mixed",
    "stream_options",
    "task_size",
    "told_apart",
    "why_apart",
]

_LONGEST = 30
"""The characters of an option that a title can name."""
_FACTS = ("test_transform", "train_transform", "metrics")
"""The facts of a protocol that are compared where runs share its name."""
_FACTS_SHOWN = 4
"""The largest number of facts of protocols that a refusal names."""


def benchmark_title(run: ReportedRun, catalogue: Catalogue) -> str:
    """Return the name of a run's data; of a run that went on with other data the names of all."""
    names = [_data_title(run, catalogue)]
    for source in run.record.get("sources", ())[1:]:
        gone_on = attrs.evolve(run, config={**run.config, "benchmark": source["benchmark"]})
        names.append(_data_title(gone_on, catalogue))
    return " + ".join(dict.fromkeys(names))


def _data_title(run: ReportedRun, catalogue: Catalogue) -> str:
    """Return the title of the data, by the user or a store, the benchmark's usual name, or the folders'."""
    name = str(run.options["benchmark.name"])
    known = _benchmark_of(run, catalogue)
    if known is None:
        return name
    if not _has_own_data(known):
        return known.data.title if known.data else name
    title = _title_of(run, known) or run.data
    if known.vectors:
        return f"{name} of {title or _names_of_files(run, known)}"
    if title:
        return title
    folders = " + ".join(repr(Path(place).resolve().name) for place in _places(run, known))
    return f"images in {folders}" if folders else name


def data_names(runs: Sequence[ReportedRun], catalogue: Catalogue) -> Callable[[ReportedRun], str]:
    """Return a function that names the data of a run: by title or folders; empty for a known benchmark.

    Equal images in two folders, such as on two machines, are one benchmark. It has the folders of the first
    run that has no title.

    Args:
        runs: All runs that are told apart.
        catalogue: Knows whose data a benchmark has.
    """
    folders_of_images: dict[str, str] = {}
    for run in runs:
        known = _benchmark_of(run, catalogue)
        if known is not None and _has_own_data(known) and not _title_of(run, known):
            folders_of_images.setdefault(_images_of(run, known), _folders_of(run, known))

    def name_of(run: ReportedRun) -> str:
        """Return what tells a run's own data from others': title, else files; empty for published data."""
        known = _benchmark_of(run, catalogue)
        if known is None or not _has_own_data(known):
            return ""
        title = _title_of(run, known)
        if title:
            return title
        if known.vectors:
            return _names_of_files(run, known)
        return folders_of_images[_images_of(run, known)]

    return name_of


def _folders_of(run: ReportedRun, benchmark: BenchmarkComponent) -> str:
    """Return the folders of the user's own data as one string."""
    return json.dumps(_places(run, benchmark))


def _images_of(run: ReportedRun, benchmark: BenchmarkComponent) -> str:
    """Return the fingerprint of the user's own data, or the folders if the run has not read them yet."""
    fingerprint: str | None = run.record.get("fingerprints", {}).get("benchmark")
    return fingerprint or _folders_of(run, benchmark)


def _benchmark_of(run: ReportedRun, catalogue: Catalogue) -> BenchmarkComponent | None:
    """Return the benchmark of a run; None if it is not installed."""
    name = run.options["benchmark.name"]
    if name not in catalogue.names("benchmark"):
        return None
    return catalogue.get("benchmark", name)


def _has_own_data(benchmark: BenchmarkComponent) -> bool:
    """Whether the data of a benchmark are the user's own: an option then gives them a title."""
    return bool(options_of_role(benchmark.config, "title"))


def _title_of(run: ReportedRun, benchmark: BenchmarkComponent) -> str:
    """Return the user's title of the data; empty without one."""
    for name in options_of_role(benchmark.config, "title"):
        title = run.options.get(f"benchmark.{name}")
        if title:
            return str(title)
    return ""


def _places(run: ReportedRun, benchmark: BenchmarkComponent) -> list[str]:
    """Return where the data of a benchmark lie, in the order of its options."""
    places: list[str] = []
    for name in options_of_role(benchmark.config, "machine"):
        value = run.options.get(f"benchmark.{name}")
        if isinstance(value, str):
            places.append(value)
        elif isinstance(value, list | tuple):
            places += map(str, value)
    return places


def _names_of_files(run: ReportedRun, benchmark: BenchmarkComponent) -> str:
    return " + ".join(Path(place).stem for place in _places(run, benchmark))


def task_size(run: ReportedRun) -> Iterator[str]:
    """Yield the number of classes of a run's stream, and what its tasks consist of."""
    if run.record:
        yield f"{len(run.record['class_names'])} classes"
    stream = run.options.get("benchmark.stream", "classes")
    if stream != "classes":
        yield f"{run.tasks} tasks of {stream}"
        return
    increment = run.options.get("benchmark.increment")
    if increment is None:
        return
    if run.record:  # "classes" stands before it
        yield f"{increment} a task"
    else:
        yield f"{increment} classes a task"


def stream_options(shared: Mapping[str, str]) -> list[str]:
    """Return the options of the benchmark, among those by dotted keys, that are short enough for a title.

    >>> stream_options({"benchmark.shots": "5", "run.device": "cpu", "benchmark.exclude": "a" * 40})
    ['shots 5']
    """
    options = [
        f"{key.removeprefix('benchmark.')} {value}"
        for key, value in shared.items()
        if key.startswith("benchmark.")
    ]
    return [option for option in options if len(option) <= _LONGEST]


def told_apart(titles: Sequence[str], details: Sequence[Sequence[str]]) -> list[str]:
    """Return the titles, each with those of its details that not all others of the same title have.

    >>> told_apart(["a", "a", "b"], [["x", "y"], ["x", "z"], ["x"]])
    ['a, y', 'a, z', 'b']
    """
    times = Counter(titles)
    counts = Counter((title, detail) for title, own in zip(titles, details, strict=True) for detail in own)
    longer = []
    for title, own in zip(titles, details, strict=True):
        distinguishing = [detail for detail in own if counts[title, detail] < times[title]]
        longer.append(", ".join([title, *distinguishing]))
    return longer


def conditions_of(runs: Sequence[ReportedRun], mixed: Sequence[str], catalogue: Catalogue) -> Iterator[str]:
    """Yield what the runs of a table share: backbone, protocol, split, and the fingerprints of the data."""
    if not runs:
        return
    run = runs[0]
    if "checkpoints" not in mixed:
        yield f"backbone {weights_name(run.record, catalogue)}"
    if "protocols" not in mixed:
        shared, others = _changes_of_protocol(runs, catalogue)
        changed = f"changed: {', '.join(shared)}" if shared else ""
        apart = f"not alike in all runs: {', '.join(others)}" if others else ""
        changes = "; ".join(filter(None, [changed, apart]))
        yield f"protocol {_protocol_names(runs)(run)}{f' ({changes})' if changes else ''}"
    if "splits" not in mixed and run.options.get("benchmark.split"):
        yield f"split {run.options['benchmark.split']}"
    # the first digits of a hash, as a reader compares them, of three at most
    fingerprints = list(dict.fromkeys(run.record["fingerprints"]["benchmark"][:8] for run in runs))
    text = f"data {', '.join(fingerprints[:3])}"
    if len(fingerprints) > 3:
        text += f" and {len(fingerprints) - 3} more"
    if len(fingerprints) > 1 and "splits" not in mixed:  # the fingerprint covers the order
        text += " (a class order each)"
    yield text


def _changes_of_protocol(runs: Sequence[ReportedRun], catalogue: Catalogue) -> tuple[list[str], list[str]]:
    """Return the options of the protocol that all runs have changed alike, and those that some have.

    Draws may differ in value.
    """
    draws = keys_of_role("draw", catalogue)
    of_runs = []
    for run in runs:
        entries = run.record.get("protocol_changes", ())
        of_runs.append({entry["option"]: entry["value"] for entry in entries})
    shared: list[str] = []
    others: list[str] = []
    for option in dict.fromkeys(option for changes in of_runs for option in changes):
        values = [changes.get(option) for changes in of_runs]
        is_in_all = all(option in changes for changes in of_runs)
        is_alike = is_in_all and (option in draws or all(value == values[0] for value in values))
        (shared if is_alike else others).append(option)
    return shared, others


def names_of_mixable(
    runs: Sequence[ReportedRun], catalogue: Catalogue
) -> dict[str, Callable[[ReportedRun], str]]:
    """Return for each of :data:`lw2g.results.MIXABLE` what names it of a run among those of a table."""

    def checkpoint(run: ReportedRun) -> str:
        return weights_name(run.record, catalogue)

    return dict(zip(MIXABLE, (checkpoint, split_names(runs, catalogue), _protocol_names(runs)), strict=True))


def mixes_in_words(runs: Sequence[ReportedRun], mixed: Sequence[str], catalogue: Catalogue) -> Iterator[str]:
    """Yield what each kind that a table mixes means for comparing its rows.

    Args:
        runs: Those of the table.
        mixed: The kinds, of :data:`lw2g.results.MIXABLE`.
        catalogue: Knows which options draw.
    """
    for kind in mixed:
        sizes = sizes_apart(runs, catalogue) if kind == "splits" else []
        if sizes:
            yield f"training images differ in number ({', '.join(sizes)}); test images are the same"
        else:
            yield f"mixes {kind}: rows with different ones are not comparable"


def drawn_in_rows(firsts: Sequence[ReportedRun], catalogue: Catalogue) -> str:
    """Return which images each class order of a table draws anew; empty where all orders have the same.

    Args:
        firsts: A run of each row.
        catalogue: Knows what a benchmark draws.

    Returns:
        Words such as ``training images``; ``training images in some rows`` where not all rows draw these.
    """
    drawn = {drawn_images(run, catalogue) for run in firsts}
    most = max(drawn, key=len, default="")
    return f"{most} in some rows" if len(drawn) > 1 else most


def _official_name(run: ReportedRun) -> str:
    """Return an official protocol, which is a method's own and ranks with no other; empty if it is none.

    Records from before protocols had hashes stay together.
    """
    if run.record["protocol"] != OFFICIAL or not run.record.get("protocol_hash"):
        return ""
    return protocol_name(run.record)


def _protocol_names(runs: Sequence[ReportedRun]) -> Callable[[ReportedRun], str]:
    """Return a function that names a run's protocol, with a hash if runs with one name differ in its facts.

    Checkpoints, splits and class orders are compared elsewhere; here it is transforms and definitions.
    """

    def facts(run: ReportedRun) -> str:
        """Return a short hash of what a run notes of transforms and definitions."""
        noted = run.record.get("protocol_facts") or {}
        compared = [noted.get(key) for key in _FACTS]
        return digest_of(compared)[:8]

    def plain_name(run: ReportedRun) -> tuple[str, str]:
        """Return the protocol's name and the weights: transforms follow from the backbone as well."""
        return _official_name(run) or str(run.record["protocol"]), run.record["backbone"]["sha256"]

    facts_of_name = defaultdict(set)
    for run in runs:
        if run.record.get("protocol_hash"):  # older records have no facts to compare
            facts_of_name[plain_name(run)].add(facts(run))

    def name_of(run: ReportedRun) -> str:
        """Return the protocol's name, with a hash where runs share the name and not the facts."""
        name, _ = plain_name(run)
        if len(facts_of_name[plain_name(run)]) > 1:
            return f"{name} {facts(run)}"
        return name

    return name_of


def _differing_facts(runs: Sequence[ReportedRun]) -> list[str]:
    """Return in what the transforms and definitions of runs differ: each fact with its values."""
    noted = []
    for run in runs:
        facts = run.record.get("protocol_facts") or {}  # older records have none
        noted.append(flat({name: facts[name] for name in _FACTS if name in facts}))
    differing = []
    for key in dict.fromkeys(key for facts in noted for key in facts):
        values = list(dict.fromkeys(plain(facts.get(key)) for facts in noted))
        if len(values) > 1:
            differing.append(f"{key} {' or '.join(values)}")
    return differing


def comparable(
    runs: Sequence[ReportedRun], mix: Sequence[str], catalogue: Catalogue
) -> list[list[ReportedRun]]:
    """Return the runs of each table: apart by data and by official protocol, unless ``mix`` allows it."""
    split_name = split_names(runs, catalogue)
    parts: dict[tuple[str, str], list[ReportedRun]] = defaultdict(list)
    for run in runs:
        split = "" if "splits" in mix else split_name(run)
        official = "" if "protocols" in mix else _official_name(run)
        parts[split, official].append(run)
    return list(parts.values())


def why_apart(parts: Sequence[Sequence[ReportedRun]], catalogue: Catalogue) -> str:
    """Return in what the runs of several tables differ, by the first run of each; empty for one table.

    Args:
        parts: The runs of each table, as :func:`comparable` returns them.
        catalogue: Knows whose data a benchmark has.
    """
    if len(parts) < 2:
        return ""
    firsts = [part[0] for part in parts]
    reasons = []
    data = dict.fromkeys(run.record["fingerprints"]["benchmark"][:8] for run in firsts)
    if len(data) > 1:
        which = options_apart(firsts, catalogue) or [f"data {_listed(data)}"]
        reasons.append(f"{_differing_data(firsts)} differ ({_listed(which)})")
    protocols = dict.fromkeys(_official_name(run) or "none" for run in firsts)
    if len(protocols) > 1:
        reasons.append(f"official protocols differ ({_listed(protocols)})")
    tables = f"{len(parts)} tables of {_data_title(firsts[0], catalogue)}"
    return f"{tables}: their {', and their '.join(reasons or ['splits differ'])}"


def _differing_data(runs: Sequence[ReportedRun]) -> str:
    """Return in what the data of runs differ, as far as their records tell it."""
    if len({run.options.get("benchmark.split") for run in runs}) > 1:
        return "splits"
    if len({frozenset(run.record["class_names"]) for run in runs}) > 1:
        return "classes"
    tested = {frozenset(run.record.get("image_hashes") or ()) for run in runs}
    if frozenset() in tested:  # there are no hashes
        return "images"
    return "test images" if len(tested) > 1 else "training images"


def _listed(names: Iterable[str]) -> str:
    """Return names in a row, the last one behind an *and*."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def refuse_mixed(kind: str, name_of: Callable[[ReportedRun], str], runs: Sequence[ReportedRun]) -> None:
    """Refuse runs of one table that mix a kind of condition, each of which ``name_of`` names.

    Raises:
        ConfigError: Always; it names a run of each.
    """
    paths: dict[str, list[Path]] = defaultdict(list)
    for run in runs:
        paths[name_of(run)].append(run.path)
    listed = ", ".join(f"{name}: {len(of)} such as {of[0]}" for name, of in paths.items())
    differing = _differing_facts(runs) if kind == "protocols" else []
    if differing:
        listed += f"; they differ in {', '.join(differing[:_FACTS_SHOWN])}"
    raise ConfigError(f"the runs mix {kind} ({listed})", f"leave some out, or say --mix {kind}")
