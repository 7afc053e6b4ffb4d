"""Objects in place of names: components of a Python program, and what functions return."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
import torch
from PIL import Image

import lw2g
from coloured_images import QUICK, TASKS, TEST, TRAIN, as_columns, task
from lw2g.api.given_objects import Locals
from lw2g.errors import ComponentError, ConfigError, ContractError, DataError
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.component import PolicyComponent
from lw2g.interfaces.growth import Grow, Reuse
from lw2g.interfaces.options import option
from lw2g_benchmarks.given import GivenBenchmark
from lw2g_benchmarks.options import GivenConfig
from lw2g_lora.hide_lora import HideLora
from lw2g_lora.options import HideLoraConfig
from lw2g_prompts.options import SPromptPlusPlusConfig
from lw2g_prompts.s_prompt import SPromptPlusPlus
from lw2g_single_set.options import SimpleCILConfig
from lw2g_single_set.simple_cil import SimpleCIL
from runs import untimed


class EverySecond:
    """Grows at every second task."""

    measures = ()
    default_constraints = ()

    def decide(self, evidence, rng):
        return Reuse(evidence.task // 2) if evidence.task % 2 else Grow()


class Halved(SimpleCIL):
    """Simple-CIL with an option of its own."""

    growth = "fixed"

    @attrs.frozen(kw_only=True)
    class Config(SimpleCILConfig):  # noqa: D106
        factor: float = option(0.5, "what logits are multiplied by")

    def __init__(self, config, context):
        super().__init__(config, context)
        self.factor = config.factor

    def logits(self, features):
        return super().logits(features) * self.factor


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run of local images, baseline and policy, and the events of its tracker."""
    out, events = tmp_path_factory.mktemp("api") / "whole", []
    local = {"baseline": Halved, "benchmark": TASKS}
    record = lw2g.run(**{**QUICK, **local}, trackers=events.append, out=out, **{"baseline.factor": 0.25})
    return record, events, local


def test_objects_are_marked_in_the_record_and_a_run_goes_on_with_them(whole, tmp_path):
    """A stopped run asks for the objects again and then ends as if it had not stopped."""
    record, events, local = whole
    chosen = record["config"]["baseline"]
    assert (chosen["name"], chosen["factor"]) == ("local-halved", 0.25)
    assert record["config"]["benchmark"]["name"] == "given"
    assert type(events[-1]).__name__ == "RunEnded"
    out = tmp_path / "part"
    lw2g.run(**{**QUICK, **local}, tasks=1, out=out, **{"baseline.factor": 0.25})
    with pytest.raises(ConfigError, match=r"local=\{'baseline': \.\.\.\}"):
        lw2g.continue_run(out, progress=False)
    with pytest.raises(ConfigError, match=r"local=\{'benchmark': \.\.\.\}"):
        lw2g.continue_run(out, progress=False, local={"baseline": Halved})
    other = {**local, "benchmark": [task(0, 1), task(2, 4)]}
    with pytest.raises(DataError, match="benchmark"):
        lw2g.continue_run(out, progress=False, local=other)
    assert untimed(lw2g.continue_run(out, progress=False, local=local)) == untimed(record)
    assert lw2g.resume(out, progress=False, local=local).path == out


def test_a_metric_or_part_that_a_record_lacks_is_told_with_the_nearest_or_all(whole):
    """A name that is nearly one, and one that is like none."""
    record, _, _ = whole
    with pytest.raises(KeyError, match=r"has no metric 'faaa' \(did you mean 'faa'\?\)"):
        record.metrics["faaa"]
    with pytest.raises(KeyError, match=r"has no metric 'zzz'; there are .*faa"):
        record.metrics["zzz"]
    with pytest.raises(KeyError, match=r"has no 'metric' \(did you mean 'metrics'\?\)"):
        record["metric"]
    with pytest.raises(KeyError, match=r"has no 'zzz'; it has .*metrics"):
        record["zzz"]
    assert record.metrics == record["metrics"]


