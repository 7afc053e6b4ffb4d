"""Options that nothing reads are told: what each component declares of its own."""

from __future__ import annotations

import tomllib

import attrs
import pytest

from lw2g.config.resolve import resolve
from lw2g.config.settings import OWN_SECTIONS
from lw2g.config.toml import to_toml
from lw2g.interfaces.component import BaselineComponent, HeadComponent
from lw2g.interfaces.head import HeadContext
from lw2g.interfaces.options import option
from lw2g.registry.catalogue import load_catalogue

REPEATED = {"benchmark.stream": "repetition"}
ALWAYS = {"policy.name": "always"}
RIDGE = "set baseline.head=ridge, for example, or leave it out"
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
        (
            {"baseline.name": "hide-prompt", "baseline.head_features": 9},
            "baseline.head_features=9 is not read: head=linear has no random features; " + RIDGE,
        ),
        (
            {"baseline.name": "simple-cil", "baseline.head": "lda", "baseline.head_features": 9},
            "baseline.head_features=9 is not read: head=lda has no random features; " + RIDGE,
        ),
        ({"baseline.name": "simple-cil", "baseline.head": "klda", "baseline.head_features": 9}, ""),
        (
            {"baseline.name": "simple-cil", "growth.energy": 0.9},
            "growth.energy=0.9 is not read: baseline 'simple-cil' does not grow, and there are no "
            "constraints",
        ),
        (
            {**ALWAYS, "growth.images": 64},
            "growth.images=64 is not read: policy 'always' measures nothing, and there are no constraints",
        ),
        (
            {**ALWAYS, "growth.merge": 0.5},
            "growth.merge=0.5 is not read: under policy 'always' no task shares a set",
        ),
        (
            {"baseline.name": "simple-cil", "growth.merge": 0.5},
            "growth.merge=0.5 is not read: baseline 'simple-cil' trains no set after the first task",
        ),
        (
            {"baseline.name": "joint", "growth.merge": 0.5},
            "growth.merge=0.5 is not read: baseline 'joint' trains no set after the first task",
        ),
        ({"baseline.name": "one-prompt", "growth.merge": 0.5}, ""),
        (
            {**ALWAYS, "baseline.name": "ease", "baseline.up_on_reuse": "free"},
            "baseline.up_on_reuse=free is not read: under policy 'always' no task shares a set",
        ),
        (
            {**ALWAYS, "baseline.name": "coda-prompt", "baseline.values_on_reuse": "freeze"},
            "baseline.values_on_reuse=freeze is not read: under policy 'always' no task shares a set",
        ),
        ({"baseline.name": "ease", "baseline.up_on_reuse": "free"}, ""),
        (
            {"baseline.name": "ease", "growth.heads": "joint"},
            "growth.heads=joint is not read: baseline 'ease' has no prefixes in attention",
        ),
        ({"baseline.name": "ease", "growth.heads": "joint", "growth.tap_pre": "last-queries"}, ""),
        ({"baseline.name": "hide-prompt", "growth.heads": "joint"}, ""),
        (
            {"baseline.name": "hide-prompt", "growth.heads": "joint", "growth.tap": "block-input"},
            "growth.heads=joint is not read: growth.tap=block-input has no heads",
        ),
        (
            {
                "baseline.name": "hide-prompt",
                "growth.heads": "joint",
                "growth.tap": "block-input",
                "growth.tap_pre": "site",
            },
            "",
        ),
        (  # the constraint acts at the sites of a new set, which the option chooses
            {
                **ALWAYS,
                "constraints": ["orthogonal"],
                "baseline.name": "ease",
                "baseline.up_on_reuse": "project",
            },
            "",
        ),
        (
            {**ALWAYS, "constraints": ["orthogonal"], "growth.images": 64, "growth.draws": 3},
            "growth.draws=3 is not read: policy 'always' measures nothing",
        ),
        ({"growth.images": 64, "growth.draws": 3}, ""),  # by default it grows by evidence
        ({**ALWAYS, "growth.measures": ["energy"], "growth.images": 64}, ""),
        ({"routing.combine": "hierarchical"}, "routing.combine=hierarchical is not read: mix=1"),
        ({"routing.held_back": 5}, "routing.held_back=5 is not read: mix=1 and expert=none fit nothing"),
        ({"routing.held_back": 5, "routing.combine": "hierarchical", "routing.mix": 2}, ""),
        ({"routing.held_back": 5, "routing.expert": "frozen"}, ""),
        (
            {"baseline.name": "slca-plus-plus", "baseline.head": "auto", "baseline.align_epochs": 9},
            "baseline.align_epochs=9 is not read: head=auto",
        ),
        ({"baseline.name": "slca-plus-plus", "baseline.align_epochs": 9}, ""),
        (
            {"baseline.name": "dual-prompt", "baseline.decay_epochs": 3},
            "baseline.decay_epochs=3 is not read: schedule=constant",
        ),
        ({"baseline.name": "dual-prompt", "baseline.schedule": "step", "baseline.decay_epochs": 3}, ""),
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


