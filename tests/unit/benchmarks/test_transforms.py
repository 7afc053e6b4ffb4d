"""The image transforms."""

from __future__ import annotations

import pytest
import torch

from lw2g_benchmarks.options import NORMALISATIONS, TRAIN_TRANSFORMS
from lw2g_benchmarks.transforms import make_transforms

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)


def image(height=40, width=30):
    """Return a fixed random image."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)


def make(**options):
    """Return transforms to 28 pixels."""
    return make_transforms(image_size=28, mean=MEAN, std=STD, **options)


@pytest.mark.parametrize("train_transform", TRAIN_TRANSFORMS)
@pytest.mark.parametrize("test_resize", ["crop", "squash"])
def test_shape_and_determinism(train_transform, test_resize):
    """Both transforms give float32 [3, S, S]; testing repeats, and training does so as it declares."""
    pair = make(train_transform=train_transform, test_resize=test_resize)
    for transform in (pair.train, pair.test):
        assert transform(image()).shape == (3, 28, 28)
        assert transform(image()).dtype == torch.float32
    assert torch.equal(pair.test(image()), pair.test(image()))
    runs = [pair.train(image()) for _ in range(8)]
    assert all(torch.equal(run, pair.test(image())) for run in runs) == pair.train_is_deterministic
    assert pair.train_is_deterministic == (train_transform == "none")


@pytest.mark.parametrize("train_transform", ["light", "rrc", "official"])
def test_augmentation_follows_the_global_cpu_generator(train_transform):
    """Seeding torch's CPU generator fixes the augmented image."""
    train = make(train_transform=train_transform).train
    torch.manual_seed(5)
    first = train(image())
    second = train(image())
    torch.manual_seed(5)
    assert torch.equal(train(image()), first)
    assert not torch.equal(first, second)


def test_unit_keeps_the_range():
    """Without statistics values lie in [0, 1] and an image of the right size is only divided by 255."""
    exact = image(28, 28)
    result = make(normalise="unit").test(exact)
    torch.testing.assert_close(result, exact.float() / 255)
    assert result.min() == 0
    assert result.max() == 1


@pytest.mark.parametrize("normalise", [n for n in NORMALISATIONS if n != "unit"])
def test_normalisation_uses_the_named_statistics(normalise):
    """Each choice subtracts its own mean and divides by its own deviation."""
    statistics = {
        "native": (MEAN, STD),
        "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
        "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    }
    mean, std = (torch.tensor(v)[:, None, None] for v in statistics[normalise])
    unit = make(normalise="unit").test(image())
    torch.testing.assert_close(make(normalise=normalise).test(image()), (unit - mean) / std)


def test_crop_takes_the_middle_of_an_eighth_more():
    """The crop rule resizes the shorter side to 8/7 of the input and keeps the centre."""
    wide = torch.zeros(3, 32, 64, dtype=torch.uint8)
    wide[:, :, 18:46] = 255  # the middle 28 columns at the resized height 32
    assert make(normalise="unit", test_resize="crop").test(wide).min() == 1
    assert make(normalise="unit", test_resize="squash").test(wide).min() == 0
