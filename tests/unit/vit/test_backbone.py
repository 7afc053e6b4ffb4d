"""The backbone is frozen, equal to plain timm, and says what it refuses."""

from __future__ import annotations

import re
from functools import partial

import attrs
import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import ParallelScalingBlock, VisionTransformer, checkpoint_filter_fn

from lw2g.errors import ConfigError, DataError
from lw2g.vit.adapter import AdapterInjection
from lw2g.vit.backbone import Backbone
from lw2g.vit.injection import class_token_index
from lw2g.vit.loading import load_backbone
from lw2g.vit.low_rank import LowRankInjection
from lw2g.vit.parameters import ParameterInjection
from lw2g.vit.prefix import PrefixInjection
from lw2g.vit.taps import Tap
from lw2g.vit.tokens import TokenInjection
from lw2g.vit.weights import file_sha256, state_sha256

SAPIENS = "vit_base_patch16_sapiens2"
BARE, TAGGED = "vit_tiny_patch16_224", "vit_tiny_patch16_224.augreg_in21k_ft_in1k"


def test_features_are_timms_class_token(backbone, images):
    """Features equal timm's own pre-logits, tokens bit for bit."""
    model = backbone.model
    expected = model.forward_head(model.forward_features(images), pre_logits=True)
    torch.testing.assert_close(backbone.features(images), expected)
    assert torch.equal(backbone.tokens(images), model.forward_features(images))


@pytest.mark.parametrize("position", ["after-cls", "before-cls"])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("plain", [True, False])
def test_features_are_the_class_row_of_tokens_under_injections(
    backbone, images, randn, monkeypatch, position, keep, plain
):
    """Value and gradients are those of a last block that computes every row, and half of it is not run.

    Where attention is plain, as in bf16 on a CPU, that block attends for the class token alone.
    """
    monkeypatch.setattr(Backbone, "attention", "plain" if plain else "timm's")
    tensors = [randn(rows, 48).requires_grad_() for rows in (2, 2, 3, 48, 48, 48, 1)]
    key, value, rows, dense, first, second, bias = tensors
    injections = [
        PrefixInjection({3: (key, value)}),
        TokenInjection({0: rows, 3: rows}, position=position, keep=keep),
        LowRankInjection({3: {"q": dense}}),
        AdapterInjection({2: lambda x: x @ first, 3: lambda x: torch.tanh(x @ second)}),
        ParameterInjection({"blocks.3.attn.proj.bias": bias[0]}),
    ]
    widths, attended = [], []
    last = backbone.model.blocks[3]
    last.mlp.fc1.register_forward_hook(lambda *args: widths.append(args[2].shape[1]))
    last.attn.proj.register_forward_hook(lambda *args: attended.append(args[2].shape[1]))
    features = backbone.features(images, injections)
    tokens = backbone.tokens(images, injections)
    row = tokens[:, class_token_index(injections, tokens.shape[1], 17)]
    every = 23 if keep else 20
    assert widths == [1, every]
    assert attended == [1 if plain else every, every]
    torch.testing.assert_close(features, row)
    weights = randn(3, 48)
    found, expected = (torch.autograd.grad((one * weights).sum(), tensors) for one in (features, row))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_backward_keeps_little_more_than_bare_timm(make_vit, images, randn):
    """What a prefix adds to the memory kept for backward is its own rows, not copies of keys and values."""

    def kept(work):
        stored = {}

        def keep(tensor):
            stored[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            work()
        return sum(stored.values())

    model = make_vit()
    backbone, nothing = Backbone.wrap(model, name="tiny"), torch.zeros((), requires_grad=True)
    images = images.repeat(8, 1, 1, 1)
    key, value = randn(4, 2, 48).requires_grad_(), randn(4, 2, 48).requires_grad_()
    prefix = PrefixInjection({block: (key[block], value[block]) for block in range(4)})
    bare = kept(lambda: model.forward_features(images + nothing)[:, 0])
    # 4 blocks, 4 bytes; the class token's row alone in the last MLP makes up for it
    assert kept(lambda: backbone.features(images, [prefix])) < bare
    extra = 2 * 4 * 4 * key[0].numel() * len(images)
    assert kept(lambda: backbone.tokens(images, [prefix])) < bare + 2 * extra


def test_features_before_the_norm(backbone, images):
    """``norm=False`` gives the class token that enters the final norm."""
    seen = {}
    handle = backbone.model.norm.register_forward_pre_hook(lambda m, args: seen.update(x=args[0]))
    backbone.model.forward_features(images)
    handle.remove()
    torch.testing.assert_close(backbone.features(images, norm=False), seen["x"][:, 0])


def test_features_own_their_memory(backbone, images):
    """A stored feature does not keep the tokens of the forward alive."""
    assert backbone.features(images[:1]).untyped_storage().nbytes() == backbone.dim * 4


def test_stays_frozen(backbone, images):
    """Train mode is refused in silence and no parameter asks for a gradient."""
    backbone.train()
    assert not any(module.training for module in backbone.modules())
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    assert not backbone.features(images).requires_grad


def test_sizes(backbone):
    """Sizes are read from the model."""
    sizes = (backbone.dim, backbone.depth, backbone.heads, backbone.num_tokens, backbone.image_size)
    assert sizes == (48, 4, 4, 17, 32)
    assert backbone.fingerprint.patch_size == 8
    assert (backbone.device, backbone.dtype) == (torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 1, 32, 32), (2, 3, 40, 40)])
