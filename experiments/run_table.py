"""Run a table of experiments, several at a time, and print it.

    python experiments/run_table.py experiments/reduced/cifar20.toml --out runs/cifar20 --seeds 0,1 \
        --rows dual-prompt:always dual-prompt:min hide-prompt:min dual-prompt:always:oracle

A row is BASELINE:POLICY[:RETRIEVAL]. Finished runs are kept, interrupted ones resumed: the same command goes
on where it stopped, and prints the table when all is there. Every process gets one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

COLUMNS = ("faa", "faa_samples", "ffm", "ffm_code", "bwt", "pra", "ssp", "chance_pra")
SECONDS = ("evidence", "training", "subspace", "evaluation", "total")


def run_one(config: Path | None, row: str, seed: int, out: Path, settings: list[str]) -> Path:
    """Run, or resume, one cell of the table and return its directory."""
    directory = out / row.replace(":", "-") / f"seed-{seed}"
    if (directory / "done").exists():
        return directory
    baseline, policy, *retrieval = row.split(":")
    if (directory / "config.toml").exists():
        command = ["resume", str(directory)]
    else:
        command = ["run", *([str(config)] if config else []), "--baseline", baseline, "--policy", policy]
        command += ["--seed", str(seed), "--out", str(directory)]
        command += [part for name in retrieval for part in ("--retrieval", name)]
        command += [part for setting in settings for part in ("--set", setting)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "lw2g", *command], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{row} seed {seed} failed:\n{done.stderr}")
    (directory / "done").touch()
    print(f"done: {row} seed {seed}", file=sys.stderr, flush=True)
    return directory


def mean_of(records: list[dict[str, Any]], section: str, key: str) -> str:
    """Return mean and standard deviation over the seeds, a dash where undefined."""
    values = [record[section][key] for record in records]
    if any(value is None for value in values):
        return "-"
    mean = statistics.fmean(values)
    return f"{mean:.2f}" if len(values) == 1 else f"{mean:.2f} ± {statistics.stdev(values):.2f}"


def read_records(rows: list[str], seeds: list[int], out: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the records of each row, one per seed."""
    return {
        row: [
            json.loads((out / row.replace(":", "-") / f"seed-{seed}" / "record.json").read_text())
            for seed in seeds
        ]
        for row in rows
    }


def require_one_protocol(runs: dict[str, list[dict[str, Any]]]) -> None:
    """Refuse a table whose rows were run under different protocols: their numbers do not compare."""
    protocols = {row: {record["protocol"] for record in records} for row, records in runs.items()}
    if len(set().union(*protocols.values())) > 1:
        found = ", ".join(f"{row}: {' and '.join(sorted(names))}" for row, names in protocols.items())
        raise SystemExit(f"the rows mix protocols ({found}); name one by --protocol, or say --mix-protocols")


def table(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of finished runs in Markdown; means and standard deviations over seeds."""
    head = ["row", "protocol", *COLUMNS, "ARI", *(f"{part} s" for part in SECONDS), "images/s"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for row, records in runs.items():
        cells = [row, records[0]["protocol"], *(mean_of(records, "metrics", key) for key in COLUMNS)]
        cells.append(mean_of([{"r": record} for record in records], "r", "adjusted_rand_index"))
        cells += [mean_of(records, "seconds", part) for part in SECONDS]
        cells.append(mean_of([{"r": record} for record in records], "r", "images_per_second"))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", type=Path, nargs="?", help="TOML file; left out: the embedded default")
    parser.add_argument("--rows", nargs="+", required=True, metavar="BASELINE:POLICY[:RETRIEVAL]")
    parser.add_argument("--seeds", default="0", type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for lw2g run")
    parser.add_argument("--protocol", choices=["official", "like-for-like"], help="as for lw2g run")
    parser.add_argument("--mix-protocols", action="store_true", help="print rows of both protocols")
    arguments = parser.parse_args()
    if arguments.protocol:
        arguments.set.append(f"run.protocol={arguments.protocol}")
    cells = [(row, seed) for seed in arguments.seeds for row in arguments.rows]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(
            pool.map(
                lambda cell: run_one(arguments.config, *cell, arguments.out, arguments.set),
                cells,
            )
        )
    runs = read_records(arguments.rows, arguments.seeds, arguments.out)
    if not arguments.mix_protocols:
        require_one_protocol(runs)
    print(table(runs))


if __name__ == "__main__":
    main()
