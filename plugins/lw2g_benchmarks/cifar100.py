"""Split CIFAR-100, Inc10Task10 unless told otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import numpy as np
import torch
from torchvision.datasets import CIFAR100

from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.stream import TaskStream
from lw2g_benchmarks.options import ROOT_VARIABLE, Cifar100Config
from lw2g_benchmarks.orders import class_order, task_sizes
from lw2g_benchmarks.tasks import ArraySource, LabelledImages, build_stream
from lw2g_benchmarks.transforms import TransformPair, make_transforms

__all__ = [
    "ARCHIVE_MD5",
    "Cifar100Benchmark",
]

ARCHIVE_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"
_CLASSES = 100
_PER_CLASS = {"train": 500, "test": 100}


@attrs.frozen
class Cifar100Benchmark:
    """CIFAR-100 (fine labels), class-incremental."""

    config: Cifar100Config = attrs.field(factory=Cifar100Config)

    def stream(self) -> TaskStream:
        """Load CIFAR-100 and return the task stream.

        Raises:
            ConfigError: If no root is known or the increment does not divide 100.
            DataError: If the data are missing, altered or incomplete.
        """
        config = self.config
        sizes = task_sizes(_CLASSES, config.increment)
        root = self._root()
        train, names = _load(root, "train", config.download)
        test, _ = _load(root, "test", config.download)
        return build_stream(
            name="cifar100",
            train=train,
            test=test,
            class_names=names,
            order=class_order(config.order, _CLASSES, config.order_seed),
            sizes=sizes,
        )

    def transforms(self, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> TransformPair:
        """Return the configured transforms."""
        return make_transforms(self.config, image_size=image_size, mean=mean, std=std)

    def _root(self) -> Path:
        root = self.config.root or os.environ.get(ROOT_VARIABLE, "")
        if not root:
            raise ConfigError(
                f"benchmark 'cifar100' does not know where its data are; set 'root' or the environment "
                f"variable {ROOT_VARIABLE} to the folder that holds cifar-100-python/"
            )
        return Path(root).expanduser()


def _load(root: Path, split: str, download: bool) -> tuple[LabelledImages, list[str]]:
    """Return one split and the class names.

    Raises:
        DataError: If torchvision finds no intact copy, or the counts are not the official ones.
    """
    try:
        data = CIFAR100(str(root), train=split == "train", download=download)
    except (RuntimeError, OSError) as error:  # torchvision reports missing and altered files as RuntimeError
        raise DataError(_missing(root, error)) from error
    labels = np.asarray(data.targets, dtype=np.int64)
    counts = np.bincount(labels, minlength=_CLASSES)
    if len(counts) != _CLASSES or (counts != _PER_CLASS[split]).any():
        raise DataError(
            f"CIFAR-100 {split} in {str(root)!r}: expected {_CLASSES} classes of {_PER_CLASS[split]} images "
            f"but found {len(counts)} classes of {counts.min()} to {counts.max()}; extract the archive again"
        )
    images = torch.from_numpy(np.asarray(data.data)).permute(0, 3, 1, 2)
    source = ArraySource(images, [f"{split}/{i}" for i in range(len(labels))])
    return LabelledImages(source=source, labels=labels), list(data.classes)


def _missing(root: Path, error: Exception) -> str:
    folder = (root / "cifar-100-python").absolute()
    return (
        f"CIFAR-100 is missing or damaged ({error}); tried {str(folder / 'train')!r}, "
        f"{str(folder / 'test')!r} and {str(folder / 'meta')!r}; expected cifar-100-python/train, "
        f"cifar-100-python/test and cifar-100-python/meta below {str(root)!r}; extract "
        f"cifar-100-python.tar.gz (md5 {ARCHIVE_MD5}) from the "
        "page 'The CIFAR-10 and CIFAR-100 datasets' (python version) there, or set download = true"
    )
