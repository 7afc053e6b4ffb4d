"""What a pack claims apart from predictions: each claim has its place, is plain, and agrees with its copies.

A seal shows that a file is as its writer left it, not that it says the truth. Whatever a record repeats or
names is compared here with what it repeats or names, so that a report can use either.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from lw2g import __version__
from lw2g.config.directory import CONFIG, RECORD
from lw2g.config.settings import OWN_SECTIONS
from lw2g.disk.contents import Record
from lw2g.disk.protocol import protocol_ids
from lw2g.errors import DataError, counted, shown
from lw2g.interfaces.component import Kind
from lw2g.interfaces.metric import CORE_METRICS
from lw2g.registry.kinds import SECTIONS
from lw2g.results.recomputed import Columns, RecordedStream

__all__ = [
    "COLUMNS",
    "PREDICTED",
    "class_name",
    "components_of",
    "is_line",
    "require_agreement",
    "require_costs",
    "require_findings",
    "require_images",
    "require_known_keys",
    "require_plain_options",
    "require_plain_texts",
    "require_possible",
    "require_stream",
]

PREDICTED = "predictions.safetensors"
ANSWERS = ("predicted", "hard", "told", "within")
CHOICES = ("retrieved", "set", "rank")
COLUMNS = ("true", "task", *ANSWERS, *CHOICES)
"""The columns of a pack's predictions."""

_KEYS: Mapping[str, Collection[str]] = {
    "": {field.name for field in attrs.fields(Record)} | {"sha256"},
    "config": {*SECTIONS, *OWN_SECTIONS},
    "metrics": CORE_METRICS,
    "metric_definitions": (),  # metrics of plugins stay in the run: a store recomputes all that it shows
    "storage": {"prompt_vectors", "basis_vectors", "parameters", "statistics"},
    "flops": {"training_per_image", "inference_per_image", "expert_per_image"},
    "seconds": {"evidence", "training", "subspace", "evaluation", "total", "per_test_image"},
    "stale_classes": {"by_task", "last"},
}
"""The keys of a record's tables whose values are numbers or options; other tables are told, not used."""
_PARTS = ("evidence", "training", "subspace", "evaluation")
"""What makes a run's seconds."""
_SOMETIMES = {f"seconds.{part}" for part in _PARTS}
"""Costs that are zero where there is no such part, or where it takes less than a millisecond."""
_FILE = re.compile(rf"samples(-\d+)?\.json|{re.escape(CONFIG)}|{re.escape(PREDICTED)}")
_OPTION = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}")
_MARKUP = frozenset("<>`|*\\&")
_STRANGE = "markup or control characters, or more than 1,000 letters"
_HASH = re.compile(r"[0-9a-f]{8}")
"""Of a test image."""
_LEVELS = 5
_OPTIONS = 2_000
_LETTERS = 1_000
"""The limits of a configuration: its nesting, its options, the letters of one option."""
_TASKS = 1_000
_CELLS = 10**7
_NAME = 200
"""The limits of a stream: its tasks, classes times tasks (what metrics loop over), a domain's letters."""


def require_known_keys(record: Mapping[str, Any]) -> None:
    """Refuse keys of which lw2g knows nothing.

    Raises:
        DataError: There is one; the first is named.
    """
    for place, known in _KEYS.items():
        table = record[place] if place else record
        # what nothing here compares could say anything, and a report might show it
        if strange := sorted(table.keys() - set(known)):
            what = f"{place}.{strange[0]:.60}".removeprefix(".")
            raise DataError(
                f"{RECORD!r}: {what!r} is nothing that lw2g {__version__} writes ({len(strange)} such keys)",
                f"remove it, or check with lw2g {record['lw2g_version']:.20}",
            )
    for name in record["files"]:
        if not _FILE.fullmatch(name):
            raise DataError(f"{RECORD!r}: files names {name[:60]!r}, which is no file of a pack")


def require_plain_options(config: Any, name: str) -> None:
    """Refuse a configuration that is no table of plain options.

    Its keys and words come into the names of rows, and its nesting into dotted keys.

    Args:
        config: The configuration.
        name: Its file.

    Raises:
        DataError: It is too deep or too long, or a key or word holds markup or control characters.
    """
    count = 0
    level = [config]
    for _ in range(_LEVELS):
        below: list[Any] = []
        for value in level:
            if isinstance(value, Mapping):
                count += len(value)
                for key in value:
                    if not _OPTION.fullmatch(key):
                        raise DataError(f"{name!r}: {shown(key)} cannot be the name of an option")
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str) and not _is_plain(value):
                raise DataError(f"{name!r}: {shown(value)} holds {_STRANGE}")
        level = below
    if level:
        raise DataError(f"{name!r}: options are nested in more than {_LEVELS} levels")
    if count > _OPTIONS:
        raise DataError(f"{name!r}: {count} options, more than {_OPTIONS}")


