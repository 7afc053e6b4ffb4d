"""Images that are objects of a Python program, or files that one of its lists names."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from torch import Tensor

from lw2g.plugin import Contents, DataError, counted, pixels_of
from lw2g_benchmarks.listed_images import FileFacts, FileSource, content_of, no_files, tell_progress

__all__ = ["ListedFiles", "ObjectSource"]


class ObjectSource:
    """The images of one split, read from the object at every access.

    Args:
        data: Gives an item by its number.
        key: Where the image is in an item; None if the item is the image.
        name: The split in words; ids are the name and a number.
    """

    def __init__(self, data: Any, key: int | str | None, name: str) -> None:
        self._data = data
        self._key = key
        self._name = name
        self._length = len(data)
        self._read: tuple[str, Contents] | None = None

    def __len__(self) -> int:
        return self._length

    @property
    def ids(self) -> tuple[str, ...]:
        """The numbers of the images behind the split's name."""
        return tuple(f"{self._name}/{index}" for index in range(self._length))

    def image(self, index: int) -> Tensor:
        """Return image ``index`` as RGB, uint8 [3, H, W].

        Raises:
            DataError: It is no image, or the data set has another length than before.
        """
        if len(self._data) != self._length:
            raise DataError(
                f"benchmark: {self._name} had {counted(self._length, 'image')} and now has {len(self._data)}",
                "do not change a data set while it is in use",
            )
        image = self._data[index]
        if self._key is not None:
            image = image[self._key]
        try:
            return pixels_of(image)
        except DataError as error:
            raise DataError(f"benchmark: {self._name}, image {index}: {error.what}", error.remedy) from error

    def digest(self) -> str:
        """Return a SHA-256 over the pixels of all images.

        Raises:
            DataError: An image is another one when it is read again.
        """
        return self._once()[0]

    def contents(self) -> Contents:
        """Return a hash of the pixels of each image, S16 ``[n]``.

        Raises:
            DataError: As :meth:`digest`.
        """
        return self._once()[1]

    def facts(self) -> FileFacts:
        """Return that no image is a file of its own."""
        return no_files(self._length)

    def _once(self) -> tuple[str, Contents]:
        """Return both hashes; the images are read once for them."""
        if self._read is None:
            self._read = self._hashes()
        return self._read

    def _hashes(self) -> tuple[str, Contents]:
        """Return the digest of all images, and the content of each as 16 bytes."""
        # with a random transform, fingerprint and evaluations would see other images each time
        if not bool((self.image(0) == self.image(0)).all()):
            raise DataError(
                f"benchmark: {self._name}, image 0 differs each time it is read",
                "leave random transforms out of the data set; options such as benchmark.train_transform "
                "augment",
            )
        hasher = hashlib.sha256()
        contents = []
        for image in tell_progress(map(self.image, range(self._length)), self._length):
            image = image.contiguous()
            hasher.update(repr(tuple(image.shape)).encode())
            hasher.update(image.numpy().data)
            contents.append(content_of(image.numpy()))
        return hasher.hexdigest(), np.array(contents, dtype="S16")


class ListedFiles(FileSource):
    """Images in files that a list names."""

    def _examined(self) -> tuple[str, Contents, FileFacts]:
        """As of every file source; the remedy is that of a list."""
        try:
            return super()._examined()
        except DataError as error:
            raise DataError(error.what, "replace the files, or leave them out of the list") from error
