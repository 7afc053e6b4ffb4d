"""Soft routing: which sets answer, how their answers become one, and every promise of hard routing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
import torch

from listening import At, power_cut
from lw2g.config.resolve import Resolved
from lw2g.config.settings import RoutingConfig
from lw2g.disk.record import RunDirectory
from lw2g.errors import ConfigError
from lw2g.interfaces.tracker import TaskDecided
from lw2g.learning.flops import count_flops
from lw2g.learning.session import Session
from lw2g.lifecycle.run_opening import reopen
from lw2g.lifecycle.runner import resume, start
from lw2g.model.mixing import Mixer, log_prior, owned_classes
from lw2g.model.predictor import Predictor
from lw2g.model.saved import open_model
from lw2g.pixels.feature_rows import VersionedRows
from lw2g.pixels.streams import hold_back
from lw2g.registry.catalogue import Catalogue
from lw2g.results.verification import verify
from lw2g.runtime.progress import Reporter

OWNER = torch.tensor([0, 1, 0, 2])  # tasks 0 and 2 share a set
OF_CLASS = torch.tensor([0, 0, 0, 1, 2, 2, 3, 3])
NEAREST_MEAN = {"retrieval.name": "lda", "run.evaluation_batch": 12, "baseline.epochs": 1}


def answers(images: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits ``[n, 3, 8]`` of all sets, log probabilities ``[n, 4]`` of tasks and ``[n, 8]`` of classes."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(images, 3, 8, generator=generator, dtype=torch.float64)
    classes = (2 * torch.randn(images, 8, generator=generator, dtype=torch.float64)).log_softmax(1)
    tasks = torch.stack([classes[:, task == OF_CLASS].logsumexp(1) for task in range(4)], 1)
    return logits, tasks, classes


# -- which sets answer ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mix", "passes"), [(1, 1), (2, 2), (5, 3), ("all", 3)])
def test_the_most_probable_sets_answer(mix: int | str, passes: int) -> None:
    """As many different sets as asked for, hard routing's among them, each with the mass of its tasks."""
    _, tasks, _ = answers()
    sets, log_sets = Mixer(RoutingConfig(mix=mix)).choose(tasks, OWNER, 3)
    assert sets.shape == (6, passes)
    for row, chosen, masses in zip(tasks, sets.tolist(), log_sets, strict=True):
        assert chosen == sorted(set(chosen))
        assert int(OWNER[row.argmax()]) in chosen
        best = [max(row[one == OWNER].tolist()) for one in range(3)]
        assert min(best[one] for one in chosen) >= max([-99, *(best[i] for i in range(3) if i not in chosen)])
        expected = [row[one == OWNER].exp().sum().log() for one in chosen]
        assert torch.allclose(masses, torch.stack(expected))


# -- one answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("combine", ["mixture", "hierarchical"])
def test_one_answer_by_hand(combine: str) -> None:
    """The answer is the formula of the module, written out in numpy, for constants that are not special."""
    logits, tasks, classes = answers(4)
    mixer = Mixer(RoutingConfig(mix=2, combine=combine, evidence=("entropy", "mass", "logsumexp")))
    constants = np.array([0.7, np.log(2.5), 0.4, 0.3, -0.6, 0.2])
    mixer.constants.copy_(torch.from_numpy(constants))
    sets, log_sets = mixer.choose(tasks, OWNER, 3)
    rows = torch.arange(4)[:, None]
    owned = owned_classes(sets, OWNER, OF_CLASS)
    found = mixer.combine(logits[rows, sets], log_sets, owned, classes).exp()
    for image in range(4):
        opinions, trust = [], []
        for place, one in enumerate(sets[image].tolist()):
            z = logits[image, one].numpy()
            p = np.exp(z) / np.exp(z).sum()
            own = np.array([int(OWNER[task]) == one for task in OF_CLASS.tolist()])
            assert owned[image, place].tolist() == own.tolist()
            heat = np.exp(z / 2.5) * (own if combine == "hierarchical" else 1)
            opinions.append(heat / heat.sum())
            measures = [-(p * np.log(p)).sum(), np.log(p[own].sum()), np.log(np.exp(z).sum())]
            trust.append(np.exp(0.7 * float(log_sets[image, place]) + constants[3:] @ measures))
        mixed = np.array(trust) @ np.array(opinions) / np.sum(trust)
        expected = mixed * classes[image].exp().numpy() ** 0.4
        np.testing.assert_allclose(found[image].numpy(), expected / expected.sum(), atol=1e-9)


