"""What `lda` on the last class token loses or gains by how an image becomes a square, on development streams.

    nice -n 19 python experiments/frozen/resize.py --data DATA --weights FILE --features FEATURES

`crop`, lw2g's default, takes the middle of the image: its shorter side becomes 256 pixels, of which 224 are
read. `squash` reads all of it, whatever its shape. All our sets are squares, so pictures of 4:3 are cut from
them: the middle rows, and in turn the middle columns. Written is ``resize.json``; finished lines are passed
over.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from heads import folders_of, learned_lda
from PIL import Image

OUT = Path(__file__).with_name("resize.json")
STREAMS = {
    "waste-first": (50, 20, ("1:1", "4:3")),
    "pacs-photo-cartoon": (60, 20, ("1:1", "4:3")),
    "signs-first": (30, 20, ("1:1",)),
    "caltech": (10, 5, ("1:1", "4:3")),
}
"""By stream: images of a class for training and test, and the shapes that are tried."""
WAYS = ("squash", "crop")


def cut(folders: list[Path], shape: str, limits: dict[str, int], out: Path) -> None:
    """Write the first images of each class in a shape; every second one lies, the others stand."""
    for position, folder in enumerate(folders):
        for split, limit in limits.items():
            own = out / split / f"{position:03d}"
            own.mkdir(parents=True, exist_ok=True)
            files = sorted((folder.parents[1] / split / folder.name).iterdir())[:limit]
            for place, file in enumerate(files):
                image = Image.open(file).convert("RGB")
                if shape == "4:3":
                    side = image.width
                    edge = side // 8
                    lying = (0, edge, side, side - edge)
                    standing = (edge, 0, side - edge, side)
                    image = image.crop(standing if place % 2 else lying)
                image.save(own / file.name)


def measured(root: Path, way: str, weights: Path, out: Path) -> list[bool]:
    """Return which test images `lda` answers rightly, the features being those of `lw2g data features`."""
    chosen = [
        f"--set=benchmark.root={root}",
        "--set=benchmark.increment=1",
        f"--set=benchmark.test_resize={way}",
        "--set=backbone.model=vit_tiny_patch16_224",
        "--set=backbone.image_size=224",
        "--set=backbone.mean=[0.5, 0.5, 0.5]",
        "--set=backbone.std=[0.5, 0.5, 0.5]",
        "--set=run.precision=bf16-mixed",
        "--set=run.protocol=like-for-like",
    ]
    named = ["--benchmark=folder", "--backbone=timm", f"--weights={weights}"]
    subprocess.run(["lw2g", "data", "features", *named, *chosen, f"--out={out}"], check=True)
    with np.load(out) as stored:
        train, test = (torch.from_numpy(stored[f"{split}_x"]).double() for split in ("train", "test"))
        labels, true = (torch.from_numpy(stored[f"{split}_y"]) for split in ("train", "test"))
    right: list[bool] = (
        learned_lda(train, labels).scores(test, int(labels.max()) + 1).argmax(1) == true
    ).tolist()
    return right


def main() -> None:
    """Measure what has not been measured yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "weights", "features"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    for stream, (train, test, shapes) in STREAMS.items():
        folders = folders_of(arguments.data / stream / "0")
        for shape in shapes:
            root = arguments.data / "shapes" / f"{stream}.{shape.replace(':', '-')}"
            for way in WAYS:
                key = f"{stream} {shape} {way}"
                if key in found:
                    continue
                cut(folders, shape, {"train": train, "test": test}, root)
                file = arguments.features / f"{root.name}.{way}.npz"
                right = measured(root, way, arguments.weights, file)
                found[key] = "".join("1" if each else "0" for each in right)
                OUT.write_text(json.dumps(found, indent=1) + "\n")
                print(f"{key}: {100 * np.mean(right):.1f}", flush=True)


if __name__ == "__main__":
    main()
