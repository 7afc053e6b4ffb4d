"""Images in folders: how they are found and decoded, and the errors that say what is wrong with a tree."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from torch import Tensor

from lw2g.plugin import (
    Contents,
    Crop,
    DataError,
    ImageHeader,
    ImageSource,
    IndexArray,
    Telling,
    counted,
    examine_each,
    printable,
    read_image,
    stamp_of,
)

__all__ = [
    "IMAGES_OF",
    "READERS",
    "Examined",
    "FileFacts",
    "FileSource",
    "HashedSource",
    "ImageFile",
    "content_of",
    "file_of",
    "no_files",
    "say_once",
    "tell_progress",
]

IMAGES_OF = {"train": "training images", "test": "test images"}
"""What the images of a split are called."""

_PLACES = 6
"""Folders, such as domains, that are named where images are counted."""

T = TypeVar("T")

# threads: most of their time goes to the disk and to hashing, both of which let other threads run
READERS = 8
"""Threads that read files."""
_NAMED = 200
"""Damaged images that the option names which leaves them out."""


ImageFile: TypeAlias = Path | Crop
"""Where an image is read from: a file, or a part of one."""
FileFacts: TypeAlias = npt.NDArray[np.void]
"""What two files are compared by before they are decoded, ``[n]``; zeros for an image that is no file."""
_FACTS = np.dtype([("width", np.int64), ("height", np.int64), ("encoding", "S32")])


class HashedSource(ImageSource, Protocol):
    """An image source with a hash of its content."""

    def digest(self) -> str:
        """Return a SHA-256 over the content of all images, in order."""
        ...

    def contents(self) -> Contents:
        """Return a hash of the content of each image, S16 ``[n]``."""
        ...

    def facts(self) -> FileFacts:
        """Return size and encoding of each image's file, ``[n]``."""
        ...


class FileSource:
    """Images in files, or parts of such, decoded at every access."""

    def __init__(
        self,
        paths: Sequence[ImageFile],
        ids: Sequence[str],
        *,
        upright: bool = True,
        what: str = "images",
        beside: Examined | None = None,
    ) -> None:
        """Hold paths with one id each.

        Args:
            paths: The files, or the parts.
            ids: A stable name of each.
            upright: Whether images are turned as their EXIF orientation says. Authors of published results
                did not turn them.
            what: What they are, such as ``training images``, in the line that counts them.
            beside: Images of other splits with which they are examined; None for none.
        """
        if len(ids) != len(paths):
            raise ValueError(f"expected {len(paths)} ids but got {len(ids)}")
        self._paths = tuple(paths)
        self._ids = tuple(ids)
        self._upright = upright
        self._what = what
        self._beside = Examined() if beside is None else beside
        self._beside.sources.append(self)
        self._read: tuple[str, Contents, FileFacts] | None = None
        self._stamps: list[tuple[int, int]] = []  # bytes and time of each file, once they are read
        self._headers: list[ImageHeader] = []  # from when files are examined until they are summed up

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def ids(self) -> tuple[str, ...]:
        """The stable ids of the images."""
        return self._ids

    def image(self, index: int) -> Tensor:
        """Return image ``index`` as RGB, uint8 [3, H, W].

        Raises:
            DataError: If the file cannot be decoded; names the file.
        """
        return read_image(self._paths[index], upright=self._upright)

    def digest(self) -> str:
        """Examine every file and return a SHA-256 over the SHA-256 of each one's bytes, in order.

        Reports progress on stderr, and a summary at the end.

        Raises:
            DataError: If a file is no image that can be used; names them, and how to leave them out.
        """
        return self._once()[0]

    def contents(self) -> Contents:
        """Return a hash of the bytes of each file, S16 ``[n]``.

        Raises:
            DataError: As :meth:`digest`.
        """
        return self._once()[1]

    def changed(self, indices: IndexArray) -> str | None:
        """Return the first file of some images that has changed since all were examined; None without one."""
        if not self._stamps:  # nobody has examined them
            return None
        for index in indices.tolist():
            file = file_of(self._paths[index])
            if stamp_of(file) != self._stamps[index]:
                return str(file)
        return None

    def facts(self) -> FileFacts:
        """Return size and encoding of each file, ``[n]``.

        Raises:
            DataError: As :meth:`digest`.
        """
        return self._once()[2]

    def _once(self) -> tuple[str, Contents, FileFacts]:
        """Return hashes and facts; the files are read once for them."""
        if self._read is None:
            self._read = self._examined()
        return self._read

    def _examined(self) -> tuple[str, Contents, FileFacts]:
        """Return the digest of all files, the content of each as 16 bytes, and their sizes and encodings."""
        # all files first: whoever has to mend a data set wants the whole list
        self._beside.require_usable()
        places = list(dict.fromkeys(name.partition("/")[0] for name in self._ids))
        where = ", ".join(places) if len(places) <= _PLACES else f"{len(places)} folders"
        headers = self._headers
        say_once(f"{self._what} of {where}: {_summary(headers)}")
        digests = [header.digest for header in headers]
        whole = hashlib.sha256(b"".join(digests)).hexdigest()
        # 16 of the 32 bytes are enough to tell images apart, and half the memory
        contents = np.array([digest[:16] for digest in digests], dtype="S16")
        facts = [(*header.size, header.encoding) for header in headers]
        self._headers = []
        return whole, contents, np.array(facts, dtype=_FACTS)

    @cached_property
    def bad(self) -> dict[str, DataError]:
        """What is wrong with files that are no image that can be used, by their ids."""
        bad: dict[str, DataError] = {}
        # before they are read: what is written meanwhile has another time
        stamps = [stamp_of(file_of(path)) for path in self._paths]
        examined = tell_progress(examine_each(self._paths), len(self._ids))
        for name, found in zip(self._ids, examined, strict=True):
            if isinstance(found, ImageHeader):
                self._headers.append(found)
            else:
                bad[name] = found
        self._stamps = stamps
        return bad