@pytest.mark.parametrize("knows_classes", [True, False])
def test_what_retrieval_says_of_a_class_by_hand(knows_classes: bool) -> None:
    """Its scores at its temperature; of a strategy that knows tasks alone an even share of each task."""
    _, tasks, classes = answers()
    scores = classes.float() if knows_classes else None
    retrieval = SimpleNamespace(
        temperature=SimpleNamespace(value=0.3),
        class_scores=lambda query, count: scores[:, :count] if knows_classes else None,
    )
    found = log_prior(retrieval, torch.zeros(6, 1), OF_CLASS, tasks.float())
    heat = np.exp(classes.float().double().numpy() / 0.3)
    spread = tasks.float().double().exp().numpy()[:, [0, 0, 0, 1, 2, 2, 3, 3]] / [3, 3, 3, 1, 2, 2, 2, 2]
    expected = heat / heat.sum(1, keepdims=True) if knows_classes else spread
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.exp().numpy(), expected, rtol=1e-12)


def test_fitting_finds_what_the_answers_are_worth() -> None:
    """Overconfident sets are tempered, a good prior is heard, and the loss on new images falls."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(8, (400,), generator=generator)
    signal = torch.nn.functional.one_hot(labels, 8).double()
    logits = 10 * (signal[:, None] + 0.8 * torch.randn(400, 3, 8, generator=generator, dtype=torch.float64))
    prior = (2 * signal + torch.randn(400, 8, generator=generator, dtype=torch.float64)).log_softmax(1)
    log_sets = torch.full((400, 3), -np.log(3), dtype=torch.float64)
    owned = torch.ones(400, 3, 8, dtype=torch.bool)

    def loss(mixer: Mixer) -> float:
        found = mixer.combine(logits[200:], log_sets[200:], owned[200:], prior[200:])
        return float(torch.nn.functional.nll_loss(found, labels[200:]))

    fitted, again, plain = (Mixer(RoutingConfig(mix="all")) for _ in range(3))
    for mixer in (fitted, again):
        mixer.fit(logits[:200], log_sets[:200], owned[:200], prior[:200], labels[:200])
    assert loss(fitted) < 0.5 * loss(plain)
    assert fitted.named_constants()["temperature"] > 2
    assert fitted.named_constants()["prior"] > 0.2
    assert torch.equal(fitted.constants, again.constants)


def test_images_are_held_back_evenly_and_at_most_a_fifth(session_of: Callable[..., Session]) -> None:
    """Each class gives as many, never over a fifth; they leave the stream and depend on the seed alone."""
    stream = session_of({"benchmark.train": 20}).data.stream
    rest, held = hold_back(stream, 6, seed=1)
    for task, left, part in zip(stream.tasks, rest.tasks, held, strict=True):
        assert part is not None
        assert np.bincount(part.labels)[list(task.classes)].tolist() == [6 // len(task.classes)] * len(
            task.classes
        )
        assert not set(part.ids) & set(left.train.ids)
        assert set(part.ids) | set(left.train.ids) == set(task.train.ids)
    assert [part.ids for part in hold_back(stream, 6, 1)[1]] == [part.ids for part in held]
    assert [part.ids for part in hold_back(stream, 6, 2)[1]] != [part.ids for part in held]
    assert all(np.bincount(part.labels).max() == 4 for part in hold_back(stream, 99, 1)[1])
    assert hold_back(stream, 0, 1)[1] == (None, None, None)


# -- promises ------------------------------------------------------------------------------------------------


def test_what_answered_before_keeps_its_slot() -> None:
    """Rows of sets that still answer stay where they are, new ones take the slots that became free."""
    rows = VersionedRows(2)
    first = rows.place(np.array([[0, 1], [1, 2]]), all_of_them=False)
    rows.note(first, np.zeros_like(first))
    second = rows.place(np.array([[1, 3], [1, 2]]), all_of_them=False)
    assert second.tolist() == [[3, 1], [1, 2]]
    assert rows.compare(second, np.zeros_like(second))[0].tolist() == [[False, True], [True, True]]
    wider = rows.place(np.array([[0, 1, 3], [1, 2, 3]]), all_of_them=False)
    assert [sorted(row) for row in wider.tolist()] == [[0, 1, 3], [1, 2, 3]]


@pytest.mark.parametrize("mix", [2, "all"])
@pytest.mark.parametrize("baseline", ["hide-prompt", "dual-prompt"])
def test_incremental_equals_full_and_computes_less(
    baseline: str, mix: int | str, session_of: Callable[..., Session]
) -> None:
    """As sets come, change and are shared, predictions are those of an evaluation that computes all anew."""
    session = session_of(
        {**NEAREST_MEAN, "routing.mix": mix, "benchmark.tasks": 4}, baseline=baseline, policy="always"
    )
    made, original = [], session.parts.baseline.features
    session.parts.baseline.features = lambda batch, routing: made.append(1) or original(batch, routing)  # type: ignore
    for index, owner in enumerate((None, None, 0, None)):
        session.parts.begin_task(index)
        torch.manual_seed(index)
        session.parts.pool.grow(session.parts.new_set(None)) if owner is None else session.parts.pool.reuse(
            owner
        )
        if owner is not None:
            with torch.no_grad():
                next(session.parts.pool[owner].parameters()).mul_(1.5)
            session.parts.pool.touch(owner)
        images = session.data.image_set([session.data.stream.tasks[index].train], train=False)
        context = session.task_context(index, images)
        for phase in session.parts.retrieval.phases(context):
            phase.run(lambda done, total: None)
        quiet = Reporter([], [1] * 4)
        made.clear()
        found, _ = session.evaluate(index, quiet)
        forwards = len(made)
        session.data.evaluator.forget()
        made.clear()
        again, _ = session.evaluate(index, quiet)
        for name in ("predicted", "retrieved", "set", "rank", "hard"):
            assert np.array_equal(getattr(found, name), getattr(again, name))
        if baseline == "hide-prompt" and index == 3:
            assert forwards < len(made)
        right = found.set == np.array(session.parts.pool.task_to_set)[found.task]
        assert np.array_equal(found.rank == 0, right)
    # what one set alone would have said, of the same model
    alone = attrs.evolve(Predictor.of(session.parts, 3), mixer=None)
    session.data.evaluator._features = VersionedRows(len(session.data.evaluator.images))
    hard, _ = session.data.evaluator.evaluate(alone, quiet)
    assert np.array_equal(found.hard, hard.predicted)
    assert hard.hard is None
    oracle: Any = SimpleNamespace(control=True)
    told, _ = session.data.evaluator.evaluate(attrs.evolve(alone, retrieval=oracle), quiet)
    if mix == "all":
        assert np.array_equal(found.told, told.predicted)
        within = attrs.evolve(found, predicted=found.within).accuracies()
        assert all(own >= other for own, other in zip(within, told.accuracies(), strict=True))
        first = np.array([info.classes[0] for info in context.history])
        assert np.array_equal(np.searchsorted(first, found.within, side="right") - 1, found.task)
    else:
        assert found.told is found.within is None


@pytest.mark.parametrize("baseline", ["hide-prompt", "hide-lora"])
def test_a_stopped_run_ends_as_a_whole_one_and_a_model_repeats_it(
    baseline: str, catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path
) -> None:
    """Resumed in the middle, record and predictions are equal; verified; the loaded model says the same."""
    resolved = quick(
        {"routing.mix": 2, "routing.evidence": ["mass"], "benchmark.train": 10, **NEAREST_MEAN},
        baseline=baseline,
        policy="always",
    )
    whole = start(resolved, catalogue, tmp_path / "whole")
    cut = At(lambda event: isinstance(event, TaskDecided) and event.task == 2, power_cut)
    with pytest.raises(RuntimeError, match="power cut"):
        start(resolved, catalogue, tmp_path / "cut", [cut])
    record = resume(tmp_path / "cut", catalogue)
    times = ("seconds", "images_per_second", "sha256")
    assert {k: v for k, v in record.items() if k not in times} == {
        k: v for k, v in whole.items() if k not in times
    }
    assert record["routing"]["passes_per_image"] == 2
    assert {"option": "routing.mix", "value": 2, "published": 1}.items() <= next(
        entry for entry in record["deviations"] if entry["option"] == "routing.mix"
    ).items()
    assert record["routing"]["coverage"][0] == pytest.approx(record["metrics"]["pra"])
    assert record["routing"]["coverage"] == sorted(record["routing"]["coverage"])
    assert record["routing"]["constants"]["temperature"] != 1
    assert all(finding.holds is not False for finding in verify(tmp_path / "whole"))
    model = open_model(tmp_path / "whole", catalogue, batch_size=16)
    stored = RunDirectory(tmp_path / "whole").read_predictions(2)
    tests = [task.test for task in reopen(tmp_path / "whole", catalogue).data.stream.tasks]
    images = [part.source.image(index) for part in tests for index in part.indices]
    found = model.answer(images)
    assert found.classes.tolist() == stored.predicted.tolist()
    assert found.sets.tolist() == stored.set.tolist()
    assert torch.allclose(found.logits.exp().sum(1), torch.ones(len(images)))
    alone = model.answer(images[5])
    assert torch.equal(alone.logits[0], found.logits[5])


def test_every_pass_costs(session_of: Callable[..., Session]) -> None:
    """A prediction's operations are those of the query and of as many forwards as sets answer."""
    found = []
    for mix in (1, 2, "all"):
        session = session_of({"routing.mix": mix}, baseline="hide-prompt")
        session.parts.begin_task(0)
        session.parts.pool.grow(session.parts.new_set(None))
        images = session.data.image_set([session.data.stream.tasks[0].train], train=False)
        context = session.task_context(0, images)
        (host,) = (phase for phase in session.parts.baseline.phases(context) if getattr(phase, "host", False))
        found.append(count_flops(session.parts, context, host, images)["inference_per_image"])
    one = found[1] - found[0]
    assert 0 < one < found[0]
    assert found[2] - found[1] == pytest.approx(one)  # three tasks, so three sets at most


