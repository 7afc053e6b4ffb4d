"""Images that are equal under two encodings, such as a BMP in train and the same picture as a PNG in test.

Files are compared by their bytes, which are read for the fingerprint anyway. Pixels are decoded only where
two encodings meet: among files of one size, of which those in train and those in test were not all written
alike. One encoder writes equal pixels as equal bytes, so that a set of one encoding costs nothing here. The
others cost a decoding each, up to a bound: on one busy core 0.3 ms for a PNG of 32 x 32 pixels, 4 ms for a
photo of 224 x 224.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from lw2g.plugin import Contents, DataError, IndexArray, counted
from lw2g_benchmarks.listed_images import READERS, FileFacts, HashedSource, content_of, tell_progress

__all__ = ["same_contents"]

_MOST_PIXELS = 500_000_000
"""Decoded at most, in all: 10,000 photos of 224 x 224."""


def same_contents(train: HashedSource, test: HashedSource) -> tuple[Contents, Contents, str]:
    """Return the hashes of both splits, equal where pixels are.

    Beside them it says in words which images were not compared; it is empty for none.
    """
    contents = np.concatenate([train.contents(), test.contents()])
    facts = np.concatenate([train.facts(), test.facts()])
    wanted: list[int] = []
    left_out = 0
    pixels = 0
    for group in _groups(facts, contents, len(train)):
        pixels += int((facts["width"][group] * facts["height"][group]).sum())
        if pixels <= _MOST_PIXELS:
            wanted += group.tolist()
        else:
            left_out += len(group)

    def decoded(place: int) -> bytes | None:
        """Return a hash of an image's pixels; None of one that cannot be read."""
        source, index = (train, place) if place < len(train) else (test, place - len(train))
        try:
            return content_of(source.image(index).numpy())
        except DataError:  # reported where the image is used
            return None

    first: dict[bytes, int] = {}
    same: dict[bytes, bytes] = {}
    with ThreadPoolExecutor(READERS) as pool:
        for place, pixels_hash in zip(
            wanted, tell_progress(pool.map(decoded, wanted), len(wanted)), strict=True
        ):
            if pixels_hash is not None:
                same[contents[place]] = contents[first.setdefault(pixels_hash, place)]
    if same:
        contents = np.array([same.get(content, content) for content in contents], dtype=contents.dtype)
    note = ""
    if left_out:
        note = (
            f"{counted(left_out, 'image')} of equal sizes in several encodings were compared by their bytes "
            "alone, not by their pixels: equal ones in train and test would not be seen"
        )
    return contents[: len(train)], contents[len(train) :], note


def _groups(facts: FileFacts, contents: Contents, num_train: int) -> Iterator[IndexArray]:
    """Yield groups of images that may be equal under two encodings, as places in train and then test.

    A group has images of one size in both splits and in several encodings. Small images come first, and of
    equal files the first alone.
    """
    if not _differ(facts["encoding"]):
        return
    _, places = np.unique(contents, return_index=True)
    places = np.sort(places[facts["width"][places] > 0])  # what is no file has no size
    width = facts["width"][places]
    height = facts["height"][places]
    # area and longer side are those of a photo that was turned, too
    area = width * height
    longer = np.maximum(width, height)
    by_size = np.lexsort((places, longer, area))
    starts_group = np.diff(area[by_size], prepend=0) != 0
    starts_group |= np.diff(longer[by_size], prepend=0) != 0
    for group in np.split(places[by_size], np.flatnonzero(starts_group)[1:]):
        in_train = group < num_train
        in_both = in_train.any() and not in_train.all()
        if in_both and _differ(facts["encoding"][group]):
            yield group


def _differ(encodings: npt.NDArray[Any]) -> bool:
    """Whether images, none or more, are not all of one encoding."""
    return bool((encodings != encodings[:1]).any())
