"""``lw2g run --seeds``: a sweep of one axis, told as one experiment."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

from lw2g.cli.main import main
from lw2g.config.resolve import resolve
from lw2g.config.toml import dump_resolved
from lw2g.disk.sealed import seal_json
from lw2g.sweeps.executors.local import LocalExecutor
from lw2g.sweeps.grid import cells_of_seeds
from lw2g.sweeps.job import INTERRUPTED, Attempt
from lw2g_testing.tiny import tiny_catalogue

CATALOGUE = tiny_catalogue()
TOLD = ["run", "--baseline", "simple-cil", "--benchmark", "digits", "--seeds", "3,5", "--out", "many"]


@pytest.fixture
def lw2g(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command in an empty folder, without waiting for processes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalExecutor, "pause", 0)

    def run(*words: str, code: int = 0) -> Result:
        done = CliRunner().invoke(main, words)
        assert done.exit_code == code, done.output
        return done

    return run


@pytest.mark.parametrize(
    "chosen",
    [
        {"baseline": "dual-prompt", "policy": "min"},
        {"baseline": "dual-prompt", "policy": "always", "constraints": ["none"]},
        {"baseline": "dual-prompt", "policy": "always", "constraints": ["pgp"], "trackers": ["tensorboard"]},
        {"baseline": "slca-plus-plus", "overrides": {"baseline.head": "lda", "head.lda.shrinkage": 0.25}},
    ],
    ids=lambda chosen: ", ".join(map(str, chosen.values())),
)
def test_cells_differ_in_the_seed_alone(chosen: dict[str, Any]) -> None:
    """Each resolves to the experiment that was asked for, whatever parts it has."""
    resolved = resolve(CATALOGUE, benchmark="tiny", backbone="tiny", **chosen)
    cells = cells_of_seeds(tomllib.loads(dump_resolved(resolved)), [3, 5])
    assert [cell.label for cell in cells] == ["seed 3", "seed 5"]
    assert cells[0].name != cells[1].name
    for cell, seed in zip(cells, (3, 5), strict=True):
        config = resolve(CATALOGUE, file=cell.tables()).config
        assert config == attrs.evolve(resolved.config, run=attrs.evolve(resolved.config.run, seed=seed))


def test_mean_and_deviation_are_told(lw2g: Any, finished: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all runs, and where the numbers are; a second time the folder is in use."""
    values = iter([(3, 80.0), (5, 84.0)])

    def learn(attempt: Attempt) -> int:
        shutil.copytree(finished[0], attempt.job.run)
        record = json.loads((attempt.job.run / "record.json").read_text())
        del record["sha256"]
        record["seed"], record["metrics"]["faa"] = next(values)
        (attempt.job.run / "record.json").write_bytes(seal_json(record))
        return 0

    monkeypatch.setattr(Attempt, "run", learn)
    told = lw2g(*TOLD).stdout.splitlines()
    assert told[0] == "final accuracy 82.00 ± 2.83 % (FAA) on test images of 7 classes"
    assert told[-2:] == ["runs: many (all numbers: lw2g report many)", "2 cells: 2 finished; in many"]
    settings = [
        cell["settings"]["run.seed"] for cell in json.loads(Path("many/sweep.json").read_text())["cells"]
    ]
    assert settings == [3, 5]
    assert "holds the runs of a sweep already" in lw2g(*TOLD, code=2).stderr
    runs = sorted(str(file.parent) for file in Path("many").glob("*/record.json"))
    for command in ("resume", "show"):  # of runs that have all finished, nothing is left to retry
        assert f"give one of them ({', '.join(runs)}), or see all: lw2g report many, lw2g runs many" in (
            lw2g(command, "many", code=2).stderr
        )
    next(Path("many").glob("*/record.json")).unlink()
    assert "or go on with all: lw2g sweep retry many" in lw2g("resume", "many", code=2).stderr
    Path("photo.jpg").touch()
    for command in (
        ["show", "many"],
        ["predict", "many", "photo.jpg"],
        ["export", "many", "model"],
        ["learn", "many", "."],
    ):
        told = lw2g(*command, code=2).stderr
        assert f"one of them ({', '.join(runs)})" in told
        assert "retry" not in told


@pytest.mark.parametrize(("ending", "code"), [(2, 1), (INTERRUPTED, 130)])
def test_what_does_not_finish_is_told_with_the_way_on(
    lw2g: Any, monkeypatch: pytest.MonkeyPatch, ending: int, code: int
) -> None:
    """A failed run is an error, a stopped one an interruption; both go on as a sweep does."""
    monkeypatch.setattr(Attempt, "run", lambda attempt: ending)
    done = lw2g(*TOLD, code=code)
    assert "lw2g sweep retry many" in done.stderr
    assert "final accuracy" not in done.output


def test_a_stop_after_some_tasks_is_of_one_run(lw2g: Any) -> None:
    """The runs of several seeds learn their whole stream."""
    told = lw2g(*TOLD, "--tasks", "1", code=2).stderr
    assert "--tasks and --seeds exclude each other; stop the run of one --seed" in told
    assert not Path("many").exists()
