"""The plain ViT with our own forward, so that the common backbones open without importing timm.

timm brings torchvision and torch's compiler along, and takes longer to import than a photo takes to answer.
Parts, their names and their order are those of timm's ``VisionTransformer``, so that injections, taps and
weights fit either; in eager mode the arithmetic has the same bits. Every other architecture is timm's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import attrs
import torch
from attrs.validators import ge
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "PLAIN",
    "PlainAttention",
    "PlainBlock",
    "PlainShape",
    "PlainViT",
    "emptied",
    "initialise",
    "plain_shape",
]

_EPS = 1e-6
_RANDOM = 0.02
"""Standard deviation of random weights."""
_WIDER = 4
"""Width of the MLP's inner layer over that of a token."""


@attrs.frozen(kw_only=True)
class PlainShape:
    """The sizes that tell plain ViTs apart.

    Attributes:
        image_size: Side of the input in pixels.
        patch_size: Side of a patch in pixels.
        dim: Width of a token.
        depth: Number of blocks.
        heads: Attention heads per block.
    """

    image_size: int = attrs.field(default=224, validator=ge(1))
    patch_size: int = attrs.field(default=16, validator=ge(1))
    dim: int = attrs.field(validator=ge(1))
    depth: int = attrs.field(default=12, validator=ge(1))
    heads: int = attrs.field(validator=ge(1))


PLAIN: Mapping[str, PlainShape] = {
    "vit_tiny_patch16_224": PlainShape(dim=192, heads=3),
    "vit_tiny_patch16_384": PlainShape(dim=192, heads=3, image_size=384),
    "vit_small_patch16_224": PlainShape(dim=384, heads=6),
    "vit_small_patch16_384": PlainShape(dim=384, heads=6, image_size=384),
    "vit_small_patch32_224": PlainShape(dim=384, heads=6, patch_size=32),
    "vit_small_patch8_224": PlainShape(dim=384, heads=6, patch_size=8),
    "vit_base_patch16_224": PlainShape(dim=768, heads=12),
    "vit_base_patch16_384": PlainShape(dim=768, heads=12, image_size=384),
    "vit_base_patch32_224": PlainShape(dim=768, heads=12, patch_size=32),
    "vit_base_patch8_224": PlainShape(dim=768, heads=12, patch_size=8),
    "vit_large_patch16_224": PlainShape(dim=1024, heads=16, depth=24),
    "vit_large_patch16_384": PlainShape(dim=1024, heads=16, depth=24, image_size=384),
    "deit_tiny_patch16_224": PlainShape(dim=192, heads=3),
    "deit_small_patch16_224": PlainShape(dim=384, heads=6),
    "deit_base_patch16_224": PlainShape(dim=768, heads=12),
}
"""timm's architectures that are plain ViTs; a test compares each with timm's."""


def plain_shape(timm_name: str) -> PlainShape | None:
    """Return the sizes of a plain ViT by timm's name, with tag or without; None for other architectures."""
    return PLAIN.get(timm_name.partition(".")[0])


