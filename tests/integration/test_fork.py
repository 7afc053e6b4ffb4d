"""A fork takes a run's first tasks over and goes on with other choices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from installed import load_instead
from lw2g.cli import execute
from lw2g.cli.main import main
from lw2g.config.toml import read_toml
from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.lifecycle.forking import fork, resolve_fork
from lw2g.lifecycle.runner import start
from lw2g.model.saved import open_model
from lw2g.registry.catalogue import Catalogue
from lw2g.results.verification import verify
from runs import different, shortest, tensors, untimed

Finished = tuple[Path, dict[str, Any]]


def forked(parent: Path, task: int, catalogue: Catalogue, out: Path, **changes: Any) -> dict[str, Any]:
    """Fork a run at the end of a task, from 0."""
    return fork(parent, task, resolve_fork(parent, catalogue, **changes), catalogue, out)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a run."""
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_fork_with_nothing_changed_is_the_run_itself(finished, catalogue, tmp_path):
    """From the second task on it learns the same bits; the parent is only read, and is named."""
    parent, reference = finished
    before = contents(parent)
    record = forked(parent, 0, catalogue, tmp_path / "fork")
    assert contents(parent) == before
    apart = ("files", "origin", "record_hash")
    assert untimed(record, *apart) == untimed(reference, *apart)
    assert {**record["files"], "config.toml": None} == {**reference["files"], "config.toml": None}
    assert different(tensors(parent), tensors(tmp_path / "fork")) == []
    assert (record["origin"]["run"], record["origin"]["task"]) == (str(parent), 0)
    assert (record["origin"]["changed"], record["origin"]["same_predictions"]) == ([], 1.0)
    assert reference["origin"] is None
    assert [one.what for one in verify(tmp_path / "fork") if one.holds is False] == []
    assert open_model(tmp_path / "fork", catalogue, 1).task == 1


def test_a_fork_forces_another_decision(finished, catalogue, tmp_path):
    """What was learned stays, the decisions from there on are those asked for, and the record says so."""
    parent, reference = finished
    sets = [0, 1 - reference["task_to_set"][1], 0]
    choices = {"policy.map": sets, "run.precision": "auto"}
    record = forked(parent, 0, catalogue, tmp_path / "fork", policy="fixed", overrides=choices)
    assert record["task_to_set"] == sets
    assert record["accuracy_matrix"][0][0] == reference["accuracy_matrix"][0][0]
    assert record["decisions"][0] == reference["decisions"][0]
    assert (record["precision"]["asked"], record["config"]["run"]["precision"]) == ("auto", "32-true")
    assert read_toml(tmp_path / "fork" / "config.toml")["run"]["precision"] == "32-true"
    changed = {one["option"]: (one["before"], one["after"]) for one in record["origin"]["changed"]}
    assert changed["policy.name"] == ("min", "fixed")
    assert changed["policy.map"] == (None, sets)
    assert record["config"]["constraints"].keys() == {"orthogonal", "cpk"}
    again = forked(
        tmp_path / "fork", 1, catalogue, tmp_path / "again", overrides={"policy.map": [*sets[:2], 1]}
    )
    assert again["origin"]["origin"]["run"] == str(parent)
    assert again["accuracy_matrix"][0][:2] == record["accuracy_matrix"][0][:2]


def test_a_fork_ends_the_training(catalogue, tmp_path):
    """From the end of the first task on it is, to the bit, the run in which that task alone trains."""
    ways = {"whole": 0, "stopped": 1}
    head = {"baseline.head": "lda", "baseline.head_carry": "affine"}
    for name, trained in ways.items():
        resolved = shortest(catalogue, "slca-plus-plus", {**head, "baseline.trained_tasks": trained})
        ways[name] = start(resolved, catalogue, tmp_path / name)
    record = forked(
        tmp_path / "whole", 0, catalogue, tmp_path / "fork", overrides={"baseline.trained_tasks": 1}
    )
    apart = ("files", "origin", "record_hash")
    assert untimed(record, *apart) == untimed(ways["stopped"], *apart)
    assert different(tensors(tmp_path / "stopped"), tensors(tmp_path / "fork")) == []
    # two of seven classes came with the first task, and nothing moves after it
    assert (record["stale_classes"]["last"], ways["whole"]["stale_classes"]["last"]) == (0, 5 / 7)
    assert record["findings"]["carry_forwards"] == 0


