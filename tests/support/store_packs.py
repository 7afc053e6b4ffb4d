"""Packs of a store, and what somebody may forge of them."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs
import tomli_w
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save

from lw2g.cli.main import main
from lw2g.disk.contents import record_hash
from lw2g.disk.protocol import digest_of, facts_of
from lw2g.disk.sealed import seal_json, unseal_json
from lw2g.registry.catalogue import Catalogue
from lw2g.results.recomputed import RecordedStream, matrices, metrics
from lw2g_store.packs import split
from lw2g_store.store_checks import check_store

__all__ = ["SMALL", "TOLD", "Forged", "failed", "forge", "invoke", "only"]

TOLD = {"who": "somebody", "licence": "CC0-1.0", "tuned_on": "nothing", "runs": 1}
SMALL = {"classes_per_family": 2, "increment": 2, "train_per_class": 8, "test_per_class": 10}


def invoke(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@attrs.define
class Forged:
    """What somebody may change before sealing everything anew."""

    record: dict[str, Any]
    submission: dict[str, Any]
    columns: dict[str, Any]
    files: dict[str, bytes] = attrs.field(factory=dict)

    def hash_anew(self) -> None:
        self.record["protocol_hash"] = digest_of(facts_of(self.record))

    def follow(self) -> None:
        """Let matrices and metrics follow from the columns."""
        tasks = len(self.record["accuracy_matrix"])
        evaluations = split(self.columns, tasks)
        stream, held = RecordedStream.of(self.record, tasks), self.record["task_to_set"]
        found = matrices(evaluations, held, stream)
        rows = [[None if math.isnan(value) else value for value in row] for row in found[0].tolist()]
        has_sets = self.record["storage"]["prompt_vectors"] > 0
        values = metrics(evaluations, held, stream, found, sets=has_sets)
        self.record["accuracy_matrix"] = rows
        self.record["metrics"] |= {
            name: None if value is None else float(value)
            for name, value in values.items()
            if name in self.record["metrics"]
        }


def forge(folder: Path, change: Callable[[Forged], Any]) -> Path:
    """Change a pack and put every checksum and the folder's name right; return the folder."""
    columns = {name: column.copy() for name, column in load_file(folder / "predictions.safetensors").items()}
    forged = Forged(unseal_json(folder / "record.json"), unseal_json(folder / "submission.json"), columns)
    change(forged)
    written = {key: value for key, value in forged.record["config"].items() if value is not None}
    written = {
        name: {key: "none" if value is None else value for key, value in table.items()}
        for name, table in written.items()
    }
    files = {"predictions.safetensors": save(forged.columns), "config.toml": tomli_w.dumps(written).encode()}
    files |= forged.files
    forged.record["files"] |= {
        name: sha256(content).hexdigest() for name, content in files.items() if name in forged.record["files"]
    }
    try:
        forged.record["record_hash"] = record_hash(forged.record)
        files.setdefault("record.json", seal_json(forged.record))
    except ValueError:  # NaN is no JSON, but somebody else's program may write it
        files["record.json"] = json.dumps(forged.record | {"sha256": "0" * 64}).encode()
    forged.submission["record"] = json.loads(files["record.json"])["sha256"]
    files["submission.json"] = seal_json(forged.submission)
    place = folder.with_name(forged.submission["record"][:12])
    shutil.rmtree(folder)
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(content)
    return place


def only(store: Path) -> Path:
    return next(iter(store.glob("runs/*/*/*/*")))


def failed(store: Path, known: Catalogue) -> list[str]:
    return [verdict.text for verdict in check_store(store, known) if verdict.holds is False]
