"""What training added on streams like a user's data: a table, read as it is."""

from __future__ import annotations

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
    assert (
        str(training_gain(20, 95, known))
        == "between 1.0 points below and 0.5 points above such a model in 2 experiments with about as many "
        "images a class and about as easy for lda, none of them beyond chance"
    )
    one = str(training_gain(20, 84, known))
    assert one.startswith(
        "7.0 points above such a model in the one experiment with about as many images a class"
    )
    assert one.endswith("lda, beyond chance")


def test_the_file_holds_streams_near_and_far() -> None:
    """Every row has its mean within its interval, and far streams of many images are known."""
    rows = known_gains()
    assert all(row.low <= row.gain <= row.high for row in rows)
    far = training_gain(60, 50)
    assert far is not None
    assert far.least < 0 < far.most, "training on the first task gains on some of them and loses on others"
    assert far.streams > 1
