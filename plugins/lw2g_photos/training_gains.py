"""What training added to the frozen answer on streams like a user's photographs.

``training_gains.json`` is written by ``experiments/frozen/frozen_gains.py`` from the packs of the store.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

import attrs

__all__ = ["Gain", "TrainingGain", "known_gains", "training_gain"]

_LIKE = 2.0
"""Streams are alike whose images a class differ by this factor at most."""
_PAGE = "docs/worth.md"
"""The page that says of each experiment all that is known."""


@attrs.frozen(kw_only=True)
class Gain:
    """What training added on a stream.

    Attributes:
        stream: The stream.
        images: Training images a class.
        lda: Right answers of `lda` on the last class token, in per cent.
        gain: Right answers of the trained method less those of the frozen answer, in points.
        low: Lower end of its 95 % interval.
        high: Upper end.
        orders: Orders of tasks, or draws, that it rests on.
        chosen_on: The data set, if any, that has images of the stream and on which the trained method was
            chosen.
    """

    stream: str
    images: int
    lda: float
    gain: float
    low: float
    high: float
    orders: int
    chosen_on: str = ""


@attrs.frozen(kw_only=True)
class TrainingGain:
    """What training added on streams with as many images a class.

    Attributes:
        least: The smallest gain of a stream, in points; negative where training ended lower.
        most: The largest.
        streams: The number of streams.
        above: On how many of them training is clearly better: the 95 % interval lies above zero.
        below: On how many it is clearly worse.
        chosen: How many of those above have images of the data set on which the trained method was chosen.
    """

    least: float
    most: float
    streams: int
    above: int = 0
    below: int = 0
    chosen: int = 0

    @property
    def advised(self) -> bool:
        """Whether training is worth a try: it gained clearly on more streams than it lost on."""
        return self.above > self.below

    @property
    def words(self) -> str:
        """Whether training may help, and then on how many streams it gained or lost; the page has the rest.

        >>> TrainingGain(least=0.5, most=2.0, streams=2, above=1).words
        'training the backbone may help: 1 of our 2 experiments with about as many images a class gained \
clearly (+0.5 to +2.0 points; docs/worth.md)'
        >>> TrainingGain(least=-1.0, most=2.0, streams=2, above=1, below=1).words
        'training the backbone: no clear gain to expect (docs/worth.md)'
        """
        if not self.advised:  # counts would help nobody who has nothing to try
            return f"training the backbone: no clear gain to expect ({_PAGE})"
        experiments = "one experiment" if self.streams == 1 else f"{self.streams} experiments"
        like = f"our {experiments} with about as many images a class"
        which = like if self.streams == 1 else f"{self.above} of {like}"
        words = f"{which} gained clearly"
        if self.chosen:  # what is reported of images of a choice is no finding of its own
            words += f" (the method was chosen on images of {self.chosen})"
        if self.below:
            words += f", {self.below} lost"
        ends = dict.fromkeys(f"{round(end, 1) + 0:+.1f}" for end in (self.least, self.most))
        return f"training the backbone may help: {words} ({' to '.join(ends)} points; {_PAGE})"


@lru_cache(maxsize=1)
def known_gains() -> tuple[Gain, ...]:
    """Return the streams that are known, of ViT-Tiny at 224 pixels."""
    text = files("lw2g_photos").joinpath("training_gains.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return tuple(Gain(**row) for row in rows)


def training_gain(images: float, known: Sequence[Gain] | None = None) -> TrainingGain | None:
    """Return what training added on streams with as many images a class; None where no stream has.

    Args:
        images: Training images a class.
        known: Streams to look among; by default those of :func:`known_gains`.
    """
    alike = []
    for one in known_gains() if known is None else known:
        if one.images <= _LIKE * images and images <= _LIKE * one.images:
            alike.append(one)
    if not alike:
        return None
    above = [one for one in alike if one.low > 0]
    return TrainingGain(
        least=min(one.gain for one in alike),
        most=max(one.gain for one in alike),
        streams=len(alike),
        above=len(above),
        below=sum(one.high < 0 for one in alike),
        chosen=sum(bool(one.chosen_on) for one in above),
    )
