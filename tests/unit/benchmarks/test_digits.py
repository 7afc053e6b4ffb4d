"""The embedded digits benchmark."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from lw2g_benchmarks.digits import DigitsBenchmark
from lw2g_benchmarks.options import DigitsConfig


def test_default_stream():
    """Five tasks of two digits in natural order, 80/20 in each class, all samples used once."""
    stream = DigitsBenchmark().stream()
    assert [task.classes for task in stream.tasks] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert stream.class_names == tuple("0123456789")
    counts = np.bincount(load_digits().target)
    for task in stream.tasks:
        for digit in task.classes:
            assert (task.test.labels == digit).sum() == counts[digit] // 5
            assert (task.train.labels == digit).sum() == counts[digit] - counts[digit] // 5
    ids = [i for task in stream.tasks for data in (task.train, task.test) for i in data.ids]
    assert sorted(ids) == sorted(f"digits/{i}" for i in range(1797))


def test_images_are_the_data_set():
    """Pixels are 0..16 spread over 0..255, equal in the three channels."""
    data, task = load_digits(), DigitsBenchmark().stream().tasks[3]
    for index, label, name in zip(task.test.indices, task.test.labels, task.test.ids, strict=True):
        row = int(name.removeprefix("digits/"))
        image = task.test.source.image(index)
        assert data.target[row] == label
        expected = np.floor(data.images[row] * 255 / 16 + 0.5)
        assert np.array_equal(image.numpy(), np.broadcast_to(expected, (3, 8, 8)))


def test_split_and_content_are_pinned():
    """The split and its content do not depend on the scikit-learn version."""
    fingerprint = DigitsBenchmark().stream().fingerprint
    assert fingerprint == "007997772aff9f1516fcd80a9c854a5c34bd14c2b77ee8bbe409806f820fd1b9"


def test_seeded_order_moves_classes_not_samples():
    """A seeded order renames positions; every sample keeps its split and its digit."""
    natural = DigitsBenchmark().stream()
    seeded = DigitsBenchmark(DigitsConfig(order="seeded", order_seed=1)).stream()
    assert seeded.class_order != natural.class_order

    def digits(stream):
        return {
            name: stream.class_names[label]
            for task in stream.tasks
            for name, label in zip(task.train.ids, task.train.labels, strict=True)
        }

    assert digits(seeded) == digits(natural)


def test_transforms_enlarge_without_augmentation():
    """Digits reach the network size unaugmented, so features of training images can be cached."""
    pair = DigitsBenchmark().transforms(32, (0.5,) * 3, (0.5,) * 3)
    image = DigitsBenchmark().stream().tasks[0].train.source.image(0)
    assert pair.train_is_deterministic
    assert pair.test(image).shape == (3, 32, 32)
    assert torch.equal(pair.train(image), pair.test(image))
