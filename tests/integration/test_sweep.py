"""A sweep of real processes: stopped by a signal, it goes on to the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lw2g.sweeps.sweep_directory import SweepDirectory

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
