"""Registers the benchmarks; their code is imported when one is built."""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs

from lw2g.plugin import BenchmarkComponent, hookimpl, lazy
from lw2g_benchmarks import options
from lw2g_benchmarks.data_set_facts import PUBLISHED, Published

__all__ = ["lw2g_benchmarks"]

_READERS = {
    "cifar100": lazy("lw2g_benchmarks.arrays:Cifar100Benchmark"),
    "five-datasets": lazy("lw2g_benchmarks.arrays:FiveDatasetsBenchmark"),
}
_FILES = lazy("lw2g_benchmarks.published:PublishedBenchmark")
_SMALL = {"train_per_class": 10, "test_per_class": 5}
"""Images of a rehearsal."""
_POSED = {"stream", "tasks"}
"""Options that pose another problem: no protocol sets them."""


def _held_equal(config: type[Any], *but: str) -> dict[str, Any]:
    """Return the defaults of the options that choose split, class order and transforms."""
    names = {"split", *options.SIZES}
    for group in (options.OrderOptions, options.TransformOptions):
        names |= attrs.fields_dict(group).keys()
    names -= _POSED
    names -= set(but)
    fixed = {}
    for field in attrs.fields(config):  # of these, a benchmark need not have all
        if field.name in names:
            fixed[f"benchmark.{field.name}"] = field.default
    return fixed


def _no_root(config: options.FolderConfig) -> tuple[str, str] | None:
    """Return the option that has to name the folder of images, if none is named."""
    if config.root is not None:
        return None
    return "root", "put the images into FOLDER/train/CLASS and FOLDER/test/CLASS"


@cache
def _published() -> list[BenchmarkComponent]:
    """Return the records of the published data sets; making their options' classes takes long."""
    return [_record(name, published) for name, published in PUBLISHED.items()]


def _record(name: str, published: Published) -> BenchmarkComponent:
    """Return the record of a published data set."""
    data = published.data
    increment = published.defaults["increment"]
    summary = f"{data.title}, Inc{increment}"
    if data.num_classes % increment == 0:
        summary += f"Task{data.num_classes // increment}"
    config = options.published_config(data, **published.defaults)
    return BenchmarkComponent(
        name=name,
        family=name,
        config=config,
        unread=options.OrderOptions.unread,
        build=_READERS.get(name, _FILES),
        data=data,
        rehearsal={"shots": _SMALL["train_per_class"]},
        like_for_like={**_held_equal(config), "backbone.name": "sup21k"},
        summary=f"{summary} by default",
        citation=published.citation,
    )


@hookimpl
def lw2g_benchmarks() -> list[BenchmarkComponent]:
    """Return the benchmarks."""
    return [
        BenchmarkComponent(
            name="digits",
            family="digits",
            config=options.DigitsConfig,
            unread=options.OrderOptions.unread,
            build=lazy("lw2g_benchmarks.digits:DigitsBenchmark"),
            like_for_like={**_held_equal(options.DigitsConfig), "backbone.name": "micro"},
            embedded=True,
            summary="handwritten digits of scikit-learn, 8 x 8 pixels, 10 classes (embedded)",
            citation="Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI repository, 1998",
        ),
        BenchmarkComponent(
            name="glyphs",
            family="glyphs",
            config=options.GlyphsConfig,
            unread=options.OrderOptions.unread,
            build=lazy("lw2g_benchmarks.glyphs:GlyphsBenchmark"),
            fresh_stream=lazy("lw2g_benchmarks.glyphs:fresh_stream"),
            like_for_like={**_held_equal(options.GlyphsConfig), "backbone.name": "micro"},
            embedded=True,
            rehearsal={"classes_per_family": 2, "increment": 2, "tasks": 5, **_SMALL},
            summary="100 procedural classes in families, so that some tasks are alike (embedded)",
        ),
        BenchmarkComponent(
            name="folder",
            family="folder",
            config=options.FolderConfig,
            unread=options.OrderOptions.unread,
            build=lazy("lw2g_benchmarks.folder:FolderBenchmark"),
            # data and backbone are the user's
            like_for_like=_held_equal(options.FolderConfig, *options.SIZES),
            rehearsal={"uneven": True, "train_transform": "none", **_SMALL},
            lacks=_no_root,
            summary="any image-folder tree with train/ and test/",
        ),
        BenchmarkComponent(
            name="given",
            family="folder",  # data of the user's own, too
            config=options.GivenConfig,
            unread=options.OrderOptions.unread,
            build=lazy("lw2g_benchmarks.given:GivenBenchmark"),
            like_for_like=_held_equal(options.GivenConfig, *options.SIZES),
            summary="Python objects (lw2g.run(benchmark=[(train, test), ...])) or a data set of the hub",
        ),
        BenchmarkComponent(
            name="features",
            family="features",
            config=options.FeaturesConfig,
            unread=options.OrderOptions.unread,
            build=lazy("lw2g_benchmarks.features:FeaturesBenchmark"),
            like_for_like={"backbone.name": "features"},
            vectors=True,
            summary="stored features of any backbone and data set, for methods that need no images",
        ),
        *_published(),
    ]
