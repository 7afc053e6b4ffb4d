"""vpt-nsp2: where a null space begins, what attention meets, and that tokens move nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter1d
from torch.nn import functional

from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.pool import Pool
from lw2g.vit.anatomy import attention_of
from lw2g.vit.plain import PlainAttention
from lw2g_single_set.options import VptNspConfig
from lw2g_single_set.vpt_nsp2 import (
    VptNsp,
    attended,
    bend,
    null_projection,
    require_plain_attention,
)

PAIRS = [(0, 1), (2, 3), (4, 5)]


def diagonal(*values):
    return torch.diag(torch.tensor(values, dtype=torch.float64))


def test_the_null_space_begins_at_the_sharpest_bend():
    """Of 9, 8.5, 0.1 and 0.05 the last two are small; directions without any energy are free."""
    found = null_projection(diagonal(0.05, 9.0, 0.1, 8.5), 1.0, scaled=False)
    assert torch.equal(found, diagonal(1.0, 0.0, 1.0, 0.0).float())
    assert torch.equal(
        null_projection(diagonal(2.0, 0.0, 0.0), 1.0, scaled=False), diagonal(0.0, 1.0, 1.0).float()
    )


def test_a_long_spectrum_is_smoothed_first():
    """Of 200 directions whose energy falls from the 80th to the 100th, nearly half are free."""
    spectrum = np.concatenate([np.full(80, 1.0), np.linspace(1.0, 0.0, 20), np.full(100, 0.0)])
    found = null_projection(diagonal(*spectrum.tolist()), 1.0, scaled=False)
    assert 85 <= int(found.trace().round()) <= 105


@pytest.mark.parametrize("width", [127, 128, 250])
def test_the_sharpest_bend_of_a_long_spectrum_lies_off_its_ends(width):
    """From 128 directions: smoothed by 10 of them, and 1.5 % at either end do not count."""
    for seed in range(6):
        falls = np.random.default_rng(seed).exponential(size=width) ** 2
        spectrum = falls[::-1].cumsum()[::-1] + np.geomspace(1e4, 1.0, width) * (seed % 2)
        smooth = gaussian_filter1d(spectrum, 10) if width >= 128 else spectrum
        off = int(0.015 * width) if width >= 128 else 0
        places = range(1 + off, width - 1 - off)
        knee = max(places, key=lambda at: smooth[at - 1] - 2 * smooth[at] + smooth[at + 1])
        found = null_projection(diagonal(*spectrum.tolist()), 1.0, scaled=False)
        assert int(found.trace().round()) == width - knee


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_a_share_of_an_update_is_projected(share, scaled):
    """It is a mixture of the identity and a symmetric projection, which as released has norm 1."""
    rows = torch.randn(50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows *= torch.tensor([5.0, 4.0, 3.0, 0.1, 0.1, 0.1])
    found = null_projection(rows.T @ rows, share, scaled=scaled).double()
    if share == 0.0:
        assert torch.equal(found, torch.eye(6, dtype=torch.float64))
        return
    alone = (found - (1 - share) * torch.eye(6)) / share
    torch.testing.assert_close(alone, alone.T, atol=1e-6, rtol=0)
    length = alone.norm() if scaled else torch.tensor(1.0)
    assert float(length) == pytest.approx(1.0, abs=1e-6)
    whole = alone / torch.linalg.matrix_norm(alone, 2)
    torch.testing.assert_close(whole @ whole, whole, atol=1e-5, rtol=0)


@torch.no_grad()
def test_attention_meets_what_a_written_out_block_does(tiny):
    """Prompts behind the tokens, one norm over all, a softmax over all keys: rows of real tokens count."""
    model, generator = tiny.model, torch.Generator().manual_seed(5)
    block, heads = model.blocks[2], tiny.heads
    stream = torch.randn(3, 7, tiny.dim, generator=generator)
    prompts = torch.randn(4, tiny.dim, generator=generator)
    queries, paid = attended(block, block.norm1(stream), prompts)

    whole = block.norm1(torch.cat([stream, prompts.expand(3, -1, -1)], dim=1))
    query, key, _ = block.attn.qkv(whole).reshape(3, 11, 3, heads, -1).permute(2, 0, 3, 1, 4)
    attention = (query @ key.mT * block.attn.scale).softmax(dim=-1)[:, :, :7, 7:]
    to_key = block.attn.qkv.weight[tiny.dim : 2 * tiny.dim].reshape(heads, -1, tiny.dim)
    met = torch.einsum("bhnd,hde->bhne", query[:, :, :7], to_key).reshape(-1, tiny.dim)
    seen = attention.reshape(-1, 4)
    torch.testing.assert_close(queries, (met.T @ met).double(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(paid, (seen.T @ seen).double(), rtol=1e-4, atol=1e-5)


def learned(stream, tasks, **options):
    """Return a baseline that has learned some tasks, and its tokens after each."""
    baseline, pool, found = VptNsp(VptNspConfig(lr=0.05, **options), stream.build), Pool(), []
    for index in range(tasks):
        stream.learn(baseline, stream.begin(baseline, pool, index), epochs=3)
        found.append(pool[0].token.detach().clone())
    return baseline, pool, found


def test_tokens_move_in_the_null_spaces_alone(stream_of):
    """With exact and whole projections, the second task's change has no part in what the first one met."""
    stream = stream_of(PAIRS)
    baseline, _, (first,) = learned(stream, 1, projected=1.0, projector="exact")
    queries, attention = (baseline._projections(one) for one in (baseline.queries, baseline.attention))
    torch.manual_seed(1)
    _, _, tokens = learned(stream_of(PAIRS), 2, projected=1.0, projector="exact")
    assert torch.equal(tokens[0], first)
    change = tokens[1] - tokens[0]
    assert float(change.abs().max()) > 1e-4
    torch.testing.assert_close(attention @ change @ queries, change, atol=1e-5, rtol=0)
    free, _, _ = learned(stream_of(PAIRS), 2, projected=0.0)
    plain = free.anchor - tokens[0]
    assert float((attention @ plain @ queries - plain).abs().max()) > 1e-3


