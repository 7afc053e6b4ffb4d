"""Tests of the boundary between a run and its components."""

import json
import re
import sys
from functools import partial
from multiprocessing import parent_process
from pathlib import Path

import attrs
import pytest
import torch
from click.testing import CliRunner

from lw2g.blocks.closed_form import Cosine
from lw2g.cli import execute
from lw2g.cli.main import main
from lw2g.config.resolve import resolve
from lw2g.errors import ComponentError, ConfigError, ContractError, DataError, EndedBySignal, PluginError
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.carry import Carry, Motion
from lw2g.interfaces.component import (
    BenchmarkComponent,
    CarryComponent,
    HeadComponent,
    NoOptions,
    PolicyComponent,
    RetrievalComponent,
    TrackerComponent,
)
from lw2g.interfaces.growth import CandidateEvidence, Grow, Merge, Reuse
from lw2g.interfaces.phase import ComputePhase
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.lifecycle.runner import resume, start
from lw2g.model.saved import open_model
from lw2g.registry.markers import hookimpl
from lw2g.runtime import boundary
from lw2g.runtime.boundary import guarded
from lw2g.runtime.frames import Frame
from lw2g.runtime.progress import Interrupted
from lw2g_testing.tiny import TinyBenchmark, TinyBenchmarkConfig, tiny_catalogue

QUICK = {
    "baseline.epochs": 1,
    "run.evaluation_batch": 16,
    "run.precision": "32-true",
    "benchmark.train": 4,
    "benchmark.test": 2,
}
ACTS = {}
"""What the components below do when they are called; set by each test."""


class BadPolicy:
    """A policy that does what the test says."""

    margin = 0.0
    burden = None

    def __init__(self, config):
        pass

    def decide(self, evidence, rng):
        """Decide, or not."""
        return ACTS.get("decide", Grow)()


class BadRetrieval(RetrievalStrategy):
    """A retrieval strategy that does what the test says."""

    def __init__(self, config, context):
        super().__init__(context)

    def scores(self, query, seen, task_of_class):
        """Find all tasks alike, or not."""
        return ACTS.get("scores", lambda zeros: zeros)(query.new_zeros(len(query), len(seen)))


class NoScores(RetrievalStrategy):
    """A retrieval strategy that lacks its one method."""


def make_policy(config):
    """Return the policy, whose class stands in a module beside other components."""
    return BadPolicy(config)


class BadTracker:
    """A tracker that does what the test says."""

    def __init__(self, config, directory):
        ACTS.get("build", lambda: None)()

    def on_event(self, event):
        """Take note, or not."""
        ACTS.get("on_event", lambda event: None)(event)

    def close(self):
        """Close, or not."""
        ACTS.get("close", lambda: None)()


class BadBenchmark(TinyBenchmark):
    """A benchmark whose transform does what the test says."""

    def transforms(self, image_size, mean, std):
        """Return transforms that act first."""
        pair = super().transforms(image_size, mean, std)

        def act(image):
            ACTS.get("transform", lambda image: None)(image)
            return pair.test(image)

        return attrs.evolve(pair, train=act, test=act)


class BadHead(Cosine):
    """A head that does what the test says."""

    def __init__(self, config, context):
        super().__init__(context.dim, context.num_classes)

    def solve(self, seen):
        """Solve, or not."""
        return ACTS.get("solve", lambda found: found)(super().solve(seen))

    def score(self, features, *solution):
        """Score, or not."""
        return ACTS.get("score", lambda found: found)(super().score(features, *solution))


class BadCarry(Carry):
    """A carry that does what the test says."""

    candidates = ("stay",)

    def __init__(self, config, context):
        pass

    def fit(self, before, after, labels, *, residual=False):
        """Fit, or not."""
        return ACTS["fit"]()


