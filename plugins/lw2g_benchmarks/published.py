"""Published data sets of image files, read by the record of their facts.

Files are only read, never moved or written: a split is a list of paths, whatever lies on disk. Counts, file
lists and list files are compared with the facts before anything is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np

from lw2g.plugin import (
    ROOT_VARIABLE,
    ConfigError,
    DataError,
    DataSet,
    IndexArray,
    Split,
    TaskStream,
    default_root,
)
from lw2g_benchmarks.checks import deviations_of
from lw2g_benchmarks.listed_images import IMAGES_OF, FileSource
from lw2g_benchmarks.listings import Item, Listing, from_folders, from_index, from_lists, from_seed
from lw2g_benchmarks.options import PublishedConfig
from lw2g_benchmarks.orders import ordered
from lw2g_benchmarks.recurrence import sizes_of
from lw2g_benchmarks.tasks import LabelledImages, build_stream
from lw2g_benchmarks.transforms import ConfiguredTransforms

__all__ = ["PublishedBenchmark", "find_root"]


def find_root(data: DataSet, root: Path | None) -> Path:
    """Return the folder below which a data set lies.

    Raises:
        DataError: If the data set's folder is not there.
    """
    path = default_root() if root is None else root.absolute()
    if not data.lies_below(path):
        raise DataError(
            f"{data.title} is missing: no folder {str(path / data.folder)!r} ({data.layout})",
            f"run `lw2g data get {data.name}`, or set benchmark.root or {ROOT_VARIABLE} to the folder that "
            f"holds {data.folder or 'it'}",
        )
    return path


@attrs.frozen
class PublishedBenchmark(ConfiguredTransforms):
    """A published data set, class-incremental."""

    config: PublishedConfig

    def stream(self) -> TaskStream:
        """Find the images of the split and return the task stream.

        Raises:
            ConfigError: If no root is known, or the classes do not split into such tasks.
            DataError: If data are missing, incomplete or altered.
        """
        config = self.config
        data = config.data
        # before anything is read: an increment that does not fit is refused at once
        sizes = sizes_of(config, data.num_classes)
        split = data.split(config.split)
        listing = _READERS[split.reader](data, split, find_root(data, config.root), config.split)
        return build_stream(
            name=data.name,
            train=self._images(listing, "train"),
            test=self._images(listing, "test"),
            class_names=listing.class_names,
            order=ordered(config, listing.class_names),
            sizes=sizes,
            options=config,
            domains=data.domains,
            deviations=deviations_of(data, split, listing, config.allow_incomplete),
            notes=[listing.passed_over] if listing.passed_over else [],
        )

    def _images(self, listing: Listing, split: str) -> LabelledImages:
        """Return the images of a split as a list of files."""
        items = listing.splits[split]
        paths = []
        ids = []
        labels = []
        for item in items:
            paths.append(item.path)
            ids.append(item.id)
            labels.append(item.label)
        return LabelledImages(
            # as authors of published results read them: not turned by EXIF
            source=FileSource(paths, ids, upright=False, what=IMAGES_OF[split]),
            labels=np.array(labels, dtype=np.int64),
            domain=self._domain_of(items),
        )

    def _domain_of(self, items: Sequence[Item]) -> IndexArray | None:
        """Return the domain of each image; None where tasks are no domains, or the data set has none.

        Raises:
            ConfigError: The paths of the split do not begin with one.
        """
        config = self.config
        number_of = {name: number for number, name in enumerate(config.data.domains)}
        if config.stream not in ("domains", "versatile") or not number_of:
            return None
        # the files of a data set with domains lie in a folder of their domain
        folders = [item.id.partition("/")[0] for item in items]
        strange = sorted(set(folders) - number_of.keys())
        if strange:
            raise ConfigError(
                f"benchmark.split: {config.split!r} does not tell domains (it has {strange[0]!r}, not one of "
                f"{', '.join(number_of)})",
                "choose a split of lists",
            )
        return np.array([number_of[folder] for folder in folders], dtype=np.int64)


_READERS: Mapping[str, Callable[[DataSet, Split, Path, str], Listing]] = {
    "folders": lambda data, split, root, name: from_folders(data, root / data.folder),
    "random": lambda data, split, root, name: from_seed(
        data, root / data.folder, int(name.partition(":")[2])
    ),
    "lists": lambda data, split, root, name: from_lists(data, split, root),
    "index": lambda data, split, root, name: from_index(data, root / data.folder),
}
