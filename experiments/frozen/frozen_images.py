"""Tables of what stands in JSON files beside the cells: strangers, squares and shrinkage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from frozen_claims import ROLES, Streams
from frozen_results import HERE, PLAN, Trained, interval

QUARTERS = {
    "lda, probability": "`lda`, per cent",
    "lda, distance": "distance",
    "ridge-12, probability": "`ridge`, 12, per cent",
    "lda-12, probability": "`lda`, 12, per cent",
    "lda-12, distance": "distance, 12 layers",
    "tokens, distance": "distance, 6 class tokens",
}
"""The measures of ``quarters.json``, with what stands above them."""


def quarters(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the table of strangers with each quarter of the classes kept out in turn."""
    found = json.loads((HERE / "quarters.json").read_text(encoding="utf-8"))
    yield f"| strangers refused | {' | '.join(QUARTERS.values())} |"
    yield f"| --- |{' ---: |' * len(QUARTERS)}"
    for role in ROLES:
        for name in PLAN[role]:
            if name in found:
                yield f"| {name} ({role}) | {' | '.join(f'{found[name][key]:.0f}' for key in QUARTERS)} |"


def squares(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what `lda` on the last class token has by how an image becomes a square."""
    found = json.loads((HERE / "resize.json").read_text(encoding="utf-8"))
    yield "| images | shape | squash | crop | crop less squash |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for key in (key for key in found if key.endswith(" squash")):
        stream, shape, _ = key.split()
        if f"{stream} {shape} crop" not in found:
            continue
        right = {way: _bits(found[f"{stream} {shape} {way}"]) for way in ("squash", "crop")}
        apart = right["crop"] - right["squash"]
        low, high = interval([apart])
        shown = f"{100 * apart.mean():+.1f} ({low:+.1f} to {high:+.1f})"
        means = [f"{100 * own.mean():.1f}" for own in right.values()]
        yield f"| {stream} | {shape} | {' | '.join(means)} | {shown} |"


def shrinkage(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what `lda` on the last class token has by its shrinkage."""
    found = json.loads((HERE / "shrinkage.json").read_text(encoding="utf-8"))
    shares = list(next(iter(found.values())))
    yield f"| order 0, `head.lda.shrinkage` | {' | '.join(shares)} | the last less the first |"
    yield f"| --- |{' ---: |' * (len(shares) + 1)}"
    for stream, own in found.items():
        right = {share: _bits(own[share]) for share in shares}
        apart = right[shares[-1]] - right[shares[0]]
        low, high = interval([apart])
        shown = f"{100 * apart.mean():+.1f} ({low:+.1f} to {high:+.1f})"
        yield f"| {stream} | {' | '.join(f'{100 * right[share].mean():.1f}' for share in shares)} | {shown} |"


def _bits(text: str) -> Any:
    return np.array([float(bit) for bit in text])
