"""The sizes of a timm model, and what it must offer to give frozen features at all."""

from __future__ import annotations

from typing import Any

import attrs
from torch import nn

from lw2g.errors import ConfigError
from lw2g.vit.anatomy import attention_of, blocks_of, has_blocks, model_name, num_tokens, timm_config

__all__ = ["Sizes", "bytes_per_image", "require_frozen_features", "sizes_of"]

_FLOAT = 4
"""Bytes of a float32."""
_METHODS = ("forward_features", "forward_head", "get_classifier")


@attrs.frozen(kw_only=True)
class Sizes:
    """The sizes that injections, heads and transforms read.

    Attributes:
        image_size: Side of the input in pixels.
        dim: Width of a feature.
        depth: Number of blocks of attention and MLP; 0 for a network of another kind.
        heads: Attention heads per block; 0 without blocks.
        patch_size: Side of a patch in pixels; 0 without patches.
        num_tokens: Rows of the token stream; 0 without one.
    """

    image_size: int
    dim: int
    depth: int
    heads: int
    patch_size: int
    num_tokens: int


def require_frozen_features(model: Any) -> None:
    """Refuse what gives no frozen features: it must pool, without a classifier and without checkpointing.

    Raises:
        ConfigError: The model is refused, in one line.
    """
    is_model = isinstance(model, nn.Module)  # a class is none
    if not is_model or not all(hasattr(model, name) for name in _METHODS):
        raise ConfigError(
            f"expected a timm model with forward_features and forward_head, got {type(model).__name__!r}",
            "build it with timm.create_model, and load converted weights into it",
        )
    classifier: Any = model.get_classifier()
    heads = classifier if isinstance(classifier, tuple) else (classifier,)
    if any(isinstance(head, nn.Module) and next(head.parameters(), None) is not None for head in heads):
        raise ConfigError("a backbone has no classifier", "build the model with num_classes=0")
    # only modules that can do it have the flag
    if any(getattr(module, "grad_checkpointing", False) for module in model.modules()):
        # the backward would recompute blocks without the injections
        raise ConfigError("gradient checkpointing is not supported", "call set_grad_checkpointing(False)")


def sizes_of(model: Any, image_size: int | None = None) -> Sizes:
    """Return the sizes of a model.

    Args:
        model: The timm model.
        image_size: Side of its input, for a model that is not built for one.

    Raises:
        ConfigError: Its images are not square, or it does not say how large they are.
    """
    side = _side(model, image_size)
    if not has_blocks(model):
        return Sizes(
            image_size=side, dim=model.head_hidden_size, depth=0, heads=0, patch_size=0, num_tokens=0
        )
    blocks = blocks_of(model)
    patch = _patch(model, side)
    # NaFlex counts its patches when it sees the image
    tokens = num_tokens(model) or (side // patch) ** 2 + model.num_prefix_tokens
    return Sizes(
        image_size=side,
        dim=model.embed_dim,
        depth=len(blocks),
        heads=attention_of(blocks[0]).num_heads,
        patch_size=patch,
        num_tokens=tokens,
    )


def bytes_per_image(model: nn.Module, sizes: Sizes) -> int:
    """Return a lower bound of an image's bytes in a forward: image, tokens and one hidden layer, if any."""
    image = 3 * sizes.image_size**2
    if not sizes.depth:
        return _FLOAT * image
    blocks: Any = model.blocks
    # the width of what the second layer multiplies: a gated MLP has no layer of that name before it
    hidden = blocks[0].mlp.fc2.in_features
    return int(_FLOAT * (image + sizes.num_tokens * (sizes.dim + hidden)))


def _side(model: Any, image_size: int | None) -> int:
    """Return the side in pixels of the images that a model takes."""
    # networks without patches, and those for images of any size, are not built for one
    built_for = getattr(getattr(model, "patch_embed", None), "img_size", None)
    if built_for is None and image_size is not None:
        built_for = (image_size, image_size)
    if built_for is None:
        size = timm_config(model).get("input_size")
        if not size:
            raise ConfigError(
                f"model {model_name(model)} does not say how large its images are", "set backbone.image_size"
            )
        built_for = size[1:]  # the channels come first
    if len(set(built_for)) != 1:
        tall, wide = built_for
        raise ConfigError(
            f"backbone takes images of {tall} x {wide} and lw2g feeds squares",
            "set backbone.image_size, a multiple of its patch",
        )
    return int(built_for[0])


def _patch(model: Any, side: int) -> int:
    """Return the side of a patch on the image: a hybrid's own is that on the grid of its stem."""
    embed = getattr(model, "patch_embed", None)
    if embed is None:
        return int(model.embeds.patch_size[0])
    if hasattr(embed, "backbone"):  # a hybrid's stem
        return side // int(embed.grid_size[0])
    return int(embed.patch_size[0])