class _Patches(nn.Module):
    """Cuts an image into patches and maps each to a token."""

    def __init__(self, shape: PlainShape) -> None:
        super().__init__()
        side = shape.image_size
        patch = shape.patch_size
        self.img_size = (side, side)
        self.patch_size = (patch, patch)
        self.grid_size = (side // patch, side // patch)
        self.num_patches = self.grid_size[0] * self.grid_size[1]
        self.proj = nn.Conv2d(3, shape.dim, kernel_size=patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``[B, 3, S, S]`` to tokens ``[B, N, d]``."""
        tokens: Tensor = self.proj(images).flatten(2).transpose(1, 2)
        return tokens


class PlainAttention(nn.Module):
    """Softmax attention of several heads with one projection for queries, keys and values."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.head_dim = dim // heads
        self.scale = self.head_dim**-0.5
        # the variable is timm's, so that it means the same for either forward
        self.fused_attn = os.environ.get("TIMM_FUSED_ATTN", "1") != "0"
        self.qkv = nn.Linear(dim, 3 * dim)
        # modules that do nothing stand where timm has them: injections and taps call or hook them
        self.q_norm = nn.Identity()
        self.k_norm = nn.Identity()
        self.attn_drop = nn.Dropout(0.0)
        self.norm = nn.Identity()
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(0.0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of tokens to tokens, ``[B, N, d]``."""
        batch, tokens, dim = x.shape
        fused = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim)
        q, k, v = fused.permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused_attn:
            out = functional.scaled_dot_product_attention(q, k, v)
        else:
            logits = (q * self.scale) @ k.transpose(-2, -1)
            out = logits.softmax(dim=-1) @ v
        projected: Tensor = self.proj(out.transpose(1, 2).reshape(batch, tokens, dim))
        return projected


class _Mlp(nn.Module):
    """Two linear layers with GELU between them, token by token."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, _WIDER * dim)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(_WIDER * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens ``[B, N, d]`` to tokens ``[B, N, d]``."""
        out: Tensor = self.fc2(self.act(self.fc1(x)))
        return out


class PlainBlock(nn.Module):
    """Attention and MLP, each behind a norm and added to the stream."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=_EPS)
        self.attn = PlainAttention(dim, heads)
        self.drop_path1 = nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=_EPS)
        self.mlp = _Mlp(dim)
        # an adapter hooks it: the last module before the MLP's branch is added
        self.drop_path2 = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map the stream ``[B, N, d]`` before the block to that after it."""
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        out: Tensor = x + self.drop_path2(self.mlp(self.norm2(x)))
        return out


class PlainViT(nn.Module):
    """A ViT with class token and learned positions, whose feature is the normalised class token.

    Args:
        shape: Its sizes.
        name: timm's name of the architecture, for messages.
    """

    def __init__(self, shape: PlainShape, name: str = "plain ViT") -> None:
        super().__init__()
        dim = shape.dim
        self.pretrained_cfg = {"architecture": name, "classifier": "head"}
        self.num_features = self.head_hidden_size = self.embed_dim = dim
        self.num_prefix_tokens = 1
        self.no_embed_class = False
        self.global_pool = "token"
        self.patch_embed = _Patches(shape)
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + self.patch_embed.num_patches, dim))
        self.blocks = nn.Sequential(*(PlainBlock(dim, shape.heads) for _ in range(shape.depth)))
        self.norm = nn.LayerNorm(dim, eps=_EPS)
        self.fc_norm = nn.Identity()
        self.head = nn.Identity()

    def get_classifier(self) -> nn.Module:
        """Return the place of the classifier, which is empty."""
        return self.head

    def forward_features(self, images: Tensor) -> Tensor:
        """Return all tokens after the final norm, ``[B, 3, S, S]`` -> ``[B, 1 + N, d]``."""
        patches = self.patch_embed(images)
        tokens = torch.cat([self.cls_token.expand(patches.shape[0], -1, -1), patches], dim=1)
        out: Tensor = self.norm(self.blocks(tokens + self.pos_embed))
        return out

    def forward_head(self, x: Tensor, pre_logits: bool = True) -> Tensor:
        """Return the class token ``[B, d]``; there is no classifier behind it."""
        row: Tensor = self.fc_norm(x[:, 0])
        return row

    def forward(self, images: Tensor) -> Tensor:
        """Return the feature of each image, ``[B, d]``."""
        return self.forward_head(self.forward_features(images))


def emptied(model: PlainViT) -> PlainViT:
    """Return a plain ViT of the meta device with memory for its weights, which hold anything yet."""
    # not `to_empty`, which imports sympy
    empty = {key: torch.empty(value.shape) for key, value in model.state_dict().items()}
    model.load_state_dict(empty, assign=True)
    return model


def initialise(model: PlainViT, seed: int) -> None:
    """Give a plain ViT random weights from a seed; no generator of torch moves."""
    generator = torch.Generator().manual_seed(seed)
    for key, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=_RANDOM, generator=generator)
        else:
            is_scale = key.endswith(("norm1.weight", "norm2.weight", "norm.weight"))
            nn.init.constant_(parameter, 1.0 if is_scale else 0.0)


def checkpoint_filter_fn(state: dict[str, Tensor], model: PlainViT, **options: Any) -> dict[str, Tensor]:
    """Convert a file in another layout by timm's own filter (:mod:`lw2g.vit.layouts` finds it here)."""
    from timm.models.vision_transformer import checkpoint_filter_fn as convert

    converted: dict[str, Tensor] = convert(state, model, **options)
    return converted
