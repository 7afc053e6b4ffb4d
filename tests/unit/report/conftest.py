"""Runs on disk as small as reports need them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lw2g.report.runs import Run, read_run

CONFIG: dict[str, Any] = {
    "baseline": {"name": "dual-prompt", "epochs": 5},
    "retrieval": {"name": "key-cosine"},
    "policy": {"name": "always"},
    "constraints": {},
    "benchmark": {"name": "cifar100", "increment": 10, "root": "here", "order": "natural"},
    "backbone": {"name": "sup21k", "weights": None},
    "growth": {"energy": 0.95},
    "run": {"seed": 0, "device": "cpu"},
}
RECORD: dict[str, Any] = {
    "tasks": 2,
    "protocol": "official",
    "class_order": [0, 1],
    "class_names": ["a", "b"],
    "fingerprints": {"benchmark": "b" * 64, "backbone": "c" * 64},
    "backbone": {"timm_name": "vit", "sha256": "c" * 64},
    "accuracy_matrix": [[90.0, 80.0], [None, 70.0]],
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
def write_run(tmp_path: Path) -> Callable[..., Run]:
    """Write a run of the given FAA; changes are options by dotted keys, or parts of ``record.`` likewise."""

    def write(faa: float, **changes: Any) -> Run:
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
        (path / "config.toml").write_text("")
        (path / "record.json").write_text(json.dumps(changed(record, own)))
        run = read_run(path)
        assert run is not None
        return run

    return write
