"""The script for the day a GPU is at hand, at toy size on the CPU."""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import tomllib
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest
import torch

import lw2g

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "on_gpu.py"


@pytest.fixture
def here(monkeypatch, capsys):
    """Run the script in this process, leaving paths and environment as they were."""

    def run_here(out, *options):
        monkeypatch.setattr(sys, "path", [str(SCRIPT.parent), *sys.path])
        monkeypatch.setenv("PYTHONPATH", "")
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--out", str(out), *map(str, options)])
        runpy.run_path(str(SCRIPT))["main"]()
        return capsys.readouterr().out, json.loads((out / "results.json").read_text())

    return run_here


@pytest.mark.slow
def test_steps_are_measured_once(here, tmp_path):
    """Every measurement gives figures on the CPU, with a row each; a second call finds nothing to do."""
    options = ("--device", "cpu", "--toy", "--baselines", "dual-prompt", "--modes", "bf16")
    results = here(tmp_path, *options)[1]
    steps = results["steps"]
    assert [name for name, one in steps.items() if "error" in one] == []
    assert steps["machine"]["TFLOP/s, torch.float32"] > 0
    ours, bare = steps["dual-prompt / bf16"], steps["bare timm / bf16"]
    assert ours["times bare timm at 8"] == ours["ms at 8"] / bare["ms at 8"] > 0
    assert steps["dual-prompt / waits"] == {"reason": "a CPU waits for nothing"}
    assert steps["images"]["images/s, fast, 0 workers"] > 0
    assert steps["replay"]["ms a step on cpu"] > 0
    assert results["cells"] == {"all": {"reason": "no cells; give a grid by --grid"}}
    assert "| steps | bare timm / bf16 | ms at 8 |" in (tmp_path / "results.md").read_text()
    assert here(tmp_path, *options) == ("", results)


@pytest.mark.slow
def test_a_cell_goes_on_in_the_next_slice(here, tmp_path, monkeypatch):
    """A slice that is over stops its cell, the next one ends it, and verify finds all that it needs."""

    class Early(threading.Thread):
        """The slice's alarm, which rings when the cell has its first task behind it."""

        def __init__(self, left, ring, told):
            super().__init__(daemon=True)
            assert 500 < left < 540
            self.ring = ring
            self.told = told
            self.over = threading.Event()

        def run(self):
            while not list(tmp_path.glob("cells/dual-*/record.json")):
                if self.over.wait(0.05):
                    return
            self.ring(*self.told)

        def cancel(self):
            self.over.set()

    grid = ROOT / "experiments" / "paper" / "table7.toml"
    options = ("--device", "cpu", "--toy", "--parts", "cells", "--grid", grid)
    with monkeypatch.context() as patched:
        patched.setattr(threading, "Timer", Early)
        cut = here(tmp_path, *options)[1]["cells"]["all"]
    assert (cut["unfinished"], cut.get("finished")) == (True, None)
    whole = here(tmp_path, *options)[1]["cells"]["all"]
    assert (whole.get("unfinished"), whole["finished"]) == (None, 1)
    (record,) = tmp_path.glob("cells/dual-*/record.json")
    assert (record.parent / "checkpoints").is_dir()
    assert lw2g.verify(record.parent).holds
    assert "| dual-prompt x min |" in (tmp_path / "cells.md").read_text()
    assert here(tmp_path, *options)[0] == ""


@pytest.mark.slow
def test_rows_that_pool_features_otherwise_share_a_table(here, tmp_path):
    """A frozen answer, which chooses several layers, stands beside a head on one of the same backbone."""
    grid = tmp_path / "grid.toml"
    rows = [f'[[rows]]\nbaseline = {{ name = "simple-cil", head = "{head}" }}\n' for head in ("lda", "auto")]
    grid.write_text("\n".join(rows))
    options = ("--device", "cpu", "--toy", "--parts", "cells", "--grid", grid)
    found = here(tmp_path / "out", *options)[1]["cells"]["all"]
    assert (found.get("error"), found["finished"]) == (None, 2)
    assert (tmp_path / "out" / "cells.md").read_text().count("| simple-cil") == 2


def test_without_time_nothing_is_measured(here, tmp_path):
    """A slice without time leaves an empty part, and a part that is not there is refused."""
    options = ("--device", "cpu", "--toy", "--parts", "steps", "--minutes", 0)
    assert here(tmp_path, *options) == ("", {"steps": {}})
    with pytest.raises(SystemExit, match=r"unknown parts \['night'\]; there are steps, cells"):
        here(tmp_path, "--device", "cpu", "--toy", "--parts", "night")


def test_results_of_another_device_are_not_mixed_in(here, tmp_path):
    """Going on in a folder of another machine is refused."""
    (tmp_path / "results.json").write_text(json.dumps({"steps": {"machine": {"device": "NVIDIA H100"}}}))
    with pytest.raises(SystemExit, match="is of 'NVIDIA H100', this is 'cpu'; choose another --out"):
        here(tmp_path, "--toy", "--device", "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said(here, tmp_path):
    """Without a GPU the script ends with the way to try it."""
    with pytest.raises(SystemExit, match="torch sees no GPU; try --device cpu --toy"):
        here(tmp_path)


def test_lw2g_need_not_be_installed(tmp_path):
    """Entry points are written as an installation would have them, and wheels are unpacked beside them."""
    script = runpy.run_path(str(SCRIPT))
    script["write_metadata"](tmp_path)
    (found,) = distributions(path=[str(tmp_path)])
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (found.name, found.version) == ("lw2g", lw2g.__version__)
    points = {one.name: one.value for one in found.entry_points if one.group == "lw2g"}
    assert points == declared["entry-points"]["lw2g"]


def test_carried_wheels_are_found_last(tmp_path, monkeypatch):
    """A wheel is unpacked, and the machine's own packages go before it, here and in child processes."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "before")
    with zipfile.ZipFile(tmp_path / "carried-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("carried/__init__.py", "")
    runpy.run_path(str(SCRIPT))["make_importable"](tmp_path / "out", tmp_path)
    site = tmp_path / "out" / "site"
    assert (site / "carried" / "__init__.py").exists()
    assert sys.path[-1] == str(site)
    assert sys.path[1:3] == [str(ROOT), str(ROOT / "plugins")]
    assert os.environ["PYTHONPATH"].split(":")[2:] == ["before", str(site)]
