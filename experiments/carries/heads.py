"""Run the heads in closed form on frozen features with one forward an image for all of them.

    python experiments/carries/heads.py --streams pacs-art-sketch --orders 0 1 2
        --data DATA --weights FILE --runs RUNS [--heads cosine klda]

The runs are those of ``lw2g run``, to the bit: the batches of an order are the same for each head, so that
their features are. Their seconds are not those of a run alone. It goes on where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from cell import command, finished

from lw2g.cli.main import main as lw2g
from lw2g.vit.backbone import Backbone

HEADS = ("cosine", "mahalanobis", "klda", "ridge", "ranpac-frozen")
Features = dict[tuple[str, bool, bool], torch.Tensor]
"""Features of batches: by content, with the final norm or not, in bf16 or not."""


def remember_features() -> Features:
    """Make the backbone keep the bare features of each batch, and return what it keeps."""
    known: Features = {}
    compute = Backbone._features

    def features(self: Backbone, images: torch.Tensor, injections: Any, *, norm: bool) -> torch.Tensor:
        if injections:
            return compute(self, images, injections, norm=norm)
        content = hashlib.sha256(images.numpy().tobytes()).hexdigest()
        key = (content, norm, torch.is_autocast_enabled("cpu"))
        if key not in known:
            known[key] = compute(self, images, injections, norm=norm)
        return known[key].clone()

    Backbone._features = features  # type: ignore[method-assign]
    return known


def main() -> None:
    """Run what has not been run yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", nargs="+", required=True)
    parser.add_argument("--orders", nargs="+", type=int, required=True)
    parser.add_argument("--heads", nargs="+", default=HEADS)
    parser.add_argument("--size", type=int, default=224)
    for name in ("--data", "--weights", "--runs"):
        parser.add_argument(name, type=Path, required=True)
    arguments = parser.parse_args()
    known = remember_features()
    for stream in arguments.streams:
        for order in arguments.orders:
            for head in arguments.heads:
                run = arguments.runs / f"{stream}.{order}.{head}.{arguments.size}"
                facts = (stream, order, head, arguments.size, arguments.data, arguments.weights, run)
                record = run / "record.json"
                if not record.exists():
                    lw2g(command(*facts)[1:], standalone_mode=False)
                metrics = json.loads(record.read_text())
                ends = metrics["metrics"]["faa"] if finished(metrics) else "not finished"
                print(f"{run.name}: {ends}, {len(known)} batches known", flush=True)
            known.clear()


if __name__ == "__main__":
    main()
