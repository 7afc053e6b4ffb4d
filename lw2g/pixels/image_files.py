"""Images of users (files, PIL images, arrays, tensors): validated, and decoded to 8-bit RGB."""

from __future__ import annotations

import hashlib
import os
import resource
import stat
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import torch
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor

from lw2g.errors import DataError, first_line, misspelt
from lw2g.ground.spelling import expanded, is_web_address
from lw2g.pixels.heic import reads_heic, register_heic, way_out
from lw2g.pixels.open_files import content_of
from lw2g.pixels.unusable_images import damaged, refusal

__all__ = [
    "FORMATS",
    "Crop",
    "CropReader",
    "ImageHeader",
    "examine_each",
    "examine_image",
    "examine_images",
    "fault_of",
    "pixels_of",
    "read_content",
    "read_image",
    "to_rgb",
    "upright_size",
]

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The formats that are always decoded; data sets hold no others of those that Pillow can open."""

_READERS = 8
"""Threads that read files."""
_SAMPLE = 64
"""Files that are examined in one thread, which shows whether several pay."""
_LARGE = 64 * 1024
"""Bytes of a file that is worth a thread: hashing lets other threads run."""
_MOST_PIXELS = 89_478_485
"""Pillow's own limit, beyond which it takes an image for a decompression bomb."""
# it warns of those that are refused here by the same limit; what a program says of this warning comes before
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning, append=True)
_MODES = ("1", "CMYK", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "YCbCr")
_MODES_16 = ("I;16", "I;16L", "I;16B", "I;16N")
_FORMATS_16 = ("PNG", "PPM")
"""Formats whose mode ``I`` holds 0 to 65535."""
# turns by the value of the EXIF tag Orientation, of which 1 is upright
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_BRANDS = {
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "HEIC"),
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
}
"""By what a file says of itself, the formats of pictures that are not read, HEIC where it cannot be."""
_SIDEWAYS = (5, 6, 7, 8)
"""Values of the EXIF tag Orientation with which width and height change places."""
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_ASIDE = (b"iCCP", b"iTXt", b"tEXt", b"zTXt")
"""What stands beside the pixels and is not used: the colour profile and texts."""
_PNG_NOTES = (b"Raw profile type exif", b"XML:com.adobe.xmp")
"""Keywords of texts in which Pillow looks for the orientation."""
_LONGEST_KEYWORD = 80
# markers of a JPEG: a file that was cut off has a scan and no end behind it
_JPEG_SCAN = b"\xff\xda"
_JPEG_END = b"\xff\xd9"


@attrs.frozen(kw_only=True)
class ImageHeader:
    """The header of an image file.

    Attributes:
        mode: Pillow's name for the pixel format, such as ``"RGB"``.
        size: Width and height in pixels.
        digest: SHA-256 of the file's bytes.
        encoding: How the pixels are written: two files of one encoding and of equal pixels have equal bytes,
            but for notes such as EXIF. Of lossy formats the format alone.
        num_bytes: Of the file.
    """

    mode: str
    size: tuple[int, int]
    digest: bytes
    encoding: str
    num_bytes: int


@attrs.frozen(kw_only=True)
class Crop:
    """A part of an image file, which is an image of its own and is cut out when it is decoded.

    Attributes:
        path: The file.
        number: Of the box among those of its file, from 1.
        box: Left, top, right and bottom in pixels of the upright image; right and bottom are outside.
        file: The header of the file.
    """

    path: Path
    number: int
    box: tuple[int, int, int, int]
    file: ImageHeader

    def __str__(self) -> str:
        return f"{self.path}#{self.number}"

    @property
    def header(self) -> ImageHeader:
        """The header of the part: equal digests have equal files and equal boxes."""
        left, top, right, bottom = self.box
        digest = hashlib.sha256(self.file.digest + repr(self.box).encode()).digest()
        return attrs.evolve(self.file, size=(right - left, bottom - top), digest=digest)

    def cut(self, pixels: Tensor) -> Tensor:
        """Return the part of the whole file's pixels, uint8 ``[3, H, W]`` -> ``[3, h, w]``."""
        left, top, right, bottom = self.box
        # a copy: a view would keep the whole image in memory
        return pixels[:, top:bottom, left:right].clone()


