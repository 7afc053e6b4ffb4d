"""c-lora: its size, the overlap penalty, and what reuse penalises."""

from __future__ import annotations

import attrs
import torch

from lw2g.interfaces.baseline import mask_logits
from lw2g_lora.c_lora import CLora, overlap
from lw2g_lora.options import CLoraConfig

SMALL = CLoraConfig(rank=4, batch_size=4, epochs=3)


def loss_of(baseline, context, batch, *, remember=True):
    """Return the loss of the training step after the phase before it."""
    start, train = baseline.phases(context)
    if remember:
        start.run(lambda done, total: None)
    return train.step(batch).loss


def test_a_set_starts_as_released(vit_b):
    """Down factors are uniform within 1 / sqrt(width), up factors zero."""
    made = CLora(CLoraConfig(), vit_b()).new_set(None)
    assert 0.99 * 768**-0.5 < float(made.down.detach().abs().max()) <= 768**-0.5
    assert not made.up.any()


def test_its_gradient_is_the_written_one(bench, moved):
    """d/dU of the penalty is ``2 (P * P * dW) D^T``."""
    baseline = CLora(SMALL, bench.build)
    own, past = baseline.new_set(None), torch.randn(6, 2, 32, 32)
    moved(own)
    overlap(past, own.increments()).backward()
    expected = 2 * (past * past * own.increments().detach()) @ own.down.detach().mT
    torch.testing.assert_close(own.up.grad, expected, atol=1e-4, rtol=1e-4)


def test_the_loss_of_a_new_set(bench, moved):
    """Cross-entropy over the task's classes plus half the overlap with the sum of all earlier sets."""
    baseline, pool, context = bench.begun(CLora, SMALL, 3)
    moved(pool[0], pool[1])
    batch = bench.batch(2)
    logits = baseline.logits(baseline.features(batch, pool.route(None)))
    plain = torch.nn.functional.cross_entropy(mask_logits(logits, (4, 5)), batch.labels)
    torch.testing.assert_close(loss_of(baseline, context, batch), plain)  # the set is fresh
    start, train = baseline.phases(context)
    start.run(lambda done, total: None)
    with torch.no_grad():
        pool[2].up.normal_()
    past = pool[0].up @ pool[0].down + pool[1].up @ pool[1].down
    added = 0.5 * (past * (pool[2].up @ pool[2].down)).square().sum()
    torch.testing.assert_close(train.step(batch).loss, baseline.step(batch, context).loss + added)
    assert added > 0.1


def test_reuse_penalises_the_increment_over_the_start(bench, moved):
    """What the set held when the task began counts as past; the penalty and its gradient begin at zero."""
    baseline, pool, _ = bench.begun(CLora, SMALL, 2)
    moved(*pool.sets)
    context, batch = bench.begin(baseline, pool, 2, reuse=0), bench.batch(2)
    start, train = baseline.phases(context)
    start.run(lambda done, total: None)
    plain = baseline.step(batch, context).loss
    torch.testing.assert_close(train.step(batch).loss, plain)
    gradients = [torch.autograd.grad(loss, pool[0].up)[0] for loss in (train.step(batch).loss, plain)]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-4)
    before = pool[0].increments().detach().clone()
    with torch.no_grad():
        pool[0].up.add_(torch.randn_like(pool[0].up))
    change = pool[0].increments() - before
    added = 0.5 * ((before + pool[1].increments()) * change).square().sum()
    torch.testing.assert_close(train.step(batch).loss - baseline.step(batch, context).loss, added)


def test_a_resumed_task_keeps_its_start(bench, moved):
    """The factors that a reused set began with are in the state, so that the loss goes on as it was."""
    baseline, pool, _ = bench.begun(CLora, SMALL)
    moved(pool[0])
    context, batch = bench.begin(baseline, pool, 1, reuse=0), bench.batch(1)
    loss_of(baseline, context, batch)
    moved(pool[0])
    expected = loss_of(baseline, context, batch, remember=False)
    resumed = CLora(SMALL, bench.build)
    resumed.load_state_dict(baseline.state_dict())
    assert torch.equal(loss_of(resumed, context, batch, remember=False), expected)
    assert not torch.isclose(loss_of(baseline, context, batch), expected)


def test_the_first_task_and_weight_zero_have_no_penalty(bench, moved):
    """Both are plain low-rank training, whatever the updates are."""
    for penalty, index in ((0.5, 0), (0.0, 1)):
        baseline, pool, context = bench.begun(CLora, attrs.evolve(SMALL, penalty=penalty), index + 1)
        batch = bench.batch(index)
        baseline.phases(context)[0].run(lambda done, total: None)
        moved(*pool.sets)
        loss = loss_of(baseline, context, batch, remember=False)
        assert torch.equal(loss, baseline.step(batch, context).loss)