class BadPlugin:
    """Registers them all."""

    @hookimpl
    def lw2g_policies(self):
        """Return the policy."""
        component = PolicyComponent(
            name="bad-policy",
            config=NoOptions,
            build=BadPolicy,
            summary="",
            measures=(),
            default_constraints=(),
            adds_always=True,
        )
        return [
            component,
            attrs.evolve(component, name="made-policy", build=make_policy),
            attrs.evolve(component, name="stray-policy", build=lambda config: BadTracker(config, None)),
        ]

    @hookimpl
    def lw2g_retrievals(self):
        """Return the retrieval strategy."""
        component = RetrievalComponent(name="bad-retrieval", config=NoOptions, build=BadRetrieval, summary="")
        return [component, attrs.evolve(component, name="no-scores", build=NoScores)]

    @hookimpl
    def lw2g_benchmarks(self):
        """Return the benchmark."""
        config = TinyBenchmarkConfig
        return [
            BenchmarkComponent(
                name="bad-benchmark", family="tiny", config=config, build=BadBenchmark, summary=""
            )
        ]

    @hookimpl
    def lw2g_heads(self):
        """Return the head."""
        return [HeadComponent(name="bad-head", config=NoOptions, build=BadHead, summary="")]

    @hookimpl
    def lw2g_carries(self):
        """Return the carry."""
        return [CarryComponent(name="bad-carry", config=NoOptions, build=BadCarry, summary="")]

    @hookimpl
    def lw2g_trackers(self):
        """Return the tracker."""
        return [TrackerComponent(name="bad-tracker", config=NoOptions, build=BadTracker, summary="")]


@pytest.fixture(autouse=True)
def acts():
    """Let the components behave until a test says otherwise."""
    ACTS.clear()
    return ACTS


@pytest.fixture
def go(tmp_path):
    """Return what runs all three components on the tiny benchmark."""
    catalogue = tiny_catalogue(BadPlugin())

    def run(directory=tmp_path / "run", tasks=None, **names):
        resolved = resolve(
            catalogue,
            overrides={**QUICK, "trackers.bad-tracker": {}},
            baseline="s-prompt-plus-plus",
            **{"policy": "bad-policy", "retrieval": "bad-retrieval", **names},
            benchmark="tiny",
            backbone="tiny",
        )
        return start(resolved, catalogue, directory, tasks=tasks)

    return run


def raising(error):
    """Return a function that raises."""

    def act(*arguments):
        raise error

    return act


OF_HEAD = ("simple-cil", {"baseline.head": "bad-head"})
OF_CARRY = (
    "slca-plus-plus",
    {"baseline.head": "lda", "baseline.head_carry": "bad-carry", "baseline.epochs": 1},
)


@pytest.mark.parametrize(
    ("chosen", "method", "act", "told"),
    [
        (OF_HEAD, "solve", raising(KeyError("x")), "head 'bad-head', solve: KeyError: 'x'"),
        (OF_HEAD, "solve", lambda _: None, "head 'bad-head', .* a tuple of tensors from solve but got None"),
        (
            OF_HEAD,
            "score",
            lambda found: found[:, 1:],
            r"head 'bad-head', .*scores \[\d+, 2\] from score, .*, 1\]",
        ),
        (OF_HEAD, "score", lambda found: found * float("nan"), "head 'bad-head': logits .* not finite"),
        (OF_CARRY, "fit", raising(KeyError("x")), "carry 'bad-carry', fit: KeyError: 'x'"),
        (OF_CARRY, "fit", lambda: None, "carry 'bad-carry', fit: returned None"),
        (OF_CARRY, "fit", lambda: (Motion(rows=lambda rows: rows), "go"), r"'bad-carry', fit: .*\['stay'\]"),
        (
            OF_CARRY,
            "fit",
            lambda: (Motion(rows=lambda rows: rows[1:]), "stay"),
            r"'bad-carry', fit: the rows .* \[",
        ),
        (
            OF_CARRY,
            "fit",
            lambda: (Motion(rows=lambda rows: rows / 0), "stay"),
            "'bad-carry', fit: .* not finite",
        ),
    ],
)
def test_a_head_or_carry_is_named_and_not_the_baseline_that_calls_it(
    tmp_path, acts, chosen, method, act, told
):
    """What it raises and what it returns is told as its own, with the method that an author wrote."""
    acts[method] = act
    baseline, options = chosen
    overrides = {**QUICK, **options, "benchmark.tasks": 2}
    if chosen is OF_HEAD:
        del overrides["baseline.epochs"]
    catalogue = tiny_catalogue(BadPlugin())
    resolved = resolve(catalogue, overrides=overrides, baseline=baseline, benchmark="tiny", backbone="tiny")
    with pytest.raises((ComponentError, ContractError), match=f"^plugin 'BadPlugin': .*{told}"):
        start(resolved, catalogue, tmp_path / "run")


