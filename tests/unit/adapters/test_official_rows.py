"""Records and official presets of the adapter methods: what their authors did, and on which backbone."""

from __future__ import annotations

import pytest

from lw2g.registry.catalogue import load_catalogue
from official_rows import Row, cases, check_row

LAMDA = Row(backbone="sup21k-augreg", seed=1993, cifar="BB", elsewhere="BB", split="folders")
ROWS = {
    "ease": LAMDA,
    "mos": LAMDA,
    "tuna": LAMDA,
    "sema": Row(
        backbone="sup21k-augreg",
        seed=1993,
        cifar="BB",
        elsewhere="BB",
        split="folders",
        seeds={"imagenet-a": None},
    ),
}


@pytest.mark.parametrize(("name", "family"), list(cases(ROWS)))
def test_official_presets_carry_the_authors_row(name, family):
    """Crop, filter, jitter, test resize, statistics, class order and backbone are the authors' own."""
    check_row(name, family, ROWS[name])


@pytest.mark.parametrize(
    ("name", "retrieval"),
    [
        ("ease", None),
        ("mos", None),
        ("tuna", None),
        ("sema", None),
    ],
)
def test_tasks_are_inferred_as_published(name, retrieval):
    """By default the method uses this strategy, or makes no choice of a set."""
    assert load_catalogue().get("baseline", name).retrieval == retrieval
