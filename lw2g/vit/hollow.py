"""Parts of a backbone that stand for the whole where its work is counted instead of done."""

from __future__ import annotations

import copy
from typing import Any, cast

import attrs
from timm.layers import Mlp
from torch import Tensor, nn

from lw2g.vit.backbone import Backbone

__all__ = ["Unmixed", "first_blocks", "hollowed"]

_HIDDEN = 4


class Unmixed(nn.Linear):
    """A linear layer of a whole one's size and weights that mixes nothing: it repeats its first input."""

    def __init__(self, whole: nn.Linear) -> None:
        super().__init__(whole.in_features, whole.out_features, whole.bias is not None, device="meta")
        for name, value in whole.named_parameters():
            setattr(self, name, nn.Parameter(value.detach(), requires_grad=False))  # the same memory

    def forward(self, input: Tensor) -> Tensor:
        """Return the first channel in place of each output, ``[..., out]``."""
        return input[..., :1].expand(*input.shape[:-1], self.out_features)


class _Corner(nn.Module):
    """Embeds the first patch of an image and leaves the others out."""

    num_patches = 1
    grid_size = (1, 1)

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.img_size, self.patch_size = whole.img_size, whole.patch_size
        self.proj, self.norm = copy.deepcopy(whole.proj), copy.deepcopy(whole.norm)

    def forward(self, images: Tensor) -> Tensor:
        rows, columns = self.patch_size
        out: Tensor = self.norm(self.proj(images[:, :, :rows, :columns]).flatten(2).transpose(1, 2))
        return out


def hollowed(backbone: Backbone) -> Backbone:
    """Return a backbone of the same images, width, depth and heads that computes next to nothing.

    It sees one patch of an image, and its MLPs mix nothing: whatever a method adds has the size and the place
    that it has in the whole one.

    >>> import torch
    >>> from timm.models.vision_transformer import VisionTransformer
    >>> size = dict(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=4, num_classes=0)
    >>> hollow = hollowed(Backbone.wrap(VisionTransformer(**size), name="tiny random ViT"))
    >>> hollow.features(torch.zeros(5, 3, 32, 32)).shape, hollow.num_tokens
    (torch.Size([5, 48]), 2)
    """
    model = backbone.model
    device, dtype = backbone.device, backbone.dtype
    instead: dict[int, object] = {id(model.patch_embed): _Corner(model.patch_embed)}
    for block in model.blocks:
        instead[id(block.mlp)] = _light(block.mlp, backbone.dim).to(device, dtype)
    if model.pos_embed is not None:
        rows = model.pos_embed.shape[1] - model.patch_embed.num_patches + 1
        instead[id(model.pos_embed)] = nn.Parameter(model.pos_embed[:, :rows].detach().clone())
    return Backbone(copy.deepcopy(model, instead), name=backbone.name, fingerprint=backbone.fingerprint)


def _light(whole: nn.Module, dim: int) -> nn.Module:
    """Return an MLP that takes next to no time: of the whole one's sizes where it is a plain one."""
    made: nn.Module = Mlp(dim, _HIDDEN)
    if type(whole) is Mlp:
        layers = (whole.fc1, whole.fc2)
        made = copy.deepcopy(whole, {id(layer): Unmixed(cast(nn.Linear, layer)) for layer in layers})
    return made


def first_blocks(backbone: Backbone, count: int) -> Backbone:
    """Return a backbone of the first blocks alone."""
    model = backbone.model
    blocks = nn.Sequential(*(copy.deepcopy(block) for block in model.blocks[:count]))
    return Backbone(
        copy.deepcopy(model, {id(model.blocks): blocks}),
        name=f"{len(blocks)} blocks of {backbone.name}",
        fingerprint=attrs.evolve(backbone.fingerprint, depth=len(blocks)),
    )
