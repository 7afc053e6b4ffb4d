"""The catalogue finds components, and one bad plugin never spoils another."""

from __future__ import annotations

import itertools
import json
import re
import sys
from importlib.metadata import entry_points
from inspect import signature
from types import ModuleType, SimpleNamespace

import attrs
import pytest

import lw2g
from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, ContractError, PluginError, UnknownComponentError
from lw2g.interfaces.component import (
    BaselineComponent,
    ConstraintComponent,
    NoOptions,
    PolicyComponent,
    RetrievalComponent,
)
from lw2g.interfaces.deviations import Deviation
from lw2g.interfaces.metric import Metric
from lw2g.interfaces.phase import TrainingPhase
from lw2g.registry.catalogue import alias_text, load_catalogue
from lw2g.registry.kinds import COMPONENTS, HOOKS
from lw2g.registry.manager import Origin
from lw2g.registry.markers import hookimpl

_numbers = itertools.count()
OF_D = {("policy", "mine"): Origin(plugin="first", distribution="d", version="1")}
"""A run that was made with one plugin."""


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


def test_unknown_name_suggests_the_nearest_or_names_broken_plugins():
    """An unknown name is answered with the command that lists all, and with the nearest one or suspects."""
    catalogue = load(plugin("good", lw2g_policies=[policy("minimum")]), plugin("broken", lw2g_policies=None))
    with pytest.raises(UnknownComponentError) as caught:
        catalogue.get("policy", "minimun")
    assert str(caught.value) == (
        "no policy is called 'minimun' (did you mean 'minimum'?); `lw2g plugins policy` lists all"
    )
    with pytest.raises(UnknownComponentError) as caught:
        catalogue.get("policy", "mine")
    assert str(caught.value) == (
        "no policy is called 'mine'; `lw2g plugins policy` lists all "
        "(plugins with problems: broken; `lw2g doctor` says which); "
        "a plugin of your own is found once it is installed: pip install -e FOLDER"
    )
    with pytest.raises(PluginError, match=r"plugin 'broken' .*; fix it"):
        catalogue.get("policy", "broken")  # the cause at once


class Odd(Exception):
    """An exception class of a plugin's own."""


def hook(action):
    """Return a module whose hook for policies is this function."""
    module = ModuleType("bad")
    module.lw2g_policies = action
    return module


def raising(error):
    """Return a module whose hook raises."""

    def lw2g_policies():
        raise error

    return hook(hookimpl(lw2g_policies))


class Unreadable:
    """A plugin with a good hook and an attribute that raises."""

    __name__ = "bad"

    @property
    def broken(self):
        raise RuntimeError

    @hookimpl
    def lw2g_policies(self):
        return [policy("lost")]


def test_a_bad_record_or_hook_leaves_the_good_ones_of_its_plugin():
    """One record of a wrong class or one misspelt hook does not take the others along."""
    catalogue = load(plugin("mixed", lw2g_policy=[policy("lost")], lw2g_policies=[policy("fine"), 3]))
    assert catalogue.names("policy") == ("fine",)
    assert len(catalogue.problems) == 2


BAD_PLUGINS = [
    (plugin("bad", lw2g_policies=None), "returns NoneType from lw2g_policies, not a list of records"),
    (plugin("bad", lw2g_policies=policy("single")), "returns PolicyComponent from lw2g_policies, not a list"),
    (
        plugin("bad", lw2g_policies=[PolicyComponent]),
        "returns PolicyComponent (a class) from lw2g_policies, which takes PolicyComponent only",
    ),
    (
        plugin(
            "bad", lw2g_policies=[ConstraintComponent(name="c", config=Options, summary="s", build=build)]
        ),
        "returns 'ConstraintComponent' from lw2g_policies, which takes PolicyComponent only",
    ),
    (raising(Odd("no luck")), "fails in lw2g_policies: Odd: no luck"),
    (raising(SystemExit("bye\nfor good")), "fails in lw2g_policies: SystemExit: bye for good"),
    (
        plugin("bad", lw2g_policy=[]),
        "has 'lw2g_policy', which is no hook (did you mean 'lw2g_policies'?); use",
    ),
    (
        hook(lambda: []),
        "has 'lw2g_policies' without the marker; decorate it with lw2g.plugin.hookimpl",
    ),
    (hook(hookimpl(lambda register: [])), "has a hook that does not fit"),
    (ModuleType("bad"), "has no hooks; define one of"),
    (Unreadable(), "has an attribute that cannot be read: RuntimeError"),
]


