"""Whether images on disk are those of a published split: their counts, overall and by class, and names."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lw2g.plugin import DataError, DataSet, Split
from lw2g_benchmarks.listings import Listing, file_list_sha256
from lw2g_benchmarks.orders import class_order

__all__ = ["deviations_of", "group_sizes"]


def deviations_of(data: DataSet, split: Split, listing: Listing, allow_incomplete: bool) -> tuple[str, ...]:
    """Return what differs from the published split, in words.

    Raises:
        DataError: If anything does and that is not allowed.
    """
    differences = tuple(_differences(data, split, listing))
    if differences and not allow_incomplete:
        raise DataError(
            f"{data.title} is not the published one: {'; '.join(differences)}",
            f"run `lw2g data get {data.name}` into an empty folder, or set benchmark.allow_incomplete=true, "
            "which is recorded",
        )
    return differences


def _differences(data: DataSet, split: Split, listing: Listing) -> Iterator[str]:
    """Yield in words where the listed files are not the published ones.

    Raises:
        DataError: There are more or fewer classes: nothing else can be compared.
    """
    if len(listing.class_names) != data.num_classes:
        raise DataError(
            f"{data.title}: expected {data.num_classes} classes but found {len(listing.class_names)}",
            "fetch or extract it again",
        )
    expected = {"train": (split.train, split.train_sha256), "test": (split.test, split.test_sha256)}
    for name, (count, sha256) in expected.items():
        items = listing.splits[name]
        if count is not None and len(items) != count:
            yield f"expected {count} {name} images but found {len(items)}"
        elif sha256:
            # the right number of files can still be other files
            actual = file_list_sha256(item.id for item in items)
            if actual != sha256:
                yield f"the list of {name} files has sha256 {actual[:12]}, not {sha256[:12]}"
    # where the total is wrong, which has been reported already, every group could be wrong
    if split.test_sizes and len(listing.splits["test"]) == split.test:
        sizes = group_sizes([item.label for item in listing.splits["test"]], data, split)
        for number, (found, published) in enumerate(zip(sizes, split.test_sizes, strict=True), start=1):
            if found != published:
                yield (
                    f"expected {published} test images in group {number} of {len(sizes)} groups of "
                    f"classes but found {found}"
                )
                break


def group_sizes(labels: list[int], data: DataSet, split: Split) -> tuple[int, ...]:
    """Return the test images of each of the equal groups of classes in which the facts count."""
    if split.test_order is None:
        order = class_order("natural", data.num_classes, 0)
    else:
        order = class_order("seeded", data.num_classes, split.test_order)
    by_label = np.bincount(np.asarray(labels, dtype=np.int64), minlength=data.num_classes)
    by_position = by_label[np.asarray(order)]
    groups = np.array_split(by_position, len(split.test_sizes))
    return tuple(int(group.sum()) for group in groups)
