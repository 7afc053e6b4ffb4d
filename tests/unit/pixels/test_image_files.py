"""Image files are examined without trust and decoded to 8 bits."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import zlib

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps, PngImagePlugin

from lw2g.errors import DataError
from lw2g.pixels import image_files
from lw2g.pixels.image_files import examine_image, read_image, to_rgb


def png_header(width, height):
    """Return a PNG that claims a size and holds nothing."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + size + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


NOISE = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)


@pytest.mark.parametrize("suffix", ["bmp", "gif", "jpg", "png", "ppm", "tif", "webp"])
def test_whole_and_truncated_files(tmp_path, suffix):
    """A whole file tells mode and size; one without its end is refused in the same words by each reader."""
    path = tmp_path / f"x.{suffix}"
    Image.fromarray(NOISE).save(path)
    header = examine_image(path)
    assert (header.mode in ("RGB", "P"), header.size) == (True, (30, 40))
    assert read_image(path).shape == (3, 40, 30)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    said = set()
    for read in (examine_image, read_image):
        with pytest.raises(DataError) as caught:
            read(path)
        said.add(str(caught.value))
    assert said == {f"'{path}': it is damaged and cannot be decoded; replace it"}


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bits_become_8(tmp_path, suffix):
    """The whole range of 16 bits is the whole range of 8 bits; nothing is cut off at 255."""
    path = tmp_path / f"x.{suffix}"
    Image.fromarray(np.array([[0, 255, 257, 32768, 65535]], dtype=np.uint16)).save(path)
    assert examine_image(path).size == (5, 1)
    assert read_image(path)[:, 0].tolist() == [[0, 1, 1, 128, 255]] * 3


@pytest.mark.parametrize("mode", ["F", "I"])
def test_numbers_of_unknown_range_are_refused(tmp_path, mode):
    """Floats and 32-bit integers say nothing of where white is."""
    path = tmp_path / "x.tif"
    Image.new(mode, (2, 2), 3).save(path)
    for read in (examine_image, read_image, lambda path: to_rgb(Image.new(mode, (2, 2)))):
        with pytest.raises(DataError, match=f"pixels of mode '{mode}' have no known range"):
            read(path)


@pytest.mark.parametrize("side", [10_000, 20_000, 2**31 - 1])
def test_bombs_are_refused_by_their_header(tmp_path, side):
    """A small file that claims a huge image is refused before a pixel is decoded."""
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(side, side))
    for read in (examine_image, read_image):
        with pytest.raises(DataError, match=r"bomb\.png': its header claims"):
            read(path)


def test_pillow_does_not_warn_of_a_bomb_that_is_refused(tmp_path):
    """In a process of its own: here, every warning is an error."""
    (tmp_path / "bomb.png").write_bytes(png_header(10_000, 10_000))
    code = "from lw2g.pixels.image_files import pixels_of; pixels_of('bomb.png')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "its header claims" in done.stderr
    assert "DecompressionBombWarning" not in done.stderr


