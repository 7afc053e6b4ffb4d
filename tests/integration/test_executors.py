"""Sweeps on real engines, with processes killed in the middle: every cell ends as a run alone does.

A cluster of Ray with two nodes on this machine, submitit's local executor in Slurm's place, and processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lw2g.sweep.store import SweepDirectory
from lw2g.training.files.sealed import unseal_json

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

GRID = """
[base]
backbone = "micro"
baseline = {name = "dual-prompt", epochs = 2, batch_size = 16}
policy = "always"
device = "cpu"
precision = "32-true"
[base.benchmark]
name = "glyphs"
classes_per_family = 4
increment = 5
train_per_class = 24
test_per_class = 4
[base.run]
evaluation_batch = 32
[axes]
seed = [0, 1]
"""
TIMES = ("seconds", "images_per_second", "sha256", "config")


def environment() -> dict[str, str]:
    """One thread a run."""
    return os.environ | {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def sweep(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a driver."""
    command = ["sweep", str(folder / "grid.toml"), "--out", str(folder / "out"), *arguments]
    return subprocess.Popen([sys.executable, "-m", "lw2g", *command], env=environment())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a grid of two cells."""
    (tmp_path / "grid.toml").write_text(GRID)
    return tmp_path


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The runs of the grid's cells, each on its own, by seed."""
    place = tmp_path_factory.mktemp("alone")
    (place / "grid.toml").write_text(GRID)
    assert sweep(place, "--jobs", "2").wait(900) == 0
    store = SweepDirectory(place / "out")
    return {cell.settings["run.seed"]: store.job(cell).run for cell in store.cells()}


def begun(driver: subprocess.Popen[bytes], folder: Path) -> Path:
    """Wait for a run that is under way, and has learned its first task."""
    store = SweepDirectory(folder / "out")
    while driver.poll() is None:
        known = store.cells() if (folder / "out" / "sweep.json").exists() else []
        for one in store.statuses(known):
            if one.state == "running" and one.run is not None and one.run.done:
                return store.job(one.cell).run
        time.sleep(0.1)
    raise AssertionError(f"the driver ended with exit code {driver.returncode}")


def writer(run: Path) -> int:
    """The process that writes a run."""
    return json.loads((run / "lock").read_text())["pid"]


def parent(pid: int) -> int:
    """The process above another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def same_as(alone: dict[int, Path], folder: Path) -> dict[str, list[str]]:
    """Whether all cells ended with the record and the predictions of runs alone; return their commands."""
    store = SweepDirectory(folder / "out")
    commands = {}
    for cell in store.cells():
        run, reference = store.job(cell).run, alone[cell.settings["run.seed"]]
        mine, theirs = (unseal_json(place / "record.json") for place in (run, reference))
        assert {key: value for key, value in mine.items() if key not in TIMES} == {
            key: value for key, value in theirs.items() if key not in TIMES
        }
        written = sorted(path.name for path in (reference / "predictions").iterdir())
        assert sorted(path.name for path in (run / "predictions").iterdir()) == written
        for name in written:
            assert (run / "predictions" / name).read_bytes() == (
                reference / "predictions" / name
            ).read_bytes()
        assert not (run / "lock").exists()
        lines = store.job(cell).log.read_text().splitlines()
        commands[cell.name] = [line.split()[2] for line in lines if line.startswith("$ lw2g ")]
    return commands


# -- processes ---------------------------------------------------------------------------------------------


def test_a_killed_driver(folder: Path, alone: dict[int, Path]) -> None:
    """Its run stops where it can be resumed; two new drivers share the cells, each of which runs once."""
    first = sweep(folder, "--jobs", "1")
    run = begun(first, folder)
    first.kill()
    first.wait()
    drivers = [sweep(folder, "--jobs", "1") for _ in range(2)]
    assert [driver.wait(900) for driver in drivers] == [0, 0]
    commands = same_as(alone, folder)
    assert commands.pop(run.name) == ["run", "resume"]
    assert list(commands.values()) == [["run"]]


def test_a_killed_driver_among_two(folder: Path, alone: dict[int, Path]) -> None:
    """The one that lives does what the dead one leaves."""
    first = sweep(folder, "--jobs", "2")
    run = begun(first, folder)
    second = sweep(folder)
    time.sleep(3)
    first.kill()
    first.wait()
    assert second.wait(900) == 0
    assert same_as(alone, folder)[run.name] == ["run", "resume"]


def test_a_killed_run(folder: Path, alone: dict[int, Path]) -> None:
    """It is resumed as often as allowed."""
    driver = sweep(folder, "--jobs", "2", "--executor-set", "retries=1")
    run = begun(driver, folder)
    os.kill(writer(run), signal.SIGKILL)
    assert driver.wait(900) == 0
    assert same_as(alone, folder)[run.name] == ["run", "resume"]


def test_a_cancelled_sweep_goes_on(folder: Path, alone: dict[int, Path]) -> None:
    """Cells stop on request where they can be gone on with; a retry finishes them."""
    driver = sweep(folder, "--jobs", "2")
    begun(driver, folder)
    command = [sys.executable, "-m", "lw2g", "sweep"]
    subprocess.run([*command, "cancel", str(folder / "out")], check=True)
    assert driver.wait(300) == 130
    subprocess.run([*command, "retry", str(folder / "out")], check=True, env=environment())
    assert any("resume" in said for said in same_as(alone, folder).values())


# -- Slurm's place -----------------------------------------------------------------------------------------


def test_a_job_that_makes_room_is_requeued(folder: Path, alone: dict[int, Path]) -> None:
    """On submitit's signal a run saves, its job is requeued, and goes on; the array has both cells."""
    pytest.importorskip("submitit")
    driver = sweep(folder, "--executor", "slurm", "--jobs", "2", "--executor-set", "cluster=local")
    run = begun(driver, folder)
    os.kill(parent(writer(run)), signal.SIGUSR2)
    assert driver.wait(900) == 0
    assert same_as(alone, folder)[run.name] == ["run", "resume"]


