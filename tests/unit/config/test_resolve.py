"""Names, files and single options become one configuration; what is wrong is told all at once."""

from __future__ import annotations

import re

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_components import (
    CATALOGUE,
    BaselineConfig,
    CpkConfig,
    OtherConfig,
    RetrievalConfig,
    TimmConfig,
    catalogue,
    names,
    refusal,
    write,
)
from lw2g.api.arguments import as_options
from lw2g.config.layers import SECTIONS, written_out
from lw2g.config.resolve import load_resolved, resolve
from lw2g.config.settings import RUN_OPTIONS, GrowthConfig, RunConfig
from lw2g.config.toml import dump_resolved, flat, parse_value, read_toml, to_mapping, to_toml
from lw2g.errors import ConfigError
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.component import NoOptions
from lw2g.registry.catalogue import load_catalogue
from lw2g.sweeps.grid import Cell, read_grid, settings_of


def test_nothing_at_all_is_the_default_experiment():
    """Without any input the embedded default comes out, with our values for its benchmark."""
    resolved = resolve(CATALOGUE)
    assert names(resolved.config) == (
        "hide-prompt",
        "classifier",
        "min",
        ["orthogonal", "cpk"],
        "glyphs",
        "micro",
    )
    assert resolved.preset == "tuned glyphs"
    assert resolved.config.baseline.config == BaselineConfig(epochs=5)
    assert (resolved.config.growth, resolved.config.run) == (
        GrowthConfig(),
        RunConfig(protocol="like-for-like"),
    )
    assert resolved.preset_differences == []


def test_the_components_in_use_are_listed_in_one_place():
    """Every field is a section of components or of options of lw2g itself, and none is left out."""
    config = resolve(CATALOGUE).config
    assert {field.name for field in attrs.fields(type(config))} == set(SECTIONS) == set(to_mapping(config))
    assert {(kind, one.name) for kind, one in config.chosen()} == {
        ("baseline", "hide-prompt"),
        ("retrieval", "classifier"),
        ("policy", "min"),
        *(("evidence", one.name) for one in config.evidence),
        ("constraint", "orthogonal"),
        ("constraint", "cpk"),
        ("benchmark", "glyphs"),
        ("backbone", "micro"),
    }


def test_the_official_preset_reaches_every_section():
    """A preset may set options of the baseline, the growth, a constraint, its retrieval and the benchmark."""
    resolved = resolve(CATALOGUE, benchmark="cifar100")
    config = resolved.config
    assert resolved.preset == "official cifar100"
    assert config.baseline.config == BaselineConfig(epochs=40)
    assert config.growth == GrowthConfig(energy=0.9, energy_pre=0.8)
    assert config.constraints[1].config == CpkConfig(phi=0.2)
    assert config.retrieval.config == RetrievalConfig(centroids=7)
    assert config.benchmark.config == OtherConfig(length=5)
    assert config.backbone.name == "sup21k"


def test_preset_keys_of_components_that_are_not_in_use_are_ignored():
    """Another retrieval and no CPK: their preset values have nowhere to go and do no harm."""
    resolved = resolve(CATALOGUE, benchmark="cifar100", constraints=["none"], retrieval="key-cosine")
    assert names(resolved.config)[1:4] == ("key-cosine", "min", [])
    assert resolved.preset_differences == []


def test_differences_from_the_official_preset_are_listed():
    """What departs from the authors' value is known, with both values."""
    resolved = resolve(
        CATALOGUE, benchmark="cifar100", overrides={"baseline.epochs": 2, "growth.energy_pre": "none"}
    )
    assert [
        (entry["option"], entry["value"], entry["published"]) for entry in resolved.preset_differences
    ] == [
        ("baseline.epochs", 2, 40),
        ("growth.energy_pre", None, 0.8),
    ]


def test_a_benchmark_without_a_preset_uses_general_values_and_says_so():
    """Ruling o: no preset is a fact a user is told."""
    resolved = resolve(CATALOGUE, benchmark="new-one")
    assert (resolved.preset, resolved.config.baseline.config) == ("general", BaselineConfig())
    (told,) = resolved.notes
    assert told.startswith(
        "no values of baseline 'hide-prompt' were tried on 'new', and it runs with its def"
    )
    # what has no values anywhere has none to miss
    assert resolve(load_catalogue(), benchmark="folder", baseline="simple-cil").notes == ()