@pytest.mark.parametrize("content", [b"text", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n"])
def test_other_formats_are_not_even_tried(tmp_path, content):
    """PostScript and the like never reach their decoders, whatever the file is called."""
    path = tmp_path / "x.png"
    path.write_bytes(content)
    with pytest.raises(DataError, match="no image of the formats BMP"):
        read_image(path)


def test_a_missing_file_and_a_directory(tmp_path):
    """What the system cannot read, or what holds nothing, is told with the path."""
    (tmp_path / "empty.png").touch()
    with pytest.raises(DataError, match=r"empty.png': it is empty; replace it"):
        read_image(tmp_path / "empty.png")
    for path, told in (
        (tmp_path / "none.png", "there is no such image or folder"),
        (tmp_path, "it cannot be read"),
    ):
        with pytest.raises(DataError, match=f"'{path}': {told}"):
            read_image(path)


@pytest.mark.parametrize("use", [read_image, examine_image])
def test_a_pipe_is_not_waited_for(tmp_path, use):
    """A file that has become a pipe is refused, where reading it would never end."""
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.png.*it is a pipe and no file"):
        use(tmp_path / "a.png")


def test_transparency_of_a_palette_is_left_out(tmp_path):
    """A palette with transparent colours decodes to its colours, without a warning."""
    path = tmp_path / "x.png"
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    image.save(path, transparency=b"\x00\x80")
    assert read_image(path)[:, 0].tolist() == [[10, 40], [20, 50], [30, 60]]


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
def test_a_photograph_is_turned_as_its_exif_says(tmp_path, suffix):
    """A phone that was held upright writes the picture lying down, with a note."""
    pixels = np.zeros((16, 32, 3), dtype=np.uint8)
    pixels[:, 16:] = 255  # lying: the right half is bright
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # to be turned by a quarter clockwise
    path = tmp_path / f"x.{suffix}"
    Image.fromarray(pixels).save(path, exif=exif)
    upright = read_image(path)
    assert upright.shape == (3, 32, 16)
    assert upright[:, :12].max() < 64
    assert upright[:, 20:].min() > 192
    if suffix != "tif":  # Pillow itself turns these
        assert read_image(path, upright=False).shape == (3, 16, 32)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turns_are_those_of_pillow(tmp_path, orientation):
    """All eight of them."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    path = tmp_path / "x.png"
    Image.fromarray(NOISE).save(path, exif=exif)
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(read_image(path).permute(1, 2, 0).numpy(), expected)


def test_a_damaged_note_loses_no_picture(tmp_path):
    """EXIF that cannot be read is passed over."""
    path = tmp_path / "x.jpg"
    Image.fromarray(NOISE).save(path, exif=b"Exif\0\0no note at all")
    assert read_image(path).shape == (3, 40, 30)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("kind", ["add_text", "add_itxt"])
def test_a_long_text_loses_no_picture(tmp_path, kind, zipped):
    """Programs keep prompts and logs of megabytes beside the pixels; the orientation is read all the same."""
    info = PngImagePlugin.PngInfo()
    getattr(info, kind)("Comment", "a b c " * 500_000, zip=zipped)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    path = tmp_path / "x.png"
    Image.fromarray(NOISE).save(path, pnginfo=info, exif=exif)
    assert examine_image(path).size == (30, 40)
    upright = np.asarray(Image.fromarray(NOISE).transpose(Image.Transpose.ROTATE_270))
    assert np.array_equal(read_image(path).permute(1, 2, 0).numpy(), upright)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 40])
    with pytest.raises(DataError, match="it is damaged"):
        examine_image(path)


def test_a_large_colour_profile_loses_no_picture(tmp_path):
    """Profiles of printers have megabytes; pixels are read as they are, with a profile or without."""
    path = tmp_path / "x.png"
    Image.fromarray(NOISE).save(path, icc_profile=b"profile" * 500_000)
    assert examine_image(path).size == (NOISE.shape[1], NOISE.shape[0])
    assert np.array_equal(read_image(path).permute(1, 2, 0).numpy(), NOISE)


def test_an_orientation_in_a_text_is_read(tmp_path):
    """ImageMagick writes EXIF as a text of hexadecimal digits."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    raw = b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0")
    info = PngImagePlugin.PngInfo()
    info.add_text("Raw profile type exif", f"\nexif\n{len(raw):8}\n{raw.hex()}\n", zip=True)
    path = tmp_path / "x.png"
    Image.fromarray(NOISE).save(path, pnginfo=info)
    assert read_image(path).shape == (3, 30, 40)


@pytest.mark.parametrize(("brand", "name"), [(b"heic", "HEIC"), (b"mif1", "HEIC"), (b"avif", "AVIF")])
@pytest.mark.usefixtures("without_heic")
def test_a_picture_of_a_phone_is_named_whatever_its_ending(tmp_path, brand, name):
    """A HEIC that was renamed to .jpg is told as what it is, with the way out."""
    path = tmp_path / "x.jpg"
    path.write_bytes(b"\0\0\0\x18ftyp" + brand + bytes(12))
    for read in (examine_image, read_image):
        with pytest.raises(
            DataError, match=f"it is a picture in {name}, which is not read; convert {name} to JPEG"
        ):
            read(path)


@pytest.mark.parametrize("waits", [0, 1000])
def test_many_files_are_examined_in_order_whether_in_threads_or_not(tmp_path, monkeypatch, waits):
    """Threads read where one would wait for a disk, and nowhere else; what is found is the same."""
    monkeypatch.setattr(image_files, "_SAMPLE", 2)
    told = iter((0, waits))
    monkeypatch.setattr(image_files, "_waits", lambda: next(told))
    readers = set()
    examine = image_files.examine_image
    monkeypatch.setattr(
        image_files,
        "examine_image",
        lambda path: readers.add(threading.current_thread() is threading.main_thread()) or examine(path),
    )
    paths = [tmp_path / f"{number}.png" for number in range(8)]
    for number, path in enumerate(paths):
        Image.new("RGB", (number + 1, 3)).save(path)
    paths[5].write_bytes(b"no image")
    found = list(image_files.examine_each(paths))
    assert readers == ({True, False} if waits else {True})
    assert [one.size[0] for one in found[:5]] == [1, 2, 3, 4, 5]
    assert str(paths[5]) in str(found[5])
    assert (found[7].size[0], found[7].num_bytes) == (8, paths[7].stat().st_size)
