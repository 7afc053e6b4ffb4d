"""Runs on disk as small as reports need them; fixtures for the tests of tables and of the page."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from lw2g.config.resolve import resolve
from lw2g.config.toml import to_mapping, to_toml
from lw2g.disk.sealed import seal_json
from lw2g.interfaces.growth import CandidateEvidence, Measurement
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.results.found_runs import ReportedRun, read_run

CONFIG: dict[str, Any] = {
    "baseline": {"name": "dual-prompt", "epochs": 40},
    "retrieval": {"name": "key-cosine"},
    "policy": {"name": "always"},
    "constraints": {},
    "benchmark": {"name": "cifar100", "increment": 10, "root": "here", "order": "natural"},
    "backbone": {"name": "sup21k", "weights": None},
    "growth": {"energy": 0.95},
    "run": {"seed": 0, "device": "cpu"},
}
RECORD: dict[str, Any] = {
    "lw2g_version": "0.1.0",
    "tasks": 2,
    "protocol": "official",
    "class_order": [0, 1],
    "class_names": ["a", "b"],
    "fingerprints": {"benchmark": "b" * 64, "backbone": "c" * 64},
    "backbone": {"timm_name": "vit", "sha256": "c" * 64},
    "accuracy_matrix": [[90.0, 80.0], [None, 70.0]],
    "retrieval_matrix": None,
    "decisions": [],
    "task_to_set": [0, 1],
    "planted_groups": None,
    "adjusted_rand_index": None,
    "protocol_changes": [],
    "deviations": [],
    "files": {},
    "storage": {"prompt_vectors": 90},
    "seconds": {"total": 10.0},
}


def changed(tables: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with values at dotted keys replaced."""
    found = copy.deepcopy(tables)
    for path, value in changes.items():
        *keys, last = path.split(".")
        place = found
        for key in keys:
            place = place.setdefault(key, {})
        place[last] = copy.deepcopy(value)
    return found


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., ReportedRun]:
    """Write a run of the given FAA; changes are options by dotted keys, or parts of ``record.`` likewise."""

    def write(faa: float, **changes: Any) -> ReportedRun:
        path = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        path.mkdir()
        own = {
            key.removeprefix("record."): value for key, value in changes.items() if key.startswith("record.")
        }
        config = changed(
            CONFIG, {key: value for key, value in changes.items() if not key.startswith("record.")}
        )
        record = {
            **RECORD,
            "config": config,
            "seed": config["run"]["seed"],
            "metrics": {"faa": faa, "pra": None},
        }
        (path / "config.toml").write_text("", encoding="utf-8")
        (path / "record.json").write_bytes(seal_json(changed(record, own)))
        run = read_run(path)
        assert run is not None
        return run

    return write


TASK_TO_SET = [0, 1, 0]
# by sample: task, true class, predicted class, retrieved task; the third task shares the first one's set
SAMPLES = np.array(
    [
        [0, 0, 0, 0],
        [0, 0, 0, 2],
        [0, 1, 0, 0],
        [0, 1, 2, 1],
        [1, 2, 2, 1],
        [1, 2, 3, 1],
        [1, 3, 3, 1],
        [1, 3, 5, 0],
        [2, 4, 4, 2],
        [2, 4, 4, 1],
        [2, 5, 5, 0],
        [2, 5, 5, 2],
    ]
)
MATRIX = [[100.0, 75.0, 50.0], [None, 75.0, 50.0], [None, None, 100.0]]


catalogue = cache(load_catalogue)


def candidate(number: int, z: float | None, excluded: str | None = None) -> dict[str, Any]:
    """Return a candidate's evidence as records hold it."""
    measures = {}
    if z is not None:
        parts = {"hfc": 70.0 + z, "hfc_pre": 70.0, "null_hfc": 40.0, "energy_null_hfc": 72.0}
        found = Measurement(value=z, error=0.5, null=-2.0, n=16, unit="degrees", parts=parts)
        measures["hindrance"] = found
    return CandidateEvidence(set=number, measures=measures, rank=9, excluded=excluded).as_mapping()


DECISIONS = [
    {"task": 0, "decision": "grow", "set": 0, "margin": 2.0, "candidates": []},
    {"task": 1, "decision": "grow", "set": 1, "margin": 2.0, "candidates": [candidate(0, 3.0)]},
    {
        "task": 2,
        "decision": "reuse",
        "set": 0,
        "margin": 2.0,
        "candidates": [candidate(0, -1.0), candidate(1, None, "its space is full")],
        "confidence": 0.9,
        "limits": {"hindrance": {"0": 1.0}},
    },
]