@pytest.mark.parametrize(("bad", "said"), BAD_PLUGINS, ids=[row[1] for row in BAD_PLUGINS])
def test_what_is_wrong_with_a_plugin_is_its_own_problem(bad, said):
    """What it offers is checked; the good plugin beside it keeps its component."""
    catalogue = load(bad, plugin("good", lw2g_policies=[policy("fine")]))
    assert catalogue.names("policy") == ("fine",)
    (problem,) = catalogue.problems
    assert str(problem).partition("plugin 'bad' ")[2].startswith(said)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (lambda: policy("one", measures="hindrance"), "policy 'one': measures is the text 'hindrance'"),
        (
            lambda: policy("one", measures=lambda config: "hindrance").reads(None),
            "policy 'one': measures is the text 'hindrance'",
        ),
        (lambda: policy("one", default_constraints="cpk"), "default_constraints is the text 'cpk'"),
        (lambda: attrs.evolve(policy("one"), aliases="other"), "aliases is the text 'other'"),
        (
            lambda: Metric(name="one", summary="s", needs="curve", compute=build),
            "metric 'one': needs is the text 'curve'",
        ),
    ],
)
def test_a_tuple_of_one_that_lacks_its_comma_is_refused(record, said):
    """It would be taken for a tuple of letters, each of which is a name that nobody has."""
    with pytest.raises(ConfigError, match=rf"{said}; write \('\w+',\)$"):
        record()


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            lambda: BaselineComponent(name="one", config=NoOptions, summary="s", build=build, growth="fixd"),
            "baseline 'one': growth is 'fixd' (did you mean 'fixed'?); use one of 'sets', 'fixed'",
        ),
        (
            lambda: BaselineComponent(name="one", config=NoOptions, summary="s", build=build, growth=3),
            "baseline 'one': growth is 3; use one of 'sets', 'fixed'",
        ),
        (
            lambda: policy("one", screen="leest"),
            "policy 'one': screen is 'leest' (did you mean 'least'?); use one of 'least', 'most', 'ends'",
        ),
        (
            lambda: Deviation(topic="t", value="v", published="p", note="n", when="reused"),
            "Deviation: when is 'reused' (did you mean 'reuse'?); use one of 'always', 'reuse', 'spaces'",
        ),
        (
            lambda: TrainingPhase(
                name="one", groups=(), step=lambda batch: None, epochs=1, batch_size=1, optimizer="sdg"
            ),
            "TrainingPhase: optimizer is 'sdg' (did you mean 'sgd'?); use one of 'adam', 'adamw', 'sgd'",
        ),
    ],
)
def test_a_field_of_a_few_words_takes_no_other(record, said):
    """A misspelt word would run as the other case, and show itself as what was asked for."""
    with pytest.raises((ConfigError, ContractError), match=f"^{re.escape(said)}$"):
        record()


def test_every_field_of_a_few_words_of_a_record_refuses_others():
    """One that is added without a validator is refused here."""
    unchecked = []
    for record in (*COMPONENTS.values(), Deviation, TrainingPhase):
        known = vars(sys.modules[record.__module__])
        for field in attrs.fields(record):
            # types that only a type checker imports are none of these
            kind = known.get(field.type, field.type)
            if str(kind).startswith(("Literal[", "typing.Literal[")) and field.validator is None:
                unchecked.append(f"{record.__name__}.{field.name}")
    assert unchecked == []


def test_an_imported_package_whose_name_begins_like_a_hook_is_no_problem():
    """Only functions count: a plugin may import packages called ``lw2g_something``."""
    good = plugin("good", lw2g_policies=[policy("fine")])
    good.lw2g_helpers = ModuleType("lw2g_helpers")
    assert load(good).problems == ()


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