def test_wrong_images(backbone, shape):
    """Images of another shape are refused with both shapes."""
    with pytest.raises(ValueError, match=r"expected images \[B, 3, 32, 32\] but got"):
        backbone.features(torch.zeros(shape))


def test_activations_equal_hooks_of_a_full_forward(backbone, images):
    """Every tap sees what a hand-placed hook sees in timm's own forward."""
    model, seen = backbone.model, {}
    handles = [
        model.norm.register_forward_hook(lambda m, a, out: seen.update({Tap(-1, "feature"): out[:, 0]}))
    ]
    for i, block in enumerate(model.blocks):

        def on_block(m, args, i=i):
            seen[Tap(i, "block_in")] = args[0]

        def on_attn(m, args, kwargs, i=i):
            seen[Tap(i, "attn_in")] = args[0]

        def on_qkv(m, args, out, i=i):
            seen[Tap(i, "query")] = out[..., :48]

        handles += [
            block.register_forward_pre_hook(on_block),
            block.attn.register_forward_pre_hook(on_attn, with_kwargs=True),
            block.attn.qkv.register_forward_hook(on_qkv),
        ]
    model.forward_features(images)
    for handle in handles:
        handle.remove()
    read = backbone.activations(images, seen)
    assert read.keys() == seen.keys()
    assert len(read) == 13
    assert all(torch.equal(read[tap], seen[tap]) for tap in seen)


@pytest.mark.parametrize(
    ("taps", "blocks", "norms"),
    [([], 0, 0), ([Tap(1, "query"), Tap(0, "block_in")], 2, 0), ([Tap(-1, "feature")], 4, 1)],
)
def test_activations_run_only_the_blocks_needed(backbone, images, taps, blocks, norms):
    """The forward stops after the deepest tapped block."""
    calls = []
    for block in backbone.model.blocks:
        block.register_forward_hook(lambda *a: calls.append("block"))
    backbone.model.norm.register_forward_hook(lambda *a: calls.append("norm"))
    assert backbone.activations(images, taps).keys() == set(taps)
    assert (calls.count("block"), calls.count("norm")) == (blocks, norms)


def test_activations_have_no_graph(backbone, images, randn):
    """Activations are read without gradients even under trainable injections."""
    key = randn(2, 48).requires_grad_()
    read = backbone.activations(images, [Tap(1, "query")], [PrefixInjection({0: (key, key)})])
    assert not read[Tap(1, "query")].requires_grad


def test_activations_of_a_missing_block(backbone, images, snapshot):
    """A tap beyond the depth is refused and nothing stays behind."""
    before = snapshot(backbone.model)
    with pytest.raises(ConfigError, match="blocks 0 to 3"):
        backbone.activations(images, [Tap(0, "query"), Tap(4, "query")])
    assert snapshot(backbone.model) == before


def test_read_sees_what_a_forward_of_the_backbone_sees(backbone, images, randn):
    """``read`` gives the activations of the first forward, under its own injections, and ends it there."""
    taps, reached, calls = [Tap(0, "attn_in"), Tap(1, "query")], [], []
    prefix = PrefixInjection({0: (randn(2, 48), randn(2, 48))})
    backbone.model.blocks[2].register_forward_hook(lambda *args: calls.append(args))

    def forward():
        backbone.features(images, [prefix])
        reached.append(True)

    read = backbone.read(taps, forward)
    expected = backbone.activations(images, taps, [prefix])
    assert read.keys() == expected.keys()
    assert all(torch.equal(read[tap], expected[tap]) for tap in taps)
    assert (reached, calls) == ([], [])
    forward()
    assert (len(reached), len(calls)) == (1, 1)


