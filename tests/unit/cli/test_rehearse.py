"""``lw2g sweep --rehearse``: which cells it runs, and that those of all shipped grids can be run."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from lw2g.cli.main import main
from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError
from lw2g.registry.catalogue import load_catalogue
from lw2g.sweeps.executors.local import LocalExecutor
from lw2g.sweeps.grid import read_columns, read_grid, settings_of
from lw2g.sweeps.job import INTERRUPTED, Attempt
from lw2g.sweeps.rehearse import rehearsed_cells
from lw2g.sweeps.sweep_engine import require_valid

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
PAPER = sorted((EXPERIMENTS / "paper").rglob("*.toml"))
GROWTH = sorted(set((EXPERIMENTS / "growth").glob("*.toml")) - {EXPERIMENTS / "growth" / "base.toml"})
GRIDS = [*PAPER, EXPERIMENTS / "s_prompts.toml", *GROWTH]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda path: str(path.relative_to(EXPERIMENTS)))
def test_every_shipped_grid_can_be_rehearsed(grid):
    """All its cells resolve on what ships with lw2g, and each stands for at least one cell of the grid."""
    catalogue = load_catalogue()
    cells = rehearsed_cells(grid, catalogue, {})
    require_valid(cells, catalogue)
    assert 1 <= len(cells) <= len(read_grid(grid))
    assert {cell.settings["benchmark.name"] for cell in cells} == {"glyphs"}
    assert {cell.settings["backbone.name"] for cell in cells} == {"micro"}


def test_kinds_are_rehearsed_once():
    """Seeds and data sets fall together; methods and policies do not."""
    cells = rehearsed_cells(EXPERIMENTS / "paper" / "table1.toml", load_catalogue(), {})
    kinds = [(cell.settings["baseline.name"], cell.settings["policy.name"]) for cell in cells]
    assert len(kinds) == len(set(kinds)) == 12 + 9


def test_epochs_are_one_and_other_options_stay(tmp_path):
    """A rehearsal shortens training, also that of a retrieval strategy, and keeps what a cell is about."""
    grid = tmp_path / "grid.toml"
    grid.write_text(
        'base = { baseline = { name = "hide-prompt", epochs = 7, length = 3 }, policy = "min", seed = 5 }\n'
        '[axes]\n"growth.energy" = [0.8, 0.9]\n"benchmark.order_seed" = [1, 2]\n'
    )
    catalogue = load_catalogue()
    cells = rehearsed_cells(grid, catalogue, {"growth.images": 32})
    configs = [resolve(catalogue, file=cell.tables()).config for cell in cells]
    assert [config.growth.energy for config in configs] == [0.8, 0.9]
    assert (configs[0].baseline.config.epochs, configs[0].baseline.config.length) == (1, 3)
    assert configs[0].retrieval.config.epochs == 1
    assert configs[0].growth.images == 32


def test_a_stream_keeps_its_kind_on_the_embedded_benchmark():
    """S-Prompts' stream of domains is rehearsed as one of domains."""
    catalogue = load_catalogue()
    (cell,) = rehearsed_cells(EXPERIMENTS / "s_prompts.toml", catalogue, {})
    benchmark = resolve(catalogue, file=cell.tables()).config.benchmark
    stream = catalogue.get("benchmark", "glyphs").build(benchmark.config).stream()
    assert len({task.domain for task in stream.tasks}) == len(stream.tasks) == 5


def test_a_folder_of_images_can_stand_in(tmp_path, monkeypatch):
    """Data that are here are named as a folder, or by their name below the folder of all data sets."""
    grid = EXPERIMENTS / "paper" / "table7.toml"
    (tmp_path / "caltech" / "train").mkdir(parents=True)
    monkeypatch.setenv("LW2G_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for place in ("caltech", str(tmp_path / "caltech"), "~/caltech"):
        (cell,) = rehearsed_cells(grid, load_catalogue(), {}, place)
        assert cell.settings["benchmark.name"] == "folder"
        assert cell.settings["benchmark.root"] == str(tmp_path / "caltech")
    with pytest.raises(ConfigError, match="no benchmark and no folder of train/ and test/ 'nowhere'"):
        rehearsed_cells(grid, load_catalogue(), {}, "nowhere")


def test_another_component_starts_without_the_options_of_the_old_one():
    """Whatever names it, row, axis or --set, options of the old benchmark go with it."""
    overrides = settings_of({"benchmark": "glyphs", "backbone": "micro", "protocol": "like-for-like"}, "")
    catalogue = load_catalogue()
    for grid in PAPER:
        cells = read_grid(grid, overrides)
        require_valid(cells, catalogue)
        assert all("benchmark.split" not in cell.settings for cell in cells)


def test_a_grid_names_the_columns_of_its_table():
    """Table 3 is about cost; others have the usual columns."""
    assert read_columns(EXPERIMENTS / "paper" / "table3.toml").startswith("faa,prompt_vectors")
    assert read_columns(EXPERIMENTS / "paper" / "table1.toml") is None


def test_a_stopped_rehearsal_says_what_it_has_not_rehearsed(tmp_path, monkeypatch):
    """Kinds of cells that have not ended are no rehearsed ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalExecutor, "pause", 0)
    ends = iter([1])  # one kind fails, then the sweep is stopped
    monkeypatch.setattr(Attempt, "run", lambda attempt: next(ends, INTERRUPTED))
    Path("grid.toml").write_text(
        'base = {benchmark = "digits"}\naxes = {baseline = ["simple-cil", "ranpac"]}\n'
    )
    printed = CliRunner().invoke(main, ["sweep", "grid.toml", "--rehearse"]).stdout
    assert "rehearsed: 1 of 2 kinds of cells, for 2 cells of the real run" in printed
    assert "not rehearsed to its end: ranpac" in printed
    assert "not rehearsed to its end: simple-cil" not in printed