def test_what_slurm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of one submission are one array, which may be requeued, with what each job needs."""
    pytest.importorskip("submitit")
    from lw2g.sweep.executors import load_executor
    from lw2g.sweep.job import Job

    tools = tmp_path / "tools"
    tools.mkdir()
    for name, says in {"sbatch": "Submitted batch job 12", "srun": "", "sacct": "", "scancel": ""}.items():
        (tools / name).write_text(f'#!/bin/sh\ncp "$1" {tmp_path}/submitted 2>/dev/null\necho "{says}"\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    settings = {"jobs": 2, "threads": 3, "gpus_per_job": 1, "partition": "gpu", "sbatch": ["constraint=a100"]}
    executor = load_executor({"name": "slurm", **settings}, tmp_path / "out")
    futures = executor.submit([Job(name=str(seed), sweep=tmp_path) for seed in range(3)])
    said = (tmp_path / "submitted").read_text()
    for option in (
        "array=0-2%2",
        "cpus-per-task=3",
        "gpus-per-node=1",
        "partition=gpu",
        "constraint=a100",
        "requeue",
        "signal=USR2@90",
        "time=1440",
    ):
        assert f"#SBATCH --{option}\n" in said, option
    assert [future.done() for future in futures] == [False] * 3


# -- Ray ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes on this machine, the head without room for a job."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    before = dict(os.environ)
    os.environ.update(environment())
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    yield cluster
    cluster.shutdown()
    os.environ.clear()
    os.environ.update(before)


def on_ray(folder: Path, cluster: Any, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a driver that sends its jobs to the cluster."""
    return sweep(folder, "--executor", "ray", "--executor-set", f"address={cluster.address}", *arguments)


def test_a_killed_worker_is_replaced(folder: Path, alone, cluster) -> None:
    """Ray tries its task again, which goes on with the run; what it had started stops by itself."""
    driver = on_ray(folder, cluster)
    run = begun(driver, folder)
    os.kill(parent(writer(run)), signal.SIGKILL)
    assert driver.wait(900) == 0
    assert same_as(alone, folder)[run.name] == ["run", "resume"]


def test_a_killed_node_is_done_without(folder: Path, alone, cluster) -> None:
    """The cells of a node that died go on with on another one."""
    (node,) = cluster.worker_nodes
    driver = on_ray(folder, cluster)
    run = begun(driver, folder)
    cluster.add_node(num_cpus=2)
    cluster.remove_node(node, allow_graceful=False)
    assert driver.wait(900) == 0
    assert same_as(alone, folder)[run.name] == ["run", "resume"]


def test_a_killed_driver_of_a_cluster(folder: Path, alone, cluster) -> None:
    """Its tasks stop where they can be gone on with; the next driver finishes them."""
    first = on_ray(folder, cluster)
    run = begun(first, folder)
    first.kill()
    first.wait()
    second = on_ray(folder, cluster)
    assert second.wait(900) == 0
    assert same_as(alone, folder)[run.name] == ["run", "resume"]


def test_a_stopped_driver_of_a_cluster(folder: Path, alone, cluster) -> None:
    """A signal is passed on to the tasks, and the sweep can be gone on with."""
    first = on_ray(folder, cluster)
    run = begun(first, folder)
    first.send_signal(signal.SIGTERM)
    assert first.wait(300) == 130
    assert on_ray(folder, cluster).wait(900) == 0
    assert same_as(alone, folder)[run.name] == ["run", "resume"]