class CropReader:
    """Cuts crops one after the other; a file is decoded once for those of it that follow each other."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._pixels = torch.empty(0)

    def __call__(self, crop: Crop) -> Tensor:
        """Return a crop, uint8 ``[3, h, w]``.

        Raises:
            DataError: Its file cannot be read.
        """
        if crop.path != self._path:
            self._pixels = read_image(crop.path)
            self._path = crop.path
        return crop.cut(self._pixels)


def upright_size(path: Path) -> tuple[int, int]:
    """Return width and height of an image file, of those that were examined, as it is looked at."""
    with _opened(_bytes_of(path)) as image:
        if image.format == "TIFF":
            image.load()  # turns it
            return image.size
        try:
            sideways = image.getexif().get(ExifTags.Base.Orientation, 1) in _SIDEWAYS
        except Exception:  # given noise, Pillow may raise anything; then it is not turned, either
            sideways = False
        width, height = image.size
    return (height, width) if sideways else (width, height)


def examine_image(path: Path) -> ImageHeader:
    """Check that a file is a complete, usable image, and return its header.

    PNG (by its checksums) and JPEG (by its end marker) are checked without decoding them.

    Raises:
        DataError: The file is no such image; the message says why.
    """
    try:
        content = _bytes_of(path)
        with _opened(content) as image:
            mode = image.mode
            size = image.size
            encoding = _encoding_of(image, content)
            if image.format == "PNG":
                image.verify()
            elif image.format != "JPEG" or content.rfind(_JPEG_END) < content.rfind(_JPEG_SCAN):
                image.load()  # decodes: a JPEG without an end behind its last scan may be cut off
    except DataError as error:
        raise DataError(f"{str(path)!r}: {error.what}", error.remedy) from error
    except Exception as error:  # given noise, a decoder may raise anything
        fault = damaged()
        raise DataError(f"{str(path)!r}: {fault.what}", fault.remedy) from error
    return ImageHeader(
        mode=mode,
        size=size,
        digest=hashlib.sha256(content).digest(),
        encoding=encoding,
        num_bytes=len(content),
    )


def _encoding_of(image: Image.Image, content: bytes) -> str:
    """Return how the pixels of an opened image are written."""
    if image.format in ("JPEG", "MPO"):
        return "JPEG"
    details = image.mode
    if image.format == "PNG":
        # kind of pixels and interlacing; then the first two bytes of zlib, which tell the level
        data = content.find(b"IDAT") + 4
        details = (content[24:29] + content[data : data + 2]).hex()
    return f"{image.format} {details} {image.info.get('compression', '')}".strip()


def examine_each(paths: Iterable[Path | Crop]) -> Iterator[ImageHeader | DataError]:
    """Check many files as :func:`examine_image` does one; yield the header of each, or what is wrong with it.

    The files of crops were examined when these were made.

    Threads read files for which one thread would wait, and hash large ones. They do not help with small files
    that the system has in memory: Python runs in one thread at a time, and to pass that on takes longer than
    such a file (34 us of CPU each in one thread, 68 in eight).
    """
    todo = iter(paths)
    waits_before = _waits()
    size = 0  # in bytes
    for path in islice(todo, _SAMPLE):
        found = _examined(path)
        yield found
        size += found.num_bytes if isinstance(found, ImageHeader) else 0
    # the first files tell: few of them were waited for, and they are small
    if _waits() - waits_before < _SAMPLE // 2 and size < _SAMPLE * _LARGE:
        yield from map(_examined, todo)
        return
    with ThreadPoolExecutor(_READERS) as pool:
        yield from pool.map(_examined, todo)


def _examined(path: Path | Crop) -> ImageHeader | DataError:
    if isinstance(path, Crop):
        return path.header
    try:
        return examine_image(path)
    except DataError as error:
        # returned, as a raised one would end the examination at the first bad file
        return error


def _waits() -> int:
    """Return how often this thread has waited, for a disk say; where threads are not told apart, any has."""
    return resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)).ru_nvcsw


def examine_images(paths: Iterable[Path]) -> dict[Path, ImageHeader]:
    """Check many files as :func:`examine_image` does one, and return their headers.

    Raises:
        DataError: Some are no such images; all are named, as whoever mends a folder wants the whole list.
    """
    listed = list(paths)
    headers: dict[Path, ImageHeader] = {}
    bad: dict[Path, DataError] = {}
    for path, found in zip(listed, examine_each(listed), strict=True):
        if isinstance(found, ImageHeader):
            headers[path] = found
        else:
            bad[path] = found
    if bad:
        raise refusal({str(path): error for path, error in bad.items()})
    return headers


def fault_of(image: Path | Crop) -> DataError | None:
    """Return what is wrong with a file, or a crop, that looks whole until it is decoded; None for nothing."""
    try:
        read_image(image)
    except DataError as error:
        return error
    return None


def read_image(path: Path | Crop, *, upright: bool = True) -> Tensor:
    """Return the pixels of a file, or of a crop, as RGB, uint8 ``[3, H, W]``.

    Args:
        path: The file, or the crop.
        upright: Whether it is turned as its EXIF orientation says. Cameras and phones store the pixels as
            the sensor gives them, and the orientation in EXIF.

    Raises:
        DataError: The file cannot be read, or is no usable image of a known format.
    """
    if isinstance(path, Crop):
        return path.cut(read_image(path.path))
    try:
        return read_content(_bytes_of(path), upright=upright)
    except DataError as error:
        raise DataError(f"{str(path)!r}: {error.what}", error.remedy) from error


def read_content(content: bytes, *, upright: bool = True) -> Tensor:
    """Return the pixels of a file's bytes as :func:`read_image` does those of a file.

    Raises:
        DataError: They are no usable image of a known format.
    """
    try:
        with _opened(content) as image:
            return to_rgb(_turned(image) if upright else image)
    except DataError:
        raise
    except Exception as error:  # given noise, a decoder may raise anything
        raise damaged() from error


def _turned(image: Image.Image) -> Image.Image:
    """Return an image as it is to be looked at."""
    if image.format == "TIFF":
        return image  # Pillow turns these while they are loaded, and old releases leave the tag where it is
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # given noise, Pillow may raise anything; a picture is not lost for a damaged note
        turn = None
    return image if turn is None else image.transpose(turn)


def to_rgb(image: Image.Image) -> Tensor:
    """Return an image as RGB, uint8 ``[3, H, W]``: 16 bits are scaled to 8, transparency is dropped.

    Raises:
        DataError: The range of its pixel values is unknown.
    """
    _require_known(image)
    if image.mode not in _MODES:
        wide = np.array(image).astype(np.int64).clip(0, 65535)
        # to the nearest of 256 levels
        grey = ((wide * 255 + 32767) // 65535).astype(np.uint8)
        pixels: Any = np.repeat(grey[..., None], 3, axis=2)
    elif "transparency" in image.info and image.mode != "RGBA":
        pixels = np.array(image.convert("RGBA").convert("RGB"))
    else:
        pixels = np.array(image.convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def pixels_of(image: Any) -> Tensor:
    """Return an image in any usual form as RGB, uint8 ``[3, H, W]``.

    Args:
        image: A path, the bytes of a file or an open one, which are turned as their EXIF says; a PIL image,
            as it lies; an array ``[H, W, 3]``, ``[H, W, 4]``, ``[H, W, 1]`` or ``[H, W]``; a tensor or an
            array with its 1, 3 or 4 channels first. Arrays and tensors hold uint8, or floats from 0 to 1.

    Raises:
        DataError: It is none of these, or a file cannot be read as an image.
    """
    if is_web_address(image):
        raise DataError(f"{image!r} is an address", "download it first")
    if isinstance(image, str | Path):
        return read_image(expanded(image))
    if isinstance(image, Crop):
        return read_image(image)
    if isinstance(image, Image.Image):
        try:
            image.load()
        except (OSError, SyntaxError, ValueError) as error:  # it was closed, or its file is cut short
            raise DataError(
                f"a PIL image cannot be read ({first_line(error)})", "open it anew, or give its path"
            ) from error
        return to_rgb(image)
    if isinstance(image, bytes | bytearray | memoryview):
        return read_content(bytes(image))
    if hasattr(image, "read"):
        return read_content(content_of(image))
    if isinstance(image, Tensor):
        image = image.detach().cpu().numpy()
    if not isinstance(image, np.ndarray):
        kind = type(image).__name__
        remedy = "give paths, bytes or open files, PIL images, arrays [H, W, 3], or tensors [3, H, W]"
        raise DataError(f"an object of type {kind} is no image", remedy)
    shape = image.shape
    if image.ndim == 2:
        image = image[None]
    elif image.ndim == 3 and shape[-1] in (1, 3, 4) and shape[0] not in (1, 3, 4):
        image = image.transpose(2, 0, 1)
    if image.ndim != 3 or image.shape[0] not in (1, 3, 4) or not image.size:
        raise DataError(
            f"an array of shape {list(shape)} is no image", "give [H, W, 3] or [3, H, W], or a list of [H, W]"
        )
    image = image[:3]  # transparency is dropped, as of a PIL image
    return torch.from_numpy(np.ascontiguousarray(_as_bytes(image))).expand(3, -1, -1)


def _as_bytes(image: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return bytes as they are, and floats from 0 to 1 as 0 to 255."""
    if image.dtype == np.uint8:
        return image
    # NaN fails the comparison
    if not np.issubdtype(image.dtype, np.floating) or not (0 <= image.min() <= image.max() <= 1):
        held = f"from {image.min()} to {image.max()}"
        if image.dtype.kind == "f" and not np.isfinite(image).all():
            held = "that are not finite"
        raise DataError(
            f"pixels of {image.dtype} {held} have no known range",
            'give uint8 (of 0 to 255: .astype("uint8")), or floats from 0 to 1 (before any normalisation)',
        )
    return (image * 255).round().astype(np.uint8)