LAYERS = ("preset", "file", "explicit")


@given(st.sets(st.sampled_from(LAYERS)))
def test_the_highest_layer_wins(tmp_path_factory, present):
    """Defaults < preset < file < explicit options, whichever of them are there."""
    values = {"preset": 40, "file": 7, "explicit": 9}
    benchmark = "cifar100" if "preset" in present else "new-one"
    text = f"[benchmark]\nname = '{benchmark}'\n" + ("[baseline]\nepochs = 7\n" if "file" in present else "")
    path = write(tmp_path_factory.mktemp("layers"), text)
    overrides = {"baseline.epochs": 9} if "explicit" in present else {}
    highest = [layer for layer in LAYERS if layer in present]
    expected = values[highest[-1]] if highest else 50
    assert resolve(CATALOGUE, file=path, overrides=overrides).config.baseline.config.epochs == expected


def test_the_preset_follows_the_benchmark_that_is_finally_used(tmp_path):
    """An explicit benchmark displaces the file's one, its options and its preset, and says so."""
    path = write(tmp_path, "[benchmark]\nname = 'cifar100'\nlength = 3\n")
    resolved = resolve(CATALOGUE, file=path, benchmark="glyphs")
    assert resolved.preset == "tuned glyphs"
    assert resolved.notes == ("the [benchmark] options (length) are for 'cifar100' and not used",)
    kept = resolve(CATALOGUE, file=path, benchmark="cifar100")
    assert kept.config.benchmark.config == OtherConfig(length=3)


def test_constraints_come_from_options_then_file_then_policy(tmp_path):
    """The tables of a file decide which constraints are used; explicit names replace them."""
    path = write(tmp_path, "[constraints.pgp]\n[constraints.cpk]\nphi = 0.1\n")
    assert names(resolve(CATALOGUE, file=path).config)[3] == ["pgp", "cpk"]
    chosen = resolve(CATALOGUE, file=path, constraints=["cpk"]).config.constraints
    assert [(one.name, one.config) for one in chosen] == [("cpk", CpkConfig(phi=0.1))]
    assert names(resolve(CATALOGUE, policy="always").config)[3] == []


@pytest.mark.parametrize("text", ["constraints = 'none'\n", "[constraints]\n"])
def test_a_file_can_say_that_there_are_no_constraints(tmp_path, text):
    """The word and the empty table mean the same."""
    assert resolve(CATALOGUE, file=write(tmp_path, text)).config.constraints == ()
    assert resolve(CATALOGUE, overrides={"constraints": "none"}).config.constraints == ()


def test_an_option_of_a_constraint_changes_it_without_changing_which_are_used():
    """``--set constraints.cpk.phi`` keeps the policy's own constraints."""
    chosen = resolve(CATALOGUE, overrides={"constraints.cpk.phi": 0.4}).config.constraints
    assert [one.name for one in chosen] == ["orthogonal", "cpk"]
    assert chosen[1].config == CpkConfig(phi=0.4)
    assert refusal(policy="always", overrides={"constraints.cpk.phi": 0.4}) == [
        "constraints.cpk: no such constraint in use (none); name it with constraints or in the file"
    ]


def test_fixed_baselines_run_under_always_only():
    """A baseline that does not grow gets the policy that fits, and another one is refused in one line."""
    assert names(resolve(CATALOGUE, baseline="single").config)[:4] == ("single", None, "always", [])
    assert refusal(baseline="single", policy="min") == [
        "policy: baseline 'single' does not grow and runs under 'always' only, but got 'min'; "
        "leave the policy out"
    ]


def test_a_retrieval_for_a_baseline_without_a_choice_is_refused():
    """Nothing that would have no effect is accepted."""
    assert refusal(baseline="weighted", retrieval="classifier") == [
        "retrieval: baseline 'weighted' makes no hard choice of a set and takes no "
        "retrieval strategy; leave it out"
    ]


def test_a_timm_name_is_a_backbone():
    """Any name with an underscore that nobody registers goes to the component ``timm``."""
    choice = resolve(CATALOGUE, backbone="vit_tiny_patch16_224.augreg_in21k").config.backbone
    assert (choice.name, choice.config) == ("timm", TimmConfig(model="vit_tiny_patch16_224.augreg_in21k"))
    assert refusal(backbone="macro")[0].startswith(
        "backbone: no backbone is called 'macro' (did you mean 'micro'?)"
    )