def predictions() -> bytes:
    """Return the last evaluation as a run stores it."""
    task, true, predicted, retrieved = SAMPLES.T
    columns = {
        "sample": np.arange(len(SAMPLES)),
        "true": true,
        "predicted": predicted,
        "task": task,
        "retrieved": retrieved,
        "set": np.array(TASK_TO_SET)[retrieved],
        "rank": np.zeros(len(SAMPLES)),
    }
    content: bytes = save({name: column.astype(np.int32) for name, column in columns.items()})
    return content


def write_full(path: Path, changes: dict[str, Any], **named: Any) -> ReportedRun:
    """Write a run of three tasks in two sets, with evidence and predictions.

    Args:
        path: Its directory.
        changes: Parts of the record by dotted keys.
        named: What its configuration is resolved from.
    """
    config = resolve(catalogue(), benchmark="digits", **named).config
    path.mkdir(parents=True)
    (path / "predictions").mkdir()
    (path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    (path / "predictions/task-002.safetensors").write_bytes(predictions())
    ids = [f"test/{number}" for number in range(len(SAMPLES))]
    (path / "samples.json").write_text(json.dumps(ids), encoding="utf-8")
    metrics = {
        "faa": 200 / 3,
        "ffm": 25.0,
        "ffm_code": 37.5,
        "bwt": -37.5,
        "pra": 75.0,
        "chance_pra": 55.6,
        "ssp": 2,
    }
    record: dict[str, Any] = {
        "lw2g_version": "0.1.0",
        "protocol": "like-for-like",
        "protocol_changes": [{"option": "benchmark.test_resize", "value": "squash", "protocol": "crop"}],
        "config": to_mapping(config),
        "seed": config.run.seed,
        "tasks": 3,
        "environment": {"python": "3.11", "torch": "2.5", "device": "cpu", "cores": 2},
        "precision": {"asked": config.run.precision, "used": "32-true", "reason": "as configured"},
        "fingerprints": {"benchmark": "b" * 64, "backbone": "c" * 64},
        "sources": [],
        "origin": None,
        "backbone": {"timm_name": "micro", "sha256": "c" * 64},
        "class_order": list(range(6)),
        "class_names": ["ant", "bee", "cat", "dog", "elk", "fox"],
        "task_classes": [[0, 1], [2, 3], [4, 5]],
        "accuracy_matrix": MATRIX,
        "retrieval_matrix": MATRIX,
        "decisions": DECISIONS,
        "task_to_set": TASK_TO_SET,
        "planted_groups": None,
        "adjusted_rand_index": None,
        "metrics": {**metrics, "coverage_3": 100.0},
        "feature_drift": [[], [0.02], [0.1, 0.0]],
        "storage": {"prompt_vectors": 40, "basis_vectors": 60, "parameters": 5000, "statistics": 700},
        "flops": {"training_per_image": 3e6, "inference_per_image": 1e6},
        "seconds": {
            "evidence": 1.0,
            "training": 6.0,
            "subspace": 0.5,
            "evaluation": 2.0,
            "total": 10.0,
            "per_test_image": 0.002,
        },
        "deviations": [
            {"option": "constraints.cpk.on", "value": "update", "published": "gradient", "note": "x"}
        ],
        "files": {
            "samples.json": hashlib.sha256((path / "samples.json").read_bytes()).hexdigest(),
            "predictions/task-002.safetensors": hashlib.sha256(predictions()).hexdigest(),
        },
    }
    (path / "record.json").write_bytes(seal_json(changed(record, changes)))
    run = read_run(path)
    assert run is not None
    return run


@pytest.fixture(scope="session")
def installed() -> Catalogue:
    """The installed plugins."""
    return catalogue()


@pytest.fixture
def write_full_run(tmp_path: Path) -> Callable[..., ReportedRun]:
    """Write a run as :func:`write_full` does; changes are parts of the record by dotted keys."""

    def write(name: str = "full", changes: dict[str, Any] | None = None, **named: Any) -> ReportedRun:
        return write_full(tmp_path / name, changes or {}, **named)

    return write
