"""The schemas of a run's sealed JSON files, as far as lw2g reads them.

A checksum shows that a file is unchanged, not that lw2g wrote it: :func:`read_sealed` checks the type of
every value that lw2g reads. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import attrs

from lw2g.config.directory import CHECKPOINTS, CONFIG, RECORD
from lw2g.config.structure import read_plain
from lw2g.config.toml import flat, read_toml
from lw2g.disk.checkpoint_files import CheckpointFiles
from lw2g.disk.sealed import hash_of, sha256_of, unseal_json
from lw2g.errors import ConfigError, DataError, as_word, counted, no_folder

__all__ = [
    "PREDICTIONS",
    "Goal",
    "Record",
    "edited",
    "prediction_name",
    "read_record",
    "read_sealed",
    "record_hash",
    "require_fit",
]

PREDICTIONS = "predictions"
_CLOCKS = ("seconds", "images_per_second")
_HASHES = ("record_hash", "sha256")

T = TypeVar("T")
Values = dict[str, float | None]
Rows = list[list[float | None]]


@attrs.frozen(kw_only=True)
class _Named:
    name: str


@attrs.frozen(kw_only=True)
class _Config:
    baseline: _Named
    policy: _Named
    benchmark: _Named
    backbone: _Named
    retrieval: _Named | None = None
    constraints: dict[str, Any]


@attrs.frozen(kw_only=True)
class _Backbone:
    timm_name: str
    sha256: str


@attrs.frozen(kw_only=True)
class _Measurement:
    value: float | None
    error: float | None
    null: float | None
    own: float | None
    shuffled: float | None
    alike: Literal[1, -1]
    n: int
    unit: str
    why: str | None
    parts: Values


@attrs.frozen(kw_only=True)
class _Candidate:
    set: int
    measures: dict[str, _Measurement] = attrs.field(factory=dict)
    rank: int | None = None
    captured: float | None = None
    excluded: str | None = None


@attrs.frozen(kw_only=True)
class _Decision:
    task: int
    decision: str
    set: int
    candidates: list[_Candidate]
    margin: float = 0.0
    confidence: float | None = None
    weight: float | None = None
    lost: float | None = None
    limits: dict[str, Values] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class _Option:
    option: str


@attrs.frozen(kw_only=True)
class _Changed(_Option):
    before: Any
    after: Any


@attrs.frozen(kw_only=True)
class _Deviation(_Option):
    value: Any
    note: str = ""


@attrs.frozen(kw_only=True)
class _Forked:
    run: str
    task: int
    changed: list[_Changed]


@attrs.frozen(kw_only=True)
class _Source:
    benchmark: _Named


@attrs.frozen(kw_only=True)
class _Shared:
    count: int
    tested: int
    named: list[list[str]]


@attrs.frozen(kw_only=True)
class _Stale:
    last: float | None = None


@attrs.frozen(kw_only=True)
class _Motion:
    task: int
    new: float
    old: float
    times: float | None
    held: list[int]
    carried: int
    alarming: bool


@attrs.frozen(kw_only=True)
class _Findings:
    motions: list[_Motion] = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class _Expert:
    forwards_per_image: int | None
    numbers: int
    temperature: float


@attrs.frozen(kw_only=True)
class _Routing:
    passes_per_image: int


@attrs.frozen(kw_only=True)
class _Ahead:
    by_task: list[float | None]
    mean: float | None
    chance: float | None = None


@attrs.frozen(kw_only=True)
class _Calibration:
    ece: float
    bins: int
    temperature: float | None


def _a_value_per_task(record: Record, field: attrs.Attribute[Any], value: Any) -> None:
    tasks = len(record.accuracy_matrix)
    if value is None:
        return
    for row in (value, *value):  # a matrix has as many columns as rows
        if isinstance(row, list) and len(row) != tasks:
            raise ValueError(f"expected {counted(tasks, 'task')}, as many as have rows in accuracy_matrix")


def _no_less_than_tasks(record: Record, field: attrs.Attribute[Any], value: list[Any] | None) -> None:
    tasks = len(record.accuracy_matrix)
    if value and len(value) < tasks:
        raise ValueError(
            f"expected {counted(tasks, 'task')} or more, as many as have rows in accuracy_matrix"
        )


def _all_with_classes(record: Record, field: attrs.Attribute[Any], value: list[list[int]]) -> None:
    for task, classes in enumerate(value, start=1):
        if not classes:
            raise ValueError(f"task {task} has no classes")
        _require_names(classes, record)


def _all_named(record: Record, field: attrs.Attribute[Any], value: _Findings) -> None:
    for motion in value.motions:
        _require_names(motion.held, record)


def _require_names(classes: Sequence[int], record: Record) -> None:
    """Refuse numbers of classes that are none of ``class_names``, which whoever shows them reads."""
    for number in classes:
        if not 0 <= number < len(record.class_names):
            raise ValueError(f"class {number} is none of the {len(record.class_names)} of class_names")


def _a_group_per_task(record: Record, field: attrs.Attribute[Any], value: list[Any] | None) -> None:
    if value is not None and len(value) < len(record.accuracy_matrix):
        raise ValueError(f"expected groups of {counted(len(record.accuracy_matrix), 'task')} or more")


@attrs.frozen(kw_only=True)
class _Metric:
    definition: str
    unit: str
    digits: int
    plugin: str


@attrs.frozen(kw_only=True)
class Record:
    """``record.json``; what came later than the first records may be missing."""

    lw2g_version: str
    protocol: str
    protocol_changes: list[_Option]
    config: _Config
    seed: int
    fingerprints: dict[str, str]
    backbone: _Backbone
    class_order: list[int]
    class_names: list[str]
    task_classes: list[list[int]] = attrs.field(
        factory=list, validator=[_no_less_than_tasks, _all_with_classes]
    )
    domains: list[str] | None = attrs.field(default=None, validator=_no_less_than_tasks)
    accuracy_matrix: Rows = attrs.field(validator=_a_value_per_task)
    retrieval_matrix: Rows | None = attrs.field(validator=_a_value_per_task)
    decisions: list[_Decision]
    task_to_set: list[int] = attrs.field(validator=_a_value_per_task)
    metrics: Values
    metric_definitions: dict[str, _Metric] = attrs.field(factory=dict)
    planted_groups: list[Any] | None = attrs.field(validator=_a_group_per_task)
    adjusted_rand_index: float | None
    storage: dict[str, float]
    seconds: dict[str, float]
    deviations: list[_Deviation]
    files: dict[str, str]
    tasks: int | None = None
    environment: dict[str, Any] = attrs.field(factory=dict)
    precision: dict[str, str] = attrs.field(factory=dict)
    sources: list[_Source] = attrs.field(factory=list)
    shared_images: _Shared | None = None
    image_hashes: list[str] | None = None
    origin: _Forked | None = None
    feature_drift: Rows | None = None
    stale_classes: _Stale = _Stale()
    routing: _Routing | None = None
    expert: _Expert | None = None
    findings: _Findings = attrs.field(default=_Findings(), validator=_all_named)
    flops: Values = attrs.field(factory=dict)
    images_per_second: float | None = None
    protocol_id: str | None = None
    protocol_hash: str | None = None
    protocol_facts: dict[str, Any] | None = None
    next_domain: _Ahead | None = None
    calibration: _Calibration | None = None
    record_hash: str | None = None


@attrs.frozen(kw_only=True)
class Goal:
    """``goal.json``: after how many tasks a run stops."""

    tasks: int


def record_hash(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the lines of a record without its clocks and its hashes.

    It is the same for two runs of one configuration wherever these give the same bits. As the seal it hashes
    text, and not sorted values: a record is written after every task, and grows with them.
    """
    left_out = (*_CLOCKS, *_HASHES)
    return hash_of({key: value for key, value in record.items() if key not in left_out})