def test_the_files_backbone_options_stay_with_their_model(tmp_path):
    """Naming the same timm model keeps the file's weights; naming another drops them and says so."""
    weights = tmp_path / "w.npz"
    weights.touch()
    path = write(
        tmp_path, f"[backbone]\nname = 'timm'\nmodel = 'vit_a'\nweights = '{weights}'\nimage_size = 64\n"
    )
    same = resolve(CATALOGUE, file=path, backbone="vit_a").config.backbone
    assert (same.weights, same.image_size) == (weights, 64)
    other = resolve(CATALOGUE, file=path, backbone="vit_b")
    assert (other.config.backbone.weights, other.config.backbone.config.model) == (None, "vit_b")
    assert len(other.notes) == 1


def test_measures_are_those_that_the_policy_reads_and_those_that_are_named(tmp_path):
    """Each comes once with its options; what is in use says nothing of a baseline that does not grow."""
    wanted = {"growth.measures": ["energy", "hindrance"], "evidence.energy.length": 7}
    found = resolve(catalogue(), overrides=wanted).config.evidence
    assert [(one.name, type(one.config)) for one in found] == [
        ("hindrance", NoOptions),
        ("energy", OtherConfig),
    ]
    assert found[1].config.length == 7
    assert resolve(catalogue(), policy="always").config.evidence == ()
    assert [one.name for one in resolve(catalogue(), policy="always", overrides=wanted).config.evidence] == [
        "energy",
        "hindrance",
    ]
    assert resolve(catalogue(), baseline="single").config.evidence == ()
    path = tmp_path / "e.toml"
    path.write_text("[evidence.energy]\nlength = 3\n")
    assert "[evidence.energy] is of a measure that is not in use" in resolve(catalogue(), file=path).notes


@pytest.mark.parametrize(
    ("names", "overrides", "message"),
    [
        ({}, {"evidence.energy.length": 7}, "evidence.energy: no such measure in use ('hindrance')"),
        ({}, {"growth.measures": ["enrgy"]}, "no evidence is called 'enrgy' (did you mean 'energy'?)"),
        ({"baseline": "single"}, {"growth.measures": ["energy"]}, "baseline 'single' does not grow"),
    ],
)
def test_measures_that_cannot_be_used_are_told(names, overrides, message):
    """A name that is not registered or not in use, and measures of a baseline that does not grow."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve(catalogue(), overrides=overrides, **names)


def test_trackers_are_the_tables_that_are_there(tmp_path):
    """A tracker is used by giving it a table, be it an empty one."""
    path = write(tmp_path, "[trackers.board]\n")
    chosen = resolve(CATALOGUE, file=path, overrides={"trackers.mlflow.length": 3}).config.trackers
    assert [(one.name, one.config) for one in chosen] == [
        ("board", NoOptions()),
        ("mlflow", OtherConfig(length=3)),
    ]


def test_every_problem_is_told_at_once_on_a_line_of_its_own(tmp_path):
    """Sections, keys, types, ranges, names and files: one error lists them all with their paths."""
    path = write(
        tmp_path,
        """
