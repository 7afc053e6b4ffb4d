"""Families of timm's models at small size: what acts, what is refused; nothing is silently without effect."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import pytest
import torch

from lw2g.errors import ConfigError
from lw2g.vit.anatomy import attention_of, is_pre_norm, num_tokens
from lw2g.vit.attention import heads_of
from lw2g.vit.injection import inject, real_tokens
from lw2g.vit.pooling import pooled
from lw2g.vit.prefix import PrefixInjection
from lw2g.vit.taps import Tap
from lw2g.vit.tokens import TokenInjection
from timm_families import FAMILIES, RUNGS, build_family, probes

ROOT = Path(__file__).resolve().parents[3]
SMALL = [family for family in FAMILIES if family.changes]
LARGE = [family for family in FAMILIES if not family.changes]


def _named(families, **marks):
    return [pytest.param(family, id=family.timm_name, **marks) for family in families]


@pytest.fixture(scope="module")
def built():
    """The models of families, built once: the weights of some are drawn for most of a second."""
    return {}


@pytest.fixture
def opened(request, built):
    """A copy of the small model of a family, and two images for it."""
    family = request.param
    if not family.is_known:
        pytest.skip(f"the installed timm has no {family.timm_name}")
    side = family.image_size
    images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(3))
    if family.timm_name not in built:
        built[family.timm_name] = build_family(family)
    return copy.deepcopy(built[family.timm_name]), images


def _is_dinov3(backbone):
    return "dinov3" in backbone.name


all_families = pytest.mark.parametrize(
    "opened", [*_named(SMALL), *_named(LARGE, marks=pytest.mark.slow)], indirect=True
)
small_families = pytest.mark.parametrize("opened", _named(SMALL), indirect=True)


@all_families
def test_features_are_timms_own(opened):
    """Tokens equal timm's bit for bit; features are its pre-logits, of DINOv3 the class token."""
    backbone, images = opened
    model = backbone.model
    with torch.no_grad():
        own = model.forward_features(images)
        feature = own[:, 0] if _is_dinov3(backbone) else model.forward_head(own, pre_logits=True)
        if backbone.depth:
            assert torch.equal(backbone.tokens(images), own)
            assert backbone.num_tokens == own.shape[1]
    found = backbone.features(images)
    torch.testing.assert_close(found, feature, atol=1e-5, rtol=1e-5)
    assert found.shape == (2, model.head_hidden_size)
    assert backbone.dim == model.head_hidden_size
    torch.testing.assert_close(backbone.activations(images, [Tap(-1, "feature")])[Tap(-1, "feature")], found)


@pytest.mark.parametrize("rung", RUNGS)
@all_families
def test_an_injection_acts_or_is_refused_in_one_line(opened, rung, snapshot):
    """With parameters that are not zero features change and every parameter gets a gradient; or a refusal."""
    backbone, images = opened
    before, plain = snapshot(backbone.model), backbone.features(images)
    refusal = ""
    try:
        probe = probes(backbone)[rung]()
        features = backbone.features(images, [probe.injection])
    except ConfigError as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        assert "; " in refusal
    else:
        assert not torch.allclose(features, plain, atol=1e-3)
        features.square().sum().backward()
        assert all(parameter.grad is not None for parameter in probe.parameters)
        assert all(parameter.grad.abs().max() > 0 for parameter in probe.parameters)
    assert snapshot(backbone.model) == before
    assert torch.equal(backbone.features(images), plain)


@small_families
def test_every_tap_records_or_is_refused(opened):
    """One row per token of the model, also under prompt tokens that stay in the stream."""
    backbone, images = opened
    if not backbone.depth:
        with pytest.raises(ConfigError, match="blocks of attention and MLP"):
            backbone.activations(images, [Tap(0, "query")])
        return
    read_at_norms = ("attn_in", "block_mid", "mlp_in")
    kinds = ("query", "query_used", "attn_out", "block_in", "mlp_hidden")
    if all(is_pre_norm(block) for block in backbone.model.blocks):
        kinds = (*kinds, *read_at_norms)
    else:
        with pytest.raises(ConfigError, match="reads the stream at a norm"):
            backbone.activations(images, [Tap(0, "attn_in")])
    taps = [Tap(block, kind) for block in range(2) for kind in kinds]
    seen = backbone.activations(images, taps)
    assert seen.keys() == set(taps)
    assert all(seen[tap].shape[:2] == (2, backbone.num_tokens) for tap in taps)
    assert all(seen[tap].isfinite().all() and seen[tap].std() > 0 for tap in taps)


def _offers(backbone, rung):
    try:
        backbone.require(rung)
    except ConfigError:
        return False
    return True


def _skip_without(backbone, rung):
    if not _offers(backbone, rung):
        pytest.skip(f"refused: {rung}")


