"""Prefix attention against plain timm and the three-hook recipe: seconds, and bytes kept for backward."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from lw2g.vit.backbone import Backbone
from lw2g.vit.prefix import PrefixInjection

BLOCKS, LENGTH, BATCH = range(5), 20, 16


def by_hooks(model: nn.Module, images: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The recipe that needs no wrapper: dummy rows in, their keys and values replaced, rows dropped again."""
    handles = []
    for block in BLOCKS:
        attention: Any = model.blocks[block].attn  # type: ignore[union-attr, index]
        dim = key.shape[-1]

        def grow(module: Any, args: Any, kwargs: Any, dim: int = dim) -> Any:
            x = args[0]
            return (torch.cat([x, x.new_zeros(len(x), LENGTH, dim)], 1), *args[1:]), kwargs

        def fill(module: Any, args: Any, output: Tensor, block: int = block) -> Tensor:
            rows = torch.cat([torch.zeros_like(key[block]), key[block], value[block]], -1)
            return torch.cat([output[:, :-LENGTH], rows.expand(len(output), -1, -1)], 1)

        def drop(module: Any, args: Any, output: Tensor) -> Tensor:
            return output[:, :-LENGTH]

        handles += [
            attention.register_forward_pre_hook(grow, with_kwargs=True),
            attention.qkv.register_forward_hook(fill),
            attention.register_forward_hook(drop),
        ]
    try:
        return model.forward_features(images)[:, 0]  # type: ignore[operator, no-any-return]
    finally:
        for handle in handles:
            handle.remove()


def best(work: Callable[[], Tensor], rounds: int = 7) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work().sum().backward()
        times.append(time.perf_counter() - began)
    return min(times)


def kept(work: Callable[[], Tensor], frozen: nn.Module) -> int:
    """Return the bytes that a forward keeps for backward, beside the frozen weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in frozen.parameters()}
    stored: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        stored[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        work()
    return sum(tensor.untyped_storage().nbytes() for place, tensor in stored.items() if place not in weights)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = VisionTransformer(img_size=64, patch_size=8, embed_dim=192, depth=12, num_heads=3, num_classes=0)
    backbone = Backbone.wrap(model, name="random ViT-Tiny")
    images = torch.randn(BATCH, 3, 64, 64)
    key = nn.Parameter(torch.rand(len(BLOCKS), LENGTH, 192))
    value = nn.Parameter(torch.rand(len(BLOCKS), LENGTH, 192))
    shared = PrefixInjection({block: (key[block], value[block]) for block in BLOCKS})
    chosen = torch.zeros(BATCH, dtype=torch.long)
    nothing = nn.Parameter(torch.zeros(()))

    def bare() -> Tensor:
        return model.forward_features(images + nothing)[:, 0]

    plain, held = best(bare), kept(bare, model)

    def mixed() -> Tensor:
        keys, values = torch.stack([key, key])[chosen], torch.stack([value, value])[chosen]
        return backbone.features(
            images, [PrefixInjection({block: (keys[:, block], values[:, block]) for block in BLOCKS})]
        )

    for name, work in (
        ("wrapper, one set", lambda: backbone.features(images, [shared])),
        ("wrapper, a set per sample", mixed),
        ("hook recipe", lambda: by_hooks(model, images, key, value)),
    ):
        seconds, memory = best(work) / plain, kept(work, model) / held
        print(f"{name:26s} {seconds:.2f} x plain timm's seconds, {memory:.2f} x its memory for backward")
