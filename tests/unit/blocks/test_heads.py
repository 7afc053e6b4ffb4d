"""Heads: what may predict in place of a trained linear head, and that nothing else notices."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import numpy as np
import pytest
import torch

from lw2g.blocks.carrying import CARRIES, Before
from lw2g.blocks.heads import HeadedBaseline, closed_form_head
from lw2g.blocks.options import HeadOptions
from lw2g.disk.checkpoint import CheckpointStore, part
from lw2g.errors import ConfigError
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.phase import ComputePhase, TrainingPhase
from lw2g.interfaces.pool import Pool, Routing
from lw2g.interfaces.scope import POOL
from lw2g.lifecycle.runner import start
from lw2g_testing.tiny import TinyBenchmark, tiny_backbone

HEADED = [
    "c-lora",
    "dual-prompt",
    "ewc",
    "hide-lora",
    "hide-prompt",
    "inflora",
    "joint",
    "sd-lora",
    "slca-plus-plus",
]
CASES = [(name, "lda") for name in HEADED]
CASES += [("s-prompt-plus-plus", kind) for kind in ("cosine", "ridge", "mahalanobis", "lda", "klda")]


@attrs.frozen(kw_only=True)
class LaidOut:
    """A small baseline that has learned a little of three tasks of two classes and four images."""

    bench: Any
    pool: Pool
    retrieval: Any

    def context(self, index: int) -> TaskContext:
        return self.bench.context(self.pool, index, self.retrieval)

    def lesson(self, index: int) -> Batch:
        return self.bench.batch(index)


@pytest.fixture
def laid_out(bench_of, catalogue):
    """Lay a baseline out, with parameters moved at random, so that sets differ."""

    def make(baseline: str, **options: Any) -> tuple[LaidOut, HeadedBaseline]:
        bench, pool = bench_of(tiny_backbone(spread=0.1)), Pool()
        component = catalogue.get("baseline", baseline)
        own = component.build(component.config(**options), bench.build)
        strategy = None if component.retrieval is None else catalogue.get("retrieval", component.retrieval)
        retrieval = None if strategy is None else strategy.build(strategy.config(), bench.build)
        for index in range(3):
            reuse = 0 if index and component.growth == "fixed" else None
            context = bench.begin(own, pool, index, reuse=reuse, retrieval=retrieval)
            bench.learn(own, context, epochs=1)
        with torch.no_grad():
            for parameter in (*own.parameters(), *(one for item in pool.sets for one in item.parameters())):
                parameter.requires_grad_(False).add_(0.3 * torch.randn_like(parameter))
        assert isinstance(own, HeadedBaseline)
        return LaidOut(bench=bench, pool=pool, retrieval=retrieval), own.eval()

    return make


@pytest.mark.parametrize(("baseline", "head"), CASES)
def test_a_closed_form_predicts_from_what_the_last_phase_shows_it(baseline, head, laid_out):
    """It has seen each image once; a task's phase shows it features under the task's own set."""
    bench, own = laid_out(baseline, head=head, head_features=20)
    assert own.closed_form is not None
    assert own.closed_form.count.tolist() == [2] * 6
    lesson, routing = bench.lesson(2), bench.pool.force(bench.pool.task_to_set[2])
    with torch.no_grad():
        rows = own.features(lesson, routing)
        assert torch.equal(own.logits(rows), own.closed_form.scores(rows, 6).float())
    made = [closed_form_head(HeadOptions(head=head, head_features=20), own.context) for _ in range(2)]
    own.closed_form, reference = made
    phase = own.phases(bench.context(2))[-1]
    assert isinstance(phase, ComputePhase)
    phase.run(lambda done, total: None)
    assert reference is not None
    reference.learn(rows, lesson.labels, bench.context(2).generator("head"))
    for name, value in reference.state_dict().items():
        assert torch.equal(own.closed_form.state_dict()[name], value)


def test_training_and_evidence_do_not_see_the_head(finished, quick, catalogue, tmp_path):
    """A run with another head has the same decisions and the same parameters, bit for bit."""
    directory, record = finished
    other = start(quick({"baseline.head": "lda", "growth.measures": ["energy"]}), catalogue, tmp_path / "lda")
    assert other["decisions"] == record["decisions"]
    assert other["accuracy_matrix"] != record["accuracy_matrix"]
    tensors = []
    for one in (directory, tmp_path / "lda"):
        checkpoint = CheckpointStore(one / "checkpoints").newest()[0]
        assert checkpoint is not None
        tensors.append(part(checkpoint.tensors, "baseline") | part(checkpoint.tensors, "pool"))
    assert {name for name in tensors[1] if name not in tensors[0]} == {
        f"closed_form.{name}" for name in ("count", "mean", "scatter")
    }
    assert all(torch.equal(value, tensors[1][name]) for name, value in tensors[0].items())


@pytest.mark.parametrize("baseline", ["c-lora", "hide-lora"])
def test_a_ridge_head_predicts_under_lw2g_and_stale_classes_are_told(baseline, quick, catalogue, tmp_path):
    """Every image is in the sums once; a class is stale once something that it was seen through moved."""
    config = catalogue.get("baseline", baseline).config
    short = {"replay_epochs", "clusters", "epochs"} & {field.name for field in attrs.fields(config)}
    options = {
        "baseline.head": "ridge",
        "baseline.head_features": 20,
        **{f"baseline.{one}": 1 for one in short},
    }
    retrieval = {"retrieval": "lda"} if baseline.startswith("hide") else {}  # the quickest
    # so wide a margin makes tasks share
    resolved = quick(
        {**options, "growth.draws": 2, "policy.margin": 9.0},
        baseline=baseline,
        policy="min",
        **retrieval,
    )
    record = start(resolved, catalogue, tmp_path / "run")
    owners = record["task_to_set"]
    checkpoint = CheckpointStore(tmp_path / "run" / "checkpoints").newest()[0]
    assert checkpoint is not None
    count = part(checkpoint.tensors, "baseline")["closed_form.count"]
    tasks = TinyBenchmark(resolved.config.benchmark.config).stream().tasks
    assert count.tolist() == [n for task in tasks for n in np.bincount(task.train.labels)[task.classes[0] :]]
    alone = baseline == "hide-lora"
    moved = [
        [not alone or one in owners[i + 1 : t + 1] for i, one in enumerate(owners[:t])] for t in range(3)
    ]
    told = record["stale_classes"]["by_task"]
    sizes = [len(task.classes) for task in tasks]
    assert told == pytest.approx([np.dot(sizes[:t], moved[t]) / sum(sizes[: t + 1]) for t in range(3)])
    assert record["stale_classes"]["last"] == told[-1]


def test_heads_leave_the_global_generator_alone(laid_out):
    """Whatever predicts, everything else is drawn alike; KLDA without random features is refused."""
    states = [laid_out("dual-prompt", head=kind)[1].state_dict() for kind in ("linear", "klda")]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    with pytest.raises(ConfigError, match=r"head_features: 0 leaves 'klda' nothing to work on"):
        laid_out("dual-prompt", head="klda", head_features=0)


MOVED = {
    "c-lora": {},
    "sd-lora": {"new_direction": "normalised"},
    "dual-prompt": {},
    "hide-prompt": {"replay_epochs": 1},
}


@pytest.mark.parametrize("grew", [False, True])
@pytest.mark.parametrize(
    ("baseline", "head"),
    [
        *((name, "lda") for name in MOVED),
        *(("c-lora", kind) for kind in ("cosine", "mahalanobis", "ridge", "klda")),
    ],
)
def test_sums_follow_whatever_moves_the_features_of_old_classes(baseline, head, grew, laid_out):
    """The task's set, what all share, what a new set adds to a sum: each old class moves as its set does.

    Only then new images join the sums: they have been measured where the old ones have gone.
    """
    bench, own = laid_out(baseline, head=head, head_features=20, head_carry="affine", **MOVED[baseline])
    if not grew:
        bench.pool.task_to_set[2] = 0
    context, lesson, sums = bench.context(2), bench.lesson(2), own.closed_form
    old = Routing(sets=bench.pool.sets[: 2 if grew else 3], chosen=0)
    if own.scope is POOL:
        moved = {0: ([0, 1, 2, 3], old, bench.pool.force(0))}
    else:
        concerned = [0, 1] if baseline == "dual-prompt" else [] if grew else [0]
        moved = {one: ([2 * one, 2 * one + 1], *(bench.pool.force(one),) * 2) for one in concerned}
    phases = own.phases(context)
    assert [phase.name for phase in phases].count("head-before") == bool(moved)
    assert sums is not None
    assert own.before is not None
    expected, forwards = copy.deepcopy(sums), int(own.before.forwards)
    parts = [own.shared_prompt] if baseline == "dual-prompt" else [context.parameters]
    with torch.no_grad():
        first = [own.features(lesson, before) for _, before, _ in moved.values()]
        if moved:
            assert isinstance(phases[0], ComputePhase)
            phases[0].run(lambda done, total: None)
        for parameter in (one for module in parts for one in module.parameters()):
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
        second = [own.features(lesson, after) for _, _, after in moved.values()]
        new = own.features(lesson, bench.pool.force(context.set_id))
    for (owner, (classes, *_)), before, after in zip(moved.items(), first, second, strict=True):
        assert not torch.allclose(before, after)
        expected.carry(CARRIES["affine"].fit(before, after, lesson.labels)[0], classes, owner)
    expected.learn(new, lesson.labels, context.generator("head"), own.scope.made_under(context.set_id))
    assert isinstance(phases[-1], ComputePhase)
    phases[-1].run(lambda done, total: None)
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(sums.state_dict()[name], value, rtol=1e-4, atol=1e-5)
    # before and after for every set, the task's own being looked at afterwards anyway
    passes = 2 * len(moved) - (own.scope is POOL or not grew)
    assert int(own.before.forwards) - forwards == (passes * len(lesson.labels) if moved else 0)
    assert own.findings()["carry_forwards"] == int(own.before.forwards)
    assert not own.before.rows.numel()


@pytest.mark.parametrize(
    ("baseline", "short"),
    [
        ("hide-prompt", "replay_epochs"),
        ("hide-lora", "replay_epochs"),
        ("slca-plus-plus", "align_epochs"),
        ("ssiat", "align_epochs"),
    ],
)
def test_gaussians_follow_after_training_and_before_replay_reads_them(baseline, short, laid_out):
    """Where replay trains the head that predicts, its Gaussians of old classes go where their set goes."""
    bench, own = laid_out(baseline, head_carry="affine", **{short: 1})
    bench.pool.task_to_set[2] = 0
    context, lesson, gaussians = bench.context(2), bench.lesson(2), own.statistics
    phases = own.phases(context)
    names = [phase.name for phase in phases]
    trained = [place for place, phase in enumerate(phases) if isinstance(phase, TrainingPhase)]
    following = names.index("head-carry")
    assert names[0] == "head-before"
    assert max(trained) < following < names.index("statistics")
    routing, expected = bench.pool.force(0), copy.deepcopy(gaussians)
    classes = [
        one
        for info in bench.bench.tasks[:2]
        if bench.pool.task_to_set[info.index] == 0
        for one in info.classes
    ]
    with torch.no_grad():
        before = own.features(lesson, routing)
        phases[0].run(lambda done, total: None)
        for parameter in context.parameters.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
        after = own.features(lesson, routing)
        phases[following].run(lambda done, total: None)
    expected.carry(CARRIES["affine"].fit(before, after, lesson.labels)[0], classes)
    assert classes
    assert not torch.allclose(before, after)
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(gaussians.state_dict()[name], value, rtol=1e-4, atol=1e-5)
    assert own.findings()["carry_forwards"] == int(own.before.forwards) > 0


def test_only_a_task_that_moves_old_classes_is_looked_at_twice(laid_out):
    """The first task, and one that grows, move no old class; a head without statistics is refused."""
    bench, own = laid_out("hide-prompt", head="lda", head_carry="affine")
    bench.pool.task_to_set[2] = 0
    first = [next(phase.name for phase in own.phases(bench.context(task))) for task in range(3)]
    assert [name == "head-before" for name in first] == [False, False, True]
    with pytest.raises(ConfigError, match=r"head_carry: the trained head keeps nothing"):
        laid_out("dual-prompt", head_carry="affine")


def test_features_of_before_survive_a_checkpoint_and_are_forgotten():
    """A checkpoint within a task holds as many rows as the task has images."""
    first, second = Before(3, 4), Before(3, 4)
    first.put([torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)])
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.take(), first.rows)
    assert first.rows[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert second.rows.shape == (0, 0, 3)
