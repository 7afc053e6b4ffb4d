"""The official row of every method, and what like-for-like holds equal for all of them."""

from __future__ import annotations

import attrs
import pytest

from lw2g.config.resolve import resolve
from lw2g.config.structure import structure
from lw2g.config.toml import to_mapping
from lw2g.interfaces.options import published_differences
from lw2g.registry.catalogue import load_catalogue
from lw2g_benchmarks.options import TransformOptions

CATALOGUE = load_catalogue()
SCALE, FILTER, JITTER = "train_scale", "train_interpolation", "jitter"
# What each code base does to images, in the letters of their comparison: training, then testing.
TRAIN = {
    "A": {SCALE: 0.08, FILTER: "bicubic", JITTER: 63 / 255, "jitter_first": False},
    "B": {SCALE: 0.05, FILTER: "bilinear", JITTER: 0.0},
    "C": {SCALE: 0.08, FILTER: "bilinear", JITTER: 0.0},
    "D": {SCALE: 0.08, FILTER: "bilinear", JITTER: 63 / 255, "jitter_first": True},
    "E": {SCALE: 0.56, FILTER: "bilinear", JITTER: 0.0},
    "F": {SCALE: 0.08, FILTER: "bicubic", JITTER: 0.0, "flip": False},
}
TEST = {
    "A": {"normalise": "cifar100", "test_resize": "crop", "test_interpolation": "bicubic"},
    "B": {"normalise": "unit", "test_resize": "crop", "test_interpolation": "bicubic"},
    "C": {"normalise": "unit", "test_resize": "crop", "test_interpolation": "bilinear"},
    "D": {"normalise": "unit", "test_resize": "squash", "test_interpolation": "bilinear"},
    "E": {"normalise": "imagenet", "test_resize": "crop", "test_interpolation": "bilinear"},
    "F": {"normalise": "unit", "test_resize": "squash", "test_interpolation": "bicubic"},
    "G": {"normalise": "imagenet", "test_resize": "crop", "test_interpolation": "bicubic"},
    "H": {"normalise": "native", "test_resize": "squash", "test_interpolation": "bicubic"},
}
ONE_LORA = ("ewc", "finetune", "joint-lora", "lwf", "replay")
# method -> backbone, seed of the class order (None: natural), row on CIFAR-100, row elsewhere
OFFICIAL = {
    "dual-prompt": ("sup21k", None, "AA", "BB"),
    "s-prompt-plus-plus": ("sup21k", None, "AA", "BB"),
    "hide-prompt": ("sup21k", None, "AA", "BB"),
    "l2p": ("sup21k", None, "AA", "BB"),
    "hide-lora": ("sup21k-ft1k", None, "AA", "CC"),
    "coda-prompt": ("sup21k-ft1k", None, "CD", "CC"),
    "os-prompt": ("sup21k-ft1k", None, "CD", "CC"),
    "cprompt": ("sup21k-ft1k", 1993, "DE", "CC"),
    "one-prompt": ("sup21k-ft1k", None, "CD", "CC"),
    "inflora": ("sup21k-augreg", None, "CD", "CC"),
    "c-lora": ("sup21k-augreg", None, "CD", "CC"),
    "sd-lora": ("sup21k-ft1k", 1993, "BB", "BB"),
    "slca-plus-plus": ("sup21k-augreg", 1993, "AA", "CG"),
    "ssiat": ("sup21k-augreg", 1993, "BB", "BB"),
    "aper-vpt-deep": ("sup21k-ft1k", 1993, "BB", "BB"),
    "aper-adapter": ("sup21k-ft1k", 1993, "BB", "BB"),
    "ranpac": ("sup21k-augreg", 1993, "BF", "BB"),
    "ease": ("sup21k-augreg", 1993, "BB", "BB"),
    "tuna": ("sup21k-augreg", 1993, "BB", "BB"),
    "sema": ("sup21k-augreg", 1993, "BB", "BB"),
    "mos": ("sup21k-augreg", 1993, "BB", "BB"),
    "simple-cil": ("sup21k-augreg", 1993, "-B", "-B"),
    "vpt-nsp2": ("sup21k-augreg", 2024, "FH", "--"),
    "no-prompt": ("sup21k", None, "AA", "BB"),
    "joint": ("sup21k", None, "AA", "BB"),
    **dict.fromkeys(ONE_LORA, ("sup21k-augreg", None, "CD", "CC")),
}


# which of the three splits of ImageNet-R a method's authors used, by what they did to it
CODA_LIST = {"coda-prompt", "os-prompt", "cprompt", "one-prompt", "inflora", "c-lora", *ONE_LORA}
LAMDA = ("ease", "mos", "sd-lora", "sema", "ssiat", "tuna")
LAMDA_FOLDERS = {"aper-vpt-deep", "aper-adapter", "ranpac", "simple-cil", *LAMDA}
# families with another backbone than CIFAR-100 (Aper: other authors' recipes), or with other tasks
ELSEWHERE = {
    "aper-vpt-deep": ("sup21k-augreg", {"omnibenchmark", "cub200-lamda"}),
    "aper-adapter": ("sup21k-augreg", {"omnibenchmark", "cub200-lamda"}),
    "ranpac": ("sup21k-ft1k", {"imagenet-r", "imagenet-a", "cub200-lamda", "vtab"}),
}
TASKS = {("ranpac", "stanford-cars"): {"base": 16, "increment": 20}}
# single families with another class order, or another row than the method's
SEEDS = {("sema", "imagenet-a"): None, ("sd-lora", "imagenet-r"): 1995}
ROWS = {("slca-plus-plus", "cub200"): "EG", ("slca-plus-plus", "stanford-cars"): "EG"}
ROWS |= {(method, "imagenet-a"): "BB" for method in ONE_LORA}


