"""The example notebook runs as it stands, without a notebook server."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import torch

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "trained_model.ipynb"


def cells(kind: str) -> list[str]:
    """Return the sources of all cells of a kind."""
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def executed(source: str, names: dict[str, Any]) -> Any:
    """Run a cell and return the value of its last line, as a notebook shows it."""
    *first, last = ast.parse(source).body
    exec(compile(ast.Module(first, []), str(NOTEBOOK), "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
    exec(compile(ast.Module([last], []), str(NOTEBOOK), "exec"), names)
    return None


@pytest.mark.slow
def test_the_example_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every cell runs in order, the run shows its progress, and the values are what the text says."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    values = [executed(source, names) for source in cells("code")]
    faa, pra = values[0]
    assert faa > 50
    assert pra > 50
    assert values[1] == (tuple(str(digit) for digit in range(10)), 1, torch.device("cpu"))
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
