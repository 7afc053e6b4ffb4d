"""The pictures beside the paper's figures are drawn from records."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

PAPER = Path(__file__).parents[2] / "experiments" / "paper"


@pytest.fixture
def figure4(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script of figure 4."""
    pytest.importorskip("vl_convert")
    monkeypatch.syspath_prepend(str(PAPER))
    yield importlib.import_module("figure4")
    sys.modules.pop("figure4", None)


def record(energy: float, phi: float, faa: float, **changes: Any) -> dict[str, Any]:
    """Return what the script reads of a run's record."""
    config = {
        "baseline": {"name": "dual-prompt"},
        "policy": {"name": "min"},
        "constraints": {"orthogonal": {}, "cpk": {"phi": phi}},
        "growth": {"energy": energy, "energy_pre": None},
    }
    metrics = {"faa": faa, "ssp": 2}
    return {"config": config | changes, "metrics": metrics, "tasks": 2, "accuracy_matrix": [[1], [1, 1]]}


def test_figure_4_varies_one_number_at_a_time(
    figure4: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run at both values of the paper is on both curves; runs of other figures are on none."""
    runs = {
        "both": record(0.95, 0.5, 50.0),
        "epsilon": record(0.5, 0.5, 40.0),
        "phi": record(0.95, 1.0, 60.0),
        "neither": record(0.5, 1.0, 30.0),
        "always": record(0.95, 0.5, 20.0, policy={"name": "always"}),
        "unfinished": record(0.95, 0.5, 10.0) | {"accuracy_matrix": [[1]]},
    }
    for name, content in runs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").write_text(json.dumps(content))
    out = tmp_path / "figure4.svg"
    monkeypatch.setattr(sys, "argv", ["figure4.py", str(tmp_path), str(out)])
    figure4.main()
    accuracies = [line for line in capsys.readouterr().out.splitlines() if "accuracy" in line]
    assert accuracies == [
        "dual-prompt, epsilon 0.5: final accuracy, % 40.0",
        "dual-prompt, epsilon 0.95: final accuracy, % 50.0",
        "dual-prompt, phi 0.5: final accuracy, % 50.0",
        "dual-prompt, phi 1.0: final accuracy, % 60.0",
    ]
    assert "epsilon" in out.read_text()


def test_pictures_of_vega_have_colours_for_both_schemes_and_room_for_wide_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The frame and its ground grow to the right, what is drawn stays; a text is light where all is dark."""
    monkeypatch.syspath_prepend(str(PAPER.parent))
    from vega_picture import readable

    drawn = '<rect width="9" height="200"/></svg>'
    svg = f'<svg width="500" height="200" viewBox="0 0 500 200"><rect width="500" height="200"/>{drawn}'
    made = readable(svg)
    assert made.startswith('<svg width="600" viewBox="0 0 540 200"><style>@media (prefers-color')
    assert made.endswith(f'</style><rect width="540" height="200"/>{drawn}')
    assert "text { fill: #c9d1d9 }" in made


def test_what_the_page_says_of_table_7_is_that_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks 2 to 9 against the first set, and the tenth, which shares the set that the ninth began."""
    pytest.importorskip("vl_convert")
    monkeypatch.syspath_prepend(str(PAPER))
    monkeypatch.syspath_prepend(str(PAPER.parent / "growth"))
    rows = importlib.import_module("table7").PAPER
    readings = importlib.import_module("readings")
    shown = [(f"{hfc:.1f}", f"{pre:.1f}", f"{hfc - pre:+.1f}") for _, _, hfc, pre in rows]
    first, ninth = shown[0], shown[readings.LAST - 2]
    assert readings.PAPER[:3] == tuple(f"{low} to {high}" for low, high in zip(first, ninth, strict=True))
    tenth = min(hfc - pre for task, _, hfc, pre in rows if task > readings.LAST)
    assert f"{tenth:+.1f}" == readings.PAPER_LAST
