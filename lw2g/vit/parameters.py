"""Replacement of some of the backbone's own parameters: norms, biases, the class token (SLCA++)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.vit.injection import attention_of

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
        before: list[tuple[Any, str, Any]] = []
        try:
            for name, value in self.values.items():
                owner, _, leaf = name.rpartition(".")
                block, _, inner = owner.partition(".attn.")
                module = model.get_submodule(block)
                if inner:  # another injection, or the last row alone, may stand around the block's attention
                    module = attention_of(module).get_submodule(inner)
                replaced = module._parameters.get(leaf)
                own_shape = None if replaced is None else list(replaced.shape)
                if own_shape != list(value.shape):
                    raise ConfigError(
                        f"parameter {name!r} of {list(value.shape)} does not fit this backbone, whose own "
                        f"is {own_shape}",
                        "make it from the backbone's",
                    )
                before.append((module, leaf, replaced))
                # set as functional_call does it; a plain assignment requires a Parameter
                parameters: dict[str, Any] = module._parameters
                parameters[leaf] = value
            yield
        finally:
            for module, leaf, replaced in before:
                module._parameters[leaf] = replaced
