"""``--dry-run`` of ``lw2g run`` and ``lw2g fork``: says what a run would cost and leaves nothing behind."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import click
import pytest
from click.testing import CliRunner

from lw2g.api import run as call_run
from lw2g.api.experiment import Experiment, experiment_of
from lw2g.cli.main import main
from lw2g.cli.printed_estimate import tell_cost
from lw2g.lifecycle.estimate import Estimate

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
    """Of as many seeds as are named, as JSON; not even the folder of runs is made."""
    told = lw2g(*DRY, "--seeds", "0,1", "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert (found["cost"]["tasks"], found["cost"]["runs"], found["missing"]) == (2, 2, [])
    assert found["cost"]["seconds"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_is_told_in_two_lines(lw2g):
    """What would run; tasks, images, device, time, memory and disk, and how far they can be trusted."""
    told = lw2g(*DRY, "--tasks", "1")
    assert told.exit_code == 0, told.output
    what = "1 task, 723 training and 178 test images, on .+"
    cost = r"time \d+:\d\d:\d\d, memory .+iB, disk .+iB"
    trust = r"\(measured on some images of the first task; accurate to about 50 %\)"
    assert re.fullmatch(f"would run: .+\n{what}: {cost} {trust}\n", told.stdout), told.stdout


def test_a_fork_is_estimated_from_its_task_on(lw2g, tmp_path):
    """Its own tasks alone; nothing is written, and what a fork refuses is refused."""
    began = lw2g(*DRY[:-1], "--out", "first")
    assert began.exit_code == 0, began.output
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    fork = ["fork", "first", "--at-task", "1", "--dry-run"]
    told = lw2g(*fork)
    assert told.exit_code == 0, told.output
    what, cost = told.stdout.splitlines()
    assert what.startswith("would run: baseline simple-cil, benchmark digits")
    assert re.match(r"1 task, 719 training and 355 test images, on .+ of the first two tasks;", cost), cost
    assert json.loads(lw2g(*fork, "--json").stdout)["cost"]["tasks"] == 1
    for words, said in (
        (["--set", "backbone.pool=avg"], "a fork cannot change backbone.pool"),
        (["--set", "baseline.head=lda"], "does not fit other values of baseline.head"),
        (["--at-task", "2"], "nothing is left to learn"),
        (["--tasks", "3"], "cannot stop after task 3"),
        (["--out", "first"], "'first' holds a run already"),
        (["--seed", "3"], "no such option: --seed; a fork takes it as --set run.seed=VALUE"),
    ):
        refused = lw2g(*fork, *words)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert said in refused.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    ("baseline", "more", "told"),
    [
        (
            "dual-prompt",
            [],
            "of dual-prompt: policy min, constraints orthogonal, cpk; dual-prompt as published: --policy",
        ),
        ("dual-prompt", ["--policy", "min"], ""),
        ("l2p", [], ""),  # has no sets to decide on
        ("simple-cil", [], ""),
    ],
)
def test_a_published_method_under_our_rule_is_told(lw2g, monkeypatch, tmp_path, caplog, baseline, more, told):
    """Where nobody names a policy a name alone is not what its authors did; else no line says so."""
    monkeypatch.setattr("lw2g.cli.run_command.tell_cost", lambda *_, **__: None)
    result = lw2g("run", "--baseline", baseline, "--benchmark", "digits", "--dry-run", *more)
    assert result.exit_code == 0, result.output
    assert ("no part of" in result.stderr) is bool(told)
    assert told in result.stderr
    monkeypatch.setattr("lw2g.api.experiment.Experiment.start", lambda *_, **__: None)
    policy = more[1] if more else None
    call_run(baseline=baseline, policy=policy, benchmark="digits", out=tmp_path / "run", progress=False)
    assert (f'{told.removesuffix("--policy")}policy="always"' in caplog.text) is bool(told)


@pytest.mark.parametrize(
    ("tasks", "trained", "measured"),
    [
        (1, 1, "the first task"),
        (5, 1, "the first two tasks, of which the first trains"),
        (5, 2, "the first two tasks"),
        (5, None, "the first two tasks"),
    ],
)
def test_a_dry_run_says_which_tasks_it_has_measured(capsys, monkeypatch, tasks, trained, measured):
    """Of one task no second one, and where the first task alone trains, that it does."""
    cost = Estimate(
        seconds=10,
        memory=1,
        device_memory=None,
        disk=1,
        tasks=tasks,
        images=(9, 4),
        device="cpu",
        trained=trained,
    )
    monkeypatch.setattr(Experiment, "cost", lambda *_, **__: (cost, []))
    tell_cost(experiment_of(None, {}), tasks=None, runs=1, as_json=False)
    assert f"(measured on some images of {measured}; accurate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {},
            "baseline hide-prompt, policy min, constraints orthogonal and cpk, benchmark glyphs, backb",
        ),
        (
            {"baseline.name": "simple-cil", "baseline.head": "auto"},
            "baseline simple-cil (--recommended), b",
        ),
    ],
)
@pytest.mark.parametrize("missing", [[], ["no weights"]])
def test_a_dry_run_names_what_would_run(capsys, monkeypatch, options, told, missing):
    """Method, benchmark and backbone, before seconds of measuring and where there is nothing to measure."""
    monkeypatch.setattr(Experiment, "cost", lambda *_, **__: (None, missing))
    with suppress(click.exceptions.Exit):
        tell_cost(experiment_of(None, options), tasks=None, runs=1, as_json=False)
    assert capsys.readouterr().out.startswith(f"would run: {told}")


@pytest.mark.slow
def test_what_is_missing_is_listed_and_nothing_is_priced(lw2g, tmp_path):
    """A line with the remedy, in a table's place; in JSON no cost; a script sees it by the exit code."""
    dry = ["run", "--baseline", "simple-cil", "--benchmark", "cifar100", "--dry-run"]
    dry += ["--set", f"benchmark.root={tmp_path}"]
    printed = lw2g(*dry)
    assert printed.exit_code == 2, printed.output
    _, *missing, end = printed.stdout.splitlines()
    assert all(line.startswith("missing: ") for line in missing)
    assert "lw2g data get cifar100" in missing[0]
    assert end == "no estimate without these"
    found = json.loads(lw2g(*dry, "--json").stdout)
    assert (found["cost"], len(found["missing"])) == (None, len(missing))


def test_a_package_that_is_not_here_is_missing(lw2g, monkeypatch):
    """A tracker's, beside the cost, which does not need it."""
    monkeypatch.setattr("lw2g.interfaces.component.find_spec", lambda name: None)
    told = lw2g(*DRY, "--tracker", "mlflow", "--tasks", "1")
    _, cost, missing = told.stdout.splitlines()
    assert (told.exit_code, cost.startswith("1 task, ")) == (2, True)
    assert missing == "missing: tracker 'mlflow' needs the package mlflow; pip install 'lw2g[track]'"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        # a number of processes that the machine has no cores for
        ((*DRY, "--devices", "1000"), "--devices: 1000 is too many"),
        ((*DRY, "--out", __file__), "is no directory; choose another --out"),
        (("run", "--json"), "--json goes with --dry-run"),
        (("fork", ".", "--at-task", "1", "--json"), "--json goes with --dry-run"),
    ],
)
def test_what_a_run_refuses_is_refused(lw2g, words, said):
    """In one line; a run itself prints no JSON."""
    told = lw2g(*words)
    assert told.exit_code == 2
    assert said in told.stderr
