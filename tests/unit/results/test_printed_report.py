"""Reports: what is printed in each format, what is refused, and which runs are listed."""

from __future__ import annotations

import csv
import errno
import html
import io
import json
import os
import re
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

import lw2g
from lw2g.cli.main import main
from lw2g.disk.sealed import seal_json, sha256_of, unseal_json
from lw2g.interfaces.metric import Metric
from lw2g.plugin import hookimpl
from lw2g.results import cells, found_runs, render, right_answers
from lw2g.results.cells import few_remarks_on
from lw2g.results.columns import COLUMNS
from lw2g.results.difference_words import few_of_rows
from lw2g.results.found_runs import ReportedRun
from lw2g.results.summaries import Difference
from lw2g.results.table import Row, tables_of
from lw2g_page import reporting
from lw2g_testing import tiny_catalogue

LW2G = {"policy.name": "min", "constraints": {"orthogonal": {}, "cpk": {"phi": 0.5}}}
FAA = COLUMNS["faa"]


@pytest.fixture
def folder(write_run, tmp_path: Path) -> str:
    """Two rows of two seeds, one run that has no value of PRA, and one that is not finished."""
    for seed in (0, 1):
        write_run(80.0 + seed, **{"run.seed": seed})
        write_run(82.0 + 3 * seed, **{"run.seed": seed, "record.metrics.pra": 50.0}, **LW2G)
    write_run(1.0, **{"run.seed": 2, "record.tasks": 3})
    return str(tmp_path)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Make the runs' folder the current one: their names are short then."""
    monkeypatch.chdir(tmp_path)


def call(*arguments: str, code: int = 0) -> str:
    """Run a command and return what it prints."""
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == code, done.output
    return done.output


def test_a_list_of_runs_has_columns_for_what_differs(folder):
    """What all have is said once below, so that a line fits into a terminal of 80 columns."""
    lines = [line.strip() for line in call("runs", ".").splitlines()]
    head = next(line for line in lines if line.startswith("run"))
    assert head.split() == ["run", "policy", "seed", "state", "task", "FAA"]
    assert lines[-2].startswith("5 runs; all: baseline ")
    assert lines[-1] == "note: of those interrupted, one goes on with: lw2g resume run-4"
    assert max(map(len, lines)) <= 80


def test_a_list_of_runs_names_them_as_a_command_takes_them(write_run, tmp_path):
    """With the folder in which they were looked for, in quotes where a shell needs them."""
    run = write_run(70.0)
    (tmp_path / "my runs").mkdir()
    run.path.rename(tmp_path / "my runs" / "run-0")
    (line,) = [line for line in call("runs", "my runs").splitlines() if "run-0" in line]
    assert line.split("dual-prompt")[0].strip() == "'my runs/run-0'"


def test_a_list_of_runs_tells_equal_methods_apart_and_has_no_empty_column(write_run, tmp_path):
    """The baseline is named as in reports; options outside its name have a column, the seed has its own."""
    write_run(70.0, **{"baseline.name": "ranpac", "run.seed": 1, "benchmark.root": "/here"})
    write_run(71.0, **{"baseline.name": "ranpac", "baseline.epochs": 7, "benchmark.root": "/elsewhere"})
    both = call("runs", ".").splitlines()
    assert both[1].split() == ["run", "baseline", "seed", "state", "task", "FAA"]
    names = [line.split()[1] for line in both if "run-" in line]
    assert names == ["ranpac[epochs=40]", "ranpac[epochs=7]"]
    write_run(72.0, **{"baseline.name": "ranpac", "benchmark.order": "seeded"})
    more = call("runs", ".").splitlines()
    assert more[1].split() == ["run", "baseline", "options", "seed", "state", "task", "FAA"]
    assert sum("order=seeded" in line for line in more) == 1
    one = call("runs", ".", "--where", "seed=1").splitlines()
    assert one[1].split() == ["run", "baseline", "benchmark", "backbone", "seed", "state", "task", "FAA"]


def test_a_list_of_runs_shows_no_option_that_nothing_reads(write_run, tmp_path):
    """Of the kind of each stream are other options, whose values say nothing of the runs of others."""
    streams = [
        {"benchmark.stream": "classes", "benchmark.tasks": 10, "benchmark.increment": 2},
        {"benchmark.stream": "repetition", "benchmark.tasks": 8, "benchmark.increment": 2},
        {"benchmark.stream": "domains", "benchmark.tasks": 9, "benchmark.increment": 5},
        {"benchmark.stream": "domains", "benchmark.tasks": 9, "benchmark.domain_order": ["b", "a"]},
    ]
    for options in streams:
        write_run(70.0, **{"benchmark.name": "folder", "benchmark.domain_order": [], **options})
    told = [row for row in call("runs", ".").splitlines() if "run-" in row]
    shown = [row.split("finished")[0].split(maxsplit=1)[1].strip() for row in told]
    assert shown == [
        "increment=2",
        "stream=repetition, increment=2, tasks=8",
        "stream=domains",
        'stream=domains, domain_order=["b", "a"]',
    ]


def test_a_list_of_runs_leaves_out_what_nobody_has_set(write_run, tmp_path):
    """Beside runs that changed an option stand others with its default, of which it says nothing."""
    stream = {"benchmark.name": "digits", "benchmark.shots": None, "benchmark.imbalance": 1.0}
    for options in ({}, {"benchmark.shots": 5}, {"benchmark.imbalance": 10.0}):
        write_run(70.0, **(stream | options))
    told = [row for row in call("runs", ".").splitlines() if "run-" in row]
    shown = [row.split("finished")[0].split()[1:] for row in told]
    assert shown == [[], ["shots=5"], ["imbalance=10.0"]]


