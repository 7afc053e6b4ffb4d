"""What another machine changes: rows that have a pack, computed again with the same seed, here on a GPU.

    python experiments/frozen/machines.py --runs RUNS    # note where finished runs ended (machines.json)
    python experiments/frozen/machines.py                # print the table

Data, order, seed and bf16 of a row are those of its pack; machine, torch, attention's code and Python differ.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from frozen_results import HERE, METHODS, Trained, store, trained

from lw2g.disk.contents import read_record
from lw2g.disk.sealed import sha256_of
from lw2g_store.packs import SUBMISSION

OUT = HERE / "machines.json"
ROWS = {
    "recommended": "training on every task",
    "stopped-1": "training on the first task",
    "ranpac-joined": "adapters of the first task, 12 layers",
}
"""The rows that ran twice, with what pages call them."""


def note(folder: Path, runs: Trained) -> None:
    """Write where runs ended whose row and order have a pack of another run."""
    found = []
    for run in sorted(folder.glob("*/record.json")):
        stream, order, method, _ = run.parent.name.split(".")
        pack = runs.get((stream, method), {}).get(int(order))
        if method not in METHODS or pack is None:
            continue
        submission = json.loads((pack.told.path / SUBMISSION).read_text(encoding="utf-8"))
        if submission["original"] == sha256_of(run):
            continue  # this very run is the pack
        record = read_record(run.parent)
        found.append(
            {
                **{"stream": stream, "order": int(order), "method": method},
                "faa": round(record["metrics"]["faa"], 4),
                "record_hash": record["record_hash"],
            }
        )
    lines = ",\n".join(f" {json.dumps(one)}" for one in found)
    OUT.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def differences(runs: Trained, method: str) -> list[tuple[str, int, float]]:
    """Return of the rows of a method that ran twice stream, order and points of the second less the pack."""
    known = json.loads(OUT.read_text(encoding="utf-8"))
    found = []
    for row in known:
        pack = runs.get((row["stream"], method), {}).get(row["order"])
        if row["method"] == method and pack is not None:
            found.append((row["stream"], row["order"], row["faa"] - pack.told.faa))
    return found


def most(runs: Trained, method: str) -> float:
    """Return the most points by which a row ends elsewhere on the second machine, whichever its side."""
    return max(abs(points) for _, _, points in differences(runs, method))


def table(runs: Trained) -> Iterator[str]:
    """Yield how far the second machine ends from the first, a line a method."""
    yield "| | runs | mean difference | mean of its size | the same on one stream, at most | greatest |"
    yield "| --- | ---: | ---: | ---: | --- | --- |"
    for method, shown in ROWS.items():
        rows = differences(runs, method)
        apart = np.array([points for _, _, points in rows])
        far = int(np.abs(apart).argmax())
        where = f"{apart[far]:+z.1f} ({rows[far][0]}, order {rows[far][1]})"
        streams = np.array([stream for stream, _, _ in rows])
        sizes = {name: float(np.abs(apart[streams == name]).mean()) for name in sorted(set(streams))}
        widest = max(sizes, key=lambda name: sizes[name])
        figures = f"{apart.mean():+z.1f} | {np.abs(apart).mean():.1f} | {sizes[widest]:.1f} ({widest})"
        yield f"| {shown} | {len(rows)} | {figures} | {where} |"


def main() -> None:
    """Note runs, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, help="folder of finished runs")
    arguments = parser.parse_args()
    if arguments.runs:
        note(arguments.runs, trained(store()))
    else:
        print("\n".join(table(trained(store()))))


if __name__ == "__main__":
    main()