def test_options_of_a_training_that_has_ended_are_told(catalogue, tmp_path, caplog):
    """They can change nothing; that which ended it has."""
    caplog.set_level("INFO", logger="lw2g")
    start(shortest(catalogue, "aper-adapter", {}), catalogue, tmp_path / "run")
    record = forked(tmp_path / "run", 0, catalogue, tmp_path / "fork", overrides={"baseline.lr": 0.5})
    told = "aper-adapter trains on the first task alone: of baseline.lr, what is for training changes nothing"
    assert told in caplog.text
    assert record["metrics"]["faa"] is not None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"overrides": {"growth.heads": "joint"}}, "cannot change growth.heads: what was learned"),
        ({"overrides": {"backbone.depth": 5}}, "cannot change backbone.depth"),
        ({"overrides": {"routing.mix": 2}}, "cannot change routing.mix: what was learned"),
        (
            {"overrides": {"baseline.length": 3}},
            "does not fit other values of baseline.length: they shape",
        ),
        ({"overrides": {"baseline.blocks": [2, 3, 5]}}, "predicts otherwise than it did .* alike"),
        (
            {"overrides": {"benchmark.train": 5}},
            "a fork cannot change benchmark.train: .* since the run began",
        ),
        ({"constraints": ["pgp"]}, "constraint 'pgp' keeps spaces of its own, and has seen none"),
        ({"overrides": {"growth.measures": ["novelty"]}}, r"'novelty' needs what it stores .* sets \[0\]"),
        ({"policy": "fixed", "overrides": {"policy.map": [0, 0]}}, "expected the sets of 3 tasks but got 2"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value),
)
def test_what_old_tasks_rest_on_cannot_be_changed(changes, said, finished, catalogue, tmp_path):
    """Shapes, places, spaces, data and decisions that cannot be are refused in one line, unwritten."""
    with pytest.raises(Lw2gError, match=said) as refused:
        forked(finished[0], 0, catalogue, tmp_path / "fork", **changes)
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "fork").exists()


def test_spaces_that_nobody_kept_are_not_made_up(catalogue, quick, tmp_path):
    """A run without evidence and constraints cannot go on with them."""
    start(quick(policy="always"), catalogue, tmp_path / "run", tasks=1)
    with pytest.raises(ConfigError, match=r"need the spaces of tasks \[1\], and the run kept none"):
        forked(tmp_path / "run", 0, catalogue, tmp_path / "fork", policy="min")
    assert not (tmp_path / "fork").exists()
    with pytest.raises(DataError, match="task 2 is not finished"):
        forked(tmp_path / "run", 1, catalogue, tmp_path / "fork")


def test_a_map_is_looked_at_beside_what_was_learned(catalogue, quick, tmp_path):
    """A map that only fits another beginning is refused before anything is written."""
    resolved = quick({"policy.map": [0, 0, 1]}, policy="fixed")
    start(resolved, catalogue, tmp_path / "run", tasks=2)
    with pytest.raises(
        ConfigError, match=r"task 3 gets set 2, and the run has the sets \[0\] then; name one"
    ):
        forked(tmp_path / "run", 1, catalogue, tmp_path / "fork", overrides={"policy.map": [0, 1, 2]})
    assert not (tmp_path / "fork").exists()


def test_a_fork_notes_nothing_on_what_its_run_has_set(finished, catalogue):
    """Options of a replaced policy and of its measures came with the run; what is set here is told."""
    unchanged = resolve_fork(finished[0], catalogue).notes
    assert resolve_fork(finished[0], catalogue, policy="always").notes == unchanged
    typed = {"growth.measures": [], "growth.screen": 3}
    set_here = resolve_fork(finished[0], catalogue, policy="always", overrides=typed).notes
    assert any(note.startswith("growth.screen=3 is not read") for note in set_here), set_here


def test_forking_from_the_command_line(finished, catalogue, monkeypatch, tmp_path):
    """The fork stops where it is told to, and says how to go on."""
    load_instead(monkeypatch, lambda **_: catalogue)
    monkeypatch.setattr(execute, "_listeners", list)
    out = tmp_path / "fork"

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["fork", str(finished[0]), "--out", str(out), *arguments])

    refused = invoke("--at-task", "9", "--policy", "always")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1), (
        refused.stderr
    )  # no note before it
    assert "task 9 is not finished, the last one is 3" in refused.stderr
    result = invoke("--at-task", "1", "--tasks", "1", "--policy", "one")
    assert result.exit_code == 0, result.output
    assert f"stopped after 1 of 3 tasks; go on with: lw2g continue {out}" in result.output
    shown = CliRunner().invoke(main, ["show", str(out), "--all"]).output.replace("\n", "")
    assert f"forked from {finished[0]} after task 1; changed: policy.name min -> one" in shown
    result = invoke("--at-task", "1")
    assert result.exit_code == 2
    assert "holds a run already" in result.stderr
