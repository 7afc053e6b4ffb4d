"""Options that nothing reads are told: what each component declares of its own."""

from __future__ import annotations

import tomllib

import attrs
import pytest

from lw2g.config.resolve import resolve
from lw2g.config.toml import to_toml
from lw2g.registry.catalogue import load_catalogue

REPEATED = {"benchmark.stream": "repetition"}
NO_SEED = "benchmark.order_seed=9 draws nothing; "


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"benchmark.order_seed": 9}, NO_SEED + "for another class order: benchmark.order=seeded"),
        ({"benchmark.order_seed": 9, "benchmark.order": "seeded"}, ""),
        ({"benchmark.order_seed": 9, "benchmark.shots": 3}, ""),
        ({"benchmark.order_seed": 9, **REPEATED}, ""),
        (
            {"benchmark.order_seed": 9, "benchmark.class_order": list(range(10))},
            NO_SEED + "leave class_order out",
        ),
        (
            {"benchmark.order": "seeded", "benchmark.class_order": list(range(10))},
            "benchmark.order=seeded is not read: class_order says it",
        ),
        ({"benchmark.tasks": 3}, "benchmark.tasks=3 is not read: it is for stream=repetition"),
        ({"benchmark.tasks": 3, **REPEATED}, ""),
        (
            {"benchmark.name": "folder", "benchmark.split_seed": 1},
            "benchmark.split_seed=1 is not read without test_share: set benchmark.test_share, too",
        ),
        ({"benchmark.name": "folder", "benchmark.split_seed": 1, "benchmark.test_share": 0.2}, ""),
        (
            {"benchmark.shots_from": 1},
            "benchmark.shots_from=1 is not read without shots: set benchmark.shots, too",
        ),
        (
            {"benchmark.imbalance_shuffled": True},
            "benchmark.imbalance_shuffled=true is not read without imbalance: set benchmark.imbalance, too",
        ),
        (
            {"benchmark.name": "folder", "benchmark.train_transform": "none", "benchmark.flip": False},
            "benchmark.flip=false is not read: train_transform=none",
        ),
        (
            {"benchmark.name": "folder", "benchmark.train_transform": "light", "benchmark.train_scale": 0.5},
            "benchmark.train_scale=0.5 is not read: train_transform=light",
        ),
        (
            {"benchmark.name": "folder", "benchmark.train_transform": "light", "benchmark.flip": False},
            "",
        ),
        (
            {"benchmark.name": "folder", "benchmark.stream": "domains", "benchmark.increment": 2},
            "benchmark.increment=2 is not read: with stream=domains a task has all classes of a domain",
        ),
        (
            {"benchmark.name": "folder", "benchmark.uneven": True, **REPEATED},
            "benchmark.uneven=true is not read: with stream=repetition all tasks have 'increment' classes",
        ),
        (
            {"baseline.name": "ranpac", "baseline.adapt": "none", "baseline.epochs": 3},
            "baseline.epochs=3 is not read: adapt=none trains nothing",
        ),
        ({"baseline.name": "ranpac", "baseline.epochs": 3}, ""),
        (
            {"baseline.name": "ranpac", "baseline.length": 3},
            "baseline.length=3 is not read: adapt=adapter has none",
        ),
        (
            {"baseline.name": "one-prompt", "baseline.outlier_share": 0.3},
            "baseline.outlier_share=0.3 is not read: outliers=none",
        ),
    ],
)
def test_an_option_that_nothing_reads_is_told(settings, told):
    """With its value and why, whatever component it belongs to; where it is read it is silent."""
    notes = resolve(load_catalogue(), overrides={"benchmark.name": "digits", **settings}).notes
    assert [note for note in notes if "no values" not in note] == ([told] if told else [])


def test_what_nobody_has_set_is_not_told():
    """A default, or the value of a preset, which a complete file holds as well."""
    installed = load_catalogue()
    adapted = resolve(
        installed, baseline="ranpac", benchmark="cifar100", overrides={"run.protocol": "official"}
    )
    file = tomllib.loads(to_toml(adapted.config))
    file["baseline"]["adapt"] = "none"
    assert resolve(installed, file=file).notes == ()


def test_components_declare_options_that_they_have():
    """Whatever the values are by default."""
    for entry in load_catalogue().components():
        component = entry.component
        known = attrs.fields_dict(component.config).keys()
        assert component.unread(component.config()).keys() <= known, component.name
