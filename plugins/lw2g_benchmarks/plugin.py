"""Registers the benchmarks; their code is imported when one is built."""

from __future__ import annotations

from typing import Any

import attrs

from lw2g.interfaces.component import BenchmarkComponent, Lazy, lazy
from lw2g.registry.markers import hookimpl
from lw2g_benchmarks import options
from lw2g_benchmarks.facts import DATA_SETS

__all__ = ["lw2g_benchmarks"]

_FILES = lazy("lw2g_benchmarks.published:PublishedBenchmark")
_PER_TASK = ("increment", "base", "uneven")
_LAMDA: dict[str, Any] = {"order": "seeded", "order_seed": 1993}

_CUB = "Wah et al.: The Caltech-UCSD Birds-200-2011 Dataset, 2011"
_DOMAINNET = "Peng et al.: Moment Matching for Multi-Source Domain Adaptation, ICCV 2019"
_OMNI = "Zhang et al.: Benchmarking Omni-Vision Representation, ECCV 2022"


def _held_equal(config: type[Any], *but: str) -> dict[str, Any]:
    """Return the defaults of the options that choose split, class order and transforms."""
    shared = (*attrs.fields(options.OrderOptions), *attrs.fields(options.TransformOptions))
    names = {"split", *_PER_TASK, *(field.name for field in shared)} - set(but)
    return {f"benchmark.{one.name}": one.default for one in attrs.fields(config) if one.name in names}


def _published(
    name: str, increment: int, citation: str, build: Lazy = _FILES, **defaults: Any
) -> BenchmarkComponent:
    """Return the record of a published data set, in tasks of ``increment`` classes."""
    data = DATA_SETS[name]
    config = options.published_config(data, increment, **defaults)
    return BenchmarkComponent(
        name=name,
        family=name,
        config=config,
        build=build,
        data=data,
        outline=lazy("lw2g_benchmarks.outlines:outline"),
        like_for_like={**_held_equal(config), "backbone.name": "sup21k"},
        summary=f"{data.title}, Inc{increment}"
        + ("" if data.num_classes % increment else f"Task{data.num_classes // increment}")
        + " by default",
        citation=citation,
    )


@hookimpl
def lw2g_benchmarks() -> list[BenchmarkComponent]:
    """Return the benchmarks."""
    return [
        BenchmarkComponent(
            name="digits",
            family="digits",
            config=options.DigitsConfig,
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
            build=lazy("lw2g_benchmarks.glyphs:GlyphsBenchmark"),
            like_for_like={**_held_equal(options.GlyphsConfig), "backbone.name": "micro"},
            embedded=True,
            summary="100 procedural classes in families, so that some tasks are alike (embedded)",
        ),
        BenchmarkComponent(
            name="folder",
            family="folder",
            config=options.FolderConfig,
            build=lazy("lw2g_benchmarks.folder:FolderBenchmark"),
            # data and backbone are the user's
            like_for_like=_held_equal(options.FolderConfig, *_PER_TASK),
            summary="any image-folder tree with train/ and test/",
        ),
        _published(
            "cifar100",
            10,
            "Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
            lazy("lw2g_benchmarks.arrays:Cifar100Benchmark"),
        ),
        _published("imagenet-r", 20, "Hendrycks et al.: The Many Faces of Robustness, ICCV 2021"),
        _published("imagenet-a", 20, "Hendrycks et al.: Natural Adversarial Examples, CVPR 2021", **_LAMDA),
        _published("cub200", 20, _CUB),
        _published("cub200-lamda", 20, _CUB, **_LAMDA),
        _published("omnibenchmark", 10, _OMNI),
        _published(
            "omnibenchmark-1k",
            10,
            _OMNI,
            **_LAMDA,
        ),
        _published("vtab", 10, "Zhai et al.: A Large-scale Study of Representation Learning, 2019"),
        _published("domainnet", 69, _DOMAINNET),
        _published(
            "domainnet-200",
            20,
            _DOMAINNET,
            **_LAMDA,
        ),
        _published(
            "stanford-cars",
            20,
            "Krause et al.: 3D Object Representations for Fine-Grained Categorization, 2013",
            **_LAMDA,
            uneven=True,
        ),
        _published(
            "five-datasets",
            10,
            "Ebrahimi et al.: Adversarial Continual Learning, ECCV 2020",
            lazy("lw2g_benchmarks.arrays:FiveDatasetsBenchmark"),
        ),
    ]
