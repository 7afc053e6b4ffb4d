"""A run whose forwards are replayed is the run that it is without."""

from __future__ import annotations

import pytest

from lw2g.testing.tiny import tiny_catalogue
from lw2g.training.runner import start
from lw2g.vit import graphs
from replaying import replaying
from runs import different, shortest, tensors


@pytest.mark.parametrize("baseline", ["dual-prompt", "slca-plus-plus", "inflora"])
def test_a_replayed_run_is_the_same(baseline, tmp_path, monkeypatch):
    """Training, evidence and evaluation give the same tensors and predictions; the record tells of graphs."""
    catalogue = tiny_catalogue()
    options = {"run.graph": "off", "run.precision": "32-true", "baseline.epochs": 3}
    plain = start(shortest(catalogue, baseline, options), catalogue, tmp_path / "plain")
    monkeypatch.setattr(graphs, "DEVICES", ("cpu",))
    monkeypatch.setattr(graphs, "captured", replaying)
    monkeypatch.setattr(graphs, "CALLS", 2)
    monkeypatch.setattr(graphs, "_FASTER", float("inf"))
    resolved = shortest(catalogue, baseline, options | {"run.graph": "auto"})
    record = start(resolved, catalogue, tmp_path / "replayed")
    assert plain["environment"]["graphs"] == "none"
    used, _, refused = record["environment"]["graphs"].partition(" forwards")
    assert (int(used) >= 2, refused) == (True, "")
    assert not different(tensors(tmp_path / "plain"), tensors(tmp_path / "replayed"))
    assert record["accuracy_matrix"] == plain["accuracy_matrix"]
