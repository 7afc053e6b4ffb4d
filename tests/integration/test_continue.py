"""A run that stops after some tasks and goes on ends as one that never stopped."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from installed import load_instead
from listening import At, power_cut
from lw2g.cli import execute
from lw2g.cli.main import main
from lw2g.config.resolve import Resolved
from lw2g.config.settings import Chosen
from lw2g.disk.record import RunDirectory
from lw2g.disk.sealed import unseal_json
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.tracker import EpochEnded
from lw2g.lifecycle.continuing import extend, proceed
from lw2g.lifecycle.run_opening import reopen
from lw2g.lifecycle.runner import resume, start
from lw2g.model.saved import open_model
from lw2g.registry.catalogue import Catalogue
from lw2g.results.verification import verify
from lw2g_testing.tiny import TinyBenchmarkConfig
from runs import different, shortest, tensors, untimed
from written_images import write_images

CROPS = {"benchmark.random_crops": True}


def tiny(catalogue: Catalogue, baseline: str, head: str = "linear") -> Resolved:
    """The shortest run of a baseline that has something to go wrong: growth, reuse and every phase."""
    options: dict[str, Any] = dict(CROPS)
    if head != "linear":
        options |= {
            "baseline.head": head,
            "baseline.head_features": 20,
            "baseline.head_carry": "affine" if head == "lda" else "none",
        }
    if catalogue.get("baseline", baseline).growth != "sets":
        return shortest(catalogue, baseline, options)
    return shortest(catalogue, baseline, options | {"policy.map": [0, 0, 1, 0]}, policy="fixed")


MORE = Chosen(name="tiny", config=TinyBenchmarkConfig(tasks=1, increment=3, train=4, test=2))
# statistics and learned retrieval, modules that a run adds, all tasks as one, a head that is carried; the
# contract kit says of every other state that a run which was cut goes on as it was
RUNS = [("hide-prompt", "linear"), ("sema", "linear"), ("joint", "linear"), ("dual-prompt", "lda")]


@pytest.mark.parametrize(("baseline", "head"), RUNS)
def test_a_run_goes_on_as_if_it_had_not_stopped(baseline, head, catalogue, tmp_path):
    """Stopped and continued, the whole record and every bit of the state are the same; then classes join."""
    resolved = tiny(catalogue, baseline, head)
    reference = start(resolved, catalogue, tmp_path / "whole")
    if len(reference["accuracy_matrix"]) == 1:  # learns all tasks as one
        with pytest.raises(ConfigError, match="cannot stop after task 2: the stream has 1"):
            start(resolved, catalogue, tmp_path / "stopped", tasks=2)
        with pytest.raises(ConfigError, match=f"baseline '{baseline}' learns all its tasks as one"):
            extend(tmp_path / "whole", MORE, catalogue)
        return
    stopped = start(resolved, catalogue, tmp_path / "stopped", tasks=2)
    assert len(stopped["accuracy_matrix"]) == 2
    record = proceed(tmp_path / "stopped", catalogue)
    assert untimed(record) == untimed(reference)
    assert different(tensors(tmp_path / "stopped"), tensors(tmp_path / "whole")) == []
    longer = extend(tmp_path / "stopped", MORE, catalogue)
    assert [row[:3] for row in longer["accuracy_matrix"][:3]] == reference["accuracy_matrix"]
    assert [row[-1] is not None for row in longer["accuracy_matrix"]] == [True] * 4
    assert [one.what for one in verify(tmp_path / "stopped") if one.holds is False] == []


@pytest.mark.parametrize(
    "at", ["lw2g.lifecycle.continuing.open_session", "lw2g.lifecycle.continuing.snapshot"]
)
def test_a_continuation_killed_before_it_has_begun_is_begun_again(at, catalogue, tmp_path, monkeypatch):
    """Nobody resumes to the end of the old stream in silence; it is begun again, or given up."""
    start(tiny(catalogue, "s-prompt-plus-plus"), catalogue, tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(at, lambda *arguments, **options: sys.exit())
        with pytest.raises(SystemExit):
            extend(tmp_path / "run", MORE, catalogue, tasks=4)
    with pytest.raises(DataError, match=r"lw2g continue .* --benchmark .* ended before it had begun; run it"):
        resume(tmp_path / "run", catalogue)
    shutil.copytree(tmp_path / "run", tmp_path / "given-up")
    for name in ("source-2.toml", "goal.json"):
        (tmp_path / "given-up" / name).unlink(missing_ok=True)
    assert len(resume(tmp_path / "given-up", catalogue)["accuracy_matrix"]) == 3
    record = extend(tmp_path / "run", MORE, catalogue, tasks=4)
    assert untimed(record) == untimed(extend(tmp_path / "whole", MORE, catalogue, tasks=4))
    assert all(one.holds is not False for one in verify(tmp_path / "run"))


@pytest.fixture
def lw2g(monkeypatch, catalogue):
    """Run a command where the tiny components are registered."""
    load_instead(monkeypatch, lambda **_: catalogue)
    monkeypatch.setattr(execute, "_listeners", list)

    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(one) for one in arguments])

    return invoke


SHORT = [
    "--baseline",
    "s-prompt-plus-plus",
    "--benchmark",
    "tiny",
    "--backbone",
    "tiny",
    "--policy",
    "always",
]
SHORT += [f"--set={key}={value}" for key, value in {"baseline.epochs": 1, "benchmark.train": 4}.items()]
SHORT += ["--device", "cpu", "--precision", "32-true", "--set", "benchmark.test=2"]


def test_a_run_says_where_it_stopped_and_what_goes_on(lw2g, tmp_path):
    """From the command line: stop, resume to the same stop, refuse to stop earlier, go on to the end."""
    run = tmp_path / "run"
    result = lw2g("run", *SHORT, "--out", run, "--tasks", 1)
    assert result.exit_code == 0, result.output
    assert f"stopped after 1 of 3 tasks; go on with: lw2g continue {run}" in result.output
    assert [one.holds for one in verify(run) if one.what == "goal.json"] == [True]
    assert "stopped after 1 of" in lw2g("resume", run).output
    assert "stopped after 2 of" in lw2g("continue", run, "--tasks", 2).output
    before = (run / "record.json").read_bytes()
    known = "has 3, of which 2 are finished"
    for tasks in (1, 4):
        result = lw2g("continue", run, "--tasks", tasks)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert f"cannot stop after task {tasks}: the stream {known}; name one of 2 to 3" in result.stderr
    assert (run / "record.json").read_bytes() == before
    result = lw2g("continue", run)
    assert result.exit_code == 0, result.output
    assert "stopped" not in result.output
    assert "nothing is left to learn; new classes: " in lw2g("continue", run, "--tasks", 2).stderr
    assert not (run / "goal.json").exists()
    assert len(unseal_json(run / "record.json")["accuracy_matrix"]) == 3
    assert all(one.holds is not False for one in verify(run))


def test_an_interrupted_run_still_stops_where_it_was_meant_to(catalogue, tmp_path):
    """Where to stop survives a crash; a damaged note of it is said, and can be said anew."""
    run = tmp_path / "run"
    crash = At(lambda event: isinstance(event, EpochEnded), power_cut)
    with pytest.raises(RuntimeError, match="power cut"):
        start(shortest(catalogue, "dual-prompt"), catalogue, run, [crash], tasks=1)
    assert len(resume(run, catalogue)["accuracy_matrix"]) == 1
    (run / "goal.json").write_text("{}")
    with pytest.raises(DataError, match=r"goal.json.*say where to stop anew: lw2g continue"):
        resume(run, catalogue)
    assert len(proceed(run, catalogue, tasks=2)["accuracy_matrix"]) == 2


def test_a_map_that_ends_too_early_stops_nothing_that_was_learned(catalogue, tmp_path):
    """A fixed map is looked at before anything is learned, and before going on."""
    resolved = shortest(catalogue, "dual-prompt", {"policy.map": [0, 0]}, policy="fixed")
    with pytest.raises(ConfigError, match="expected the sets of 3 tasks but got 2"):
        start(resolved, catalogue, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    start(resolved, catalogue, tmp_path / "run", tasks=1)
    with pytest.raises(ConfigError, match="expected the sets of 3 tasks but got 2"):
        proceed(tmp_path / "run", catalogue)
    assert proceed(tmp_path / "run", catalogue, tasks=2)["task_to_set"] == [0, 0]


def painted(root: Path, names: str, size: tuple[int, int], seed: int) -> Path:
    """Two classes of images of a size, four to learn from and two to test with."""
    rng = np.random.default_rng(seed)
    for name in names.split():
        for split, count in (("train", 4), ("test", 2)):
            images = (rng.integers(0, 256, (*size, 3), dtype=np.uint8) for _ in range(count))
            write_images(root / split / name, images)
    return root


def test_classes_of_another_source_join_a_finished_run(lw2g, monkeypatch, catalogue, tmp_path):
    """Folders of images of another size, with a class of the same name: learned, named, evaluated."""
    first = painted(tmp_path / "animals", "cat dog eel fox", (20, 30), 1)
    other = painted(tmp_path / "plants", "ash dog", (44, 18), 2)
    run, crops = tmp_path / "run", "benchmark.train_transform=none"
    folder = ["--set", f"benchmark.root={first}", "--set", "benchmark.increment=2", "--set", crops]
    short = ["--baseline", "s-prompt-plus-plus", "--backbone", "tiny", "--precision", "32-true"]
    short += ["--set", "baseline.epochs=1"]
    arguments = ["run", *short, "--benchmark", "folder", *folder, "--policy", "one", "--device", "cpu"]
    assert lw2g(*arguments, "--out", run, "--tasks", 1).exit_code == 0
    more = ["--benchmark", "folder", "--set", f"benchmark.root={other}", "--set", "benchmark.increment=2"]

    def refused(*wanted: object) -> str:
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        result = lw2g("continue", run, *wanted)
        assert (result.exit_code, len(result.stderr.splitlines()[-1:])) == (2, 1)
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
        return result.stderr

    assert "has finished 1 of 2 tasks, and new classes come after the last" in refused(*more)
    assert lw2g("continue", run).exit_code == 0
    before = unseal_json(run / "record.json")
    assert "only benchmark.* can be set for new classes" in refused(*more, "--set", "baseline.lr=1")
    assert "name a --benchmark with new classes" in refused("--set", "baseline.lr=1")
    assert "is what the run has learned already" in refused("--benchmark", "folder", *folder)
    assert "no such option" in refused(*more, "--set", "benchmark.rooot=1")
    result = lw2g("continue", run, *more)
    assert result.exit_code == 0, result.output
    record = unseal_json(run / "record.json")
    assert record["class_names"] == ["cat", "dog", "eel", "fox", "ash", "folder-2/dog"]
    assert record["sources"][0]["fingerprint"] == before["fingerprints"]["benchmark"]
    expected = [(0, 2, 0, 4), (2, 1, 4, 2)]
    keys = ("first_task", "tasks", "first_class", "classes")
    assert [tuple(one[key] for key in keys) for one in record["sources"]] == expected
    assert record["sources"][1]["benchmark"]["root"] == str(other)
    assert record["task_to_set"] == [0, 0, 0]
    assert any("continued after task 2" in one["note"] for one in record["deviations"])
    assert [one.what for one in verify(run) if one.holds is False] == []
    ids = json.loads((run / "samples-2.json").read_text())
    assert ids[0] == "folder-2/plants/test/ash/0.png"
    images = [first / "test/cat/0.png", other / "test/dog/1.png"]
    model = open_model(run, catalogue)
    columns = RunDirectory(run).read_predictions(2)
    assert len(columns.sample) == 12
    answers = model.predict(images)
    assert [one["class_index"] for one in answers] == [columns.predicted[0], columns.predicted[11]]
    assert open_model(run, catalogue, 2).classes == ("cat", "dog", "eel", "fox")
    assert untimed(resume(run, catalogue)) == untimed(record)
    heard: list[Any] = []
    listener = SimpleNamespace(on_event=heard.append, close=lambda: None)
    monkeypatch.setattr(execute, "_listeners", lambda: [listener])
    forked = lw2g("fork", run, "--at-task", 3, "--policy", "always", "--out", tmp_path / "fork")
    assert forked.exit_code == 0, forked.output
    (note,) = heard[0].notes
    assert note.startswith("nothing is left to learn, and no changed option has acted; new classes: ")
    assert unseal_json(tmp_path / "fork" / "record.json")["accuracy_matrix"] == record["accuracy_matrix"]
    assert [one.what for one in verify(tmp_path / "fork") if one.holds is False] == []
    (run / "source-2.toml").write_text("")
    with pytest.raises(DataError, match=r"source-2.toml' is not the one the run went on with"):
        reopen(run, catalogue)
