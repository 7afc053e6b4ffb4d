"""Packing a run for the store: without what is of the machine, and without uploading anything."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs
import tomli_w
from safetensors.numpy import save

from lw2g import __version__
from lw2g.config.directory import CONFIG, RECORD
from lw2g.config.sources import place_options
from lw2g.config.structure import NONE
from lw2g.disk.contents import prediction_name, read_record, record_hash
from lw2g.disk.plugin_code import code_among, is_of_several
from lw2g.disk.sealed import seal_json, sha256_of
from lw2g.errors import ConfigError, DataError, as_word
from lw2g.ground.notes import tell_note
from lw2g.interfaces.metric import CORE_METRICS
from lw2g.interfaces.options import options_of_role
from lw2g.model.places import reserved, write_folder
from lw2g.pixels.shared_words import shared_of_record
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.markers import PROJECT
from lw2g.results.found_runs import read_run
from lw2g.results.recomputed import read_columns
from lw2g.results.verification import verify as verify_run
from lw2g_store.bounds import Integers
from lw2g_store.claims import PREDICTED, class_name, components_of
from lw2g_store.layout import naming_command, protocol_of, run_folder, says_which_data
from lw2g_store.packs import (
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

# two or more parts after a slash, a tilde or a drive, where a word begins: "1/2" and "a/b" are no paths
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
        DataError: The run does not hold, is unfinished, a fork, learned by several versions of a plugin's
            code or knows the task, or uses what nobody can install.
        ConfigError: The folder is in use.
    """
    record = read_record(run)
    components = _require_fit(run, record, catalogue)
    columns = _packed_predictions(run, len(record["accuracy_matrix"]))
    config = _scrubbed(tomllib.loads((run / CONFIG).read_text(encoding="utf-8")), catalogue)
    # each file names those before it by their checksums, and so the last one seals all
    files = {CONFIG: tomli_w.dumps(config).encode(), PREDICTED: save(columns)}
    files[RECORD] = seal_json(public(record, files, catalogue))
    sealed = _seal_of(files[RECORD])
    submission = Submission(
        lw2g_version=__version__,
        record=sealed,
        original=sha256_of(run / RECORD) or "",
        method=method_of(record),
        components=components,
        **told,
    )
    files[SUBMISSION] = seal_json(attrs.asdict(submission))
    folder = out / sealed[:12]
    protocol = protocol_of(out, record, remedy=_how_to_add(out, run, record, catalogue))
    if protocol is not None:
        folder = run_folder(out, protocol, submission.method, sealed)
    if folder.exists():
        raise ConfigError(f"{str(folder)!r} exists already", "remove it, or name another place with --out")
    with reserved(folder, inputs=(run,)) as place:
        # what the store's own check would refuse is better known before it is sent
        write_folder(place, files, look=partial(_require_held, catalogue))
    if not submission.plugin:
        _tell_what_others_lack(components)
    if leak := shared_of_record(record):
        tell_note(f"{leak}; the pack says how many")
    if protocol is None:
        tell_note(f"{str(out)!r} is no store: the pack lies there alone")
    return Packed(path=folder, sizes={name: len(content) for name, content in files.items()})


def _how_to_add(store: Path, run: Path, record: Mapping[str, Any], catalogue: Catalogue) -> str:
    """Return how the protocol of a run gets into a store."""
    if not says_which_data(record, catalogue):
        return f"name its data: {naming_command(store, run)}, then submit"
    return (
        "in a store of your own: submit with --new-protocol; else a maintainer adds it: "
        f"lw2g store protocol {as_word(store)} {as_word(run)}"
    )


def _tell_what_others_lack(components: Mapping[str, str]) -> None:
    """Note which distributions of components lie in folders of this machine alone."""
    for distribution in sorted(set(components.values())):
        name = distribution.rpartition(" ")[0]
        try:
            read = metadata.distribution(name).read_text  # as UTF-8, and nothing where there is no file
            origin = json.loads(read("direct_url.json") or "{}")
        except metadata.PackageNotFoundError:  # removed since it was loaded
            continue
        if name != PROJECT and str(origin.get("url", "")).startswith("file:"):
            tell_note(
                f"{distribution} is installed from a folder of yours, and others cannot get it: publish it, "
                "or say where it lies with --plugin https://HOST/PATH@COMMIT"
            )


def _require_held(catalogue: Catalogue, pack: Path) -> None:
    for verdict in verify(pack, catalogue):
        if verdict.holds is False:
            raise DataError(f"the pack would not hold: {verdict.what}: {verdict.text}")


def _packed_predictions(run: Path, tasks: int) -> dict[str, Integers]:
    """Return the columns of a pack for the predictions of a run.

    Raises:
        DataError: Other predictions would come out of the pack again.
    """
    evaluations = [read_columns(run / prediction_name(task)) for task in range(tasks)]
    columns = joined(evaluations)
    for before, after in zip(evaluations, split(columns, tasks), strict=True):
        for name in before:
            if (before[name] != after[name]).any():
                raise DataError(
                    f"{str(run)!r}: predictions change when they are packed", "report it as a bug"
                )
    return columns


