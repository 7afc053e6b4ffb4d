"""Strangers refused where each quarter of the classes is kept out in turn, by several measures (exploratory).

    nice -n 19 python experiments/frozen/quarters.py --streams signs-second --data DATA --features FEATURES

A cell keeps out one quarter, as the hypotheses say, and another quarter may give another share. Here each
class is a stranger once, in order 0. Written is ``quarters.json``: of each stream the mean over quarters of
the refused strangers in per cent at the threshold that accepts 95 % of known test images, by measure.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path

import numpy as np
import torch
from heads import COLUMNS, HEADS, STREAMS, Images, folders_of, learned, read
from torch import Tensor

OUT = Path(__file__).with_name("quarters.json")
ACCEPTED = 0.95
TOKENS = 6
"""Layers whose class tokens are joined without patches."""


def of_tokens(images: Images) -> Images:
    """Return the same images with class tokens of the last layers in place of the last one."""
    half = COLUMNS // 2
    places = [torch.arange(half) + COLUMNS * (12 - TOKENS + layer) for layer in range(TOKENS)]
    columns = torch.cat(places)
    return Images(
        {split: rows[:, columns] for split, rows in images.joined.items()}, images.joined, images.labels
    )


def refused(images: Images, last: Tensor) -> dict[str, float]:
    """Return the strangers that each measure refuses, in per cent.

    Args:
        images: Of all classes.
        last: Those that are strangers.
    """
    every = torch.arange(int(images.labels["train"].max()) + 1)
    known = every[~torch.isin(every, last)]
    found = {}
    for name, own in (
        ("lda", images),
        ("ridge-12", images),
        ("lda-12", images),
        ("tokens", of_tokens(images)),
    ):
        head = "lda" if name == "tokens" else name
        taught, strange = own.of_classes(known), own.of_classes(last)
        model, row = learned(head, taught, len(known))
        features = HEADS[head][1]
        tested = taught.part(features, "test")
        unknown = torch.cat([strange.part(features, split) for split in ("train", "test")])
        if name != "tokens":
            sure = [
                (model.scores(rows, len(known)) / row.temperature).softmax(1).amax(1)
                for rows in (tested, unknown)
            ]
            found[f"{name}, probability"] = _share(*sure)
        if head != "ridge-12":
            found[f"{name}, distance"] = _share(
                model.known(tested, len(known)), model.known(unknown, len(known))
            )
    return found


def _share(known: Tensor, strange: Tensor) -> float:
    threshold = known.quantile(1 - ACCEPTED)
    return 100 * float((strange < threshold).double().mean())


def main() -> None:
    """Measure the streams that are not measured yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", nargs="+", required=True)
    for name in ("--data", "--features"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(OUT.read_text()) if OUT.exists() else {}
    for stream in arguments.streams:
        if stream in found:
            continue
        facts = tomllib.loads(STREAMS.read_text())["stream"][stream]
        limits = {"train": facts["train_per_class"], "test": facts["test_per_class"]}
        images = read(folders_of(arguments.data / stream / "0"), arguments.features, limits)
        classes = int(images.labels["train"].max()) + 1
        quarters = [torch.from_numpy(own) for own in np.array_split(np.arange(classes), 4)]
        shares = [refused(images, quarter) for quarter in quarters]
        found[stream] = {name: round(float(np.mean([own[name] for own in shares])), 2) for name in shares[0]}
        OUT.write_text(json.dumps(found, indent=1) + "\n")
        print(stream, found[stream], flush=True)


if __name__ == "__main__":
    main()
