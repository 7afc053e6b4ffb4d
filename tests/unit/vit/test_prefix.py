"""Prefix attention against the hook recipe of the DualPrompt specification and against plain formulas."""

from __future__ import annotations

import inspect
from contextlib import ExitStack, contextmanager

import pytest
import timm
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from timm.layers import set_fused_attn
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_relpos import RelPosAttention
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from lw2g.errors import ConfigError, ContractError
from lw2g.vit.backbone import Backbone
from lw2g.vit.injection import inject
from lw2g.vit.low_rank import LowRank, LowRankInjection
from lw2g.vit.prefix import PrefixAttention, PrefixInjection, PrefixSlot
from lw2g.vit.tokens import TokenInjection


@contextmanager
def hook_recipe(model, prefixes):
    """Prefix tuning by hooks alone: dummy rows into attention, k and v replaced, outputs dropped."""
    with ExitStack() as stack:
        for index, (key, value) in prefixes.items():
            attention, length = model.blocks[index].attn, key.shape[-2]

            def grow(m, args, kwargs, length=length):
                x = args[0]
                return (torch.cat([x, x.new_zeros(len(x), length, x.shape[-1])], dim=1), *args[1:]), kwargs

            def replace(m, args, out, key=key, value=value, length=length):
                k, v = (p.expand(len(out), -1, -1) for p in (key, value))
                rows = torch.cat([torch.zeros_like(k), k, v], dim=-1)
                return torch.cat([out[:, :-length], rows], dim=1)

            def shrink(m, args, out, length=length):
                return out[:, :-length]

            stack.enter_context(attention.register_forward_pre_hook(grow, with_kwargs=True))
            stack.enter_context(attention.qkv.register_forward_hook(replace))
            stack.enter_context(attention.register_forward_hook(shrink))
        yield


