"""Records and official presets of the prompt methods: what their authors did, and on which backbone."""

from __future__ import annotations

import pytest

from lw2g.registry.catalogue import load_catalogue
from official_rows import Row, cases, check_row

ROWS = {
    "dual-prompt": Row(backbone="sup21k", seed=None, cifar="AA", elsewhere="BB"),
    "s-prompt-plus-plus": Row(backbone="sup21k", seed=None, cifar="AA", elsewhere="BB"),
    "hide-prompt": Row(backbone="sup21k", seed=None, cifar="AA", elsewhere="BB"),
    "l2p": Row(backbone="sup21k", seed=None, cifar="AA", elsewhere="BB"),
    "coda-prompt": Row(backbone="sup21k-ft1k", seed=None, cifar="CD", elsewhere="CC", split="coda"),
    "os-prompt": Row(backbone="sup21k-ft1k", seed=None, cifar="CD", elsewhere="CC", split="coda"),
    "cprompt": Row(backbone="sup21k-ft1k", seed=1993, cifar="DE", elsewhere="CC", split="coda"),
}


@pytest.mark.parametrize(("name", "family"), list(cases(ROWS)))
def test_official_presets_carry_the_authors_row(name, family):
    """Crop, filter, jitter, test resize, statistics, class order and backbone are the authors' own."""
    check_row(name, family, ROWS[name])


@pytest.mark.parametrize(
    ("name", "retrieval"),
    [
        ("coda-prompt", None),
        ("cprompt", "class-keys"),
        ("dual-prompt", "key-cosine"),
        ("hide-prompt", "classifier"),
        ("l2p", None),
        ("os-prompt", None),
        ("s-prompt-plus-plus", "key-cosine"),
    ],
)
def test_tasks_are_inferred_as_published(name, retrieval):
    """By default the method uses this strategy, or makes no choice of a set."""
    assert load_catalogue().get("baseline", name).retrieval == retrieval
