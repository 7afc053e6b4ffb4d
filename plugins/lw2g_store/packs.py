"""Packs: what a run leaves for others, and the checks that a pack can be given wherever numpy runs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from lw2g.config.directory import CONFIG, RECORD
from lw2g.config.structure import misfit
from lw2g.config.toml import flat, read_toml
from lw2g.disk.contents import Record
from lw2g.disk.protocol import digest_of, facts_of, sha_of_labels
from lw2g.disk.sealed import sha256_of, unseal_json
from lw2g.errors import DataError, Lw2gError, as_word, error_text, shown
from lw2g.interfaces.metric import CORE_METRICS
from lw2g.registry.catalogue import Catalogue
from lw2g.results.recomputed import Columns
from lw2g.results.verdicts import Verdict, consistent, recomputed, rehashed
from lw2g_store import LICENCES
from lw2g_store.bounds import Integers, names_in, read_columns, read_json, require_sizes
from lw2g_store.claims import (
    COLUMNS,
    PREDICTED,
    require_agreement,
    require_costs,
    require_findings,
    require_images,
    require_known_keys,
    require_plain_options,
    require_plain_texts,
    require_possible,
    require_stream,
)

__all__ = [
    "PAPER",
    "PLUGIN",
    "PREDICTED",
    "SEAL",
    "SUBMISSION",
    "Pack",
    "Submission",
    "examine",
    "is_pack",
    "joined",
    "method_of",
    "opened",
    "require_hash",
    "require_no_oracle",
    "split",
    "verify",
]

SUBMISSION = "submission.json"
FILES = (RECORD, CONFIG, PREDICTED, SUBMISSION)
_PRIVATE = r"(?!(local|localhost|internal|test|invalid)([/@?#]|$))"
_HOST = rf"(?!-)([A-Za-z0-9-]{{1,63}}\.)+{_PRIVATE}[a-z][a-z0-9-]{{1,62}}"
"""A name that anybody can look up: no number of a machine, and no name of a private network."""
_PART = r"(?!(\.|%2[eE]){1,2}([/@?#]|$))"
"""Begins a part of a path: `.` and `..` lead elsewhere than the address says."""
PLUGIN = rf"https://{_HOST}(/{_PART}[A-Za-z0-9._~-]+)+@[0-9a-f]{{40}}"
"""Where a package lies that no index has: its address and the commit."""
PAPER = rf"https?://{_HOST}(/{_PART}[^\s<>\"'`\\/?#]*)*([?#][^\s<>\"'`\\]*)?"
"""Where a paper lies."""
SEAL = r"[0-9a-f]{64}"
"""The checksum that ends a record, by which another pack names it."""
_OF_A_SAMPLE = ("sample", "true", "task")
"""Columns that say the same after each task; the first numbers the rows, and is not kept."""
_MISSING = -2
"""Fills a column for evaluations without it; -1 is taken: it says that no set was chosen."""
_LOCAL_PATH = re.compile(r"/home/|/Users/|/root/|\b[A-Za-z]:\\\\")


@attrs.frozen(kw_only=True)
class Submission:
    """``submission.json``: who gives a run, what it was tuned on, and what it was made from."""

    lw2g_version: str
    record: str
    original: str
    who: str
    licence: str = attrs.field(validator=attrs.validators.in_(LICENCES))
    tuned_on: str = attrs.field(validator=attrs.validators.min_len(1))
    runs: int = attrs.field(validator=attrs.validators.ge(1))
    method: str = attrs.field(validator=attrs.validators.matches_re(r"[a-z0-9][a-z0-9._-]{0,150}"))
    components: dict[str, str]
    hardware: str = ""
    contact: str = ""
    paper: str = attrs.field(default="", validator=attrs.validators.matches_re(rf"({PAPER})?"))
    replaces: str = attrs.field(default="", validator=attrs.validators.matches_re(rf"({SEAL})?"))
    plugin: str = attrs.field(default="", validator=attrs.validators.matches_re(rf"({PLUGIN})?"))


@attrs.frozen(kw_only=True)
class Pack:
    """A pack that was read.

    Attributes:
        path: Its folder.
        record: Its record.
        submission: Its submission.
        evaluations: The predictions after each task.
    """

    path: Path
    record: Mapping[str, Any]
    submission: Mapping[str, Any]
    evaluations: Sequence[Columns]


def method_of(record: Mapping[str, Any]) -> str:
    """Return the method as a name of a folder, made from the record."""
    config = record["config"]
    parts = [config["baseline"]["name"]]
    if record["metrics"].get("ssp") is not None:  # without sets, policy and constraints decide nothing
        parts += [config["policy"]["name"], *sorted(config["constraints"])]
    parts.append(config["baseline"].get("head"))
    parts.append((config.get("retrieval") or {}).get("name"))
    name = "_".join(str(part) for part in parts if part)
    # shorter than the 255 bytes that file systems take, with room for the suffixes of its temporary files
    return re.sub(r"[^a-z0-9._-]", "-", name.lower())[:150]


def is_pack(directory: Path) -> bool:
    """Return whether a directory is a pack, not a run."""
    return (directory / SUBMISSION).is_file()


# -- columns ---------------------------------------------------------------------------------------------


def joined(evaluations: Sequence[Columns]) -> dict[str, Integers]:
    """Return the predictions of all evaluations as few columns: what does not change is kept once.

    Other columns hold the evaluations one after another, without columns of -1 alone.
    """
    last = evaluations[-1]
    columns = {"true": _small(last["true"]), "task": _small(last["task"])}
    names: dict[str, None] = {}  # a set that keeps the order in which columns are met
    for each in evaluations:
        names.update(dict.fromkeys(each))
    for name in names:
        if name in _OF_A_SAMPLE:
            continue
        parts = [each.get(name, np.full(len(each["true"]), _MISSING)) for each in evaluations]
        whole = np.concatenate(parts)
        # `split` fills in -1 for choices alone: an answer that was measured stays, whatever it holds
        if name in ("hard", "told", "within") or (whole != -1).any():
            columns[name] = _small(whole)
    return columns


def _small(column: Any) -> Integers:
    """Return a column in the smaller of the two types that fits it, in the byte order of the file."""
    if np.abs(column).max(initial=0) <= np.iinfo(np.int16).max:
        return np.asarray(column, dtype="<i2")
    return np.asarray(column, dtype="<i4")


def split(columns: Mapping[str, Integers], tasks: int) -> list[Columns]:
    """Return the predictions after each task.

    Args:
        columns: What :func:`joined` returned.
        tasks: The number of evaluations.

    Raises:
        DataError: The columns have other lengths.
    """
    if not {"true", "task", "predicted"} <= columns.keys() or len(columns["true"]) != len(columns["task"]):
        raise DataError(f"{PREDICTED!r} has no columns true, task and predicted of fitting lengths")
    task_of_sample = columns["task"]
    if not len(task_of_sample) or task_of_sample.min() != 0 or task_of_sample.max() >= tasks:
        raise DataError(f"{PREDICTED!r} holds samples of other tasks than 1 to {tasks}")
    # after a task the samples of all tasks so far are predicted, so that each evaluation is longer
    counts = np.bincount(task_of_sample, minlength=tasks).cumsum().tolist()
    rows = sum(counts)
    evaluations: list[Columns] = []
    first = 0
    for count in counts:
        each: dict[str, Any] = {
            "sample": np.arange(count, dtype=np.int32),
            "true": columns["true"][:count].astype(np.int32),
            "task": task_of_sample[:count].astype(np.int32),
        }
        for name in {"predicted", "retrieved", "set", "rank", *columns} - each.keys():
            if name not in columns:  # `joined` left it out, because it held -1 alone
                each[name] = np.full(count, -1, dtype=np.int32)
                continue
            whole = columns[name]
            if len(whole) != rows:
                raise DataError(f"{PREDICTED!r}: {name[:40]!r} has {len(whole)} rows, not {rows}")
            part = whole[first : first + count]
            if not (part == _MISSING).any():
                each[name] = part.astype(np.int32)
        evaluations.append(each)
        first += count
    return evaluations


# -- checks ----------------------------------------------------------------------------------------------


def verify(directory: Path, catalogue: Catalogue) -> list[Verdict]:
    """Examine a pack by itself: its files, its seals, its protocol's hash, and every metric."""
    return examine(directory, catalogue)[0]


