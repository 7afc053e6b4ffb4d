"""The notebooks run as they stand, without a notebook server."""

from __future__ import annotations

import ast
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import lw2g

DOCS = Path(__file__).resolve().parents[2] / "docs"

SCRIPT = DOCS.parent / "scripts" / "run_notebooks.py"

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="needs the source tree")


def executed(source: str, name: str, names: dict[str, Any]) -> Any:
    """Run a cell and return the value of its last line, as a notebook shows it."""
    *first, last = ast.parse(source).body
    exec(compile(ast.Module(first, []), name, "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), name, "eval"), names)
    exec(compile(ast.Module([last], []), name, "exec"), names)
    return None


def values_of(name: str, names: dict[str, Any]) -> list[Any]:
    """Run all code cells of a notebook in order and return their values."""
    cells = json.loads((DOCS / name).read_text(encoding="utf-8"))["cells"]
    return [executed("".join(one["source"]), name, names) for one in cells if one["cell_type"] == "code"]


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_has_the_outputs_of_its_code(path: Path) -> None:
    """A changed cell is run again (scripts/run_notebooks.py); none failed or names a folder of a machine."""
    script = runpy.run_path(str(SCRIPT))
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["metadata"][script["CHECKSUM"]] == script["code_checksum"](content)
    cells = script["code_cells"](content)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    shown = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in shown} <= {"execute_result", "stream"}
    assert [place for place in ("/tmp/", "/home/", "/root/") if place in str(shown)] == []
    for cell in cells:
        *_, last = ast.parse("".join(cell["source"])).body
        assert cell["outputs"] or not isinstance(last, ast.Expr)


@pytest.mark.slow
def test_photographs_are_learned_asked_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every cell runs in order: the new class is found once it is learned, and never once it is forgotten."""
    monkeypatch.chdir(tmp_path)
    sheet, known, _, unsure, named, (left, answered) = values_of("photographs.ipynb", {})
    assert sheet.size == (800, 300)
    assert known == ("checked", "striped")
    assert unsure.get(None, 0) > 0
    assert named["dotted"] > 10
    assert (left, answered) == (["checked", "striped"], False)
    assert "model-2 ('checked', 'striped', 'dotted')" in capsys.readouterr().out


@pytest.mark.slow(seconds=16)
def test_the_study_is_tabled_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three methods and two seeds each, in a table with paired differences, and every run verified."""
    monkeypatch.chdir(tmp_path)
    _, report, _, _, verified = values_of("study.ipynb", {})
    assert [len(row.runs) for table in report.tables for row in table.rows] == [2, 2, 2]
    assert [holds for _, holds in verified] == [True] * 6
    assert "| minus simple-cil | pairs | FAA |" in capsys.readouterr().out


@pytest.mark.slow
def test_the_trained_model_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every cell runs in order, the run shows its progress, and the values are what the text says."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    values = values_of("trained_model.ipynb", names)
    faa, pra = values[0]
    assert faa > 50
    assert pra > 50
    assert values[1] == (tuple(str(digit) for digit in range(10)), 2, torch.device("cpu"))
    assert values[2] == (100, 10)
    assert values[3][0] == 100
    assert values[4][0] == 100
    (entry,) = values[5]
    assert [len(entry["top"]), entry["class"]] == [3, names["model"].classes[entry["class_index"]]]
    assert values[6][0] == names["model"].classes[:5]
    assert values[6][1].shape == (1, 5)
    assert values[7] == tuple(names["transformed"].shape[2:])
    assert bool(names["saliency"].any())
    said = capsys.readouterr()
    assert "task 2/2: prompts" in said.err
    assert "a 0: [" in said.out


@pytest.mark.slow
def test_the_first_decision_is_made_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule applied by hand to the evidence agrees with lw2g, and the other choice is another run."""
    monkeypatch.chdir(tmp_path)
    version, decided, evidence, by_hand, sure, forked, outcomes = values_of("first_decision.ipynb", {})
    assert version == lw2g.__version__
    assert decided in ([0, 0], [0, 1])
    assert evidence["value"] == pytest.approx(evidence["hfc"] - evidence["hfc_pre"], abs=0.02)
    assert by_hand[0] == by_hand[1]
    assert sure > 0
    assert forked == ([0, 1] if decided == [0, 0] else [0, 0])
    assert {one["sets"] for one in outcomes.values()} == {1, 2}
    assert all(one["FAA"] > 50 for one in outcomes.values())
