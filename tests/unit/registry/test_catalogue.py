"""The catalogue finds components, and one bad plugin never spoils another."""

from __future__ import annotations

import itertools
import re
from importlib.metadata import entry_points
from types import ModuleType, SimpleNamespace

import attrs
import pytest

from lw2g.errors import PluginError, UnknownComponentError
from lw2g.interfaces.component import (
    BaselineComponent,
    ConstraintComponent,
    PolicyComponent,
    RetrievalComponent,
)
from lw2g.registry.catalogue import load_catalogue
from lw2g.registry.markers import hookimpl

_numbers = itertools.count()


@attrs.frozen(kw_only=True)
class Options:
    epochs: int = 3


def build(*arguments):
    """Stand in for a component's build function."""
    return SimpleNamespace(arguments=arguments)


def policy(name, **changes):
    """Return a policy record."""
    return PolicyComponent(
        **{"name": name, "config": Options, "summary": "a policy", "build": build, **changes}
    )


def plugin(name, **hooks):
    """Return a module object with these hooks, each marked and returning the value given."""
    module = ModuleType(name)
    for hook, value in hooks.items():
        function = (lambda found: lambda: found)(value)
        setattr(module, hook, hookimpl(function))
    return module


def load(*plugins):
    """Return the catalogue of these plugins alone."""
    return load_catalogue(plugins=plugins, entry_points=False)


