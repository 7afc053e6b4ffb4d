"""What a run was evaluated under, as facts with a hash: two runs compare where the hashes are equal.

A protocol is known by an id with a version, such as ``cifar100/like-for-like@1``; a run that fits none of the
known ones has its hash, and an id without a version. Nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from lw2g.config.protocols import OFFICIAL
from lw2g.config.structure import unstructure
from lw2g.interfaces.metric import DEFINITIONS
from lw2g.interfaces.options import ROLES, UNCOUNTED, options_of_role

if TYPE_CHECKING:
    from lw2g.interfaces.stream import TaskStream, Transforms

__all__ = [
    "digest_of",
    "facts_of",
    "noted_facts",
    "protocol_ids",
    "protocol_keys",
    "protocol_name",
    "sha_of_labels",
]

_METRICS = ("A[i,t]", "faa", "faa_samples", "caa", "ffm", "bwt", "pra")
"""The metrics that runs are ranked by; new ones change no protocol."""


def digest_of(facts: Any) -> str:
    """Return the SHA-256 of the canonical JSON of some facts."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sha_of_labels(true: Any, task: Any) -> str:
    """Return the SHA-256 of the class and the task of each test sample, in order."""
    digest = hashlib.sha256()
    for column in (true, task):
        digest.update(np.asarray(column).astype("<i4").tobytes())  # alike on every machine
    return digest.hexdigest()


def noted_facts(stream: TaskStream, transforms: Transforms, options: Any) -> dict[str, Any]:
    """Return the facts of a run that nothing else in its record tells.

    Args:
        stream: The stream.
        transforms: Its transforms.
        options: The options of the benchmark.
    """
    tasks = stream.tasks
    true = np.concatenate([stream.class_map.targets_at(task.test.labels) for task in tasks])
    owners: list[int] = []
    ids: list[str] = []
    for task in tasks:
        owners += [task.index] * len(task.test)
        ids += task.test.ids
    return {
        "test_ids": hashlib.sha256(json.dumps(ids).encode()).hexdigest(),
        "test_labels": sha_of_labels(true, owners),
        "test_transform": _numbers(transforms.test),
        "train_transform": _training(transforms, options),
        # of each definition the first 64 bits of its hash, which tell any two apart
        "metrics": {name: digest_of(DEFINITIONS[name])[:16] for name in _METRICS},
    }


def _training(transforms: Transforms, options: Any) -> dict[str, Any]:
    """Return what a training transform is, by the options that a benchmark declares as parts of it.

    Where it is random and nothing is declared, any option that changes a number may be a part of it.
    """
    parts = options_of_role(type(options), "protocol")
    if not parts and not transforms.train_is_deterministic:
        counted_roles = set(ROLES).difference(UNCOUNTED)
        parts = options_of_role(type(options), *counted_roles)
    values = unstructure(options)
    return {name: values[name] for name in parts} | {"deterministic": transforms.train_is_deterministic}


def _numbers(transform: Any) -> Any:
    """Return a test transform as numbers; of one that is made of functions, where they are defined."""
    if attrs.has(type(transform)) and "size" in attrs.fields_dict(type(transform)):
        return attrs.asdict(transform, filter=lambda field, _: field.init)
    return f"{type(transform).__module__}.{type(transform).__qualname__}"


def protocol_name(record: Mapping[str, Any]) -> str:
    """Return the protocol of a record; an official one is each method's own and carries its name."""
    name = record["protocol"]
    if name != OFFICIAL:
        return str(name)
    return f"{name}/{record['config']['baseline']['name']}"


def facts_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return all facts of the protocol that a record was made under.

    Raises:
        KeyError: The record is older than protocols with hashes.
    """
    benchmark: Mapping[str, Any] = record["config"]["benchmark"]
    return {
        **record["protocol_facts"],
        "benchmark": benchmark["name"],
        "protocol": protocol_name(record),
        "split": benchmark.get("split"),
        "data": record["fingerprints"]["benchmark"],
        "class_order": record["class_order"],
        "tasks": record["task_classes"],
        "domains": record["domains"],
        "backbone": record["backbone"]["sha256"],
        "trained_on": "training images",
    }


def protocol_keys(record: Mapping[str, Any], noted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a record tells of its protocol: id, hash, and the facts that it has nowhere else."""
    digest = digest_of(facts_of({**record, "protocol_facts": noted}))
    return {
        "protocol_id": _known().get(digest, _unversioned(record)),
        "protocol_hash": digest,
        "protocol_facts": dict(noted),
    }


def protocol_ids(record: Mapping[str, Any]) -> set[str]:
    """Return the ids that a record with its hash may have: an older lw2g knew of no version."""
    return {_unversioned(record), _known().get(record["protocol_hash"], _unversioned(record))}


def _unversioned(record: Mapping[str, Any]) -> str:
    return f"{record['config']['benchmark']['name']}/{protocol_name(record)}"


@cache
def _known() -> Mapping[str, str]:
    """Return the ids of the known protocols by their hash."""
    text = (files("lw2g.disk") / "protocols.json").read_text(encoding="utf-8")
    known: Mapping[str, str] = json.loads(text)
    return {digest: name for name, digest in known.items()}
