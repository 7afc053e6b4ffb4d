"""A session's modules and what a record counts of its constraints."""

from __future__ import annotations

import torch
from torch import nn

from lw2g.learning.phases import only_trainable
from lw2g.lifecycle.runner import start
from lw2g.model import parts
from lw2g.vit.backbone import Backbone


def test_modules_are_in_training_mode_within_a_phase_alone(session_of):
    """As built, after a task has begun, and after a phase, dropout of a baseline would be off."""
    session = session_of(policy="always")
    session.parts.begin_task(0)
    session.parts.pool.grow(session.parts.new_set(None))
    session.parts.modules[0].add_module("dropout", nn.Dropout())
    session.parts.begin_task(1)
    assert len(session.parts.modules) == 3
    everything = [module for root in session.parts.modules for module in root.modules()]
    assert not any(module.training for module in everything)
    with only_trainable(session.parts.modules, []):
        assert all(module.training for module in everything)
    assert not any(module.training for module in everything)


def test_blocks_are_compiled_for_configured_batch_sizes(session_of, monkeypatch):
    """Those of training and evaluation, known before anything has run; none unless asked for."""
    compiled = []
    monkeypatch.setattr(Backbone, "compile_blocks", lambda self, sizes: compiled.append(sizes))
    session_of(policy="always")
    assert compiled == []
    monkeypatch.setattr(parts, "require_compiler", lambda device: None)
    overrides = {"run.compile": True, "run.evaluation_batch": 12, "baseline.batch_size": 7}
    session_of(overrides, policy="always")
    assert compiled == [{12, 7}]


def test_vectors_of_a_constraint_count_as_storage(quick, catalogue, tmp_path):
    """pgp keeps spaces of its own: a run with it stores basis vectors, the plain one none."""
    stored = {}
    for constraints in (["none"], ["pgp"]):
        torch.manual_seed(0)
        resolved = quick(policy="always", constraints=constraints)
        record = start(resolved, catalogue, tmp_path / constraints[0], tasks=1)
        stored[constraints[0]] = record["storage"]["basis_vectors"]
    assert stored["none"] == 0
    assert stored["pgp"] > 0


def test_statistics_count_as_storage(quick, catalogue, tmp_path):
    """Ridge regression keeps a Gram matrix and a sum per class, which a trained head does not."""
    kept, features = {}, 20
    for head in ("linear", "ridge"):
        overrides = {"baseline.head": head, "baseline.head_features": features}
        record = start(quick(overrides, policy="always"), catalogue, tmp_path / head, tasks=1)
        kept[head] = record["storage"]["statistics"]
    assert kept["ridge"] - kept["linear"] >= features**2 + len(record["class_order"]) * features


def test_kept_images_count_as_storage(quick, catalogue, tmp_path):
    """One number for each value of a pixel, two for each channel's scale."""
    resolved = quick({"baseline.exemplars": 2}, baseline="replay", policy="always")
    record = start(resolved, catalogue, tmp_path / "run", tasks=1)
    values = record["findings"]["exemplar_bytes"]
    assert values == 2 * 2 * 3 * 16**2
    assert record["storage"]["statistics"] == values + 2 * 2 * 3 * 2
