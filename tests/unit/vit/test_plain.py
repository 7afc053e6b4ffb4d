"""The plain ViT of our own: timm's parts, names and bits, without timm."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from lw2g.vit.adapter import AdapterInjection, Bottleneck
from lw2g.vit.anatomy import attention_of, is_plain_attention
from lw2g.vit.backbone import Backbone
from lw2g.vit.injection import Injection
from lw2g.vit.loading import load_backbone, plain_model
from lw2g.vit.plain import PLAIN, PlainShape, PlainViT
from lw2g.vit.plain_tags import PLAIN_TAGS, TagFacts
from lw2g.vit.prefix import PrefixInjection
from lw2g.vit.taps import Tap
from lw2g.vit.timm_models import seen_1k
from lw2g.vit.tokens import TokenInjection
from lw2g_backbones.known_backbones import PRESETS

SHAPE = PlainShape(image_size=32, patch_size=8, dim=48, depth=3, heads=4)
HALF = (0.5, 0.5, 0.5)
TAPS = [
    Tap(1, kind)
    for kind in (
        "query",
        "query_used",
        "attn_in",
        "attn_out",
        "block_in",
        "block_mid",
        "mlp_in",
        "mlp_hidden",
    )
]


def pair() -> tuple[Backbone, Backbone]:
    """Our model and timm's with the same weights."""
    ours = plain_model("tiny", SHAPE, seed=1)
    theirs = VisionTransformer(img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=4, num_classes=0)
    theirs.load_state_dict(ours.state_dict())
    assert list(theirs.state_dict()) == list(ours.state_dict())
    return Backbone.wrap(ours, name="ours"), Backbone.wrap(theirs, name="theirs")


def tiny_state() -> dict[str, torch.Tensor]:
    """Weights of a ViT-Tiny that look trained."""
    state = plain_model("vit_tiny_patch16_224", PLAIN["vit_tiny_patch16_224"], seed=3).state_dict()
    return state | {"norm.weight": torch.linspace(0.5, 1.5, 192)}


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def injected(parameters: torch.Tensor, kind: str) -> list[Injection]:
    if kind == "prefixes":
        return [PrefixInjection({0: (parameters, parameters.flip(0)), 2: (parameters, parameters)})]
    if kind == "tokens":
        return [TokenInjection({0: parameters}, keep=True)]
    if kind == "adapters":
        down, up = parameters, parameters.T
        branch = Bottleneck(
            down=down, down_bias=parameters.new_zeros(5), up=up, up_bias=parameters.new_ones(48)
        )
        return [AdapterInjection({1: branch})]
    return []


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("kind", ["none", "prefixes", "tokens", "adapters"])
@pytest.mark.parametrize("fused", [True, False])
def test_features_and_gradients_have_timms_bits(precision, kind, fused):
    """Without injections and with each kind, in both precisions, fused attention or not."""
    features, gradients = [], []
    for backbone in pair():
        if precision == "bf16":
            backbone.to_bf16()
        for block in backbone.model.blocks:
            block.attn.fused_attn = fused
        parameters = rows(5, 48).requires_grad_()
        out = backbone.features(rows(2, 3, 32, 32), injected(parameters, kind))
        features.append(out.detach())
        if kind != "none":
            out.square().sum().backward()
            gradients.append(parameters.grad)
    assert torch.equal(*features)
    assert kind == "none" or torch.equal(*gradients)


def test_taps_and_tokens_have_timms_bits():
    """Every place that is read holds the same activations, and so do all tokens."""
    ours, theirs = pair()
    images = rows(2, 3, 32, 32)
    seen, wanted = ours.activations(images, TAPS), theirs.activations(images, TAPS)
    assert all(torch.equal(seen[tap], wanted[tap]) for tap in TAPS)
    assert torch.equal(ours.tokens(images), theirs.tokens(images))


def test_the_attention_of_both_is_a_plain_one():
    """A method that counts logits itself takes either model, and refuses attention that rotates."""
    ours, theirs = pair()
    assert all(is_plain_attention(attention_of(one.model.blocks[0])) for one in (ours, theirs))
    assert not is_plain_attention(timm.layers.AttentionRope(48))