def test_a_name_that_lw2g_takes_leaves_both_in_use(tmp_path, monkeypatch):
    """The name is lw2g's; the stranger's is in reach by its distribution's, and one line says so."""
    plugins = {
        ("lw2g", "9.9"): {"growth": source(name="min")},
        ("Earlier_Dist", "1.0"): {"first": source(name="min"), "second": source(name="mine")},
    }
    installed(tmp_path, monkeypatch, plugins)
    catalogue = load_catalogue()
    assert catalogue.names("policy") == ("earlier-dist:min", "min", "mine")
    assert catalogue.entries["policy", "min"].origin.first_party
    assert catalogue.entries["policy", "earlier-dist:min"].origin.distribution == "Earlier_Dist"
    assert catalogue.get("policy", "earlier-dist:min").name == "earlier-dist:min"
    (problem,) = catalogue.problems
    assert str(problem) == (
        "plugin 'first' (Earlier_Dist 1.0) registers policy 'min', which lw2g has itself; its own is called "
        "'earlier-dist:min'; rename it in 'Earlier_Dist' to have it without the prefix"
    )


def test_no_plugin_takes_anothers_prefix():
    """Only the catalogue writes a distribution before a name."""
    catalogue = load(plugin("sly", lw2g_policies=[policy("other:min")]))
    assert catalogue.names("policy") == ()
    assert "a name with a prefix that lw2g alone gives" in str(catalogue.problems[0])


def test_the_same_name_in_two_kinds_is_no_clash():
    """Names are unique within a kind only."""
    baseline = BaselineComponent(name="same", config=Options, summary="s", build=build)
    catalogue = load(plugin("p", lw2g_policies=[policy("same")], lw2g_baselines=[baseline]))
    assert catalogue.problems == ()
    assert catalogue.get("baseline", "same") is baseline


class Undecorated:
    lr: float = attrs.field(default=0.1)


@attrs.frozen
class WrongType:
    lr: float = attrs.field(default="0.1", validator=attrs.validators.gt(0))


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
class Untyped:
    epochs: int = 3
    length = attrs.field(default=4)


@attrs.frozen
class TakesName:
    name: str = "x"


@attrs.frozen
class RaisesOddly:
    epochs: int = attrs.field(factory=lambda: {}["epochs"])


@attrs.frozen
class EndsTheProgram:
    def __attrs_post_init__(self):
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"config": dict}, "with the config <class 'dict'>, which is no attrs class"),
        ({"config": Options()}, "which is no attrs class"),
        (
            {"config": Undecorated},
            "no attrs class; put `@attrs.frozen(kw_only=True)` above it (test_",
        ),
        (
            {"config": NotFrozen},
            "is not frozen; put `@attrs.frozen(kw_only=True)` above it (test_",
        ),
        ({"config": NotFrozenAndEmpty}, "is not frozen"),
        ({"config": NoDefault}, "cannot be made from defaults alone"),
        ({"config": BadDefault}, "cannot be made from defaults alone"),
        ({"config": WrongType}, "cannot be made from defaults alone, option 'lr': '>' not supported"),
        ({"config": Unresolved}, "has a type that cannot be resolved"),
        ({"config": Untyped}, "has options without a type: length (write NAME: int = option(...))"),
        ({"config": TakesName}, "uses reserved option names: name"),
        ({"config": RaisesOddly}, "whose config fails: KeyError: 'epochs'"),
        ({"config": EndsTheProgram}, "whose config fails: SystemExit: 3"),
        ({"build": "print"}, "with a build that cannot be called"),
        ({"summary": None}, "with a summary that is no text: None"),
        ({"citation": None}, "with a citation that is no text: None"),
    ],
)
def test_a_record_that_cannot_be_used_is_refused_with_the_reason(changes, said):
    """Neither it nor the code of its config class spoils anything, and asking for it says why."""
    catalogue = load(plugin("p", lw2g_policies=[policy("bad", **changes), policy("fine")]))
    assert catalogue.names("policy") == ("fine",)
    (problem,) = catalogue.problems
    assert problem.what.startswith("registers policy 'bad'")
    assert said in problem.what
    with pytest.raises(PluginError, match="cannot be used"):
        catalogue.get("policy", "bad")


