"""The comparison of routings on trained models: it runs, and its rows are what the product computes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from lw2g.config.resolve import resolve
from lw2g.lifecycle.runner import start
from lw2g.registry.catalogue import load_catalogue
from written_images import write_images

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "routing" / "compare.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("compare", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "compare", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_rows_are_those_of_the_run(script, tmp_path, monkeypatch, capsys):
    """Hard routing by its own retrieval has the run's FAA and PRA; all rows are there; done runs stay."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 9), ("test", 4)):
        for label in range(6):
            images = (draw.integers(0, 80, (32, 32, 3)) + 25 * label for _ in range(count))
            write_images(tmp_path / "data" / split / f"class{label}", images)
    options = {
        "benchmark.root": str(tmp_path / "data"),
        "benchmark.increment": 2,
        "benchmark.train_per_class": 6,
        "baseline.epochs": 1,
        "run.evaluation_batch": 8,
    }
    catalogue = load_catalogue()
    resolved = resolve(
        catalogue, overrides=options, baseline="hide-lora", policy="always", benchmark="folder"
    )
    record = start(resolved, catalogue, tmp_path / "run")
    arguments = [str(tmp_path / "run"), "--images", str(tmp_path / "data" / "train"), "--per-class", "3"]
    monkeypatch.setattr(sys, "argv", ["compare.py", *arguments, "--out", str(tmp_path / "out.json")])
    script.main()
    found = json.loads((tmp_path / "out.json").read_text())
    hard = next(row for row in found if row["retrieval"] == "published" and row["mix"] == 1)
    assert hard["faa"] == pytest.approx(record["metrics"]["faa"])
    assert hard["pra"] == pytest.approx(record["metrics"]["pra"])
    assert len(found) == 2 + 3 * 7
    assert {row["passes"] for row in found if row["mix"] == "all"} == {3}
    assert all(0 <= row["faa"] <= 100 for row in found)
    assert len(script.unused(script.opened(tmp_path / "run"), [tmp_path / "data" / "train"], 9)[0]) == 6
    monkeypatch.setattr(script, "compare", None)
    script.main()
    assert capsys.readouterr().out.count("| told the task |") == 2