def test_read_needs_a_forward(backbone, images):
    """A function that never runs the backbone, or fails, is an error and ends the reading."""
    with pytest.raises(ValueError, match="it was not run"):
        backbone.read([Tap(0, "query")], lambda: None)
    with pytest.raises(ZeroDivisionError):
        backbone.read([Tap(0, "query")], lambda: 1 / 0)
    assert backbone.features(images).shape == (3, 48)


def test_bf16_equals_autocast_over_float32(make_vit, images, randn):
    """Weights stored in bf16 give the numbers and gradients of autocast over float32 weights, bit for bit."""
    results = []
    tensors = randn(5, 48), randn(5, 48)
    for stored in (False, True):
        backbone = Backbone.wrap(make_vit(), name="tiny")
        key, value = (tensor.clone().requires_grad_() for tensor in tensors)
        prefix = PrefixInjection({1: (key, value)})
        if stored:
            assert backbone.to_bf16() is backbone
            features, queries = (
                backbone.features(images, [prefix]),
                backbone.activations(images, [Tap(2, "query")]),
            )
        else:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                features = backbone.features(images, [prefix])
                queries = backbone.activations(images, [Tap(2, "query")])
        features.square().sum().backward()
        results.append((features, key.grad, value.grad, queries[Tap(2, "query")]))
        assert {features.dtype, key.grad.dtype, queries[Tap(2, "query")].dtype} == {torch.float32}
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_bf16_attends_plainly_on_a_cpu(backbone, images, randn, monkeypatch):
    """On a CPU bf16 never takes fused attention, and float32 always does."""
    fused = torch.nn.functional.scaled_dot_product_attention
    calls = []
    monkeypatch.setattr(
        torch.nn.functional, "scaled_dot_product_attention", lambda *a, **b: calls.append(0) or fused(*a, **b)
    )
    prefix = PrefixInjection({1: (randn(5, 48).requires_grad_(), randn(5, 48))})

    def count(grad):
        calls.clear()
        with torch.set_grad_enabled(grad):
            backbone.features(images, [prefix])
        return len(calls)

    assert (count(True), count(False)) == (4, 4)
    backbone.to_bf16()
    assert (count(True), count(False)) == (0, 0)
    assert all(block.attn.fused_attn for block in backbone.model.blocks)


def test_bf16_is_near_float32(backbone, images):
    """bf16 storage rounds the weights of Linear and Conv and nothing else."""
    exact = backbone.features(images)
    fingerprint = backbone.fingerprint
    backbone.to_bf16()
    kept = {name for name, p in backbone.model.named_parameters() if p.dtype == torch.float32}
    assert kept == {n for n, _ in backbone.model.named_parameters() if "norm" in n} | {
        "cls_token",
        "pos_embed",
    }
    assert backbone.dtype == torch.bfloat16
    assert backbone.fingerprint is fingerprint
    error = (backbone.features(images) - exact).norm() / exact.norm()
    assert 0 < error < 0.1


def test_dynamic_image_size_is_held_fixed(make_vit, images):
    """A model that could take other sizes is used at its own one, with the same numbers."""
    fixed, dynamic = (Backbone.wrap(make_vit(dynamic_img_size=flag), name="tiny") for flag in (False, True))
    assert torch.equal(fixed.features(images), dynamic.features(images))
    with pytest.raises(ValueError, match="expected images"):
        dynamic.features(torch.zeros(1, 3, 40, 40))


class _Subclass(VisionTransformer):
    pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"global_pool": "", "class_token": False}, "does not pool an image into one vector; build it with"),
        ({"num_classes": 5}, "no classifier"),
        ({"img_size": (32, 16)}, "takes images of 32 x 16 and lw2g feeds squares; set backbone.image_size"),
    ],
)
def test_refuses_other_models(make_vit, changes, message):
    """What gives no frozen features has one clear error."""
    with pytest.raises(ConfigError, match=message):
        Backbone.wrap(make_vit(**changes), name="odd")


