"""``lw2g sweep``: what it prints, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lw2g.cli.main import main
from lw2g.sweep.executor import Job, LocalExecutor

GRID = """
[base]
benchmark = "digits"
baseline = "simple-cil"
policy = "always"
[axes]
seed = [0, 1]
"""


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A grid of two cells, whose processes fail at once; the default directory is below the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lw2g.sweep.engine._PAUSE", 0)
    monkeypatch.setattr(LocalExecutor, "submit", lambda self, job: _fail(job))
    monkeypatch.setattr(LocalExecutor, "poll", lambda self, handle: handle)
    Path("two.toml").write_text(GRID)
    return "two.toml"


def _fail(job: Job) -> int:
    job.log.write_text(job.log.read_text() + "error: no room\n")
    return 2


def call(*arguments: str, code: int = 0) -> str:
    """Run a command and return all that it prints."""
    done = CliRunner().invoke(main, ["sweep", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_a_dry_run_prints_cells_and_needs_alone(grid):
    """Cells with their directories, data and weights with whether they are here; nothing is written."""
    printed = call(grid, "--dry-run")
    assert all(
        text in printed for text in ("seed 0", "seed 1", "digits (embedded)", "micro (embedded)", "2 cells")
    )
    assert [path.name for path in Path().iterdir()] == ["two.toml"]


def test_what_is_missing_is_told_with_its_remedy(grid, monkeypatch):
    """Data that are not here name the command that fetches them."""
    monkeypatch.delenv("LW2G_DATA", raising=False)
    printed = call(grid, "--dry-run", "--set", "benchmark=imagenet-r", "--set", "backbone=sup21k")
    assert "lw2g data get imagenet-r, or set LW2G_DATA" in printed
    assert "sup21k" in printed


def test_failures_are_listed_and_tried_again(grid):
    """Exit code 1 with the reason and the log of each; status repeats it; retry begins them again."""
    printed = call("--out", "here", grid, code=1)
    assert printed.count("exit code 2: no room") == 2
    assert "2 cells: 2 failed; in here" in printed
    assert "lw2g sweep retry here" in printed
    assert "2 failed" in call("status", "here")
    listed = json.loads(call("status", "here", "--json"))
    assert [(one["state"], one["settings"]["run.seed"]) for one in listed] == [("failed", 0), ("failed", 1)]
    call("retry", "here", "--jobs", "2", code=1)
    (log,) = Path("here/logs").glob(f"{listed[0]['name']}.log")
    assert log.read_text().count("$ lw2g run ") == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["two.toml", "--set", "growht.energy=1"], "error: --set: no such section 'growht.energy'"),
        (["two.toml", "--set", "growth.energie=1"], "error: growth.energie: no such option"),
        (["none.toml"], "error: 'none.toml' cannot be read"),
        (["status", "nowhere"], "error: no sweep at 'nowhere'"),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(grid, arguments, says):
    """A misspelt option, file or directory ends with exit code 2, and nothing is written."""
    printed = call(*arguments, code=2)
    assert printed.startswith(says)
    assert printed.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == ["two.toml"]


def test_help_names_the_commands(grid):
    """The group's own help shows a grid, and the two commands beside running one."""
    printed = call("--help")
    assert all(text in printed for text in ("[[rows]]", "status", "retry"))
    assert "--jobs" in call("grid", "--help")
