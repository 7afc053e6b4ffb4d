"""What training added on streams like a user's data: a table, read as it is."""

from __future__ import annotations

import attrs
import pytest

from lw2g_photos.training_gains import Gain, TrainingGain, known_gains, training_gain


def stream(images: int, lda: float, gain: float) -> Gain:
    """A stream by what is looked at."""
    return Gain(stream="any", images=images, lda=lda, gain=gain, low=gain - 1, high=gain + 1, orders=1)


def test_streams_are_alike_by_images_and_by_accuracy() -> None:
    """A factor of two of images, the same band of accuracy, edges included; None where there is none."""
    known = [stream(20, 90, -1.0), stream(40, 85, 0.5), stream(41, 99, 9.0), stream(20, 84.9, 7.0)]
    assert training_gain(20, 95, known) == TrainingGain(least=-1.0, most=0.5, streams=2, sure=0)
    assert training_gain(10, 85, known) == TrainingGain(least=-1.0, most=-1.0, streams=1, sure=0)
    assert training_gain(20, 70, known) == TrainingGain(least=7.0, most=7.0, streams=1, sure=1)
    assert training_gain(20, 69.9, known) is None
    assert training_gain(9, 90, known) is None
    several, one = training_gain(20, 95, known), training_gain(20, 84, known)
    assert several is not None
    assert one is not None
    alike = "with as many images a class and as hard"
    assert several.ended == "1.0 points below to 0.5 above lw2g run --recommended"
    assert several.rests_on == f"2 experiments {alike} (in none the interval excludes 0; docs/worth.md)"
    assert one.ended == "7.0 points above lw2g run --recommended"
    assert one.rests_on == f"the one experiment {alike} (its interval excludes 0; docs/worth.md)"


@pytest.mark.parametrize(
    ("chosen_on", "words"),
    [
        (["", ""], "in none the interval excludes 0"),
        (["CIFAR-100"], "the method was chosen on images of it"),
        (["", "CIFAR-100", "CIFAR-100"], "the method was chosen on images of 2 of them"),
    ],
)
def test_streams_on_which_the_method_was_chosen_are_told(chosen_on: list[str], words: str) -> None:
    """What is reported of images of a choice is no finding of its own."""
    known = [attrs.evolve(stream(20, 90, 1.0), chosen_on=one) for one in chosen_on]
    found = training_gain(20, 90, known)
    assert found is not None
    assert found.rests_on.partition(" (")[2] == f"{words}; docs/worth.md)"


@pytest.mark.parametrize(
    ("least", "most", "words"),
    [
        (0.2, 1.0, "0.2 to 1.0 points above"),
        (-1.0, -0.2, "1.0 to 0.2 points below"),
        (-1.0, 0.2, "1.0 points below to 0.2 above"),
        (0.51, 0.54, "0.5 points above"),
        (-0.04, 0.04, "level with"),
        (-0.5, 0.01, "0.5 to 0.0 points below"),
    ],
)
def test_a_span_has_one_sign_where_its_ends_have_one(least: float, most: float, words: str) -> None:
    """As printed: ends of one sign share a word, and ends that look alike are one."""
    found = TrainingGain(least=least, most=most, streams=2, sure=0)
    assert found.ended == f"{words} lw2g run --recommended"


def test_the_file_holds_streams_near_and_far() -> None:
    """Every row has its mean within its interval, and far streams of many images are known."""
    rows = known_gains()
    assert all(row.low <= row.gain <= row.high for row in rows)
    on_cifar = {"cifar-first", "cifar-second", "cifar-whole", "turns", "turns-small"}
    on_cifar |= {f"few-cifar-{count}" for count in ("five", "ten", "twenty")}
    assert {row.stream for row in rows if row.chosen_on == "CIFAR-100"} == on_cifar
    far = training_gain(60, 50)
    assert far is not None
    assert far.least < 0 < far.most, "training on the first task gains on some of them and loses on others"
    assert far.streams > 1
