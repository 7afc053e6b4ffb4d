"""The model's own feature and joined ones come of one forward, whatever the model pools by."""

from __future__ import annotations

import timm
import torch
from timm.models.vision_transformer import VisionTransformer

from lw2g.vit.backbone import Backbone
from lw2g.vit.own_feature import gathering_own, own_columns, with_layers
from lw2g.vit.pooling import layers_within

SIZE = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 3, "num_heads": 4, "num_classes": 0}


def test_both_features_are_those_of_backbones_of_their_own() -> None:
    """For class tokens, means of patches beside registers, and a model without a class token."""
    images = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for kind in (
        {"global_pool": "token"},
        {"global_pool": "avg", "reg_tokens": 2},
        {"global_pool": "avg", "class_token": False},
    ):
        torch.manual_seed(0)
        model = VisionTransformer(**SIZE, **kind)
        own = Backbone.wrap(model, name="own")
        several = with_layers(own, 3)
        expected = Backbone.wrap(model, name="several", layers=3)
        assert several.fingerprint.width == expected.width
        with torch.no_grad(), gathering_own(own) as gathered, several.joining():
            rows = torch.cat([several.features(images[:3]), several.features(images[3:])])
        with torch.no_grad(), expected.joining():
            torch.testing.assert_close(rows, expected.features(images))
        torch.testing.assert_close(torch.cat(gathered), own.features(images), rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            own.features(images)
        assert len(gathered) == 2


def test_as_many_layers_are_joined_as_a_width_allows() -> None:
    """Two parts of 48 numbers a layer, at most three blocks and the norm; of a convolutional network one."""
    model = VisionTransformer(**SIZE)
    assert [layers_within(model, widest) for widest in (90, 96, 200, 288, 4608)] == [1, 1, 2, 3, 4]
    assert layers_within(model, 200, "token") == 4
    convolutional = timm.create_model("resnet10t", pretrained=False, num_classes=0)
    assert layers_within(convolutional, 4608) == 1
    assert Backbone.wrap(model, name="tiny", layers="auto").fingerprint.layers == 4
    assert Backbone.wrap(convolutional, name="resnet", image_size=32, layers="auto").fingerprint.layers == 1


def test_the_own_columns_of_a_joined_feature_are_the_last_layer_s() -> None:
    """They hold the model's own feature at unit variance: class tokens, or the mean of the patches."""
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for kind, pool in (({}, "both"), ({}, "token"), ({"global_pool": "avg", "class_token": False}, "avg")):
        torch.manual_seed(0)
        model = VisionTransformer(**SIZE, **kind)
        joined = Backbone.wrap(model, name="joined", layers=3, pool=pool)
        first, last = own_columns(joined)
        with torch.no_grad(), joined.joining():
            rows = joined.features(images)[:, first:last]
        with torch.no_grad():
            own = Backbone.wrap(model, name="own").features(images)
        unit = torch.nn.functional.layer_norm(own, own.shape[-1:])
        torch.testing.assert_close(rows, unit, rtol=1e-3, atol=1e-3)
    assert own_columns(Backbone.wrap(model, name="own")) == (0, 48)
