"""``lw2g sweep``: what it prints, and the exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
from click.testing import CliRunner
from rich.console import Console

import lw2g
from lw2g.cli import sweep_command
from lw2g.cli.main import main
from lw2g.cli.sweep_command import fitting
from lw2g.disk.lock import Writer, locked, one_writer
from lw2g.disk.sealed import seal_json, unseal_json
from lw2g.errors import ConfigError, DataError
from lw2g.ground.notes import tell_note_once
from lw2g.lifecycle import estimate as estimating
from lw2g.registry.catalogue import load_catalogue
from lw2g.runtime.console import printable
from lw2g.sweeps.executors import load_executor
from lw2g.sweeps.executors.local import LocalExecutor
from lw2g.sweeps.grid import Cell
from lw2g.sweeps.job import Attempt, Job
from lw2g.sweeps.needs import Need, needs_of
from lw2g.sweeps.sweep_directory import SweepDirectory

GRID = """
[base]
benchmark = "digits"
baseline = "simple-cil"
policy = "always"
[axes]
seed = [0, 1]
"""


COST = estimating.Estimate(
    seconds=600, memory=2**30, device_memory=None, disk=2**20, tasks=5, images=(9, 4), device="cpu"
)


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A grid of two cells, whose processes fail at once; the default directory is below the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalExecutor, "pause", 0)
    monkeypatch.setattr(Attempt, "run", lambda self: _fail(self.job))
    monkeypatch.setattr(estimating, "estimate", lambda *_: COST)
    monkeypatch.setattr(estimating, "seconds_to_start", lambda: 0.0)
    Path("two.toml").write_text(GRID)
    return "two.toml"


def _fail(job: Job) -> int:
    with job.log.open("a") as log:
        log.write(f"\n$ lw2g {' '.join(job.arguments())}\nerror: no room\n")
    return 2


def call(*arguments: str, code: int = 0) -> str:
    """Run a command and return all that it prints."""
    done = CliRunner().invoke(main, ["sweep", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_a_dry_run_prints_cells_and_needs_alone(grid):
    """Cells with their directories, data and weights with whether they are here; nothing is written."""
    printed = call(grid, "--dry-run")
    shown = (
        "seed 0",
        "seed 1",
        "digits (embedded)",
        "micro (embedded)",
        "2 cells: 2 seeds of one class order",
    )
    assert all(text in printed for text in shown)
    with Path(grid).open("a") as file:  # a seed draws none, and has others as an axis beside it
        file.write('"benchmark.order_seed" = [1, 2, 3]\n')
    seeded = ("--set", "benchmark.order=seeded")
    assert "6 cells: 2 seeds of 3 class orders" in call(grid, "--dry-run", *seeded)
    assert [path.name for path in Path().iterdir()] == ["two.toml"]


def test_a_dry_run_says_what_the_cells_cost(grid, monkeypatch):
    """Each kind is measured once, whatever its seeds, and the start of a process once for all kinds."""
    measured, started = [], []
    monkeypatch.setattr(estimating, "seconds_to_start", lambda: started.append(6.0) or started[-1])
    monkeypatch.setattr(
        estimating, "estimate", lambda config, _: measured.append(config.baseline.name) or attrs.evolve(COST)
    )
    monkeypatch.setattr(sys.modules[__name__], "COST", attrs.evolve(COST, notes=("class_order leaves out",)))
    printed = call(grid, "--dry-run").splitlines()
    assert printed.count("note: class_order leaves out") == 1
    assert printed[-1] == (
        "one after the other on cpu: time 0:20:12 (6 s of each to start), memory 1 GiB for each, disk 2 MiB "
        "(1 kind of cells measured; accurate to about 50 %)"
    )
    Path("two.toml").write_text(GRID + 'baseline = ["simple-cil", "ranpac"]\n')
    printed = call(grid, "--dry-run", "--jobs", "3").splitlines()
    assert "time 0:40:24 (" in printed[-1]
    assert "; with 3 at a time at best 0:13:28 (2 kinds" in printed[-1]
    assert (measured, started) == (["simple-cil", "simple-cil", "ranpac"], [6.0, 6.0])
    costs = [entry["cost"] for entry in json.loads(call(grid, "--dry-run", "--json"))]
    assert [(cost["seconds"], cost["starting"]) for cost in costs] == [(606, 6)] * 4


@pytest.mark.parametrize(
    ("axis", "told"),
    [
        (
            '"benchmark.order_seed" = [1, 2, 3]',
            "cells differ in benchmark.order_seed alone, which draws nothing; for another class order: "
            "benchmark.order=seeded (in 4 cells: ",
        ),
        (
            'baseline = ["ranpac"]\n"baseline.adapt" = ["none"]\n"baseline.epochs" = [1, 2]',
            "cells differ in baseline.epochs alone, which is not read: adapt=none trains nothing (in 2 ",
        ),
    ],
)
def test_an_axis_that_nothing_reads_is_refused(grid, axis, told):
    """Before anything runs, in one line: its cells would be the same run again and again."""
    Path("idle.toml").write_text(GRID + axis)
    for arguments in (("--dry-run",), ()):
        printed = call("idle.toml", *arguments, code=2)
        assert printed.startswith(f"error: {told}")
        assert printed.count("\n") == 1
    assert not Path("runs").exists()


def test_notes_on_cells_are_told_once(grid):
    """However many cells they are of, by the dry run as by the sweep."""
    note = "note: benchmark.order_seed=9 draws nothing; for another class order: benchmark.order=seeded\n"
    setting = ("--set", "benchmark.order_seed=9")
    assert call(grid, "--dry-run", *setting).count(note) == 1
    tell_note_once.cache_clear()  # each command is a process of its own
    assert call(grid, *setting, code=1).count(note) == 1


def test_equal_cells_run_once_and_are_told(grid):
    """A row that stands twice is no second run."""
    Path("twice.toml").write_text(GRID + "[[rows]]\n[[rows]]\n")
    printed = call("twice.toml", "--dry-run")
    assert "note: 'twice.toml': 2 cells equal to others of the grid, run once\n" in printed
    assert "2 cells: " in printed


def test_several_problems_are_counted(grid):
    """As `lw2g run` tells them; a name that is none of a few is told with the nearest one."""
    Path("two.toml").write_text(GRID + 'baseline = ["simple-cil", "nobody"]\n"growth.energy" = [0.9, 2]\n')
    printed = call(grid, code=2)
    # cells with one of them and cells with both tell each once
    assert printed.startswith("error: 2 problems in the cells:\n  growth.energy: ")
    assert printed.count("no baseline is called 'nobody'") == 1
    assert printed.count("problems in") == 1
    assert "'slrum' is not one of 'local', 'ray', 'slurm' (did you mean 'slurm'?); see" in call(
        grid, "--executor", "slrum", code=2
    )


def test_a_dry_run_looks_for_packages(grid, monkeypatch):
    """Those of a tracker and of an executor are needs; a script sees by the exit code that one is missing."""
    monkeypatch.setattr("lw2g.interfaces.component.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "submitit", None)
    monkeypatch.delitem(sys.modules, "lw2g.sweeps.executors.slurm", raising=False)
    printed = call(grid, "--dry-run", "--executor", "slurm", "--set", 'trackers=["mlflow"]', code=2)
    assert "missing for 2 cells: executor slurm\n    pip install 'lw2g[slurm]' on every machine\n" in printed
    assert "missing for 2 cells: tracker mlflow\n    pip install 'lw2g[track]'\n" in printed
    assert printed.endswith("no estimate of 2 of them, for which something is not here\n")


def test_what_is_missing_is_told_with_its_remedy(grid, monkeypatch):
    """Data that are not here name the command that fetches them."""
    monkeypatch.delenv("LW2G_DATA", raising=False)
    printed = call(grid, "--dry-run", "--set", "benchmark=imagenet-r", "--set", "backbone=sup21k", code=2)
    assert (
        "missing for 2 cells: imagenet-r (2.19 GB)\n    lw2g data get imagenet-r, or set LW2G_DATA" in printed
    )
    assert "sup21k" in printed


def test_files_of_constraints_are_needs(tmp_path):
    """A path among a constraint's options is looked for, with the option that names another one."""
    settings = {"constraints": ["lgcl"], "constraints.lgcl.file": str(tmp_path / "vectors.npz")}
    cell = Cell(settings={"policy.name": "always"} | settings, label="")
    *_, file = needs_of(cell, load_catalogue())
    assert file == Need(
        what=str(tmp_path / "vectors.npz"), here=False, remedy="--set constraints.lgcl.file=FILE"
    )