def test_a_list_of_runs_breaks_no_name_in_a_narrow_terminal(write_run, tmp_path, monkeypatch):
    """Where the table is wider than the terminal, the settings of a run stand in a line below its name."""
    write_run(70.0, **LW2G)
    write_run(71.0, **{"baseline.epochs": 7, "run.seed": 1})
    monkeypatch.setenv("COLUMNS", "70")
    wide = call("runs", ".").splitlines()
    assert wide[1].split() == ["run", "baseline", "policy", "seed", "state", "task", "FAA"]
    monkeypatch.setenv("COLUMNS", "64")
    narrow = [line.strip() for line in call("runs", ".").splitlines()]
    assert narrow[1].split() == ["state", "task", "FAA", "run"]
    assert narrow[3].split() == ["finished", "2/2", "70.00", "run-0"]
    assert narrow[4] == "dual-prompt, policy min, seed 0"
    assert " ".join(narrow[6:8]) == "dual-prompt[epochs=7], policy always, seed 1"


def test_folders_without_permission_are_named(write_run, tmp_path, monkeypatch):
    """Whether a folder cannot be listed or what is in it cannot be opened; the others are listed."""
    open_one, closed_one = write_run(80.0), write_run(81.0)
    (tmp_path / "locked").mkdir()
    scan, read = os.scandir, found_runs.read_run

    def refuse(path, act):
        is_closed = act is read and Path(path) == closed_one.path
        if is_closed or Path(path).name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return act(path)

    # root, as whom tests may run, is refused nothing
    monkeypatch.setattr(os, "scandir", lambda path=".": refuse(path, scan))
    monkeypatch.setattr(found_runs, "read_run", lambda path: refuse(path, read))
    done = CliRunner().invoke(main, ["runs", str(tmp_path), "--json"])
    assert [Path(one["path"]) for one in json.loads(done.stdout)] == [open_one.path]
    assert "no permission to read 2 folders, first " in done.stderr


def _flip(path: Path) -> None:
    content = (path / "record.json").read_bytes()
    (path / "record.json").write_bytes(content.replace(b'"faa": 58', b'"faa": 48'))


def _reseal(**changes: Any) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        record = unseal_json(path / "record.json") | changes
        missing = {key for key, value in changes.items() if value is None}
        kept = {key: value for key, value in record.items() if key not in missing}
        (path / "record.json").write_bytes(seal_json(kept))

    return act


_MOTION = {"task": 0, "new": 1.0, "old": 1.0, "times": None, "held": [9], "carried": 1, "alarming": False}


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_flip, "does not match its checksum"),
        (_reseal(metrics={"faa": "58.33"}), "expected a number but got '58.33' at metrics.faa"),
        (_reseal(metrics=None), "no value at metrics"),
        (_reseal(config=json.loads('{"a":' * 200 + "3" + "}" * 200)), "nested too deeply"),
        (_reseal(accuracy_matrix=[[1.0]]), "expected 1 task,"),
        (_reseal(task_classes=[[0], [9]]), "class 9 is none of the 2 of class_names"),
        (_reseal(task_classes=[[0], [-1]]), "class -1 is none of the 2 of class_names"),
        (_reseal(findings={"motions": [_MOTION]}), "class 9 is none of the 2 of class_names"),
    ],
)
def test_damaged_records_are_refused_or_listed(write_run, tmp_path, damage, told):
    """No row is printed of a damaged record, one line names the file, and the others are tabulated."""
    run, whole = write_run(58.0), write_run(60.0)
    damage(run.path)
    for arguments, code, how, kept in (
        (("report", tmp_path), 1, "warning: left out", "| dual-prompt x always | 1 | 60.00 |"),
        (("report", run.path), 2, "error", ""),
        (("show", run.path, "--all"), 2, "error", ""),
        (("runs", tmp_path), 1, "error", "60.00"),
    ):
        done = CliRunner().invoke(main, [str(one) for one in arguments])
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"{how}: {str(run.path / 'record.json')!r} ")
        assert told in line
        assert line.endswith(f"lw2g resume {run.path}")
        assert done.exit_code == code
        assert kept in done.stdout if kept else done.stdout == ""
        assert "58.00" not in done.stdout
    listed = json.loads(CliRunner().invoke(main, ["runs", str(tmp_path), "--json"]).stdout)
    states = {Path(one["path"]): one["state"] for one in listed}
    assert states == {run.path: "damaged", whole.path: "finished"}


def _edited(path: Path) -> None:
    """Make an answer another class, in columns that can be read."""
    columns = load_file(path)
    columns["predicted"][0] = 3
    save_file(columns, path)


