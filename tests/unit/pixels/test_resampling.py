"""Our resizing and cropping have the bits of torchvision's."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms import v2

from lw2g.pixels.preprocessing import Preprocessing
from lw2g.pixels.resampling import center_crop, channels_last, resize

INTERPOLATIONS = ("bilinear", "bicubic")


def image_of(height: int, width: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (3, height, width), generator=generator, dtype=torch.uint8)


_SIDES = st.integers(2, 40)
"""Not 1: torch's byte kernel takes one pixel for another memory format, and fails, whoever asks."""


@given(
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    size=_SIDES | st.tuples(_SIDES, _SIDES),
    interpolation=st.sampled_from(INTERPOLATIONS),
    last=st.booleans(),
    seed=st.integers(0, 9),
)
def test_resizing_has_torchvisions_bits(height, width, size, interpolation, last, seed):
    """Up and down, either memory format, either way to name the size: every byte is the same."""
    image = image_of(height, width, seed)
    image = channels_last(image) if last else image
    theirs = v2.Resize(size, interpolation=v2.InterpolationMode(interpolation), antialias=True)(image)
    ours = resize(image, size, interpolation)
    assert torch.equal(ours, theirs)
    assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_resizing_in_floats_has_torchvisions_bits(monkeypatch, interpolation):
    """A processor without kernels for bytes resamples floats and rounds, as torchvision does."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    image = channels_last(image_of(37, 53, 0))
    theirs = v2.Resize(20, interpolation=v2.InterpolationMode(interpolation), antialias=True)(image)
    assert torch.equal(resize(image, 20, interpolation), theirs)


@given(height=st.integers(8, 30), width=st.integers(8, 30), size=st.integers(1, 8))
def test_the_centre_is_torchvisions(height, width, size):
    """An odd border is split as torchvision splits it."""
    image = image_of(height, width, 0)
    assert torch.equal(center_crop(image, size), v2.CenterCrop(size)(image))


@pytest.mark.parametrize(("resize_by", "size"), [("crop", 224), ("crop", 32), ("squash", 48)])
def test_the_test_transform_has_torchvisions_bits_and_can_be_sent(resize_by, size):
    """Resized, cropped and normalised as by a chain of v2's transforms, also in another process."""
    image = image_of(90, 130, 1)
    mean, std = (0.48, 0.45, 0.4), (0.22, 0.23, 0.25)
    ours = pickle.loads(pickle.dumps(Preprocessing(size=size, resize=resize_by, mean=mean, std=std)))
    steps = [v2.Resize((size, size), interpolation=v2.InterpolationMode.BICUBIC)]
    if resize_by == "crop":
        steps = [v2.Resize(size * 8 // 7, interpolation=v2.InterpolationMode.BICUBIC), v2.CenterCrop(size)]
    theirs = v2.Compose(
        [channels_last, *steps, v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]
    )
    assert torch.equal(ours(image), theirs(image))
