"""Features of several layers beside those of the last one alone: processor time, in turn, as ratios."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn

from lw2g.vit.backbone import Backbone
from lw2g.vit.loading import plain_model
from lw2g.vit.plain import PLAIN

FORMS: dict[str, dict[str, Any]] = {
    "last layer, class token": {},
    "last layer, class token, again": {},
    "all layers, class tokens": {"layers": "all", "pool": "token"},
    "last layer, mean of patches": {"pool": "avg"},
    "all layers, class tokens and means of patches": {"layers": "all"},
}


def seconds(backbone: Backbone, images: Tensor) -> float:
    """Return the processor time of one forward."""
    began = time.process_time()
    with torch.no_grad(), backbone.joining():
        backbone.features(images)
    return time.process_time() - began


def compare(model: nn.Module, images: Tensor, rounds: int, *, reduced: bool) -> None:
    """Print the median ratio of each form to the first one of its round, and the middle half of ratios."""
    backbones = {}
    for name, options in FORMS.items():
        backbone = Backbone.wrap(model, name=name, **options)
        # as a run in bf16 computes on a CPU
        backbones[name] = backbone.to_bf16().to_onednn() if reduced else backbone
    ratios: dict[str, list[float]] = {name: [] for name in FORMS}
    for _ in range(rounds + 1):
        taken = {name: seconds(backbone, images) for name, backbone in backbones.items()}
        first, *_ = taken.values()
        for name, value in taken.items():
            ratios[name].append(value / first)
    for name, found in ratios.items():
        low, middle, high = statistics.quantiles(found[1:], n=4)  # the first round warms up
        width = backbones[name].width
        print(f"  {middle:.3f} ({low:.3f} to {high:.3f})  {name}, {width:,} numbers")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--architecture", default="vit_tiny_patch16_224", choices=sorted(PLAIN))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=12)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    shape = PLAIN[arguments.architecture]
    side = shape.image_size
    images = torch.randn(arguments.batch, 3, side, side, generator=torch.Generator().manual_seed(0))
    for reduced in (False, True):
        print("bf16" if reduced else "float32")
        made = plain_model(arguments.architecture, shape, seed=0)
        compare(made, images, arguments.rounds, reduced=reduced)
