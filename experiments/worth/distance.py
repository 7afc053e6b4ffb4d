"""Measure how far streams are from what the backbone was trained on, without looking at a label.

    python experiments/worth/distance.py --data DATA --weights FILE

DATA is what ``experiments/carries/lay_out.py`` wrote. The measure is the ``blind`` one of
``hypotheses.toml``; ``distance.json`` beside it gets one number a stream. A stream that is there already is
passed over.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import load_file

HYPOTHESES = Path(__file__).with_name("hypotheses.toml")
FOUND = Path(__file__).with_name("distance.json")
STREAMS = Path(__file__).resolve().parents[1] / "streams.toml"
ORDERS = range(3)


def images_of(stream: Path, limit: int) -> list[Path]:
    """Return the test images of the first orders of a stream, each once."""
    folders = [folder for order in ORDERS for folder in sorted((stream / str(order) / "test").iterdir())]
    own = {file.resolve() for folder in folders for file in sorted(folder.iterdir())[:limit]}
    return sorted(own)


def network_input(file: Path, size: int) -> torch.Tensor:
    """Return an image as the backbone takes it, ``[3, size, size]``: squashed, mean and deviation 0.5."""
    image = Image.open(file).convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.asarray(image, dtype=np.float32) / 255)
    return (pixels.permute(2, 0, 1) - 0.5) / 0.5


@torch.no_grad()
def distance(model: torch.nn.Module, files: list[Path], size: int) -> float:
    """Return 100 times (1 less the mean of the greatest probability) over images."""
    greatest = []
    for start in range(0, len(files), 64):
        batch = torch.stack([network_input(file, size) for file in files[start : start + 64]])
        greatest.append(model(batch).softmax(1).amax(1))
    return 100.0 * (1.0 - float(torch.cat(greatest).mean()))


def main() -> None:
    """Measure the streams that have no number yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    arguments = parser.parse_args()
    plan = tomllib.loads(HYPOTHESES.read_text())
    facts = tomllib.loads(STREAMS.read_text())["stream"]
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False)
    model.load_state_dict(load_file(arguments.weights))
    model.eval()
    found = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    for stream in plan["streams"]:
        if stream not in found:
            files = images_of(arguments.data / stream, facts[stream]["test_per_class"])
            found[stream] = {
                "blind": round(distance(model, files, plan["size"]), 2),
                "images": len(files),
            }
            FOUND.write_text(json.dumps(found, indent=1) + "\n")
            print(stream, found[stream], flush=True)


if __name__ == "__main__":
    main()