def test_weights_that_are_not_here_are_a_need(grid):
    """A missing weights file does not hide the plan: it is listed with the option that names another."""
    printed = call(grid, "--dry-run", "--set", "weights=nowhere.safetensors", code=2)
    assert "missing for 2 cells: nowhere.safetensors\n    --set weights=FILE" in printed


def test_text_vectors_are_a_need():
    """Where a constraint reads a file and none is named, the plan says which option names it."""
    *_, file = needs_of(Cell(settings={"constraints": ["lgcl"]}, label=""), load_catalogue())
    assert (file.what, file.here) == ("a file for constraints.lgcl.file", False)
    assert file.remedy.endswith("--set constraints.lgcl.file=FILE")


def test_a_plan_is_had_as_json(grid):
    """Cells with settings and needs."""
    first, second = json.loads(call(grid, "--dry-run", "--json"))
    assert (first["label"], second["settings"]["run.seed"]) == ("seed 0", 1)
    embedded = {"what": "digits (embedded)", "here": True, "remedy": "", "fetched": False}
    assert first["needs"][0] == embedded
    assert "--json goes with --dry-run" in call(grid, "--json", code=2)


def test_stale_cells_are_set_aside_when_asked_to(grid, finished, monkeypatch):
    """What goes on notes them, status says what differs; retry --stale keeps the old run, runs them anew."""
    call("--out", "here", grid, code=1)
    cell = json.loads(call("status", "here", "--json"))[0]["name"]
    shutil.copytree(finished[0], f"here/{cell}")
    assert "baseline.name: 'dual-prompt' then, 'simple-cil' now" in call("status", "here").replace("\n", "")
    for *goes_on, code in (
        ("--out", "here", grid, "--dry-run", 0),
        ("retry", "here", 1),
        ("--out", "here", grid, 1),
    ):
        printed = call(*goes_on, code=code)
        assert printed.startswith("note: 1 finished cell would run otherwise now (baseline.")
        assert " more); `lw2g sweep retry here --stale` runs such cells again and keeps the old" in printed
    assert Path(f"here/{cell}").exists()
    printed = call("retry", "here", "--stale", code=1)
    assert "otherwise" not in printed
    assert f"note: seed 0: the old run is kept in here/.stale/{cell}-1" in printed
    assert CliRunner().invoke(main, ["runs", "here"]).output == "no run at or below 'here'\n"


