"""Sets of peft's low-rank adapters, and how they take part in a forward of the frozen backbone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, cast

import torch
from peft import LoraConfig, inject_adapter_in_model
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from lw2g.plugin import attention_of, block_at

__all__ = ["AdapterInjection", "AdapterSet"]

_ADAPTER = "default"


class AdapterSet(nn.Module):
    """What peft adds to some linear layers: to each a down factor (``lora_A``) and an up factor (``lora_B``).

    peft edits modules in place. Here it edits a container that holds the backbone's layers a second time, so
    that the backbone keeps its own. peft's layers are no children of the set: its state dict and its
    parameters are the factors alone, and no weight of the backbone.

    Args:
        frozen: The frozen layers by block.
        rank: Rank of an adapter.
        alpha: An adapter is scaled by ``alpha / rank``.
        init: How down factors start; up factors start at zero.

    Attributes:
        down: A linear layer per block, weight ``[rank, in]``.
        up: A linear layer per block, weight ``[out, rank]``.
    """

    def __init__(
        self,
        frozen: Mapping[int, nn.Module],
        *,
        rank: int,
        alpha: float,
        init: Literal["gaussian", "kaiming"],
    ) -> None:
        super().__init__()
        container = nn.ModuleDict({str(block): layer for block, layer in frozen.items()})
        config = LoraConfig(
            r=rank,
            lora_alpha=cast(int, alpha),
            target_modules=list(container),
            init_lora_weights="gaussian" if init == "gaussian" else True,
        )
        inject_adapter_in_model(config, cast(Any, container), adapter_name=_ADAPTER)
        adapted: list[Any] = list(container.values())
        # a tuple, because a module list would make them children
        self._layers: tuple[nn.Module, ...] = tuple(adapted)
        # float32 whatever the backbone is stored in: they are trained
        self.down = nn.ModuleList(layer.lora_A[_ADAPTER].float() for layer in adapted)
        self.up = nn.ModuleList(layer.lora_B[_ADAPTER].float() for layer in adapted)

    def layer(self, position: int) -> nn.Module:
        """Return peft's layer at a position among the blocks: the frozen layer and its adapter."""
        return self._layers[position]


class AdapterInjection:
    """peft's layers in the place of ``attn.qkv`` for the length of a context.

    Args:
        blocks: The blocks, in the order of the sets' layers.
        sets: All sets.
        chosen: Position of the set in ``sets``: one for the whole batch, or one per sample ``[B]``.
    """

    def __init__(self, blocks: Sequence[int], sets: Sequence[AdapterSet], chosen: int | Tensor) -> None:
        self._blocks, self._sets, self._chosen = blocks, sets, chosen
        self._present = () if isinstance(chosen, int) else sorted(set(chosen.tolist()))

    @contextmanager
    def install(self, model: VisionTransformer) -> Iterator[None]:
        """Put the layers in, and the model's own back on leaving."""
        plain: list[tuple[Any, nn.Module]] = []
        try:
            for position, block in enumerate(self._blocks):
                attention = attention_of(block_at(model, block))
                plain.append((attention, attention.qkv))
                attention.qkv = self._layer(position)
            yield
        finally:
            for attention, own in plain:
                attention.qkv = own

    def _layer(self, position: int) -> nn.Module:
        if isinstance(self._chosen, int):
            return self._sets[self._chosen].layer(position)
        return _PerSample({one: self._sets[one].layer(position) for one in self._present}, self._chosen)


class _PerSample(nn.Module):
    """One of several layers for each sample.

    Every layer sees the whole batch. peft's own ``adapter_names`` cuts the batch into one part per adapter:
    the sizes of its products depend on how many samples share an adapter, and no library promises the same
    bits for another size.
    """

    def __init__(self, layers: Mapping[int, nn.Module], chosen: Tensor) -> None:
        super().__init__()
        self._layers_by_set, self._chosen = dict(layers), chosen

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, N, in]`` to ``[B, N, out]``."""
        (_, first), *others = self._layers_by_set.items()
        out: Tensor = first(x)
        for one, layer in others:
            out = torch.where((self._chosen == one)[:, None, None], layer(x), out)
        return out