def test_an_option_of_a_class_without_options_says_how_it_gets_some(tmp_path):
    """The class is the author's own: there is none to choose among, and a Config to write."""

    class Bare(SimpleCIL):
        pass

    with pytest.raises(
        ConfigError, match=r"epochs: no such option of local-bare, whose class has no class Con"
    ):
        lw2g.run(baseline=Bare, benchmark="digits", out=tmp_path / "run", **{"baseline.epochs": 1})
    assert not (tmp_path / "run").exists()


def test_a_run_of_objects_is_shown_verified_and_used(whole):
    """Reports and checks need no object; a model needs its baseline, and takes arrays and folders."""
    record = whole[0]
    assert lw2g.verify(record.path)
    assert "local-halved x always" in str(lw2g.report(record.path))
    with pytest.raises(DataError, match="baseline 'local-halved' cannot be used here; give the object"):
        lw2g.load(record.path)
    model = lw2g.load(record.path, local={"baseline": Halved})
    images = TASKS[1][1][0]
    answers = model.predict(images)
    assert answers == model.predict([Image.fromarray(image) for image in images])
    assert {answer["class"] for answer in answers} <= {"0", "1", "2", "5"}


def test_a_folder_is_its_images(whole, tmp_path):
    """predict takes the image files in and below a folder, sorted, and nothing else of it."""
    record, _, _ = whole
    (tmp_path / "below").mkdir()
    (tmp_path / "notes.txt").write_text("no image")
    for name in ("b.png", "below/a.JPG", ".hidden.png"):
        Image.fromarray(TRAIN[0][0]).save(tmp_path / name)
    model = lw2g.load(record.path, local={"baseline": Halved})
    paths = [answer["path"] for answer in model.predict(tmp_path)]
    assert paths == [str(tmp_path / "b.png"), str(tmp_path / "below" / "a.JPG")]


def policy_function(evidence):
    """Grow."""
    return Grow()


RECORD = PolicyComponent(
    name="mine",
    config=attrs.make_class("NoOptions", [], frozen=True),
    summary="s",
    build=lambda config: SimpleNamespace(margin=0.0, burden=None, decide=EverySecond().decide),
    measures=(),
    default_constraints=(),
)
policy_function.measures = policy_function.default_constraints = ()


@pytest.mark.parametrize(
    ("policy", "name", "sets"),
    [
        (EverySecond, "local-every-second", [0, 0]),
        (EverySecond(), "local-every-second", [0, 0]),
        (policy_function, "local-policy-function", [0, 1]),
        (RECORD, "local-mine", [0, 0]),
    ],
    ids=["class", "object", "function", "record"],
)
def test_a_policy_is_a_class_an_object_a_function_or_a_record(tmp_path, policy, name, sets):
    """Each decides as it says; margin and burden may be left out."""
    options = {"baseline.epochs": 1, "run.device": "cpu", "benchmark.train_transform": "none"}
    record = lw2g.run(
        baseline="dual-prompt",
        benchmark=TASKS,
        policy=policy,
        out=tmp_path / "run",
        progress=False,
        **options,
    )
    assert (record["config"]["policy"]["name"], record["task_to_set"]) == (name, sets)


class Misspelt:
    """Asks the evidence for what it has not; no option of it stands in this module."""

    measures = ()
    default_constraints = ()

    def decide(self, evidence, rng):
        return evidence.nosuch


class Unbound(Misspelt):
    """The same in a method without an object."""

    @staticmethod
    def decide(evidence, rng):
        return evidence.nosuch


@pytest.mark.parametrize("policy", [Misspelt, Misspelt(), Unbound], ids=["class", "object", "static"])
def test_a_policy_that_fails_is_named_with_its_line(tmp_path, policy):
    """A class without options of its own is found by its methods, and these by their module."""
    with pytest.raises(
        ComponentError,
        match=r"^this program: policy 'local-\w+', decide: AttributeError: 'Evidence' object has no "
        r"attribute 'nosuch' \(\S*test_api_objects\.py:\d+\)$",
    ):
        lw2g.run(
            baseline="dual-prompt",
            benchmark=TASKS,
            policy=policy,
            out=tmp_path / "run",
            progress=False,
            **{"baseline.epochs": 1, "run.device": "cpu"},
        )


