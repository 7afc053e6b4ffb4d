"""The shipped grids, rehearsed: each kind of cell of the paper's, S-Prompts' and the growth grids learns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from lw2g.cli.main import main
from lw2g.config.resolve import resolve
from lw2g.lifecycle.runner import start
from lw2g.registry.catalogue import load_catalogue
from lw2g.sweeps.grid import Cell
from lw2g.sweeps.rehearse import rehearsed_cells
from written_images import write_images

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
GROWTH = sorted(set((EXPERIMENTS / "growth").glob("*.toml")) - {EXPERIMENTS / "growth" / "base.toml"})
GRIDS = [*sorted((EXPERIMENTS / "paper").rglob("*.toml")), EXPERIMENTS / "s_prompts.toml", *GROWTH]


def kinds() -> list[Cell]:
    """Return cells of all grids, one for each method with each kind of decision, constraint and stream."""
    found: dict[object, Cell] = {}
    catalogue = load_catalogue()
    for grid in GRIDS:
        for cell in rehearsed_cells(grid, catalogue, {}):
            keys = ("baseline.name", "policy.name", "policy.reading", "constraints", "retrieval.name")
            keys += ("benchmark.stream",)
            found.setdefault(repr([cell.settings.get(key) for key in keys]), cell)
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize("cell", kinds(), ids=lambda cell: cell.name)
def test_a_kind_of_cell_learns(cell, tmp_path):
    """It learns two tasks, or the one that a bound makes of all, and leaves a record with accuracies."""
    catalogue = load_catalogue()
    resolved = resolve(catalogue, file=cell.tables(), overrides={"run.precision": "32-true"})
    at_once = catalogue.get("baseline", resolved.config.baseline.name).joint
    record = start(resolved, catalogue, tmp_path / "run", [], tasks=None if at_once else 2)
    assert len(record["accuracy_matrix"]) == len(record["task_to_set"]) == (1 if at_once else 2)


@pytest.mark.slow
def test_a_rehearsal_ends_with_table_and_needs(tmp_path):
    """One command: the cells run, the table is printed, and what the real run lacks is listed."""
    grid = EXPERIMENTS / "paper" / "table7.toml"
    done = CliRunner().invoke(main, ["sweep", str(grid), "--rehearse", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    for text in ("| dual-prompt x min |", "missing for 1 cell: imagenet-r", "the real run: lw2g sweep"):
        assert text in done.output


@pytest.mark.slow
def test_a_rehearsal_on_a_folder_of_images(tmp_path):
    """Images of one's own stand in for the benchmark: the cell runs on them, and the table says so."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 4), ("test", 2)):
        for label in range(4):
            images = (draw.integers(0, 60, (40, 30, 3)) + 60 * label for _ in range(count))
            write_images(tmp_path / "photos" / split / f"class{label}", images)
    words = ["sweep", str(EXPERIMENTS / "paper" / "table7.toml")]
    words += ["--rehearse", str(tmp_path / "photos"), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "| dual-prompt x min |" in done.output
    (path,) = (tmp_path / "out").glob("*/record.json")
    record = json.loads(path.read_text())
    assert record["config"]["benchmark"]["root"] == str(tmp_path / "photos")
    assert len(record["accuracy_matrix"]) == 2
