"""What stands in JSON files beside the cells: strangers, middles, squares and shrinkage."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
from frozen_claims import Streams, names_of
from frozen_results import HERE, PLAN, Difference, Trained, interval
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


def middles(role: str) -> dict[str, Difference]:
    """Return what the frozen answer gains by reading the middle of each image, by stream of a role.

    Whole and cropped images are those of order 0, so that the interval is over test images.
    """
    found = json.loads((HERE / "cropped.json").read_text(encoding="utf-8"))
    return {
        name: _gained(_bits(found[name]["squash"]["right"]), _bits(found[name]["crop"]["right"]))
        for name in names_of(role)
        if name in found
    }


def middles_of_squares() -> dict[str, Difference]:
    """Return what `lda` gains by reading the middle of a 4:3 picture, not the squashed whole, by stream."""
    found = json.loads((HERE / "resize.json").read_text(encoding="utf-8"))
    squashed = " 4:3 squash"
    return {
        name: _gained(_bits(found[f"{name}{squashed}"]), _bits(found[f"{name} 4:3 crop"]))
        for name in (key.removesuffix(squashed) for key in found if key.endswith(squashed))
    }


def _gained(before: Any, after: Any) -> Difference:
    gaps = after - before
    low, high = interval([gaps])
    return Difference(mean=100 * float(gaps.mean()), low=low, high=high, orders=1, images=len(gaps))


def cropped(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what the frozen answer has by whether it reads whole images or their middle, by role."""
    found = json.loads((HERE / "cropped.json").read_text(encoding="utf-8"))
    yield "| order 0 | whole | middle | middle minus whole |"
    yield "| --- | ---: | ---: | ---: |"
    for role in ("report", "development"):
        for name, apart in middles(role).items():
            whole, middle = (
                f"{100 * _bits(found[name][way]['right']).mean():.1f}" for way in ("squash", "crop")
            )
            called = name if role == "report" else f"*{name}*"
            yield f"| {called} | {whole} | {middle} | {apart} |"


def squares(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what `lda` on the last class token has by how a picture of 4:3 becomes a square."""
    found = json.loads((HERE / "resize.json").read_text(encoding="utf-8"))
    yield "| 4:3 | squashed | middle | middle minus squashed |"
    yield "| --- | ---: | ---: | ---: |"
    for stream, gained in middles_of_squares().items():
        means = [f"{100 * _bits(found[f'{stream} 4:3 {way}']).mean():.1f}" for way in ("squash", "crop")]
        yield f"| {stream} | {' | '.join(means)} | {gained} |"


def shrinkage(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield in a sentence what `lda` on the last class token has by its shrinkage."""
    usual, most, gains = by_shrinkage()
    least, best = min(gains, key=gains.__getitem__), max(gains, key=gains.__getitem__)
    told = (
        f"With `head.lda.shrinkage={most}` `lda` on the last class token has {gains[least]:+.1f} ({least}) "
        f"to {gains[best]:+.1f} points ({best}) over the default, {usual} (development streams, order 0, "
        "exploratory)."
    )
    yield from textwrap.wrap(told, WIDTH, break_on_hyphens=False)


def by_shrinkage() -> tuple[str, str, dict[str, float]]:
    """Return the default, the largest shrinkage that was tried, and its points over the default by stream."""
    found = json.loads((HERE / "shrinkage.json").read_text(encoding="utf-8"))
    usual, *_, most = next(iter(found.values()))
    gains = {
        stream: float(100 * (_bits(own[most]) - _bits(own[usual])).mean()) for stream, own in found.items()
    }
    return usual, most, gains


def _bits(text: str) -> Any:
    return np.array([float(bit) for bit in text])
