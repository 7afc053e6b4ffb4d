"""Presets hold the values of papers and releases, and a record names what departs from them."""

from __future__ import annotations

import pytest

from lw2g.interfaces.options import published_differences
from lw2g.registry.catalogue import load_catalogue

FOUR = ("cifar100", "imagenet-r", "omnibenchmark", "cub200-lamda")
RELEASED = ("cifar100", "imagenet-r", "cub200")
POOLS = ("cifar100", "imagenet-r", "domainnet")
OFFICIAL = [
    # baseline, families (all that it has presets of, where "whole"), values by option in their order
    ("aper-vpt-deep", "whole", FOUR, {"epochs": (20, 20, 20, 5), "lr": (0.01, 0.05, 0.01, 0.05),
        "batch_size": (48, 24, 48, 16), "weight_decay": (5e-4,) * 4, "length": (5, 30, 5, 5)}),
    ("aper-adapter", "whole", FOUR, {"epochs": (20, 10, 20, 20), "lr": (0.01, 0.05, 0.01, 0.01),
        "batch_size": (48, 16, 48, 48), "weight_decay": (5e-4, 5e-3, 5e-4, 5e-4), "bottleneck": (64,) * 4}),
    ("ssiat", "part", ("cifar100", "imagenet-a"), {"margin": (0.0, 0.3)}),
    ("coda-prompt", "whole", POOLS, {"epochs": (20, 50, 5)}),
    ("os-prompt", "whole", POOLS, {"epochs": (20, 50, 5)}),
    ("one-prompt", "whole", (*RELEASED, "omnibenchmark"), {"epochs": (50,) * 4}),
    ("slca-plus-plus", "whole", (*RELEASED, "stanford-cars"), {"epochs": (20, 50, 50, 50),
        "weight_decay": (5e-4, 0.0, 5e-4, 0.0), "plain": (1.0, 0.5, 1.0, 0.5),
        "reverse": (0.1, 0.5, 0.1, 0.5), "temperature": (0.1, 0.1, 0.1, 0.05), "final_norm": ("fresh",) * 4}),
    ("ewc", "whole", (*POOLS, "imagenet-a"), {"epochs": (20, 50, 5, 10), "rank": (10, 10, 30, 10),
        "weight_decay": (0.0, 5e-3, 0.0, 0.0), "head_factor": (10.0, 1.0, 10.0, 10.0), "lr": (5e-4,) * 4}),
    ("finetune", "part", (*POOLS, "imagenet-a"), {"epochs": (20, 50, 5, 20)}),
    ("cprompt", "part", RELEASED[:2], {"epochs": (18, 10), "temperature": (1.2, 1.15), "margin": (0.0, 0.1)}),
    ("l2p", "part", ("five-datasets",), {"pool_size": (20,), "length": (10,), "top_k": (4,),
        "batch_size": (16,), "epochs": (5,), "lr": (0.03,), "pull": (0.5,)}),
    # one minus the released threshold
    ("dual-prompt", "part", RELEASED, {"constraints.cpk.phi": (0.5, 0.4, 0.7)}),
    ("hide-prompt", "part", RELEASED, {"constraints.cpk.phi": (0.5, 0.8, 0.0)}),
]  # fmt: skip
INIT = {"value": "exact", "published": "official"}
DEPARTURES = [
    # kind, component, options, and what is said of each option that departs
    ("baseline", "dual-prompt", {}, {}),
    ("baseline", "dual-prompt", {"length": 5}, {"length": {"value": 5, "published": 20}}),
    ("baseline", "coda-prompt", {}, {"init": INIT}),
    ("baseline", "coda-prompt", {"init": "official"}, {"init": {"published": None}}),
    ("baseline", "os-prompt", {}, {"init": INIT}),
    ("baseline", "os-prompt", {"variant": "os++"}, {"init": INIT}),
    ("baseline", "os-prompt", {"variant": "os++", "qr": "code"}, {"init": INIT, "qr": {"value": "code"}}),
    ("baseline", "l2p", {}, {}),
    ("baseline", "l2p", {"vote": "batch"}, {"vote": {"note": "leaks task identity"}}),
    ("baseline", "hide-lora", {}, {}),
    ("baseline", "inflora", {}, {"design": {"value": "pcp", "published": "pc"}}),
    (
        "baseline",
        "inflora",
        {"design": "pc", "memory_power": 2, "memory_residual": "pcp", "memory_rule": "reach"},
        {"design": {"note": "one side"}, "memory_power": {}, "memory_residual": {}, "memory_rule": {}},
    ),
    ("baseline", "slca-plus-plus", {}, {"final_norm": {"published": "fresh"}}),
    ("baseline", "ewc", {"penalty": 1e6}, {"penalty": {}, "boundary": {"published": "release"}}),
    ("baseline", "one-prompt", {"outliers": "paper"}, {}),
    ("baseline", "one-prompt", {"outliers": "shipped"}, {"outliers": {}}),
    ("retrieval", "key-cosine", {}, {}),
    ("retrieval", "key-cosine", {"vote": "batch"}, {"vote": {"note": "leaks task identity"}}),
    ("constraint", "orthogonal", {}, {"on": {}}),
    ("constraint", "orthogonal", {"on": "gradient"}, {}),
    ("constraint", "pgp", {"on": "gradient", "power": 4}, {"power": {}}),
    ("constraint", "lgcl", {}, {}),
    (
        "constraint",
        "lgcl",
        {"encoder": "hash", "align": "orthogonal", "task_text": "mean", "levels": "class"},
        {"encoder": {"note": "for tests only"}, "align": {}, "task_text": {}, "levels": {}},
    ),
]


@pytest.mark.parametrize(
    ("name", "extent", "families", "columns"), OFFICIAL, ids=[row[0] for row in OFFICIAL]
)
def test_presets_carry_the_authors_values(name, extent, families, columns):
    """What a preset leaves out is the option's default."""
    component = load_catalogue().get("baseline", name)
    if extent == "whole":
        assert set(component.presets) == set(families)
    for option, values in columns.items():
        path, default = (option, None) if "." in option else (f"baseline.{option}", component.config())
        found = [component.presets[one].get(path, getattr(default, option, None)) for one in families]
        assert found == pytest.approx(list(values)) if default is None else found == list(values), option


def test_presets_hold_no_unpublished_value():
    """LW2G published no energy or phi for S-Prompt++; keys of CPrompt decay as its sets do, everywhere."""
    single, cprompt = (load_catalogue().get("baseline", one) for one in ("s-prompt-plus-plus", "cprompt"))
    for preset in (*single.presets.values(), *single.tuned.values()):
        assert not [key for key in preset if key.startswith(("growth.", "constraints."))]
    assert {preset["retrieval.weight_decay"] for preset in cprompt.presets.values()} == {5e-4}


@pytest.mark.parametrize(
    ("kind", "name", "options", "expected"), DEPARTURES, ids=[f"{row[1]}-{row[2]}" for row in DEPARTURES]
)
def test_a_record_names_what_departs_from_the_published_method(kind, name, options, expected):
    """The options that depart and no others; with both values and, where it matters, why."""
    config = load_catalogue().get(kind, name).config(**options)
    found = {entry["option"]: entry for entry in published_differences(config, "own")}
    assert found.keys() == {f"own.{option}" for option in expected}
    for option, facts in expected.items():
        for fact, value in facts.items():
            said = found[f"own.{option}"][fact]
            assert value in said if fact == "note" else said == value