class Strange(BaseException):
    """No Exception, so that nothing which catches those catches it."""


class Unreadable(Exception):
    """An error that cannot be shown."""

    def __str__(self):
        raise ValueError("no")


ERRORS = [KeyError("x"), SystemExit(0), Strange("?"), Unreadable()]
METHODS = {
    "decide": "policy 'bad-policy'",
    "scores": "retrieval 'bad-retrieval'",
}


@pytest.mark.parametrize(
    ("method", "error"),
    [
        *(("decide", error) for error in (*ERRORS, OSError(2, "no file", "x"), MemoryError("all"))),
        ("scores", KeyError("x")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_error_in_a_component_names_plugin_component_and_method(go, acts, method, error):
    """Whatever is raised, the request to end the program included, is told as that component's error."""
    acts[method] = raising(error)
    who = f"plugin 'BadPlugin': {METHODS[method]}, {method}: {type(error).__name__}"
    with pytest.raises(ComponentError, match=who) as told:
        go()
    assert re.search(r" \(.*\btest_boundary\.py:\d+\)$", str(told.value))  # the innermost line of its own
    assert told.value.__cause__ is error
    assert told.value.exit_code == 1


@pytest.mark.parametrize(
    ("workers", "error", "told"),
    [
        (0, KeyError("x"), "plugin 'BadPlugin': benchmark 'bad-benchmark', act: KeyError: 'x'"),
        (1, OSError("x"), "plugin 'BadPlugin': benchmark 'bad-benchmark', act: OSError: x"),
        (1, Unreadable(), "plugin 'BadPlugin': benchmark 'bad-benchmark', act: Unreadable: .its message"),
        (1, SystemExit(0), "plugin 'BadPlugin': benchmark 'bad-benchmark', act: SystemExit: 0"),
        (1, DataError("image 'a' is no image", "replace it"), "^image 'a' is no image; replace it$"),
    ],
    ids=["bug", "system", "unreadable", "exit", "data"],
)
def test_an_error_in_a_process_that_decodes_is_told_alike(acts, tmp_path, workers, error, told):
    """Transforms and sources are named wherever they run; a mistake in the data stays one line."""
    fail = raising(error)
    acts["transform"] = lambda image: fail() if bool(parent_process()) == bool(workers) else None
    catalogue = tiny_catalogue(BadPlugin())
    options = {**QUICK, "run.workers": workers, "run.device": "cpu"}
    resolved = resolve(
        catalogue, overrides=options, baseline="no-prompt", benchmark="bad-benchmark", backbone="tiny"
    )
    with pytest.raises(ComponentError if "plugin" in told else DataError, match=told):
        start(resolved, catalogue, tmp_path / "run")


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("decide", "policy 'bad-policy', decide: TypeError: .* takes 1 positional argument but 3 were"),
        (
            "__init__",
            "policy 'bad-policy', build: TypeError: .* takes 1 positional argument but 2 were given",
        ),
        (None, "retrieval 'no-scores', build: TypeError: Can't instantiate abstract class NoScores .*scores"),
    ],
    ids=["signature", "init", "abstract"],
)
def test_what_cannot_be_called_is_told_of_the_component(go, monkeypatch, method, told):
    """Python raises in the caller then: a wrong signature or a missing method has no frame of its own."""

    def takes_no_argument(self):
        pass

    if method is not None:
        takes_no_argument.__qualname__ = f"BadPolicy.{method}"
        monkeypatch.setattr(BadPolicy, method, takes_no_argument)
    with pytest.raises(
        ComponentError, match=rf"^plugin 'BadPlugin': {told}.* \(.*\btest_boundary\.py:\d+\)$"
    ):
        go(**({"retrieval": "no-scores"} if method is None else {}))


def test_a_line_of_lw2g_is_not_taken_for_the_plugins(go, monkeypatch):
    """Where a default of lw2g fails on what a component returned, the component's last line is named."""
    from lw2g_prompts.s_prompt import SPromptPlusPlus

    monkeypatch.setattr(SPromptPlusPlus, "probe_loss", Baseline.probe_loss)
    monkeypatch.setattr(SPromptPlusPlus, "logits", lambda self, features: None)
    with pytest.raises(ComponentError, match=r", step: AttributeError: .*\(lw2g_prompts/s_prompt\.py:\d+\)$"):
        go()
    entry = tiny_catalogue(BadPlugin()).find("policy", "bad-policy")
    alone = Frame("lw2g.room.baseline", "step", frozenset({f"{__name__}.BadPolicy"}), "baseline.py:9")
    assert boundary._own_place([alone], [entry], entry) == "lw2g/room/baseline.py:9"  # no line of its own
    # a name that a subclass of torch's Module has mistyped is raised in torch, with the same ``self``
    own = attrs.evolve(alone, module=__name__, place="own.py:7")
    torchs = attrs.evolve(
        alone, module="torch.nn.modules.module", function="__getattr__", place="module.py:1"
    )
    assert boundary._own_place([own, torchs], [entry], entry).endswith("own.py:7")


def test_an_error_with_frames_of_its_own_is_told_like_any_other(go, acts):
    """What a stranger's error calls ``frames`` (pictures of a film, say) is not taken for calls."""
    error = KeyError("x")
    error.frames = (1, 2)
    acts["decide"] = raising(error)
    with pytest.raises(ComponentError, match="policy 'bad-policy', decide: KeyError: 'x'"):
        go()


def test_components_that_come_with_lw2g_are_told_alike(tmp_path, monkeypatch):
    """An error within a first-party method, called through a phase's step, names it and its release."""
    from lw2g_prompts.s_prompt import SPromptPlusPlus

    monkeypatch.setattr(SPromptPlusPlus, "features", raising(ZeroDivisionError("why")))
    who = r"\(lw2g .*\): baseline 's-prompt-plus-plus', \w+: ZeroDivisionError: why"
    catalogue = tiny_catalogue()  # no component of this module, in which the error is raised
    chosen = {"baseline": "s-prompt-plus-plus", "benchmark": "tiny", "backbone": "tiny"}
    with pytest.raises(ComponentError, match=who):
        start(resolve(catalogue, overrides=QUICK, **chosen), catalogue, tmp_path / "run")


def test_of_components_in_one_module_the_one_with_such_a_method_is_named(go, acts):
    """A policy that a function builds is told from the retrieval strategy whose class stands beside it."""
    acts["decide"] = raising(KeyError("x"))
    with pytest.raises(ComponentError, match="plugin 'BadPlugin': policy 'made-policy', decide: KeyError"):
        go(policy="made-policy")


def test_a_component_that_builds_another_kind_is_refused(go):
    """What is registered as a policy and is none names itself before anything is learned."""
    who = "plugin 'BadPlugin': policy 'stray-policy', build: 'BadTracker' has no '"
    with pytest.raises(ContractError, match=who):
        go(policy="stray-policy")


OWN = r"^plugin '[\w-]+' \(lw2g .*\): baseline 's-prompt-plus-plus', "


@pytest.mark.parametrize("found", [None, [3], 3])
def test_what_are_no_phases_is_told_with_what_to_return(go, monkeypatch, found):
    """The baseline, the method and what it returned stand in one line."""
    from lw2g_prompts.s_prompt import SPromptPlusPlus

    monkeypatch.setattr(SPromptPlusPlus, "phases", lambda *_: found)
    told = re.escape(f"phases: returned {found!r} (") + r".*:\d+\); return a list of TrainingPhase"
    with pytest.raises(ContractError, match=OWN + told):
        go()


def test_what_a_phase_refuses_is_told_of_the_plugin_with_its_line(go, acts):
    """What a plugin makes of lw2g does not know whose it is: the run does."""
    acts["decide"] = lambda: ComputePhase(name="sums", run=lambda: None)
    told = r"policy 'bad-policy', decide: run of phase 'sums' takes .* \(.*\btest_boundary\.py:\d+\); let it"
    with pytest.raises(ContractError, match=rf"^plugin 'BadPlugin': {told}"):
        go()


def test_what_is_no_set_is_told_with_what_to_return(go, monkeypatch):
    """A method that forgets to return its new set is named."""
    from lw2g_prompts.s_prompt import SPromptPlusPlus

    monkeypatch.setattr(SPromptPlusPlus, "new_set", lambda *_: None)
    with pytest.raises(
        ContractError, match=OWN + r"new_set: returned None \(.*:\d+\); return a torch Module"
    ):
        go()


def without_gradients(output):
    """Return a step's output as it is where gradients are switched off."""
    return attrs.evolve(output, loss=output.loss.detach())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without_gradients, r"step: the loss of phase '.*' has no gradient"),
        (lambda _: None, r"step: returned None.*; return a StepOutput"),
        (
            lambda output: attrs.evolve(output, loss=1.0),
            r"step: returned the loss 1\.0.*; return a StepOutput",
        ),
        (
            lambda output: attrs.evolve(output, loss=output.loss.expand(2)),
            r"step: returned a loss of shape \[2\].*; return",
        ),
        (
            lambda output: attrs.evolve(output, loss=output.loss[None]),
            r"step: returned a loss of shape \[1\].*; return",
        ),
    ],
    ids=["detached", "none", "number", "vector", "vector of one"],
)
def test_a_step_without_a_loss_to_go_down_is_told(go, monkeypatch, change, told):
    """What a phase's step returns is looked at before the backward pass."""
    from lw2g_prompts.s_prompt import SPromptPlusPlus

    phases = SPromptPlusPlus.phases

    def changed(baseline, context):
        return [
            attrs.evolve(phase, step=lambda batch, phase=phase: change(phase.step(batch)))
            for phase in phases(baseline, context)
        ]

    monkeypatch.setattr(SPromptPlusPlus, "phases", changed)
    with pytest.raises(ContractError, match=OWN + told):
        go()