def _bit(path: Path) -> None:
    """Flip a bit of the last answer, which then is no class."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 64
    path.write_bytes(content)


def _listing_an_earlier_one(run: ReportedRun) -> Path:
    """Give a run predictions after an earlier task, too, which its record lists; return their file."""
    name = "predictions/task-001.safetensors"
    shutil.copy(run.path / "predictions/task-002.safetensors", run.path / name)
    files = run.record["files"] | {name: run.record["files"]["predictions/task-002.safetensors"]}
    (run.path / "record.json").write_bytes(
        seal_json({**unseal_json(run.path / "record.json"), "files": files})
    )
    return run.path / name


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize(
    ("damage", "wrong"),
    [
        (_edited, "does not match its checksum: it is damaged or was edited"),
        (_bit, "does not match its checksum: it is damaged or was edited"),
        (lambda path: path.write_bytes(path.read_bytes()[:300]), "does not match its checksum"),
        (Path.unlink, "is missing"),
    ],
)
def test_predictions_that_a_record_does_not_list_are_named(write_full_run, tmp_path, damage, wrong, is_last):
    """Reports leave the run out, as what they tell rests on answers; its record is shown without these."""
    damaged, _ = write_full_run("one run"), write_full_run("whole")
    earlier = _listing_an_earlier_one(damaged)
    file = earlier.with_name("task-002.safetensors") if is_last else earlier
    damage(file)
    out = str(tmp_path / "page.html")
    asked = [
        (["report", str(tmp_path)], "warning: left out: ", 1, "| 1 | 66.67 |"),
        (["show", str(damaged.path)], "warning: ", 0, "final accuracy 66.7 %"),
        (["show", str(damaged.path), "--all"], "warning: ", 0, "66.67"),
    ]
    if find_spec("vl_convert") is not None:  # of the extra `report`
        asked.append((["report", str(tmp_path), "--html", out], "warning: left out: ", 1, "page.html"))
    for words, how, code, kept in asked:
        done = CliRunner().invoke(main, words)
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"{how}predictions/{file.name} of the run {str(damaged.path)!r} {wrong}")
        assert line.endswith(f"make it anew: lw2g resume '{damaged.path}'")
        assert (done.exit_code, kept in done.stdout) == (code, True)
    assert "interval" not in CliRunner().invoke(main, ["show", str(damaged.path)]).stdout


def test_every_format_tells_what_was_left_out(write_full_run, tmp_path):
    """Who is given the file has not seen the warning; a copy without predictions counts, and is told."""
    damaged, copied, _ = (write_full_run(name) for name in ("edited", "without", "whole"))
    _edited(damaged.path / "predictions/task-002.safetensors")
    shutil.rmtree(copied.path / "predictions")
    told = f"left out: predictions/task-002.safetensors of the run {str(damaged.path)!r} does not match"
    why = "only the record tells, without an interval over test images"
    counted = f"predictions of {str(copied.path)!r} are missing: {why}"
    texts = {}
    for form in ("md", "latex", "csv", "json"):
        done = CliRunner().invoke(main, ["report", str(tmp_path), "--format", form])
        texts[form] = done.stdout
        assert done.exit_code == 1
        assert f"note: {counted}" in done.stderr
    unescaped = texts["md"].replace("\\", "")
    assert unescaped.startswith(told)
    assert texts["latex"].startswith(f"% {told}")
    assert f"\n% {counted}\n" in texts["latex"]
    assert f"\n{counted}\n" in unescaped
    lines = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert all(line["left_out"].startswith(told) for line in lines)
    assert all(line["left_out"].endswith(f"; {counted}") for line in lines)
    line, other = json.loads(texts["json"])["left_out"]
    assert (line.startswith(told), other) == (True, counted)
    if find_spec("vl_convert") is not None:  # of the extra `report`
        assert (
            html.escape(told, quote=True).replace("&#x27;", "&#39;") in reporting.report(tmp_path).to_html()
        )


def test_predictions_are_hashed_once(write_full_run, tmp_path, monkeypatch):
    """They are most of what a report reads of a large run."""
    runs = [write_full_run(name, {"seed": seed}) for seed, name in enumerate(("one", "other"))]
    hashed = []
    monkeypatch.setattr(right_answers, "sha256_of", lambda path: hashed.append(path) or sha256_of(path))
    assert "2, alike" in str(reporting.report(tmp_path))
    assert sorted(hashed) == sorted(run.path / "predictions/task-002.safetensors" for run in runs)


@pytest.mark.parametrize(
    ("other", "most", "where"),
    [(14, "", "all rows"), (9, "up to ", "all rows"), (0, "", "row dual-prompt x always")],
)
def test_test_images_that_were_trained_on_come_first(write_run, other, most, where):
    """In every form, in one remark, with the rows where others have none: they flatter."""
    for count, changes in ((14, {}), (other, {"run.seed": 1, "policy.name": "min"})):
        leak = {"record.shared_images": {"count": count, "tested": 64, "named": []}}
        write_run(58.0, **leak, **changes)
    are = "test images are training images, too, so accuracy is not that of unseen images alone"
    words = f"{most}14 of 64 {are}"
    remarks = [line for line in call("report", ".").splitlines() if line.startswith("- ")]
    assert remarks[0] == f"- {words} ({where})"
    (facts,) = json.loads(call("report", ".", "--format", "json"))["tables"]
    assert facts["notes"][0] == f"{words} ({where})"


def test_a_run_that_lost_its_configuration_is_not_passed_over(write_run, tmp_path):
    """Its record says that there was a run."""
    run = write_run(58.0)
    (run.path / "config.toml").unlink()
    for command, code in (("report", 2), ("runs", 1)):
        done = CliRunner().invoke(main, [command, str(tmp_path)])
        assert (done.exit_code, "has lost its config.toml; put it back" in done.stderr) == (code, True)


def test_markdown_has_means_differences_and_remarks(folder):
    """Means with deviations, the paper's values, differences with intervals, and what does not count."""
    printed = call("report", folder, "--columns", "faa,pra,caa", "--against", "always", "--all")
    lines = printed.splitlines()
    assert lines[0] == "### CIFAR-100, 2 classes, 10 a task"
    shared = "backbone sup21k vit cccccccc, protocol official, data bbbbbbbb"
    assert lines[2] == f"{shared}; seeds 0 and 1 of one class order"
    assert "| row | n | FAA | paper FAA | minus paper | PRA | paper PRA | minus paper | CAA |" in lines
    assert (
        "| dual-prompt x always | 2 | 80.50 ± 0.71 | 85.94 ± 0.1 | -5.44 | - | 59.44 ± 0.3 | - | - |" in lines
    )
    assert "| dual-prompt x min | 2 | +3.00 | - | - |" in lines
    assert any(line.startswith("- FAA: final average accuracy") for line in lines)
    assert any("interrupted after task 2 of 3; lw2g resume " in line for line in lines)


def test_five_remarks_stand_below_a_table_and_the_others_are_counted(folder, write_run):
    """What does not compare is first; marks have one; the last says how many there are beside."""
    write_run(70.0, **{"baseline.name": "simple-cil", "baseline.epochs": 9})
    write_run(70.0, **{"baseline.head": "lda", "run.precision": "32-true", "record.metrics.ssp": 2})
    write_run(71.0, **{"baseline.head": "lda", "run.precision": "32-true"})
    arguments = ("report", folder, "--columns", "faa,pra,ssp", "--against", "x min")
    below, _, definitions = call(*arguments).rpartition("|\n\n")[2].partition("\n\ncolumns:\n\n")
    remarks = below.removeprefix("- ").split("\n- ")
    assert len(remarks) == 5
    assert remarks[0].startswith("constraints differ, not the policy alone: ")
    assert remarks[1].startswith("rows have different seeds, and ")
    assert remarks[2].startswith("differences: mean [95 % interval, not corrected for 3 rows]; ")
    legend = remarks[3].split("\n  - ")
    assert legend[:2] == ["marks:", "n: seeds of one class order"]
    assert definitions.splitlines() == [
        "- FAA: test images right after the last task, in %, mean over tasks (elsewhere last accuracy, A_T)",
        "- PRA: test images that get a set of their task, in %",
        "- SSP: sets of parameters",
        "- over samples, as in PILOT: faa_samples",
    ]
    assert any(one.startswith("control: a bound") for one in legend)
    dropped, _, others = remarks[4].rpartition("; ")
    assert dropped.startswith("not counted: 1 further run of the same seed of dual-prompt[head=lda] x always")
    hidden = int(others.removesuffix(" more (--all)"))
    every = [line for line in call(*arguments, "--all").splitlines() if line.startswith("- ")]
    assert every[:2] == [f"- {one}" for one in remarks[:2]]
    assert "lw2g resume" in " ".join(every)
    assert any(line.startswith("- PRA: retrieval accuracy: mean over tasks") for line in every)
    assert hidden > 1
    assert len(every) > hidden + 4
    assert lw2g.report(folder, columns="faa").to_text().partition("\ncolumns:")[0].count("\n- ") <= 5