def test_a_benchmark_is_an_object_with_a_stream(tmp_path):
    """An object with stream and transforms is a benchmark, and not images."""
    record = lw2g.run(**QUICK, benchmark=GivenBenchmark(GivenConfig(), TASKS), out=tmp_path / "run")
    assert (record["config"]["benchmark"]["name"], record["tasks"]) == ("local-given-benchmark", 2)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"devices": 2, "benchmark": TASKS}, "objects of this program exist in one process only"),
        ({"baseline": torch.nn.Linear(1, 1)}, "'Linear' is no class of a baseline; give the class"),
        *(({"policy": one}, f"policy: '{one.__name__}' is no policy: it does not say") for one in (int, max)),
        ({"constraints": dict}, "constraint: 'dict' is no constraint: it does not say"),
        ({"policy": 3}, "policy: 3 is no name and no policy; `lw2g plugins policy` lists the names"),
        ({"baseline": torch.nn.Linear}, "baseline: 'Linear' is no subclass of lw2g.plugin.Baseline; "),
        (
            {"baseline.head": torch.nn.Linear},
            "a head of your own is a plugin: lw2g new-plugin NAME --kind head",
        ),
        ({"baseline": {"name": "simple-cil", "head": len}}, "baseline.head: no object can be a head; a head"),
        ({"head": torch.nn.Linear(1, 1)}, "head: no object can be a head; a head of your own is a plugin"),
        ({"metrics": [len]}, "a metric of your own is a plugin: lw2g new-plugin NAME --kind metric"),
        ({"seeds": [0, 1]}, "seed: a call runs one; for several "),
        ({"seed": [0, 1]}, "or lw2g.sweep with the axes ."),
        ({"trackers": 7}, "trackers: 'int' receives no events"),
        ({"constraints": "cpkk"}, "no constraint is called 'cpkk'"),
        ({"benchmark": TASKS, "benchmark.stream": "repetition"}, "cuts tasks, and the tasks are given"),
        ({"benchmark": TASKS, "benchmark.increment": 2}, "the tasks are given; leave it out"),
        ({"benchmark": TASKS, "benchmark.base": 2}, "benchmark.base: the tasks are given; leave it out"),
        ({"benchmark": TASKS[0]}, "benchmark.increment: how many classes has a task"),
    ],
)
def test_objects_that_cannot_be_used_are_told_in_a_line(tmp_path, choices, message):
    """Every mistake has its line, before anything is learned."""
    with pytest.raises(lw2g.errors.Lw2gError, match=message) as caught:
        lw2g.run(**{**QUICK, **choices}, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def with_values(base: type, **values: object) -> type:
    """Return a class of a component with further attributes."""
    return type("Mine", (base,), values)


@pytest.mark.parametrize(
    ("kind", "thing", "name", "meant"),
    [
        ("policy", with_values(EverySecond, measure=()), None, None),  # the base sets measures
        ("policy", with_values(object, measure=()), "measure", "measures"),
        ("policy", with_values(object, constraints=()), "constraints", "default_constraints"),
        ("policy", with_values(object, default_constraint=())(), "default_constraint", "default_constraints"),
        ("policy", with_values(object, margins=0.1), "margins", "margin"),
        ("baseline", with_values(SimpleCIL, trains_onc=True), "trains_onc", "trains_once"),
        ("constraints", with_values(object, needs_site=True), "needs_site", "needs_sites"),
        ("benchmark", with_values(object, famly="own", stream=None), "famly", "family"),
        ("policy", with_values(object, growth_rate=1, default=2, screen_size=3, _measure=4), None, None),
        ("policy", with_values(object, measure=lambda self: 1, margins=property(id)), None, None),
        ("policy", with_values(with_values(object, measure=()), measure=1), None, None),
    ],
)
def test_a_misspelt_field_of_a_class_is_refused(kind, thing, name, meant):
    """Else the experiment would be another; methods and names of its own stay the author's."""
    local = Locals()
    known = "constraint" if kind == "constraints" else kind
    if meant is None:
        assert local.name(known, thing) == "local-mine"
        return
    told = f"^{known} 'Mine': no field '{name}' \\(did you mean '{meant}'\\?\\); rename it; .* '_{name}'$"
    with pytest.raises(ConfigError, match=told):
        lw2g.run(**{**QUICK, kind: thing})


class TakesTooMany(EverySecond):
    """A policy that needs more than its options."""

    def __init__(self, config, further, more):
        pass


class LacksMethods(Baseline):
    """A baseline without its methods."""


class DecidesAlone(EverySecond):
    """A policy whose method takes nothing."""

    def decide(self):
        return Grow()


@pytest.mark.parametrize(
    ("choices", "lines", "told"),
    [
        ({"policy": TakesTooMany}, TakesTooMany.__init__, "build: TypeError: .* missing 2 required"),
        ({"baseline": LacksMethods}, LacksMethods, "build: TypeError: Can't instantiate abstract class"),
        ({"policy": DecidesAlone()}, DecidesAlone.decide, "decide: TypeError: .* 1 positional argument but"),
    ],
    ids=["init", "abstract", "object"],
)
def test_a_class_that_cannot_be_called_is_told_by_its_own_line(tmp_path, choices, lines, told):
    """Not by the line of lw2g that calls it."""
    place = f"{Path(__file__).name}:{inspect.getsourcelines(lines)[1]}"
    options = {"benchmark": "digits", "device": "cpu", "progress": False, "baseline": "dual-prompt"}
    with pytest.raises(ComponentError, match=rf"{told}.* \(.*{place}\)$"):
        lw2g.run(**{**options, **choices}, out=tmp_path / "run")


class LeavesTheBackbone(HideLora):
    """Declares sites in the backbone, and returns the un-prompted features."""

    Config = HideLoraConfig

    def features(self, batch, routing):
        return batch.query


def test_features_that_do_not_run_the_backbone_of_their_sites_are_told_with_their_line(tmp_path):
    """A policy that reads spaces reads them at the sites: else the error was one of lw2g's own files."""
    place = f"{Path(__file__).name}:{inspect.getsourcelines(LeavesTheBackbone.features)[1]}"
    told = (
        rf"-the-backbone', features: did not run the backbone.* \(.*{place}\); run the .* declare no sites$"
    )
    options = {"benchmark": TASKS, "policy": "min", "baseline.epochs": 1, "progress": False}
    with pytest.raises(ContractError, match=told):
        lw2g.run(**{**QUICK, **options, "baseline": LeavesTheBackbone}, out=tmp_path / "run")


class WithoutSites(SPromptPlusPlus):
    """Declares nothing to measure or to protect."""

    Config = SPromptPlusPlusConfig
    retrieval = "key-cosine"

    def sites(self, parameters):
        return []


def test_a_run_whose_baseline_declares_no_sites_says_once_that_nothing_is_measured(tmp_path, caplog):
    """Its decisions look like others, and its constraints are announced."""
    three = [task(0, 1), task(2, 3), task(4, 5)]
    options = {**QUICK, "benchmark": three, "policy": "min", "baseline.epochs": 1}
    record = lw2g.run(**{**options, "baseline": WithoutSites}, out=tmp_path / "run")
    assert [entry["decision"] for entry in record["decisions"]] == ["grow"] * 3
    told = [one.getMessage() for one in caplog.records if "sites" in one.getMessage()]
    assert told == [
        "note: local-without-sites declares no sites: nothing was measured, so `min` grows at every task, "
        "and orthogonal and cpk protect nothing"
    ]
    caplog.clear()
    lw2g.run(**{**options, "baseline": "s-prompt-plus-plus"}, tasks=2, out=tmp_path / "other")
    assert not [one for one in caplog.records if "sites" in one.getMessage()]


class TooFewColumns(SPromptPlusPlus):
    """Gives logits of one class alone."""

    Config = SPromptPlusPlusConfig
    probe_loss = Baseline.probe_loss

    def logits(self, features):
        return super().logits(features)[:, :1]


class TooFewColumnsUnmasked(TooFewColumns):
    """Computes its loss without ``mask_logits``."""

    def probe_loss(self, features, batch, task):
        return torch.nn.functional.cross_entropy(self.logits(features), batch.labels)


@pytest.mark.parametrize(
    ("baseline", "said"),
    [
        (TooFewColumns, r"no column for class \d.*; return \[B, num_classes\]: a column for each class"),
        (
            TooFewColumnsUnmasked,
            r"Target \d is out of bounds: logits have to be \[B, num_classes\], a column",
        ),
    ],
)
def test_logits_with_too_few_columns_are_told_what_they_have_to_be(tmp_path, baseline, said):
    """An index of a label says nothing of the shape that was expected."""
    options = {"benchmark": TASKS, "policy": "always", "baseline.epochs": 1, "progress": False}
    told = rf"'local-too-few-\S+', (step|probe_loss): .*{said}"
    with pytest.raises((ContractError, ComponentError), match=told):
        lw2g.run(**{**QUICK, **options, "baseline": baseline}, out=tmp_path / "run")


def test_images_must_be_pickled_where_processes_are_spawned(tmp_path, monkeypatch):
    """Workers that do not inherit the program's memory are refused in a line."""
    monkeypatch.setattr("multiprocessing.get_start_method", lambda: "spawn")
    images = [(as_columns(TRAIN), as_columns(TEST))]
    with pytest.raises(ConfigError, match=r"run\.workers: the images cannot be pickled"):
        lw2g.run(**{**QUICK, "benchmark": images, "run.workers": 1}, out=tmp_path / "run")


def test_a_failing_callback_stops_nothing(tmp_path):
    """A tracker needs no close, and its error is a warning."""
    kept = []

    class Broken:
        def on_event(self, event):
            raise ValueError("no")

    record = lw2g.run(**QUICK, benchmark=TASKS, trackers=[Broken(), kept.append], out=tmp_path / "run")
    assert len(record["accuracy_matrix"]) == 2
    assert any("tracker 'Broken'" in getattr(event, "message", "") for event in kept)


# -- results ---------------------------------------------------------------------------------------------


def test_a_name_that_is_no_attribute_of_a_record_is_told_where_it_is(whole):
    """A metric and a key of the record; what copies and stores records is not disturbed."""
    record, _, _ = whole
    for name, where in (("faa", r"it is record\.metrics\['faa'\]"), ("nope", "'nope'$")):
        with pytest.raises(AttributeError, match=where):
            getattr(record, name)
    with pytest.raises(KeyError, match=r"it is record\.metrics\['faa'\]"):
        _ = record["faa"]
    assert "faa" not in record
    assert record.get("faa") is None
    with pytest.raises(AttributeError, match=r"it is record\['accuracy_matrix'\]$"):
        _ = record.accuracy_matrix
    copied = pickle.loads(pickle.dumps(record))
    assert (copied, copied.path) == (record, record.path)


def test_results_are_tables(whole):
    """Every result shows itself in a notebook and gives its rows."""
    record, _, _ = whole
    results = [record, lw2g.verify(record.path), lw2g.runs(record.path), lw2g.report(record.path)]
    for result in results:
        assert "<table>" in result._repr_html_()
        assert list(result.rows()) != []
        assert len(repr(result)) < 300
    last = {row["task"]: row["accuracy"] for row in record.rows() if row["after_task"] == 2}
    assert sum(last.values()) / 2 == record.metrics["faa"]


def test_a_component_and_its_options_are_one_dictionary(tmp_path):
    """As people write it; a dotted option wins, and one without a name is told."""
    record = lw2g.run(
        **{**QUICK, "baseline": {"name": "simple-cil", "head": "lda"}},
        benchmark={"name": "digits", "increment": 5},
        out=tmp_path / "run",
    )
    config = record["config"]
    assert (config["baseline"]["head"], config["benchmark"]["increment"]) == ("lda", 5)
    with pytest.raises(ConfigError, match=r"benchmark: .* has no name"):
        lw2g.run(**QUICK, benchmark={"increment": 2})
    with pytest.raises(ConfigError, match=r"baseline\.heads"):
        lw2g.run(**{**QUICK, "baseline": {"name": "simple-cil", "heads": "lda"}}, benchmark="digits")
