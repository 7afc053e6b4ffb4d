"""Building block: the rows of transforms that official code bases share, for presets. Imports no torch.

A row holds the ``benchmark.*`` options of one way to prepare images; the official preset of a method carries
the row its authors used on that benchmark, with their class order and backbone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lw2g.interfaces.component import Presets

__all__ = [
    "CODA",
    "CODA_LIST",
    "CODA_ROWS",
    "CPROMPT_ROWS",
    "HIDE",
    "HIDE_CIFAR",
    "HIDE_ROWS",
    "HIDE_SPLIT",
    "LAMDA_FOLDERS",
    "NATURAL",
    "SEED_1993",
    "with_rows",
]

Row = Mapping[str, Any]

HIDE_CIFAR: Row = {
    "benchmark.normalise": "cifar100",
    "benchmark.train_transform": "rrc",
    "benchmark.train_scale": 0.08,
    "benchmark.train_interpolation": "bicubic",
    "benchmark.jitter": 63 / 255,
    "benchmark.jitter_first": False,
    "benchmark.flip": True,
    "benchmark.test_resize": "crop",
    "benchmark.test_interpolation": "bicubic",
}
"""HiDe-Prompt, HiDe-PET and LW2G on CIFAR-100."""

HIDE: Row = {
    **HIDE_CIFAR,
    "benchmark.normalise": "unit",
    "benchmark.train_scale": 0.05,
    "benchmark.train_interpolation": "bilinear",
    "benchmark.jitter": 0.0,
}
"""HiDe-Prompt and LW2G elsewhere; LAMDA's code bases everywhere."""

CODA: Row = {**HIDE, "benchmark.train_scale": 0.08, "benchmark.test_interpolation": "bilinear"}
"""CODA-Prompt, OS-Prompt, OVOR and InfLoRA off CIFAR-100; CPrompt and HiDe-PET's low-rank code likewise."""

CODA_CIFAR: Row = {**CODA, "benchmark.test_resize": "squash"}
"""CODA-Prompt, OS-Prompt, OVOR and InfLoRA on CIFAR-100: test images are square and only enlarged."""

CPROMPT_CIFAR: Row = {
    **CODA,
    "benchmark.normalise": "imagenet",
    "benchmark.jitter": 63 / 255,
    "benchmark.jitter_first": True,
}
"""CPrompt on CIFAR-100."""

CODA_LIST: Row = {"benchmark.split": "coda"}
"""ImageNet-R as CODA-Prompt lists it; OS-Prompt, OVOR, InfLoRA and CPrompt likewise."""

HIDE_SPLIT: Row = {"benchmark.split": "random:42"}
"""ImageNet-R as HiDe-Prompt, HiDe-PET and LW2G cut it on their first run."""

LAMDA_FOLDERS: Row = {"benchmark.split": "folders"}
"""ImageNet-R in LAMDA's folders."""

HIDE_ROWS: Mapping[str, Row] = {"cifar100": HIDE_CIFAR, "imagenet-r": {**HIDE, **HIDE_SPLIT}}
"""Single families in HiDe-Prompt and LW2G."""

CODA_ROWS: Mapping[str, Row] = {"cifar100": CODA_CIFAR, "imagenet-r": {**CODA, **CODA_LIST}}
"""Single families in CODA-Prompt, OS-Prompt, OVOR and InfLoRA."""

CPROMPT_ROWS: Mapping[str, Row] = {**CODA_ROWS, "cifar100": CPROMPT_CIFAR}
"""Single families in CPrompt."""

NATURAL: Row = {"benchmark.order": "natural"}
"""Classes in the order of their labels."""

SEED_1993: Row = {"benchmark.order": "seeded", "benchmark.order_seed": 1993}
"""LAMDA's class order."""


def with_rows(presets: Presets, common: Row, other: Row, special: Mapping[str, Row]) -> Presets:
    """Return presets with the row of each family of benchmarks beneath their own values.

    Args:
        presets: The method's values for each family.
        common: What all families share, such as class order and backbone.
        other: The row of families that are not special.
        special: Rows of single families.

    >>> with_rows({"cub200": {"baseline.epochs": 5}}, NATURAL, {"benchmark.flip": True}, {})
    {'cub200': {'benchmark.order': 'natural', 'benchmark.flip': True, 'baseline.epochs': 5}}
    """
    return {family: {**common, **special.get(family, other), **values} for family, values in presets.items()}