@pytest.mark.parametrize("form", ["md", "latex", "html"])
def test_columns_are_defined_once_whatever_the_number_of_tables(write_full_run, tmp_path, form):
    """Behind the last table, or at the end of the page; marks are a table's own."""
    if form == "html":
        pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    write_full_run("one")
    write_full_run("other", overrides={"benchmark.increment": 1})
    result = reporting.report(tmp_path)
    assert len(result.tables) == 2
    text = result.to_html() if form == "html" else result.to_text(form)
    assert text.count("FFM: f") == 1
    assert text.count("over test images") >= 2


def test_seeds_of_several_orders_are_said_to_be_averaged(write_run, tmp_path):
    """The interval draws orders and images: as "2 orders x 2 seeds" seeds, too, would seem to be drawn."""
    for at, (seed, order) in enumerate(product((0, 1), ([0, 1], [1, 0]))):
        draw = {"run.seed": seed, "record.class_order": order}
        write_run(70.0 + at, **draw, **LW2G)
        write_run(75.0 - at, **draw)
    told = call("report", str(tmp_path), "--against", "min")
    assert (
        "intervals of FAA over 2 class orders (2 seeds averaged) and test images (2 class orders tell" in told
    )
    assert "x 2 seeds and" not in told


def test_changes_of_the_protocol_that_all_runs_share_stand_behind_it(write_run, tmp_path):
    """As in `show --explain`, whatever order each run draws; what not all have alike is named apart."""
    for at in (0, 1):
        changes = [
            {"option": "benchmark.order_seed", "value": at, "protocol": 42},
            {"option": "benchmark.increment", "value": 5, "protocol": 10},
            {"option": "benchmark.train", "value": at, "protocol": None},
        ]
        write_run(70.0 + at, **{"run.seed": at, "record.protocol_changes": changes[: 2 + at]})
        write_run(75.0, **{"run.seed": at, "record.protocol_changes": changes}, **LW2G)
    changed = "changed: benchmark.order_seed, benchmark.increment; not alike in all runs: benchmark.train"
    head = f" ({changed}), data"
    assert f"protocol official{head}" in call("report", str(tmp_path))


@pytest.mark.parametrize("number", range(1, 9))
def test_no_table_has_more_than_five_remarks(write_run, tmp_path, number):
    """However many sentences there are on what does not compare."""
    for at in range(number):
        name = ("dual-prompt", "l2p", "coda-prompt", "hide-prompt")[at % 4]
        order = {"benchmark.order": "seeded", "benchmark.order_seed": at, "record.class_order": [1, 0]}
        write_run(70.0 + at, **{"baseline.name": name, "run.seed": at, **(order if at % 3 else {}), **LW2G})
        write_run(80.0 - at, **{"baseline.name": name, "run.seed": at, "record.record_hash": "changed"})
    for arguments in ((), ("--against", "dual-prompt x min")):
        assert call("report", str(tmp_path), *arguments).partition("\ncolumns:")[0].count("\n- ") <= 5


def test_a_report_ends_with_how_to_see_differences(write_run, tmp_path):
    """Where two rows have a pair: none is printed unless asked for; the floor is named if there is one."""
    told = "\n\ndifferences with intervals: --against "
    write_run(80.0)
    assert told not in call("report", str(tmp_path))
    write_run(90.0, **LW2G, **{"run.seed": 7})
    write_run(90.0, **LW2G, **{"record.tasks": 3})
    assert told not in call("report", str(tmp_path))  # no pair of equal seed that is finished
    write_run(90.0, **LW2G)
    assert call("report", str(tmp_path)).endswith(f"{told}'dual-prompt x always'\n")
    write_run(60.0, **{"baseline.name": "simple-cil"})
    for more in ((), ("--all",), ("--format", "md")):
        assert call("report", str(tmp_path), *more).endswith(f"{told}'simple-cil, retrieval key-cosine'\n")
    for more in (("--against", "simple"), ("--format", "latex"), ("--format", "csv")):
        assert told not in call("report", str(tmp_path), *more)


@pytest.mark.parametrize("mix", [["protocol"], ["splits", "protocol"], "protocol"])
def test_python_refuses_what_no_table_may_mix(folder, mix):
    """As the command line does; else the tables would come unmixed without a word."""
    told = "mix: 'protocol' is not one of 'checkpoints', 'splits', 'protocols' (did you mean 'protocols'?)"
    with pytest.raises(lw2g.ConfigError, match=re.escape(told)):
        lw2g.report(folder, mix=mix)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda folder: lw2g.report(folder, columns=3), "columns: expected names but got 3; give a text"),
        (lambda folder: lw2g.report(folder, mix=[3]), r"mix: expected names but got \[3\]; give a text"),
        (lambda folder: lw2g.report(folder).to_text(["md"]), r"no such form \['md'\]; choose one of md"),
        (lambda folder: lw2g.report(folder).save(folder), "is a folder; name a file in it"),
        (lambda folder: lw2g.runs(folder).where(3), "where: expected KEY=VALUE but got 3"),
    ],
)
def test_python_refuses_what_is_no_name(folder, call, told):
    """An argument of another type ends in a line of lw2g, and in none of Python's."""
    with pytest.raises(lw2g.ConfigError, match=told):
        call(folder)


