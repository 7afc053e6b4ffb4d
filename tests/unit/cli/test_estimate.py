"""``lw2g run --dry-run``: says what a run would cost and leaves nothing behind."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from lw2g.cli.main import main

DRY = [
    "run",
    "--baseline",
    "simple-cil",
    "--benchmark",
    "digits",
    "--set",
    "benchmark.increment=5",
    "--dry-run",
]


@pytest.fixture
def lw2g(tmp_path, monkeypatch):
    """Run a command in an empty folder and return its result."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, words)


def test_a_dry_run_prints_costs_and_writes_nothing(lw2g, tmp_path):
    """Of as many tasks and seeds as are named, as JSON; not even the folder of runs is made."""
    told = lw2g(*DRY, "--tasks", "1", "--seeds", "0,1", "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert (found["tasks"], found["runs"], found["method"]) == (1, 2, "rehearsed")
    assert found["sets"] == {"least": 1, "most": 1}
    assert found["missing"] == []
    assert found["seconds"]["least"] > 0
    assert list(tmp_path.iterdir()) == []


def test_json_needs_a_dry_run(lw2g):
    """A run itself prints no JSON, and says which command does."""
    told = lw2g("run", "--json")
    assert told.exit_code == 2
    assert "--json goes with --dry-run" in told.stderr