def test_an_error_of_a_plugin_is_told_with_its_line_distribution_and_remedy(tmp_path, monkeypatch):
    """A plugin that raises is named with the line that does and all that is needed to get rid of it."""
    renamed = source(name="renamed").replace("return ", "return unknown or ")
    installed(
        tmp_path,
        monkeypatch,
        {
            ("broken-dist", "1.2"): {"broken": "\nimport not_there_at_all"},
            ("strange-dist", "3.4"): {"strange": "class Odd(Exception): pass\nraise Odd('boo')"},
            ("renamed-dist", "5"): {"renamed": renamed},
            ("good-dist", "0.1"): {"good": source(name="fine")},
        },
    )
    catalogue = load_catalogue()
    assert catalogue.names("policy") == ("fine",)
    assert catalogue.components()[0].origin.distribution == "good-dist"
    assert catalogue.components()[0].origin.version == "0.1"
    hook_line = 1 + renamed.splitlines().index(
        next(one for one in renamed.splitlines() if "unknown or" in one)
    )
    assert [re.sub(r"fake_plugin_\d+", "plugin", str(problem)) for problem in catalogue.problems] == [
        "plugin 'broken' (broken-dist 1.2) cannot be imported: ModuleNotFoundError: No module named "
        "'not_there_at_all' (plugin.py:2); fix or uninstall 'broken-dist', or set "
        "LW2G_DISABLE_PLUGINS=broken",
        "plugin 'strange' (strange-dist 3.4) cannot be imported: Odd: boo (plugin.py:2); fix or uninstall "
        "'strange-dist', or set LW2G_DISABLE_PLUGINS=strange",
        "plugin 'renamed' (renamed-dist 5) fails in lw2g_policies: NameError: name 'unknown' is not defined "
        f"(plugin.py:{hook_line}); fix or uninstall 'renamed-dist', or set LW2G_DISABLE_PLUGINS=renamed",
    ]
    with pytest.raises(PluginError, match="strange-dist") as told:
        catalogue.called("strange")
    assert str(told.value.__cause__) == "boo", "--traceback shows what was raised"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("BaselineComponnt", "name 'BaselineComponnt' from 'lw2g.plugin' .*id you mean 'BaselineComponent'"),
        ("PolicyComponent; PolicyComponent(sumary='x')", "argument 'sumary'.*id you mean 'summary'"),
        ("Baseline; import lw2g.plugin as p; p.hokimpl", "no attribute 'hokimpl'.*id you mean 'hookimpl'"),
        ("option; option(1, 'x', rle='batch')", "argument 'rle'.*id you mean 'role'"),
    ],
)
def test_what_a_plugin_misspells_is_told_with_the_name_that_is_meant(tmp_path, monkeypatch, code, said):
    """An import from lw2g.plugin, and a keyword of what is there, with the plugin's line."""
    broken = {"broken": f"\nfrom lw2g.plugin import {code}"}
    installed(tmp_path, monkeypatch, {("broken-dist", "1.2"): broken})
    (problem,) = load_catalogue().problems
    # newer releases of Python may ask it themselves
    assert re.search(rf"{said}\?.* \(\w+\.py:2\)$", problem.what)


def test_a_plugin_that_imports_torch_for_its_records_is_told(tmp_path, monkeypatch):
    """What lists components would wait for it; its components can be used all the same."""
    heavy = "import sys\nsys.modules['torch'] = sys\n"
    installed(tmp_path, monkeypatch, {("heavy-dist", "1"): {"heavy": heavy + source(name="fine")}})
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    catalogue = load_catalogue()
    (problem,) = catalogue.problems
    assert re.sub(r"fake_plugin_\d+", "plugin", problem.text) == (
        "plugin 'heavy' (heavy-dist 1) imports torch in 'plugin', and what lists components waits for it"
    )
    assert catalogue.names("policy") == ("fine",)


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
    with pytest.raises(UnknownComponentError, match=r"\(did you mean 'fine'\?\); .* lists all$"):
        catalogue.get("policy", "fin")


def test_the_name_of_a_kind_is_told_as_one():
    """Where a component of any kind is asked for; a plural or a misspelt one, too."""
    catalogue = load(plugin("good", lw2g_policies=[policy("minimum")]))
    for name in ("policy", "polcy", "Policy"):
        with pytest.raises(UnknownComponentError) as caught:
            catalogue.called(name)
        assert str(caught.value) == (
            f"no component is called {name!r}; 'policy' is a kind; "
            "`lw2g plugins policy` lists its components, `lw2g check --kind policy` checks them"
        )
    with pytest.raises(UnknownComponentError, match=r"\(did you mean 'minimum'\?\)"):
        catalogue.called("minimun")


@pytest.mark.parametrize("kind", sorted({record.kind for record in HOOKS.values()}))
def test_a_name_that_has_its_kind_in_it_is_told_how_it_is_found(kind):
    """Before it is installed ``my-policy`` is no misspelt kind, also where another name is near."""
    catalogue = load(plugin("good", lw2g_policies=[policy(f"by-{kind}")]))
    for name in (f"my-{kind}", f"a-rather-long-{kind}"):
        with pytest.raises(
            UnknownComponentError, match="once it is installed: pip install -e FOLDER"
        ) as caught:
            catalogue.called(name)
        assert "is a kind" not in str(caught.value)


