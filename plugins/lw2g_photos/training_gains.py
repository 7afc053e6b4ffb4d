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

__all__ = ["BANDS", "Gain", "TrainingGain", "band_of", "known_gains", "training_gain"]

BANDS = (70.0, 85.0)
"""Accuracies of `lda` on the last class token, in per cent, that part far, middling and near images."""
_LIKE = 2.0
"""Streams are alike whose images a class differ by this factor at most."""
_ALIKE = "with as many images a class and as hard"
_PAGE = "docs/worth.md"
"""The page that says of each experiment all that is known."""
_CONTROL = "lw2g run --recommended"
"""The control of the gains: runs that choose a head after each task and train nothing."""


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
    """What training added on streams that are alike.

    Attributes:
        least: The smallest gain of a stream, in points; negative where training ended lower.
        most: The largest.
        streams: The number of streams.
        sure: On how many of them the 95 % interval leaves zero out.
        chosen: How many of them have images of the data set on which the trained method was chosen.
        chosen_on: That data set; empty where none has.
    """

    least: float
    most: float
    streams: int
    sure: int
    chosen: int = 0
    chosen_on: str = ""

    @property
    def ended(self) -> str:
        """Where the trained method ended, beside the control over which its gains were measured.

        >>> TrainingGain(least=0.5, most=0.5, streams=1, sure=0).ended
        '0.5 points above lw2g run --recommended'
        """
        return f"{_span(round(self.least, 1), round(self.most, 1))} {_CONTROL}"

    @property
    def rests_on(self) -> str:
        """The experiments, with what weighs most against them; the page has the rest.

        >>> TrainingGain(least=0.5, most=0.5, streams=1, sure=0).rests_on.partition(" (")[2]
        'its interval includes 0; docs/worth.md)'
        """
        is_one = self.streams == 1
        which = f"{'the one experiment' if is_one else f'{self.streams} experiments'} {_ALIKE}"
        if self.chosen:  # what is reported of images of a choice is no finding of its own
            doubt = f"the method was chosen on images of {'it' if is_one else f'{self.chosen} of them'}"
        elif is_one:
            doubt = f"its interval {'excludes' if self.sure else 'includes'} 0"
        else:
            doubt = f"in {self.sure or 'none'} the interval excludes 0"
        return f"{which} ({doubt}; {_PAGE})"


def _span(least: float, most: float) -> str:
    """Return in words how far accuracies end from another one.

    >>> _span(-0.0, 0.0), _span(0.2, 1.0), _span(-1.0, 0.2), _span(-3.0, -1.0)
    ('level with', '0.2 to 1.0 points above', '1.0 points below to 0.2 above', '3.0 to 1.0 points below')
    """
    if least == most == 0:
        return "level with"
    if least < 0 < most:
        return f"{-least:.1f} points below to {most:.1f} above"
    side = "above" if most > 0 else "below"
    ends = dict.fromkeys(f"{abs(end):.1f}" for end in (least, most))
    return f"{' to '.join(ends)} points {side}"


@lru_cache(maxsize=1)
def known_gains() -> tuple[Gain, ...]:
    """Return the streams that are known, of ViT-Tiny at 224 pixels."""
    text = files("lw2g_photos").joinpath("training_gains.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return tuple(Gain(**row) for row in rows)


def band_of(accuracy: float) -> int:
    """Return how near images are by the accuracy of `lda` in per cent: 0 far, 1 middling, 2 near."""
    return sum(accuracy >= edge for edge in BANDS)


def training_gain(images: float, accuracy: float, known: Sequence[Gain] | None = None) -> TrainingGain | None:
    """Return what training added on streams like a user's data; None where none is alike.

    Args:
        images: Training images a class.
        accuracy: Right answers of `lda` on the last class token, in per cent, of images that it has not
            learned.
        known: Streams to look among; by default those of :func:`known_gains`.
    """
    alike = []
    for one in known_gains() if known is None else known:
        close = one.images <= _LIKE * images and images <= _LIKE * one.images
        if close and band_of(one.lda) == band_of(accuracy):
            alike.append(one)
    if not alike:
        return None
    gains = [one.gain for one in alike]
    sure = sum(one.low > 0 or one.high < 0 for one in alike)
    chosen_on = [one.chosen_on for one in alike if one.chosen_on]
    return TrainingGain(
        least=min(gains),
        most=max(gains),
        streams=len(alike),
        sure=sure,
        chosen=len(chosen_on),
        chosen_on=", ".join(dict.fromkeys(chosen_on)),
    )
