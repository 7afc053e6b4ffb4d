"""With ``run.evaluate`` a run predicts after some tasks only, and learns and ends as it does otherwise."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from listening import At, power_cut
from lw2g.cli.main import main
from lw2g.config.resolve import Resolved
from lw2g.disk.contents import record_hash
from lw2g.disk.record import RunDirectory
from lw2g.disk.sealed import seal_json, unseal_json
from lw2g.errors import DataError
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.tracker import Event, Stepped, TaskDecided, Warned
from lw2g.lifecycle.continuing import proceed
from lw2g.lifecycle.forking import fork, resolve_fork
from lw2g.lifecycle.runner import resume, start
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import read_run
from lw2g.results.verification import verify
from lw2g_page.inside import accuracies, forgetting, look_inside
from lw2g_store.submit import submit
from runs import shortest, untimed

COURSE = ("caa", "caa_samples", "ffm", "ffm_code", "ffm_absent", "bwt")
OPTIONS = {"growth.measures": ["energy"]}


@pytest.fixture(scope="module")
def last_only(
    tmp_path_factory: pytest.TempPathFactory, catalogue: Catalogue, quick: Callable[..., Resolved]
) -> Path:
    """The run of `finished`, evaluated after its last task alone."""
    directory = tmp_path_factory.mktemp("last") / "run"
    start(quick(OPTIONS | {"run.evaluate": "last"}), catalogue, directory)
    return directory


def broken(directory: Path) -> list[str]:
    return [one.what for one in verify(directory) if one.holds is False]


def test_what_is_learned_and_predicted_in_the_end_is_the_same(
    finished: tuple[Path, dict[str, Any]], last_only: Path
) -> None:
    """Only what was not measured is null, and metrics over all evaluations are undefined."""
    reference = finished[1]
    record = unseal_json(last_only / "record.json")
    tasks = record["tasks"]
    for row, whole in zip(record["accuracy_matrix"], reference["accuracy_matrix"], strict=True):
        assert row == [None] * (tasks - 1) + whole[-1:]
    for row, whole in zip(record["retrieval_matrix"], reference["retrieval_matrix"], strict=True):
        assert row == [None] * (tasks - 1) + whole[-1:]
    expected = reference["metrics"] | dict.fromkeys(COURSE)
    assert record["metrics"] == expected
    for same in ("decisions", "task_to_set", "storage", "stale_classes", "routing"):
        assert record[same] == reference[same], same
    last = f"predictions/task-{tasks - 1:03d}.safetensors"
    assert (last_only / last).read_bytes() == (finished[0] / last).read_bytes()
    assert [name for name in record["files"] if name.startswith("predictions/")] == [last]
    assert broken(last_only) == []


def warning_after(_: object, info: TaskInfo) -> list[str]:
    """Stand in for the warnings of a baseline."""
    return [f"after task {info.index + 1}"]


def test_what_is_noted_after_every_task_needs_no_evaluation(
    catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stale classes, warnings and the test of the next task are those of a run that evaluates always."""
    monkeypatch.setattr("lw2g.blocks.heads.HeadedBaseline.warnings", warning_after)
    monkeypatch.setattr("lw2g.learning.session.Session.evaluate_next", lambda self, index, _: 10.0 + index)
    noted = []
    for evaluate in ("every task", "last", 2):
        options = {"run.evaluate": evaluate, "run.next_domain": True, "baseline.head": "lda"}
        warned: list[str] = []
        resolved = shortest(catalogue, "dual-prompt", options, policy="one", constraints=[])
        record = start(resolved, catalogue, tmp_path / str(evaluate), [Warnings(warned)])
        noted.append([record["stale_classes"], record["next_domain"], warned])
    assert noted[0] == noted[1] == noted[2]
    stale, ahead, warned = noted[0]
    assert stale["last"] > 0
    assert ahead["by_task"] == [None, 10.0, 11.0]
    assert [line for line in warned if line.startswith("after")] == [f"after task {n}" for n in (1, 2, 3)]


def test_every_second_task(catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path) -> None:
    """Columns of the second and the last task are there; a run that is killed ends alike."""
    options = quick(OPTIONS | {"run.evaluate": 2})
    record = start(options, catalogue, tmp_path / "run")
    measured = [any(row[after] is not None for row in record["accuracy_matrix"]) for after in range(3)]
    assert measured == [False, True, True]
    assert broken(tmp_path / "run") == []
    killed = tmp_path / "killed"

    def is_third(event: Event) -> bool:
        return isinstance(event, TaskDecided) and event.task == 2

    with pytest.raises(RuntimeError, match="power cut"):
        start(options, catalogue, killed, [At(is_third, power_cut)])
    assert broken(killed) == []
    assert untimed(resume(killed, catalogue)) == untimed(record)


class After:
    """Cuts the power at an event, counted from the beginning; steps are not counted."""

    def __init__(self, events: int) -> None:
        self.left = events

    def on_event(self, event: Event) -> None:
        if not isinstance(event, Stepped):
            self.left -= 1
        if not self.left:
            power_cut()

    def close(self) -> None:
        """Nothing to close."""