def test_of_named_plugins_the_others_are_imported_for_a_missing_name_alone(tmp_path, monkeypatch):
    """What the named plugins lack is found among all, and a name that none has is told as ever."""
    plugins = {"first": source(name="mine"), "second": source(name="other"), "broken": "raise ValueError"}
    installed(tmp_path, monkeypatch, {("d", "1"): plugins})
    catalogue = load_catalogue(made_with=OF_D)
    assert catalogue.get("policy", "mine").name == "mine"
    assert (catalogue.names("policy"), catalogue.problems) == (("mine",), ())  # nothing else was imported
    found = catalogue.find("policy", "other")
    assert found is not None
    assert found.origin.plugin == "second"
    assert catalogue.get("policy", "other") is found.component
    assert catalogue.find("policy", "othr") is None
    for name, told in (("othr", "did you mean 'other'"), ("nobody's", "plugins with problems: broken")):
        with pytest.raises(UnknownComponentError) as caught:
            catalogue.get("policy", name)
        with pytest.raises(UnknownComponentError) as whole:
            load_catalogue().get("policy", name)
        assert str(caught.value) == str(whole.value)
        assert told in str(caught.value)


def test_a_named_plugin_that_is_disabled_stays_out(tmp_path, monkeypatch):
    """A model's plugins are no way around the environment variable."""
    installed(tmp_path, monkeypatch, {("d", "1"): {"first": source(name="mine")}})
    monkeypatch.setenv("LW2G_DISABLE_PLUGINS", "first")
    with pytest.raises(PluginError, match=r"'mine' is of plugin 'first' \(d 1\), which LW2G_DISABLE_PLUGINS"):
        load_catalogue(made_with=OF_D).get("policy", "mine")


def test_a_name_that_two_plugins_register_stays_that_of_the_run(tmp_path, monkeypatch):
    """Also where the run uses both plugins; the other's names, and its entry point, are no problem then."""
    rival = {"second": source(name="mine"), "first": source(name="else")}
    installed(tmp_path, monkeypatch, {("d", "1"): {"first": source(name="mine")}, ("e", "1"): rival})
    assert load_catalogue().registered("policy", "mine").origin.distribution == "e"
    known = {**OF_D, ("policy", "other"): Origin(plugin="second", distribution="e", version="1")}
    for made_with in (OF_D, known):
        catalogue = load_catalogue(made_with=made_with)
        assert catalogue.registered("policy", "mine").origin.distribution == "d"
        assert catalogue.problems == ()


def test_a_name_that_the_run_has_not_means_what_it_means_elsewhere(tmp_path, monkeypatch):
    """A stranger's namesake of a component of lw2g is not it, because its plugin is the run's."""
    own = {"own": source(name="min")}
    theirs = {"first": source(name="mine"), "third": source(name="min")}
    installed(tmp_path, monkeypatch, {("lw2g", "9.9"): own, ("d", "1"): theirs})
    known = {**OF_D, ("policy", "d:min"): Origin(plugin="third", distribution="d", version="1")}
    catalogue = load_catalogue(made_with=known)
    assert catalogue.registered("policy", "min").origin.distribution == "lw2g"
    assert catalogue.registered("policy", "d:min").origin.distribution == "d"


def test_a_kind_that_is_not_asked_for_comes_from_the_run_before_it_comes_from_all(tmp_path, monkeypatch):
    """A model is opened without the plugin of its run's policy, which stays the run's own."""
    installed(
        tmp_path,
        monkeypatch,
        {
            ("d", "1"): {"first": source(name="mine")},
            ("e", "1"): {"second": source(name="mine"), "broken": "raise ValueError"},
        },
    )
    catalogue = load_catalogue(made_with=OF_D, kinds=["baseline"])
    assert catalogue.entries == {}
    assert catalogue.registered("policy", "mine").origin.distribution == "d"
    assert "broken" in [problem.plugin for problem in catalogue.whole.problems]
    with pytest.raises(UnknownComponentError, match="plugins with problems: broken"):
        catalogue.get("policy", "nobody's")


