"""What training added on streams like a user's data: a table, read as it is."""

from __future__ import annotations

import pytest

from lw2g_photos.training_gains import Gain, TrainingGain, known_gains, training_gain


def stream(images: int, gain: float, *, chosen_on: str = "") -> Gain:
    """A stream by what is looked at; its interval reaches a point to either side."""
    ends = {"gain": gain, "low": gain - 1, "high": gain + 1}
    return Gain(stream="any", images=images, lda=70.0, orders=1, chosen_on=chosen_on, **ends)


def test_streams_are_alike_by_images_a_class() -> None:
    """A factor of two, edges included, whatever the accuracy; None where there is none."""
    known = [stream(20, -1.5), stream(40, 0.5), stream(41, 9.0)]
    assert training_gain(20, known) == TrainingGain(least=-1.5, most=0.5, streams=2, below=1)
    assert training_gain(10, known) == TrainingGain(least=-1.5, most=-1.5, streams=1, below=1)
    assert training_gain(21, known) == TrainingGain(least=-1.5, most=9.0, streams=3, above=1, below=1)
    assert training_gain(9, known) is None
    assert training_gain(83, known) is None


def test_gains_and_losses_are_one_sentence() -> None:
    """Clear ones are counted on both sides; a gain on images of the choice is no finding of its own."""
    known = [stream(20, -1.5), stream(20, 3.0, chosen_on="CIFAR-100"), stream(20, 2.0)]
    known.append(stream(20, 0.5, chosen_on="CIFAR-100"))
    found = training_gain(20, known)
    assert found is not None
    assert found.advised
    assert found.words == (
        "training the backbone may help: 2 of our 4 experiments with about as many images a class gained "
        "clearly (the method was chosen on images of 1), 1 lost (-1.5 to +3.0 points; docs/worth.md)"
    )


def test_one_experiment_has_no_number() -> None:
    """Of one stream that gained."""
    found = TrainingGain(least=2.5, most=2.5, streams=1, above=1)
    which = "our one experiment with about as many images a class gained clearly"
    assert found.words == f"training the backbone may help: {which} (+2.5 points; docs/worth.md)"


@pytest.mark.parametrize(("above", "below", "streams"), [(1, 1, 12), (0, 0, 1), (0, 2, 4), (1, 2, 4)])
def test_no_advice_is_a_short_line(above: int, below: int, streams: int) -> None:
    """Where no more gained than lost there is nothing to try: a verdict, and the page for the rest."""
    found = TrainingGain(least=-1.0, most=2.5, streams=streams, above=above, below=below)
    assert not found.advised
    assert found.words == "training the backbone: no clear gain to expect (docs/worth.md)"


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [(-1.0, 0.2, "-1.0 to +0.2"), (0.51, 0.54, "+0.5"), (-0.04, 0.04, "+0.0"), (-0.5, -0.01, "-0.5 to +0.0")],
)
def test_ends_that_look_alike_are_one(least: float, most: float, words: str) -> None:
    """And nothing is zero with a minus."""
    found = TrainingGain(least=least, most=most, streams=2, above=1)
    assert found.words.endswith(f" gained clearly ({words} points; docs/worth.md)")


def test_the_file_holds_streams_near_and_far() -> None:
    """Every row has its mean within its interval, and far streams of many images are known."""
    rows = known_gains()
    assert all(row.low <= row.gain <= row.high for row in rows)
    on_cifar = {"cifar-first", "cifar-second", "cifar-whole", "turns", "turns-small"}
    on_cifar |= {f"few-cifar-{count}" for count in ("five", "ten", "twenty")}
    assert {row.stream for row in rows if row.chosen_on == "CIFAR-100"} == on_cifar
    far = training_gain(60)
    assert far is not None
    assert far.least < 0 < far.most, "training on the first task gains on some of them and loses on others"
    assert far.above
    assert far.below
    few = training_gain(20)
    assert few is not None
    assert not few.above, "lw2g start would advise to train where no gain was clear"