def test_the_table_has_the_columns_of_the_grid(grid, finished):
    """`report DIR` shows those that [report] names, after `retry` too; --columns replaces them."""
    Path(grid).write_text(f"{GRID}[report]\ncolumns = ['ffm', 'faa']\n")
    call("--out", "here", grid, code=1)
    cell = json.loads(call("status", "here", "--json"))[0]["name"]
    shutil.copytree(finished[0], f"here/{cell}")
    shutil.copytree("here", Path("runs", Path(grid).stem))
    for place in (["--out", "here"], []):
        assert "1 finished, 1 to run" in call(*place, grid, "--dry-run")
    listed = Path("runs", Path(grid).stem, "sweep.json")
    listed.write_text('{"cells": [{"settings": {"no.such": 1}, "label": "x"}], "executor": {}}')
    assert "finished" not in call(grid, "--dry-run")
    call("retry", "here", code=1)
    for more, columns in (([], "FFM | FAA | 95 % interval"), (["--columns", "faa"], "FAA | 95 % interval")):
        printed = CliRunner().invoke(main, ["report", "here", *more]).output
        assert f"\n| row | n | {columns} |\n" in printed


def test_a_dry_run_of_a_sweep_measures_only_what_is_to_run(grid, finished, monkeypatch):
    """Finished cells cost nothing more; where all are finished, nothing is measured."""
    measured = []
    monkeypatch.setattr(estimating, "estimate", lambda config, _: measured.append(config.run.seed) or COST)
    call("--out", "here", grid, code=1)
    cells = [cell["name"] for cell in json.loads(call("status", "here", "--json"))]
    for number, cell in enumerate(cells, start=1):
        shutil.copytree(finished[0], f"here/{cell}")
        printed = call("--out", "here", grid, "--dry-run")
        assert f"\n{number} finished, {2 - number} to run\n" in printed
        assert ("time 0:10:00 (" in printed, "disk 1 MiB " in printed) == (number == 1, number == 1)
    assert measured == [1]
    costs = json.loads(call("--out", "here", grid, "--dry-run", "--json").partition("\n")[2])
    assert [(entry["finished"], entry["cost"]) for entry in costs] == [(True, None)] * 2