def test_what_is_bent_is_the_last_step_alone(stream_of):
    """Released projections shrink what they are shown: what earlier steps brought is not shown again."""
    stream = stream_of(PAIRS)
    baseline, pool, _ = learned(stream, 1)
    context = stream.begin(baseline, pool, 1)
    training = next(phase for phase in baseline.phases(context) if isinstance(phase, TrainingPhase))
    shown = baseline._projections(baseline.queries), baseline._projections(baseline.attention)
    token, draw = pool[0].token, torch.Generator().manual_seed(4)
    for _ in range(2):
        before, update = token.detach().clone(), torch.randn(token.shape, generator=draw)
        training.step(stream.batch((2, 3)))
        with torch.no_grad():
            token += update
            training.adjust()
        torch.testing.assert_close(token.detach(), before + bend(update, *shown), rtol=1e-4, atol=1e-5)


def test_the_first_task_is_free(stream_of):
    """Nothing is projected and nothing held; afterwards the tokens are remembered as they are."""
    stream = stream_of(PAIRS)
    baseline, pool = VptNsp(VptNspConfig(), stream.build), Pool()
    context = stream.begin(baseline, pool, 0)
    training = next(phase for phase in baseline.phases(context) if isinstance(phase, TrainingPhase))
    assert training.adjust is None
    batch = stream.batch((0, 1))
    features = baseline.features(batch, context.pool.force(0))
    logits = baseline.head(features)[:, :2].detach()
    rows = torch.cat([baseline.head.weight[:2].flatten(), baseline.head.bias[:2]]).detach()
    expected = functional.cross_entropy(logits / 28.0, batch.labels) + 2.5e-5 * rows.square().sum()
    assert float(training.step(batch).loss.detach()) == pytest.approx(float(expected), rel=1e-5)
    stream.learn(baseline, context)
    assert torch.equal(baseline.anchor, pool[0].token)


def test_old_rows_of_the_head_stay(stream_of):
    """Adam would make steps of its rate of the least decay, where nothing else pulls."""
    stream = stream_of(PAIRS)
    baseline, pool, _ = learned(stream, 1, weight_decay=0.1)
    before = baseline.head.weight[:2].detach().clone()
    stream.learn(baseline, stream.begin(baseline, pool, 1))
    assert torch.equal(baseline.head.weight[:2], before)


def test_means_and_spreads_are_held(stream_of):
    """A token moved by 0.1 everywhere costs 0.1 a block, one stretched what its spread gains."""
    stream = stream_of(PAIRS)
    baseline, _, (tokens,) = learned(stream, 1)
    depth = stream.backbone.depth
    assert float(baseline.norm_loss(tokens)) == 0.0
    assert float(baseline.norm_loss(tokens + 0.1)) == pytest.approx(0.1 * depth, rel=1e-4)
    mean = tokens.mean(dim=-1, keepdim=True)
    stretched = mean + 3 * (tokens - mean)
    gained = 2 * tokens.std(dim=-1, correction=0).mean(dim=1).sum()
    assert float(baseline.norm_loss(stretched)) == pytest.approx(float(gained), rel=1e-4)


def test_moments_add_up_over_tasks_and_batches(stream_of):
    """Cut into small batches the sums are the same, and a second task adds its own."""
    stream = stream_of(PAIRS)
    baseline, pool, _ = learned(stream, 1)
    whole = baseline.queries.clone(), baseline.attention.clone()
    for size in (3, 10):
        baseline.queries.zero_()
        baseline.attention.zero_()
        baseline.remember(stream.begin(baseline, pool, 0, size=size), lambda done, total: None)
        torch.testing.assert_close(baseline.queries, whole[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(baseline.attention, whole[1], rtol=1e-4, atol=1e-5)
    context = stream.begin(baseline, pool, 1)
    baseline.queries.zero_()
    baseline.attention.zero_()
    baseline.remember(context, lambda done, total: None)
    second = baseline.queries.clone(), baseline.attention.clone()
    baseline.queries.copy_(whole[0])
    baseline.attention.copy_(whole[1])
    baseline.remember(context, lambda done, total: None)
    torch.testing.assert_close(baseline.queries, whole[0] + second[0])
    torch.testing.assert_close(baseline.attention, whole[1] + second[1])


@pytest.mark.parametrize(
    ("epochs", "rates"), [(10, [1.0] * 4 + [0.1] * 3 + [0.01] * 3), (5, [1.0] * 2 + [0.1] * 2 + [0.01])]
)
def test_the_rate_falls_as_released(stream_of, epochs, rates):
    """To a tenth after 0.4 and after 0.7 of the epochs, in every task."""
    stream = stream_of(PAIRS)
    baseline, pool = VptNsp(VptNspConfig(epochs=epochs), stream.build), Pool()
    for index in range(2):
        context = stream.begin(baseline, pool, index)
        training = next(phase for phase in baseline.phases(context) if isinstance(phase, TrainingPhase))
        found = [training.schedule(1.0, epoch, epochs) for epoch in range(epochs)]
        assert found == pytest.approx(rates)
        stream.learn(baseline, context, epochs=1)


def test_both_plain_forwards_count(catalogue):
    """The method takes timm's blocks and our own, which compute the same logits."""
    micro = catalogue.get("backbone", "micro")
    backbone = micro.build(micro.config(), None, None)
    assert isinstance(attention_of(backbone.model.blocks[0]), PlainAttention)
    require_plain_attention(backbone)
