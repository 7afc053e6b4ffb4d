"""The image transforms."""

from __future__ import annotations

import itertools

import attrs
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from lw2g.blocks.presets import shared_rows
from lw2g.pixels.augmentation import CROP_DRAWS, canvas_of, crop_boxes, uniforms
from lw2g_benchmarks.options import NORMALISATIONS, TransformOptions
from lw2g_benchmarks.transforms import make_transforms

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
ROWS = {name: shared_rows()[name] for name in ("hide-cifar", "hide", "coda", "coda-cifar", "cprompt-cifar")}


def image(height=40, width=30):
    """Return a fixed random image."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=generator)


def make(image_size=28, **options):
    """Return transforms, to 28 pixels unless told otherwise."""
    return make_transforms(TransformOptions(**options), image_size=image_size, mean=MEAN, std=STD)


def of_row(name, image_size=28, **more):
    """Return the transforms of an official row."""
    own = {key.removeprefix("benchmark."): value for key, value in ROWS[name].items()}
    return make(image_size, **own, **more)


def trained(transforms, picture, draws=64):
    """Return what the training transform gives in several draws."""
    torch.manual_seed(1)
    return torch.stack([transforms.train(picture) for _ in range(draws)])


@pytest.mark.parametrize("train_transform", ["none", "light", "rrc"])
@pytest.mark.parametrize("test_resize", ["crop", "squash"])
@pytest.mark.parametrize("jitter_first", [False, True])
def test_shape_and_determinism(train_transform, test_resize, jitter_first):
    """Float32 [3, S, S]; testing repeats, training as it declares, and always after the same global seed."""
    pair = make(
        train_transform=train_transform, test_resize=test_resize, jitter=0.25, jitter_first=jitter_first
    )
    for transform in (pair.train, pair.test):
        assert transform(image()).shape == (3, 28, 28)
        assert transform(image()).dtype == torch.float32
    assert torch.equal(pair.test(image()), pair.test(image()))
    runs = [pair.train(image()) for _ in range(8)]
    assert all(torch.equal(run, pair.test(image())) for run in runs) == pair.train_is_deterministic
    assert pair.train_is_deterministic == (train_transform == "none")
    assert torch.equal(trained(pair, image(), 2), trained(pair, image(), 2))


def test_unit_keeps_the_range():
    """Without statistics values lie in [0, 1] and an image of the right size is only divided by 255."""
    exact = image(28, 28)
    result = make(normalise="unit", test_resize="squash").test(exact)
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


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_the_filters_are_those_named(interpolation):
    """Testing resamples as PIL, the authors' library, does, to the rounding of pixels."""
    picture = image(40, 20) // 2 + 64  # overshoot would be clipped at another moment than PIL does
    drawn = Image.fromarray(picture.permute(1, 2, 0).numpy())
    resized = drawn.resize((28, 28), resample=Image.Resampling[interpolation.upper()])
    expected = torch.from_numpy(np.array(resized)).permute(2, 0, 1).float()
    found = make(normalise="unit", test_resize="squash", test_interpolation=interpolation).test(picture) * 255
    assert (found - expected).abs().max() < 1.01
    both = {
        name: trained(make(train_interpolation=name, flip=False), picture) for name in ("bilinear", "bicubic")
    }
    assert not torch.equal(both["bilinear"], both["bicubic"])


def test_jitter_scales_brightness_and_no_more_than_told():
    """A grey image keeps its grey up to a factor of [1 - j, 1 + j]; without jitter it stays as it is."""
    grey = torch.full((3, 40, 40), 100, dtype=torch.uint8)
    for first, jitter in itertools.product((False, True), (0.0, 0.25)):
        levels = (
            trained(make(normalise="unit", jitter=jitter, jitter_first=first), grey).mean((1, 2, 3)) * 255
        )
        bounds = (100 * (1 - jitter) - 1, 100 * (1 + jitter) + 1)
        assert bounds[0] <= levels.min() <= levels.max() <= bounds[1]
        assert (levels.std() > 5) == bool(jitter)


@pytest.mark.parametrize("train_transform", ["light", "rrc"])
def test_flip_can_be_left_out(train_transform):
    """Dark left, bright right: mirrored in about half of the draws, and in none where flips are off."""
    half = torch.zeros(3, 28, 28, dtype=torch.uint8)
    half[:, :, 14:] = 255
    for flip, low, high in ((True, 16, 48), (False, 0, 0)):
        draws = trained(make(normalise="unit", train_transform=train_transform, flip=flip), half)
        mirrored = draws[..., 0].mean((1, 2)) > draws[..., -1].mean((1, 2))
        assert low <= int(mirrored.sum()) <= high


def test_scale_is_the_least_share_of_a_crop():
    """At a least share of all but everything, crops of a ramp keep its contrast; at 0.05 many lose it."""
    ramp = torch.arange(64, dtype=torch.uint8).mul(4).expand(3, 64, 64).contiguous()
    kept = {}
    for scale in (0.05, 0.99):
        draws = trained(make(normalise="unit", train_scale=scale, flip=False), ramp)
        kept[scale] = (draws[..., -1] - draws[..., 0]).mean((1, 2))
    assert kept[0.99].min() > 0.8
    assert kept[0.05].min() < 0.6


