"""How long `lw2g report --html` takes for so many runs, and how large the page is: copies of a finished run.

python benchmarks/report.py RUN [--runs 50]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from lw2g.disk.contents import read_record
from lw2g.disk.sealed import seal_json
from lw2g.registry.catalogue import load_catalogue
from lw2g.results.columns import COLUMNS, DEFAULT_COLUMNS
from lw2g.results.found_runs import find_runs
from lw2g.results.table import tables_of
from lw2g_page.page import page_of

SEEDS = 5


def copied(run: Path, place: Path, runs: int) -> None:
    """Write copies that are configurations of five seeds each."""
    record = read_record(run)
    for number in range(runs):
        seed, configuration = number % SEEDS, number // SEEDS
        record["seed"] = record["config"]["run"]["seed"] = seed
        record["config"]["baseline"]["epochs"] = configuration + 1
        directory = place / f"run-{number}"
        shutil.copytree(run, directory, ignore=shutil.ignore_patterns("checkpoints", "lock"))
        (directory / "record.json").write_bytes(seal_json(record))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--runs", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copied(options.run, Path(folder), options.runs)
        wall, cpu = time.perf_counter(), time.process_time()
        catalogue = load_catalogue()
        tables = tables_of(find_runs([Path(folder)]), catalogue, so_far=True)
        columns = [COLUMNS[name] for name in DEFAULT_COLUMNS]
        page = page_of(tables, catalogue, columns, None, "")
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    rows = sum(len(table.rows) for table in tables)
    print(f"{options.runs} runs, {rows} rows: {len(page) / 1e6:.1f} MB, {cpu:.1f} s CPU, {wall:.1f} s wall")


if __name__ == "__main__":
    main()