@pytest.mark.parametrize("fused", [True, False])
@small_families
def test_a_prefix_without_rows_is_timms_attention(opened, fused):
    """Bit for bit, with fused and plain attention; so is attention put together from its parts."""
    backbone, images = opened
    _skip_without(backbone, "prefixes")
    for block in backbone.model.blocks:
        block.attn.fused_attn = fused
    nothing = torch.zeros(0, backbone.dim)
    empty = PrefixInjection(dict.fromkeys(range(2), (nothing, nothing)))
    plain = backbone.tokens(images)
    assert torch.equal(backbone.tokens(images, [empty]), plain)
    # a key that no query likes and a value of zeros: the parts run, and take next to no mass
    far = PrefixInjection({0: (torch.zeros(1, backbone.dim), torch.zeros(1, backbone.dim))})
    assert not torch.equal(backbone.tokens(images, [far]), plain)


@pytest.mark.parametrize("position", ["after-cls", "before-cls"])
@small_families
def test_a_token_for_one_block_is_a_prefix_of_its_key_and_value(opened, position):
    """Rotation, bias tables and norms of keys treat a prompt token and a prefix alike."""
    backbone, images = opened
    _skip_without(backbone, "prompt tokens")
    _skip_without(backbone, "prefixes")
    row = torch.randn(1, backbone.dim, generator=torch.Generator().manual_seed(5))
    block = backbone.model.blocks[1]
    attention = attention_of(block)
    with torch.no_grad(), inject(backbone.model, []):
        normed = block.norm1(row[None]) if is_pre_norm(block) else row[None]
        _, key, value = (part.transpose(1, 2).flatten(2)[0] for part in heads_of(attention, normed))
    shown = TokenInjection({1: row}, position=position, keep=False)
    expected = backbone.tokens(images, [PrefixInjection({1: (key, value)})])
    torch.testing.assert_close(backbone.tokens(images, [shown]), expected, atol=2e-5, rtol=1e-5)


def _outside(gradient, queries, heads):
    """Return the share of a prefix key's gradient outside the span of the queries, head by head."""
    share = []
    for g, q in zip(gradient.chunk(heads, dim=-1), queries.chunk(heads, dim=-1), strict=True):
        basis = torch.linalg.svd(q.double(), full_matrices=False)
        kept = basis.Vh[1e-6 * basis.S[0] < basis.S]
        rest = g.double() - g.double() @ kept.T @ kept
        share.append(float(rest.norm() / g.norm()))
    return max(share)


@small_families
def test_the_gradient_of_a_prefix_key_is_made_of_the_queries_that_met_it(opened):
    """Those of ``key_tap``: with rotated queries not those of the projection."""
    backbone, images = opened
    _skip_without(backbone, "prefixes")
    generator = torch.Generator().manual_seed(5)
    key, value = (torch.randn(2, backbone.dim, generator=generator).requires_grad_() for _ in range(2))
    injection = PrefixInjection({0: (key, value)})
    tap = backbone.key_tap(0)
    taps = [tap, Tap(0, "query")]
    backbone.features(images[:1], [injection]).sum().backward()
    seen = backbone.activations(images[:1], taps, [injection])
    queries = {each: rows[0] for each, rows in seen.items()}
    heads = backbone.heads
    assert _outside(key.grad, queries[tap], heads) < 1e-4
    assert (tap.kind == "query_used") == (not torch.equal(queries[tap], queries[Tap(0, "query")]))


@pytest.mark.parametrize("position", ["after-cls", "before-cls"])
@small_families
def test_prompts_that_stay_do_not_enter_the_pooled_feature(opened, position):
    """Features are pooled over the model's own rows."""
    backbone, images = opened
    _skip_without(backbone, "prompt tokens")
    rows = torch.randn(3, backbone.dim, generator=torch.Generator().manual_seed(5))
    prompts = TokenInjection({0: rows}, position=position, keep=True)
    stream = backbone.tokens(images, [prompts])
    tokens = num_tokens(backbone.model)
    assert stream.shape[1] == tokens + 3
    own = real_tokens(stream, tokens, prompts.class_token_index(tokens + 3, tokens))
    expected = pooled(backbone.model, own, backbone.fingerprint.pool)
    torch.testing.assert_close(backbone.features(images, [prompts]), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@all_families
def test_stored_bf16_is_autocast(opened):
    """Bit for bit, hybrids included."""
    backbone, images = opened
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected = backbone.features(images)
    assert torch.equal(backbone.to_bf16().features(images), expected)


@small_families
def test_a_failed_forward_leaves_the_model_as_it_was(opened, snapshot):
    """Merged biases, exempt rows and padded tables are taken back after an exception."""
    backbone, images = opened
    _skip_without(backbone, "prompt tokens")
    before = snapshot(backbone.model)

    def fails(x):
        raise RuntimeError("stop")

    rows = torch.ones(2, backbone.dim)
    with pytest.raises(RuntimeError, match="stop"):
        backbone.features(images, [TokenInjection({0: rows}, keep=True), PrefixInjection({1: fails})])
    assert snapshot(backbone.model) == before


@pytest.mark.slow
def test_the_page_has_the_table_of_the_installed_timm():
    """``docs/backbones.md`` is what the script writes."""
    if not all(family.is_known for family in FAMILIES):
        pytest.skip("the installed timm lacks some of the families")
    spec = importlib.util.spec_from_file_location("write_backbones", ROOT / "scripts" / "write_backbones.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.table() in script.PAGE.read_text(encoding="utf-8")
