"""Opening a run: each reason to refuse it, whoever asks, and what is passed over where one goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lw2g.disk.contents import read_record
from lw2g.disk.record import RunDirectory
from lw2g.disk.sealed import seal_json, unseal_json
from lw2g.disk.stored_run import open_after, open_newest, require_task, resolved_of
from lw2g.errors import DataError
from lw2g.lifecycle.run_opening import reopen


@pytest.fixture
def run(finished: tuple[Path, Any], tmp_path: Path) -> Path:
    """A finished run of three tasks that may be damaged."""
    return shutil.copytree(finished[0], tmp_path / "run")


def last(run: Path) -> Path:
    """The checkpoint of the last task."""
    return run / "checkpoints" / "task-002.safetensors"


def edit(run: Path) -> None:
    """Give the configuration another option."""
    config = run / "config.toml"
    text = config.read_text()
    assert "seed = " in text
    config.write_text(text.replace("seed = ", "seed = 1"))


def damage(run: Path) -> None:
    """Flip a bit of the last checkpoint."""
    content = bytearray(last(run).read_bytes())
    content[-1] ^= 1
    last(run).write_bytes(content)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no configuration": (lambda run: (run / "config.toml").unlink(), "has lost its config.toml"),
    "an edited one": (edit, r"is not the one the run began with \(run.seed is"),
}


@pytest.mark.parametrize("open_run", [open_after, open_newest])
@pytest.mark.parametrize("what", REFUSED)
def test_a_run_is_refused_by_whoever_opens_it(
    what: str, open_run: Callable[[Path], object], run: Path
) -> None:
    """For reading and to go on alike."""
    change, words = REFUSED[what]
    change(run)
    with pytest.raises(DataError, match=words):
        open_run(run)


def test_an_edited_run_is_not_opened_with_its_data_either(run: Path, catalogue: Any) -> None:
    """What looks at a run's data, state or record looks at those of its configuration."""
    edit(run)
    for look in (lambda: reopen(run, catalogue), lambda: read_record(run)):
        with pytest.raises(DataError, match=REFUSED["an edited one"][1]):
            look()


def test_a_record_of_another_run_is_told_from_an_edited_configuration(run: Path) -> None:
    """Checkpoints know the configuration that the run began with."""
    record = run / "record.json"
    record.write_bytes(seal_json(unseal_json(record) | {"files": {"config.toml": "0" * 64}}))
    with pytest.raises(DataError, match="is not of the run that config"):
        read_record(run)


@pytest.mark.parametrize("change", [damage, lambda run: last(run).unlink()], ids=["damaged", "lost"])
def test_an_earlier_state_is_told_and_never_passed_off(change: Callable[[Path], object], run: Path) -> None:
    """Without its last checkpoint a run goes on from the task before, and its last model is refused."""
    change(run)
    newest = open_newest(run)
    assert newest.require_checkpoint().task_done == 1
    assert any("task 3 is lost" in line or "task-002" in line for line in newest.complaints)
    with pytest.raises(DataError, match=r"has lost the checkpoint of task 3|cannot be restored: checkpoint"):
        open_after(run)
    assert open_after(run, 1).require_checkpoint().task_done == 1


def test_a_task_that_is_not_finished_names_the_run_and_the_remedy(run: Path) -> None:
    """The line says which run, and how to go on."""
    with pytest.raises(
        DataError,
        match=r"run '.*run': task 8 is not finished, the last one is [0-9]+; choose an earlier one$",
    ):
        open_after(run, 7)  # the run is finished: nothing goes on
    with pytest.raises(DataError, match=r"run '.*run': task 8 is not finished, the last one is [0-9]+; "):
        require_task(run, 7)
    damage(run)
    require_task(run, 2)  # it reads no checkpoint
    record = unseal_json(run / "record.json")
    (run / "record.json").write_bytes(seal_json(record | {"tasks": record["tasks"] + 1}))
    for goal, command in (
        (None, "resume"),
        (record["tasks"], "continue_run"),
    ):  # after a stop nothing is resumed
        RunDirectory(run).write_goal(goal)
        with pytest.raises(DataError, match=rf"choose an earlier one, or go on: lw2g\.{command}\("):
            open_after(run, 7)


def test_a_continuation_that_never_began_is_refused_but_may_begin_again(run: Path) -> None:
    """A benchmark that no checkpoint knows of stops a resume, and not the command that wrote it."""
    (run / "source-2.toml").write_text("")
    with pytest.raises(
        DataError, match=r"ended before it had begun; run it again, or remove 'source-2\.toml'"
    ):
        open_newest(run)
    assert open_newest(run, extending=True).require_checkpoint().task_done == 2


def test_no_whole_checkpoint_is_a_state_of_its_own(run: Path, catalogue: Any) -> None:
    """A run without any begins anew, from the configuration that its record vouches for."""
    shutil.rmtree(run / "checkpoints")
    newest = open_newest(run)
    assert newest.checkpoint is None
    assert newest.later_benchmarks(catalogue) == ()
    with pytest.raises(DataError, match=r"no checkpoint of .* is whole; begin with: lw2g\.resume"):
        newest.require_checkpoint()
    assert newest.resolved(catalogue).config == resolved_of(run, catalogue).config
