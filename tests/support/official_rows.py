"""What authors' code bases do to images, in the letters of their comparison, and the check of presets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from lw2g.config.structure import structure
from lw2g.registry.catalogue import load_catalogue
from lw2g_benchmarks.options import TransformOptions

__all__ = ["TEST", "TRAIN", "Row", "cases", "check_row"]

SCALE, FILTER, JITTER = "train_scale", "train_interpolation", "jitter"
TRAIN: Mapping[str, Mapping[str, Any]] = {
    "A": {SCALE: 0.08, FILTER: "bicubic", JITTER: 63 / 255, "jitter_first": False},
    "B": {SCALE: 0.05, FILTER: "bilinear", JITTER: 0.0},
    "C": {SCALE: 0.08, FILTER: "bilinear", JITTER: 0.0},
    "D": {SCALE: 0.08, FILTER: "bilinear", JITTER: 63 / 255, "jitter_first": True},
    "E": {SCALE: 0.56, FILTER: "bilinear", JITTER: 0.0},
    "F": {SCALE: 0.08, FILTER: "bicubic", JITTER: 0.0, "flip": False},
}
TEST: Mapping[str, Mapping[str, Any]] = {
    "A": {"normalise": "cifar100", "test_resize": "crop", "test_interpolation": "bicubic"},
    "B": {"normalise": "unit", "test_resize": "crop", "test_interpolation": "bicubic"},
    "C": {"normalise": "unit", "test_resize": "crop", "test_interpolation": "bilinear"},
    "D": {"normalise": "unit", "test_resize": "squash", "test_interpolation": "bilinear"},
    "E": {"normalise": "imagenet", "test_resize": "crop", "test_interpolation": "bilinear"},
    "F": {"normalise": "unit", "test_resize": "squash", "test_interpolation": "bicubic"},
    "G": {"normalise": "imagenet", "test_resize": "crop", "test_interpolation": "bicubic"},
    "H": {"normalise": "native", "test_resize": "squash", "test_interpolation": "bicubic"},
}


@attrs.frozen(kw_only=True)
class Row:
    """What the authors of a method used.

    Attributes:
        backbone: The backbone.
        seed: The seed of the class order; None for the natural one.
        cifar: Letters of training and testing on CIFAR-100; ``-`` where nothing is trained.
        elsewhere: Those on other families.
        split: Their split of ImageNet-R: ``random:42``, or a published list.
        backbones: Other backbones by family.
        seeds: Other seeds by family.
        letters: Other letters by family.
        tasks: Sizes of tasks by family, where a preset sets them.
    """

    backbone: str
    seed: int | None
    cifar: str
    elsewhere: str
    split: str = "random:42"
    backbones: Mapping[str, str] = attrs.field(factory=dict)
    seeds: Mapping[str, int | None] = attrs.field(factory=dict)
    letters: Mapping[str, str] = attrs.field(factory=dict)
    tasks: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict)


def cases(rows: Mapping[str, Row]) -> Iterator[tuple[str, str]]:
    """Yield methods with the families that they have official values for."""
    catalogue = load_catalogue()
    for name in rows:
        for family in catalogue.get("baseline", name).presets:
            yield name, family


def check_row(name: str, family: str, row: Row) -> None:
    """Assert that crop, filter, jitter, test resize, statistics, order, split and backbone are theirs."""
    values = load_catalogue().get("baseline", name).presets[family]
    options = {
        key.removeprefix("benchmark."): value for key, value in values.items() if key.startswith("benchmark.")
    }
    order = {key: options.pop(key) for key in ("order", "order_seed") if key in options}
    # vtab is a fixed sequence of data sets
    seed = None if family == "vtab" else row.seeds.get(family, row.seed)
    assert order == ({"order": "natural"} if seed is None else {"order": "seeded", "order_seed": seed})
    assert values["backbone.name"] == row.backbones.get(family, row.backbone)
    assert options.pop("split", None) == (row.split if family == "imagenet-r" else None)
    tasks = {key: options.pop(key) for key in ("base", "increment") if key in options}
    assert tasks == row.tasks.get(family, {})
    record, problems = structure(TransformOptions, options)
    assert problems == []
    assert options.keys() == attrs.asdict(record).keys()
    train, test = row.letters.get(family, row.cifar if family == "cifar100" else row.elsewhere)
    assert options["train_transform"] == ("none" if train == "-" else "rrc")
    expected = {"flip": True, **TRAIN.get(train, {}), **TEST[test]}
    assert {key: options[key] for key in expected} == expected