def test_a_plugin_that_is_gone_is_told_with_what_to_install(tmp_path, monkeypatch):
    """In one line, also where another distribution has that name; a plugin that was renamed is found."""
    installed(tmp_path, monkeypatch, {("e", "1"): {"second": source(name="mine")}})
    gone = {("policy", "mine"): Origin(plugin="first", distribution="d", version="1.2")}
    with pytest.raises(PluginError) as caught:
        load_catalogue(made_with=gone).get("policy", "mine")
    assert str(caught.value) == "policy 'mine' of plugin 'first' (d 1.2) is not installed; install d 1.2"
    renamed = {("policy", "mine"): Origin(plugin="first", distribution="e", version="0")}
    assert load_catalogue(made_with=renamed).registered("policy", "mine").origin.plugin == "second"


def test_a_plugin_of_the_run_that_is_broken_is_told(tmp_path, monkeypatch):
    """With its error: the component is not merely unknown."""
    installed(tmp_path, monkeypatch, {("d", "1"): {"first": "raise ValueError('no')"}})
    with pytest.raises(
        PluginError, match=r"policy 'mine' cannot be used: plugin 'first' \(d 1\) cannot be imp"
    ):
        load_catalogue(made_with=OF_D).get("policy", "mine")


def test_a_name_that_users_look_for_leads_to_its_component():
    """Whatever its kind and its case: it never runs, but says what is different and what to type."""
    catalogue = load_catalogue()
    for kind, name, beside in (("head", "loranpac", ""), ("baseline", "LoRanPAC", "baseline='simple-cil', ")):
        with pytest.raises(UnknownComponentError) as told:
            catalogue.get(kind, name)
        text = str(told.value)
        assert f"no {kind} is called {name!r}; it is head 'ridge' here" in text
        assert f"; give {beside}'baseline.head': 'ridge', 'head.ridge.cut': 0.25" in text
    with pytest.raises(UnknownComponentError, match="did you mean 'fly-cl'"):
        catalogue.get("head", "fly-c")
    names = [alias.name for entry in catalogue.components() for alias in entry.component.aliases]
    assert len(names) == len(set(names))
    # an alias that is a component's own name would hide nothing, and say nothing
    assert not set(names) & {entry.component.name for entry in catalogue.components()}
    wanted = {
        "acil",
        "g-acil",
        "ds-al",
        "fecam",
        "slda",
        "ncm",
        "ranpac-phase-2",
        "tsvd",
        "loranpac",
        "fly-cl",
    }
    assert wanted <= set(names)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("slca", "(did you mean 'slca-plus-plus'?)"),  # and not slda, which is a head elsewhere
        ("SLCA++", "(did you mean 'slca-plus-plus'?)"),
        ("sprompts", "; it is baseline 's-prompt-plus-plus' here"),
        ("OVOR", "; it is baseline 'one-prompt' here"),
        ("coda", "(did you mean 'coda-prompt'?)"),
    ],
)
def test_a_baseline_is_found_by_its_name_in_papers_and_libraries(name, told):
    """Only names of baselines are suggested: another kind's name elsewhere would lead away."""
    with pytest.raises(UnknownComponentError) as error:
        load_catalogue().get("baseline", name)
    assert told in str(error.value)


@pytest.mark.parametrize("kind", ["baseline", "policy"])
def test_an_object_of_a_program_is_asked_for_again_by_the_calls_that_take_it(kind):
    """Not by `resume` alone, which goes no further than a stopped run was asked to."""
    with pytest.raises(UnknownComponentError) as told:
        load_catalogue().get(kind, "local-mine")
    calls = str(told.value).partition(f"local={{{kind!r}: ...}} to lw2g.")[2]
    for name in calls.replace(" or ", ", ").split(", "):
        assert "local" in signature(getattr(lw2g, name)).parameters
    assert "continue_run" in calls


def test_what_an_alias_says_to_type_can_be_run():
    """Its options are those of the component, with values that are accepted."""
    catalogue = load_catalogue()
    for entry in catalogue.components():
        for alias in entry.component.aliases:
            _, typed = alias_text(entry.component, alias)
            options: dict[str, object] = {"baseline.name": "simple-cil"}
            words = typed.split()
            for option, text in zip(words[::2], words[1::2], strict=True):
                setting = text if option == "--set" else f"{option.removeprefix('--')}.name={text}"
                key, _, value = setting.partition("=")
                options[key] = json.loads(value) if value[0].isdigit() else value
            resolve(catalogue, overrides=options)
