"""Records and official presets of all methods: what their authors did, and on which backbone."""

from __future__ import annotations

import pytest

from lw2g.registry.catalogue import load_catalogue
from official_rows import Row, cases, check_row

LAMDA = Row(backbone="sup21k-augreg", seed=1993, cifar="BB", elsewhere="BB", split="folders")
ONE_LORA = Row(
    backbone="sup21k-augreg",
    seed=None,
    cifar="CD",
    elsewhere="CC",
    split="coda",
    letters={"imagenet-a": "BB"},
)
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
    "dual-prompt": Row(backbone="sup21k", seed=None, cifar="AA", elsewhere="BB"),
    "s-prompt-plus-plus": Row(backbone="sup21k", seed=None, cifar="AA", elsewhere="BB"),
    "hide-prompt": Row(backbone="sup21k", seed=None, cifar="AA", elsewhere="BB"),
    "l2p": Row(backbone="sup21k", seed=None, cifar="AA", elsewhere="BB"),
    "coda-prompt": Row(backbone="sup21k-ft1k", seed=None, cifar="CD", elsewhere="CC", split="coda"),
    "os-prompt": Row(backbone="sup21k-ft1k", seed=None, cifar="CD", elsewhere="CC", split="coda"),
    "cprompt": Row(backbone="sup21k-ft1k", seed=1993, cifar="DE", elsewhere="CC", split="coda"),
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
RETRIEVAL = {
    "cprompt": "class-keys",
    "dual-prompt": "key-cosine",
    "hide-lora": "lora-classifier",
    "hide-prompt": "classifier",
    "s-prompt-plus-plus": "key-cosine",
}
"""Strategies by method; the others make no choice of a set."""


@pytest.mark.parametrize(("name", "family"), list(cases(ROWS)))
def test_official_presets_carry_the_authors_row(name, family):
    """Crop, filter, jitter, test resize, statistics, class order and backbone are the authors' own."""
    check_row(name, family, ROWS[name])


@pytest.mark.parametrize("name", ROWS)
def test_tasks_are_inferred_as_published(name):
    """By default the method uses this strategy, or makes no choice of a set."""
    assert load_catalogue().get("baseline", name).retrieval == RETRIEVAL.get(name)