def installed(tmp_path, monkeypatch, distributions):
    """Put distributions on the path: ``{(name, version): {entry point: source}}``; hides the real ones."""
    monkeypatch.delenv("LW2G_DISABLE_PLUGINS", raising=False)
    for (name, version), plugins in {("lw2g", "9.9"): {}, **distributions}.items():
        place = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = ["[lw2g]"]
        for entry_point, source in plugins.items():
            module = f"fake_plugin_{next(_numbers)}"
            (tmp_path / f"{module}.py").write_text(source)
            lines.append(f"{entry_point} = {module}")
        (place / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("lw2g.registry.manager.entry_points", lambda group: _at(tmp_path, group))


def _at(tmp_path, group):
    found = entry_points(group=group)
    return [one for one in found if (tmp_path / f"{one.module}.py").exists()]


def source(kind="policy", name="mine", body=""):
    """Return the source of a plugin that registers one component."""
    classes = {"policy": ("policies", "PolicyComponent")}
    hook, record = classes[kind]
    return f"""
import attrs
from lw2g.interfaces.component import {record}
from lw2g.registry.markers import hookimpl
{body}
@attrs.frozen(kw_only=True)
class Config:
    pass

@hookimpl
def lw2g_{hook}():
    return [{record}(name={name!r}, config=Config, summary="s", build=print)]
"""


def test_components_are_sorted_by_kind_and_name_whatever_the_order_of_plugins():
    """Listings do not depend on the order in which plugins are registered."""
    first = plugin("first", lw2g_policies=[policy("zeta"), policy("alpha")])
    retrieval = RetrievalComponent(name="keys", config=Options, summary="s", build=build)
    second = plugin("second", lw2g_policies=[policy("middle")], lw2g_retrievals=(retrieval,))
    listed = [entry.key for entry in load(first, second).components()]
    assert listed == [("retrieval", "keys"), ("policy", "alpha"), ("policy", "middle"), ("policy", "zeta")]
    assert listed == [entry.key for entry in load(second, first).components()]
    assert load(first, second).components()[0].origin.plugin == "second"


def test_unknown_name_suggests_the_nearest_and_names_broken_plugins():
    """An unknown name is answered with the nearest one, the command that lists all, and suspects."""
    catalogue = load(plugin("good", lw2g_policies=[policy("minimum")]), plugin("broken", lw2g_policies=None))
    with pytest.raises(UnknownComponentError) as caught:
        catalogue.get("policy", "minimun")
    assert str(caught.value) == (
        "no policy is called 'minimun' (did you mean 'minimum'?); run `lw2g plugins` for all names "
        "(plugins with problems: broken)"
    )


@pytest.mark.parametrize(
    ("result", "what"),
    [
        (None, "returns NoneType from lw2g_policies, not a list of records"),
        (policy("single"), "returns PolicyComponent from lw2g_policies, not a list of records"),
        ([PolicyComponent], "returns PolicyComponent (a class) from lw2g_policies"),
        (["min"], "returns 'str' from lw2g_policies, which takes PolicyComponent only"),
        (
            [ConstraintComponent(name="c", config=Options, summary="s", build=build)],
            "returns 'ConstraintComponent' from lw2g_policies, which takes PolicyComponent only",
        ),
    ],
)
def test_a_wrong_result_is_a_problem_of_its_plugin_alone(result, what):
    """What a hook returns is checked; the good plugin beside it keeps its component."""
    catalogue = load(plugin("bad", lw2g_policies=result), plugin("good", lw2g_policies=[policy("fine")]))
    assert catalogue.names("policy") == ("fine",)
    (problem,) = catalogue.problems
    assert problem.plugin == "bad"
    assert what in problem.what


def test_good_records_beside_a_bad_one_are_kept():
    """One record of a wrong class does not take the other records of its hook along."""
    catalogue = load(plugin("mixed", lw2g_policies=[policy("fine"), 3]))
    assert catalogue.names("policy") == ("fine",)
    assert len(catalogue.problems) == 1


class Odd(Exception):
    """An exception class of a plugin's own."""


@pytest.mark.parametrize(
    ("error", "told"),
    [(Odd("no luck"), "Odd: no luck"), (SystemExit("bye\nfor good"), "SystemExit: bye for good")],
)
def test_a_hook_that_raises_is_a_problem(error, told):
    """Whatever a hook raises is told with its type, and a request to end the program ends nothing."""

    def lw2g_policies():
        raise error

    bad = ModuleType("bad")
    bad.lw2g_policies = hookimpl(lw2g_policies)
    catalogue = load(bad, plugin("good", lw2g_policies=[policy("fine")]))
    assert [problem.what for problem in catalogue.problems] == [f"fails in lw2g_policies: {told}"]
    assert catalogue.names("policy") == ("fine",)


def test_a_misspelt_hook_is_reported_with_the_nearest_hook():
    """A marked function whose name is no hook is not ignored, and its neighbours work."""
    catalogue = load(plugin("bad", lw2g_policy=[policy("lost")], lw2g_policies=[policy("kept")]))
    assert catalogue.names("policy") == ("kept",)
    assert [problem.what for problem in catalogue.problems] == [
        "has 'lw2g_policy', which is no hook (did you mean 'lw2g_policies'?)"
    ]


def test_a_hook_without_the_marker_is_reported():
    """A function with a hook's name that pluggy would ignore is named, with the decorator it lacks."""
    bad = ModuleType("bad")
    bad.lw2g_policies = lambda: [policy("lost")]
    (problem,) = load(bad).problems
    assert problem.what == "has 'lw2g_policies' without the marker"
    assert "hookimpl" in problem.remedy


def test_an_imported_package_whose_name_begins_like_a_hook_is_no_problem():
    """Only functions count: a plugin may import packages called ``lw2g_something``."""
    good = plugin("good", lw2g_policies=[policy("fine")])
    good.lw2g_helpers = ModuleType("lw2g_helpers")
    assert load(good).problems == ()


def test_a_hook_with_arguments_does_not_fit():
    """A hook that wants arguments is refused with the reason."""

    def lw2g_policies(register):
        return []

    bad = ModuleType("bad")
    bad.lw2g_policies = hookimpl(lw2g_policies)
    catalogue = load(bad, plugin("good", lw2g_policies=[policy("fine")]))
    (problem,) = catalogue.problems
    assert problem.what.startswith("has a hook that does not fit")
    assert "register" in problem.what
    assert catalogue.names("policy") == ("fine",)


def test_a_plugin_without_hooks_is_reported():
    """A module that offers nothing is a mistake in its entry point."""
    assert [problem.what for problem in load(ModuleType("empty")).problems] == ["has no hooks"]


def test_a_name_registered_twice_is_used_by_neither_and_both_are_named():
    """Which of two methods a name means never depends on what else is installed."""
    catalogue = load(
        plugin("one", lw2g_policies=[policy("same"), policy("mine")]),
        plugin("two", lw2g_policies=[policy("same")]),
    )
    assert catalogue.names("policy") == ("mine",)
    assert [problem.plugin for problem in catalogue.problems] == ["one", "two"]
    with pytest.raises(PluginError, match="plugin 'one' and plugin 'two'; neither is used"):
        catalogue.get("policy", "same")


def test_the_same_name_in_two_kinds_is_no_clash():
    """Names are unique within a kind only."""
    baseline = BaselineComponent(name="same", config=Options, summary="s", build=build)
    catalogue = load(plugin("p", lw2g_policies=[policy("same")], lw2g_baselines=[baseline]))
    assert catalogue.problems == ()
    assert catalogue.get("baseline", "same") is baseline


@attrs.define
class NotFrozen:
    epochs: int = 3


@attrs.define
class NotFrozenAndEmpty:
    pass


@attrs.frozen
class NoDefault:
    epochs: int


@attrs.frozen
class BadDefault:
    epochs: int = attrs.field(default=0, validator=attrs.validators.gt(0))


@attrs.frozen
class Unresolved:
    epochs: Missing = 3  # noqa: F821


@attrs.frozen
class TakesName:
    name: str = "x"


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (dict, "which is no attrs class"),
        (Options(), "which is no attrs class"),
        (NotFrozen, "is not frozen"),
        (NotFrozenAndEmpty, "is not frozen"),
        (NoDefault, "cannot be made from defaults alone"),
        (BadDefault, "cannot be made from defaults alone"),
        (Unresolved, "has a type that cannot be resolved"),
        (TakesName, "uses reserved option names: name"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_with_the_reason(config, what):
    """A component whose options could not be read is no component, and asking for it says why."""
    catalogue = load(plugin("p", lw2g_policies=[policy("bad", config=config), policy("fine")]))
    assert catalogue.names("policy") == ("fine",)
    (problem,) = catalogue.problems
    assert what in problem.what
    assert "'bad'" in problem.what
    with pytest.raises(PluginError, match="cannot be used"):
        catalogue.get("policy", "bad")


def test_a_build_that_cannot_be_called_is_refused():
    """A record must be able to build."""
    catalogue = load(plugin("p", lw2g_policies=[policy("bad", build="print")]))
    assert "a build that cannot be called" in catalogue.problems[0].what


@pytest.mark.parametrize("field", ["summary", "citation"])
def test_a_text_that_is_none_is_refused(field):
    """Listings print these: one record without them must not end every listing."""
    catalogue = load(plugin("p", lw2g_policies=[policy("bad", **{field: None}), policy("fine")]))
    assert catalogue.names("policy") == ("fine",)
    assert f"with a {field} that is no text: None" in catalogue.problems[0].what


@attrs.frozen
class RaisesOddly:
    epochs: int = attrs.field(factory=lambda: {}["epochs"])


@attrs.frozen
class EndsTheProgram:
    def __attrs_post_init__(self):
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("config", "raised"), [(RaisesOddly, "KeyError: 'epochs'"), (EndsTheProgram, "SystemExit: 3")]
)
def test_whatever_a_config_class_raises_stays_with_its_component(config, raised):
    """The code of a config class runs when its record is looked at; nothing of it ends the program."""
    catalogue = load(plugin("p", lw2g_policies=[policy("bad", config=config), policy("fine")]))
    assert catalogue.names("policy") == ("fine",)
    (problem,) = catalogue.problems
    assert problem.what == f"registers policy 'bad' whose config fails: {raised}"
    with pytest.raises(PluginError, match="cannot be used"):
        catalogue.get("policy", "bad")


def test_an_attribute_that_cannot_be_read_is_a_problem():
    """An object whose attributes raise is left out whole, its good hooks included."""

    class Plugin:
        @property
        def broken(self):
            raise RuntimeError

        @hookimpl
        def lw2g_policies(self):
            return [policy("lost")]

    catalogue = load(Plugin(), plugin("good", lw2g_policies=[policy("fine")]))
    assert catalogue.names("policy") == ("fine",)
    assert [problem.what for problem in catalogue.problems] == [
        "has an attribute that cannot be read: RuntimeError"
    ]


def test_an_import_error_is_told_with_distribution_version_and_remedy(tmp_path, monkeypatch):
    """A plugin that cannot be imported is named with all that is needed to get rid of it."""
    installed(
        tmp_path,
        monkeypatch,
        {
            ("broken-dist", "1.2"): {"broken": "import not_there_at_all"},
            ("strange-dist", "3.4"): {"strange": "class Odd(Exception): pass\nraise Odd('boo')"},
            ("good-dist", "0.1"): {"good": source(name="fine")},
        },
    )
    catalogue = load_catalogue()
    assert catalogue.names("policy") == ("fine",)
    assert catalogue.components()[0].origin.distribution == "good-dist"
    assert catalogue.components()[0].origin.version == "0.1"
    assert [str(problem) for problem in catalogue.problems] == [
        "plugin 'broken' (broken-dist 1.2) cannot be imported: ModuleNotFoundError: No module named "
        "'not_there_at_all'; fix or uninstall 'broken-dist', or set LW2G_DISABLE_PLUGINS=broken",
        "plugin 'strange' (strange-dist 3.4) cannot be imported: Odd: boo; fix or uninstall 'strange-dist', "
        "or set LW2G_DISABLE_PLUGINS=strange",
    ]


def test_an_interrupted_import_tells_whose_it_was(tmp_path, monkeypatch):
    """Ctrl-C at a stranger's import that hangs says which plugin to leave out."""
    installed(tmp_path, monkeypatch, {("slow-dist", "1.2"): {"slow": "raise KeyboardInterrupt"}})
    with pytest.raises(PluginError) as caught:
        load_catalogue()
    assert str(caught.value) == (
        "plugin 'slow' (slow-dist 1.2) was interrupted; fix or uninstall 'slow-dist', "
        "or set LW2G_DISABLE_PLUGINS=slow"
    )


def test_ctrl_c_in_code_of_lw2g_itself_stays_ctrl_c(tmp_path, monkeypatch):
    """A user who stops the program at its start is not told to uninstall it."""
    installed(tmp_path, monkeypatch, {("lw2g", "9.9"): {"growth": "raise KeyboardInterrupt"}})
    with pytest.raises(KeyboardInterrupt):
        load_catalogue()


def test_an_entry_point_that_leads_to_none_is_a_problem(tmp_path, monkeypatch):
    """It is not taken for a plugin that was blocked on purpose."""
    installed(tmp_path, monkeypatch, {("d", "1"): {"empty": "nothing = None", "good": source(name="fine")}})
    places = tmp_path / "d-1.dist-info" / "entry_points.txt"
    places.write_text(re.sub(r"(empty = \w+)", r"\1:nothing", places.read_text()))
    catalogue = load_catalogue()
    assert [(problem.plugin, problem.what) for problem in catalogue.problems] == [("empty", "is None")]
    assert catalogue.names("policy") == ("fine",)


def test_two_strangers_with_one_entry_point_name_are_both_left_out(tmp_path, monkeypatch):
    """A second entry point of the same name is not dropped in silence, and order decides nothing."""
    installed(
        tmp_path,
        monkeypatch,
        {
            ("dist-a", "1"): {"same": source(name="from-a")},
            ("dist-b", "2"): {"same": source(name="from-b"), "other": source(name="other")},
        },
    )
    catalogue = load_catalogue()
    assert catalogue.names("policy") == ("other",)
    assert [(problem.distribution, problem.what) for problem in catalogue.problems] == [
        ("dist-a", "is not loaded: its entry-point name 'same' is also used by dist-b"),
        ("dist-b", "is not loaded: its entry-point name 'same' is also used by dist-a"),
    ]


def test_lw2g_keeps_its_own_entry_point_names(tmp_path, monkeypatch):
    """A stranger who takes the name of a first-party plugin does not displace it."""
    installed(
        tmp_path,
        monkeypatch,
        {
            ("a-stranger", "1"): {"growth": source(name="strange")},
            ("lw2g", "9.9"): {"growth": source(name="ours")},
        },
    )
    catalogue = load_catalogue()
    assert catalogue.names("policy") == ("ours",)
    assert catalogue.components()[0].origin.first_party
    assert [problem.distribution for problem in catalogue.problems] == ["a-stranger"]


def test_disabled_plugins_are_not_even_imported(tmp_path, monkeypatch):
    """The environment variable blocks plugins by entry-point name and reports names that are not there."""
    installed(
        tmp_path,
        monkeypatch,
        {("d", "1"): {"broken": "raise SystemExit(3)", "good": source(name="fine")}},
    )
    monkeypatch.setenv("LW2G_DISABLE_PLUGINS", "broken, goood")
    catalogue = load_catalogue()
    assert catalogue.names("policy") == ("fine",)
    assert catalogue.disabled == ("broken", "goood")
    assert [problem.what for problem in catalogue.problems] == [
        "is named in LW2G_DISABLE_PLUGINS but not installed (did you mean 'good'?)"
    ]
    with pytest.raises(UnknownComponentError, match="leaves out: broken"):
        catalogue.get("policy", "other")
