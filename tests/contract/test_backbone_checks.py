"""Checks of backbones: registered ones pass them, broken ones fail the one they break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from broken_components import Broken
from lw2g.interfaces.component import BackboneComponent, NoOptions
from lw2g.vit.backbone import Backbone
from lw2g.vit.loading import load_backbone
from lw2g_testing import ContractCase, contract_cases, tiny_backbone, tiny_catalogue


def component(name: str, build: Callable[..., Any]) -> BackboneComponent:
    return BackboneComponent(name=name, config=NoOptions, summary="for tests", build=build)


def changed(name: str, change: Callable[[Backbone], Any]) -> BackboneComponent:
    """Return a backbone that a change has broken."""

    def build(config: NoOptions, weights: Any, image_size: int | None) -> Any:
        backbone = tiny_backbone(depth=2, image_size=image_size or 16)
        return change(backbone) or backbone

    return component(name, build)


BROKEN = Broken(changed)
breaks = BROKEN.breaks


@breaks(
    "is_frozen_and_as_large_as_it_states", "states heads 8 and its model has 4; build it with Backbone.wrap"
)
def another_number_of_heads(backbone):
    return Backbone(backbone.model, name="x", fingerprint=attrs.evolve(backbone.fingerprint, heads=8))


@breaks("features_are_of_their_image_alone", r"features are torch.float64 \[4, 32\]; they must be float32")
def double_features(backbone):
    plain = backbone.features
    backbone.features = lambda *given, **options: plain(*given, **options).double()


@breaks("is_frozen_and_as_large_as_it_states", "build returns 'VisionTransformer'; return a Backbone")
def bare_model(backbone):
    return backbone.model


@breaks("is_frozen_and_as_large_as_it_states", "'model.norm.weight' requires a gradient")
def trained_norm(backbone):
    backbone.model.norm.requires_grad_(True)


@breaks("is_frozen_and_as_large_as_it_states", "into train mode")
def trainable_mode(backbone):
    backbone.train = lambda mode=True: backbone.model.train(mode)


@breaks("features_are_of_their_image_alone", "draws from the global generator of torch; switch off dropout")
def dropout(backbone):
    backbone.model.norm.register_forward_hook(lambda module, given, out: out + torch.rand(()))


@breaks("features_are_of_their_image_alone", "must hold no moving state")
def counting(backbone):
    calls = []

    def count(module, given, out):
        calls.append(1)
        return out * len(calls)

    backbone.model.norm.register_forward_hook(count)


@breaks("features_are_of_their_image_alone", "use no norm or statistic over the batch")
def batch_norm(backbone):
    backbone.model.norm.register_forward_hook(lambda module, given, out: out - out.mean(dim=0))


@breaks(
    "taps_fire", "tap blocks.1.query reads nothing where float32 .* is due; let the forward call timm's own"
)
def skipped_block(backbone):
    backbone.model.blocks[1].attn.forward = lambda x, **options: x


@breaks("taps_fire", r"tap feature reads .* \[4, 16\]")
def narrow_features(backbone):
    backbone.model.norm.register_forward_hook(lambda module, given, out: out[..., :16])


@breaks(
    "injection_leaves_nothing_behind", "prefixes change no feature; let the forward call timm's own blocks"
)
def deaf(backbone):
    plain = backbone.features
    backbone.features = lambda images, injections=(): plain(images)


@breaks("injection_leaves_nothing_behind", "a forward with prompt tokens leaves the model changed")
def growing_norm(backbone):
    def grow(module, given):
        if given[0].shape[1] > backbone.num_tokens:
            module.weight.data *= 1.1

    backbone.model.blocks[-1].norm1.register_forward_pre_hook(grow)


@breaks("injection_leaves_nothing_behind", "features differ after a forward with prompt tokens")
def remembering(backbone):
    seen = []

    def remember(module, given, out):
        if given[0].shape[1] > backbone.num_tokens:
            seen.append(1)
        return out + len(seen)

    backbone.model.blocks[-1].norm1.register_forward_hook(remember)


@breaks("fingerprint_names_the_weights", "two fingerprints; hash the weights alone")
def random_name(backbone):
    changed = attrs.evolve(backbone.fingerprint, sha256=f"{torch.randint(10**9, ()):064d}")
    return Backbone(backbone.model, name="x", fingerprint=changed)


@breaks("fingerprint_names_the_weights", "one fingerprint and different weights; load every weight")
def unseeded(backbone):
    backbone.model.cls_token.data.normal_()


@breaks("fingerprint_names_the_weights", "its sha256 is not that of its weights")
def changed_after_wrapping(backbone):
    backbone.model.cls_token.data.zero_()


@breaks("fingerprint_names_the_weights", "its sha256 is 'v1'; give the SHA-256")
def named_by_hand(backbone):
    changed = attrs.evolve(backbone.fingerprint, sha256="v1", source="file")
    return Backbone(backbone.model, name="x", fingerprint=changed)


@breaks("image_size_can_be_chosen", "asked for images of 24 pixels it takes 16; pass image_size on")
def one_size(backbone):
    return tiny_backbone(depth=2)


@breaks("image_size_can_be_chosen", "not finite; resample")
def padded_positions(backbone):
    if backbone.image_size > 16:
        backbone.model.pos_embed.data[:, 5:] = torch.nan


BACKBONES = [one.component for one in tiny_catalogue().components() if one.component.kind == "backbone"]
HERE = [one for one in BACKBONES if one.embedded]
ELSEWHERE = [one for one in BACKBONES if not one.embedded]


@pytest.mark.parametrize("case", contract_cases(*HERE), ids=str)
def test_embedded_backbones_keep_their_promises(case: ContractCase) -> None:
    """Every backbone that ships with a plugin passes every check."""
    case.run()


@pytest.mark.slow
@pytest.mark.parametrize("record", ELSEWHERE, ids=lambda one: one.name)
def test_other_backbones_keep_their_promises_or_are_not_here(record: BackboneComponent) -> None:
    """A backbone whose weights are on this machine passes every check, another one is skipped."""
    results = [case.result() for case in contract_cases(record)]
    assert [result.message for result in results if result.status == "failed"] == []
    assert len({result.status for result in results}) == 1


test_broken_ones_fail, test_every_check_is_broken = BROKEN.tests("backbone")


def test_weights_that_would_be_fetched_are_skipped_without_a_wait() -> None:
    """A backbone that is neither here nor cached says so, and is built once for all checks."""
    built = []

    def build(config: NoOptions, weights: Any, image_size: int | None) -> Backbone:
        built.append(image_size)
        return load_backbone("vit_tiny_patch16_224.augreg_in21k", pretrained=True)

    results = [case.result() for case in contract_cases(component("fetched", build))]
    if results[0].status == "passed":
        pytest.skip("the weights are cached on this machine")
    assert {result.status for result in results} == {"skipped"}
    assert all("cannot be fetched from the hub" in result.message for result in results)
    assert built == [None]


def test_a_model_of_another_kind_is_told_by_the_framework() -> None:
    """What the injections were not written for is refused when it is wrapped, and so not judged."""

    def build(config: NoOptions, weights: Any, image_size: int | None) -> Backbone:
        model = VisionTransformer(
            img_size=16, patch_size=8, embed_dim=32, depth=1, num_heads=4, global_pool="avg"
        )
        return Backbone.wrap(model, name="x")

    result = contract_cases(component("averaged", build))[0].result()
    assert result.status == "skipped"
    assert "a backbone has no classifier; build the model with num_classes=0" in result.message
