"""Store the features of every set of images that a stream is cut from, of the last layer and of twelve.

    nice -n 19 python experiments/frozen/features.py --data DATA --weights FILE --out FEATURES

DATA is what ``experiments/carries/lay_out.py`` has laid out. `lw2g data features` writes ``SET.1.npz`` (the
class token of the last layer) and ``SET.12.npz`` (class tokens and means of patches of the last twelve); all
streams and rows read these. It goes on where it stopped.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

SETS = {
    "trashnet_160.first": (50, 20),
    "gtsrb_32": (60, 40),
    "pacs_128": (60, 20),
    "caltech100_128": (30, 20),
    "cifar100": (50, 20),
    "tinyimagenet200_64": (20, 10),
    "trashnet_160.second": (50, 20),
}
"""The sets, with the training and test images of a class."""
LAYERS = (1, 12)
WIDEST = 12
"""The most layers: six of them are its last columns."""


def command(folder: Path, limits: tuple[int, int], layers: int, weights: Path, out: Path) -> list[str]:
    """Return the command that stores the features of a folder of images."""
    options = {
        "benchmark.root": folder,
        "benchmark.increment": 1,
        "benchmark.train_per_class": limits[0],
        "benchmark.test_per_class": limits[1],
        "benchmark.test_resize": "squash",
        "backbone.model": "vit_tiny_patch16_224",
        "backbone.image_size": 224,
        "backbone.mean": "[0.5, 0.5, 0.5]",
        "backbone.std": "[0.5, 0.5, 0.5]",
        "backbone.layers": layers,
        "run.precision": "bf16-mixed",
        "run.protocol": "like-for-like",
    }
    chosen = [f"--set={key}={value}" for key, value in options.items()]
    named = ["--benchmark=folder", "--backbone=timm", f"--weights={weights}"]
    return ["lw2g", "data", "features", *named, *chosen, f"--out={out}"]


def main() -> None:
    """Store what is not stored yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "weights", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, limits in SETS.items():
        for layers in LAYERS:
            file = arguments.out / f"{name}.{layers}.npz"
            if file.exists():
                continue
            folder = arguments.data / "images" / name
            subprocess.run(command(folder, limits, layers, arguments.weights, file), check=True)


if __name__ == "__main__":
    main()
