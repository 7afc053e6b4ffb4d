"""A sweep of real processes: stopped by a signal, it goes on to the end."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lw2g.sweeps.sweep_directory import SweepDirectory
from strangers import install, offering

GRID = """
[base]
benchmark = "digits"
backbone = "micro"
baseline = "simple-cil"
policy = "always"
seed = 0
device = "cpu"
precision = "32-true"
"""


@pytest.mark.slow(seconds=10)
def test_a_stopped_sweep_goes_on(tmp_path: Path) -> None:
    """SIGTERM stops the cell where it can go on (exit code 130); the same command then finishes it."""
    (tmp_path / "grid.toml").write_text(GRID)
    command = [
        sys.executable,
        "-m",
        "lw2g",
        "sweep",
        str(tmp_path / "grid.toml"),
        "--out",
        str(tmp_path / "out"),
    ]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    store = SweepDirectory(tmp_path / "out")
    while first.poll() is None:
        (found,) = store.cells() if (tmp_path / "out" / "sweep.json").exists() else (None,)
        run = None if found is None else store.status(found).run
        if run is not None and run.done:
            first.send_signal(signal.SIGTERM)
            break
        time.sleep(0.02)  # the run is to be stopped before it ends
    assert first.wait(300) == 130
    (cell,) = store.cells()
    assert store.status(cell).state == "interrupted"
    subprocess.run(command, check=True, capture_output=True)
    assert store.status(cell).state == "finished"
    commands = [
        line.split()[2] for line in store.job(cell).log.read_text().splitlines() if line.startswith("$ ")
    ]
    assert commands == ["run", "resume"]
    record = json.loads((store.job(cell).run / "record.json").read_text())
    assert record["metrics"]["faa"] == pytest.approx(87.87, abs=1.0)


TWO_SEEDS = """
[base]
benchmark = {name = "digits", increment = 5, shots = 4}
baseline = {name = "dual-prompt", epochs = 1, blocks = [2]}
policy = "cautious"
device = "cpu"
precision = "32-true"
[axes]
seed = [0, 1]
"""


@pytest.mark.slow(seconds=60)
def test_cells_of_other_plugin_code_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the sweep, its status and the report, until they ran again; the cells are named as before."""
    module = install(tmp_path, "mine-dist", "mine", offering("[record('cautious')]"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "grid.toml").write_text(TWO_SEEDS)

    def said(*arguments: str) -> str:
        command = [sys.executable, "-m", "lw2g", *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
        return " ".join((done.stdout + done.stderr).split())

    again = ("sweep", "grid.toml", "--out", "out")
    would = "would run otherwise now (mine-dist 1.0: other code then); `lw2g sweep retry out --stale`"
    differ = "runs of one row have different code of a plugin: "
    said(*again)
    assert "otherwise" not in said(*again) + said("sweep", "status", "out")
    module.write_text(f"{module.read_text()}# another loss")
    assert f"2 finished cells {would}" in said(*again)
    first, _ = SweepDirectory(tmp_path / "out").cells()
    shutil.rmtree(tmp_path / "out" / first.name)
    assert differ not in said("report", "out")
    assert f"1 finished cell {would}" in said(*again)
    assert "seed 1 mine-dist 1.0: other code then" in said("sweep", "status", "out")
    for every in ((), ("--all",)):
        assert differ in said("report", "out", *every)
    said("sweep", "retry", "out", "--stale")
    assert "other code" not in said("sweep", "status", "out")
    assert "x cautious, old 1 | 1 |" in said("report", "out", "out/.stale", "--format", "md")
    assert differ not in said("report", "out")
