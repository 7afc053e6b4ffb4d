"""A run whose forwards are replayed is the run that it is without."""

from __future__ import annotations

import pytest

from lw2g.kit.tiny import tiny_catalogue
from lw2g.lifecycle.runner import start
from lw2g.vit import graphs, lora
from replaying import replaying
from runs import different, shortest, tensors

CATALOGUE = tiny_catalogue()
QUICK = ("dual-prompt", "inflora", "slca-plus-plus")
COMPUTED = ("os-prompt", "sema")
"""Baselines whose forwards are no functions of tensors alone."""


@pytest.mark.parametrize(
    "baseline",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in CATALOGUE.names("baseline")
    ],
)
def test_a_replayed_run_is_the_same(baseline, tmp_path, monkeypatch):
    """Training, evidence and evaluation give the same tensors and predictions; the record tells of graphs."""
    options = {"run.graph": "off", "run.precision": "bf16-mixed"}
    monkeypatch.setattr(lora, "MERGING_DEVICES", ())  # as on a device whose kernels are captured
    plain = start(shortest(CATALOGUE, baseline, options), CATALOGUE, tmp_path / "plain")
    monkeypatch.setattr(graphs, "DEVICES", ("cpu",))
    monkeypatch.setattr(graphs, "captured", replaying)
    monkeypatch.setattr(graphs, "CALLS", 2)
    resolved = shortest(CATALOGUE, baseline, options | {"run.graph": "auto"})
    record = start(resolved, CATALOGUE, tmp_path / "replayed")
    assert plain["environment"]["graphs"] == "none"
    used, _, refused = record["environment"]["graphs"].partition(" forwards")
    assert (int(used) > 0, refused) in (
        [(False, "")] if baseline in COMPUTED else [(True, ""), (True, ", 1 not: it draws numbers")]
    )
    assert not different(tensors(tmp_path / "plain"), tensors(tmp_path / "replayed"))
    assert record["accuracy_matrix"] == plain["accuracy_matrix"]