grwoth = 3
[baseline]
epochs = "many"
lerning = 1
[growth]
energy = 1.5
images = 15
[policy]
name = "mim"
[run]
seed = -1
[constraints.cpk]
phi = 2
[constraints.orthogonl]
""",
    )
    lines = refusal(
        file=path,
        weights=tmp_path / "gone.npz",
        overrides={"bechmark.name": "x", "growth.centre": "maybe", "run.device": "gpu"},
    )
    assert lines[0] == f"{len(lines) - 1} problems in the configuration:"
    in_file = f" (in {path})"
    of_file = {line.partition(":")[0] for line in lines if line.endswith(in_file)}
    # the source of a value; what is typed needs none
    assert of_file == {
        *("baseline.epochs", "baseline.lerning", "growth.energy", "growth.images"),
        *("policy", "run.seed", "constraints.cpk.phi"),
    }
    assert {line.removesuffix(in_file) for line in lines[1:]} == {
        "grwoth: no such section (did you mean 'growth'?)",
        "bechmark.name: no such section (did you mean 'benchmark'?)",
        "baseline.epochs: expected a whole number but got 'many'",
        "baseline.lerning: no such option of hide-prompt (there are epochs, lr, clip)",
        "growth.energy: must be <= 1: 1.5",
        "growth.images: must be >= 16: 15",
        "growth.centre: expected true or false but got 'maybe'",
        "policy: no policy is called 'mim' (did you mean 'min'?); `lw2g plugins policy` lists all",
        "run.seed: must be >= 0: -1",
        "run.device: must be auto, cpu, mps, cuda or cuda:N: 'gpu' (did you mean 'cuda'?)",
        "constraints.cpk.phi: must be <= 1: 2.0",
        "constraints.orthogonl: no constraint is called 'orthogonl' (did you mean 'orthogonal'?); "
        "`lw2g plugins constraint` lists all",
        f"backbone.weights: no file {str(tmp_path / 'gone.npz')!r}; give a file or a folder of weights",
    }


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            {"baseline": "weighted"},
            "baseline: expected a key of the form baseline.OPTION (did you mean baseline.name=weighted?)",
        ),
        ({"baseline.epochs.x": 1}, "baseline.epochs.x: expected a key of the form baseline.OPTION"),
        ({"constraints.cpk": 1}, "constraints.cpk: expected a key of the form constraints.NAME.OPTION"),
        (
            {"head": "lda"},
            "head: expected a key of the form head.NAME.OPTION (did you mean baseline.head=lda?)",
        ),
        (
            {"carry": "affine"},
            "carry: expected a key of the form carry.NAME.OPTION (did you mean baseline.head_carry=affine?)",
        ),
        ({"M": 10000}, "M: expected a key with its section, such as baseline.epochs"),
        (
            {"convnet_type": "x"},
            "convnet_type: no such option; the network is backbone=NAME",
        ),
        (
            {"policy.memory-size": 9},
            "policy.memory-size: no such option of min, which comes with hide-prompt; "
            "baseline 'replay' keeps baseline.exemplars images of each old class, other methods keep none",
        ),
        ({"policy.name": 3}, "policy: expected a name but got 3"),
        ({"growth.images": 8}, "growth.images: must be >= 16: 8"),
        (
            {"growth.epochs": 8},
            "growth.epochs: no such option (did you mean 'baseline.epochs'?)",
        ),
        (
            {"baseline.name": "single", "policy.margin": 3},
            "policy.margin: no such option of always, which comes with single (there are none)",
        ),
        (
            {"baseline.name": "single", "policy.name": "always", "policy.margin": 3},
            "policy.margin: no such option of always (there are none)",
        ),
        (
            {"retrieval.centroid": 3},
            "retrieval.centroid: no such option of classifier, which comes with hide-prompt "
            "(did you mean 'centroids'?)",
        ),
    ],
)
def test_misshapen_keys_are_explained(overrides, line):
    """A key that does not fit the layout is answered with the form it should have."""
    assert refusal(overrides=overrides) == [line]


@pytest.mark.parametrize(
    ("baseline", "key", "words"),
    [
        ("replay", "baseline.memory_size", "of replay; baseline 'replay' keeps baseline.exemplars images"),
        (None, "base", "base: expected a key with its section (did you mean 'benchmark.base'?)"),
    ],
)
def test_a_key_of_another_library_is_answered_by_what_it_means(baseline, key, words):
    """And by no list of a component's options; one here of its own name comes first."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        resolve(load_catalogue(), baseline=baseline, overrides={key: 3})


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("baseline.epochs", "there are head_features, head"),  # retrieval.epochs is of the methods that train
        ("baseline.energy", "did you mean 'constraints.pgp.energy' or 'growth.energy'?"),
    ],
)
def test_an_option_of_others_of_the_section_is_not_looked_for_elsewhere(key, words):
    """The section is right, and the component has no such option; others are led to where theirs is."""
    with pytest.raises(ConfigError) as refused:
        resolve(load_catalogue(), baseline="simple-cil", overrides={key: 3})
    assert str(refused.value) == f"{key}: no such option of simple-cil ({words})"


def test_constraints_of_a_method_that_trains_nothing_are_refused_where_they_are_typed():
    """In a file, which may be of an older run, they are told; a method that adapts features keeps them."""
    installed = load_catalogue()
    words = "constraints: baseline {} trains nothing to constrain; leave it out"
    file = {"baseline": "simple-cil", "benchmark": "digits", "constraints": ["pgp"]}
    assert words.format("'simple-cil'") in resolve(installed, file=file).notes
    assert "pgp" not in " ".join(resolve(installed, file=file, constraints=["none"]).notes)
    without = {"baseline.adapt": "none"}
    with pytest.raises(ConfigError, match=words.format("'ranpac' with baseline.adapt=none")):
        resolve(installed, baseline="ranpac", constraints=["pgp"], overrides=without)
    assert not resolve(installed, baseline="ssiat", constraints=["cpk"]).notes


