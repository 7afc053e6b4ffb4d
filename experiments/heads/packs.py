"""Pack the finished runs of the table of heads for the store; what is packed already is passed over.

    python experiments/heads/packs.py --runs RUNS

Each set and order is a protocol named after it, such as ``features/like-for-like/caltech.0@1``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from sets import HEADS, ORDERS, SETS

from lw2g.disk.contents import read_record
from lw2g.disk.sealed import sha256_of
from lw2g.registry.catalogue import load_catalogue
from lw2g_store.layout import add_protocol, protocol_of
from lw2g_store.packs import SUBMISSION
from lw2g_store.submit import submit

STORE = Path(__file__).resolve().parents[1] / "store"
TOLD = {
    "who": "lw2g",
    "licence": "CC0-1.0",
    "tuned_on": "nothing; constants are published ones or defaults, penalties are chosen on training images",
    "runs": 1,
    "hardware": "one CPU core",
}


def main() -> None:
    """Pack every run that the store does not have."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs of run_heads.py")
    parser.add_argument("--store", type=Path, default=STORE)
    arguments = parser.parse_args()
    catalogue = load_catalogue()
    files = arguments.store.rglob(SUBMISSION)
    known = {json.loads(file.read_text(encoding="utf-8"))["original"] for file in files}
    for name in SETS:
        for order in ORDERS:
            for head in HEADS:
                run = arguments.runs / f"{name}.{order}.{head}"
                if not (run / "record.json").exists() or sha256_of(run / "record.json") in known:
                    continue
                record = read_record(run)
                if protocol_of(arguments.store, record, required=False) is None:
                    add_protocol(arguments.store, record, [order], f"{name}.{order}")
                pack = submit(run, catalogue, arguments.store, TOLD)
                size = sum(pack.sizes.values()) / 1e3
                print(f"{pack.path.relative_to(arguments.store)}: {size:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