@pytest.mark.parametrize("baseline", ["coda-prompt", "hide-prompt"])
def test_counting_operations_leaves_no_query_behind(
    session_of: Callable[..., Session], baseline: str
) -> None:
    """The counter runs another attention than the run: a query that it left would have other last bits."""
    session = session_of(baseline=baseline)
    session.parts.begin_task(0)
    session.parts.pool.grow(session.parts.new_set(None))
    images = session.data.image_set([session.data.stream.tasks[0].train], train=False)
    context = session.task_context(0, images)
    hosts = [phase for phase in session.parts.baseline.phases(context) if getattr(phase, "host", False)]
    count_flops(session.parts, context, hosts[0], images)
    assert images._queries.missing([0, 1]) == [0, 1]


@pytest.mark.parametrize("baseline", ["cprompt", "hide-prompt"])
def test_every_kind_of_retrieval_mixes_sets(
    baseline: str, catalogue: Catalogue, quick: Callable[..., Resolved], tmp_path: Path
) -> None:
    """With its own retrieval, calibrated, and two of three sets per image, a run of any of them holds."""
    options = {"routing.mix": 2, "benchmark.train": 10, "run.evaluation_batch": 12, "baseline.epochs": 1}
    start(quick(options, baseline=baseline, policy="always"), catalogue, tmp_path / "run")
    assert [finding.what for finding in verify(tmp_path / "run") if finding.holds is False] == []
    session = reopen(tmp_path / "run", catalogue)
    assert session.parts.retrieval.temperature.value != 1
    assert session.parts.mixer.named_constants()["temperature"] != 1


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"retrieval": "oracle"}, r"routing\.mix: expected 1 but got 3; retrieval is told the task"),
        ({"baseline": "coda-prompt"}, r"routing\.mix: expected 1 but got 3; retrieval is not asked"),
    ],
)
def test_a_mix_needs_a_posterior(names: dict[str, str], words: str, quick: Callable[..., Resolved]) -> None:
    """Where no posterior is to be had, a mix is refused in one line; none of 0 sets, either."""
    with pytest.raises(ConfigError, match=words):
        quick({"routing.mix": 3}, **names)
    with pytest.raises(ConfigError, match=r"routing\.mix: must be at least 1, or 'all': 0"):
        quick({"routing.mix": 0})
