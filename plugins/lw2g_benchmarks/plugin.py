"""Registers the benchmarks; their code is imported when one is built."""

from __future__ import annotations

from typing import Any

import attrs

from lw2g.interfaces.component import BenchmarkComponent, lazy
from lw2g.registry.markers import hookimpl
from lw2g_benchmarks import options

__all__ = ["lw2g_benchmarks"]


def _held_equal(config: type[Any], *but: str) -> dict[str, Any]:
    """Return the defaults of the options that choose split, class order and transforms."""
    shared = (*attrs.fields(options.OrderOptions), *attrs.fields(options.TransformOptions))
    names = {"increment", *(field.name for field in shared)} - set(but)
    return {f"benchmark.{one.name}": one.default for one in attrs.fields(config) if one.name in names}


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
            like_for_like=_held_equal(options.FolderConfig, "increment"),  # data and backbone are the user's
            summary="any image-folder tree with train/ and test/",
        ),
        BenchmarkComponent(
            name="cifar100",
            family="cifar100",
            config=options.Cifar100Config,
            build=lazy("lw2g_benchmarks.cifar100:Cifar100Benchmark"),
            like_for_like={**_held_equal(options.Cifar100Config), "backbone.name": "sup21k"},
            summary="CIFAR-100 through torchvision, Inc10Task10 by default",
            citation="Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
        ),
    ]
