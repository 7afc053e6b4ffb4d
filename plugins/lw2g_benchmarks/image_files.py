"""Images in folders: finding them, decoding them, and the errors that say what is wrong with a tree."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from lw2g.errors import DataError

__all__ = ["EXTENSIONS", "FileSource", "scan_split"]

EXTENSIONS = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_READERS = 8


class FileSource:
    """Images in files, decoded when asked for.

    Decoded images are kept until the cache is full; later ones are decoded each time. Nothing is evicted:
    training visits every image once per epoch, an order in which evicting the oldest would never hit.
    """

    def __init__(self, paths: Sequence[Path], ids: Sequence[str], cache_bytes: int) -> None:
        """Hold paths with one id each, and a cache of at most about ``cache_bytes``."""
        if len(ids) != len(paths):
            raise ValueError(f"expected {len(paths)} ids but got {len(ids)}")
        self._paths = tuple(paths)
        self._ids = tuple(ids)
        self._free = cache_bytes
        self._cache: dict[int, Tensor] = {}

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
        cached = self._cache.get(index)
        if cached is not None:
            return cached
        image = _decode(self._paths[index])
        if image.numel() <= self._free:
            self._free -= image.numel()
            self._cache[index] = image
        return image

    def digest(self) -> str:
        """Return a SHA-256 over the SHA-256 of each file's bytes, in order."""
        with ThreadPoolExecutor(_READERS) as pool:
            digests = list(pool.map(_file_digest, self._paths))
        return hashlib.sha256(b"".join(digests)).hexdigest()


def _file_digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r} ({error}); check the file") from error


def _decode(path: Path) -> Tensor:
    try:
        with Image.open(path) as image:
            pixels = np.array(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what Pillow raises
        raise DataError(f"cannot decode image {str(path)!r} ({error}); replace or remove the file") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def scan_split(folder: Path) -> Mapping[str, tuple[Path, ...]]:
    """Return class name -> sorted image paths of ``folder/<class>/**``, by sorted class name.

    Hidden files and folders are passed over.

    Raises:
        DataError: If there is no class folder, or a class holds no image.
    """
    classes = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and not entry.name.startswith("."):
            files = (
                path for path in entry.rglob("*") if path.suffix.lower() in EXTENSIONS and path.is_file()
            )
            classes[entry.name] = tuple(sorted(p for p in files if not p.name.startswith(".")))
    if not classes:
        raise DataError(
            f"no class folders in {str(folder)!r}; expected {str(folder / '<class>')!r} with images"
        )
    empty = [name for name, paths in classes.items() if not paths]
    if empty:
        raise DataError(
            f"{len(empty)} of {len(classes)} classes in {str(folder)!r} hold no image, first {empty[:5]!r}; "
            f"add images ({', '.join(sorted(EXTENSIONS))}) or remove the folders"
        )
    return classes