def test_gradients_that_a_component_leaves_switched_off_change_nothing(go, acts, tmp_path):
    """A policy that forgets to switch them on again does not keep the next phase from learning."""
    whole = go(tmp_path / "whole")
    acts["decide"] = lambda: (torch.set_grad_enabled(False), Grow())[1]
    try:
        assert go()["files"] == whole["files"]
    finally:
        torch.set_grad_enabled(True)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_scores_that_are_no_numbers_are_told(go, acts, tmp_path, value):
    """They end the run in place of other metrics; one task may be out of the question, not all."""
    acts["scores"] = lambda zeros: zeros + value
    with pytest.raises(
        ContractError, match=r"^plugin 'BadPlugin': retrieval 'bad-retrieval': scores of sample 'test/0' are"
    ):
        go()
    acts["scores"] = lambda zeros: torch.where(torch.arange(zeros.shape[1]) > 0, float("-inf"), zeros)
    go(tmp_path / "other")


def test_an_opened_model_names_the_component_too(go, acts, tmp_path):
    """What fails while a saved run is used is told as while it is trained."""
    go()
    model = open_model(tmp_path / "run", tiny_catalogue(BadPlugin()))
    acts["scores"] = raising(KeyError("x"))
    with pytest.raises(
        ComponentError, match="plugin 'BadPlugin': retrieval 'bad-retrieval', scores: KeyError"
    ):
        model.predict(torch.zeros(3, 16, 16, dtype=torch.uint8))


