"""MOS: the pull towards the other sets, and the set that is found by asking again."""

from __future__ import annotations

import attrs
import pytest
import torch
from torch.nn import functional

from lw2g.blocks.contrastive import self_identification_loss
from lw2g.interfaces.pool import Pool
from lw2g_adapters.mos import Mos
from lw2g_adapters.options import MosConfig

CONFIG = MosConfig(bottleneck=4, lr=0.3, align_epochs=2)


@pytest.fixture
def three(learn):
    """Three tasks with a set each."""
    return learn(Mos, CONFIG)


def test_a_step_ends_nearer_to_the_mean_of_the_others(bench):
    """theta' = 0.9 theta + 0.1 mean of the other sets, exactly, once a step; a forward changes nothing."""
    still = attrs.evolve(CONFIG, lr=1e-30, weight_decay=0.0, align_epochs=0)
    baseline, pool = Mos(still, bench.build), Pool()
    for index in range(3):
        context = bench.begin(baseline, pool, index)
        with torch.no_grad():
            for parameter in pool[index].parameters():
                parameter.normal_()
    before = {name: value.clone() for name, value in pool.state_dict().items()}
    baseline.features(bench.batch(2), pool.force(2))
    assert all(torch.equal(before[name], value) for name, value in pool.state_dict().items())
    assert baseline.phases(attrs.evolve(context, pool=pool))[0].adjust is not None
    bench.learn(baseline, context, epochs=1)
    for name, value in pool[2].state_dict().items():
        mean = (before[f"0.{name}"] + before[f"1.{name}"]) / 2
        torch.testing.assert_close(value, 0.9 * before[f"2.{name}"] + 0.1 * mean)
        assert torch.equal(pool[0].state_dict()[name], before[f"0.{name}"])


def test_a_released_step_keeps_a_quarter_of_what_it_was_away(bench):
    """Each block of a forward sees the set drawn once more; 0.9 to the number of blocks plus one is left."""
    baseline, pool = Mos(attrs.evolve(CONFIG, merging="released"), bench.build), Pool()
    for index in range(3):
        context = bench.begin(baseline, pool, index)
        with torch.no_grad():
            for parameter in pool[index].parameters():
                parameter.normal_(std=0.1)
    mean = {
        name: (one + pool[1].get_parameter(name)).detach() / 2 for name, one in pool[0].named_parameters()
    }
    own, pull = pool[2], baseline.pull(context)
    start = {name: value.detach().clone() for name, value in own.named_parameters()}
    during_forward = pull.during_forward()
    for name, value in own.named_parameters():
        for block, drawn in enumerate(during_forward[name]):
            left = 0.9 ** (block + 1)
            torch.testing.assert_close(drawn, (1 - left) * mean[name][block] + left * value[block])
    with torch.no_grad():
        own.up += 1.0  # what an optimizer does
        pull()
    for name, value in own.named_parameters():
        expected = mean[name] + 0.9**7 * (start[name] - mean[name]) + (0.9 if name == "up" else 0)
        torch.testing.assert_close(value.detach(), expected)


def test_released_class_means_of_later_tasks_are_taken_with_dropout(bench, learn, rows_under):
    """Those of the first task are not; whatever was drawn before, the draws are the same."""
    config = attrs.evolve(CONFIG, merging="released", align_epochs=0)
    baseline, pool, context = learn(Mos, config)
    for index in range(3):
        rows, labels = rows_under(baseline, pool, index)[:, 0], bench.batch(index).labels
        means = torch.stack([rows[labels == label].mean(0) for label in bench.tasks[index].classes])
        found = baseline.prototype[list(bench.tasks[index].classes)]
        assert torch.allclose(found, means, atol=1e-6) == (index == 0)
    before = baseline.prototype.clone()
    baseline.measure(context, lambda done, total: None)
    assert torch.equal(baseline.prototype, before)


def test_the_first_task_has_nobody_to_be_drawn_to(bench):
    """And nothing is aligned."""
    baseline, pool = Mos(CONFIG, bench.build), Pool()
    assert baseline.phases(bench.begin(baseline, pool, 0))[0].adjust is None


def by_hand(baseline, rows):
    """Refine image by image, with a loop that stops."""
    found = []
    for row in rows:
        cosines = functional.cosine_similarity(row[0], baseline.prototype, dim=-1)
        current = int(baseline.owner[cosines.argmax()])
        for _ in range(4):
            logits = baseline.head(row[current])
            following = int(baseline.owner[logits.argmax()])
            if following == current:
                break
            final, current = current, following
        else:
            current = final
        answer = logits.softmax(0) + (3 * cosines).softmax(0)
        found.append((current, answer.log()))
    return found


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_the_answer_is_that_of_the_formula(three, rows_under, scale):
    """The set named by the answer is asked until it names itself, four times at most."""
    baseline, pool, _ = three
    torch.manual_seed(7)
    rows = torch.cat([rows_under(baseline, pool, index) for index in range(3)])
    rows = rows + scale * torch.randn_like(rows)
    expected = by_hand(baseline, rows)
    assert len({one for one, _ in expected}) > 1
    assert baseline.set_scores(rows).argmax(1).tolist() == [one for one, _ in expected]
    torch.testing.assert_close(
        baseline.logits(rows), torch.stack([one for _, one in expected]), atol=1e-4, rtol=1e-4
    )


def test_prototypes_lie_under_the_first_set(three, bench, rows_under):
    """Of all classes, whatever set they were learned in."""
    baseline, pool, _ = three
    assert baseline.owner.tolist() == [0, 0, 1, 1, 2, 2]
    for index in range(3):
        rows, labels = rows_under(baseline, pool, index)[:, 0], bench.batch(index).labels
        for label in bench.tasks[index].classes:
            torch.testing.assert_close(baseline.prototype[label], rows[labels == label].mean(0))


def test_one_set_answers_at_once(learn, rows_under):
    """All tasks in one set: it is chosen for every image."""
    baseline, pool, _ = learn(Mos, CONFIG, sets=(None, 0, 0))
    rows = rows_under(baseline, pool, 1)
    assert rows.shape[1] == 1
    assert baseline.set_scores(rows).shape == (4, 1)
    torch.testing.assert_close(baseline.asked(rows)[1], baseline.head(rows[:, 0]))


def test_the_loss_tells_features_from_old_means(bench, learn):
    """Cross-entropy over the task's classes, and a tenth of the contrastive term with all old means."""
    baseline, _, context = learn(Mos, CONFIG)
    batch = bench.batch(2)
    torch.manual_seed(5)
    found = baseline.step(batch, context)
    means = baseline.statistics.mean[:4, 0]
    term = self_identification_loss(found.features, means, 0.8)
    expected = baseline.probe_loss(found.features, batch, context.task) + 0.1 * term
    torch.testing.assert_close(found.loss, expected)
