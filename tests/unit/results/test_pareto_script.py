"""The script that tables and draws all methods reads runs as a report does, and knows the best."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "experiments" / "cifar100" / "pareto.py"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("pareto_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def runs(write_run):
    """A cheap and a dear method, one that both beat, and a control that beats all."""

    def write(faa: float, baseline: str, kept: int, work: float) -> None:
        storage = {"prompt_vectors": 1, "basis_vectors": 0, "parameters": 100, "statistics": kept - 100}
        write_run(
            faa,
            **{
                "baseline.name": baseline,
                "record.storage": storage,
                "record.images_per_second": 10.0,
                "record.flops": {"training_per_image": work, "inference_per_image": 1.0},
                "record.seconds": {"total": 200.0, "training": 100.0, "evidence": 20.0},
            },
        )

    write(50.0, "s-prompt-plus-plus", 200, 2e9)
    write(60.0, "hide-prompt", 1000, 1e9)
    write(40.0, "dual-prompt", 300, 3e9)
    write(70.0, "joint", 100, 1e9)


def rows_of(output: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in output.splitlines()]
    return {re.split(r"\[| x ", row[0])[0]: row[1:] for row in rows[2:] if len(row) > 1}


def test_a_row_is_best_where_none_gives_more_for_as_little(script, runs, tmp_path, monkeypatch, capsys):
    """The most accurate is best at every price, the beaten one and the control at none."""
    monkeypatch.setattr("sys.argv", ["pareto.py", str(tmp_path)])
    script.main()
    rows = rows_of(capsys.readouterr().out)
    best = {name: row[-1] for name, row in rows.items()}
    assert best == {"joint": "", "hide-prompt": "kept, work", "s-prompt-plus-plus": "kept", "dual-prompt": ""}
    assert list(rows) == ["joint", "hide-prompt", "s-prompt-plus-plus", "dual-prompt"]
    assert rows["hide-prompt"][5] == "1"  # 1,000 images of 1e9 operations are 1 TFLOP
    assert rows["hide-prompt"][6] == "10"  # a tenth of the time went into evidence
    assert rows["hide-prompt"][7] == "-"


def test_answers_come_from_the_measured_file_and_the_picture_is_one(
    script, runs, tmp_path, monkeypatch, capsys
):
    """Times of answers are found by a run's name; the picture names the best."""
    pytest.importorskip("vl_convert")
    names = sorted(path.name for path in tmp_path.glob("run-*"))
    latency = {f"elsewhere/{name}": {"ms": 1.0, "passes": 1.5 + number} for number, name in enumerate(names)}
    (tmp_path / "latency.json").write_text(json.dumps(latency))
    picture = tmp_path / "methods.svg"
    argv = ["pareto.py", str(tmp_path), "--latency", str(tmp_path / "latency.json"), "--svg", str(picture)]
    monkeypatch.setattr("sys.argv", argv)
    script.main()
    passes = {row[7] for row in rows_of(capsys.readouterr().out).values()}
    assert passes == {"1.5", "2.5", "3.5", "4.5"}
    text = picture.read_text()
    assert text.startswith("<svg")
    assert "hide-prompt" in text
    assert "dual-prompt" not in text
