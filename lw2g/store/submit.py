"""Packing a run for the store: without what is of the machine, and without uploading anything."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import tomli_w
from safetensors.numpy import save

from lw2g import __version__
from lw2g.config.directory import CONFIG, RECORD
from lw2g.errors import ConfigError, DataError
from lw2g.files.contents import prediction_name, read_record, record_hash
from lw2g.files.sealed import seal_json, sha256_of
from lw2g.interfaces.metric import CORE_METRICS
from lw2g.registry.catalogue import Catalogue
from lw2g.results.recomputed import read_columns
from lw2g.results.verification import verify as verify_run
from lw2g.store.claims import PREDICTED, class_name, components_of
from lw2g.store.layout import protocol_of, run_folder, take_back
from lw2g.store.packs import (
    SUBMISSION,
    Submission,
    joined,
    method_of,
    require_hash,
    require_no_oracle,
    split,
    verify,
)

__all__ = ["Packed", "public", "submit"]

_PATH = re.compile(r"(?<![^\s'\"=(\[])(?:~|[A-Za-z]:)?(?:[\\/][^\\/\s'\",;)\]]+){2,}[\\/]?")


@attrs.frozen(kw_only=True)
class Packed:
    """A pack that was written: its folder and the size of each file in bytes."""

    path: Path
    sizes: Mapping[str, int]


def submit(run: Path, catalogue: Catalogue, out: Path, told: Mapping[str, Any]) -> Packed:
    """Verify a run and write its pack.

    Args:
        run: The run's directory.
        catalogue: Where its components come from.
        out: A store, or the folder for packs.
        told: What the submitter tells: fields of :class:`Submission`.

    Raises:
        DataError: The run does not hold, is unfinished, a fork or told the task, or uses what nobody can
            install.
        ConfigError: The folder is in use.
    """
    record = read_record(run)
    components = _require_fit(run, record, catalogue)
    evaluations = [
        read_columns(run / prediction_name(task)) for task in range(len(record["accuracy_matrix"]))
    ]
    columns = joined(evaluations)
    again = split(columns, len(evaluations))
    for before, after in zip(evaluations, again, strict=True):
        if any((before[name] != after[name]).any() for name in before):
            raise DataError(f"{str(run)!r}: predictions change when they are packed", "report it as a bug")
    config = _scrubbed(tomllib.loads((run / CONFIG).read_text(encoding="utf-8")))
    files = {CONFIG: tomli_w.dumps(config).encode(), PREDICTED: save(columns)}
    original = sha256_of(run / RECORD) or ""
    files[RECORD] = seal_json(public(record, files))
    sealed = _seal_of(files[RECORD])
    method = method_of(record)
    submission = {
        **{"lw2g_version": __version__, "record": sealed, "original": original, "method": method},
        **{"components": components, **told},
    }
    files[SUBMISSION] = seal_json(attrs.asdict(Submission(**submission)))
    protocol = protocol_of(out, record)
    folder = out / sealed[:12] if protocol is None else run_folder(out, protocol, method, sealed)
    if folder.exists():
        raise ConfigError(f"{str(folder)!r} exists already", "remove it, or name another place with --out")
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    if broken := [verdict for verdict in verify(folder, catalogue) if verdict.holds is False]:
        take_back(folder, out)
        raise DataError(f"the pack would not hold: {broken[0].what}: {broken[0].text}")
    return Packed(path=folder, sizes={name: len(content) for name, content in files.items()})


def _seal_of(content: bytes) -> str:
    return content[-68:-4].decode()


def _require_fit(run: Path, record: Mapping[str, Any], catalogue: Catalogue) -> dict[str, str]:
    """Refuse a run that no store takes; return who offers its components."""
    done = len(record["accuracy_matrix"])
    if done != record.get("tasks"):
        raise DataError(f"the run has finished {done} of {record.get('tasks')} tasks", f"lw2g resume {run}")
    if record["config"]["run"].get("evaluate", "every task") != "every task":
        raise DataError(
            "nothing was measured after some tasks (run.evaluate), and a pack holds every evaluation",
            f"run it with --set 'run.evaluate=every task': lw2g run {run}/{CONFIG} --out NEW",
        )
    if record.get("origin") is not None:
        raise DataError(
            "the run is a fork of another one", f"run its whole configuration: lw2g run {run}/{CONFIG}"
        )
    require_hash(record)
    require_no_oracle(record, catalogue)
    components = {}
    for kind, name in components_of(record["config"]):
        entry = catalogue.find(kind, name)
        if entry is None or entry.origin.distribution is None or entry.origin.version is None:
            raise DataError(
                f"{kind} {name!r} belongs to no installed distribution with a version",
                "publish its plugin, then run it from there",
            )
        components[f"{kind} {name}"] = f"{entry.origin.distribution} {entry.origin.version}"
    # a pack has no checkpoints: who keeps many runs may have deleted them
    verdicts = verify_run(run, catalogue, needs_checkpoints=False)
    if broken := [verdict for verdict in verdicts if verdict.holds is False]:
        raise DataError(f"{broken[0].what}: {broken[0].text}", f"lw2g verify {run}")
    return components


def public(record: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return a record without what is of the machine, and with the checksums of its pack's files.

    Class names stay out: the protocol's hash says which classes they are. Metrics of plugins stay out: a
    store holds what it can compute again.
    """
    told: dict[str, Any] = _scrubbed({key: value for key, value in record.items() if key != "files"})
    told["config"]["trackers"] = {}
    for source in told["sources"]:
        source["benchmark"] = _of_the_data(source["benchmark"])
    system = str(told["environment"].get("platform", "")).partition("-")[0]
    told["environment"]["platform"] = system
    told["class_names"] = [class_name(number) for number in range(len(record["class_names"]))]
    told["metrics"] = {name: value for name, value in record["metrics"].items() if name in CORE_METRICS}
    told["metric_definitions"] = {}
    samples = {name: value for name, value in record["files"].items() if name.startswith("samples")}
    told["files"] = samples | {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    if "record_hash" in told:  # older records have none
        told["record_hash"] = record_hash(told)
    return told


def _scrubbed(value: Any) -> Any:
    """Return plain values without paths; the data set's name stands for its root."""
    if isinstance(value, Mapping):
        table = {key: _scrubbed(inner) for key, inner in value.items() if key != "trackers"}
        if isinstance(table.get("benchmark"), Mapping):
            table["benchmark"] = _of_the_data(table["benchmark"])
        if (
            isinstance(table.get("backbone"), Mapping)
            and (table["backbone"].get("weights") or "none") != "none"
        ):
            table["backbone"] |= {"weights": table["backbone"]["name"]}
        return table
    if isinstance(value, list | tuple):
        return [_scrubbed(inner) for inner in value]
    return _PATH.sub("PATH", value) if isinstance(value, str) else value


def _of_the_data(options: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {"root": options.get("name"), "more_roots": [], "title": "none"}
    known = {key: value for key, value in kept.items() if options.get(key) not in (None, "none", [], ())}
    return {**options, **known}
