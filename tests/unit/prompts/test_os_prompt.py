"""os-prompt: sizes, queries met on the way, one forward per image, and the reference term of OS-Prompt++."""

from __future__ import annotations

import attrs
import pytest
import torch

from lw2g.blocks.weighted_prefixes import Components, Queries
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace
from lw2g.vit.prefix import PrefixInjection
from lw2g_prompts.options import OsPromptConfig
from lw2g_prompts.os_prompt import OsPrompt, query_pool_distance

PLUS = OsPromptConfig(variant="os++", reference_weight=1.0)


def queries(bench, baseline, pool, batch):
    """Return each block's query by position, with its graph."""
    seen: dict[int, torch.Tensor] = {}
    bench.backbone.features(batch.images, [baseline.injection(batch, pool.sets, seen)])
    return seen


def reference_term(bench, baseline, pool, batch):
    """Return the weighted reference term alone."""
    return baseline.regulariser(batch, pool.sets, queries(bench, baseline, pool, batch))


@pytest.mark.parametrize(
    ("config", "training"),
    [
        (OsPromptConfig(), 1),
        (PLUS, 2),
        (attrs.evolve(PLUS, qr="code"), 2),
        (attrs.evolve(PLUS, reference_weight=0.0), 1),
    ],
)
def test_forwards_per_image(bench, config, training):
    """One in evaluation always; a second in training for the reference term alone."""
    baseline, pool, context = bench.begun(OsPrompt, config)
    passes = []
    handle = bench.backbone.model.norm.register_forward_hook(lambda *args: passes.append(len(args[2])))
    try:
        baseline.phases(context)[0].step(bench.batch(0))
        assert passes == [4] * training
        baseline.features(bench.batch(0), pool.route(None))
        assert passes == [4] * (training + 1)
    finally:
        handle.remove()


def test_the_query_is_the_class_token_entering_the_block(bench):
    """At block 0 it is class token and position for every image, so the first prefix is static."""
    baseline, pool, _ = bench.begun(OsPrompt, OsPromptConfig())
    seen = queries(bench, baseline, pool, bench.batch(0))
    model = bench.backbone.model
    constant = (model.cls_token[0, 0] + model.pos_embed[0, 0]).expand(4, -1)
    torch.testing.assert_close(seen[0], constant)
    components = Components.of(pool.sets)
    first, second = (components.prefixes(block, Queries.of(seen[block]))[0] for block in (0, 1))
    torch.testing.assert_close(first[0], first[1])
    assert float((second[0] - second[1]).detach().abs().max()) > 1e-4
    moment = SecondMoment(48)
    moment.update(seen[0].detach())
    assert Subspace.build(moment, 0.999).rank == 1


def test_a_later_query_carries_gradient_to_earlier_prefixes(bench):
    """Cutting the queries from their graph is another method: the first block's gradient changes."""
    baseline, pool, _ = bench.begun(OsPrompt, OsPromptConfig())
    batch = bench.batch(0)
    whole = baseline.features(batch, pool.route(None)).sum()
    injection = baseline.injection(batch, pool.sets)
    cut = PrefixInjection(
        {block: lambda x, prefix=prefix: prefix(x.detach()) for block, prefix in injection.prefixes.items()}
    )
    without = bench.backbone.features(batch.images, [cut]).sum()
    torch.testing.assert_close(whole, without)
    gradients = [torch.autograd.grad(loss, pool[0].prefix_value)[0] for loss in (whole, without)]
    assert float((gradients[0][0] - gradients[1][0]).norm()) > 1e-4 * float(gradients[1][0].norm())
    torch.testing.assert_close(gradients[0][4], gradients[1][4])


# -- the reference term ------------------------------------------------------------------------------------


def test_the_paper_term_by_hand():
    """It is the squared distance of two softmaxes over cosines, summed over keys, averaged over samples."""
    torch.manual_seed(2)
    query, reference, key = torch.randn(5, 16), torch.randn(5, 16), torch.randn(7, 16)
    total = 0.0
    for one, other in zip(query, reference, strict=True):
        pair = [torch.stack([torch.cosine_similarity(item, k, dim=0) for k in key]) for item in (one, other)]
        total += float(
            sum((a - b) ** 2 for a, b in zip(*(p.exp() / p.exp().sum() for p in pair), strict=True))
        )
    distance = query_pool_distance(query, reference, key)
    assert float(distance) == pytest.approx(total / 5, rel=1e-4)
    assert 0 < float(distance) <= 2


def test_the_paper_term_trains_current_keys_only(bench):
    """Visible keys of frozen sets count in the softmax and get no gradient."""
    baseline, pool, _ = bench.begun(OsPrompt, PLUS, 2)
    pool[0].requires_grad_(False)
    term = reference_term(bench, baseline, pool, bench.batch(1))
    term.backward()
    assert pool[0].key.grad is None
    assert (pool[1].key.grad.flatten(1).norm(dim=1) > 0).all()
    own = [
        query_pool_distance(q, bench.batch(1).query, pool[1].key[i])
        for i, q in queries(bench, baseline, pool, bench.batch(1)).items()
    ]
    assert float(term.detach()) != pytest.approx(float(sum(own).detach()), rel=1e-3)


def test_the_released_term_reaches_earlier_blocks_only(bench):
    """It moves what lies before a query: components and keys of blocks 0 to 3, nothing of the last block."""
    baseline, pool, _ = bench.begun(OsPrompt, attrs.evolve(PLUS, qr="code"))
    batch = bench.batch(0)
    term = reference_term(bench, baseline, pool, batch)
    seen = queries(bench, baseline, pool, batch)
    by_hand = sum(((seen[i] - batch.query) ** 2).mean() for i in range(5))
    torch.testing.assert_close(term, by_hand)
    for gradient in torch.autograd.grad(term, list(pool[0].parameters())):
        norms = gradient.flatten(1).norm(dim=1)
        assert (norms[:4] > 0).all()
        assert norms[4] == 0


@pytest.mark.parametrize("qr", ["paper", "code"])
def test_the_term_is_added_with_its_weight(bench, qr):
    """Loss of OS-Prompt++ = loss of OS-Prompt + weight * term; evidence has no such term."""
    baseline, pool, context = bench.begun(OsPrompt, attrs.evolve(PLUS, qr=qr, reference_weight=0.25))
    batch = bench.batch(0)
    plain = bench.probe_loss(baseline, batch, pool.route(None), 0)
    term = reference_term(bench, baseline, pool, batch)
    torch.testing.assert_close(baseline.step(batch, context).loss, plain + term)
    baseline.config = attrs.evolve(baseline.config, reference_weight=0.5)
    torch.testing.assert_close(reference_term(bench, baseline, pool, batch), 2 * term)