def naive_attention(attention, x, key, value, mask=None):
    """Attend head by head with a softmax written out; prefixes [B, L, d] first and always visible."""
    d, heads = x.shape[-1], attention.num_heads
    q, k, v = attention.qkv(x).split(d, dim=-1)
    k, v = torch.cat([key, k], dim=1), torch.cat([value, v], dim=1)
    out = []
    for rows in torch.arange(d).split(d // heads):
        logits = q[..., rows] @ k[..., rows].transpose(1, 2) / (d // heads) ** 0.5
        if mask is not None:
            logits[..., -x.shape[1] :] += mask
        out.append(logits.softmax(-1) @ v[..., rows])
    return attention.proj(torch.cat(out, dim=-1))


@given(
    blocks=st.sets(st.integers(0, 3), min_size=1),
    length=st.integers(1, 6),
    per_sample=st.booleans(),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equals_the_hook_recipe(backbone, images, blocks, length, per_sample, seed):
    """Features and all prefix gradients agree with the hook recipe to 1e-5."""
    generator = torch.Generator().manual_seed(seed)
    shape = (3, length, 48) if per_sample else (length, 48)
    prefixes = {
        i: tuple(torch.randn(shape, generator=generator).requires_grad_() for _ in "kv") for i in blocks
    }
    parameters = [tensor for pair in prefixes.values() for tensor in pair]
    ours = backbone.features(images, [PrefixInjection(prefixes)])
    with hook_recipe(backbone.model, prefixes):
        theirs = backbone.model.forward_features(images)[:, 0]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    weights = torch.randn(3, 48, generator=generator)
    for a, b in zip(
        torch.autograd.grad((ours * weights).sum(), parameters),
        torch.autograd.grad((theirs * weights).sum(), parameters),
        strict=True,
    ):
        assert (a - b).norm() <= 1e-5 * (b.norm() + 1e-3)


@pytest.mark.parametrize("older", [False, True])
def test_equals_naive_attention(backbone, randn, older):
    """The wrapper equals attention written out, also without a scale norm (timm before 1.0.16)."""
    attention = backbone.model.blocks[1].attn
    if older and hasattr(attention, "norm"):
        del attention.norm
    x, key, value = randn(3, 17, 48), randn(3, 4, 48), randn(3, 4, 48)
    out = PrefixAttention(attention, [PrefixSlot((key, value))])(x)
    torch.testing.assert_close(out, naive_attention(attention, x, key, value), atol=1e-5, rtol=1e-5)


def test_unfused_agrees(make_vit, images, randn):
    """Without fused attention the plain form gives the same features and gradients."""
    results = []
    tensors = randn(4, 48), randn(4, 48)
    for fused in (True, False):
        set_fused_attn(fused)
        try:
            backbone = Backbone.wrap(make_vit(), name="tiny")
        finally:
            set_fused_attn(True)
        assert bool(backbone.model.blocks[0].attn.fused_attn) is fused
        pair = tuple(tensor.clone().requires_grad_() for tensor in tensors)
        features = backbone.features(images, [PrefixInjection({0: pair, 2: pair})])
        features.square().sum().backward()
        results.append((features, pair[0].grad, pair[1].grad))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ["boolean", "additive", "causal"])
def test_masks_are_widened(backbone, randn, kind, fused):
    """A mask over the tokens leaves prefixes visible, in both forms of attention."""
    attention = backbone.model.blocks[0].attn
    attention.fused_attn = fused
    x, key, value = randn(2, 17, 48), randn(2, 3, 48), randn(2, 3, 48)
    allowed = torch.ones(17, 17).tril().bool()
    if kind == "boolean":
        allowed = (randn(17, 17) > 0) | torch.eye(17).bool()
    additive = torch.zeros(17, 17).masked_fill(~allowed, -torch.inf)
    arguments = {
        "boolean": {"attn_mask": allowed},
        "additive": {"attn_mask": additive},
        "causal": {"is_causal": True},
    }
    out = PrefixAttention(attention, [PrefixSlot((key, value))])(x, **arguments[kind])
    torch.testing.assert_close(out, naive_attention(attention, x, key, value, additive), atol=1e-5, rtol=1e-5)


def test_scale_norm_is_applied(make_vit, images, randn):
    """Where timm normalises the attention output, the wrapper does too."""
    if "scale_attn_norm" not in inspect.signature(VisionTransformer).parameters:
        pytest.skip(f"timm {timm.__version__} has no attention with a scale norm")
    backbone = Backbone.wrap(make_vit(scale_attn_norm=True), name="tiny")
    prefixes = {1: (randn(2, 48), randn(2, 48))}
    with hook_recipe(backbone.model, prefixes):
        expected = backbone.model.forward_features(images)[:, 0]
    torch.testing.assert_close(
        backbone.features(images, [PrefixInjection(prefixes)]), expected, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("argument", ["attn_mask", "is_causal"])
def test_zero_length_passes_masks_on(backbone, randn, argument):
    """A prefix of length zero hands a mask to timm's own attention."""
    attention = backbone.model.blocks[0].attn
    if argument not in inspect.signature(attention.forward).parameters:
        pytest.skip(f"attention of timm {timm.__version__} takes no {argument}")
    wrapper = PrefixAttention(attention, [PrefixSlot((torch.zeros(0, 48), torch.zeros(0, 48)))])
    x, mask = randn(1, 17, 48), {"attn_mask": torch.ones(17, 17).tril().bool(), "is_causal": True}[argument]
    masked = wrapper(x, **{argument: mask})
    assert torch.equal(masked, attention(x, **{argument: mask}))
    assert not torch.allclose(masked, attention(x))


def _weighing(components, keys):
    """Weigh components by the cosine of the incoming class token and keys (OS-Prompt)."""

    def prefix(block_input):
        alpha = torch.cosine_similarity(block_input[:, 0, None], keys, dim=-1)
        weighed = torch.einsum("bm,mld->bld", alpha, components)
        return weighed.chunk(2, dim=1)

    return prefix


def test_prefix_from_the_block_input(backbone, images, randn):
    """A function sees the residual stream before ``norm1``, in flight, earlier prefixes included."""
    components, keys, seen = randn(5, 4, 48), randn(5, 48), []

    def watched(x):
        seen.append(x)
        return _weighing(components, keys)(x)

    first = PrefixInjection({0: _weighing(components, keys)})
    features = backbone.features(images, [PrefixInjection({0: _weighing(components, keys), 1: watched})])
    with inject(backbone.model, [first]):
        embedded = backbone.model._pos_embed(backbone.model.patch_embed(images))
        expected_input = backbone.model.blocks[0](embedded)
    torch.testing.assert_close(seen[0], expected_input)
    fixed = {0: _weighing(components, keys)(embedded), 1: _weighing(components, keys)(expected_input)}
    torch.testing.assert_close(backbone.features(images, [PrefixInjection(fixed)]), features)


def test_computed_prefix_needs_its_block(backbone, randn):
    """Attention called past its block has no input to compute a prefix from, and says so."""
    computed = PrefixInjection({0: lambda x: (x[:, :1], x[:, :1])})
    with inject(backbone.model, [computed]), pytest.raises(ContractError, match="seen no block input"):
        backbone.model.blocks[0].attn(randn(1, 17, 48))


def test_together_with_low_rank_and_tokens(backbone, images, randn):
    """Hooks on qkv and added tokens work under a prefix, in either order of installation."""
    low_rank = LowRankInjection({1: {"v": LowRank(down=randn(2, 48), up=randn(48, 2))}})
    prefix = PrefixInjection({1: (randn(2, 48), randn(2, 48))})
    tokens = TokenInjection({1: randn(2, 48)}, keep=True)
    all_three = backbone.features(images, [low_rank, prefix, tokens])
    torch.testing.assert_close(backbone.features(images, [tokens, prefix, low_rank]), all_three)
    for without in ([prefix, tokens], [low_rank, tokens], [low_rank, prefix]):
        assert not torch.allclose(backbone.features(images, without), all_three, atol=1e-3)


@pytest.mark.parametrize("shape", [(2, 47), (2, 2, 48), (48,), (1, 3, 2, 48)])
def test_wrong_shapes(backbone, images, snapshot, shape):
    """A prefix of another width or batch is refused with both shapes; the model is plain again."""
    before = snapshot(backbone.model)
    with pytest.raises(ValueError, match=r"expected a prefix of shape \[L, 48\] or \[3, L, 48\] but got"):
        backbone.features(images, [PrefixInjection({0: (torch.zeros(shape), torch.zeros(shape))})])
    assert snapshot(backbone.model) == before


@pytest.mark.parametrize(("keys", "values"), [(2, 3), (0, 3), (2, 0)])
def test_keys_without_values(backbone, images, keys, values):
    """Every prefix key needs a value."""
    with pytest.raises(ValueError, match=rf"as many prefix keys as values but got \[\({keys}, {values}\)\]"):
        backbone.features(images, [PrefixInjection({0: (torch.zeros(keys, 48), torch.zeros(values, 48))})])


def test_wrong_block_or_attention(backbone, make_vit, images):
    """A block that does not exist, or attention that ties keys to positions, is refused."""
    pair = (torch.zeros(1, 48), torch.zeros(1, 48))
    with pytest.raises(ConfigError, match="block 4 does not exist"):
        backbone.features(images, [PrefixInjection({4: pair})])
    odd = make_vit()
    odd.blocks[0].attn = RelPosAttention(48, num_heads=4)
    with (
        pytest.raises(ConfigError, match="'RelPosAttention' of block 0 ties them to positions; use low-rank"),
        inject(odd, [PrefixInjection({0: pair})]),
    ):
        pass


def test_flash_attention_stays(backbone, images, randn, monkeypatch):
    """Prefixes are concatenated without a mask, with gradients too, so the flash kernel takes them."""
    masks = []
    plain = functional.scaled_dot_product_attention

    def seen(*args, attn_mask=None, **rest):
        masks.append(attn_mask)
        return plain(*args, attn_mask=attn_mask, **rest)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", seen)
    key, value = randn(3, 2, 48).requires_grad_(), randn(2, 48)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        backbone.features(images, [PrefixInjection({0: (key, key), 2: (value, value)})]).sum().backward()
    assert key.grad.any()
    assert masks == [None] * 4


@pytest.mark.slow
# a remark of torch on early releases of Python 3.13
@pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning")
def test_compiles_without_graph_breaks(backbone, images, randn):
    """The wrapper's forward is one graph, prefixes as inputs included."""
    attention = backbone.model.blocks[0].attn

    def attend(x, key, value):
        return PrefixAttention(attention, [PrefixSlot((key, value))])(x)

    x, key, value = randn(2, 17, 48), randn(3, 48), randn(3, 48)
    compiled = torch.compile(attend, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, key, value), attend(x, key, value))