@pytest.mark.parametrize(
    "build", [_Subclass, partial(VisionTransformer, block_fn=ParallelScalingBlock)], ids=["class", "blocks"]
)
def test_what_may_compute_anything_gives_features_alone(images, build):
    """A hook in a subclass or an unknown block may never run, so injections and taps are refused."""
    backbone = Backbone.wrap(
        build(img_size=32, patch_size=8, embed_dim=48, depth=1, num_heads=4, num_classes=0), name="odd"
    )
    assert (backbone.depth, backbone.fingerprint.pool) == (0, "token")
    assert backbone.features(images).shape == (3, 48)
    with pytest.raises(ConfigError, match="prefixes need blocks of attention and MLP, and backbone"):
        backbone.features(images, [PrefixInjection({0: (torch.ones(1, 48), torch.ones(1, 48))})])
    with pytest.raises(ConfigError, match="needs blocks of attention and MLP"):
        backbone.activations(images, [Tap(0, "query")])
    with pytest.raises(ConfigError, match="has no tokens"):
        backbone.tokens(images)


def test_refuses_checkpointing(make_vit):
    """Checkpointed blocks would be recomputed without the injections."""
    model = make_vit()
    model.set_grad_checkpointing(True)
    with pytest.raises(ConfigError, match="checkpointing"):
        Backbone.wrap(model, name="odd")


def test_claimed_weights_must_be_loaded():
    """A fresh model that claims a file is refused, and the same one as random is not."""
    model = VisionTransformer(img_size=32, patch_size=8, embed_dim=48, depth=1, num_heads=4, num_classes=0)
    assert Backbone.wrap(model, name="fresh").fingerprint.source == "random"
    with pytest.raises(DataError, match="all ones"):
        Backbone.wrap(model, name="fresh", source="package")


def test_statistics_need_three_channels(make_vit):
    """Input statistics are one number per channel."""
    with pytest.raises(ConfigError, match="three"):
        Backbone.wrap(make_vit(), name="tiny", mean=(0.5,))


def test_random_weights_follow_the_seed_alone():
    """Random weights depend on the seed and leave the caller's generator where it was."""
    torch.manual_seed(3)
    state = torch.get_rng_state()
    prints = [load_backbone(BARE, random_seed=seed).fingerprint for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), state)
    assert prints[0] == prints[1]
    assert prints[0].sha256 != prints[2].sha256
    assert (prints[0].source, prints[0].timm_name, prints[0].finetuned_on_1k) == ("random", BARE, None)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        prints[0].dim = 1


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("vit_base_patch16_224", {"pretrained": True}, r"add one of its tags: .*, \.orig_in21k"),
        ("vit_base_patch16_224.nope", {"pretrained": True}, "no such tag.*augreg_in21k_ft_in1k"),
        (
            "resnet50",
            {"pretrained": True},
            r"tags: (\.\w+, ){7}\.\w+ and \d+ more \(python -c .*'resnet50\.\*'",
        ),
        ("resnet50.nope", {"pretrained": True}, r"among (resnet50\.\w+, ){7}resnet50\.\w+ and \d+ more \("),
        ("vit_base_patch16_224_in21k", {"pretrained": True}, "use 'vit_base_patch16_224.augreg_in21k'"),
        ("vit_bse_patch16_224.dino", {"pretrained": True}, "did you mean 'vit_base_patch16_224'"),
        (BARE, {}, "one source of weights"),
        (BARE, {"pretrained": True, "random_seed": 0}, "one source of weights"),
        (
            "swin_tiny_patch4_window7_224",
            {"random_seed": 0, "image_size": 3},
            "cannot take images of 3 pixels",
        ),
        pytest.param(
            SAPIENS,
            {"random_seed": 0},
            "takes images of 1024 x 768 and lw2g feeds squares",
            marks=pytest.mark.skipif(not timm.is_model(SAPIENS), reason=f"this timm has no {SAPIENS}"),
        ),
        (BARE, {"random_seed": 0, "pool": "map"}, "'map' pooling is not offered by 'vit_tiny_patch16_224'"),
        ("resnet18", {"random_seed": 0, "pool": "token"}, "set backbone.pool to one of default, avg"),
    ],
)
def test_load_refuses(name, arguments, message):
    """A name or a combination that does not say which weights is refused with a way out."""
    with pytest.raises(ConfigError, match=message):
        load_backbone(name, **arguments)


