"""What the frozen answer loses or gains by reading the middle of each image, as `lw2g start` does.

    nice -n 5 python experiments/frozen/cropped.py --data DATA --weights FILE --features FEATURES

`squash`, which all tables of the study have, reads the whole image. `crop`, lw2g's default, makes the shorter
side 256 pixels and reads the middle 224. All our images are squares, so that both keep their proportions and
differ by what is cut off; ``resize.py`` cuts other shapes. Of order 0 of each stream the frozen answer learns
and is tested on the same images read both ways. Written is ``cropped.json``: the head that was chosen and
which test images are answered rightly. Finished streams are passed over. `cifar-whole`, which has 60,000
images, is left out.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import torch
from features import command, keep_own, write_own
from heads import STREAMS, Images, learned, read
from torch import Tensor

from lw2g.cli.main import main as lw2g
from lw2g.maths.choosing import first_within_error

OUT = Path(__file__).with_name("cropped.json")
ORDERED = (
    *("waste-second", "waste-first", "pacs-art-sketch", "pacs-photo-cartoon", "signs-second", "signs-first"),
    *("turns-small", "tiny", "turns", "cifar-second", "cifar-first", "caltech"),
)
"""The streams, those with few images first."""
WAYS = ("squash", "crop")
OFFERED = ("lda", "ridge-12", "lda-12")
"""What the frozen answer chooses among."""


def store(
    root: Path, limits: tuple[int, int], way: str, weights: Path, out: Path, kept: list[Tensor]
) -> None:
    """Store the features of a stream's images, read in one way: of one layer and of twelve."""
    out.mkdir(parents=True, exist_ok=True)
    own, joined = (out / f"{root.name}.{layers}.npz" for layers in (1, 12))
    if own.exists():
        return
    # half a file would go on, without the class tokens of its first half
    for half in (joined, joined.with_name(f"{joined.name}.part")):
        half.unlink(missing_ok=True)
    kept.clear()
    lw2g(command(root, limits, weights, joined, way), standalone_mode=False)
    write_own(joined, kept, own)


def answered(images: Images) -> dict[str, str]:
    """Return the head that the frozen answer chooses, and which test images it answers rightly."""
    classes = int(images.labels["train"].max()) + 1
    rows = {name: learned(name, images, classes)[1] for name in OFFERED}
    accuracies = [rows[name].accuracy for name in OFFERED]
    takes = OFFERED[first_within_error(accuracies, len(images.left_out))]
    right = rows[takes].scores.argmax(1) == images.labels["test"]
    return {"head": takes, "right": "".join("1" if each else "0" for each in right.tolist())}


def main() -> None:
    """Measure the streams that have not been measured yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "weights", "features"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--streams", nargs="+", default=list(ORDERED), choices=ORDERED, metavar="STREAM")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known = tomllib.loads(STREAMS.read_text())["stream"]
    found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    kept = keep_own()
    for stream in arguments.streams:
        if stream in found:
            continue
        limits = {split: known[stream][f"{split}_per_class"] for split in ("train", "test")}
        root = arguments.data / stream / "0"
        # links, not what they lead to: the features go by their names
        folders = sorted((root / "train").iterdir())
        answers = {}
        for way in WAYS:
            out = arguments.features / "cropped" / stream / way
            store(root, (limits["train"], limits["test"]), way, arguments.weights, out, kept)
            answers[way] = answered(read(folders, out, limits))
        found[stream] = answers
        OUT.write_text(json.dumps(found, indent=1) + "\n")
        shown = {
            way: (own["head"], round(100 * own["right"].count("1") / len(own["right"]), 1))
            for way, own in answers.items()
        }
        print(stream, shown, flush=True)


if __name__ == "__main__":
    main()
