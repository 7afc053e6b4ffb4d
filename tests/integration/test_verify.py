"""``lw2g verify`` says what holds of a run, and names whatever does not."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

import lw2g
from listening import At, power_cut
from lw2g.cli.main import main
from lw2g.config.resolve import Resolved
from lw2g.disk.contents import record_hash
from lw2g.disk.sealed import seal_json, sha256_of, unseal_json
from lw2g.errors import DataError
from lw2g.interfaces.tracker import TaskDecided
from lw2g.lifecycle.runner import start
from lw2g.maths.metrics import adjusted_rand_index
from lw2g.model.exporting import export_run
from lw2g.model.saved import open_model
from lw2g.registry.catalogue import Catalogue
from lw2g.results.recomputed import rand_index
from lw2g.results.verification import verify
from lw2g.runtime.progress import Interrupted

CHECKPOINT, PREDICTIONS = "checkpoints/task-001.safetensors", "predictions/task-001.safetensors"


@pytest.fixture
def run(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return Path(shutil.copytree(finished[0], tmp_path / "run"))


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["verify", *map(str, arguments)])


def broken(directory: Path) -> set[str]:
    return {one.what for one in verify(directory) if one.holds is False}


def flip(path: Path, place: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def reseal(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the record as somebody would who knows of checksums."""
    record = unseal_json(directory / "record.json")
    change(record)
    record["record_hash"] = record_hash(record)
    (directory / "record.json").write_bytes(seal_json(record))


def test_a_hash_of_another_record_is_named(run: Path) -> None:
    """The hash that two equal runs share is that of the record it stands in; older records have none."""
    record = unseal_json(run / "record.json")
    (run / "record.json").write_bytes(seal_json(record | {"record_hash": "0" * 64}))
    assert broken(run) == {"record.json: record_hash"}
    del record["record_hash"]
    (run / "record.json").write_bytes(seal_json(record))
    assert broken(run) == set()


def test_a_folder_of_runs_has_a_line_for_each(run: Path, tmp_path: Path) -> None:
    """What does not hold is named with its run, and the others are examined all the same."""
    assert invoke(tmp_path).stdout.splitlines()[-1] == "all hold (1 run)"
    shutil.copytree(run, tmp_path / "below/flipped")
    flip(tmp_path / "below/flipped/samples.json")
    shutil.copytree(run, tmp_path / "lost")
    (tmp_path / "lost/config.toml").unlink()
    done = invoke(tmp_path)
    lines = done.stdout.splitlines()
    assert (done.exit_code, lines[-1]) == (1, "2 of 3 runs do not hold")
    assert lines[0].startswith(f"FAILS  {tmp_path}/below/flipped: 1 of ")
    assert ", first samples.json: does not match its checksum" in lines[0]
    assert lines[1].startswith(f"FAILS  {tmp_path}/lost: ")
    assert re.fullmatch(rf"holds  {run}: everything holds \(\d+ checks\)", lines[2])
    assert invoke(tmp_path / "below", tmp_path / "lost", tmp_path, run).stdout == done.stdout  # each once
    in_python = lw2g.verify(tmp_path / "below", run)
    assert [one.what for one in in_python.broken] == [f"{tmp_path}/below/flipped/samples.json"]
    assert str(tmp_path / "lost") in {one.what for one in lw2g.verify(tmp_path).broken}
    told = json.loads(invoke(tmp_path, "--json").stdout)
    assert [(Path(entry["run"]).name, entry["holds"]) for entry in told] == [
        ("flipped", False),
        ("lost", False),
        ("run", True),
    ]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert invoke(empty).exit_code == 2


def test_a_whole_run_holds(run: Path) -> None:
    """Every file and every metric is named, and all of them hold."""
    result = invoke(run)
    findings = {one.what: one.holds for one in verify(run)}
    assert (result.exit_code, result.output) == (0, f"everything holds ({len(findings)} checks)\n")
    whole = invoke(run, "--all").output
    assert all(what in whole for what in findings)
    files = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()} - {"events.jsonl"}
    assert files <= findings.keys()
    values = {f"record.json: metrics.{name}" for name in unseal_json(run / "record.json")["metrics"]}
    assert values | {"record.json: accuracy_matrix", "record.json: retrieval_matrix"} <= findings.keys()
    assert all(findings.values())


