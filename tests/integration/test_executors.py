"""Sweeps on real engines, with processes killed in the middle: every cell is done, and each step of it once.

A cluster of Ray with two nodes on this machine, submitit's local executor in Slurm's place, and processes.
What they run stands in for ``lw2g run`` and ``resume``, and takes seconds: it locks its directory, saves
after every step, and stops on SIGTERM where it can be resumed.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lw2g.sweeps.sweep_directory import SweepDirectory

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

GRID = """
[base]
baseline = "simple-cil"
benchmark = "digits"
policy = "always"
[axes]
seed = [0, 1]
"""
STEPS = 16
BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "executors.py"
RECORD = runpy.run_path(str(BENCHMARK))["RECORD"] | {"tasks": STEPS}
# Python runs it before all else
STAND_IN = f"""
import json, runpy, signal, sys, time
from pathlib import Path

def bring_on(name, **_):
    from lw2g.disk.lock import one_writer
    from lw2g.disk.sealed import seal_json, write_atomically
    asked, run = [], Path(sys.argv[-1])
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    run.mkdir(exist_ok=True)
    with one_writer(run):
        if sys.argv[1] == "run":
            assert not (run / "config.toml").exists()
            (run / "config.toml").touch()
        log = run / "steps"
        done = len(log.read_text().split()) if log.exists() else 0
        for step in range(done, {STEPS}):
            time.sleep(0.25)
            with log.open("a") as steps:
                steps.write(f"{{step}}\\n")
            rows = [[1.0] * (step + 1)] * (step + 1)
            record = {RECORD!r} | {{"accuracy_matrix": rows, "task_to_set": [0] * (step + 1)}}
            write_atomically(run / "record.json", seal_json(record))
            if asked:
                time.sleep(1)
                sys.exit(130)

if "lw2g.sweeps.tether" in sys.orig_argv:
    runpy.run_module = bring_on
"""


@pytest.fixture(scope="module", autouse=True)
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let every process of the tests find the stand-in."""
    place = tmp_path_factory.mktemp("stand-in")
    (place / "sitecustomize.py").write_text(STAND_IN)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", str(place), prepend=os.pathsep)
        patched.setenv("OMP_NUM_THREADS", "1")
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a grid of two cells."""
    (tmp_path / "grid.toml").write_text(GRID)
    return tmp_path


def sweep(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a driver."""
    command = ["sweep", str(folder / "grid.toml"), "--out", str(folder / "out"), *arguments]
    return subprocess.Popen([sys.executable, "-m", "lw2g", *command])


def begun(driver: subprocess.Popen[bytes], folder: Path) -> Path:
    """Wait for a run that is under way, and has learned its first task."""
    store = SweepDirectory(folder / "out")
    while driver.poll() is None:
        known = store.cells() if (folder / "out" / "sweep.json").exists() else []
        for one in store.statuses(known):
            if one.state == "running" and one.run is not None and one.run.done and one.run.writer:
                return store.job(one.cell).run
        time.sleep(0.05)
    raise AssertionError(f"the driver ended with exit code {driver.returncode}")


def writer(run: Path) -> int:
    """The process that writes a run."""
    return json.loads((run / "lock").read_text())["pid"]


def parent(pid: int) -> int:
    """The process above another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the commands of each cell, all of which are done, each step once, and nobody is left at work."""
    store, found = SweepDirectory(folder / "out"), {}
    for cell in store.cells():
        job = store.job(cell)
        assert (job.run / "steps").read_text().split() == [str(step) for step in range(STEPS)]
        assert not (job.run / "lock").exists()
        assert not job.lock.exists()
        lines = job.log.read_text().splitlines()
        found[cell.name] = [line.split()[2] for line in lines if line.startswith("$ lw2g ")]
    return found


# -- processes ---------------------------------------------------------------------------------------------


def test_a_killed_driver(folder: Path) -> None:
    """Its run stops where it can be resumed; two new drivers share the cells, each of which runs once."""
    first = sweep(folder, "--jobs", "1")
    run = begun(first, folder)
    first.kill()
    first.wait()
    drivers = [sweep(folder, "--jobs", "1") for _ in range(2)]
    assert [driver.wait(300) for driver in drivers] == [0, 0]
    found = commands(folder)
    assert found.pop(run.name) == ["run", "resume"]
    assert list(found.values()) == [["run"]]