def test_code_that_changed_within_a_sweep_is_told_at_its_end(grid, finished):
    """Cells are processes, which import what is there when they start: a row may be of two methods."""
    call("--out", "here", grid, code=1)
    mine = {"kind": "policy", "name": "min", "plugin": "mine", "distribution": "my-dist", "version": "1.0"}
    told = (
        "cells have different code of a plugin: my-dist: 1 run learned by 1.0 aa, 1 by 1.0 bb; `lw2g sweep "
    )
    for codes, is_told in ((("1.0 aa", "1.0 aa"), False), (("1.0 aa", "1.0 bb"), True)):
        for cell, code in zip(json.loads(call("status", "here", "--json")), codes, strict=True):
            run = Path("here", cell["name"])
            shutil.copytree(finished[0], run, dirs_exist_ok=True)
            (run / "plugins.json").write_bytes(seal_json({"components": [mine], "code": {"my-dist": [code]}}))
        for again in (("--out", "here", grid), ("retry", "here")):
            assert (told in call(*again)) == is_told


def test_a_retry_of_a_finished_sweep_has_nothing_to_do(grid, finished):
    """It says so in place of a line for each cell."""
    call("--out", "here", grid, code=1)
    for cell in json.loads(call("status", "here", "--json")):
        shutil.copytree(finished[0], Path("here", cell["name"]))
    printed = call("retry", "here")
    assert "note: nothing to do: 2 cells, all finished\n2 cells: 2 finished; in here (table: " in printed
    assert "seed 0" not in printed


def test_a_misspelt_command_is_told_with_the_nearest_one(grid):
    """No grid is called so; a grid with a command's name in it is still run."""
    told = "error: no file and no command 'statu' (did you mean 'status'?); see "
    assert call("statu", "here", code=2).startswith(told)
    shutil.copy(grid, "statu")
    assert "seed 0" in call("statu", "--dry-run")
    assert "'status.toml' cannot be read" in call("status.toml", code=2)


def test_test_images_that_were_trained_on_are_told_once_at_its_end(grid, finished):
    """Cells say so in their logs alone."""
    call("--out", "here", grid, code=1)
    for cell in json.loads(call("status", "here", "--json")):
        run = Path("here", cell["name"])
        shutil.copytree(finished[0], run)
        leak = {"count": 3, "tested": 9, "named": []}
        record = unseal_json(run / "record.json") | {"shared_images": leak}
        (run / "record.json").write_bytes(seal_json(record))
    assert call("retry", "here").count("note: 3 of 9 test images are training images, too, ") == 1


def test_a_damaged_cell_is_moved_aside_and_begun_anew(grid, finished):
    """Retry keeps the run whose record cannot be read, out of sight; the cell starts from nothing."""
    call("--out", "here", grid, code=1)
    cell = json.loads(call("status", "here", "--json"))[0]["name"]
    shutil.copytree(finished[0], f"here/{cell}")
    Path(f"here/{cell}/record.json").write_text("{")
    printed = call("retry", "here", code=1)
    assert f"note: seed 0: the old run is kept in here/.stale/{cell}-1" in printed
    assert Path(f"here/logs/{cell}.log").read_text().rpartition("$ lw2g ")[2].startswith("run ")


