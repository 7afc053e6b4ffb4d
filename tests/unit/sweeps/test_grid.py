"""Grids: which cells one has, what they are called, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lw2g.errors import ConfigError
from lw2g.registry.catalogue import load_catalogue
from lw2g.sweeps.grid import Cell, read_grid
from lw2g.sweeps.sweep_engine import require_valid

GRID = """
[base.benchmark]
name = "digits"
[axes]
policy = ["always", "min"]
seed = [0, 1]
[[rows]]
baseline = "simple-cil"
policy = "always"
axes = {seed = [0]}
[[rows]]
baseline = {name = "dual-prompt", epochs = 1}
"""


def cells(folder: Path, text: str, **overrides: Any) -> list[Cell]:
    """Read a grid from its text."""
    (folder / "grid.toml").write_text(text)
    return read_grid(folder / "grid.toml", overrides)


def test_axes_multiply_rows_and_rows_win(tmp_path):
    """A row's own setting takes its axis away, its own axes replace the grid's; first seeds come first."""
    found = cells(tmp_path, GRID)
    assert [one.label for one in found] == [
        "simple-cil, always, seed 0",
        "dual-prompt, always, seed 0",
        "dual-prompt, min, seed 0",
        "dual-prompt, always, seed 1",
        "dual-prompt, min, seed 1",
    ]
    assert found[2].settings == {
        "benchmark.name": "digits",
        "baseline.name": "dual-prompt",
        "baseline.epochs": 1,
        "policy.name": "min",
        "run.seed": 0,
    }


def test_a_cell_keeps_its_directory(tmp_path):
    """Its name hashes what the grid says of it, in any order and notation, and nothing else."""
    name = cells(tmp_path, GRID)[2].name
    assert name == "dual-prompt-min-bff3d1033d70"  # sweeps on disk rely on it
    other = """
    [base]
    seed = 0
    benchmark.name = "digits"
    policy = "min"
    "baseline.epochs" = 1
    [[rows]]
    label = "the same"
    baseline = "dual-prompt"
    """
    assert [one.name for one in cells(tmp_path, other)] == [name]
    assert [one.name for one in cells(tmp_path, other, **{"baseline.epochs": 2})] != [name]


def test_overrides_win_and_merge_cells(tmp_path):
    """A setting of the command line beats base, rows and axes; cells that become alike are one."""
    found = cells(tmp_path, GRID, seed=7, policy="always")
    assert [(one.settings["baseline.name"], one.settings["run.seed"]) for one in found] == [
        ("simple-cil", 7),
        ("dual-prompt", 7),
    ]


def test_constraints_are_named_and_then_set(tmp_path):
    """A list names all in use, on axes too; options go with it, and the file that is run has both."""
    text = """
    [axes]
    constraints = [["orthogonal", "cpk"], ["cpk"], "none"]
    [[rows]]
    baseline = "dual-prompt"
    """
    found = cells(tmp_path, text)
    labels = ("orthogonal+cpk", "cpk", "no constraints")
    assert [one.label for one in found] == [f"dual-prompt, {label}" for label in labels]
    tables: list[Any] = [{"orthogonal": {}, "cpk": {}}, {"cpk": {}}, "none"]
    assert [one.tables()["constraints"] for one in found] == tables
    phi = text.replace("constraints = [", '"constraints.cpk.phi" = [0.1]\nconstraints = [')
    tables = [{"orthogonal": {}, "cpk": {"phi": 0.1}}, {"cpk": {"phi": 0.1}}, "none"]
    assert [one.tables()["constraints"] for one in cells(tmp_path, phi)] == tables
    with pytest.raises(ConfigError, match=r"^constraints\.pgp\.on: no cell uses that constraint"):
        cells(tmp_path, text, **{"constraints.pgp.on": "update"})
    unnamed = cells(tmp_path, '[base]\n"constraints.cpk.phi" = 0.1')
    with pytest.raises(ConfigError, match="options for cpk, which is not in use"):
        unnamed[0].tables()


def test_another_component_starts_from_its_own_preset(tmp_path):
    """Where a row or an axis changes a name, the base's options of the old component go, and only those."""
    text = """
    [base]
    baseline = {name = "slca", epochs = 20}
    growth.energy = 0.9
    [axes]
    benchmark = [{name = "digits", increment = 2}]
    [[rows]]
    [[rows]]
    baseline = "simple-cil"
    [[rows]]
    baseline = {name = "ranpac", epochs = 3}
    [[rows]]
    baseline.name = "slca"
    """
    slca, simple_cil, ranpac = cells(tmp_path, text)  # the last row is the first one
    shared = {"growth.energy": 0.9, "benchmark.name": "digits", "benchmark.increment": 2}
    assert slca.settings == {"baseline.name": "slca", "baseline.epochs": 20, **shared}
    assert simple_cil.settings == {"baseline.name": "simple-cil", **shared}
    assert ranpac.settings == {"baseline.name": "ranpac", "baseline.epochs": 3, **shared}
    require_valid([simple_cil, ranpac], load_catalogue())
    axis = text.replace("[axes]", '[axes]\nbaseline = ["slca", "l2p"]\n"baseline.lr" = [0.1]')
    own = [one.settings for one in cells(tmp_path, axis[: axis.index("[[rows]]")])]
    assert own == [
        {"baseline.name": "slca", "baseline.epochs": 20, "baseline.lr": 0.1, **shared},
        {"baseline.name": "l2p", "baseline.lr": 0.1, **shared},
    ]
    (other,) = cells(tmp_path, text, **{"baseline.name": "l2p", "benchmark.name": "glyphs"})
    assert other.settings == {"baseline.name": "l2p", "growth.energy": 0.9, "benchmark.name": "glyphs"}