def prediction_name(task: int) -> str:
    """Return where in a run's directory the predictions after a task lie."""
    return f"{PREDICTIONS}/task-{task:03d}.safetensors"


def read_sealed(path: Path, kind: type[Any]) -> dict[str, Any]:
    """Return the content of a sealed JSON file.

    Args:
        path: The file.
        kind: What it holds: a class of this module, or one like them.

    Raises:
        DataError: It cannot be read, does not match its checksum, or holds something else.
    """
    content = unseal_json(path)
    require_fit(content, path, kind)
    return content


def require_fit(content: Any, path: Path, kind: type[T]) -> T:
    """Return content as the class that is the schema of its file.

    Raises:
        DataError: It does not fit; the first problem is named with its place.
    """
    try:
        return read_plain(content, kind)
    except ValueError as error:
        raise DataError(f"{str(path)!r} is no {kind.__name__.lower()} of lw2g: {error}") from error


def read_record(directory: Path) -> dict[str, Any]:
    """Return the record of the run in a directory.

    Raises:
        DataError: There is none, it is damaged, or it is of another run than the configuration beside it, or
            that was edited.
    """
    path = directory / RECORD
    if not directory.is_dir():
        raise DataError(no_folder(directory), "give a run's directory")
    if not path.exists():
        raise DataError(f"no record at {str(path)!r}", "the run has not finished a task")
    remedy = f"put it back, or write it anew: lw2g resume {as_word(directory)}"
    try:
        record = read_sealed(path, Record)
    except DataError as error:
        raise DataError(error.what, remedy) from error
    # where one of the two is missing, there is nothing to compare
    recorded = record["files"].get(CONFIG)
    found = sha256_of(directory / CONFIG)
    if recorded is None or found is None or recorded == found:
        return record
    for _, _, complaint, ledger in CheckpointFiles(directory / CHECKPOINTS).examine():
        if complaint is None and ledger.get("files", {}).get(CONFIG) == found:
            raise DataError(f"{str(path)!r} is not of the run that {CONFIG} beside it describes", remedy)
    raise edited(directory / CONFIG, record["config"])


def edited(config: Path, began: Mapping[str, Any]) -> DataError:
    """Return the error of a configuration that is not the one its run began with.

    Args:
        config: The file.
        began: What the run began with, for the options that differ; empty where no record tells it.
    """
    differences = []
    try:
        now = flat(read_toml(config))
    except ConfigError:
        began = {}
    for key, value in flat(began).items():
        if value is not None and now.get(key) != value:
            differences.append(f"{key} is {now.get(key)!r} and was {value!r}")
    told = f" ({', '.join(differences)})" if differences else ""
    return DataError(
        f"{str(config)!r} is not the one the run began with{told}",
        f"put it back, or run it as a new one: lw2g run {as_word(config)} --out NEW",
    )
