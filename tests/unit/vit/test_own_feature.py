"""The model's own feature and joined ones come of one forward, whatever the model pools by."""

from __future__ import annotations

import timm
import torch
from timm.models.vision_transformer import VisionTransformer

from lw2g.vit.backbone import Backbone
from lw2g.vit.own_feature import gathering_own, joined_layers, with_layers

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
    backbone = Backbone.wrap(VisionTransformer(**SIZE), name="tiny")
    assert [joined_layers(backbone, widest) for widest in (90, 96, 200, 288, 4608)] == [1, 1, 2, 3, 4]
    convolutional = timm.create_model("resnet10t", pretrained=False, num_classes=0)
    assert joined_layers(Backbone.wrap(convolutional, name="resnet", image_size=32), 4608) == 1