def test_an_extension_changes_a_component_too(tmp_path):
    """Its base drops the other grid's options of a component that it replaces."""
    first = '[base]\nbaseline = {name = "slca", epochs = 20}\nseed = 3\n'
    (tmp_path / "first.toml").write_text(first)
    (one,) = cells(tmp_path, 'extends = "first.toml"\nbase.baseline = "simple-cil"\n')
    assert one.settings == {"baseline.name": "simple-cil", "run.seed": 3}


def test_a_grid_extends_another_one(tmp_path):
    """Base and axes lie over the other grid's, rows come after its rows; circles are refused."""
    (tmp_path / "first.toml").write_text(GRID)
    text = """
    extends = "first.toml"
    [base]
    protocol = "like-for-like"
    [axes]
    seed = [5]
    [[rows]]
    baseline = "l2p"
    policy = "always"
    """
    found = cells(tmp_path, text)
    assert [one.label for one in found] == [
        "simple-cil, always, seed 0",
        "dual-prompt, always, seed 5",
        "dual-prompt, min, seed 5",
        "l2p, always, seed 5",
    ]
    assert {one.settings["run.protocol"] for one in found} == {"like-for-like"}
    with pytest.raises(ConfigError, match="extends itself"):
        cells(tmp_path, 'extends = "grid.toml"')


def test_labels_say_more_where_they_must(tmp_path, caplog):
    """Names alone, or all of a row's settings where names tell two cells not apart; labels replace names.

    A label that two rows have on the same data is noted; rows of two draws are one row of a report.
    """
    text = """
    [[rows]]
    baseline = {name = "dual-prompt", epochs = 1}
    [[rows]]
    baseline = {name = "dual-prompt", epochs = 2}
    [[rows]]
    label = "mine"
    baseline = "dual-prompt"
    axes = {benchmark = [{name = "digits", increment = 2}]}
    """
    assert [one.label for one in cells(tmp_path, text)] == [
        "dual-prompt, epochs 1",
        "dual-prompt, epochs 2",
        "mine, digits, increment 2",
    ]
    twice = "[base]\nbaseline = 'dual-prompt'\n[[rows]]\nlabel = 'mine'\n{}\n[[rows]]\nlabel = 'mine'\n{}"
    cells(tmp_path, twice.format("seed = 0", "seed = 1"))
    assert not caplog.messages
    cells(tmp_path, twice.format("'baseline.epochs' = 1", "'baseline.epochs' = 2"))
    assert "two rows of the grid are called 'mine'" in caplog.messages[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[bases.run]\nseed = 1", r"'bases' is not a part of a grid \(did you mean 'base'\?\)"),
        ("[base.growht]\nenergy = 1", r"base: no such section 'growht' \(did you mean 'growth'\?\)"),
        ("[base.set]\nx = 1", r"'set'; write options as SECTION.OPTION = VALUE, of the sections baseline, "),
        ("[axes]\nseed = 1", "axes.seed: expected a list of values but got 1"),
        ("", r"has no cells; give it \[base\], \[axes\] or \[\[rows\]\]"),
        ("[executor]\nname = 'local'", r"has no cells; give it \[base\], \[axes\] or \[\[rows\]\]"),
        ("[axes]\nseed = []", "has no cells; an axis is empty"),
        ("rows = []\n[base]\nseed = 1", r"rows: expected tables \[\[rows\]\] but got none; leave rows out"),
        ("[rows]\nseed = 1", r"write two brackets"),
        ("[base]\nepochs = 3", r"base: no such section 'epochs' \(did you mean 'baseline.epochs' or 'retr"),
        (
            "[axes]\nepochs = [1, 2]",
            r"axes.epochs: no such section 'epochs' \(did you mean 'baseline.epochs'",
        ),
        ("[[rows]]\nbaselines = 'x'", r"rows 1: no such section 'baselines' \(did you mean 'baseline'\?\)"),
        ("[[rows]]\nconstraints = 3", "rows 1.constraints: expected names of constraints but got 3"),
        ("[axes]\nseed = [0, 0]", r"axes.seed: expected different values but got \[0, 0\]"),
        ("[axes]\npolicy = ['one', 'min', 'one']", r"axes.policy: expected different values but got \['one'"),
        ("[[rows]]\naxes = {seed = [1, 1]}", r"rows 1.axes.seed: expected different values but got \[1, 1\]"),
        ("[axes]\ntasks = [3]", "axes.tasks: tasks is no setting: lw2g run --tasks N"),
        ("[[rows]]\npolicy = ['one']", r"rows 1.policy: got a list; to multiply: axes = {policy = \[...\]}"),
        ("[[rows]]\nrun.seed = [0, 1]", r"rows 1.run.seed: got a list; to multiply: axes = {run.seed = \["),
        ("[base]\n'run.seed' = [0]", r"base.run.seed: got a list; to multiply: axes = {run.seed = \["),
        ("[[rows]]\nlable = 'x'", r"rows 1: no such section 'lable' \(did you mean 'label'\?\)"),
        ("base = 3", "base: expected a table but got 3"),
        ("[report]\ncolunms = 'faa'", r"report: no such key 'colunms' \(did you mean 'columns'\?\); "),
        (
            "[report]\ncolumns = ['faa', 'faaa']",
            r"report.columns: no column is called 'faaa' \(did you .*'faa'",
        ),
        ("[report]\ncolumns = 3", "report.columns: expected names but got 3; .report. has columns alone, as"),
        (
            "[base]\nbenchmark = 'digits'\n[base.benchmark]\nincrement = 5",
            r"no TOML: a key stands twice, again in line 3: '\[base.benchmark\]'; correct it; `lw2g sweep --",
        ),
        ("[axes]\nseed = [0]\nseed = [1]", r"a key stands twice, again in line 3: 'seed = \[1\]'"),
        ("[report]\nagainst = 'x'", "'against'; .report. has columns alone, .* lw2g report --against ROW"),
    ],
)
def test_what_is_no_grid_is_refused(tmp_path, text, says):
    """A misspelt part, section or axis is one line that says where it stands."""
    with pytest.raises(ConfigError, match=says) as error:
        cells(tmp_path, text)
    assert "\n" not in str(error.value)


