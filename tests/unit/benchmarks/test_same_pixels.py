"""Equal pixels under two encodings are one image; files of one encoding are not decoded for that."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import ExifTags, Image

from lw2g.pixels.shared import notes_on, require_unseen_images
from lw2g_benchmarks import same_pixels
from lw2g_benchmarks.folder import FolderBenchmark
from lw2g_benchmarks.options import FolderConfig

PIXELS = np.random.default_rng(0).integers(0, 256, (9, 8, 6, 3), dtype=np.uint8)


def tree(root, train, test):
    """Write images by number, split and ending: four of each class to learn from, two to test with."""
    for split, ending, options, numbers in (("train", *train, range(6)), ("test", *test, range(5, 9))):
        for number in numbers:
            path = root / split / "ab"[number % 2] / f"{number}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(PIXELS[number]).save(path, **options)
    return root


def stream(root, **options):
    """Return the stream of a tree."""
    return FolderBenchmark(FolderConfig(root=root, increment=2, **options)).stream()


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (("bmp", {}), ("png", {})),
        (("png", {}), ("tif", {"compression": "tiff_lzw"})),
        (("ppm", {}), ("webp", {"lossless": True})),
        (("tif", {}), ("tif", {"compression": "tiff_lzw"})),
        (("png", {"compress_level": 1}), ("png", {"compress_level": 9})),
    ],
)
def test_the_same_pixels_are_one_image(tmp_path, train, test):
    """Whatever the two lossless encodings are; the others are told apart."""
    root = tree(tmp_path / "data", train, test)
    shared = require_unseen_images(stream(root))
    assert (shared.count, shared.tested) == (1, 4)
    assert shared.named == ((f"data/test/b/5.{test[0]}", f"data/train/b/5.{train[0]}"),)


def test_a_png_of_a_photograph_is_the_photograph(tmp_path):
    """What a JPEG decodes to, turned as its note says, was stored without loss."""
    root = tree(tmp_path / "data", ("jpg", {}), ("bmp", {}))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.fromarray(PIXELS[0]).save(root / "train/a/0.jpg", exif=exif)
    with Image.open(root / "train/a/0.jpg") as image:
        image.transpose(Image.Transpose.ROTATE_270).save(root / "test/a/turned.png")
    shared = require_unseen_images(stream(root))
    assert shared.named == (("data/test/a/turned.png", "data/train/a/0.jpg"),)


@pytest.mark.parametrize("ending", ["png", "jpg", "bmp"])
def test_a_set_of_one_encoding_costs_nothing(tmp_path, monkeypatch, ending):
    """Files that were written alike are compared by their bytes, and none is decoded."""
    root = tree(tmp_path / "data", (ending, {}), (ending, {}))
    monkeypatch.setattr("lw2g_benchmarks.listed_images.read_image", lambda *_, **__: pytest.fail("decoded"))
    assert require_unseen_images(stream(root)).count == 1


def test_what_is_not_compared_is_told(tmp_path, monkeypatch):
    """Beyond the bound images are compared by their bytes, and a note says so; small ones go first."""
    root = tree(tmp_path / "data", ("png", {}), ("bmp", {}))
    Image.new("RGB", (2, 2)).save(root / "train/a/small.png")
    Image.new("RGB", (2, 2)).save(root / "test/a/small.bmp")
    monkeypatch.setattr(same_pixels, "_MOST_PIXELS", 100)
    made = stream(root)
    assert require_unseen_images(made).named == (("data/test/a/small.bmp", "data/train/a/small.png"),)
    assert (
        "10 images of equal sizes in several encodings were compared by their bytes alone"
        in notes_on(made)[0]
    )


def test_hashes_of_other_images_stay(tmp_path):
    """Nothing that rests on them moves where no two encodings are equal."""
    one = stream(tree(tmp_path / "one/data", ("png", {}), ("png", {})))
    other = stream(tree(tmp_path / "two/data", ("png", {}), ("bmp", {})))
    assert one.tasks[0].train.contents.tolist() == other.tasks[0].train.contents.tolist()