def test_a_difference_says_over_what_it_is(folder, write_run, tmp_path):
    """Seeds are no class orders, two of them tell little, and a row without a pair says what it has."""
    lines = call("report", folder, "--against", "always").splitlines()
    (told,) = [line for line in lines if "mean [" in line]
    assert "of FAA over 2 seeds of one class order and test images (2 seeds tell little of other" in told
    order = {"benchmark.order": "seeded", "benchmark.order_seed": 7, "record.class_order": [1, 0]}
    write_run(70.0, **order, **LW2G | {"policy.name": "one"})
    told = call("report", folder, "--against", "always")
    why = "x always has seeds 0 and 1, order natural; dual-prompt x one has seed 0, order seeded 7"
    assert (
        f"- differences: none without a pair of equal seed and class order: dual-prompt {why}; mean [" in told
    )
    assert "means over different class orders do not compare" in told
    every = call("report", folder, "--against", "always", "--all").splitlines()
    begun = [line.split()[2:5] for line in every if line.startswith("- differences: ")]
    assert begun[:2] == [["none", "without", "a"], ["mean", "[95", "%"]]
    assert begun[2:] == [["intervals", "of", "FAA"], ["intervals", "of", "other"]]
    alone = call("report", str(tmp_path / "run-0"), str(tmp_path / "run-5"), "--against", "always")
    assert "a pair of equal" in alone
    assert "Holm" not in alone
    unfinished = call("report", str(tmp_path / "run-4"))
    assert "no run is finished yet" in unfinished
    begun = lw2g.report(tmp_path / "run-4")
    assert repr(begun) == "<report of 0 finished runs; 1 unfinished>"
    assert "`lw2g.report(RUNS).save('page.html')` shows how far each has come" in str(begun)
    assert "note: --against 'x' is compared with nothing: no run is finished" in call(
        "report", str(tmp_path / "run-4"), "--against", "x"
    )


def test_a_table_without_the_row_has_no_differences(folder, write_run):
    """Below one folder lie runs of several benchmarks: the row need not be in each of their tables."""
    write_run(50.0, **{"benchmark.name": "digits", "baseline.name": "ranpac"})
    write_run(40.0, **{"benchmark.name": "digits", "baseline.name": "simple-cil"})
    for form in ("md", "latex", "csv", "json"):
        call("report", folder, "--columns", "faa", "--against", "dual-prompt x always", "--format", form)
    printed = call("report", folder, "--columns", "faa", "--against", "dual-prompt x always")
    assert printed.count("| minus dual-prompt x always |") == 1
    assert printed.count("- differences: mean") == 1
    assert "- differences: none, as no row here is called 'dual-prompt x always'\n" in printed
    refused = call("report", folder, "--against", "l2p", code=2)
    assert refused.startswith("error: --against: 'l2p' is no row of 2 tables; rows are: ")
    for label in ("dual-prompt x always", "dual-prompt x min", "ranpac", "simple-cil"):
        assert refused.count(label) == 1


def test_nothing_of_a_run_commands_the_terminal(write_run, tmp_path):
    """Escape sequences in a run's own words are printed as letters."""
    write_run(1.0, **{"policy.name": "x\x1b[2J"})
    for command in ("report", "runs"):
        printed = call(command, str(tmp_path))
        assert "\x1b" not in printed
        assert "x\\x1b[2J" in printed


def test_no_p_value_is_zero_and_equal_answers_are_the_same():
    """Where draws tell no smaller one it is below 0.001; what no drawn image changes has no interval."""
    shown = [
        str(cells._difference(Difference(mean=mean, low=mean, high=2 * mean, n=3, p=p), FAA))
        for mean, p in ((1.0, 0.0004), (1.0, 0.0216), (0.0, 1.0))
    ]
    assert shown == ["+1.00 [+1.00, +2.00], p<0.001", "+1.00 [+1.00, +2.00], p=0.022", "the same"]


def test_plain_names_of_a_store_stay_as_they_are_typed():
    """Stored rows beside own ones look alike; what Markdown would read is escaped."""
    labels = (
        "my-method[epochs=1], stored",
        "knn-proto[epochs=2, lr=0.1]",
        "a[b](c)",
        "a[b][c]",
        "see www.d.e",
        "<b>",
        "[x] ;",
    )
    rows = [SimpleNamespace(label=label, runs=[SimpleNamespace(given=1)]) for label in labels]
    table = SimpleNamespace(rows=rows, givers=[])
    shown = [render._with_literal_names(label, table) for label in labels]
    escaped = [r"a\[b\](c)", r"a\[b\]\[c\]", r"see www\.d.e", r"\<b\>", r"\[x\] ;"]
    assert shown == [*labels[:2], *escaped]


def test_constants_have_no_spread_and_zeros_no_sign(write_run, tmp_path):
    """Thousands are set apart; a deviation that prints as zero is left out; nothing is minus zero."""
    storage = {"record.storage.parameters": 4200001, "record.storage.basis_vectors": 0}
    for seed in (0, 1):
        write_run(80.0, **{"run.seed": seed, "record.metrics.bwt": -0.001, **storage})
        changes = {"run.seed": seed, "record.metrics.bwt": -0.004 - 0.01 * seed, **storage}
        write_run(80.001, **changes, **LW2G)
    columns = ("--columns", "faa,bwt,parameters,basis_vectors")
    lines = call("report", str(tmp_path), *columns, "--against", "always").splitlines()
    (always, least) = [line for line in lines if line.startswith("| dual-prompt x ")][:2]
    assert always.startswith("| dual-prompt x always | 2 | 80.00 | 85.94 ± 0.1 | -5.94 | 0.00 |")
    assert always.endswith("| 4,200,001 | 0 |")
    assert " | -0.01 ± 0.01 | " in least
    # two pairs have no interval
    assert "| dual-prompt x min | 2 | +0.00 | -0.01 | the same | the same |" in lines
    for every in ([], ["--all"]):
        assert "left out where it rounds to 0" in call("report", str(tmp_path), *columns, *every)
    latex = call("report", str(tmp_path), *columns, "--format", "latex")
    assert "4{,}200{,}001" in latex
    entries = json.loads(call("report", str(tmp_path), *columns, "--format", "json"))["entries"]
    kept = [one["mean"] for one in entries if one["metric"] == "parameters"]
    assert kept == [4200001.0, 4200001.0]