@pytest.mark.parametrize("result", [None, Reuse(7), Reuse(-1), Grow])
def test_a_policy_that_returns_no_decision_is_told_what_to_return(go, acts, result):
    """None, a set that does not live or a class are contract errors with the line and the remedy."""
    acts["decide"] = lambda: result
    place = rf"\(.*{Path(__file__).name}:\d+\)"
    told = rf"policy 'bad-policy', decide: .* {place}; there is no set to reuse yet: return Grow\(\)"
    with pytest.raises(ContractError, match=told):
        go()


@pytest.mark.parametrize(
    ("given", "told"), [(CandidateEvidence(set=0), "the candidate itself"), ("0", "'0'"), (True, "True")]
)
@pytest.mark.parametrize("made", [Reuse, partial(Merge, weight=0.5)], ids=["Reuse", "Merge"])
def test_a_decision_for_what_is_no_set_is_told_where_it_is_made(go, acts, made, given, told):
    """The line is the policy's own: the decision made there would fail later, in a comparison."""
    acts["decide"] = lambda: made(given)
    place = rf"\(.*{Path(__file__).name}:\d+\)"
    expected = rf"decide: .* an int, but got {told} {place}; give the attribute set of a candidate"
    with pytest.raises(ContractError, match=expected):
        go()


