"""Pack the finished runs of the study for the store; what is packed already is passed over.

    python experiments/frozen/packs.py --runs RUNS --hardware "one GPU of ..."

So is a run whose row and order have a pack of another run, which is said: tables have one a cell. Each
stream and order is a protocol named after it, such as ``folder/like-for-like/signs-first.0.224@1``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "carries"))

from cell import STREAMS, finished
from frozen_results import METHODS
from stream_tables import runs_of

from lw2g.disk.contents import read_record
from lw2g.disk.sealed import sha256_of
from lw2g.registry.catalogue import load_catalogue
from lw2g_store.layout import add_protocol, protocol_of
from lw2g_store.packs import SUBMISSION
from lw2g_store.stored import stored_runs
from lw2g_store.submit import submit

STORE = Path(__file__).resolve().parents[1] / "store"


UNTRAINED = {
    "lda": "nothing",
    "frozen-answer": "nothing trained; the training images choose the head, layers and their form: tuning.md",
}
"""Methods on frozen features, with what was tuned of them."""
HARDWARE = "one CPU core of a busy machine"


def told(stream: str, method: str, hardware: str = HARDWARE) -> dict[str, Any]:
    """Return what a submitter tells: who, under which licence, and what was tuned on which images."""
    facts = tomllib.loads(STREAMS.read_text())["stream"][stream]
    tuned = "rates and ranks: lw2g's presets for folders, from Caltech-101 and CIFAR-100 at 64 px"
    if method in UNTRAINED:
        tuned = UNTRAINED[method]
    elif "cifar-whole" in (stream, facts.get("orders_of")):
        tuned += "; slca-plus-plus was chosen on all of it, layers were looked at on it, "
        tuned += "and its first half chose method and head"
    elif facts["role"] in ("development", "surface"):
        tuned += "; a development stream"
        if "cifar100" in facts["sets"]:
            tuned += ", of the set on which method and head were chosen"
    elif "cifar100" in facts["sets"]:
        tuned += "; method and head were chosen on all of CIFAR-100, this stream's half included"
    return {"who": "lw2g", "licence": "CC0-1.0", "tuned_on": tuned, "runs": 1, "hardware": hardware}


def main() -> None:
    """Pack every run that the store does not have."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs of train.py")
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--hardware", default=HARDWARE, help="what the runs ran on")
    arguments = parser.parse_args()
    catalogue = load_catalogue()
    packed = {
        (run.stream, run.order, run.method, run.size)
        for run in runs_of(arguments.store, stored_runs(arguments.store, catalogue))
    }
    files = arguments.store.rglob(SUBMISSION)
    known = {json.loads(file.read_text(encoding="utf-8"))["original"] for file in files}
    for file in sorted(arguments.runs.glob("*/record.json")):
        if not finished(json.loads(file.read_text())) or sha256_of(file) in known:
            continue
        stream, order, method, size = file.parent.name.split(".")
        if (stream, int(order), METHODS.get(method), int(size)) in packed:
            print(f"{file.parent.name}: this row has a pack of this order", flush=True)
            continue
        record = read_record(file.parent)
        if protocol_of(arguments.store, record, required=False) is None:
            add_protocol(arguments.store, record, [int(order)], f"{stream}.{order}.{size}")
        pack = submit(file.parent, catalogue, arguments.store, told(stream, method, arguments.hardware))
        print(
            f"{pack.path.relative_to(arguments.store)}: {sum(pack.sizes.values()) / 1e3:.0f} kB", flush=True
        )


if __name__ == "__main__":
    main()