_NOT_TESTED = "not tested which row is ahead in FAA: "


@pytest.mark.parametrize(
    ("seeds", "control", "p", "told"),
    [
        (5, 0.0, 0.01, "bold: ahead of each other row in FAA beyond chance (paired interval, over "),
        (5, 0.0, 0.03, "in FAA no row is ahead of all others beyond chance: the best is not ahead of "),
        (5, 0.0, None, f"{_NOT_TESTED}the best has no predictions of common test images with 2 rows"),
        (4, 0.0, None, f"{_NOT_TESTED}that takes five class orders or seeds"),
        (5, 30.0, 0.01, "no FAA is bold: the best row is a control"),
    ],
    ids=["ahead", "p of two rows", "no predictions", "few", "a control is ahead"],
)
def test_bold_is_the_final_accuracy_ahead_of_each_other_row_beyond_chance(
    write_run, tmp_path, monkeypatch, seeds, control, p, told
):
    """In text and LaTeX; a control, however good, has no bold number, and no column without test images."""
    paired = Row.difference

    def with_p(self, other, column):
        return attrs.evolve(paired(self, other, column), p=p if column.name == "faa" else None)

    monkeypatch.setattr(Row, "difference", with_p)
    for seed in range(seeds):
        for policy, value in (("always", 60.0 + seed), ("min", 70.0 + 2 * seed)):
            write_run(value, **{"policy.name": policy, "record.metrics.caa": value + 1, "run.seed": seed})
        of_control = 60.0 + control + 3 * seed
        named = {"baseline.name": "joint", "record.metrics.caa": of_control, "run.seed": seed}
        write_run(of_control, **named)
    asked = ["report", str(tmp_path), "--columns", "faa,caa"]
    text, latex = call(*asked), call(*asked, "--format", "latex")
    is_ahead = told.startswith("bold")
    assert re.findall(r"\*\*([\d.]+)\*\*", text) == ["74.00"] * is_ahead
    assert re.findall(r"\\mathbf{([\d.]+)}", latex) == ["74.00"] * is_ahead
    assert (f"- {told}" in text, f"; {told}" in latex) == (True, True)
    assert "ahead of" not in call("report", str(tmp_path), "--columns", "caa")


def test_no_number_is_bold_beside_one_that_is_printed_alike(write_run, tmp_path, monkeypatch):
    """However sure their difference is: a reader of the table would see none."""
    paired = Row.difference

    def with_p(self, other, column):
        return attrs.evolve(paired(self, other, column), p=0.01)

    monkeypatch.setattr(Row, "difference", with_p)
    for seed in range(5):
        write_run(70.0 + seed, **{"policy.name": "always", "run.seed": seed})
        write_run(70.001 + 1.0005 * seed, **{"policy.name": "min", "run.seed": seed})
    text = call("report", str(tmp_path), "--columns", "faa")
    assert ("**" in text, "the best is not ahead of" in text) == (False, True)


def test_a_column_without_a_difference_stands_where_it_was_named(write_run, tmp_path):
    """Where one row alone has a metric, its column of differences would hold dashes."""
    write_run(60.0, **{"policy.name": "always"})
    write_run(70.0, **{"policy.name": "min", "record.metrics.ffm": 2.0})
    for words, head in (((), "| pairs | FAA |"), (("--columns", "faa,ffm"), "| pairs | FAA | FFM |\n")):
        text = call("report", str(tmp_path), "--against", "always", *words)
        (line,) = [line for line in text.splitlines(keepends=True) if line.startswith("| minus ")]
        assert head in line
        assert ("FFM" in line) is bool(words)


@pytest.mark.parametrize("errors_apart", [False, True])
def test_a_terminal_shows_once_what_was_left_out(write_full_run, tmp_path, monkeypatch, errors_apart):
    """Where stderr goes to a file, it is said there, too."""
    damaged, _ = write_full_run("edited"), write_full_run("whole")
    _edited(damaged.path / "predictions/task-002.safetensors")
    streams = {"stdout": True, "stderr": not errors_apart}
    of_terminal = {name: SimpleNamespace(isatty=lambda shown=shown: shown) for name, shown in streams.items()}
    monkeypatch.setattr("lw2g_page.report_command.sys", SimpleNamespace(**of_terminal))
    done = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert done.exit_code == 1
    assert done.stdout.startswith("left out: predictions/task-002")
    assert ("left out" in done.stderr) is errors_apart


def test_every_format_has_the_interval_of_final_accuracy(write_full_run, tmp_path):
    """With the number of test images; rows that answer alike are the same in every order."""
    for name in ("min", "always"):
        write_full_run(name, policy=name)
    asked = ("report", str(tmp_path), "--columns", "faa", "--against", "always")
    text = call(*asked)
    assert "; seed 42, one class order; 12 test images\n" in text
    assert "| hide-prompt x min | 1 | 66.67 | 39.1 to 86.2 |" in text
    latex = call(*asked, "--format", "latex")
    assert "hide-prompt x min & 1 & $66.67$ & 39.1 to 86.2 " in latex
    assert ", 12 test images: one run per row" in latex
    lines = list(csv.DictReader(io.StringIO(call(*asked, "--format", "csv"))))
    entries = json.loads(call(*asked, "--format", "json"))["entries"]
    for of_row in (lines, entries):
        shown = [
            (round(float(one["low"]), 1), round(float(one["high"]), 1), int(one["images"])) for one in of_row
        ]
        assert shown == [(39.1, 86.2, 12)] * 2
        assert [one["difference_same"] or None for one in of_row] in (
            [None, "the same in every order"],
            ["the same in every order", None],
        )


