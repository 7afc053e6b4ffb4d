"""Run every head on every data set's stored features, in five orders; finished runs are passed over.

    nice -n 15 python experiments/heads/run_heads.py --features FOLDER --runs RUNS

FOLDER has files such as ``caltech.npz``, which ``lw2g data features`` writes; a set without one is left out.
All runs take turns in one process on one thread. Checkpoints are deleted: a pack needs none.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch
from sets import HEADS, ORDERS, SETS, settings

from lw2g.config.resolve import resolve
from lw2g.lifecycle.runner import start
from lw2g.registry.catalogue import load_catalogue


def main() -> None:
    """Run what is not finished."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=Path, required=True, help="folder of files of features")
    parser.add_argument("--runs", type=Path, required=True, help="where runs go")
    parser.add_argument("--heads", nargs="*", default=list(HEADS), choices=list(HEADS), metavar="HEAD")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    catalogue = load_catalogue()
    for name in SETS:
        file = arguments.features / f"{name}.npz"
        if not file.exists():
            print(f"{name}: no file {str(file)!r}, left out")
            continue
        for order in ORDERS:
            for head in arguments.heads:
                run = arguments.runs / f"{name}.{order}.{head}"
                if (run / "record.json").exists():
                    continue
                shutil.rmtree(run, ignore_errors=True)
                resolved = resolve(
                    catalogue,
                    baseline="simple-cil",
                    benchmark="features",
                    overrides=settings(head, name, order, file),
                )
                record = start(resolved, catalogue, run)
                shutil.rmtree(run / "checkpoints", ignore_errors=True)
                seconds = record["seconds"]["total"]
                print(f"{run.name}: {record['metrics']['faa']:.2f}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
