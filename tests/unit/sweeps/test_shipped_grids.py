"""The grids of the repository: all their cells can be resolved, and the paper's tables are complete."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from lw2g.config.resolve import resolve
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.sweeps.grid import read_grid
from lw2g.sweeps.sweep_engine import require_valid

EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"
FORKED = EXPERIMENTS / "growth" / "base.toml"
STUDIES = ("carries", "frozen", "heads", "worth")
"""Folders whose files are rows and hypotheses that scripts of their own read."""
FACTS_ALONE = {
    EXPERIMENTS / "streams.toml",
    EXPERIMENTS / "growth_score" / "hypotheses.toml",
    *(path for study in STUDIES for path in (EXPERIMENTS / study).glob("*.toml")),
}
"""Not grids: which streams there are, and what studies train and ask."""
OTHERS = {FORKED, *FACTS_ALONE, *(EXPERIMENTS / "store").rglob("*.toml")}
GRIDS = sorted(set(EXPERIMENTS.rglob("*.toml")) - OTHERS)
FACTS = json.loads((files("lw2g.results") / "paper.json").read_text())["sources"][0]["rows"]


@pytest.fixture(scope="module")
def installed() -> Catalogue:
    """The installed plugins."""
    return load_catalogue()


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: str(path.relative_to(EXPERIMENTS)))
def test_every_cell_can_be_resolved(path, installed, tmp_path):
    """No name or option of a grid is out of date; weights files of a user's own are stood in for."""
    (tmp_path / "weights").touch()
    cells = read_grid(path)
    if any("backbone.weights" in cell.settings for cell in cells):
        cells = read_grid(path, {"weights": str(tmp_path / "weights")})
    require_valid(cells, installed)


def test_what_is_forked_can_be_resolved(installed, tmp_path):
    """The configuration of the fork experiment is of today, with weights of a user's own."""
    (tmp_path / "weights").touch()
    config = resolve(installed, file=FORKED, overrides={"backbone.weights": str(tmp_path / "weights")}).config
    assert (config.policy.name, config.retrieval.name, config.routing.mix) == ("fixed", "lda", "all")


@pytest.mark.parametrize("table", sorted({row["table"] for row in FACTS}))
def test_every_printed_value_has_its_cell(table, installed):
    """What the paper prints in a table is run by a cell of that table's grid, on the paper's checkpoint."""
    cells = [
        resolve(installed, file=cell.tables()).config
        for cell in read_grid(EXPERIMENTS / "paper" / f"table{table}.toml")
    ]
    run = {
        (
            config.baseline.name,
            config.policy.name,
            tuple(sorted(one.name for one in config.constraints)),
            config.benchmark.name,
            config.benchmark.config.increment,
            config.backbone.name,
        )
        for config in cells
    }
    keys = ("baseline", "policy", "constraints", "benchmark", "increment", "checkpoint")
    printed = {
        tuple(tuple(row[key]) if key == "constraints" else row[key] for key in keys)
        for row in FACTS
        if row["table"] == table
    }
    assert printed - run == set()