def test_hub_out_of_reach(monkeypatch):
    """A hub that cannot be reached becomes one error that says what to do."""

    def unreachable(name, pretrained=False, **kwargs):
        if not pretrained:
            return timm.models.create_model(name, **kwargs)
        raise ConnectionError("name or service not known")

    monkeypatch.setattr(timm, "create_model", unreachable)
    with pytest.raises(DataError, match="with weights=FILE"):
        load_backbone(TAGGED, pretrained=True)


def test_hub_weights_are_described_by_their_tag(monkeypatch):
    """With a tag, statistics, the 1k flag and the name come from timm's own record."""

    def fetched(name, pretrained=False, **kwargs):
        model = timm.models.create_model(name, pretrained=False, **kwargs)
        torch.nn.init.normal_(model.norm.weight)
        return model

    monkeypatch.setattr(timm, "create_model", fetched)
    backbone = load_backbone(TAGGED, pretrained=True, device="cpu")
    config = timm.get_pretrained_cfg(TAGGED)
    fingerprint = backbone.fingerprint
    assert backbone.name == fingerprint.timm_name == TAGGED
    assert (fingerprint.mean, fingerprint.std) == (config.mean, config.std)
    assert (fingerprint.source, fingerprint.finetuned_on_1k) == ("timm hub tag", True)
    assert fingerprint.sha256 == state_sha256(backbone.model.state_dict())


@pytest.fixture
def weights_file(tmp_path):
    """A file with trained-looking weights and a classifier for timm's the smallest ViT."""
    model = timm.create_model(BARE, num_classes=3)
    torch.nn.init.normal_(model.norm.weight)
    path = tmp_path / "trained.safetensors"
    save_file(model.state_dict(), path)
    return path, model.eval()


def test_load_file_under_a_bare_name(weights_file):
    """A file makes a bare name legal; the classifier is dropped; the fingerprint is the file's."""
    path, model = weights_file
    half = (0.5, 0.5, 0.5)
    backbone = load_backbone(BARE, weights=path, mean=half, std=half)
    images = torch.randn(2, 3, 224, 224)
    torch.testing.assert_close(
        backbone.features(images), model.forward_head(model.forward_features(images), True)
    )
    assert backbone.fingerprint.sha256 == file_sha256(path)
    assert (backbone.fingerprint.source, backbone.fingerprint.finetuned_on_1k) == ("file", None)
    assert backbone.name == f"{BARE} (trained.safetensors)"


def test_load_file_needs_statistics(weights_file):
    """A bare name with a file must state the normalisation; a tag brings it."""
    path, _ = weights_file
    with pytest.raises(ConfigError) as refused:
        load_backbone(BARE, weights=path, mean=(0.5, 0.5, 0.5))
    typed = re.findall(r'--set "backbone\.(mean|std)=\[\d\.\d,\d\.\d,\d\.\d\]"', str(refused.value.remedy))
    assert typed == ["mean", "std"]
    tags = {"augreg_in21k": False, "augreg_in21k_ft_in1k": True}
    for tag, seen_1k in tags.items():
        fingerprint = load_backbone(f"{BARE}.{tag}", weights=path).fingerprint
        assert (fingerprint.mean, fingerprint.finetuned_on_1k) == ((0.5, 0.5, 0.5), seen_1k)


def test_load_file_at_another_image_size(weights_file):
    """Position embeddings are resampled as timm itself does."""
    path, model = weights_file
    backbone = load_backbone(TAGGED, weights=path, image_size=64)
    expected = checkpoint_filter_fn(model.state_dict(), backbone.model)
    assert (backbone.image_size, backbone.num_tokens, backbone.fingerprint.image_size) == (64, 17, 64)
    assert torch.equal(backbone.model.pos_embed, expected["pos_embed"])
    assert backbone.features(torch.randn(2, 3, 64, 64)).shape == (2, 192)


@pytest.mark.data
def test_real_vit_tiny():
    """Real ViT-Tiny weights load, also at 64 pixels, and their features tell images apart."""
    from pathlib import Path

    path = Path(__file__).resolve().parents[4] / "shared" / "data" / "vit_tiny_patch16_224.safetensors"
    if not path.is_file():
        pytest.skip("shared/data/vit_tiny_patch16_224.safetensors is not beside the repository")
    half = (0.5, 0.5, 0.5)
    for size in (224, 64):
        backbone = load_backbone("vit_tiny_patch16_224", weights=path, image_size=size, mean=half, std=half)
        images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1
        features = backbone.features(images)
        assert features.shape == (2, 192)
        assert (features[0] - features[1]).norm() > 0.05 * features[0].norm()