@pytest.mark.parametrize(
    ("baseline", "constraint", "idle"),
    [
        ("ranpac", "cpk", True),  # no sites
        ("vpt-nsp2", "orthogonal", True),
        ("aper-adapter", "freeze", True),  # no task after the first
        ("joint", "pgp", True),
        ("joint", "cpk", False),  # it acts in the first task, too
        ("vpt-nsp2", "freeze", False),
    ],
)
def test_a_constraint_that_reaches_no_step_is_refused(baseline, constraint, idle):
    """By what the records of both declare; in a file it is told."""
    installed = load_catalogue()
    words = f"no step of baseline '{baseline}' is constrained by '{constraint}'; leave it out"
    notes = " ".join(resolve(installed, file={"baseline": baseline, "constraints": [constraint]}).notes)
    assert (words in notes) == idle
    if idle:
        with pytest.raises(ConfigError, match=words):
            resolve(installed, baseline=baseline, constraints=[constraint])


@pytest.mark.parametrize(
    "entry", [entry for entry in load_catalogue().components() if entry.component.kind == "baseline"]
)
def test_records_say_whether_there_are_sites(entry):
    """A method without sites has the one of the contract, which returns none."""
    cls = entry.component.build.load()
    declares = any(getattr(cls, name) is not getattr(Baseline, name) for name in ("sites", "shared_sites"))
    assert entry.component.has_sites == declares or entry.component.without_images == {}


def test_a_faulty_preset_is_told_as_such():
    """A plugin author's mistake is not blamed on the user's options."""
    lines = refusal(baseline="misled")
    assert set(lines[1:]) == {
        "run.seed: no such section (in the preset 'tuned glyphs' of baseline 'misled')",
        "baseline.epoch: no such option of misled (did you mean 'epochs'?) (in the preset 'tuned glyphs')",
        "growth.energy: must be <= 1: 3.0 (in the preset 'tuned glyphs')",
    }


SHORT = """
policy = "one"
backbone = "vit_a"
weights = "w.npz"
constraints = ["cpk"]
trackers = "mlflow"
seed = 3
benchmark = {name = "digits", increment = 2}
[baseline]
name = "dual-prompt"
epochs = 1
"""
LONG = """
policy.name = "one"
backbone = {name = "timm", model = "vit_a", weights = "w.npz"}
benchmark = {name = "digits", increment = 2}
baseline = {name = "dual-prompt", epochs = 1}
run.seed = 3
[constraints.cpk]
[trackers.mlflow]
"""


def test_what_stands_for_itself_is_the_same_in_a_file_and_as_an_argument(tmp_path):
    """`devices = 2` at the top of a file is `lw2g.run(devices=2)`, and so is every other option of a run."""
    values = {"devices": 2, "seed": 3, "protocol": "auto", "device": "cpu", "precision": "32-true"}
    assert values.keys() == set(RUN_OPTIONS)
    text = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    of_file = flat(written_out(read_toml(write(tmp_path, text))))
    of_arguments = as_options({"benchmark": None}, values)
    assert of_file == of_arguments
    assert of_file["run.devices"] == 2


