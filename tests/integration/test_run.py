"""Whole runs on the tiny components: what the record says, and what policies and constraints do."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from lw2g.config.resolve import load_resolved
from lw2g.disk.checkpoint import CheckpointStore
from lw2g.errors import ConfigError
from lw2g.learning.session import open_session
from lw2g.learning.state import restore
from lw2g.lifecycle.runner import start
from runs import tensors

KEYS = {
    "lw2g_version", "protocol", "protocol_changes", "config", "seed", "environment", "fingerprints",
    "class_order", "task_classes", "domains", "accuracy_matrix", "retrieval_matrix", "decisions",
    "task_to_set", "metrics", "storage", "flops", "seconds", "images_per_second", "deviations",
}  # fmt: skip


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    if isinstance(value, list):
        return [number for part in value for number in numbers(part)]
    return [float(value)] if isinstance(value, (int, float)) else []


def test_the_record_has_its_stable_keys(finished):
    """Keys, shapes and ranges are those that readers rely on."""
    directory, record = finished
    written = json.loads((directory / "record.json").read_text())
    assert len(written.pop("sha256")) == 64
    assert written == record
    assert set(record) >= KEYS
    assert set(record["metrics"]) == {
        "faa", "faa_samples", "caa", "ffm", "ffm_code", "bwt", "task_accuracy", "faa_hard", "faa_told",
        "faa_within", "pra", "coverage_3", "ssp", "chance_pra", "caa_samples", "faa_classes", "faa_domains",
        "ffm_absent",
    }  # fmt: skip
    assert set(record["fingerprints"]) == {"benchmark", "backbone"}
    assert set(record["storage"]) == {"prompt_vectors", "basis_vectors", "parameters", "statistics"}
    assert set(record["flops"]) == {"training_per_image", "inference_per_image"}
    assert set(record["seconds"]) == {
        "evidence", "training", "subspace", "evaluation", "total", "per_test_image",
    }  # fmt: skip
    for task, row in enumerate(record["accuracy_matrix"]):
        assert [value is None for value in row] == [after < task for after in range(3)]
        assert all(0 <= value <= 100 for value in row if value is not None)
    assert all(math.isfinite(number) for number in numbers(record))


def test_decisions_carry_their_evidence(finished):
    """Task 1 grows; later entries name every live set with angles, error, nulls and sites."""
    _, record = finished
    first, *later = record["decisions"]
    assert (first["decision"], first["candidates"], first["set"]) == ("grow", [], 0)
    for task, entry in enumerate(later, 1):
        assert entry["task"] == task
        live = sorted(set(record["task_to_set"][:task]))
        assert [candidate["set"] for candidate in entry["candidates"]] == live
        measured = [candidate["measures"]["hindrance"] for candidate in entry["candidates"]]
        z = [one["value"] for one in measured]
        assert entry["decision"] == ("grow" if min(z) > 0 else "reuse")
        assert (entry["burden"], 0 <= entry["confidence"] <= 1) == ("grow", True)
        assert entry["limits"] == {"hindrance": dict.fromkeys(map(str, live), pytest.approx(0.0))}
        for one in measured:
            parts = one["parts"]
            assert one["value"] == pytest.approx(parts["hfc"] - parts["hfc_pre"])
            assert one["sites"].keys() == {f"blocks.{block}.prefix_key" for block in range(5)}
            assert 0 <= parts["null_hfc"] <= 90
            assert 0 <= parts["energy_null_hfc"] <= 90
        assert entry["ranks_after"]


def test_the_resolved_configuration_runs_again_to_the_same_numbers(finished, catalogue, tmp_path):
    """config.toml is complete: another run of it gives the same matrices and decisions."""
    directory, record = finished
    torch.manual_seed(321)  # what was drawn before a run does not matter
    again = start(load_resolved(directory / "config.toml", catalogue), catalogue, tmp_path / "again")
    for key in ("accuracy_matrix", "retrieval_matrix", "decisions", "metrics", "config", "deviations"):
        assert again[key] == record[key]


def test_always_without_constraints_builds_nothing(catalogue, quick, tmp_path):
    """The published baseline pays nothing for LW2G."""
    record = start(quick(policy="always"), catalogue, tmp_path / "run")
    assert record["storage"]["basis_vectors"] == 0
    assert record["seconds"]["evidence"] == 0
    assert record["metrics"]["ssp"] == 3
    assert all(entry["ranks_after"] == {} for entry in record["decisions"])
    assert not any(one["measures"] for entry in record["decisions"] for one in entry["candidates"])
    assert not any(entry["option"].startswith("growth") for entry in record["deviations"])


def test_one_shares_a_set_and_keeps_its_old_directions(catalogue, quick, tmp_path):
    """Under policy one the shared set's displacement since task 1 has no component in task 1's space."""
    directory = tmp_path / "run"
    overrides = {"baseline.epochs": 3, "growth.energy": 0.8}
    record = start(quick(overrides, policy="one"), catalogue, directory)
    assert record["task_to_set"] == [0, 0, 0]
    assert record["metrics"]["pra"] == 100.0
    store = CheckpointStore(directory / "checkpoints")
    values, spaces = [], {}
    for task in (0, 1):
        checkpoint = store.of_task(task)
        assert checkpoint is not None
        session = open_session(load_resolved(directory / "config.toml", catalogue).config, catalogue)
        restore(session, checkpoint)
        sites = session.parts.baseline.sites(session.parts.pool[0])
        values.append([site.rows(site.parameter.detach()).double() for site in sites])
        if task == 0:
            spaces = {site.name: session.parts.memory.space(0, site) for site in sites}
    for (old, new), (name, space) in zip(zip(*values, strict=True), spaces.items(), strict=True):
        assert space is not None, name
        assert 0 < space.rank < space.dim
        change = new - old
        assert float(change.norm()) > 1e-3
        assert float(space.on(change).norm()) <= 1e-5 * float(change.norm())


def test_the_backbone_is_bit_identical_after_a_run(finished, catalogue):
    """Training touches no weight of the backbone, and no checkpoint holds any."""
    directory, record = finished
    session = open_session(load_resolved(directory / "config.toml", catalogue).config, catalogue)
    assert record["fingerprints"]["backbone"] == session.parts.backbone.fingerprint.sha256
    checkpoint, _ = CheckpointStore(directory / "checkpoints").newest()
    assert checkpoint is not None
    assert not any("blocks" in name and "attn" in name for name in checkpoint.tensors)


def test_a_directory_with_a_run_is_refused(finished, catalogue, quick):
    """A run is never written over."""
    with pytest.raises(ConfigError, match="holds a run already"):
        start(quick(), catalogue, finished[0])


def test_an_oracle_takes_the_place_of_a_retrieval_strategy(catalogue, quick, tmp_path):
    """A baseline runs with a strategy that is not its own; the oracle is marked and always right."""
    record = start(quick(retrieval="oracle", policy="always"), catalogue, tmp_path / "run", tasks=2)
    assert record["metrics"]["pra"] == 100.0
    assert [entry for entry in record["deviations"] if "control row" in entry["note"]]


def test_seeds_differ(finished, catalogue, quick, tmp_path):
    """Another seed gives other prompts."""
    directory, first = finished
    other = start(quick({"growth.measures": ["energy"], "run.seed": 2}), catalogue, tmp_path / "2", tasks=1)
    assert other["seed"] == 2 != first["seed"]
    keys = [tensors(run, 0)["pool/0.key"] for run in (directory, tmp_path / "2")]
    assert not torch.equal(*keys)


def test_bf16_runs_and_says_so(catalogue, quick, tmp_path):
    """Mixed precision takes the same path, records itself, and keeps trained parameters in float32."""
    record = start(quick({"run.precision": "bf16-mixed"}), catalogue, tmp_path / "run", tasks=2)
    assert record["environment"]["precision"] == "bf16-mixed"
    assert tensors(tmp_path / "run")["pool/0.key"].dtype == torch.float32
