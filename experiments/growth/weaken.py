"""Weights of a ViT that uses its first blocks alone: features as weak as those of fewer pre-trained layers.

    python experiments/growth/weaken.py WEIGHTS.safetensors OUT.safetensors --keep 6

What the later blocks add to the residual stream is a millionth of what it was, so that they pass everything
on (all zero would be refused as damaged); sites, shapes and costs stay what they are.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from safetensors.torch import load_file, save_file

_ADDED = re.compile(r"blocks\.(\d+)\.(?:attn\.proj|mlp\.fc2)\.(?:weight|bias)")


def main() -> None:
    """Write the weights."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--keep", type=int, default=6, help="blocks that stay as they are (6)")
    arguments = parser.parse_args()
    tensors = load_file(arguments.weights)
    muted = [name for name in tensors if (at := _ADDED.fullmatch(name)) and int(at[1]) >= arguments.keep]
    for name in muted:
        tensors[name] = 1e-6 * tensors[name]
    save_file(tensors, arguments.out)
    print(
        f"{len(muted)} tensors of the blocks from {arguments.keep} on add next to nothing in {arguments.out}"
    )


if __name__ == "__main__":
    main()
