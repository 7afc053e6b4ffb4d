"""The procedural glyphs benchmark and the classes for pre-training."""

from __future__ import annotations

import hashlib

import attrs
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lw2g.errors import ConfigError
from lw2g_benchmarks.glyph_painting import sine
from lw2g_benchmarks.glyph_pretraining import PRETRAINING_FAMILIES, PRETRAINING_NAMESPACE
from lw2g_benchmarks.glyph_random import Draws, class_key, mix, sample_keys
from lw2g_benchmarks.glyph_shapes import FAMILIES, render_classes
from lw2g_benchmarks.glyphs import NAMESPACE, GlyphsBenchmark
from lw2g_benchmarks.options import GlyphsConfig

SMALL = GlyphsConfig(classes_per_family=4, increment=2, train_per_class=3, test_per_class=2, image_size=16)


def stream(**changes):
    """Return the stream of a small configuration with changes."""
    return GlyphsBenchmark(attrs.evolve(SMALL, **changes)).stream()


def splitmix(value):
    """Return the finaliser of splitmix64 in Python's integers."""
    mask = 2**64 - 1
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & mask
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & mask
    return value ^ (value >> 31)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_mix_is_splitmix64(values):
    """The vectorised hash agrees with the integer formula."""
    assert mix(np.array(values, dtype=np.uint64)).tolist() == [splitmix(v) for v in values]


def test_known_splitmix64_value():
    """The first output of splitmix64 seeded with 0 is the published one."""
    assert int(mix(np.array([0x9E3779B97F4A7C15], dtype=np.uint64))[0]) == 0xE220A8397B1DCDAF


def test_draws_depend_on_key_and_counter_only():
    """Drawing for many keys together or apart gives the same numbers, in range and spread out."""
    keys = sample_keys(7, "train", 500)
    together = Draws(keys).uniform(4, -1.0, 3.0)
    assert np.array_equal(together[3:4], Draws(keys[3:4]).uniform(4, -1.0, 3.0))
    assert together.dtype == np.float32
    assert -1 <= together.min() < -0.9
    assert 2.9 < together.max() < 3
    assert abs(together.mean() - 1) < 0.1
    draws = Draws(keys)
    assert not np.array_equal(draws.uniform(1), draws.uniform(1))


def test_sine_is_close_to_the_sine():
    """The polynomial sine is within 0.0012 over several turns."""
    turns = np.linspace(-3, 3, 2001, dtype=np.float32)
    assert np.abs(sine(turns) - np.sin(2 * np.pi * turns)).max() < 0.0012


@pytest.mark.parametrize("family", list(PRETRAINING_FAMILIES))
def test_painters_stay_in_single_precision(family):
    """Every painter returns float32 [n, 3, S, S] of finite values."""
    keys = sample_keys(1, "train", 2)
    image = PRETRAINING_FAMILIES[family](Draws(keys), Draws(keys), 16)
    assert image.dtype == np.float32
    assert image.shape == (2, 3, 16, 16)
    assert np.isfinite(image).all()


PINNED = {
    "strokes": "86fb9ffe49bab73168439e2da686681960ac49f1b623f169b5ada670aca30c18",
    "solids": "3d90dd1156d7907c9528f7b81f1927041a611611d7ab7e7a751788146d625172",
    "gratings": "05795b89f84128ff8b7953f9b05457091a7e603f5e5c23de7c4b746656709813",
    "dots": "d9c92687f34cf03225cd5970ea7c0779351d94a0a52a91bfbaca6744dfc7d819",
    "mosaics": "f29255adcb64da2784f2c4cd9df5fb22771300a427195cf3ad9b97ee23d6c990",
}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_pixels_are_pinned(family):
    """The rendered pixels are the same bits on every platform and numpy version."""
    pixels = render_classes(FAMILIES[family], family, [3], "train", 6, namespace=NAMESPACE, seed=0, size=32)
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == PINNED[family]