def test_cells_with_more_processes_than_the_machine_holds_are_refused(grid, monkeypatch):
    """Cells at a time times processes each: one line, before anything is written."""
    monkeypatch.setattr("lw2g.sweeps.executors.local.allowed_cores", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    printed = call("--out", "here", grid, "--jobs", "2", "--set", "run.devices=3", code=2)
    assert printed == (
        "error: run.devices: 3 is too many for 2 cells at a time on 4 cores (in the cell 'seed 0'); use at "
        "most 2, or change --jobs or --gpus-per-job\n"
    )
    assert not Path("here").exists()


@pytest.mark.parametrize(("busy", "shown"), [(0, (0, 12)), (20, (16, 28)), (39, (28, 40))])
def test_a_long_table_shows_what_runs(busy, shown):
    """On a terminal of 20 lines: the cells around the first that runs."""
    statuses = [SimpleNamespace(state="running" if place == busy else "waiting") for place in range(40)]
    begin, end = shown
    assert fitting(statuses, 20) == statuses[begin:end]


def _status(label, state, writer=None, **of_the_run):
    """Return the status of a cell; with its run as far as the run has come."""
    run = None
    if of_the_run:
        told = {"remaining": None, "progress": {}, "tasks": 5, "faa": None} | of_the_run
        run = SimpleNamespace(**told, metric=lambda name: told[name])
    return SimpleNamespace(
        cell=Cell(settings={"label": label}, label=label), state=state, run=run, writer=writer
    )


COURSE = [
    [_status("a", "waiting"), _status("b", "waiting"), _status("c", "waiting")],
    [
        _status("a", "running", done=0, remaining=3725.2, writer=Writer(host="here")),
        _status("b", "running", done=0, writer=Writer()),  # has not signed yet
        _status("c", "waiting"),
    ],
    [
        _status("a", "running", done=0, remaining=9.0),
        _status("b", "running", done=0),
        _status("c", "waiting"),
    ],
    [
        _status("a", "running", done=1, remaining=65.0, faa=90.0),
        _status("b", "failed", done=0),
        _status("c", "waiting"),
    ],
    [
        _status("a", "finished", done=5, faa=87.87),
        _status("b", "failed", done=0),
        _status("c", "running", done=0),
    ],
]


def test_a_running_sweep_says_what_has_ended_and_what_is_left(capsys):
    """A line for each cell that starts, ends or has finished a task; nothing for the seconds in between."""
    with sweep_command._watching() as watch:
        for statuses in COURSE:
            watch(statuses)
    assert capsys.readouterr().err.splitlines() == [
        "a: running, task 0/5, about 1:02:05 left, on here",
        "b: running, task 0/5",
        "a: running, task 1/5, FAA 90.00, about 0:01:05 left",
        "b: failed, task 0/5 (3 cells: 1 running, 1 failed, 1 waiting)",
        "a: finished, task 5/5, FAA 87.87 (3 cells: 1 finished, 1 failed, 1 running)",
        "c: running, task 0/5",
    ]


def test_on_a_terminal_a_sweep_is_a_table_with_its_counts(monkeypatch):
    """All cells while they fit; the counts are of all cells even where they do not."""
    out = Console(file=io.StringIO(), force_terminal=True, width=90, height=9)
    monkeypatch.setattr(sweep_command, "console", lambda **_: out)
    with sweep_command._watching() as watch:
        watch(COURSE[3])
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.file.getvalue())
    assert re.search(r"a +running +1/5 +0:01:05 +90\.00 +- +- *\n", shown)
    assert "b  " not in shown
    assert "3 cells: 1 running, 1 failed, 1 waiting" in shown


def test_from_python_a_dict_is_a_grid(grid, capfd):
    """It has the cells of the file with its content; a result is its directory; lines can be off."""
    content = tomllib.loads(GRID) | {"axes": {"seed": (0, 1)}}
    of_dict = lw2g.sweep(content, out="of-dict", progress=False)
    assert capfd.readouterr().err == ""
    of_file = lw2g.sweep(grid, out="of-file")
    assert "seed 1: failed (2 cells: 2 failed)" in capfd.readouterr().err
    assert [one.cell for one in of_dict.cells] == [one.cell for one in of_file.cells]
    assert os.fspath(of_dict) == "of-dict"
    with pytest.raises(DataError, match="no run at or below 'of-dict', 'of-file'"):
        lw2g.report(of_dict, Path("of-file"))
    for wrong, message in (
        ({"out": None}, "out: a grid in a dict has no name; say where it goes"),
        ({"grid": content | {"axis": {}}}, "'grid': 'axis' is not a part of a grid"),
        ({"grid": {"base": {"baseline": object()}}}, "grid: .* not TOML serializable; give texts"),
        ({"grid": [content]}, "grid: expected a path or a dict but got"),
    ):
        with pytest.raises(ConfigError, match=message):
            lw2g.sweep(**{"grid": content, "out": "wrong"} | wrong)  # type: ignore[arg-type]
    assert not Path("wrong").exists()