def test_official_rows_differ_where_the_authors_do():
    """Test pixels of a wide image: four rows; on a small square one CODA's own CIFAR row is another one."""
    wide = {name: of_row(name).test(image(300, 400)) for name in ROWS if name != "coda-cifar"}
    for first, second in itertools.combinations(wide, 2):
        assert not torch.allclose(wide[first], wide[second], atol=1e-4), (first, second)
    small = image(32, 32)
    tests = [of_row(name, 56).test(small) for name in ("coda-cifar", "hide", "coda")]
    assert all(not torch.allclose(a, b, atol=1e-4) for a, b in itertools.combinations(tests, 2))
    train = {name: trained(of_row(name), image(96, 96), 6) for name in ROWS}
    equal = [
        {first, second}
        for first, second in itertools.combinations(train, 2)
        if torch.equal(train[first], train[second])
    ]
    assert equal == [{"coda", "coda-cifar"}]


def test_the_defaults_are_one_row_for_all_methods():
    """Like-for-like is LAMDA's row under the statistics of the backbone."""
    expected = {**shared_rows()["hide"], "benchmark.normalise": "native"}
    assert {f"benchmark.{key}": value for key, value in attrs.asdict(TransformOptions()).items()} == expected


@pytest.mark.parametrize("normalise", ["unit", "native"])
def test_the_end_has_the_bits_of_torchvisions(normalise):
    """Scaling and normalising in place, alone or by the batch, is ToDtype and Normalize to the bit."""
    finish = make(normalise=normalise).test.finish
    steps = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    pixels = torch.stack([image(28, 28), image(28, 28).flip(1)])
    expected = v2.Compose(steps[: 1 + (normalise == "native")])(pixels)
    last = pixels.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    for given in (pixels, last):
        assert torch.equal(finish(given), expected)
        assert torch.equal(finish(given[1]), expected[1])
        assert finish(given).is_contiguous()


def by_the_batch(transforms, pictures, seed=3):
    """Return pictures augmented by the batch, each with draws of its own."""
    batch = transforms.train.batch
    kept = [batch.pixels(picture) for picture in pictures]
    shapes = torch.tensor([[*k.shape[:2], *p.shape[1:]] for k, p in zip(kept, pictures, strict=True)])
    return batch(canvas_of(kept), shapes, uniforms(seed, torch.arange(len(pictures)), batch.draws))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"train_interpolation": "bicubic", "train_scale": 0.6, "flip": False},
        {"jitter": 0.4},
        {"jitter": 0.4, "jitter_first": True},
        {"train_transform": "light", "jitter": 0.2},
    ],
)
@pytest.mark.parametrize("size", [(20, 24), (90, 60)])
def test_by_the_batch_images_have_the_distribution_of_single_ones(options, size):
    """Mean, deviation and left-right difference of a shaded picture agree over many draws."""
    rows, columns = torch.meshgrid(*(torch.linspace(0, 1, side) for side in size), indexing="ij")
    picture = torch.stack([rows, columns, rows * columns]).mul(200).byte()
    transforms = make(normalise="unit", **options)
    single = trained(transforms, picture, 400)
    together = by_the_batch(transforms, [picture] * 400)
    assert together.shape == single.shape

    def facts(images):
        sides = images[..., :14].mean((2, 3)) - images[..., 14:].mean((2, 3))
        return torch.cat([images.mean((2, 3)), images.std((2, 3)), sides], dim=1)

    one, other = facts(single), facts(together)
    error = one.std(0) * (2 / 400) ** 0.5
    assert ((one.mean(0) - other.mean(0)).abs() < 5 * error + 0.01).all()
    torch.testing.assert_close(one.std(0), other.std(0), rtol=0.25, atol=0.01)


@pytest.mark.parametrize("side", [28, 32, 112])
def test_by_the_batch_pixels_are_exact_unless_images_are_larger_than_a_test_reads(side):
    """For the same draws: the same bytes; noise in a large image loses contrast, but less than half."""
    given = image(side, side)
    transforms = make(normalise="unit")
    found = by_the_batch(transforms, [given] * 40)
    draws = uniforms(3, torch.arange(40), CROP_DRAWS + 2)
    boxes = crop_boxes(draws[:, :CROP_DRAWS], torch.tensor([[side, side]]).expand(40, 2), least=0.05)
    mode = v2.InterpolationMode.BILINEAR
    exact = torch.stack(
        [v2.functional.resized_crop(given, *box, [28, 28], mode, antialias=True) for box in boxes.tolist()]
    )
    mirrored = draws[:, CROP_DRAWS] < 0.5
    assert 8 < mirrored.sum() < 32
    exact[mirrored] = exact[mirrored].flip(-1)
    error = (255 * found - exact).abs()
    if side <= 32:
        assert error.max() < 1.01  # a level, by which older kernels of torch round otherwise
        assert error.mean() < 0.2
    else:
        assert 0.5 < found.std() / (exact / 255).std() < 0.97


def test_what_is_kept_for_batches_is_no_larger_than_a_test_reads():
    """Large images are cut down to 8/7 of the input, small ones kept as they are."""
    batch = make().train.batch
    assert batch.pixels(image(100, 30)).shape == (32, 30, 3)
    assert torch.equal(batch.pixels(image(20, 32)), image(20, 32).permute(1, 2, 0))