def examine(
    directory: Path, catalogue: Catalogue, protocol: Mapping[str, Any] | None = None
) -> tuple[list[Verdict], Pack | None]:
    """Examine a pack, step by step until one does not hold.

    Args:
        directory: Its folder.
        catalogue: Knows controls, and has the metrics of plugins.
        protocol: The store's file of the protocol that it is to have; None outside of a store.

    Returns:
        The results, and the pack unless it cannot be read.
    """
    # The order is what makes this safe: files are bounded before they are parsed, their keys and types are
    # known before a value is used, and nothing is computed of tasks and classes that cannot be a stream's.
    read: dict[str, Any] = {}
    steps: dict[str, Callable[[], str | None]] = {
        "files": lambda: names_in(directory, FILES),
        "sizes": lambda: f"{require_sizes(directory) / 1e3:.0f} kB",
        "json": lambda: read.update(_contents(directory)),
        "keys": lambda: _require_known(read["record"], read["submission"]),
        "seal": lambda: _require_sealed(directory, read["record"], read["submission"]),
        "stream": lambda: require_stream(read["record"]),
        "costs": lambda: require_costs(read["record"]),
        "findings": lambda: require_findings(read["record"]),
        "header": lambda: read.update(evaluations=_columns(directory, read["record"])),
        "machine": lambda: _require_public(directory),
        "oracle": lambda: require_no_oracle(read["record"], catalogue),
        "protocol": lambda: _require_protocol(read["record"], read["evaluations"], protocol),
        "agreement": lambda: require_agreement(read["record"], read["submission"], protocol),
        "classes": lambda: require_possible(read["evaluations"], read["record"]),
        "images": lambda: require_images(read["record"], read["evaluations"]),
    }
    verdicts = []
    for what, step in steps.items():
        verdicts.append(_verdict(what, step))
        if not verdicts[-1].holds:
            return verdicts, None
    pack = Pack(path=directory, **read)
    return [*verdicts, *_follows(pack, catalogue)], pack