def test_samples_do_not_depend_on_how_many_are_rendered():
    """A longer split begins with the samples of a shorter one, across the borders of chunks."""
    render = {"namespace": NAMESPACE, "seed": 0, "size": 8}
    many = render_classes(FAMILIES["dots"], "dots", [0], "train", 140, **render)
    few = render_classes(FAMILIES["dots"], "dots", [0], "train", 5, **render)
    assert np.array_equal(many[:5], few)
    assert not np.array_equal(many[128:133], few)


def test_default_stream_interleaves_families():
    """By default a task lies within one family, families take turns, and this is what is planted."""
    made = GlyphsBenchmark(GlyphsConfig(train_per_class=1, test_per_class=1, image_size=8)).stream()
    assert made.num_classes == 100
    assert made.planted_groups == (0, 1, 2, 3, 4) * 2
    families = list(FAMILIES)
    for task, group in zip(made.tasks, made.planted_groups, strict=True):
        assert {name.split("-")[0] for name in task.class_names} == {families[group]}
    assert sorted(made.class_order) == list(range(100))


def test_mixed_tasks_have_no_planted_groups():
    """Where tasks mix families nothing is claimed to be planted."""
    assert stream(order="seeded").planted_groups is None
    assert stream(increment=10).planted_groups is None
    assert stream(increment=1, order="seeded").planted_groups is not None


def test_images_agree_with_ids_and_labels():
    """The image of an id is the rendering of that class and sample."""
    made = stream(order="shuffled")
    for task in made.tasks:
        for index, label, name in zip(task.test.indices, task.test.labels, task.test.ids, strict=True):
            split, class_name, sample = name.split("/")
            family, number = class_name.split("-")
            expected = render_classes(
                FAMILIES[family], family, [int(number)], split, 2, namespace=NAMESPACE, seed=0, size=16
            )
            assert made.class_names[label] == class_name
            assert np.array_equal(task.test.source.image(index).numpy(), expected[int(sample)])


def test_train_and_test_samples_differ():
    """No test image is also a training image."""
    task = stream().tasks[0]
    train = {task.train.source.image(i).numpy().tobytes() for i in task.train.indices}
    test = {task.test.source.image(i).numpy().tobytes() for i in task.test.indices}
    assert len(train) == len(task.train)
    assert train.isdisjoint(test)


def test_pretraining_classes_are_disjoint_from_the_benchmark():
    """No class key for pre-training is a key of the benchmark under any of many seeds."""
    assert PRETRAINING_NAMESPACE != NAMESPACE
    assert "/" not in NAMESPACE + PRETRAINING_NAMESPACE  # so no two namespaces can hash one text
    pretraining = {
        class_key(PRETRAINING_NAMESPACE, 0, f, i) for f in PRETRAINING_FAMILIES for i in range(300)
    }
    benchmark = {class_key(NAMESPACE, seed, f, i) for seed in range(20) for f in FAMILIES for i in range(20)}
    assert len(pretraining) == 300 * len(PRETRAINING_FAMILIES)
    assert pretraining.isdisjoint(benchmark)


def test_classes_are_not_told_by_pixel_means():
    """Nearest class mean on raw pixels is better than chance but far from solving the families."""
    made = GlyphsBenchmark(attrs.evolve(SMALL, train_per_class=20, test_per_class=10)).stream()
    split = {}
    for name in ("train", "test"):
        data = [getattr(task, name) for task in made.tasks]
        pixels = torch.stack([d.source.image(i).float().flatten() for d in data for i in d.indices])
        split[name] = pixels, torch.from_numpy(np.concatenate([d.labels for d in data]))
    (train, labels), (test, truth) = split["train"], split["test"]
    means = torch.stack([train[labels == c].mean(0) for c in range(20)])
    accuracy = (torch.cdist(test, means).argmin(1) == truth).float().mean()
    assert 1 / 20 < accuracy < 0.5


@pytest.mark.parametrize("split", ["train_per_class", "test_per_class"])
def test_more_images_than_can_be_drawn_are_refused_before_any_is(split):
    """All of them are drawn at once: a dry run of so many took ten minutes and 14 GB, in silence."""
    told = r"would draw 100,0\d0 images of each class, 31 GB; .* room for 6,990 "
    with pytest.raises(ConfigError, match=told):
        GlyphsBenchmark(GlyphsConfig(**{split: 100_000})).stream()