def _seal_of(content: bytes) -> str:
    """Return the seal of a file that :func:`seal_json` made: its last value, 64 digits before the end."""
    return content[-68:-4].decode()


def _require_fit(run: Path, record: Mapping[str, Any], catalogue: Catalogue) -> dict[str, str]:
    """Refuse a run that no store takes; return who offers its components."""
    done = len(record["accuracy_matrix"])
    if done != record.get("tasks"):
        found = read_run(run)
        command = "continue" if found is not None and found.state == "stopped" else "resume"
        raise DataError(
            f"the run has finished {done} of {record.get('tasks')} tasks", f"lw2g {command} {as_word(run)}"
        )
    if record["config"]["run"].get("evaluate", "every task") != "every task":
        raise DataError(
            "nothing was measured after some tasks (run.evaluate), and a pack holds every evaluation",
            f"run it with --set 'run.evaluate=every task': lw2g run {as_word(run / CONFIG)} --out NEW",
        )
    if record.get("origin") is not None:
        raise DataError(
            "the run is a fork of another one",
            f"run its whole configuration: lw2g run {as_word(run / CONFIG)}",
        )
    for distribution, had in code_among([run]).items():
        if is_of_several(had):
            raise DataError(
                f"the run was learned by several versions of {distribution}'s code",
                f"run its whole configuration: lw2g run {as_word(run / CONFIG)} --out NEW",
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
    for verdict in verify_run(run, catalogue, needs_checkpoints=False):
        if verdict.holds is False:
            raise DataError(f"{verdict.what}: {verdict.text}", f"lw2g verify {as_word(run)}")
    return components


def public(record: Mapping[str, Any], files: Mapping[str, bytes], catalogue: Catalogue) -> dict[str, Any]:
    """Return a record without what is of the machine, and with the checksums of its pack's files.

    Class names stay out: the protocol's hash says which classes they are. Metrics of plugins stay out: a
    store holds what it can compute again.

    Args:
        record: The record.
        files: The other files of the pack by name.
        catalogue: Knows which options of the benchmarks name places.
    """
    public_record = {key: value for key, value in record.items() if key != "files"}
    shared: dict[str, Any] = _scrubbed(public_record, catalogue)
    shared["config"]["trackers"] = {}  # a configuration has the table, and none of theirs
    for source in shared["sources"]:
        source["benchmark"] = _anonymised(source["benchmark"], catalogue)
    # of "Linux-6.1.0-13-amd64-x86_64" the system alone: a kernel of one's own may be named after its place
    system = str(shared["environment"].get("platform", "")).partition("-")[0]
    shared["environment"]["platform"] = system
    shared["class_names"] = [class_name(number) for number in range(len(record["class_names"]))]
    shared["metrics"] = {name: value for name, value in record["metrics"].items() if name in CORE_METRICS}
    shared["metric_definitions"] = {}
    checksums = {}
    for name, digest in record["files"].items():
        if name.startswith("samples"):  # ids of test images: the lists stay with the run
            checksums[name] = digest
    for name, content in files.items():
        checksums[name] = hashlib.sha256(content).hexdigest()
    shared["files"] = checksums
    if "record_hash" in shared:  # older records have none
        shared["record_hash"] = record_hash(shared)
    return shared


def _scrubbed(value: Any, catalogue: Catalogue) -> Any:
    """Return plain values without paths; the benchmark's name stands for where its data lie."""
    if isinstance(value, str):
        return _PATH.sub("PATH", value)
    if isinstance(value, list | tuple):
        return [_scrubbed(inner, catalogue) for inner in value]
    if not isinstance(value, Mapping):
        return value
    table: dict[str, Any] = {}
    for key, inner in value.items():
        if key != "trackers":  # addresses and folders of a laboratory
            table[key] = _scrubbed(inner, catalogue)
    benchmark = table.get("benchmark")
    if isinstance(benchmark, Mapping):
        table["benchmark"] = _anonymised(benchmark, catalogue)
    backbone = table.get("backbone")
    if isinstance(backbone, Mapping) and (backbone.get("weights") or NONE) != NONE:
        # a file of weights is known by its checksum; here it is called as its architecture is
        table["backbone"] = {**backbone, "weights": backbone["name"]}
    return table


def _anonymised(options: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Return the options of a benchmark, as plain values, without folders of the machine and own titles."""
    declared = catalogue.get("benchmark", options["name"]).config
    kept = dict(options)
    for key in place_options(declared):
        place = options.get(key)
        if isinstance(place, list | tuple):
            kept[key] = []
        elif place not in (None, NONE):
            # a name in place of the folder: it shows that one was given, and is a path for the type
            kept[key] = options["name"]
    # a title is the user's word for his data, and may name a person or a place
    for key in options_of_role(declared, "title"):
        if options.get(key) not in (None, NONE):
            kept[key] = NONE
    return kept
