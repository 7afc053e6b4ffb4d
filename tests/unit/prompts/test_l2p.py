"""l2p: sizes, selection, the two poolings, the loss, and the named leak."""

from __future__ import annotations

import attrs
import pytest
import torch
from torch.nn import functional

from lw2g.errors import ConfigError
from lw2g.vit.taps import Tap
from lw2g_prompts.l2p import L2P
from lw2g_prompts.options import L2PConfig

QUICK = L2PConfig(epochs=2, batch_size=4)


def begun(bench, config=QUICK):
    """Return baseline, pool and context of the first task."""
    return bench.begun(L2P, config)


@pytest.mark.parametrize("top_k", [1, 4])
def test_selected_prompts_join_the_tokens(bench, top_k):
    """With k prompts of L tokens every block sees 17 + k L of them."""
    baseline, pool, _ = begun(bench, attrs.evolve(QUICK, top_k=top_k))
    counts = []
    handle = bench.backbone.model.blocks[3].register_forward_hook(
        lambda module, args, out: counts.append(out.shape[1])
    )
    batch = bench.batch(0)
    batch.query  # noqa: B018
    counts.clear()
    baseline.features(batch, pool.force(0))
    handle.remove()
    assert counts == [17 + 5 * top_k]


def test_the_order_of_the_selected_does_not_matter(bench):
    """Turning round which of two selected prompts is nearer leaves the class token as it is."""
    baseline, pool, _ = begun(bench, attrs.evolve(QUICK, top_k=2))
    batch = bench.batch(0)
    direction = functional.normalize(batch.query.mean(0), dim=0)
    with torch.no_grad():
        pool[0].key[2:] = -direction
        pool[0].key[0] = direction
        pool[0].key[1] = direction + 0.1 * torch.randn(48) / 48**0.5
    before, chosen = baseline.features(batch, pool.force(0)), baseline.select(batch.query, pool[0])[1]
    with torch.no_grad():
        pool[0].key[:2] = pool[0].key[[1, 0]]
    assert torch.equal(chosen[:, [1, 0]], baseline.select(batch.query, pool[0])[1])
    torch.testing.assert_close(baseline.features(batch, pool.force(0)), before, atol=1e-5, rtol=1e-5)


def test_both_poolings_read_the_same_forward(bench):
    """The class token follows the k L prompt tokens, whose mean is the other pooling."""
    baseline, pool, _ = begun(bench)
    mean = L2P(attrs.evolve(QUICK, pool="prompt-mean"), bench.build)
    batch, seen = bench.batch(0), []
    handle = bench.backbone.model.norm.register_forward_hook(lambda module, args, out: seen.append(out))
    batch.query  # noqa: B018
    class_token, prompts = baseline.features(batch, pool.force(0)), mean.features(batch, pool.force(0))
    handle.remove()
    torch.testing.assert_close(class_token, seen[-1][:, 20])
    torch.testing.assert_close(prompts, seen[-1][:, :20].mean(1))


def test_the_loss_is_cross_entropy_minus_the_pull(bench):
    """The pull is the sum over selected keys of their cosine, averaged over the batch."""
    baseline, pool, context = begun(bench, attrs.evolve(QUICK, pull=0.5, top_k=3))
    batch = bench.batch(0)
    query, keys = batch.query, pool[0].key.detach()
    cosines = (query @ keys.T) / query.norm(dim=1)[:, None] / keys.norm(dim=1)
    pull = cosines.sort(dim=1, descending=True).values[:, :3].sum(1).mean()
    logits = baseline.logits(baseline.features(batch, pool.force(0)))[:, :2]
    expected = functional.cross_entropy(logits, batch.labels) - 0.5 * pull
    torch.testing.assert_close(baseline.step(batch, context).loss, expected)
    torch.testing.assert_close(
        bench.probe_loss(baseline, batch, pool.force(0), 0),
        functional.cross_entropy(logits, batch.labels),
    )


def test_only_selected_prompts_get_gradient(bench):
    """Prompts and keys that no image selects have zero gradient, all others have some."""
    baseline, pool, context = begun(bench)
    batch = bench.batch(0)
    baseline.step(batch, context).loss.backward()
    used = torch.zeros(10, dtype=torch.bool)
    used[baseline.select(batch.query, pool[0])[1].flatten()] = True
    assert 0 < int(used.sum()) < 10
    assert torch.equal(pool[0].prompt.grad.flatten(1).norm(dim=1) > 0, used)
    assert torch.equal(pool[0].key.grad.norm(dim=1) > 0, used)
    assert baseline.head.weight.grad[2:].abs().sum() == 0


def test_a_selection_does_not_depend_on_the_batch_unless_it_votes(bench):
    """Alone and in company an image selects the same; the vote gives all images the same prompts."""
    baseline, pool, _ = begun(bench)
    query = torch.randn(30, 48)
    together = baseline.select(query, pool[0])[1]
    alone = torch.cat([baseline.select(row[None], pool[0])[1] for row in query])
    assert torch.equal(together, alone)
    voting = L2P(attrs.evolve(QUICK, vote="batch"), bench.build)
    voted = voting.select(query, pool[0])[1]
    assert (voted == voted[0]).all()
    favourites = torch.bincount(together.flatten(), minlength=10)
    assert sorted(favourites[voted[0]].tolist()) == sorted(favourites.tolist())[-4:]


def test_the_site_is_every_prompt_row_in_front_of_block_0(bench):
    """Rows of all prompts are projected along their width with the tokens they join."""
    baseline, pool, _ = begun(bench)
    (site,) = baseline.sites(pool[0])
    assert site.activation.tap == Tap(0, "block_in")
    assert site.rows(site.parameter).shape == (50, 48)


def test_more_prompts_than_the_pool_holds_are_refused(bench):
    """The option is named, with what would help."""
    with pytest.raises(
        ConfigError, match=r"baseline\.top_k: 11 prompts cannot be selected out of 10; lower it"
    ):
        L2P(L2PConfig(top_k=11), bench.build)