def _bytes_of(path: Path) -> bytes:
    """Return the content of a file; a pipe is refused, and not waited for."""
    try:
        # one that does not wait for whoever writes into a pipe
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                raise DataError("it is a pipe and no file", "replace it by an image, or leave it out")
            return file.read()
    except FileNotFoundError as error:
        what = f"there is no such image or folder{misspelt(path, folders=False)}"
        raise DataError(what, "check the path") from error
    except OSError as error:
        raise DataError(f"it cannot be read ({error.strerror})", "check the file") from error


def _opened(content: bytes) -> Image.Image:
    """Open an image, or refuse it by its header before any pixel is decoded."""
    if not content:
        raise DataError("it is empty", "replace it")
    # phones write these, and programs that rename them to .jpg are many
    name = _BRANDS.get(content[8:12]) if content[4:8] == b"ftyp" else None
    formats: tuple[str, ...] = FORMATS
    if name == "HEIC" and reads_heic():
        register_heic()
        formats = ("HEIF",)
    try:
        image = Image.open(BytesIO(_without_asides(content)), formats=formats)
    except UnidentifiedImageError as error:
        if name is not None:
            raise DataError(f"it is a picture in {name}, which is not read", way_out([name])) from error
        raise DataError(
            f"it is no image of the formats {', '.join(FORMATS)}", "convert or replace it"
        ) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"its header claims more than {_MOST_PIXELS} pixels", "scale it down") from error
    _require_known(image)
    return image