@pytest.mark.parametrize(
    "name", ["config.toml", "samples.json", "plugins.json", "record.json", PREDICTIONS, CHECKPOINT]
)
def test_a_flipped_bit_is_named(run: Path, name: str) -> None:
    """The file is named in the table and in the JSON, with exit code 1."""
    flip(run / name, (run / name).stat().st_size // 2)
    later = {"checkpoints/task-002.safetensors"} if name == CHECKPOINT else set()
    metrics = {"record.json: metrics"} if name == PREDICTIONS else set()
    assert broken(run) == {name} | later | metrics
    result = invoke(run, "--json")
    report = json.loads(result.output)
    assert result.exit_code == 1
    assert not report["holds"]
    assert name in {one["what"] for one in report["findings"] if one["holds"] is False}


@pytest.mark.parametrize("name", ["config.toml", "samples.json", PREDICTIONS, CHECKPOINT, "record.json"])
def test_a_lost_file_is_named(run: Path, name: str) -> None:
    """What the record or a checkpoint tells of is missed."""
    (run / name).unlink()
    if name == "config.toml":
        assert invoke(run).exit_code == 2
    else:
        assert name in broken(run)


@pytest.mark.parametrize(
    "key", ["faa", "faa_samples", "caa", "ffm", "ffm_code", "bwt", "pra", "ssp", "chance_pra"]
)
def test_a_metric_that_does_not_follow_is_named(run: Path, key: str) -> None:
    """A number that was put into the record, checksum and all, is not what the predictions say."""
    reseal(run, lambda record: record["metrics"].update({key: record["metrics"][key] + 0.01}))
    assert broken(run) == {f"record.json: metrics.{key}"}


def test_a_matrix_that_does_not_follow_is_named(run: Path) -> None:
    """The message says which entry, what is written and what follows from the predictions."""

    def change(record: dict[str, Any]) -> None:
        record["accuracy_matrix"][0][2] = 101.0

    reseal(run, change)
    text = next(one.text for one in verify(run) if one.what == "record.json: accuracy_matrix")
    assert text.startswith("task 1 after task 3: 101.0 written, ")


def test_a_retrieval_matrix_is_judged_whoever_leaves_it_out(run: Path) -> None:
    """One that the record has lost does not follow from predictions that say which task was retrieved."""
    reseal(run, lambda record: record.update(retrieval_matrix=None))
    assert "record.json: retrieval_matrix" in broken(run)


def test_a_retrieval_matrix_without_retrieval_is_named(run: Path) -> None:
    """Predictions that choose no set bear none, whatever the record says."""
    checksums = {}
    for path in (run / "predictions").glob("*.safetensors"):
        columns = load_file(path)
        for name in ("retrieved", "set", "rank"):
            columns[name][:] = -1
        save_file(columns, path)
        checksums[f"predictions/{path.name}"] = sha256_of(path)
    reseal(run, lambda record: record["files"].update(checksums))
    assert "record.json: retrieval_matrix" in broken(run)
    reseal(run, lambda record: record.update(retrieval_matrix=None))
    assert "record.json: retrieval_matrix" not in broken(run)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("sample", 7, "samples are not counted from 0"),
        ("true", 1, "samples have other labels or tasks than before"),
        ("predicted", 5, "classes are predicted that were not seen"),
        ("retrieved", 2, "tasks are retrieved that were not seen"),
        ("set", 9, "sets are not those of the retrieved tasks"),
        ("task", 1, "samples have other labels or tasks than before"),
    ],
)
def test_predictions_that_cannot_be_are_named(run: Path, column: str, value: int, said: str) -> None:
    """Also where every checksum was put right."""
    columns = load_file(run / PREDICTIONS)
    columns[column][0] = value
    save_file(columns, run / PREDICTIONS)
    checksum = sha256_of(run / PREDICTIONS)
    reseal(run, lambda record: record["files"].update({PREDICTIONS: checksum}))
    findings = {one.what: one for one in verify(run)}
    assert said in findings[PREDICTIONS].text
    assert findings[PREDICTIONS].holds is False
    assert "another checksum of predictions/task-001" in findings[CHECKPOINT].text


def test_an_unfinished_run_holds_as_far_as_it_came(
    catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path
) -> None:
    """Without a record, checkpoints tell what configuration and samples must be."""
    stop = At(lambda event: isinstance(event, TaskDecided), partial(power_cut, KeyboardInterrupt))
    with pytest.raises(Interrupted):
        start(quick(), catalogue, tmp_path / "run", [stop])
    found = {one.what: one.holds for one in verify(tmp_path / "run")}
    assert found == {
        "record.json": None,
        "config.toml": True,
        "samples.json": True,
        "plugins.json": True,
        "checkpoints/task-000.step-000000.safetensors": True,
        "record.json: tasks": None,
    }
    going_on = f"(interrupted); go on: lw2g resume {tmp_path / 'run'}"
    told = f"unfinished: no task is finished {going_on}; what is there holds (6 checks)\n"
    assert invoke(tmp_path / "run").output == told
    flip(tmp_path / "run" / "config.toml")
    assert broken(tmp_path / "run") == {"config.toml"}


