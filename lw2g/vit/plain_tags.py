"""What the tags of published plain ViTs say of their weights, so that a file opens without importing timm.

timm knows all of it, and takes longer to import than a photo takes to answer. A tag that is not listed is
asked of timm, as are weights from its hub.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

__all__ = ["PLAIN_TAGS", "TagFacts"]

_HALF = (0.5, 0.5, 0.5)
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's pixels."""


@attrs.frozen
class TagFacts:
    """The facts of the weights under a tag; where there is none, those that most ViTs were trained with.

    Attributes:
        mean: Input mean per channel.
        std: Input standard deviation per channel.
        interpolation: How images are resized.
        finetuned_on_1k: Whether the weights have seen ImageNet-1k labels; None if unknown.
    """

    mean: Sequence[float] = _HALF
    std: Sequence[float] = _HALF
    interpolation: str = "bicubic"
    finetuned_on_1k: bool | None = None


_OF_21K = TagFacts(finetuned_on_1k=False)
_OF_1K = TagFacts(finetuned_on_1k=True)
_DEIT = TagFacts(*_IMAGENET, finetuned_on_1k=True)
_SELF_SUPERVISED = TagFacts(*_IMAGENET, finetuned_on_1k=False)

PLAIN_TAGS: Mapping[str, TagFacts] = {
    "vit_tiny_patch16_224.augreg_in21k": _OF_21K,
    "vit_tiny_patch16_224.augreg_in21k_ft_in1k": _OF_1K,
    "vit_tiny_patch16_384.augreg_in21k_ft_in1k": _OF_1K,
    "vit_small_patch16_224.augreg_in21k": _OF_21K,
    "vit_small_patch16_224.augreg_in21k_ft_in1k": _OF_1K,
    "vit_small_patch16_224.augreg_in1k": _OF_1K,
    "vit_small_patch16_224.dino": _SELF_SUPERVISED,
    "vit_small_patch16_384.augreg_in21k_ft_in1k": _OF_1K,
    "vit_small_patch16_384.augreg_in1k": _OF_1K,
    "vit_small_patch32_224.augreg_in21k": _OF_21K,
    "vit_small_patch32_224.augreg_in21k_ft_in1k": _OF_1K,
    "vit_small_patch8_224.dino": _SELF_SUPERVISED,
    "vit_base_patch16_224.augreg_in21k": _OF_21K,
    "vit_base_patch16_224.augreg_in21k_ft_in1k": _OF_1K,
    "vit_base_patch16_224.augreg2_in21k_ft_in1k": _OF_1K,
    "vit_base_patch16_224.augreg_in1k": _OF_1K,
    "vit_base_patch16_224.orig_in21k": _OF_21K,
    "vit_base_patch16_224.orig_in21k_ft_in1k": _OF_1K,
    "vit_base_patch16_224.sam_in1k": _OF_1K,
    "vit_base_patch16_224.dino": _SELF_SUPERVISED,
    "vit_base_patch16_224.mae": _SELF_SUPERVISED,
    "vit_base_patch16_384.augreg_in21k_ft_in1k": _OF_1K,
    "vit_base_patch16_384.augreg_in1k": _OF_1K,
    "vit_base_patch16_384.orig_in21k_ft_in1k": _OF_1K,
    "vit_base_patch32_224.augreg_in21k": _OF_21K,
    "vit_base_patch32_224.augreg_in21k_ft_in1k": _OF_1K,
    "vit_base_patch32_224.augreg_in1k": _OF_1K,
    "vit_base_patch32_224.orig_in21k": _OF_21K,
    "vit_base_patch32_224.sam_in1k": _OF_1K,
    "vit_base_patch8_224.augreg_in21k": _OF_21K,
    "vit_base_patch8_224.augreg_in21k_ft_in1k": _OF_1K,
    "vit_base_patch8_224.augreg2_in21k_ft_in1k": _OF_1K,
    "vit_base_patch8_224.dino": _SELF_SUPERVISED,
    "vit_large_patch16_224.augreg_in21k": _OF_21K,
    "vit_large_patch16_224.augreg_in21k_ft_in1k": _OF_1K,
    "vit_large_patch16_224.orig_in21k": _OF_21K,
    "vit_large_patch16_224.mae": _SELF_SUPERVISED,
    "vit_large_patch16_384.augreg_in21k_ft_in1k": _OF_1K,
    "deit_tiny_patch16_224.fb_in1k": _DEIT,
    "deit_small_patch16_224.fb_in1k": _DEIT,
    "deit_base_patch16_224.fb_in1k": _DEIT,
}
"""By timm's name with its tag; a test compares each with timm's."""