def methods():
    """Return all first-party baselines."""
    return [CATALOGUE.get("baseline", name) for name in sorted(CATALOGUE.names("baseline"))]


def test_every_method_has_its_row_here():
    """A new baseline gets a line in the table above."""
    assert {method.name for method in methods()} == OFFICIAL.keys()


@pytest.mark.parametrize(
    ("method", "family"),
    [(method, family) for method in methods() for family in method.presets],
    ids=lambda value: getattr(value, "name", value),
)
def test_official_presets_carry_the_authors_row(method, family):
    """Crop, filter, jitter, test resize, statistics, class order and backbone are the authors' own."""
    backbone, seed, on_cifar, elsewhere = OFFICIAL[method.name]
    other, families = ELSEWHERE.get(method.name, ("", ()))
    backbone = other if family in families else backbone
    seed = None if family == "vtab" else SEEDS.get((method.name, family), seed)
    train, test = on_cifar if family == "cifar100" else ROWS.get((method.name, family), elsewhere)
    values = method.presets[family]
    options = {
        key[len("benchmark.") :]: value for key, value in values.items() if key.startswith("benchmark.")
    }
    order = {key: options.pop(key) for key in ("order", "order_seed") if key in options}
    assert order == ({"order": "natural"} if seed is None else {"order": "seeded", "order_seed": seed})
    assert values["backbone.name"] == backbone
    used = "coda" if method.name in CODA_LIST else "folders" if method.name in LAMDA_FOLDERS else "random:42"
    assert options.pop("split", None) == (used if family == "imagenet-r" else None)
    tasks = {key: options.pop(key) for key in ("base", "increment") if key in options}
    assert tasks == TASKS.get((method.name, family), {})
    record, problems = structure(TransformOptions, options)
    assert problems == []
    assert options.keys() == attrs.asdict(record).keys()
    assert options["train_transform"] == ("none" if train == "-" else "rrc")
    expected = {"flip": True, **TRAIN.get(train, {}), **TEST[test]}
    assert {key: options[key] for key in expected} == expected


def test_every_preset_can_be_reached():
    """Whatever family a method has values for, there is a benchmark of it that takes them."""
    families = {CATALOGUE.get("benchmark", name).family: name for name in CATALOGUE.names("benchmark")}
    for method in methods():
        for family in method.presets:
            found = resolve(
                CATALOGUE, baseline=method.name, benchmark=families[family], overrides={"benchmark.root": "x"}
            )
            assert (found.preset, found.preset_differences) == (f"official {family}", [])


@pytest.mark.parametrize("method", methods(), ids=lambda method: method.name)
def test_protocols_of_every_method_on_cifar100(method):
    """Official differs in repairs of the release alone; like-for-like is one stream and backbone for all."""
    settings = {"benchmark.root": "here"}
    official = resolve(CATALOGUE, baseline=method.name, benchmark="cifar100", overrides=settings)
    assert (official.config.run.protocol, official.preset_differences) == ("official", [])
    assert official.config.backbone.name == OFFICIAL[method.name][0]
    for path, chosen in (("baseline", official.config.baseline), ("retrieval", official.config.retrieval)):
        listed = published_differences(chosen.config, path) if chosen is not None else []
        plain = {entry["option"] for entry in listed if entry["note"] == "differs from the published method"}
        assert plain <= official.preset_values.keys()
    equal = resolve(
        CATALOGUE,
        baseline=method.name,
        benchmark="cifar100",
        overrides=settings | {"run.protocol": "like-for-like"},
    )
    found = to_mapping(equal.config)
    assert equal.config.baseline == official.config.baseline
    assert equal.config.retrieval == official.config.retrieval
    assert found["backbone"]["name"] == "sup21k"
    transforms = {**TRAIN["B"], **TEST["B"], "normalise": "native", "train_transform": "rrc", "flip": True}
    expected = {"order": "natural", "increment": 10, **transforms}
    assert {key: found["benchmark"][key] for key in expected} == expected
    assert equal.protocol_changes == []
    assert {entry["option"].split(".")[0] for entry in equal.preset_differences} <= {"benchmark", "backbone"}
    assert ("benchmark.normalise" in {entry["option"] for entry in equal.preset_differences}) == (
        official.preset_values["benchmark.normalise"] != "native"
    )


@pytest.mark.parametrize("name", ["digits", "glyphs", "folder"])
def test_benchmarks_without_official_values_are_like_for_like(name):
    """Nothing a user leaves alone counts as changed; what is changed is named."""
    resolved = resolve(CATALOGUE, benchmark=name)
    assert (resolved.config.run.protocol, resolved.protocol_changes) == ("like-for-like", [])
    changed = resolve(CATALOGUE, benchmark=name, overrides={"benchmark.normalise": "unit"})
    assert changed.protocol_changes == [
        {"option": "benchmark.normalise", "value": "unit", "protocol": "native"}
    ]
