"""Prompt tokens: counts, order, and the formulas of L2P, VPT-Deep and CPrompt."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import pytest
import torch

from lw2g.errors import ContractError
from lw2g.vit.injection import inject
from lw2g.vit.tokens import TokenInjection


def _rows_after_blocks(model, images, injection):
    counts = []
    with inject(model, [injection]), ExitStack() as stack:
        for block in model.blocks:
            handle = block.register_forward_hook(lambda m, args, out: counts.append(out.shape[1]))
            stack.enter_context(handle)
        model.forward_features(images)
    return counts


def _embed(model, images):
    return model._pos_embed(model.patch_embed(images))


def test_cprompt_order(backbone, images, randn):
    """The order is class token, first prompts, second prompts, patches, as in a plain loop."""
    first, second = randn(2, 48), randn(3, 3, 48)
    model = backbone.model
    x = _embed(model, images)
    x = torch.cat([x[:, :1], first.expand(3, -1, -1), x[:, 1:]], dim=1)
    x = model.blocks[1](model.blocks[0](x))
    x = torch.cat([x[:, :3], second, x[:, 3:]], dim=1)
    x = model.blocks[3](model.blocks[2](x))
    injection = TokenInjection({0: first, 2: second}, keep=True)
    assert torch.equal(backbone.tokens(images, [injection]), model.norm(x))
    torch.testing.assert_close(backbone.features(images, [injection], norm=False), x[:, 0])


@pytest.mark.parametrize("keep", [True, False])
def test_position_does_not_matter(backbone, images, randn, keep):
    """Rows in front of the class token and behind it give the same feature."""
    rows = {0: randn(4, 48), 2: randn(3, 2, 48)}
    after, before = (
        backbone.features(images, [TokenInjection(rows, position=position, keep=keep)])
        for position in ("after-cls", "before-cls")
    )
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-5)
    assert not torch.allclose(after, backbone.features(images), atol=1e-3)


def test_l2p_tokens_in_front(backbone, images, randn):
    """In front: prompts first, the class token pooled from behind them."""
    prompts = randn(3, 6, 48)
    model = backbone.model
    expected = model.norm(model.blocks(torch.cat([prompts, _embed(model, images)], dim=1)))
    injection = TokenInjection({0: prompts}, position="before-cls", keep=True)
    assert torch.equal(backbone.tokens(images, [injection]), expected)
    torch.testing.assert_close(backbone.features(images, [injection]), expected[:, 6])


def test_vpt_deep(backbone, images, randn):
    """Rows replaced at every block equal appending them and keeping the first N tokens (Aper)."""
    prompts = randn(4, 5, 48)
    model = backbone.model
    x = _embed(model, images)
    for block, rows in zip(model.blocks, prompts, strict=True):
        x = block(torch.cat([x, rows.expand(3, -1, -1)], dim=1))[:, :17]
    injection = TokenInjection(dict(enumerate(prompts)), keep=False)
    torch.testing.assert_close(backbone.tokens(images, [injection]), model.norm(x), atol=1e-5, rtol=1e-5)
    assert _rows_after_blocks(model, images, injection) == [17] * 4


def test_rows_from_the_block_input(backbone, images, randn):
    """A function of the block's input gives the rows, with gradients to what it is made of."""
    weight = randn(48, 48).requires_grad_()
    computed = TokenInjection({1: lambda x: (x[:, 0] @ weight).unsqueeze(1)}, keep=True)
    incoming = backbone.model.blocks[0](_embed(backbone.model, images))
    fixed = TokenInjection({1: (incoming[:, 0] @ weight).unsqueeze(1)}, keep=True)
    features = backbone.features(images, [computed])
    torch.testing.assert_close(features, backbone.features(images, [fixed]))
    assert torch.autograd.grad(features.sum(), weight)[0].norm() > 0


@pytest.mark.parametrize("shape", [(2, 47), (2, 2, 48), (48,)])
def test_wrong_shapes(backbone, images, snapshot, shape):
    """Rows of another width or batch are refused with both shapes; the model is plain again."""
    before = snapshot(backbone.model)
    with pytest.raises(ValueError, match=r"expected prompt tokens \[L, 48\] or \[3, L, 48\] but got"):
        backbone.features(images, [TokenInjection({1: torch.zeros(shape)}, keep=True)])
    assert snapshot(backbone.model) == before


@pytest.mark.parametrize("arguments", [{"position": "end", "keep": True}, {"keep": 1}])
def test_wrong_options(arguments):
    """Position and keep take their own values only."""
    with pytest.raises((ValueError, TypeError)):
        TokenInjection({}, **arguments)


def test_two_token_injections_are_refused(backbone, images, snapshot):
    """Two injections that both add rows would disagree about where the class token is."""
    before = snapshot(backbone.model)
    adders = [TokenInjection({i: torch.zeros(1, 48)}, keep=True) for i in range(2)]
    with pytest.raises(ContractError, match="'TokenInjection', 'TokenInjection' add tokens"):
        backbone.features(images, adders)
    assert snapshot(backbone.model) == before


class _Stranger:
    """Adds a row and does not say so."""

    @contextmanager
    def install(self, model):
        handle = model.blocks[0].register_forward_pre_hook(lambda m, a: torch.cat([a[0], a[0][:, :1]], dim=1))
        try:
            yield
        finally:
            handle.remove()


def test_undeclared_rows_are_refused(backbone, images):
    """An injection that adds rows without saying where breaks its contract, and is told so."""
    with pytest.raises(ContractError, match="18 rows where the model has 17"):
        backbone.features(images, [_Stranger()])