def test_runs_name_a_policy_where_one_decides(write_run, tmp_path):
    """A method without sets has none, in the list and from Python; its configuration keeps its value."""
    write_run(80.0)
    write_run(70.0, **{"baseline.name": "ranpac"})
    listed = {
        line.split()[1].partition("[")[0]: line.split()[2]
        for line in call("runs", ".").splitlines()
        if "run-" in line
    }
    assert listed == {"dual-prompt": "always", "ranpac": "-"}
    assert {row["baseline"]: row["policy"] for row in lw2g.runs(tmp_path).rows()} == {
        "dual-prompt": "always",
        "ranpac": None,
    }
    (chosen,) = lw2g.runs(tmp_path).where(baseline="ranpac")
    assert chosen.options["baseline.name"] == "ranpac"


def test_rows_of_runs_have_the_options_that_tell_them_apart(write_run, tmp_path):
    """With their values, as a table of pandas counts them; an option that none changes is left out."""
    for seed, epochs in enumerate((7, 12)):
        write_run(80.0, **{"baseline.epochs": epochs, "run.seed": seed})
    rows = lw2g.runs(tmp_path).rows()
    assert [{key: row[key] for key in row if "." in key} for row in rows] == [
        {"baseline.epochs": 7},
        {"baseline.epochs": 12},
    ]


def test_a_list_of_runs_tells_class_orders_apart(write_run, tmp_path):
    """The options that chose them stand with each run, before others, and sort the runs of one row."""
    more = {"baseline.epochs": 7, "benchmark.increment": 5, "growth.energy": 0.9, "run.precision": "32-true"}
    for order, seed, other in ((2, 10, {}), (1, 2, {}), (2, 2, {}), (1, 10, {}), (1, 1, more)):
        seeds = {"benchmark.order_seed": order, "run.seed": seed}
        write_run(80.0, **{"benchmark.order": "seeded", **seeds, **other})
    lines = call("runs", ".").splitlines()
    told = [re.search(r" order_seed=(\d)\b.* (\d+) +finished", line) for line in lines if "run-" in line]
    assert [found.groups() for found in told] == [
        ("1", "2"),
        ("1", "10"),
        ("2", "2"),
        ("2", "10"),
        ("1", "1"),
    ]


def test_a_list_of_runs_shows_the_options_that_tell_most_apart(write_run, tmp_path):
    """Three of many stand in a line; one that few runs change does not hide one that has a value of each."""
    rare = {"baseline.epochs": 7, "benchmark.increment": 5, "growth.energy": 0.5}
    for number in range(4):
        write_run(80.0, **{"run.max_batches": number + 1, **(rare if number == 0 else {})})
    lines = [line for line in call("runs", ".").splitlines() if "run-" in line]
    assert len({re.search(r"max_batches=([\d.]+)", line)[1] for line in lines}) == 4


def test_a_named_column_stays_without_a_value(write_run, tmp_path, monkeypatch):
    """Of a metric it says why there is none; the sign of a deviation is explained where one stands."""
    own = Metric(name="my-metric", summary="mine: long", needs=(), compute=float)
    plugin = SimpleNamespace(lw2g_metrics=hookimpl(lambda: [own]))
    with_own = tiny_catalogue(plugin)
    monkeypatch.setattr(reporting, "load_catalogue", lambda: with_own)
    for seed in (0, 1):
        write_run(80.0 + seed, **{"run.seed": seed})
    told = "- my-metric: runs begun before it was installed do not have it\n"
    for more in ((), ("--all",)):
        both = call("report", str(tmp_path), "--columns", "faa,my-metric,ari", *more)
        assert "| FAA | paper FAA | minus paper | my-metric | ARI |" in both
        assert "| - | - |\n" in both
        alone = call("report", str(tmp_path), "--columns", "my-metric", *more)
        assert (both.count(told), alone.count(told)) == (1, 1)
        assert ("one sample standard dev" in both, "one sample standard dev" in alone) == (True, False)
        for columns in ((), ("--columns", "all")):
            assert "my-metric" not in call("report", str(tmp_path), *columns, *more)
    write_run(82.0, **{"record.metrics.my-metric": 7.0}, **LW2G)
    partly = call("report", str(tmp_path), "--columns", "my-metric")
    assert (told in partly, "| 1 | 7.00 |" in partly) == (True, True)


def test_latex_is_for_booktabs(folder):
    """A captioned table each; numbers in math with a true minus."""
    printed = call("report", folder, "--format", "latex", "--columns", "faa", "--against", "min")
    assert f"; {_NOT_TESTED}that takes five class orders or seeds.}}" in printed
    assert printed.count("\\toprule") == printed.count("\\bottomrule") == printed.count("\\caption{") == 2
    assert "dual-prompt x always & 2 & $80.50 \\pm 0.71$ & $85.94 \\pm 0.1$ & $-5.44$ \\\\" in printed
    assert "dual-prompt x min & 2 & $83.50 \\pm 2.12$ & $86.86 \\pm 0.3$ & $-3.36$ \\\\" in printed
    assert "dual-prompt x always & 2 & $-3.00$ \\\\" in printed


@pytest.mark.parametrize(
    ("orders", "seeds", "told"),
    [
        (1, 2, "mean $\\pm$ one sample standard deviation over the seeds of one class order;"),
        (2, 1, "mean $\\pm$ one sample standard deviation over class orders;"),
        (2, 2, "mean $\\pm$ one sample standard deviation over class orders, each the mean of its seeds;"),
        (1, 1, "one run per row;"),
    ],
)
def test_a_caption_says_over_what_deviations_are(write_run, tmp_path, orders, seeds, told):
    """Seeds of an order are one draw, and a run alone has no deviation."""
    for order, seed, policy in product(range(orders), range(seeds), ("always", "min")):
        drawn = {"run.seed": seed, "benchmark.order_seed": order, "record.class_order": [order, 1 - order]}
        write_run(80.0 + order + seed, **drawn, **{"policy.name": policy})
    assert told in call("report", str(tmp_path), "--format", "latex", "--columns", "faa")


