"""Store the features of every set of images that a stream is cut from: of one forward, one layer and twelve.

    nice -n 19 python experiments/frozen/features.py --data DATA --weights FILE --out FEATURES

DATA is what ``experiments/carries/lay_out.py`` has laid out. `lw2g data features` writes ``SET.12.npz``
(class tokens and means of patches of the last twelve layers); the class tokens of the last one, as a file of
one layer has them, are kept as they pass and go into ``SET.1.npz``. All streams and rows read these. Finished
sets are passed over.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from lw2g.cli.main import main as lw2g
from lw2g.vit.joined import JoinedLayers

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
LAYERS = 12
"""Layers that are joined: six of them are the last columns."""


def command(
    folder: Path, limits: tuple[int, int], weights: Path, out: Path, resize: str = "squash"
) -> list[str]:
    """Return the command that stores the features of a folder of images."""
    options = {
        "benchmark.root": folder,
        "benchmark.increment": 1,
        "benchmark.train_per_class": limits[0],
        "benchmark.test_per_class": limits[1],
        "benchmark.test_resize": resize,
        "backbone.model": "vit_tiny_patch16_224",
        "backbone.image_size": 224,
        "backbone.mean": "[0.5, 0.5, 0.5]",
        "backbone.std": "[0.5, 0.5, 0.5]",
        "backbone.layers": LAYERS,
        "run.precision": "bf16-mixed",
        "run.protocol": "like-for-like",
    }
    chosen = [f"--set={key}={value}" for key, value in options.items()]
    named = ["--benchmark=folder", "--backbone=timm", f"--weights={weights}"]
    return ["data", "features", *named, *chosen, f"--out={out}"]


def keep_own() -> list[Tensor]:
    """Keep the last class token of every batch from now on, and return what keeps them."""
    kept: list[Tensor] = []
    take = JoinedLayers.features

    def features(self: JoinedLayers, x: Tensor, norm: nn.Module | None = None) -> Tensor:
        # a row of a norm does not depend on the others
        kept.append(self._model.fc_norm(self._model.norm(x[:, 0])).float())
        return take(self, x, norm)

    JoinedLayers.features = features  # type: ignore[method-assign]
    return kept


def write_own(joined: Path, kept: list[Tensor], out: Path) -> None:
    """Write the last class tokens of the images of a file of joined features."""
    stored = dict(np.load(joined))
    count = len(stored["train_x"])
    # the last batch of a split is filled up
    batches = -(-count // len(kept[0]))
    own = {
        "train_x": torch.cat(kept[:batches])[:count].numpy(),
        "test_x": torch.cat(kept[batches:])[: len(stored["test_x"])].numpy(),
    }
    for split, rows in own.items():
        width = rows.shape[1]
        unit = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
        if np.abs(unit - stored[split][:, -2 * width : -width]).max() > 1e-3:
            raise SystemExit(
                f"{joined}: the class tokens that were kept are not those of its images; remove it"
            )
    stored.pop("metadata")  # of other layers
    np.savez(out, **{**stored, **own})


def main() -> None:
    """Store what is not stored yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("data", "weights", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS), metavar="SET")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept = keep_own()
    for name in arguments.sets:
        own, joined = (arguments.out / f"{name}.{layers}.npz" for layers in (1, LAYERS))
        if own.exists():
            continue
        # half a file would go on, without the class tokens of its first half
        for half in (joined, joined.with_name(f"{joined.name}.part")):
            half.unlink(missing_ok=True)
        kept.clear()
        folder = arguments.data / "images" / name
        lw2g(command(folder, SETS[name], arguments.weights, joined), standalone_mode=False)
        write_own(joined, kept, own)


if __name__ == "__main__":
    main()