def test_a_run_with_some_of_its_tasks_is_said_to_be_unfinished(
    catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path
) -> None:
    """Interrupted or stopped, alone or among others, and in Python; the exit code is that of a whole run."""
    begun = tmp_path / "begun"
    stop = At(
        lambda event: isinstance(event, TaskDecided) and event.task == 1,
        partial(power_cut, KeyboardInterrupt),
    )
    with pytest.raises(Interrupted):
        start(quick(), catalogue, begun, [stop])
    start(quick(), catalogue, tmp_path / "stopped", tasks=2)
    told = []
    for name, text, way in (("begun", "1 of 3", "resume"), ("stopped", "2 of 3", "continue")):
        run = tmp_path / name
        state = "interrupted" if name == "begun" else name
        told.append(f"{text} tasks learned ({state}); go on: lw2g {way} {run}")
        alone = invoke(run)
        assert alone.exit_code == 0
        assert re.fullmatch(
            rf"unfinished: {re.escape(told[-1])}; what is there holds \(\d+ checks\)\n", alone.output
        )
        assert lw2g.verify(run).unfinished == told[-1]
        assert told[-1] in repr(lw2g.verify(run))
    both = invoke(tmp_path)
    assert (both.exit_code, [text in both.output for text in told]) == (0, [True, True])
    assert "everything" not in both.output


@pytest.mark.parametrize(("key", "value"), [("domains", ["photo"]), ("task_classes", [[0, 1]])])
def test_a_record_of_fewer_tasks_is_named(run: Path, key: str, value: list[Any]) -> None:
    """What every task has stands in the record for every task, or the record is refused in a line."""
    reseal(run, lambda record: record.update({key: value}))
    assert "record.json" in broken(run)
    result = invoke(run)
    assert (
        result.exit_code,
        "expected 3 tasks or more, as many as have rows" in " ".join(result.output.split()),
    ) == (1, True)


@pytest.mark.parametrize("lost", [[2], [1, 2], [0, 1, 2]])
def test_lost_checkpoints_are_named_and_no_earlier_model_is_served(
    run: Path, catalogue: Catalogue, tmp_path: Path, lost: list[int]
) -> None:
    """The record knows how many tasks there were; an earlier model is there for who asks for it."""
    for task in lost:
        (run / f"checkpoints/task-{task:03d}.safetensors").unlink()
    assert broken(run) == {f"checkpoints/task-{task:03d}.safetensors" for task in lost}
    for use in (
        lambda: open_model(run, catalogue),
        lambda: export_run(run, catalogue, tmp_path / "export"),
    ):
        with pytest.raises(DataError, match=r"lw2g\.resume"):
            use()
    if 0 not in lost:
        assert open_model(run, catalogue, 1).task == 1


def test_no_run_is_bad_usage(tmp_path: Path) -> None:
    """There is nothing to verify: exit code 2 and one line."""
    result = invoke(tmp_path)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "no run at" in result.stderr


@pytest.mark.parametrize("seed", range(5))
def test_the_recomputed_rand_index_is_that_of_the_library(seed: int) -> None:
    """Pair counting and contingency tables give the same number."""
    rng = np.random.default_rng(seed)
    left, right = rng.integers(0, 3, 8).tolist(), rng.integers(0, 3, 8).tolist()
    expected = adjusted_rand_index(dict(enumerate(left)), dict(enumerate(right)))
    assert rand_index(left, right) == pytest.approx(expected)


def _forged(value: list[Any]) -> list[Any]:
    row = value[0] if value else None
    return [[], value[:-1], [*value, row], value[::-1], [[]] * len(value), [-1] * len(value), None, {}, "ab"]


def test_no_list_of_a_record_ends_in_a_traceback(run: Path) -> None:
    """Empty, shorter, longer, turned round or of another type: verdicts come, whatever a list holds."""
    record = unseal_json(run / "record.json")
    lists = [(key,) for key, value in record.items() if isinstance(value, list)]
    lists += [("task_classes", 0), ("task_classes", 1), ("accuracy_matrix", 0), ("planted_groups",)]
    unheld = set()
    for place in lists:
        *tables, last = place
        for new in _forged(record[place[0]] or [0]) if len(place) == 1 else _forged(record[place[0]][last]):
            forged = json.loads(json.dumps(record))
            table = forged
            for key in tables:
                table = table[key]
            table[last] = new
            (run / "record.json").write_bytes(seal_json(forged))
            if broken(run) - {"record.json: record_hash"}:
                unheld.add((place, repr(new)))
    assert {
        (("task_classes",), repr(record["task_classes"][::-1])),
        (("task_classes",), repr([[]] * len(record["task_classes"]))),
        (("task_classes", 0), "[]"),
        (("task_classes", 0), repr([-1] * len(record["task_classes"][0]))),
        (("planted_groups",), "[]"),
    } <= unheld
