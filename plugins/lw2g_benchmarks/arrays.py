"""Data sets in torchvision's containers: Split CIFAR-100, and five small data sets one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch

from lw2g.plugin import DataError, TaskStream, counted, examine_image, find_classes
from lw2g_benchmarks.listed_images import FileSource, HashedSource
from lw2g_benchmarks.options import PublishedConfig
from lw2g_benchmarks.orders import ordered
from lw2g_benchmarks.published import find_root
from lw2g_benchmarks.recurrence import sizes_of
from lw2g_benchmarks.tasks import ArraySource, JoinedSource, LabelledImages, build_stream
from lw2g_benchmarks.transforms import ConfiguredTransforms

__all__ = ["Cifar100Benchmark", "FiveDatasetsBenchmark"]

_TEN = 10
_NOT_MNIST = "NotMNIST"
# Order of the five, with the training and test images that are known
_FIVE = {
    "SVHN": (73_257, 26_032),
    "MNIST": (60_000, 10_000),
    "CIFAR10": (50_000, 10_000),
    _NOT_MNIST: None,
    "FashionMNIST": (60_000, 10_000),
}


@attrs.frozen
class Cifar100Benchmark(ConfiguredTransforms):
    """CIFAR-100 (fine labels), class-incremental."""

    config: PublishedConfig

    def stream(self) -> TaskStream:
        """Load CIFAR-100 and return the task stream.

        Raises:
            ConfigError: If no root is known or the increment does not divide 100.
            DataError: If the data are missing, altered or incomplete.
        """
        config = self.config
        data = config.data
        # before anything is read: an increment that does not fit is refused at once
        sizes = sizes_of(config, data.num_classes)
        root = find_root(data, config.root)
        names: list[str] = list(_container("CIFAR100", root, "train", data.name).classes)
        parts = {}
        for split, total in (("train", 50_000), ("test", 10_000)):  # as published
            parts[split] = _load("CIFAR100", root, split, data.name)
            # minlength: a class without any image has to be counted too
            counts = np.bincount(parts[split].labels, minlength=data.num_classes)
            each = total // data.num_classes
            if len(counts) != data.num_classes or (counts != each).any():
                raise DataError(
                    f"CIFAR-100 {split} in {str(root)!r}: expected 100 classes of {each} images but found "
                    f"{len(counts)} classes of {counts.min()} to {counts.max()}",
                    "extract the archive again",
                )
        order = ordered(config, names)
        return build_stream(
            name=data.name,
            train=parts["train"],
            test=parts["test"],
            class_names=names,
            order=order,
            sizes=sizes,
            options=config,
        )


@attrs.frozen
class FiveDatasetsBenchmark(ConfiguredTransforms):
    """SVHN, MNIST, CIFAR-10, NotMNIST and Fashion-MNIST; each a task of ten classes by default."""

    config: PublishedConfig

    def stream(self) -> TaskStream:
        """Load the five data sets and return the task stream.

        Raises:
            ConfigError: If no root is known or the increment does not divide 50.
            DataError: If data are missing or counts are not the official ones.
        """
        config = self.config
        data = config.data
        sizes = sizes_of(config, data.num_classes)
        root = find_root(data, config.root)
        unreadable: list[str] = []
        deviations: list[str] = []
        train = self._joined(root, "train", unreadable, deviations)
        test = self._joined(root, "test", unreadable, deviations)
        # the labels of all five are 0 to 9, so the data set's name stands in front
        names = []
        for part in _FIVE:
            for label in range(_TEN):
                names.append(f"{part}/{label}")
        order = ordered(config, names)
        if unreadable:
            deviations.append(f"{counted(len(unreadable), 'unreadable file')} of NotMNIST left out")
        return build_stream(
            name=data.name,
            train=train,
            test=test,
            class_names=names,
            order=order,
            sizes=sizes,
            options=config,
            deviations=deviations,
        )

    def _joined(self, root: Path, split: str, unreadable: list[str], deviations: list[str]) -> LabelledImages:
        """Return one split of the five; what is not as published is added to the two lists."""
        sources: list[HashedSource] = []
        labels = []
        for number, name in enumerate(_FIVE):
            part = self._part(name, root, split, unreadable, deviations)
            sources.append(part.source)
            # each data set counts its own ten classes from 0
            labels.append(part.labels + _TEN * number)
        return LabelledImages(source=JoinedSource(sources), labels=np.concatenate(labels))

    def _part(
        self, name: str, root: Path, split: str, unreadable: list[str], deviations: list[str]
    ) -> LabelledImages:
        """Return one split of one of the five.

        Raises:
            DataError: It is missing, or its count is not the official one.
        """
        counts = _FIVE[name]
        if counts is None:
            return self._not_mnist(root, split, unreadable)
        part = _load(name, root, split, self.config.data.name)
        num_train, num_test = counts
        expected = num_test if split == "test" else num_train
        if len(part.labels) == expected:
            return part
        if not self.config.allow_incomplete:
            raise DataError(
                f"{name} {split} in {str(root)!r}: expected {expected} images but found {len(part.labels)}",
                f"run `lw2g data get {self.config.data.name}` again",
            )
        deviations.append(f"{name} {split}: {counted(len(part.labels), 'image')} instead of {expected}")
        return part

    def _not_mnist(self, root: Path, split: str, unreadable: list[str]) -> LabelledImages:
        """Return NotMNIST without the files that are no images; their names are added to ``unreadable``."""
        folder = root / "notMNIST" / split.capitalize()
        if not folder.is_dir():
            raise DataError(
                f"NotMNIST is missing: no folder {str(folder)!r} (<A..J>/*.png)",
                f"run `lw2g data get {self.config.data.name}`",
            )
        paths: list[Path] = []
        ids: list[str] = []
        labels: list[int] = []
        for label, found in enumerate(find_classes(folder).values()):
            for path in found.paths:
                try:
                    examine_image(path)
                except DataError:
                    # some files of the published archive are damaged, so nobody has them
                    unreadable.append(path.name)
                    continue
                paths.append(path)
                ids.append(f"NotMNIST/{path.relative_to(folder.parent).as_posix()}")
                labels.append(label)
        source = FileSource(paths, ids, upright=False)
        return LabelledImages(source=source, labels=np.array(labels, dtype=np.int64))


def _container(name: str, root: Path, split: str, benchmark: str) -> Any:
    """Return a data set of torchvision.

    Raises:
        DataError: If torchvision finds no intact copy.
    """
    import torchvision.datasets  # slow to import, and most benchmarks need it not

    kind = getattr(torchvision.datasets, name)
    options: dict[str, Any] = {"train": split == "train"}
    if name == "SVHN":  # the only one that calls its splits by name
        options = {"split": split}
    try:
        # fetching is the work of `lw2g data get`; a run must not begin with a download
        return kind(str(root), download=False, **options)
    except (RuntimeError, OSError) as error:  # torchvision reports missing and altered files as RuntimeError
        reason = str(error).split("\n")[0]
        raise DataError(
            f"{name} is missing or damaged in {str(root)!r} ({reason})", f"run `lw2g data get {benchmark}`"
        ) from error


def _load(name: str, root: Path, split: str, benchmark: str) -> LabelledImages:
    """Return one split of a data set of torchvision."""
    data = _container(name, root, split, benchmark)
    pixels = torch.from_numpy(np.asarray(data.data))
    match pixels.ndim, pixels.shape[-1]:
        case 3, _:  # grey [n, H, W]
            images = pixels[:, None]
        case 4, 3:  # [n, H, W, 3]
            images = pixels.permute(0, 3, 1, 2)
        case _:  # SVHN: [n, 3, H, W]
            images = pixels
    targets = data.labels if name == "SVHN" else data.targets
    labels = np.asarray(targets, dtype=np.int64)
    # ids are unique within a benchmark: the five data sets are told apart by name
    place = split if name == "CIFAR100" else f"{name}/{split}"
    source = ArraySource(images, [f"{place}/{i}" for i in range(len(labels))])
    return LabelledImages(source=source, labels=labels)
