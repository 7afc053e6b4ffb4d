"""The built wheel alone, without the checkout, runs the main job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow(seconds=10)
def test_the_wheel_alone_runs_the_main_job(tmp_path: Path) -> None:
    """Plugins, weights and entry points are all in the wheel; tests and experiments are not."""
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("needs the source tree to build the wheel from")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, timeout=300, capture_output=True)
    (wheel,) = tmp_path.glob("lw2g-*.whl")
    assert wheel.stat().st_size <= 8 * 2**20
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(unpacked)
    tops = {name.split("/")[0] for name in names}
    assert "lw2g_backbones/micro.safetensors" in names
    data = {path.relative_to(ROOT) for top in ("lw2g", "plugins") for path in (ROOT / top).rglob("*.toml")}
    assert {path.as_posix().removeprefix("plugins/") for path in data} <= set(names)
    typed = {f"{path.parent.name}/py.typed" for path in (ROOT / "plugins").glob("*/__init__.py")}
    assert {"lw2g/py.typed", *typed} <= set(names)
    assert "lw2g/api/scaffold/templates/baseline/src/package/baseline.py.tmpl" in names
    assert not tops & {"tests", "experiments", "benchmarks", "scripts", "plugins"}

    environment = os.environ | {"PYTHONPATH": str(unpacked), "OMP_NUM_THREADS": "1"}
    small = [
        "benchmark.train_per_class=4", "benchmark.test_per_class=2", "benchmark.classes_per_family=4",
        "benchmark.increment=4", "baseline.epochs=1", "baseline.replay_epochs=1", "retrieval.epochs=1",
        "retrieval.replay_epochs=1", "growth.images=16",
    ]  # fmt: skip
    script = "import lw2g, sys; print(lw2g.__file__); from lw2g.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", script, "run", "--baseline", "hide-prompt", "--policy", "min"]
    command += [part for setting in small for part in ("--set", setting)] + ["--out", "run"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith(str(unpacked))
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert len(record["task_to_set"]) == 5
    assert record["metrics"]["faa"] is not None