def opened(directory: Path, catalogue: Catalogue, protocol: Mapping[str, Any] | None = None) -> Pack:
    """Return a pack that holds; the arguments are those of :func:`examine`.

    Raises:
        DataError: It does not.
    """
    verdicts, pack = examine(directory, catalogue, protocol)
    broken = [verdict for verdict in verdicts if verdict.holds is False]
    if broken or pack is None:
        raise DataError(
            f"{str(directory)!r}: {broken[0].what}: {broken[0].text}", f"lw2g verify {as_word(directory)}"
        )
    return pack


def _verdict(what: str, step: Callable[[], str | None]) -> Verdict:
    try:
        return Verdict(what=what, holds=True, text=step() or "as it should be")
    except Lw2gError as error:
        return Verdict(what=what, holds=False, text=str(error))
    except Exception as error:  # invented values fit in no foreseeable way, and other packs are to be checked
        return Verdict(what=what, holds=False, text=f"does not fit ({error_text(error)[:200]})")


def _contents(directory: Path) -> dict[str, Any]:
    """Return record and submission of a pack, whose fields have the right types."""
    contents = {}
    for name, kind in ((RECORD, Record), (SUBMISSION, Submission)):
        content = read_json(directory / name)
        if problem := misfit(content, kind):
            raise DataError(f"{name!r}: {problem[:200]}")
        contents[name.partition(".")[0]] = content
    require_plain_texts(contents["submission"], SUBMISSION, markup=True)
    if not contents["submission"]["who"].strip() or not contents["submission"]["tuned_on"].strip():
        raise DataError(f"{SUBMISSION!r} must tell who gives the run and what it was tuned on")
    return contents


def _require_known(record: Mapping[str, Any], submission: Mapping[str, Any]) -> None:
    """Refuse a record or a submission with keys, options or texts that no version of lw2g writes."""
    require_known_keys(record)
    require_plain_options(record["config"], RECORD)
    require_plain_texts(record, RECORD)
    require_plain_texts(submission["components"], SUBMISSION)
    known = {*attrs.fields_dict(Submission), "sha256"}
    if strange := sorted(submission.keys() - known):
        raise DataError(f"{SUBMISSION!r}: {strange[0][:60]!r} is no field of a submission", "remove it")


def _require_sealed(directory: Path, record: Mapping[str, Any], submission: Mapping[str, Any]) -> None:
    """Refuse a pack whose files do not belong together by checksum, method and options."""
    for name in (RECORD, SUBMISSION):
        unseal_json(directory / name)
    if record["sha256"] != submission["record"]:
        raise DataError(f"{SUBMISSION!r} is of another record")
    if method_of(record) != submission["method"]:
        raise DataError(
            f"{SUBMISSION!r} calls the method {submission['method']!r}, its record {method_of(record)!r}"
        )
    for name in (CONFIG, PREDICTED):
        if sha256_of(directory / name) != record["files"].get(name):
            raise DataError(f"{name!r} does not match its checksum in {RECORD!r}")
    config = read_toml(directory / CONFIG)
    require_plain_options(config, CONFIG)
    written = _set_options(config)
    recorded = _set_options(record["config"])
    for key in sorted(written.keys() | recorded.keys()):
        if written.get(key) != recorded.get(key):
            raise DataError(
                f"{CONFIG!r} and {RECORD!r} differ in {key}: "
                f"{shown(written.get(key))}, {shown(recorded.get(key))}"
            )