def test_options_are_declared_beside_options_that_are_there():
    """And what is not read where another option counts is not where nothing reads that one, either."""
    installed = [entry.component.config for entry in load_catalogue().components()]
    for config in (*installed, *OWN_SECTIONS.values()):
        fields = attrs.fields_dict(config)
        for name, field in fields.items():
            for other in (*field.metadata.get("unless", {}), *field.metadata.get("only", {})):
                for word in ("unless", "only"):
                    above = fields[other].metadata.get(word, {})
                    assert above.items() <= field.metadata.get(word, {}).items(), f"{config.__name__}.{name}"


@attrs.frozen(kw_only=True)
class OptionsOfAPlugin:
    """One that counts where a set is shared, and one whose name says so and which a new set reads."""

    rest: int = option(0, "what is left as it is", on_reuse=True)
    scale_on_reuse: int = option(0, "what a set starts with that others may share")


def test_an_option_for_shared_sets_says_so_itself():
    """Its name tells nothing."""
    installed = load_catalogue()
    sane = installed.get("baseline", "ease")
    record = attrs.evolve(sane, config=OptionsOfAPlugin, presets={}, tuned={})
    catalogue = installed.with_component(record)
    settings = {**ALWAYS, "baseline.name": "ease", "baseline.rest": 1, "baseline.scale_on_reuse": 1}
    notes = resolve(catalogue, overrides=settings).notes
    told = [note for note in notes if "is not read" in note]
    assert told == ["baseline.rest=1 is not read: under policy 'always' no task shares a set"]


def test_shipped_options_for_shared_sets_are_marked():
    """By lw2g's own habit their names end so."""
    for entry in load_catalogue().components():
        for field in attrs.fields(entry.component.config):
            assert field.name.endswith("_on_reuse") == bool(field.metadata.get("on_reuse")), field.name


def test_shipped_methods_with_sites_of_queries_are_marked():
    """The check of sites finds those that are marked as having none; these have some."""
    marked = {
        entry.component.name
        for entry in load_catalogue().components()
        if isinstance(entry.component, BaselineComponent)
        and entry.component.has_sites
        and entry.component.query_sites
        and entry.component.without_images is None
    }
    prompts = {"coda-prompt", "dual-prompt", "hide-prompt", "os-prompt", "s-prompt-plus-plus"}
    assert marked == prompts | {"joint", "one-prompt"}


def test_heads_say_whether_they_have_random_features(monkeypatch):
    """A head that does not is built without a look at their number."""
    looked = set()

    def look(context, name):
        looked.add(name)
        return object.__getattribute__(context, name)

    monkeypatch.setattr(HeadContext, "__getattribute__", look)
    for entry in load_catalogue().components():
        component = entry.component
        if not isinstance(component, HeadComponent) or component.lacks(component.config()):
            continue
        looked.clear()
        component.build(component.config(), HeadContext(dim=4, num_classes=3, seed=0, features=8))
        assert component.random_features == ("features" in looked), component.name