def test_a_killed_driver_among_two(folder: Path) -> None:
    """The one that lives does what the dead one leaves."""
    first = sweep(folder, "--jobs", "2")
    run = begun(first, folder)
    second = sweep(folder)
    time.sleep(3)
    first.kill()
    first.wait()
    assert second.wait(300) == 0
    assert commands(folder)[run.name] == ["run", "resume"]


def test_a_killed_run(folder: Path) -> None:
    """It is resumed as often as allowed."""
    driver = sweep(folder, "--jobs", "2", "--executor-set", "retries=1")
    run = begun(driver, folder)
    os.kill(writer(run), signal.SIGKILL)
    assert driver.wait(300) == 0
    assert commands(folder)[run.name] == ["run", "resume"]


def test_a_cancelled_sweep_goes_on(folder: Path) -> None:
    """Cells stop on request where they can be gone on with; a retry finishes them."""
    driver = sweep(folder, "--jobs", "2")
    begun(driver, folder)
    command = [sys.executable, "-m", "lw2g", "sweep"]
    subprocess.run([*command, "cancel", str(folder / "out")], check=True)
    assert driver.wait(300) == 130
    subprocess.run([*command, "retry", str(folder / "out")], check=True)
    assert any("resume" in said for said in commands(folder).values())


# -- Slurm's place -----------------------------------------------------------------------------------------


def test_a_job_that_makes_room_is_requeued(folder: Path) -> None:
    """On submitit's signal a run saves, its job is requeued, and goes on; the array has both cells."""
    pytest.importorskip("submitit")
    driver = sweep(folder, "--executor", "slurm", "--jobs", "2", "--executor-set", "cluster=local")
    run = begun(driver, folder)
    os.kill(parent(writer(run)), signal.SIGUSR2)
    assert driver.wait(300) == 0
    assert commands(folder)[run.name] == ["run", "resume"]


def test_what_slurm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of one submission are one array, which may be requeued, with what each job needs."""
    pytest.importorskip("submitit")
    from lw2g.sweeps.executors import load_executor
    from lw2g.sweeps.job import Job

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

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    yield cluster
    cluster.shutdown()


def on_ray(folder: Path, cluster: Any, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a driver that sends its jobs to the cluster."""
    return sweep(folder, "--executor", "ray", "--executor-set", f"address={cluster.address}", *arguments)


def test_a_killed_worker_is_replaced(folder: Path, cluster) -> None:
    """Ray tries its task again, which goes on with the run; what it had started stops by itself."""
    driver = on_ray(folder, cluster)
    run = begun(driver, folder)
    os.kill(parent(writer(run)), signal.SIGKILL)
    assert driver.wait(300) == 0
    assert commands(folder)[run.name] == ["run", "resume"]


def test_a_killed_node_is_done_without(folder: Path, cluster) -> None:
    """The cells of a node that died go on with on another one."""
    (node,) = cluster.worker_nodes
    driver = on_ray(folder, cluster)
    run = begun(driver, folder)
    cluster.add_node(num_cpus=2)
    cluster.remove_node(node, allow_graceful=False)
    assert driver.wait(300) == 0
    assert commands(folder)[run.name] == ["run", "resume"]


def test_a_killed_driver_of_a_cluster(folder: Path, cluster) -> None:
    """Its tasks stop where they can be gone on with; the next driver finishes them."""
    first = on_ray(folder, cluster)
    run = begun(first, folder)
    first.kill()
    first.wait()
    second = on_ray(folder, cluster)
    assert second.wait(300) == 0
    assert commands(folder)[run.name] == ["run", "resume"]


def test_a_stopped_driver_of_a_cluster(folder: Path, cluster) -> None:
    """A signal is passed on to the tasks, and the sweep can be gone on with."""
    first = on_ray(folder, cluster)
    run = begun(first, folder)
    first.send_signal(signal.SIGTERM)
    assert first.wait(300) == 130
    assert on_ray(folder, cluster).wait(300) == 0
    assert commands(folder)[run.name] == ["run", "resume"]
