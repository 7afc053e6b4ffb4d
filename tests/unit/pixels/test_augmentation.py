"""Augmentation by the batch: torchvision's distributions and pixels, on draws that are arithmetic."""

from __future__ import annotations

import pytest
import torch
from packaging.version import Version
from torchvision.transforms import RandomResizedCrop, v2
from torchvision.transforms.v2 import functional as one_image

from lw2g.pixels import augmentation
from lw2g.pixels.augmentation import (
    CROP_DRAWS,
    brightened,
    canvas_of,
    crop_boxes,
    resampled,
    shifted,
    uniforms,
)

MANY = uniforms(7, torch.arange(4000), CROP_DRAWS)


def some_images(count, height, width):
    """Return noise, the hardest to resample."""
    generator = torch.Generator().manual_seed(height)
    return torch.randint(0, 256, (count, height, width, 3), dtype=torch.uint8, generator=generator)


def test_draws_are_uniform_and_belong_to_seed_and_position():
    """Each draw fills [0, 1) evenly, no two go together, and a sample's are the same in any batch."""
    assert 0 <= MANY.min() < 0.001
    assert 0.999 < MANY.max() < 1
    counts = torch.stack([torch.histc(column, 10, 0, 1) for column in MANY.T])
    assert (counts - 400).abs().max() < 5 * 400**0.5
    together = torch.corrcoef(MANY.T) - torch.eye(CROP_DRAWS)
    neighbours = torch.corrcoef(torch.stack([MANY[:-1, 0], MANY[1:, 0]]))[0, 1]
    assert max(together.abs().max(), neighbours.abs()) < 5 / 4000**0.5
    assert torch.equal(uniforms(7, torch.tensor([30, 2]), CROP_DRAWS), MANY[[30, 2]])
    assert not torch.isclose(uniforms(8, torch.arange(50), 1), MANY[:50, :1]).any()
    # SplitMix64's own first numbers from state 0
    assert [number + 2**64 if number < 0 else number for number in _states(0)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def _states(seed):
    return augmentation._mixed(seed + torch.arange(1, 4) * augmentation._GOLDEN).tolist()


@pytest.mark.parametrize("size", [(40, 50), (20, 120)])
def test_boxes_are_distributed_as_torchvision_draws_them(size):
    """Places, sides and areas of many boxes have torchvision's distributions (two samples, 0.1 %)."""
    boxes = crop_boxes(MANY, torch.tensor([size]).expand(4000, 2), least=0.05)
    assert boxes.min() >= 0
    assert (boxes[:, 2:].amin(0) > 0).all()
    assert ((boxes[:, :2] + boxes[:, 2:]) <= torch.tensor(size)).all()
    picture = torch.zeros(3, *size, dtype=torch.uint8)
    torch.manual_seed(0)
    # top, left, height, width
    drawn = [RandomResizedCrop.get_params(picture, [0.05, 1], [3 / 4, 4 / 3]) for _ in range(4000)]
    for ours, theirs in zip(_facts(boxes), _facts(torch.tensor(drawn)), strict=True):
        levels = torch.cat([ours, theirs]).unique()
        share, other = (torch.searchsorted(x.sort()[0], levels, right=True) / 4000 for x in (ours, theirs))
        assert (share - other).abs().max() < 1.95 * (2 / 4000) ** 0.5  # Kolmogorov and Smirnov


def _facts(boxes):
    top, left, height, width = boxes.double().T
    return top, left, height, width, height * width, height / width, top + height / 2, left + width / 2


def test_an_image_no_box_fits_is_cropped_in_the_middle():
    """A strip falls back to its centre at the most allowed ratio, a square to the whole."""
    draws = torch.full((3, CROP_DRAWS), 0.9)
    boxes = crop_boxes(draws, torch.tensor([[9, 400], [400, 9], [1, 1]]), least=0.9)
    assert boxes.tolist() == [[0, 194, 9, 12], [194, 0, 12, 9], [0, 0, 1, 1]]


_ROUNDS = Version(torch.__version__) < Version("2.8")
"""Older kernels round a level up or down by how an image lies in memory."""


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("size", "result"), [((32, 20), 48), ((50, 60), 16)])
def test_resampling_is_torchvisions_one_by_one_and_together(interpolation, size, result):
    """The CPU's way gives torchvision's pixels; the products of other devices are within rounding of them."""
    images = some_images(24, *size)
    boxes = crop_boxes(MANY[:24], torch.tensor([size]).expand(24, 2), least=0.05)
    mirrored = MANY[:24, 0] < 0.5
    found = resampled(images, boxes, mirrored, size=result, interpolation=interpolation)
    mode = v2.InterpolationMode(interpolation)
    for image, box, mirror, made in zip(images, boxes.tolist(), mirrored.tolist(), found, strict=True):
        theirs = one_image.resized_crop(image.permute(2, 0, 1), *box, [result, result], mode, antialias=True)
        expected = one_image.horizontal_flip(theirs) if mirror else theirs
        assert ((made.permute(2, 0, 1).int() - expected.int()).abs() <= int(mirror or _ROUNDS)).all()
    together = augmentation._together(images, boxes, mirrored, result, interpolation)
    assert (together.int() - found.int()).abs().max() <= 2
    assert (together != found).float().mean() < 0.1


def test_shifts_reflect_at_the_edges_and_brightness_is_cut_at_white():
    """Both are torchvision's for the same draws."""
    images, most = some_images(30, 12, 12), 3
    draws, mirrored = MANY[:30, :2], MANY[:30, 2] < 0.5
    made = shifted(images, draws, mirrored, most=most)
    places = (draws * 7).floor().int().tolist()
    assert {place for pair in places for place in pair} == set(range(7))
    for image, (top, left), mirror, one in zip(images, places, mirrored.tolist(), made, strict=True):
        wide = one_image.pad(image.permute(2, 0, 1), [most], padding_mode="reflect")
        cut = one_image.crop(wide, top, left, 12, 12)
        assert torch.equal(one.permute(2, 0, 1), one_image.horizontal_flip(cut) if mirror else cut)
    bright = brightened(images, draws[:, 0], most=0.5).permute(0, 3, 1, 2)
    for image, draw, one in zip(images, draws[:, 0].tolist(), bright, strict=True):
        assert torch.equal(one, one_image.adjust_brightness(image.permute(2, 0, 1), 0.5 + draw))


def test_a_canvas_holds_images_of_several_sizes():
    """Each lies in the top left corner; images of one size are stacked."""
    first, second = some_images(1, 4, 6)[0], some_images(1, 5, 3)[0]
    canvas = canvas_of([first, second])
    assert canvas.shape == (2, 5, 6, 3)
    assert torch.equal(canvas[0, :4], first)
    assert torch.equal(canvas[1, :, :3], second)
    assert torch.equal(canvas_of([first, first]), torch.stack([first, first]))