def require_plain_texts(content: Any, name: str, *, markup: bool = False) -> None:
    """Refuse texts, keys among them, that would command a terminal, be markup in a page, or fill it.

    Args:
        content: What a file holds.
        name: The file.
        markup: Whether letters of markup may stand in a value, as in what people write.

    Raises:
        DataError: There is such a text; one is shown.
    """
    waiting = [("", content)]
    while waiting:
        place, value = waiting.pop()
        texts: list[Any] = []
        if isinstance(value, Mapping):
            texts += [key for key in value if not _is_plain(key)]
            waiting += [(place or f"{key}: ", inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(place, inner) for inner in value]
        elif isinstance(value, str) and not (is_line(value) if markup else _is_plain(value)):
            texts.append(value)
        if texts:
            raise DataError(f"{name!r}: {place}{shown(texts[0])} holds {_STRANGE}")


def is_line(text: str) -> bool:
    """Return whether a text is one line that a page and a terminal have room for."""
    return len(text) <= _LETTERS and text.isprintable()


def _is_plain(word: str) -> bool:
    return is_line(word) and _MARKUP.isdisjoint(word)


def class_name(number: int) -> str:
    """Return what stands in a pack for the name of a class: the protocol's hash says which class it is."""
    return f"class {number}"


def components_of(config: Mapping[str, Any]) -> list[tuple[Kind, str]]:
    """Return kind and name of each component in a configuration, but for trackers."""
    found: list[tuple[Kind, str]] = []
    for section, record in SECTIONS.items():
        table = config.get(section) or {}
        names = list(table) if record.several else [table.get("name")]
        if section == "trackers":  # they listen, and change nothing of a result
            continue
        for name in names:
            if name is not None:
                found.append((record.kind, name))
    return found


def require_agreement(
    record: Mapping[str, Any], submission: Mapping[str, Any], protocol: Mapping[str, Any] | None
) -> None:
    """Refuse a record that tells one thing in two ways.

    Args:
        record: The record.
        submission: What was submitted with it.
        protocol: The store's file of its protocol; None outside of a store.

    Raises:
        DataError: It does so; the first pair is named.
    """
    config = record["config"]
    if record.get("origin") is not None:
        raise DataError("the run is a fork of another one", "submit a run of its own")
    fingerprint = record["fingerprints"]["backbone"]
    source = record["sources"][0]["benchmark"]
    twice = (
        ("seed", record["seed"], "config.run.seed", config["run"]["seed"]),
        ("protocol", record["protocol"], "config.run.protocol", config["run"]["protocol"]),
        ("fingerprints.backbone", fingerprint, "backbone.sha256", record["backbone"]["sha256"]),
        ("sources[0].benchmark", source, "config.benchmark", config["benchmark"]),
    )
    for key, value, other, again in twice:
        if value != again:
            raise DataError(f"{RECORD!r}: {key} is {shown(value)[:60]}, and {other} is {shown(again)[:60]}")
    ids = protocol_ids(record)
    if protocol is not None:
        # a store may name data that the record's own ids leave open (`folder/official/NAME@1`)
        ids = ids | {str(protocol["id"])}
    if record["protocol_id"] not in ids:
        raise DataError(
            f"{RECORD!r}: protocol_id is {shown(record['protocol_id'])[:80]}, and its hash is that of "
            f"{' or '.join(sorted(ids))}"
        )
    used = {f"{kind} {name}" for kind, name in components_of(config)}
    if used != submission["components"].keys():
        other = min(used ^ submission["components"].keys())
        raise DataError(f"'submission.json' and the configuration differ in components: {other[:80]!r}")


def require_costs(record: Mapping[str, Any]) -> None:
    """Refuse costs that no run can have: a method that pays nothing would be shown as the cheapest.

    Raises:
        DataError: A cost is missing, below zero, zero where none can be, or more than its whole.
    """
    tables: dict[str, Mapping[str, float | None]] = {}
    for name in ("storage", "seconds", "flops"):
        tables[name] = record[name]
        if missing := sorted(_KEYS[name] - tables[name].keys() - {"expert_per_image"}):
            raise DataError(f"{RECORD!r}: {name}.{missing[0]} is missing, and every run has it")
    other_costs = {"images_per_second": record.get("images_per_second")}
    for part, keys in (("expert", ("numbers", "forwards_per_image")), ("routing", ("passes_per_image",))):
        for key in keys:
            other_costs[f"{part}.{key}"] = (record.get(part) or {}).get(key)
    for name, cost in [*_costs(tables), *other_costs.items()]:
        # what is not known is None; what was measured is more than nothing
        can_be_zero = name.startswith("storage.") or name in _SOMETIMES
        if cost is not None and (cost < 0 or (cost == 0 and not can_be_zero)):
            raise DataError(f"{RECORD!r}: {name} is {cost}, which no run can have")
    if not any(tables["storage"].values()):
        raise DataError(
            f"{RECORD!r}: every value of storage is 0, and a run keeps something of what it learned"
        )
    seconds = record["seconds"]
    for part in _PARTS:
        if seconds[part] > seconds["total"]:
            raise DataError(f"{RECORD!r}: seconds.{part} is {seconds[part]}, more than seconds.total")


def _costs(tables: Mapping[str, Mapping[str, float | None]]) -> Iterator[tuple[str, float | None]]:
    for name, table in tables.items():
        for key, cost in table.items():
            yield f"{name}.{key}", cost


def require_findings(record: Mapping[str, Any]) -> None:
    """Refuse findings of tasks and classes that the stream does not have.

    Raises:
        DataError: There are some; the first is named.
    """
    classes = sum(map(len, record["task_classes"]))
    seen: set[int] = set()
    for motion in record["findings"].get("motions", ()):
        task = motion["task"]
        numbers = [motion["new"], motion["old"], motion["times"] or 0, motion["carried"]]
        fits = 0 < task < record["tasks"] and task not in seen and motion["carried"] <= classes
        held = set(motion["held"])
        if not fits or min(numbers) < 0 or len(held) < len(motion["held"]) or not held <= set(range(classes)):
            raise DataError(f"{RECORD!r}: findings.motions has one of task {shown(task)} that cannot be")
        seen.add(task)


def require_images(record: Mapping[str, Any], evaluations: Sequence[Columns]) -> None:
    """Refuse hashes of test images that are not one for each, of the digits that lw2g writes.

    Raises:
        DataError: They are not. Older records have none.
    """
    hashes = record.get("image_hashes")
    if hashes is None:
        return
    tested = len(evaluations[-1]["true"])
    if len(hashes) != tested:
        raise DataError(f"{RECORD!r}: {len(hashes)} image_hashes of {counted(tested, 'test image')}")
    for own in hashes:
        if not _HASH.fullmatch(own):
            raise DataError(f"{RECORD!r}: image_hashes has {shown(own)[:60]}, no eight hexadecimal digits")


def require_stream(record: Mapping[str, Any]) -> None:
    """Refuse tasks and classes that cannot be those of a stream, before anything is computed of them.

    Raises:
        DataError: They cannot be.
    """
    stream: Sequence[Sequence[int]] = record["task_classes"]
    tasks = record["tasks"]
    classes = len(record["class_names"])
    lengths = {len(stream), len(record["accuracy_matrix"]), len(record["task_to_set"])}
    if lengths != {tasks}:
        raise DataError(f"the run has finished {len(record['accuracy_matrix'])} of {tasks} tasks")
    if not 0 < tasks <= _TASKS:
        raise DataError(f"{RECORD!r}: {tasks} tasks are not 1 to {_TASKS}")
    positions = sum(map(len, stream))
    if positions * tasks > _CELLS:
        raise DataError(f"{positions} classes in {tasks} tasks are more than a store takes")
    # a name of its own choice could carry anything into a report
    if record["class_names"] != [class_name(number) for number in range(classes)]:
        raise DataError(f"{RECORD!r}: class_names are not 'class 0' to 'class {classes - 1}'")
    for label in record["class_order"]:
        if label < 0:
            raise DataError(f"{RECORD!r}: class_order has label {label}")
    domains = record["domains"]
    if domains is not None and (len(domains) != tasks or max(map(len, domains)) > _NAME):
        raise DataError(f"{RECORD!r}: domains are not {tasks} names of at most {_NAME} letters")
    for group in record["planted_groups"] or ():
        if type(group) is not int:  # True is an int to isinstance
            raise DataError(f"{RECORD!r}: planted_groups are no whole numbers")


def require_possible(evaluations: Sequence[Columns], record: Mapping[str, Any]) -> None:
    """Refuse predictions of classes and tasks that the stream does not have.

    Raises:
        DataError: There are some; the first is named.
    """
    last = evaluations[-1]
    classes = len(record["class_names"])
    recorded = RecordedStream.of(record, record["tasks"])
    if (np.diff(last["task"]) < 0).any():
        raise DataError(f"{PREDICTED!r}: samples do not stand task after task")
    # pairs of task and class: few, however many samples there are
    pairs = np.unique(np.stack([last["task"], last["true"]], axis=1), axis=0).tolist()
    for task, true in pairs:
        # where several tasks have a class in one domain, its test images are the first one's
        if min(recorded.owners(task, true), default=None) != task:
            raise DataError(
                f"{PREDICTED!r}: task {task + 1} has samples of class {true}, which is not its own"
            )
    for columns in evaluations:
        for name in columns.keys() & set(ANSWERS):
            for number in (int(columns[name].min()), int(columns[name].max())):
                if not 0 <= number < classes:
                    raise DataError(
                        f"{PREDICTED!r}: {name} has class {number}, which is none of 0 to {classes - 1}"
                    )
        for name in CHOICES:
            if columns[name].min() < -1:
                raise DataError(f"{PREDICTED!r}: {name} has {int(columns[name].min())}")
