"""Pack the finished runs of the study for the store; what is packed already is passed over.

    python experiments/carries/packs.py --runs RUNS

A cell's trained run and the run on frozen features beside it become a pack each. Each stream, order and
size is a protocol named after it, such as ``folder/like-for-like/turns.0.224@1``; the frozen run learns all
classes at once, which is another one, ``turns.0.224.at-once@1``. Checkpoints are not needed.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cell import AT_ONCE, STREAMS, finished

from lw2g.disk.contents import read_record
from lw2g.disk.sealed import sha256_of
from lw2g.registry.catalogue import load_catalogue
from lw2g_store.layout import add_protocol, protocol_of
from lw2g_store.packs import SUBMISSION
from lw2g_store.submit import submit

STORE = Path(__file__).resolve().parents[1] / "store"
UNTUNED = ("frozen", "cosine", "mahalanobis", "klda", "ridge", "ranpac-frozen")
"""Methods on frozen features: nothing but a penalty is chosen, on their own training images."""


def runs_of(folder: Path) -> Iterator[tuple[str, int, str, int]]:
    """Yield stream, order, method and size of each finished run, those of 224 px first.

    A frozen run alone has nobody to compare with, and no tasks to be read by: it waits for a trained one.
    """
    found = []
    for file in folder.glob("*/record.json"):
        if finished(json.loads(file.read_text(encoding="utf-8"))):
            stream, order, method, size = file.parent.name.split(".")
            found.append((stream, int(order), method, int(size)))
    trained = {(stream, order, size) for stream, order, method, size in found if method not in AT_ONCE}
    for each in sorted(found, key=lambda each: (-each[3], each)):
        stream, order, _, size = each
        if (stream, order, size) in trained:
            yield each


def told(stream: str, method: str) -> dict[str, Any]:
    """Return what a submitter tells: who, under which licence, and what was tuned on which images."""
    if method in UNTUNED:
        tuned = "nothing; its own training images choose the head's penalty"
    else:
        facts = tomllib.loads(STREAMS.read_text())["stream"][stream]
        tuned = "rates and ranks: lw2g's presets for folders, from Caltech-101 and CIFAR-100 at 64 px"
        if facts["role"] == "development":
            tuned += "; a development stream"
        elif "cifar100" in facts["sets"]:
            tuned += "; method and head were chosen on all of CIFAR-100, this stream's half included"
    return {"who": "lw2g", "licence": "CC0-1.0", "tuned_on": tuned, "runs": 1, "hardware": "one CPU core"}


def packed(store: Path) -> set[str]:
    """Return the checksums of the records that a store's packs were made from."""
    files = store.rglob(SUBMISSION)
    return {json.loads(file.read_text(encoding="utf-8"))["original"] for file in files}


def main() -> None:
    """Pack every run that the store does not have."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs of run_cells.py")
    parser.add_argument("--store", type=Path, default=STORE)
    arguments = parser.parse_args()
    catalogue, known = load_catalogue(), packed(arguments.store)
    for stream, order, method, size in runs_of(arguments.runs):
        run = arguments.runs / f"{stream}.{order}.{method}.{size}"
        if sha256_of(run / "record.json") in known:
            continue
        record = read_record(run)
        if protocol_of(arguments.store, record, required=False) is None:
            data = f"{stream}.{order}.{size}" + (".at-once" if method in AT_ONCE else "")
            add_protocol(arguments.store, record, [order], data)
        pack = submit(run, catalogue, arguments.store, told(stream, method))
        print(
            f"{pack.path.relative_to(arguments.store)}: {sum(pack.sizes.values()) / 1e3:.0f} kB", flush=True
        )


if __name__ == "__main__":
    main()
