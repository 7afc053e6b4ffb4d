"""``lw2g run --seeds --orders``: a sweep of these axes, told as one experiment."""

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
from lw2g.errors import ConfigError
from lw2g.sweeps.drawn_cells import cells_of_draws
from lw2g.sweeps.executors.local import LocalExecutor
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


def learn_as(run: Path, accuracies: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each cell in its turn be a run with such an accuracy, and with the seed and order of the cell."""
    values = iter(accuracies)

    def learn(attempt: Attempt) -> int:
        shutil.copytree(run, attempt.job.run)
        record = json.loads((attempt.job.run / "record.json").read_text())
        del record["sha256"]
        record["metrics"]["faa"] = next(values)
        asked = tomllib.loads(attempt.job.config.read_text())
        record["seed"] = record["config"]["run"]["seed"] = asked["run"]["seed"]
        if asked["benchmark"]["order_seed"] == 2:
            record["class_order"] = record["class_order"][::-1]
        (attempt.job.run / "record.json").write_bytes(seal_json(record))
        return 0

    monkeypatch.setattr(Attempt, "run", learn)


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
    cells = cells_of_draws(tomllib.loads(dump_resolved(resolved)), [3, 5], [])
    assert [cell.label for cell in cells] == ["seed 3", "seed 5"]
    assert cells[0].name != cells[1].name
    for cell, seed in zip(cells, (3, 5), strict=True):
        config = resolve(CATALOGUE, file=cell.tables()).config
        assert config == attrs.evolve(resolved.config, run=attrs.evolve(resolved.config.run, seed=seed))


def test_mean_and_deviation_are_told(lw2g: Any, finished: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all runs, and where the numbers are; a second time the folder is in use."""
    learn_as(finished[0], [80.0, 84.0], monkeypatch)
    done = lw2g(*TOLD)
    assert "note: seeds alone vary here; class orders: --orders 1,2,3\n" in done.stderr
    told = done.stdout.splitlines()
    assert told[0] == "final accuracy 82.00 ± 2.83 % (FAA) on test images of 7 classes"
    assert told[-3:] == [
        "means of 2 runs; ±: one sample standard deviation over the seeds of one class order, left out where "
        "it rounds to 0",
        "runs: many (all numbers: lw2g report many)",
        "2 cells: 2 finished; in many",
    ]
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


def test_cells_have_each_order_with_each_seed() -> None:
    """A natural order becomes a drawn one; one that is drawn already stays as it is drawn."""
    for asked, used in (("natural", "seeded"), ("shuffled", "shuffled")):
        resolved = resolve(
            CATALOGUE,
            benchmark="digits",
            backbone="tiny",
            baseline="simple-cil",
            overrides={"benchmark.order": asked},
        )
        cells = cells_of_draws(tomllib.loads(dump_resolved(resolved)), [0, 1], [7, 8])
        assert [cell.label for cell in cells] == [
            f"order_seed {order}, seed {seed}" for order in (7, 8) for seed in (0, 1)
        ]
        assert {cell.settings["benchmark.order"] for cell in cells} == {used}
        assert [cell.settings["benchmark.order_seed"] for cell in cells] == [7, 7, 8, 8]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"benchmark.class_order": list(range(10))}, "benchmark.class_order says the class order"),
        ({"benchmark.name": "folder", "benchmark.stream": "domains"}, "each task has all classes"),
        ({"benchmark.name": "tiny"}, "benchmark 'tiny' has no option order_seed"),
    ],
)
def test_orders_that_nothing_draws_are_refused(settings: dict[str, Any], told: str) -> None:
    """Before any run begins, with what to do."""
    resolved = resolve(
        CATALOGUE, backbone="tiny", baseline="simple-cil", overrides={"benchmark.name": "digits", **settings}
    )
    with pytest.raises(ConfigError, match=f"orders: .*{told}.*; "):
        cells_of_draws(tomllib.loads(dump_resolved(resolved)), [], [1, 2])


def test_deviations_are_those_of_the_report(
    lw2g: Any, finished: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over class orders, each the mean of its seeds: two seeds of one order are not two orders."""
    learn_as(finished[0], [80.0, 84.0, 70.0, 74.0], monkeypatch)
    done = lw2g(*TOLD, "--orders", "1,2")
    assert "seeds alone" not in done.stderr
    told = done.stdout.splitlines()
    assert told[0].startswith("final accuracy 77.00 ± 7.07 % (FAA)")
    assert (
        "means of 4 runs; ±: one sample standard deviation over class orders, each the mean of its seeds"
        in ("\n".join(told))
    )
    report = lw2g("report", "many", "--columns", "faa").stdout
    assert "77.00 ± 7.07" in report
    assert "2 orders x 2 seeds" in report


def test_what_is_missing_is_told_before_the_first_run(lw2g: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all runs, with exit code 2; weights that a run fetches are missing where no hub answers."""
    monkeypatch.setattr(Attempt, "run", lambda attempt: pytest.fail("a run has begun"))
    monkeypatch.setattr("lw2g.ground.network.hub_fails", lambda: "no answer")
    folder = ("run", "--baseline", "simple-cil", "--benchmark", "folder", "--set", "benchmark.root=nowhere")
    several = ("--seeds", "0,1", "--out", "many")
    told = lw2g(*folder, *several, code=2).stderr.splitlines()[-1]
    assert told.startswith("error: missing for 2 cells: folder ")
    assert told.endswith("nowhere; --set benchmark.root=PLACE")
    told = lw2g("run", "--baseline", "simple-cil", "--backbone", "vit-tiny", *several, code=2).stderr
    assert "missing for 2 cells: vit-tiny; hf download " in told
    Path("grid.toml").write_text(
        '[base]\nbaseline = "simple-cil"\nbenchmark = {name = "folder", root = "nowhere"}\n'
        "[axes]\nseed = [0, 1]\n"
    )
    told = lw2g("sweep", "grid.toml", "--set", "backbone=micro", "--out", "many", code=2).stderr
    assert told.splitlines()[-1].startswith("error: missing for 2 cells: folder ")
    assert not Path("many").exists()


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