def test_all_cells_are_validated_together(tmp_path):
    """A mistake that several cells share stands once, with the cells that have it."""
    text = GRID.replace("epochs = 1", "epochz = 1").replace('policy = "always"\n', "")
    text = text.replace("axes = {seed = [0]}", 'axes = {seed = [0], policy = ["min"]}')
    with pytest.raises(ConfigError) as error:
        require_valid(cells(tmp_path, text), load_catalogue())
    header, first, second = map(str.strip, str(error.value).splitlines())
    assert header == "2 problems in the cells:"
    assert first.startswith("policy: baseline 'simple-cil' does not grow")
    assert first.endswith("(in the cell 'simple-cil, min, seed 0')")
    assert "epochz" in second
    assert "(in 4 cells: 'dual-prompt, always, seed 0', " in second
    assert second.endswith(" and 1 more)")


def test_a_sweep_tells_once_which_methods_run_under_our_rule(tmp_path, caplog):
    """A row with a policy of its own says which rule it has, and one without sets has none."""
    text = """
    base.benchmark = {name = "digits"}
    axes.seed = [0, 1]
    rows = [
        {baseline = "dual-prompt", label = "ours"},
        {baseline = "hide-prompt"},
        {baseline = "dual-prompt", policy = "always"},
        {baseline = "simple-cil"},
    ]
    """
    require_valid(cells(tmp_path, text), load_catalogue())
    (told,) = [line for line in caplog.messages if "no part of" in line]
    assert "of lw2g, and no part of dual-prompt, hide-prompt: policy min, constraints " in told
    assert "policy = \"always\" (in 'ours', 'hide-prompt, " in told


def test_an_axis_of_one_value_enters_no_name_of_a_row(tmp_path):
    """All rows have it; one of several values, or that a row replaces, tells rows apart."""
    text = """
    base = {benchmark = "digits"}
    axes = {"benchmark.shots" = SHOTS, seed = [0, 1]}
    rows = [{label = "frozen", baseline = "simple-cil"}, {label = "ranpac", baseline = "ranpac"OWN}]
    """

    def names(shots: str, own: str = "") -> list[str]:
        found = cells(tmp_path, text.replace("SHOTS", shots).replace("OWN", own))
        return list(dict.fromkeys(cell.row for cell in found))

    assert names("[10]") == ["frozen", "ranpac"]
    assert names("[3, 10]") == ["frozen, shots 3", "frozen, shots 10", "ranpac, shots 3", "ranpac, shots 10"]
    assert names("[10]", ', axes = {"benchmark.shots" = [3]}') == ["frozen, shots 10", "ranpac, shots 3"]