def test_a_run_and_a_grid_are_written_alike(tmp_path, monkeypatch):
    """A name alone stands for the table with that name, in both; weights stand beside."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.npz").touch()
    installed = load_catalogue()
    (expected,) = {repr(resolve(installed, file=write(tmp_path, text)).config) for text in (SHORT, LONG)}
    for text in (SHORT, LONG):
        (cell,) = read_grid(write(tmp_path, "[base]\n" + text.replace("\n[", "\n[base.")))
        again = Cell(settings=settings_of(cell.settings, "sweep.json"), label="")
        assert repr(resolve(installed, file=again.tables()).config) == expected


def test_unreadable_files_are_configuration_errors(tmp_path):
    """A missing file and broken TOML are told with the path, without a traceback."""
    with pytest.raises(ConfigError, match=r"gone\.toml' cannot be read"):
        resolve(CATALOGUE, file=tmp_path / "gone.toml")
    with pytest.raises(ConfigError, match=r"experiment\.toml' is no TOML"):
        resolve(CATALOGUE, file=write(tmp_path, "[baseline"))
    assert refusal(file=write(tmp_path, "growth = 'x'")) == ["growth: expected a table but got 'x'"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        (".5", 0.5),
        ("1e-3", 1e-3),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("'quoted'", "quoted"),
        ("joint", "joint"),
        ("1\nother = 2", "1\nother = 2"),
        ("", ""),
    ],
)
def test_values_are_toml_or_else_text(text, value):
    """The value of ``--set`` is read as TOML where it is TOML."""
    assert parse_value(text) == value


arguments = st.fixed_dictionaries(
    {},
    optional={
        "baseline": st.sampled_from(["hide-prompt", "weighted"]),
        "policy": st.sampled_from(["min", "always"]),
        "benchmark": st.sampled_from(["glyphs", "cifar100", "new-one"]),
        "backbone": st.sampled_from(["micro", "vit_tiny_patch16_224.x"]),
        "constraints": st.lists(st.sampled_from(["orthogonal", "cpk", "pgp"]), unique=True),
        "overrides": st.fixed_dictionaries(
            {},
            optional={
                "growth.energy": st.floats(0.01, 1),
                "growth.energy_pre": st.just("none") | st.floats(0.01, 1),
                "growth.energy_power": st.sampled_from([2, 4]),
                "growth.heads": st.sampled_from(["per-head", "joint"]),
                "run.protocol": st.sampled_from(["auto", "like-for-like"]),
                "run.seed": st.integers(0, 2**63 - 1),
                "backbone.image_size": st.integers(1, 999),
                "trackers.mlflow.length": st.integers(-(2**63), 2**63 - 1),
            },
        ),
    },
)


@settings(max_examples=40)
@given(arguments)
def test_a_resolved_configuration_reads_back_equal(tmp_path_factory, given_arguments):
    """``config.toml`` is complete: it resolves to the same configuration and the same preset."""
    resolved = resolve(CATALOGUE, **given_arguments)
    path = write(tmp_path_factory.mktemp("round"), dump_resolved(resolved))
    again = load_resolved(path, CATALOGUE)
    assert again.config == resolved.config
    assert attrs.evolve(again, notes=()) == attrs.evolve(resolved, notes=())
    assert to_toml(again.config) == to_toml(resolved.config)


def test_a_stored_configuration_may_have_options_that_changed_no_number(tmp_path):
    """What an earlier lw2g stored resolves to the same; in a user's file such an option is unknown."""
    resolved = resolve(CATALOGUE, baseline="weighted", policy="always")
    stored = dump_resolved(resolved).replace("[run]\n", '[run]\ngraph = "off"\n')
    path = write(tmp_path, stored)
    assert load_resolved(path, CATALOGUE).config == resolved.config
    with pytest.raises(ConfigError, match=r"run\.graph: no such option"):
        resolve(CATALOGUE, file=path)


def test_the_mapping_of_a_configuration_is_plain():
    """The record holds plain values: nothing is left out, what is undefined is None."""
    mapping = to_mapping(resolve(CATALOGUE, baseline="weighted", policy="always").config)
    assert mapping["retrieval"] is None
    assert mapping["constraints"] == {}
    assert mapping["backbone"] == {"name": "micro", "weights": None, "image_size": None}
    assert mapping["growth"]["energy_pre"] is None
    assert list(mapping["run"]) == [
        "seed",
        "device",
        "devices",
        "precision",
        "deterministic",
        "compile",
        "evaluate",
        "evaluation_batch",
        "speed",
        "queries",
        "next_domain",
        "probabilities",
        "workers",
        "image_memory",
        "image_disk",
        "protocol",
    ]


def test_names_in_one_word_are_told_apart():
    """Where several are meant, the nearest one would lose the others."""
    with pytest.raises(ConfigError, match=r"name each by itself: 'orthogonal', 'cpk'$"):
        resolve(load_catalogue(), baseline="hide-prompt", constraints=["orthogonal,cpk"])


def test_a_grid_is_no_configuration(tmp_path):
    """A file with the parts of a grid is told by the command that takes it, in one line."""
    path = tmp_path / "grid.toml"
    path.write_text("[base]\n[axes]\nseed = [0]\n")
    with pytest.raises(ConfigError, match=r"^this is a grid of runs; run it by `lw2g sweep .*grid\.toml`$"):
        resolve(load_catalogue(), file=path)
