"""Official presets of the methods with one set: what their authors did, and on which backbone."""

from __future__ import annotations

import pytest

from official_rows import Row, cases, check_row

# Aper on other families: the recipes of other authors
APER = Row(
    backbone="sup21k-ft1k",
    seed=1993,
    cifar="BB",
    elsewhere="BB",
    split="folders",
    backbones=dict.fromkeys(("omnibenchmark", "cub200-lamda"), "sup21k-augreg"),
)
ROWS = {
    "one-prompt": Row(backbone="sup21k-ft1k", seed=None, cifar="CD", elsewhere="CC", split="coda"),
    "ssiat": Row(backbone="sup21k-augreg", seed=1993, cifar="BB", elsewhere="BB", split="folders"),
    "aper-vpt-deep": APER,
    "aper-adapter": APER,
    "ranpac": Row(
        backbone="sup21k-augreg",
        seed=1993,
        cifar="BF",
        elsewhere="BB",
        split="folders",
        backbones=dict.fromkeys(("imagenet-r", "imagenet-a", "cub200-lamda", "vtab"), "sup21k-ft1k"),
        tasks={"stanford-cars": {"base": 16, "increment": 20}},
    ),
    "simple-cil": Row(backbone="sup21k-augreg", seed=1993, cifar="-B", elsewhere="-B", split="folders"),
    "vpt-nsp2": Row(backbone="sup21k-augreg", seed=2024, cifar="FH", elsewhere="--"),
    "no-prompt": Row(backbone="sup21k", seed=None, cifar="AA", elsewhere="BB"),
    "joint": Row(backbone="sup21k", seed=None, cifar="AA", elsewhere="BB"),
}


@pytest.mark.parametrize(("name", "family"), list(cases(ROWS)))
def test_official_presets_carry_the_authors_row(name, family):
    """Crop, filter, jitter, test resize, statistics, class order and backbone are the authors' own."""
    check_row(name, family, ROWS[name])
