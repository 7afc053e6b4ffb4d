"""What an executor takes beside the cells themselves: cells that sleep and are finished, so many at a time.

python benchmarks/executors.py [--executor local|ray|slurm] [--cells 20] [--seconds 10] [--jobs 2]
python benchmarks/executors.py --cells 1000 --seconds 0        # a long queue: what the driver itself computes

Ray begins a cluster of its own; in Slurm's place is submitit's local executor.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import tempfile
import time
from pathlib import Path

from lw2g.disk.sealed import seal_json
from lw2g.sweeps.executors import load_executor
from lw2g.sweeps.grid import Cell
from lw2g.sweeps.sweep_directory import SweepDirectory
from lw2g.sweeps.sweep_engine import run_sweep

# Python runs it before all else: a process that was to run a cell sleeps instead, and leaves a finished run
DRY = """
import os, shutil, sys, time
from pathlib import Path
told = sys.orig_argv
if "run" in told and any(word.startswith("lw2g") for word in told[1:4]):
    run = Path(told[told.index("--out") + 1])
    run.mkdir(parents=True)
    time.sleep(float(os.environ["DRY_SECONDS"]))
    (run / "config.toml").write_text("")
    shutil.copy(Path(__file__).with_name("record.json"), run)
    os._exit(0)
"""
CONFIG = {"baseline", "policy", "benchmark", "backbone"}
RECORD = {
    "lw2g_version": "0",
    "protocol": "",
    "config": {"constraints": {}, **{kind: {"name": "none"} for kind in CONFIG}},
    "seed": 0,
    "tasks": 1,
    "backbone": {"timm_name": "none", "sha256": ""},
    "accuracy_matrix": [[100.0]],
    "retrieval_matrix": None,
    "task_to_set": [0],
    "metrics": {"faa": 100.0},
    "planted_groups": None,
    "adjusted_rand_index": None,
    **{name: [] for name in ("protocol_changes", "class_order", "class_names", "decisions", "deviations")},
    **{name: {} for name in ("fingerprints", "storage", "seconds", "files")},
}
SETTINGS = {"local": {}, "ray": {"address": "local"}, "slurm": {"cluster": "local"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--executor", choices=SETTINGS, default="local")
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    logging.getLogger("submitit").setLevel(logging.ERROR)
    cells = [Cell(settings={"run.seed": seed}, label=str(seed)) for seed in range(options.cells)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(DRY)
        (Path(folder) / "record.json").write_bytes(seal_json(RECORD))
        os.environ |= {
            "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]),
            "DRY_SECONDS": str(options.seconds),
        }
        store = SweepDirectory(Path(folder) / "sweep")
        wall, cpu, others = time.perf_counter(), time.process_time(), _of_children()
        executor = load_executor(
            {"name": options.executor, "jobs": options.jobs} | SETTINGS[options.executor], store.path
        )
        connected = time.perf_counter()
        found = run_sweep(store, cells, executor)
        wall, cpu, start = time.perf_counter() - wall, time.process_time() - cpu, connected - wall
        others = _of_children() - others
        looking = time.perf_counter()
        store.statuses(store.cells())
        looking = time.perf_counter() - looking
    assert {one.state for one in found} == {"finished"}
    rounds = math.ceil(options.cells / options.jobs)
    beside = (wall - start) / rounds - options.seconds
    told = f"{options.cells} cells of {options.seconds:g} s, {options.jobs} at a time"
    print(f"{options.executor}: {told}: {wall:.1f} s")
    print(f"  to the first cell {start:.2f} s; then, beside each cell, {beside:.3f} s of its slot", end="")
    print(f" ({100 * beside / options.seconds:.1f} %)" if options.seconds else "")
    driver, started = (f"{1e3 * each / options.cells:.0f} ms" for each in (cpu, others))
    print(f"  CPU of a cell: the driver's {driver}, and {started} of what it starts")
    print(f"  a look at all takes {looking:.3f} s")


def _of_children() -> float:
    """Return the CPU seconds of processes that have ended, but for those of a cluster."""
    known = os.times()
    return known.children_user + known.children_system


if __name__ == "__main__":
    main()