class Warnings:
    """Keeps the lines that a run warns with."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def on_event(self, event: Event) -> None:
        if isinstance(event, Warned):
            self.lines.append(event.message)

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize(
    ("evaluate", "policy", "baseline", "after"),
    [
        ("last", "one", "dual-prompt", 5),
        pytest.param("last", "min", "hide-prompt", 4, marks=pytest.mark.slow),
        pytest.param("last", None, "simple-cil", 3, marks=pytest.mark.slow),
        pytest.param(2, "one", "dual-prompt", 4, marks=pytest.mark.slow),
        pytest.param("every task", "one", "dual-prompt", 3, marks=pytest.mark.slow),
    ],
)
def test_kills_at_any_event_change_nothing(
    evaluate: str | int,
    policy: str | None,
    baseline: str,
    after: int,
    catalogue: Catalogue,
    tmp_path: Path,
) -> None:
    """Killed every few events, a run evaluates and measures drift where an unbroken one does."""
    options = {"run.evaluate": evaluate, "run.precision": "auto", "benchmark.tasks": 4, "benchmark.train": 4}
    resolved = shortest(catalogue, baseline, options, policy=policy)
    reference = start(resolved, catalogue, tmp_path / "quiet")
    killed = tmp_path / "killed"
    with pytest.raises(RuntimeError, match="power cut"):
        start(resolved, catalogue, killed, [After(after)])
    for events in range(after, after + 30):
        try:
            record = resume(killed, catalogue, [After(events)])
        except RuntimeError:
            continue
        break
    else:
        pytest.fail("the run never ended")
    assert untimed(record) == untimed(reference)
    assert record["feature_drift"] == reference["feature_drift"]
    assert broken(killed) == []


@pytest.mark.parametrize("evaluate", ["last", 3])
def test_a_planned_stop_leaves_no_evaluation_behind(
    evaluate: str | int, catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path
) -> None:
    """`continue` after `--tasks` gives the record and the files of a run that did not stop, at every stop."""
    options = {"run.evaluate": evaluate, "benchmark.tasks": 4, "benchmark.train": 4, "baseline.epochs": 1}
    resolved = quick(options, policy="one")
    reference = start(resolved, catalogue, tmp_path / "quiet")
    stopped = tmp_path / "stopped"
    short = start(resolved, catalogue, stopped, tasks=1)
    assert [row[0] is None for row in short["accuracy_matrix"]] == [False]
    warned: list[str] = []
    listener = Warnings(warned)
    proceed(stopped, catalogue, [listener], tasks=2)
    record = proceed(stopped, catalogue, [listener])
    assert untimed(record) == untimed(reference)
    assert broken(stopped) == []
    files = [{path.name for path in (run / "predictions").iterdir()} for run in (stopped, tmp_path / "quiet")]
    assert files[0] == files[1]
    assert [line.partition(" because")[0] for line in warned] == [
        "task 1 was evaluated",
        "task 2 was evaluated",
    ]


@pytest.mark.parametrize("at", ["write_record", "remove_predictions"])
def test_a_kill_while_an_evaluation_is_taken_back(
    at: str,
    catalogue: Catalogue,
    quick: Callable[..., Resolved],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`continue` that is killed before the checkpoint is written anew is resumed to the same record."""
    options = {"run.evaluate": "last", "benchmark.train": 4, "baseline.epochs": 1}
    resolved = quick(options, policy="one")
    reference = start(resolved, catalogue, tmp_path / "quiet")
    stopped = tmp_path / "stopped"
    start(resolved, catalogue, stopped, tasks=2)
    act = getattr(RunDirectory, at)

    def killed(*arguments: Any) -> None:
        act(*arguments)
        power_cut()

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, at, killed)
        with pytest.raises(RuntimeError, match="power cut"):
            proceed(stopped, catalogue)
    assert untimed(resume(stopped, catalogue)) == untimed(reference)
    assert broken(stopped) == []


def test_a_record_cannot_leave_an_evaluation_out(
    finished: tuple[Path, dict[str, Any]], last_only: Path, tmp_path: Path
) -> None:
    """Predictions that the configuration asks for are missed, although every hash was made anew."""
    run = Path(shutil.copytree(finished[0], tmp_path / "run"))
    record = unseal_json(run / "record.json")
    for row in record["accuracy_matrix"]:
        row[0] = None
    for row in record["retrieval_matrix"]:
        row[0] = None
    del record["files"]["predictions/task-000.safetensors"]
    (run / "predictions/task-000.safetensors").unlink()
    shutil.rmtree(run / "checkpoints")
    record["record_hash"] = record_hash(record)
    (run / "record.json").write_bytes(seal_json(record))
    assert "record.json: metrics" in broken(run)


def test_forks_and_packs_need_evaluations(catalogue: Catalogue, last_only: Path, tmp_path: Path) -> None:
    """A fork proves that it predicts alike, and a pack holds every evaluation: one line each."""
    with pytest.raises(DataError, match="nothing was measured after it"):
        fork(last_only, 0, resolve_fork(last_only, catalogue), catalogue, tmp_path / "fork")
    with pytest.raises(DataError, match=r"run\.evaluate"):
        submit(last_only, catalogue, tmp_path / "pack", {})
    assert not (tmp_path / "pack").exists()


def test_it_is_shown_and_reported(last_only: Path) -> None:
    """No command trips over what was not measured."""
    for arguments in (["show"], ["show", "--all"], ["report"]):
        done = CliRunner().invoke(main, [arguments[0], str(last_only), *arguments[1:]])
        assert done.exit_code == 0, done.output
    found = read_run(last_only)
    assert found is not None
    assert forgetting(look_inside(found, "run")).why == "nothing was measured after some tasks (run.evaluate)"
    assert [point[1] for point in accuracies(look_inside(found, "run")).rows] == [3, 3, 3]


@pytest.mark.parametrize("value", ["0", "-3", "often"])
def test_a_wrong_value_is_told(value: str, tmp_path: Path) -> None:
    """One line names the option and what it takes; no directory is left."""
    arguments = ["run", "--set", f"run.evaluate={value}", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "evaluate" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()