@attrs.define(eq=False)
class Examined:
    """Images of several splits, whose files that cannot be used are told in one list.

    Attributes:
        excluded: The ids of images that are left out already.
        sources: The images of each split.
    """

    excluded: Sequence[str] = ()
    sources: list[FileSource] = attrs.field(factory=list)

    def require_usable(self) -> None:
        """Examine all files.

        Raises:
            DataError: Some are no images that can be used; names them, and the option that leaves them out.
        """
        bad = {name: error for source in self.sources for name, error in source.bad.items()}
        if bad:
            raise _refusal(bad, sum(map(len, self.sources)), self.excluded)


def file_of(path: ImageFile) -> Path:
    """Return the file of an image."""
    return path.path if isinstance(path, Crop) else path


def no_files(count: int) -> FileFacts:
    """Return the facts of images that are no files of their own."""
    return np.zeros(count, dtype=_FACTS)


def tell_progress(images: Iterable[T], total: int) -> Iterator[T]:
    """Yield every image, or what was found of it; tell how many, where that takes seconds."""
    with Telling("examining", total) as tell:
        for image in images:
            yield image
            tell()


def content_of(image: npt.NDArray[np.uint8]) -> bytes:
    """Return a hash of the size and the pixels of an RGB image ``[3, H, W]``, 16 bytes."""
    # the size first: the same bytes can be two images of different sizes
    hasher = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    hasher.update(np.ascontiguousarray(image).data)
    return hasher.digest()


def _refusal(bad: Mapping[str, DataError], total: int, excluded: Sequence[str]) -> DataError:
    """Return one error for all images that cannot be used, with the option that leaves them out.

    Args:
        bad: What is wrong, by the ids of images.
        total: How many there are.
        excluded: As for :class:`Examined`.
    """
    # in a shell's quotes, so that the line can be copied
    names = ", ".join(f'"{name}"' for name in [*excluded, *list(bad)[:_NAMED]])
    option = f"--set {shlex.quote(f'benchmark.exclude=[{names}]')}"
    if len(bad) > _NAMED:
        option += f" and {len(bad) - _NAMED} more"
    first = next(iter(bad.values()))
    return DataError(
        f"{len(bad)} of {total} images cannot be used, first {first.what}",
        f"{first.remedy}; or leave out what cannot be replaced: {option}",
    )


def _summary(headers: Sequence[ImageHeader]) -> str:
    """Return how many images there are, of which modes and sizes."""
    modes = Counter(header.mode for header in headers)
    kinds = ", ".join(f"{count} {mode}" for mode, count in modes.most_common())
    by_area = sorted(headers, key=lambda header: header.size[0] * header.size[1])
    pixels = _size_text(by_area[0])
    largest = _size_text(by_area[-1])
    if largest != pixels:
        pixels += f" to {largest}"
    return f"{counted(len(headers), 'image')} ({kinds}), {pixels} pixels"


def _size_text(header: ImageHeader) -> str:
    return "x".join(map(str, header.size))


@cache
def say_once(text: str) -> None:
    """Print a line that a command comes by several times, as where it opens a folder again."""
    # names of files may hold what a terminal would obey
    print(printable(text), file=sys.stderr, flush=True)