WARNED = r"plugin 'BadPlugin': tracker 'bad-tracker'"


def warnings_of(directory):
    """Return what a run's log warns of."""
    events = map(json.loads, (directory / "events.jsonl").read_text().splitlines())
    return [event["message"] for event in events if event["event"] == "Warned"]


@pytest.mark.parametrize("error", ERRORS[1:], ids=lambda error: type(error).__name__)
def test_a_tracker_that_raises_at_each_event_stops_nothing(go, acts, tmp_path, error):
    """The run ends as without it, the first failure is told and the third in a row is the last one."""
    whole = go(tmp_path / "whole")
    seen = []
    acts["on_event"] = lambda event: (seen.append(event), raising(error)())
    acts["close"] = raising(error)
    record = go()
    assert record["metrics"] == whole["metrics"]
    assert record["files"] == whole["files"]
    assert len(seen) == 3
    first, given_up, last = warnings_of(tmp_path / "run")
    assert re.fullmatch(
        rf"{WARNED}, on_event \(RunStarted\): {type(error).__name__}: .*; the run goes on without", first
    )
    assert (
        given_up
        == "plugin 'BadPlugin': tracker 'bad-tracker' failed 3 times in a row and gets no more events"
    )
    assert re.match(rf"{WARNED}, close: {type(error).__name__}", last)


@pytest.mark.parametrize("kind", ["EpochEnded", "RunEnded"])
def test_a_tracker_that_fails_now_and_then_gets_all_other_events(go, acts, tmp_path, kind):
    """One kind of event that it cannot take is told once, and costs it no other."""
    seen = []

    def act(event):
        if type(event).__name__ == kind:
            raise KeyError(kind)
        seen.append(type(event).__name__)

    acts["on_event"] = act
    go()
    events = [
        json.loads(line)["event"] for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    ]
    assert kind not in seen
    assert {name for name in events if name != kind} <= set(seen)
    (line,) = warnings_of(tmp_path / "run")
    assert f"on_event ({kind}): KeyError" in line


def test_a_tracker_that_cannot_start_ends_a_run_before_training_and_no_resumed_one(go, acts, tmp_path):
    """A new run ends in one line and leaves nothing; one that goes on does without it, and says so."""
    acts["build"] = raising(OSError("no\nserver"))
    line = f"{WARNED} cannot start: OSError: no server; mend it, or leave it out"
    with pytest.raises(PluginError, match=f"^{line}$"):
        go()
    assert not (tmp_path / "run").exists()
    acts["build"] = raising(ConfigError("no package", "pip install it"))
    with pytest.raises(ConfigError, match=r"^no package; pip install it$"):
        go()
    acts.clear()
    go(tasks=1)
    acts["build"] = raising(OSError("no server"))
    resume(tmp_path / "run", tiny_catalogue(BadPlugin()))
    (line,) = set(warnings_of(tmp_path / "run"))
    assert re.fullmatch(f"{WARNED}, build: OSError: no server; the run goes on without", line)


def test_ctrl_c_within_a_tracker_stops_the_run(go, acts):
    """A request to stop is none of a tracker's failures."""
    acts["on_event"] = raising(KeyboardInterrupt())
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        go()


def test_a_signal_that_ends_the_process_is_no_error_of_a_component(go, acts):
    """It passes, so that the process ends by it."""
    acts["decide"] = raising(EndedBySignal(15))
    with pytest.raises(EndedBySignal):
        go()


