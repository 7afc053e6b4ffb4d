"""Replacement of some of the backbone's own parameters: norms, biases, the class token (SLCA++)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.vit.injection import attention_of, in_product_dtype

__all__ = ["ParameterInjection"]


@attrs.frozen(eq=False)
class ParameterInjection:
    """Tensors that replace parameters of the model within a context.

    Use it for small parameters: the gradient of a replaced weight matrix is as large as the matrix.

    Attributes:
        values: Name in the model's state dict to a tensor of that shape.
    """

    values: Mapping[str, Tensor]

    @contextmanager
    def install(self, model: nn.Module) -> Iterator[None]:
        """Replace the parameters within the context; raise ConfigError if one is missing or does not fit."""
        places = [_place(model, name, value) for name, value in self.values.items()]
        replaced: list[Any] = [module._parameters[leaf] for module, leaf in places]
        try:
            _put(places, _biases_cast_together(places, list(self.values.values())))
            yield
        finally:
            _put(places, replaced)


def _put(places: Sequence[tuple[nn.Module, str]], values: Sequence[Any]) -> None:
    """Set parameters as functional_call does it; a plain assignment requires a Parameter."""
    for (module, leaf), value in zip(places, values, strict=True):
        module._parameters[leaf] = value


def _place(model: nn.Module, name: str, value: Tensor) -> tuple[nn.Module, str]:
    """Return the module of a parameter and the parameter's name in it.

    Raises:
        ConfigError: There is no such parameter, or it has another shape.
    """
    owner, _, leaf = name.rpartition(".")
    block, _, inner = owner.partition(".attn.")
    module = model.get_submodule(block)
    if inner:  # another injection, or the last row alone, may stand around the block's attention
        module = attention_of(module).get_submodule(inner)
    replaced = module._parameters.get(leaf)
    own_shape = None if replaced is None else list(replaced.shape)
    if own_shape != list(value.shape):
        raise ConfigError(
            f"parameter {name!r} of {list(value.shape)} does not fit this backbone, whose own is {own_shape}",
            "make it from the backbone's",
        )
    return module, leaf


def _biases_cast_together(places: Sequence[tuple[nn.Module, str]], values: list[Tensor]) -> list[Tensor]:
    """Return the values, with biases of products in the dtype of products, cast by one operator.

    Autocast would cast each for its product, and its gradient after it, to the same bits.
    """
    chosen = []
    for number, (module, leaf) in enumerate(places):
        if leaf == "bias" and isinstance(module, nn.Linear | nn.Conv2d):
            chosen.append(number)
    if not chosen or not torch.is_autocast_enabled(values[0].device.type):
        return values
    joined = in_product_dtype(torch.cat([values[number] for number in chosen]))
    pieces = torch.split(joined, [len(values[number]) for number in chosen])
    for number, piece in zip(chosen, pieces, strict=True):
        values[number] = piece
    return values