def test_mean_pooling_has_timms_bits():
    """A model pooled otherwise than by its class token is pooled alike."""
    images = rows(2, 3, 32, 32)
    pooled = [Backbone.wrap(one.model, name="x", pool="avg").features(images) for one in pair()]
    assert torch.equal(*pooled)


@pytest.mark.parametrize("name", PLAIN)
def test_every_named_architecture_is_timms(name):
    """Shapes, norms and activations agree, so that a checkpoint means the same to both."""
    if not timm.is_model(name):
        pytest.skip("the installed timm does not know it")
    with torch.device("meta"):
        ours, theirs = PlainViT(PLAIN[name], name), timm.create_model(name, num_classes=0)
    shapes = [{key: value.shape for key, value in model.state_dict().items()} for model in (ours, theirs)]
    assert shapes[0] == shapes[1]
    assert type(theirs) is VisionTransformer
    assert theirs.patch_embed.img_size == ours.patch_embed.img_size
    norms = [module for module in theirs.modules() if isinstance(module, nn.LayerNorm)]
    assert {norm.eps for norm in norms} == {1e-6}
    assert all(
        type(block.mlp.act) is nn.GELU and block.mlp.act.approximate == "none" for block in theirs.blocks
    )
    assert all(block.attn.num_heads == PLAIN[name].heads for block in theirs.blocks)
    assert (theirs.global_pool, theirs.num_prefix_tokens, theirs.no_embed_class) == ("token", 1, False)


@pytest.mark.parametrize("preset", [one for one in PRESETS if one.timm_name.partition(".")[0] in PLAIN])
def test_what_a_preset_leaves_to_timm_is_what_we_assume(preset):
    """Images of plain presets are resized by the filter that a bare name gets."""
    config = timm.get_pretrained_cfg(preset.timm_name)
    assert config.interpolation == "bicubic" or "." not in preset.timm_name


def test_a_file_of_another_layout_is_converted_by_timms_filter(tmp_path):
    """open_clip writes a prefix before timm's names, which timm's own filter takes off."""
    own = tiny_state()
    file = tmp_path / "visual.safetensors"
    save_file({f"visual.trunk.{key}": value for key, value in own.items()}, file)
    backbone = load_backbone("vit_tiny_patch16_224", weights=file, mean=HALF, std=HALF)
    assert isinstance(backbone.model, PlainViT)
    assert all(torch.equal(value, own[key]) for key, value in backbone.model.state_dict().items())


def test_every_listed_tag_says_what_timm_does():
    """A file under a tag is normalised as timm would, without asking it."""
    known = [name for name in PLAIN_TAGS if name in timm.list_pretrained(f"{name.partition('.')[0]}.*")]
    assert len(known) >= 30
    for name in known:
        config = timm.get_pretrained_cfg(name)
        assert PLAIN_TAGS[name] == TagFacts(config.mean, config.std, config.interpolation, seen_1k(config))


def test_a_file_under_a_tag_is_the_model_that_timm_makes_of_it(tmp_path, monkeypatch):
    """Positions of another image size, statistics, the name and the hash are those of timm's own loading."""
    own = tiny_state()
    file = tmp_path / "tiny.safetensors"
    save_file(own, file)
    load = partial(load_backbone, "vit_tiny_patch16_224.augreg_in21k_ft_in1k", weights=file, image_size=96)
    ours = load()
    monkeypatch.setattr("lw2g.vit.loading.PLAIN_TAGS", {})
    theirs = load()
    assert ours.fingerprint == theirs.fingerprint
    assert ours.name == theirs.name
    assert (type(ours.model), type(theirs.model)) == (PlainViT, VisionTransformer)
    images = rows(1, 3, 96, 96)
    assert torch.equal(ours.features(images), theirs.features(images))


def test_building_and_running_a_plain_backbone_imports_neither_timm_nor_torchvision(tmp_path):
    """Nor torch's compiler and sympy, which take as long to import as torch itself."""
    file = tmp_path / "tiny.safetensors"
    save_file(tiny_state(), file)
    code = f"""
import sys, torch
from pathlib import Path
from lw2g.vit.loading import load_backbone
backbone = load_backbone("vit_tiny_patch16_224.augreg_in21k", weights=Path({str(file)!r}))
backbone.features(torch.zeros(1, 3, 224, 224))
print({{"timm", "torchvision", "torch._dynamo", "sympy"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