def _set_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a configuration by dotted keys; JSON's null is TOML's missing key."""
    return {key: value for key, value in flat(config).items() if value is not None}


def _columns(directory: Path, record: Mapping[str, Any]) -> list[Columns]:
    return split(read_columns(directory / PREDICTED, COLUMNS), record["tasks"])


def _require_public(directory: Path) -> None:
    # a store is public, and a path tells a user's name and what else lies on the machine
    for name in (RECORD, CONFIG, SUBMISSION):
        if found := _LOCAL_PATH.search((directory / name).read_text(encoding="utf-8")):
            raise DataError(f"{name!r} contains a local path ({found[0]!r})", "pack it with lw2g submit")


def require_no_oracle(record: Mapping[str, Any], catalogue: Catalogue) -> None:
    """Refuse a run that is told the task of each test image; bounds and other controls are only marked.

    Raises:
        DataError: It retrieves by an oracle.
    """
    name = (record["config"].get("retrieval") or {}).get("name")
    if name is None:
        return
    # found, not listed: of a run's own catalogue the other plugins are loaded when a name is asked for
    if catalogue.find("retrieval", name) is not None and catalogue.get("retrieval", name).control:
        raise DataError(f"retrieval {name!r} is told the task of each image", "it is for comparison only")


def _require_protocol(
    record: Mapping[str, Any], evaluations: Sequence[Columns], protocol: Mapping[str, Any] | None
) -> str:
    """Return the id of a record's protocol, after its facts, its seed and the tested labels agree with it."""
    require_hash(record)
    facts = facts_of(record)
    if digest_of(facts) != record["protocol_hash"]:
        raise DataError("protocol_hash is not that of the record's facts")
    if protocol is not None:
        wanted = protocol["facts"]
        if facts != wanted:
            other = min(key for key in facts.keys() | wanted.keys() if facts.get(key) != wanted.get(key))
            raise DataError(f"another {other} than {protocol['id']} has: {shown(facts.get(other))[:80]}")
        seeds = protocol.get("seeds")
        if seeds and record["seed"] not in seeds:  # none are all
            raise DataError(f"seed {record['seed']} is none of the protocol's: {', '.join(map(str, seeds))}")
    # the facts only name the test samples by a hash: here it meets those of the predictions
    last = evaluations[-1]
    if sha_of_labels(last["true"], last["task"]) != facts["test_labels"]:
        raise DataError("labels or tasks of the test samples are not the protocol's")
    return str(record["protocol_id"])


def require_hash(record: Mapping[str, Any]) -> None:
    """Refuse a record from before protocols had hashes.

    Raises:
        DataError: It is one.
    """
    if not record.get("protocol_hash") or not record.get("protocol_facts"):
        raise DataError(
            "the record tells no hash of its protocol", "run it anew: lw2g run RUN/config.toml --out NEW"
        )


def _follows(pack: Pack, catalogue: Catalogue) -> Iterator[Verdict]:
    """Yield whether predictions are possible, and whether matrices and metrics follow from them."""
    record = pack.record
    try:
        with warnings.catch_warnings():
            # numpy only warns of a mean of nothing or an overflow, and goes on with NaN, which equals nothing
            warnings.simplefilter("error")
            for task in range(len(pack.evaluations)):
                verdict = consistent(task, pack.evaluations[: task + 1], record)
                yield attrs.evolve(verdict, what=f"{PREDICTED}: after task {task + 1}")
            if missing := sorted(CORE_METRICS.keys() - record["metrics"].keys()):
                text = f"{missing[0]} is missing, and every run has it ({len(missing)} such metrics)"
                yield Verdict(what=f"{RECORD}: metrics", holds=False, text=text)
            yield from recomputed(record, pack.evaluations, catalogue)
            yield from rehashed(record)
    except Exception as error:  # invented numbers fit in no foreseeable way
        text = f"does not fit the predictions ({error_text(error)[:200]})"
        yield Verdict(what=f"{RECORD}: metrics", holds=False, text=text)
