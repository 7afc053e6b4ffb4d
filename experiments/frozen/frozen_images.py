"""What stands in JSON files beside the cells: strangers, squares and shrinkage."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
from frozen_claims import Streams
from frozen_results import HERE, PLAN, Trained, interval
from sentences import WIDTH

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
    for name in PLAN["report"]:
        if name in found:
            yield f"| {name} | {' | '.join(f'{found[name][key]:.0f}' for key in QUARTERS)} |"


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
    """Yield in a sentence what `lda` on the last class token has by its shrinkage."""
    found = json.loads((HERE / "shrinkage.json").read_text(encoding="utf-8"))
    shares = list(next(iter(found.values())))
    usual, most = shares[0], shares[-1]
    gains = {stream: 100 * (_bits(own[most]) - _bits(own[usual])).mean() for stream, own in found.items()}
    least, best = min(gains, key=gains.__getitem__), max(gains, key=gains.__getitem__)
    told = (
        f"With `head.lda.shrinkage={most}` `lda` on the last class token has {gains[least]:+.1f} ({least}) "
        f"to {gains[best]:+.1f} points ({best}) over the default, {usual} (development streams, order 0, "
        "exploratory)."
    )
    yield from textwrap.wrap(told, WIDTH, break_on_hyphens=False)


def _bits(text: str) -> Any:
    return np.array([float(bit) for bit in text])
