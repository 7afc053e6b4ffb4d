"""A user's images, one by one: files, folders, bytes, open files, PIL images, arrays, tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from lw2g.errors import DataError
from lw2g.ground.notes import tell_note
from lw2g.ground.spelling import expanded, is_web_address
from lw2g.pixels.found_images import find_images, image_endings, passed_over
from lw2g.pixels.image_files import Crop
from lw2g.pixels.open_files import content_of

__all__ = ["ImageLike", "Labelled", "as_list", "require_transformed"]

ImageLike: TypeAlias = (
    "Tensor | npt.NDArray[Any] | Image.Image | str | Path | Crop | bytes | memoryview | IO[bytes]"
)
_AS_BYTES = "pass uint8 [3, H, W] (from 0 to 1 that is (255 * image).round().byte()), a path or a PIL image"
_KINDS = (Tensor, np.ndarray, Image.Image, str, Path, Crop, bytes, bytearray, memoryview)


class Labelled(Protocol):
    """Labelled images: a pair ``(images, labels)``, a list of pairs, or a torch data set of these."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """Return one of them."""
        ...


def as_list(images: ImageLike | Iterable[ImageLike]) -> tuple[Sequence[ImageLike], Sequence[str]]:
    """Return images one by one, and what each is called: by its file's or its upload's name, or its number.

    A batch, ``[B, 3, H, W]`` or an array ``[B, H, W, 3]``, is cut into its rows; a folder, also one in
    a list, becomes its image files, sorted; a single image stands alone. A note names what else it holds.
    Other objects stay, and files that give no bytes: they are refused one by one when their pixels are read.

    Raises:
        DataError: There is none, or a folder holds none.
    """
    given: Any = images
    if isinstance(given, np.ndarray) and given.ndim == 3:
        _require_channels_last(given.shape)
    if isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype.kind in "OU":
        given = list(given)  # of paths or pictures, as a column of a table is
    if isinstance(given, Tensor | np.ndarray):
        given = list(given) if given.ndim == 4 else [given]
    elif isinstance(given, _KINDS) or hasattr(given, "read"):
        given = [given]
    elif isinstance(given, Iterable) and not isinstance(given, Mapping):
        given = list(given)  # such as what Path.glob gives
    else:
        given = [given]
    if not given:
        raise DataError("no image was given", "give at least one")
    listed: list[ImageLike] = []
    names: list[str] = []
    for image in given:
        files = _files_at(image)
        listed += files
        names += [_name_of(file) or f"image {len(names) + number}" for number, file in enumerate(files, 1)]
    # read once they are named: an upload is closed when its request is answered
    return [_as_bytes(image) if hasattr(image, "read") else image for image in listed], names


def _as_bytes(file: Any) -> Any:
    """Return the bytes of an open file; one that gives none stays, to be refused as other images are."""
    try:
        return content_of(file)
    except DataError:
        return file


def _require_channels_last(shape: tuple[int, ...]) -> None:
    """Refuse an array that may be an image with its channels first, or several grey ones.

    Raises:
        DataError: It may.
    """
    if shape[0] in (3, 4) and shape[-1] not in (1, 3, 4):
        number, height, width = shape
        raise DataError(
            f"an array {list(shape)} may be one image with its channels first, or {number} grey images",
            f"put channels last, [{height}, {width}, {number}], or give a list of [{height}, {width}]",
        )


def _files_at(image: Any) -> Sequence[ImageLike]:
    """Return the image files of a folder, and anything else alone.

    Raises:
        DataError: It is a folder that holds none.
    """
    if not isinstance(image, str | Path) or is_web_address(image):
        return [image]
    try:
        path = expanded(image)
    except DataError:  # it stays a text, to be refused when its pixels are read
        return [image]
    return _files_of(path) if path.is_dir() else [path]


def _name_of(image: Any) -> str:
    """Return what a user calls an image; empty for one without a name."""
    if isinstance(image, Path):
        return image.name
    if isinstance(image, Crop):
        return f"{image.path.name}#{image.number}"
    place = getattr(image, "filename", None)
    if isinstance(place, str) and hasattr(image, "read"):
        return place  # of an upload as it was sent: its `name` may be that of a form's field
    if hasattr(image, "read"):
        place = getattr(image, "name", None)
    # a picture that was opened from a file has its place, and a file without one may have a number
    return Path(place).name if isinstance(place, str) else ""


def require_transformed(pixels: Tensor, size: int, mean: Sequence[float]) -> None:
    """Refuse a tensor ``[3, H, W]`` that is no image as a network takes it.

    Args:
        pixels: The tensor.
        size: Side of the network's input in pixels.
        mean: What is taken from each channel of an image; then some of its pixels are below 0.

    Raises:
        DataError: It has another side, or holds anything but finite floating numbers, or these are from 0 to
            1, as pixels are before they are normalised.
    """
    if not pixels.is_floating_point() or pixels.shape[1:] != (size, size):
        raise DataError(
            f"expected uint8 pixels, or normalised images [3, {size}, {size}] of floating numbers, but got "
            f"{pixels.dtype} {list(pixels.shape)}",
            _AS_BYTES,
        )
    if not bool(pixels.isfinite().all()):
        raise DataError("an image holds values that are no finite numbers", "look at how it was made")
    low, high = (float(value) for value in pixels.detach().aminmax())
    # what was normalised nearly always has numbers below 0; one colour alone, such as zeros, is no photo
    if all(mean) and 0 <= low < high <= 1:
        raise DataError(
            "floating numbers from 0 to 1 are pixels that were not normalised (model.transform does it)",
            _AS_BYTES,
        )


def _files_of(folder: Path) -> Sequence[Path]:
    """Return the image files in and below a folder, and tell what was passed over.

    Raises:
        DataError: There is none.
    """
    found = find_images(folder)
    left_out = passed_over([found])
    if not found.paths:
        raise DataError(
            f"no image in {str(folder)!r}{f' ({left_out})' if left_out else ''}",
            f"add images or remove the folder; known endings: {', '.join(sorted(image_endings()))}",
        )
    if left_out:
        tell_note(f"{str(folder)!r}: {left_out}")
    return found.paths