def test_failures_are_listed_and_tried_again(grid):
    """Exit code 1 with the reason and the log of each; status repeats it; retry begins them again."""
    printed = call("--out", "here", grid, code=1)
    assert printed.count("exit code 2: no room") == 2
    assert "2 cells: 2 failed; in here" in printed
    assert "lw2g sweep retry here" in printed
    assert "2 failed" in call("status", "here")
    listed = json.loads(call("status", "here", "--json"))
    assert [(one["state"], one["settings"]["run.seed"]) for one in listed] == [("failed", 0), ("failed", 1)]
    call("retry", "here", "--jobs", "2", code=1)
    (log,) = Path("here/logs").glob(f"{listed[0]['name']}.log")
    assert log.read_text().count("$ lw2g run ") == 2


def test_a_stopped_sweep_says_how_to_go_on(grid, monkeypatch):
    """Exit code 130 and what continues: the command of the grid itself, or, where cells failed, retry."""
    monkeypatch.setattr(Attempt, "run", lambda self: 130)
    printed = call("--out", "here", grid, code=130)
    assert "2 cells: 2 waiting; in here" in printed
    assert printed.endswith("note: the same command goes on with all that is not finished\n")
    store = SweepDirectory(Path("here"))
    store.note_failure(store.cells()[0], reason="no room")
    printed = call("--out", "here", grid, code=130)
    assert printed.endswith("note: `lw2g sweep retry here` goes on with all that is not finished\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["two.toml", "--set", "growht.energy=1"], "error: --set: no such section 'growht.energy'"),
        (["two.toml", "--set", "growth.energie=1"], "error: growth.energie: no such option"),
        (["none.toml"], "error: 'none.toml' cannot be read"),
        (
            ["two.tml"],
            "error: 'two.tml' cannot be read: No such file or directory (did you mean 'two.toml'?)",
        ),
        (["run.toml"], "error: 'run.toml' is the file of a run and no grid; lw2g run run.toml runs it; in a"),
        (["status", "nowhere"], "error: no sweep at 'nowhere'"),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(grid, arguments, says):
    """A misspelt option, file or directory ends with exit code 2, and nothing is written."""
    Path("run.toml").write_text('baseline = "simple-cil"\n[run]\nseed = 1\n')
    printed = call(*arguments, code=2)
    assert printed.startswith(says)
    assert printed.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["run.toml", "two.toml"]


def test_help_names_the_commands(grid):
    """The group's own help shows a grid, and the commands beside running one."""
    printed = call("--help")
    assert all(text in printed for text in ("[[rows]]", "status", "retry", "cancel", "GRID.toml --help"))
    assert call("two.toml", "--help").startswith("Usage: main sweep GRID.toml [OPTIONS]\n")
    assert "--jobs" in call("grid", "--help")


def test_an_executor_is_told_by_the_grid_and_the_command_line(grid, monkeypatch):
    """The command line wins, a retry goes where the sweep ran, and another executor shares nothing."""
    told = []
    monkeypatch.setattr(
        "lw2g.api.sweeps.load_executor",
        lambda settings, path: told.append(dict(settings)) or load_executor({}, path),
    )
    Path("two.toml").write_text(GRID + '[executor]\nname = "ray"\njobs = 2\naddress = "a"\n')
    call("--out", "here", grid, "--jobs", "3", "--executor-set", "address=b", code=1)
    call("--out", "here", grid, "--executor", "local", "--threads", "2", "--gpus-per-job", "0.5", code=1)
    SweepDirectory(Path("here")).write(SweepDirectory(Path("here")).cells(), {"name": "slurm", "jobs": 9})
    call("retry", "here", code=1)
    assert told == [
        {"name": "ray", "jobs": 3, "address": "b"},
        {"name": "local", "threads": 2, "gpus_per_job": 0.5},
        {"name": "slurm", "jobs": 9},
    ]
    assert call("here.toml", "--executor-set", "x", code=2).startswith("error: --executor-set: expected KEY")


def test_status_says_where_a_cell_runs(grid, finished):
    """Host and speed of what runs, also for other programs."""
    call("--out", "here", grid, code=1)
    call("cancel", "here")
    store = SweepDirectory(Path("here"))
    run = store.job(store.cells()[0]).run
    shutil.copytree(finished[0], run)
    (run / "record.json").unlink()
    stepped = {"task": 0, "tasks": 3, "phase": "prompts", "done": 1, "total": 2}
    stepped |= {"remaining": 65.0, "images_per_second": 12.4}
    (run / "progress.json").write_text(json.dumps(stepped))
    with one_writer(run):
        (run / "lock").write_text(json.dumps({"pid": 1, "host": "elsewhere", "since": "then"}))
        printed = call("status", "here")
        listed = json.loads(call("status", "here", "--json"))
    assert re.search(r"seed 0 +running +0/3 +0:01:05 +- +12 +elsewhere *\n", printed)
    assert (listed[0]["host"], listed[0]["images_per_second"], listed[1]["host"]) == ("elsewhere", 12.4, None)


@pytest.mark.parametrize(("named", "cancelled"), [([], 2), (["seed 1"], 1)])
def test_cancel_asks_what_runs_and_keeps_what_waits(grid, named, cancelled):
    """Running cells get a request, whoever runs them; an unknown name is refused."""
    call("--out", "here", grid, code=1)
    store = SweepDirectory(Path("here"))
    for cell in store.cells():
        store.note_failure(cell, reason=None)
    with locked(store.job(store.cells()[1]).lock):
        printed = call("cancel", "here", *named)
    waiting = "1 waiting cell" if cancelled == 2 else "0 waiting cells"
    goes_on = "`lw2g sweep retry here` goes on with all that is not finished\n"
    assert printed == f"asked 1 running cell to stop; {waiting} will not start\nnote: {goes_on}"
    following = " now, and 'seed 0' is next" if cancelled == 1 else ""
    assert call("status", "here").endswith(
        f"note: no cell runs{following}; if the sweep has ended, {goes_on}"
    )
    assert sum(one.cancelled for one in store.statuses(store.cells())) == cancelled
    assert "no cell 'seed 2' (did you mean 'seed 1'?)" in call("cancel", "here", "seed 2", code=2)


def test_cancel_says_so_where_all_has_ended(grid):
    """No cell is said to be stopped that has failed or finished."""
    call("--out", "here", grid, code=1)
    assert call("cancel", "here") == "nothing to stop: these cells have ended\n"


def test_a_label_changes_neither_the_experiment_nor_the_terminal(grid):
    """Whatever a label has in it, the cell's file says what the grid says, and what is printed is plain."""
    label = "x\n[run]\nseed = 77\n#\x1b]0;taken\x07\udc80"
    Path("two.toml").write_text(GRID + f"[[rows]]\nlabel = {json.dumps(label[:-1])}\n")
    printed = [
        call(grid, "--dry-run"),
        call("--out", "here", grid, code=1),
        call("status", "here"),
        call("retry", "here", code=1),
    ]
    store = SweepDirectory(Path("here"))
    for cell in store.cells():
        assert tomllib.loads(store.job(cell).config.read_text()) == cell.tables()
        assert cell.tables()["run"]["seed"] in (0, 1)
    assert not any("\x1b" in text or "\x07" in text for text in printed)
    assert printable(label) == r"x\n[run]\nseed = 77\n#\x1b]0;taken\x07\udc80"


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "[" * 100_000,
        "\xff",
        '{"cells": {}, "executor": {}}',
        '{"cells": [], "executor": 3}',
        '{"cells": [{"settings": [], "label": "x"}], "executor": {}}',
        '{"cells": [{"settings": {}, "label": 3}], "executor": {}}',
        '{"cells": [{"settings": {"constraints": 3}, "label": "x"}], "executor": {}}',
    ],
    ids=lambda content: content[:40],
)
def test_a_list_of_cells_of_another_type_is_one_line(grid, content):
    """A damaged sweep.json ends a command in one line, and nothing is written."""
    Path("in").mkdir()
    Path("in/sweep.json").write_text(content, encoding="latin-1")
    printed = call("retry", "in", code=2)
    assert printed.startswith("error: ")
    assert printed.count("\n") == 1
    assert [path.name for path in Path("in").iterdir()] == ["sweep.json"]


def test_no_cell_lies_outside_its_sweep(grid):
    """A name that is a path is none of a directory."""
    Path("in").mkdir()
    cell = {"settings": {"baseline.name": "../../up"}, "label": "x"}
    Path("in/sweep.json").write_text(json.dumps({"cells": [cell], "executor": {}}))
    call("retry", "in", code=1)
    assert sorted(path.name for path in Path().iterdir()) == ["in", "two.toml"]
    assert len(list(Path("in/cells").iterdir())) == 1
