"""The embedded digits benchmark: 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn."""

from __future__ import annotations

import attrs
import numpy as np
import torch
from sklearn.datasets import load_digits

from lw2g.plugin import IndexArray, TaskStream
from lw2g_benchmarks.options import DigitsConfig, TransformOptions
from lw2g_benchmarks.orders import ordered
from lw2g_benchmarks.recurrence import sizes_of
from lw2g_benchmarks.tasks import ArraySource, LabelledImages, build_stream
from lw2g_benchmarks.transforms import TransformPair, make_transforms

__all__ = ["DigitsBenchmark"]

_CLASSES = 10
_TEST_EVERY = 5


@attrs.frozen
class DigitsBenchmark:
    """Handwritten digits, class-incremental; a default to learn and test with, never a result to publish."""

    config: DigitsConfig = attrs.field(factory=DigitsConfig)

    def stream(self) -> TaskStream:
        """Return the task stream.

        The split is fixed and independent of any generator: in the order of the data set, every fifth sample
        of a class (the 5th, 10th, ...) is a test sample.

        Raises:
            ConfigError: If the increment does not divide 10.
        """
        sizes = sizes_of(self.config, _CLASSES)
        names = [str(digit) for digit in range(_CLASSES)]
        data = load_digits()
        labels = np.asarray(data.target, dtype=np.int64)
        # 0..16 to 0..255, rounded; in integers, so that the pixels are the same everywhere
        grey = (np.asarray(data.images).astype(np.int64) * 255 + 8) // 16
        images = torch.from_numpy(grey.astype(np.uint8))[:, None].expand(-1, 3, -1, -1)
        is_test = _is_test(labels)
        return build_stream(
            name="digits",
            train=_split(images, labels, np.flatnonzero(~is_test)),
            test=_split(images, labels, np.flatnonzero(is_test)),
            class_names=names,
            order=ordered(self.config, names),
            sizes=sizes,
            options=self.config,
        )

    def transforms(self, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> TransformPair:
        """Return bicubic enlargement and normalisation, the same for training and testing."""
        # neither crop nor mirror: strokes reach the border, and a mirrored digit is another sign
        options = TransformOptions(
            normalise=self.config.normalise, train_transform="none", test_resize="squash"
        )
        return make_transforms(options, image_size=image_size, mean=mean, std=std)


def _is_test(labels: IndexArray) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    is_test = np.zeros(len(labels), dtype=np.bool_)
    for digit in range(_CLASSES):
        positions = np.flatnonzero(labels == digit)
        is_test[positions[_TEST_EVERY - 1 :: _TEST_EVERY]] = True
    return is_test


def _split(images: torch.Tensor, labels: IndexArray, rows: IndexArray) -> LabelledImages:
    """Take rows of the data set; ids carry the row number, which does not depend on the split."""
    source = ArraySource(images[torch.from_numpy(rows)], [f"digits/{row}" for row in rows])
    return LabelledImages(source=source, labels=labels[rows])