def _without_asides(content: bytes) -> bytes:
    """Return a PNG without profile and texts, of which Pillow refuses long ones; other content as it is.

    What may say how the picture lies is kept.
    """
    if not content.startswith(_PNG):
        return content
    kept = []
    start = len(_PNG)
    while start + 8 <= len(content):
        # length, kind, data, checksum
        end = start + 12 + int.from_bytes(content[start : start + 4], "big")
        kind = content[start + 4 : start + 8]
        keyword = content[start + 8 : start + 8 + _LONGEST_KEYWORD].partition(b"\0")[0]
        if kind not in _PNG_ASIDE or keyword in _PNG_NOTES:
            kept.append(content[start:end])
        start = end
    return b"".join([_PNG, *kept, content[start:]])


def _require_known(image: Image.Image) -> None:
    """Refuse an image of too many pixels, or of a mode that does not tell what its numbers mean."""
    width, height = image.size
    if width * height > _MOST_PIXELS:
        raise DataError(
            f"its header claims {width} x {height} pixels, and {_MOST_PIXELS} is the most", "scale it down"
        )
    whole = image.mode in _MODES_16 or (image.mode == "I" and image.format in _FORMATS_16)
    if image.mode not in _MODES and not whole:
        raise DataError(
            f"pixels of mode {image.mode!r} have no known range", "convert it to 8 or 16 bits yourself"
        )
