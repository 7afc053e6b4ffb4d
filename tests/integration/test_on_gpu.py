"""The script for the day a GPU is at hand, at toy size on the CPU."""

from __future__ import annotations

import io
import json
import os
import runpy
import subprocess
import sys
import time
import tomllib
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import lw2g

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "on_gpu.py"


def run(out, *options):
    """Run the script at toy size as a process and return its results."""
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--device", "cpu", "--toy", *map(str, options)]
    subprocess.run(command, check=True)
    return json.loads((out / "results.json").read_text())


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


@pytest.fixture
def sheets(tmp_path):
    """Zip sheets of four classes: of 3 training images and 2 test images each, on a grid of 2 x 2."""
    folder = tmp_path / "sheets"
    folder.mkdir()
    names, counts = ["ant", "bee", "cat", "dog"], {"train": [3] * 4, "test": [2] * 4}
    (folder / "cifar100.json").write_text(json.dumps({"classes": names, "size": 32, "counts": counts}))
    for split, ground in (("train", 0), ("test", 100)):
        with zipfile.ZipFile(folder / f"cifar100_{split}.zip", "w") as archive:
            for number, name in enumerate(names):
                grid = np.full((64, 64, 3), ground + 40 + number, dtype=np.uint8)
                grid[:32, 32:], grid[32:, :32] = ground + 10 + number, ground + 20 + number
                written = io.BytesIO()
                Image.fromarray(grid).save(written, "webp", lossless=True)
                archive.writestr(f"{split}/{number:03d}_{name}.webp", written.getvalue())
    return folder


@pytest.mark.slow
def test_every_part_runs_and_is_measured_once(here, tmp_path, sheets):
    """All parts give figures on the CPU, which agrees with itself; a second call finds nothing to do."""
    out = tmp_path / "out"
    options = ("--cifar", sheets, "--baselines", "s-prompt-plus-plus,simple-cil", "--modes", "fp32")
    results = run(out, *options)
    assert [name for part in results.values() for name, one in part.items() if "error" in one] == []
    assert results["machine"]["fp32 matmul"]["tflops"] > 0
    decisive = results["decisive"]
    assert decisive["toy / s-prompt-plus-plus / steps"]["times bare timm at 8"] > 0
    assert decisive["toy / s-prompt-plus-plus / waits"]["reason"] == "a CPU waits for nothing"
    assert decisive["toy / images"]["images/s, fast"] > 0
    assert decisive["toy / replay"]["ms a step on cpu"] > 0
    assert results["cells"] == {"skipped": {"reason": "no cells; give a grid by --grid"}}
    exact = {"losses": 0, "gradients": 0, "logits": 0, "equal_predictions": 1, "same_sets": True}
    assert exact.items() <= results["agreement"]["s-prompt-plus-plus / fp32"].items()
    untrained = exact | {"losses": None, "gradients": None}
    assert untrained.items() <= results["agreement"]["simple-cil / fp32"].items()
    assert results["agreement"]["s-prompt-plus-plus / bf16"]["losses"] > 0
    step = results["training"]["toy / fp32 / s-prompt-plus-plus"]
    bare = results["training"]["toy / fp32 / bare timm"]
    assert step["gflops_per_image"] > bare["gflops_per_image"] / 3 > 0
    assert list(step["batches"]) == ["4", "8"]
    assert results["training"]["toy / fp32 / simple-cil"]["reason"] == "takes no training steps"
    assert list(results["pipeline"]["toy / s-prompt-plus-plus"]["workers"]) == ["0", "1"]
    assert list(results["costs"]["toy / s-prompt-plus-plus"]["seconds"]["evidence"]) == ["1", "2"]
    assert results["tests"]["contract of simple-cil"]["failed"] == {}
    assert results["real"]["hide-prompt x min"]["faa"] >= 0
    third = np.asarray(Image.open(out / "cifar100" / "train" / "001_bee" / "0002.png"))
    assert (third == 21).all()
    assert not (out / "cifar100" / "train" / "001_bee" / "0003.png").exists()
    table = (out / "results.md").read_text()
    assert "| toy / fp32 / s-prompt-plus-plus | 8 |" in table
    said, again = here(out, "--toy", "--device", "cpu", *options)
    assert said == ""
    assert again == results


@pytest.mark.slow
def test_a_cell_that_was_killed_goes_on_to_the_same_bits(tmp_path):
    """A slice ends without warning in the middle of a cell; the next one resumes it and writes its table."""
    grid = ROOT / "experiments" / "paper" / "table7.toml"
    options = ("--parts", "cells", "--grid", grid, "--minutes", 9)
    whole = run(tmp_path / "whole", *options)["cells"]
    out = tmp_path / "cut"
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--device", "cpu", "--toy", *map(str, options)]
    killed = subprocess.Popen(command)
    begun = time.monotonic()
    # from its first finished task on it has something to go on with
    while not list((out / "cells").glob("dual-*/record.json")) and time.monotonic() < begun + 300:
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    (cell,) = run(out, *options)["cells"].values()
    (expected,) = whole.values()
    assert cell["attempts"] == 2
    assert cell["same_bits"]
    same = ("faa", "ffm", "pra", "ssp")
    assert [cell[name] for name in same] == [expected[name] for name in same]
    records = [next(place.glob("cells/*/record.json")) for place in (out, tmp_path / "whole")]
    one, other = (json.loads(path.read_text()) for path in records)
    for key in ("accuracy_matrix", "decisions", "record_hash"):
        assert one[key] == other[key]
    assert "| dual-prompt x min |" in (out / "cells.md").read_text()
    assert not list((out / "cells").glob("dual-*/checkpoints"))


def test_what_is_not_asked_or_given_is_left_out(here, tmp_path):
    """Without time nothing is measured, and a part without its input says what to give."""
    options = ("--device", "cpu", "--parts", "machine,real,tests", "--skip", "tests")
    said, results = here(tmp_path, "--toy", "--minutes", 0, *options)
    assert results == {
        "machine": {},
        "real": {"skipped": {"reason": "no data; give CIFAR-100 by --cifar"}},
    }
    assert said.count("\n") == 1


def test_results_of_another_device_are_not_mixed_in(here, tmp_path):
    """Going on in a folder of another machine is refused."""
    (tmp_path / "results.json").write_text(json.dumps({"machine": {"names": {"name": "NVIDIA H100"}}}))
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
