"""TUNA: the merge, the choice by entropy, the margin, the overlap of up-projections, the alignment."""

from __future__ import annotations

import attrs
import pytest
import torch
from torch.nn import functional

from lw2g.interfaces.phase import ComputePhase
from lw2g_adapters.options import TunaConfig
from lw2g_adapters.tuna import Tuna, merge, overlap

CONFIG = TunaConfig(bottleneck=4, lr=0.5, align_epochs=2, orthogonality="none")


@pytest.fixture
def three(learn):
    """Three tasks with a set each."""
    return learn(Tuna, CONFIG)


def test_the_merge_takes_the_largest_of_the_elected_sign():
    """By hand; one set is itself, equal ones too; the order does not matter; no other value comes up."""
    assert merge(torch.tensor([[1.0, 2.0], [-3.0, -1.0], [1.0, 0.0]])).tolist() == [-3.0, 2.0]
    values = torch.randn(5, 40)
    assert torch.equal(merge(values[:1]), values[0])
    assert torch.equal(merge(values[:1].expand(3, -1)), values[0])
    found = merge(values)
    assert torch.equal(merge(values[[3, 1, 4, 0, 2]]), found)
    assert ((values == found) | (found == 0)).any(dim=0).all()
    assert (found * values.mean(dim=0) >= 0).all()


def test_the_universal_adapter_merges_all_live_sets(three):
    """Biases too; it is no parameter."""
    baseline, pool, _ = three
    for name, value in baseline.universal.named_buffers():
        assert torch.equal(value, merge(torch.stack([getattr(one, name) for one in pool.sets])))
    assert len(list(baseline.universal.named_buffers())) == 4
    assert list(baseline.universal.parameters()) == []


def probabilities(baseline, rows, seen):
    weight = functional.normalize(baseline.head.weight[:seen], dim=-1)
    return (20 * functional.normalize(rows, dim=-1) @ weight.T).softmax(dim=-1)


@pytest.mark.parametrize("second", ["universal", "newest"])
def test_the_answer_is_that_of_the_formula(learn, rows_under, second):
    """p of the set with the least entropy, plus p of the merge (or, as released, of the newest set)."""
    baseline, pool, _ = learn(Tuna, attrs.evolve(CONFIG, second=second))
    rows = rows_under(baseline, pool, 0)
    assert rows.shape[1] == (4 if second == "universal" else 3)
    found = probabilities(baseline, rows, 6)
    entropies = -(found[:, :3] * found[:, :3].log()).sum(-1)
    torch.testing.assert_close(baseline.set_scores(rows), -entropies, atol=1e-4, rtol=1e-4)
    best = entropies.argmin(dim=1)
    expected = found[torch.arange(4), best] + found[:, 3 if second == "universal" else 2]
    torch.testing.assert_close(baseline.logits(rows).exp(), expected, atol=1e-5, rtol=1e-4)
    baseline.head.weight.data *= torch.rand(6, 1) + 0.5
    assert torch.equal(baseline.set_scores(rows).argmax(dim=1), best)


def test_with_one_set_it_is_a_cosine_classifier(learn, rows_under):
    """The merge of one set is that set: the answer is that of 20 cosines."""
    baseline, pool, _ = learn(Tuna, CONFIG, sets=(None,))
    rows = rows_under(baseline, pool, 0)
    torch.testing.assert_close(rows[:, 0], rows[:, 1])
    assert torch.equal(baseline.logits(rows)[:, :2].argmax(1), baseline.cosines(rows[:, 0])[:, :2].argmax(1))
    assert baseline.logits(rows)[:, 2:].isinf().all()


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_the_margin_is_taken_off_the_true_cosine(bench, margin):
    """Cross-entropy of 20 cosines over the task's own classes, the true one's lowered by the margin."""
    baseline, pool, context = bench.begun(Tuna, attrs.evolve(CONFIG, margin=margin))
    batch = bench.batch(0)
    cosines = baseline.cosines(baseline.features(batch, pool.force(0)))[:, :2].clone()
    cosines[torch.arange(4), batch.labels] -= 20 * margin
    expected = functional.cross_entropy(cosines, batch.labels)
    torch.testing.assert_close(baseline.step(batch, context).loss, expected)


def test_overlaps_are_those_of_unit_rows():
    """As released: the product of mean rows, zero for rows that cancel; pairwise is not."""
    up, other = torch.randn(3, 10, 4), torch.randn(3, 10, 4)
    ours, theirs = (functional.normalize(one, dim=-1) for one in (up, other))
    expected = torch.stack([(a.mean(0) @ b.mean(0)).abs() for a, b in zip(ours, theirs, strict=True)]).mean()
    torch.testing.assert_close(overlap(up, other, "code"), expected)
    pairs = torch.stack([(a @ b.T).abs().mean() for a, b in zip(ours, theirs, strict=True)]).mean()
    torch.testing.assert_close(overlap(up, other, "pairwise"), pairs)
    cancelling = torch.cat([up, -up], dim=1)
    assert float(overlap(cancelling, torch.cat([other, other], dim=1), "code")) < 1e-7
    assert float(overlap(cancelling, torch.cat([other, other], dim=1), "pairwise")) > 0.1


def test_orthogonality_reaches_the_task_s_own_set_alone(bench, learn):
    """The term of task 3 is 1e-3 e^-3 times the overlaps with both other sets, which get no gradient."""
    baseline, pool, context = learn(Tuna, CONFIG)
    batch = bench.batch(2)
    for item in pool.sets:
        item.requires_grad_(True)
    torch.manual_seed(5)
    plain = baseline.step(batch, context).loss
    baseline.config = attrs.evolve(CONFIG, orthogonality="pairwise")
    torch.manual_seed(5)
    loss = baseline.step(batch, context).loss
    met = sum(overlap(pool[2].up, pool[one].up, "pairwise") for one in (0, 1))
    torch.testing.assert_close(loss - plain, 1e-3 * torch.e**-3 * met, atol=2e-6, rtol=1e-2)
    loss.backward()
    assert pool[0].up.grad is None
    assert pool[2].up.grad is not None


def test_alignment_moves_the_head_alone(bench, learn):
    """A step per seen class and epoch; adapters, merge and Gaussians stay bit for bit."""
    baseline, pool, context = learn(Tuna, attrs.evolve(CONFIG, align_epochs=0))
    last = list(baseline.phases(context))[-1]
    assert isinstance(last, ComputePhase)
    baseline.config = CONFIG
    state = {**baseline.state_dict(), **pool.state_dict()}
    before = {name: value.clone() for name, value in state.items()}
    list(baseline.phases(context))[-1].run(lambda done, total: None)
    moved = {name for name, value in state.items() if not torch.equal(value, before[name])}
    assert moved == {"head.weight"}


def test_decayed_means_are_those_of_the_task(learn):
    """The newest task's means stay as they are, older ones shrink towards 0.9; as released, the other way."""
    baseline, _, context = learn(Tuna, CONFIG)
    expected = [0.9 + 0.1 * (task + 1) / 3 for task in (0, 0, 1, 1, 2, 2)]
    assert baseline.mean_scale(context).tolist() == pytest.approx(expected)
    baseline.config = attrs.evolve(CONFIG, decay_order="released")
    # class c counts as of task c // -2
    expected = [0.9 + 0.1 * (task + 1) / 3 for task in (0, -1, -1, -2, -2, -3)]
    assert baseline.mean_scale(context).tolist() == pytest.approx(expected)