def test_trackers_get_copies(go, acts, tmp_path):
    """What a tracker does to an event changes neither the record nor what the next listener sees."""

    def spoil(event):
        for value in (getattr(event, field.name) for field in attrs.fields(type(event))):
            if isinstance(value, dict):
                value.clear()

    acts["on_event"] = spoil
    record = go()
    assert [entry["decision"] for entry in record["decisions"]] == ["grow"] * 3
    assert json.loads((tmp_path / "run" / "record.json").read_text())["decisions"] == record["decisions"]


def test_a_changed_backbone_ends_the_run_at_the_end_of_the_task(go, acts):
    """One weight that moves by the least bit, past autograd and version counters, is fatal."""

    def write():
        backbone = sys._getframe(2).f_locals["parts"].backbone
        backbone.model.blocks[0].attn.qkv.weight.data.view(-1).view(torch.int32)[0] += 1
        return Grow()

    acts["decide"] = write
    with pytest.raises(ContractError, match=r"the frozen backbone's .* has changed during task 1"):
        go()


def test_a_policy_without_a_declared_value_is_told_before_it_decides(go, monkeypatch):
    """The margin has no default: a run would end at its first decision, after evidence was collected."""
    monkeypatch.delattr(BadPolicy, "margin")
    with pytest.raises(ContractError, match=r"policy 'bad-policy', build: 'BadPolicy' has no 'margin'"):
        go()


def test_a_policy_with_a_misspelt_method_is_told_with_its_line(go, monkeypatch):
    """It has no base class of lw2g's that would say so."""
    monkeypatch.setattr(BadPolicy, "decides", BadPolicy.decide, raising=False)
    monkeypatch.delattr(BadPolicy, "decide")
    told = r"'BadPolicy' has no 'decide', so it is no policy; it has 'decides' \(.*boundary\.py:\d+\); give"
    with pytest.raises(ContractError, match=told):
        go()


def test_what_components_print_goes_to_stderr(go, acts, capsys):
    """A command's output is what lw2g prints, whatever plugins say."""
    acts["decide"] = lambda: print("hello") or Grow()
    go()
    printed = capsys.readouterr()
    assert "hello" not in printed.out
    assert printed.err.count("hello") == 3


@pytest.mark.parametrize("place", [["--traceback", "run"], ["run", "--traceback"], ["run"]])
def test_commands_end_with_one_and_show_the_traceback_where_asked(monkeypatch, tmp_path, place):
    """The error is one line; --traceback, before or after the command, shows where it arose."""

    def fail(*arguments):
        error = ComponentError("plugin 'p' (d 1): policy 'x', decide: KeyError: 'y'")
        raise error from KeyError("y")

    monkeypatch.setattr(execute, "run_one", fail)
    done = CliRunner().invoke(main, [*place, "--out", str(tmp_path / "run")])
    assert done.exit_code == 1
    assert "policy 'x', decide: KeyError: 'y'" in done.stderr
    assert ("--traceback shows how (`lw2g resume` continues a run" in done.stderr) is (place == ["run"])
    assert done.stderr.count("error: ") == 1


@pytest.mark.parametrize("begun", [True, False])
def test_an_error_names_the_run_that_can_go_on(monkeypatch, tmp_path, begun):
    """With the command, where something of it was written; before that there is nothing to go on with."""
    run = tmp_path / "run"

    def fail(experiment, directory, *arguments):
        if begun:
            directory.mkdir(exist_ok=True)
            (directory / "config.toml").touch()
        execute.run_to_end(directory, None, raising(ComponentError("policy 'x', decide: KeyError: 'y'")))

    monkeypatch.setattr(execute, "run_one", fail)
    done = CliRunner().invoke(main, ["run", "--out", str(run)])
    assert done.exit_code == 1
    assert done.stderr.endswith(f"shows how (go on with: lw2g resume {run})\n" if begun else "shows how\n")


def test_calls_of_two_threads_give_prints_back(catalogue, quick, capsys):
    """Whichever ends last: what components print goes to stderr until then, and to stdout afterwards."""
    config = quick().config
    before = sys.stdout
    first, second = guarded(catalogue, config), guarded(catalogue, config)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    print("from a component")
    second.__exit__(None, None, None)
    assert sys.stdout is before
    print("from a program")
    assert capsys.readouterr() == ("from a program\n", "from a component\n")
