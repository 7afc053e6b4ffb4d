"""What `lda` on the last class token has by its shrinkage, on development streams (exploratory).

    python experiments/frozen/shrinkage.py --data DATA --features FEATURES

Written is ``shrinkage.json``: which test images are found, by stream and shrinkage.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path

import torch
from heads import STREAMS, folders_of, read

from lw2g.blocks.discriminants import Discriminant

OUT = Path(__file__).with_name("shrinkage.json")
SHARES = (0.01, 0.1, 0.3)
"""lw2g's default, and two more."""


def main() -> None:
    """Measure all development streams whose features are stored, order 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--data", "--features"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--streams", nargs="+", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, str]] = {}
    for stream in arguments.streams:
        facts = tomllib.loads(STREAMS.read_text())["stream"][stream]
        limits = {"train": facts["train_per_class"], "test": facts["test_per_class"]}
        images = read(folders_of(arguments.data / stream / "0"), arguments.features, limits)
        classes = int(images.labels["train"].max()) + 1
        found[stream] = {}
        for share in SHARES:
            head = Discriminant(images.own["train"].shape[1], classes, share)
            head.update(images.own["train"], images.labels["train"])
            right = head.scores(images.own["test"], classes).argmax(1) == images.labels["test"]
            found[stream][str(share)] = "".join("1" if each else "0" for each in right.tolist())
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
