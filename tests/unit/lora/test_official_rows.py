"""Records and official presets of the low-rank methods: what their authors did, and on which backbone."""

from __future__ import annotations

import pytest

from lw2g.registry.catalogue import load_catalogue
from official_rows import Row, cases, check_row

ONE_LORA = Row(
    backbone="sup21k-augreg",
    seed=None,
    cifar="CD",
    elsewhere="CC",
    split="coda",
    letters={"imagenet-a": "BB"},
)
ROWS = {
    "hide-lora": Row(backbone="sup21k-ft1k", seed=None, cifar="AA", elsewhere="CC"),
    "inflora": Row(backbone="sup21k-augreg", seed=None, cifar="CD", elsewhere="CC", split="coda"),
    "c-lora": Row(backbone="sup21k-augreg", seed=None, cifar="CD", elsewhere="CC", split="coda"),
    "sd-lora": Row(
        backbone="sup21k-ft1k",
        seed=1993,
        cifar="BB",
        elsewhere="BB",
        split="folders",
        seeds={"imagenet-r": 1995},
    ),
    "slca-plus-plus": Row(
        backbone="sup21k-augreg",
        seed=1993,
        cifar="AA",
        elsewhere="CG",
        letters={"cub200": "EG", "stanford-cars": "EG"},
    ),
    "ewc": ONE_LORA,
    "finetune": ONE_LORA,
    "joint-lora": ONE_LORA,
    "lwf": ONE_LORA,
    "replay": ONE_LORA,
}


@pytest.mark.parametrize(("name", "family"), list(cases(ROWS)))
def test_official_presets_carry_the_authors_row(name, family):
    """Crop, filter, jitter, test resize, statistics, class order and backbone are the authors' own."""
    check_row(name, family, ROWS[name])


@pytest.mark.parametrize(
    ("name", "retrieval"),
    [
        ("hide-lora", "lora-classifier"),
        ("inflora", None),
        ("c-lora", None),
        ("sd-lora", None),
    ],
)
def test_tasks_are_inferred_as_published(name, retrieval):
    """By default the method uses this strategy, or makes no choice of a set."""
    assert load_catalogue().get("baseline", name).retrieval == retrieval
