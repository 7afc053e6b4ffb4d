"""Tests that the cells of a sweep settle a precision once, and stay what the grid asked for."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from lw2g.cli.main import main
from lw2g.config.toml import read_toml
from lw2g.disk import settled
from lw2g.registry.catalogue import load_catalogue
from lw2g.results.table import tables_of
from lw2g.runtime.engine import BF16, FP32
from lw2g.runtime.precision import PrecisionChoice
from lw2g.sweeps.grid import read_grid
from lw2g.sweeps.sweep_directory import SweepDirectory, differences_now

GRID = """
[base]
benchmark = {name = "digits", increment = 5}
backbone = "micro"
baseline = "simple-cil"
policy = "always"
device = "cpu"
[axes]
seed = [0, 1]
"""
FIRST = PrecisionChoice(used=BF16, reason="the first cell's machine is fast in it")
OTHER = PrecisionChoice(used=FP32, reason="the other cell's machine is not")


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A sweep of two seeds, run as its jobs say, on two machines that would choose otherwise."""
    choices = iter([FIRST, OTHER])
    monkeypatch.setattr(settled, "choose_precision", lambda backbone: next(choices))
    (tmp_path / "grid.toml").write_text(GRID)
    store = SweepDirectory(tmp_path / "out")
    store.write(read_grid(tmp_path / "grid.toml"))
    for cell in store.cells():
        result = CliRunner().invoke(main, store.job(cell).arguments())
        assert result.exit_code == 0, result.output
    return store


def test_the_first_cell_settles_for_all(sweep):
    """Each cell's configuration has what the first one settled on; its record says that it asked for auto."""
    catalogue = load_catalogue()
    statuses = sweep.statuses(sweep.cells())
    assert [status.state for status in statuses] == ["finished", "finished"]
    for status in statuses:
        noted = {"asked": "auto", "used": BF16, "reason": FIRST.reason}
        assert read_toml(sweep.job(status.cell).run / "config.toml")["run"]["precision"] == BF16
        assert status.run.record["precision"] == noted
        assert "run.precision" not in status.cell.settings
        assert differences_now(status, catalogue) == []
    (table,) = tables_of([status.run for status in statuses], catalogue)
    assert [(row.label, len(row.runs)) for row in table.rows] == [("simple-cil", 2)]
    assert f"run.precision auto: {BF16}" in table.notes