def test_csv_and_json_say_the_same(folder):
    """One entry per row and metric, with mean, deviation, n, the paper's value and the difference."""
    lines = list(
        csv.DictReader(io.StringIO(call("report", folder, "--format", "csv", "--against", "always")))
    )
    content = json.loads(call("report", folder, "--format", "json", "--against", "always"))
    assert len(lines) == len(content["entries"]) == 2 * len(COLUMNS)
    before_papers = ["mean", "std", "n", "low", "high", "images", "runs", "difference_mean"]
    assert list(lines[0])[:3] == ["table", "row", "baseline"]
    assert list(lines[0])[6:14] == before_papers
    assert {one["baseline"] for one in lines} == {"dual-prompt"}
    timed = [one for one in content["entries"] if one["metric"] in ("total_s", "evidence_s", "images_per_s")]
    assert {one["difference_mean"] for one in timed} == {None}
    (mine,) = [one for one in lines if (one["row"], one["metric"]) == ("dual-prompt x min", "faa")]
    assert (mine["mean"], mine["n"], mine["paper"], mine["difference_mean"]) == ("83.5", "2", "86.86", "3.0")
    assert float(mine["minus_paper"]) == pytest.approx(83.5 - 86.86)
    against = {(entry["row"], entry["against"]) for entry in content["entries"]}
    assert against == {("dual-prompt x always", None), ("dual-prompt x min", "dual-prompt x always")}
    assert any(
        note.startswith("differences: intervals of FAA over") for note in content["tables"][0]["notes"]
    )
    assert content["definitions"]["pra"].startswith("retrieval accuracy")
    assert len(content["tables"][0]["unfinished"]) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--columns", "fa"], "--columns: no column is called 'fa' (did you mean 'faa'?); there are faa, "),
        (
            ["--columns", "trainin_s"],
            "--columns: no column is called 'trainin_s' (did you mean 'training_s'?)",
        ),
        (["--columns", "FAA,foo"], f"--columns: no column is called 'foo'; there are {', '.join(COLUMNS)}"),
        (["--against", "dual"], "--against: 'dual' fits 2 rows"),
        (["--against", "l2p"], "--against: 'l2p' is no row"),
        (
            ["--against", "duall"],
            "--against: 'duall' is no row of CIFAR-100, 2 classes, 10 a task (did you mean ",
        ),
        (
            ["--against", "mni"],
            "--against: 'mni' is no row of CIFAR-100, 2 classes, 10 a task (did you mean 'dual-prompt x",
        ),
    ],
)
def test_mistakes_are_one_line(folder, arguments, says):
    """Unknown columns and rows are refused with what there is, in a line that can be read."""
    printed = call("report", folder, *arguments, code=2)
    assert len(printed) < (500 if "--columns" in arguments else 250)
    assert printed.startswith(f"error: {says}")
    assert printed.count("\n") == 1


def test_places_without_runs_are_refused(tmp_path):
    """A directory that is not there, and one that holds none."""
    assert "no run at or below" in call("report", str(tmp_path), code=2)
    assert "no folder" in call("runs", str(tmp_path / "none"), code=2)


def test_runs_are_listed_and_chosen_by_their_options(folder):
    """All runs below a directory; conditions on options, short or dotted, and on the state."""
    assert "5 runs" in call("runs", ".")
    listed = json.loads(call("runs", folder, "--json", "--where", "policy=min", "--where", "seed=1"))
    assert [(one["state"], one["metrics"]["faa"], one["options"]["run.seed"]) for one in listed] == [
        ("finished", 85.0, 1)
    ]
    assert "1 run\n" in call("runs", folder, "--where", "state=interrupted")
    none = call("runs", folder, "--where", "seed=1", "--where", "policy=mni")
    assert none == "no run with policy=mni; there are runs with always, min\n"
    assert "2 runs" in call("runs", folder, "--where", "constraints.cpk.phi=0.5")
    assert "no run has an option 'growth.energie' (did you mean" in call(
        "runs", folder, "--where", "growth.energie=1", code=2
    )
    assert "expected KEY=VALUE" in call("runs", folder, "--where", "seed", code=2)
    for text in ("policy==min", "policy == min"):
        assert call("runs", folder, "--where", text, code=2).endswith("; write policy=min\n")
    assert "no state is called 'done'; name finished, " in call(
        "runs", folder, "--where", "state=done", code=2
    )


@pytest.mark.parametrize("orders", [3, 5, 9, 10])
def test_intervals_over_few_orders_say_how_often_they_miss(orders):
    """Below five they tell little; from five to nine they are as narrow as the page of reports says."""
    draws = {(0, (at, 10)) for at in range(orders)}
    share = "an interval over five misses the true value in about one case of seven"
    assert (share in few_of_rows([draws])) == (5 <= orders < 10)
    assert ("tell little of others" in few_of_rows([draws])) == (orders < 5)
    assert (few_of_rows([draws]) == "") == (orders == 10)


@pytest.mark.parametrize(
    ("columns", "faa", "others"), [("faa", 1, 0), ("ffm", 0, 1), ("faa,ffm", 1, 1), ("faa,total_s", 1, 0)]
)
def test_intervals_are_explained_of_the_columns_that_stand_there(write_run, tmp_path, columns, faa, others):
    """What is said of other columns' intervals beside FAA alone is of nothing."""
    for at in range(3):
        draw = {"record.class_order": [at, 3], "record.metrics.ffm": 1.0 * at * at}
        write_run(70.0 + at, **draw, **LW2G)
        write_run(75.0, **{**draw, "record.metrics.ffm": 0.0})
    told = call("report", str(tmp_path), "--against", "min", "--columns", columns)
    assert told.count("intervals of FAA over") == faa
    assert told.count("intervals of other columns: ") == others
    assert told.count(": t over three or more class orders, none where all gaps are equal") == others


def test_a_run_that_does_not_count_is_told_however_many_remarks_there_are(write_run, installed):
    """It changes what n means, and who repeated a run looks for it."""
    runs = [write_run(80.0 + seed, **{"run.seed": seed}) for seed in (0, 1, 1)]
    (table,) = tables_of(runs, installed)
    dropped = f"not counted: 1 further run of the same seed of {table.rows[0].label}"
    for kinds in ("", "abcd", "abcdef"):
        crowded = attrs.evolve(table, unlike=tuple(f"{kind}: unlike" for kind in kinds))
        told = few_remarks_on(crowded, [FAA], None, "here")
        assert "".join(told).count(dropped) == 1
        assert len(told) <= 5
