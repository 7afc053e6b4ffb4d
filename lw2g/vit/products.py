"""Products of frozen linear layers on a CPU by oneDNN, over weights that are packed once.

torch packs the weight anew in every product in bf16, and hands float32 ones on x86 to MKL, which reaches 100
GFLOP/s on one core of an AMD EPYC (Zen 4) where oneDNN reaches 230 (``benchmarks/README.md``). In bf16 the
results are those of torch; in float32 they differ in their last bits, by 2e-6 after sums of 512 products.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.ground.processor import CPU_INFO, read_processor

__all__ = ["OneDNNLinear", "StandIn", "has_faster_products", "has_packed_products", "products_of"]


def has_faster_products(info: Path = CPU_INFO) -> bool:
    """Whether oneDNN is known to be faster in float32: AVX-512, not Intel's, in a torch with MKL."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    libraries = (torch.backends.mkl, torch.backends.mkldnn)
    both = all(library.is_available() for library in libraries)
    processor = read_processor(info)
    return both and processor is not None and processor.maker != "GenuineIntel"


def has_packed_products() -> bool:
    """Whether oneDNN multiplies bf16 matrices here."""
    library: Any = torch.backends.mkldnn
    return bool(library.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())


class OneDNNLinear(nn.Linear):
    """A frozen linear layer on a CPU whose products, forward and backward, are oneDNN's over packed weights.

    Give it to a layer that there is as its ``__class__``: parameters, hooks and names stay. Each packed form
    takes as much memory as the weight, and is made when it is first needed: one for forwards, one for
    backwards.
    """

    _packs: _Packs | None = None
    update: tuple[Tensor, Tensor] | None = None
    """Factors ``[r, in]`` and ``[out, r]`` of a low-rank update of the weight, within :meth:`updated`."""

    @contextmanager
    def updated(self, down: Tensor, up: Tensor) -> Iterator[None]:
        """Multiply by ``weight + up @ down`` within the context, with gradients of the factors.

        Forward and backward add the update's product into that of the weight. A hook behind the layer would
        pass over the output once more, and autograd over the gradient of the input.
        """
        before = self.update
        self.update = (down, up)
        try:
            yield
        finally:
            self.update = before

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input @ weight.T + bias``, ``[..., in]`` -> ``[..., out]``."""
        weight = self.weight
        dtype = input.dtype
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
        # packs are of a frozen weight in the dtype that the product takes; everything else is torch's
        if weight.dtype != dtype or weight.requires_grad or input.device.type != "cpu":
            plain = super().forward(input)
            if self.update is None:
                return plain
            down, up = self.update
            return plain + functional.linear(functional.linear(input, down), up)
        packs = self._packs
        if packs is None or not packs.are_of(weight):
            packs = self._packs = _Packs(weight)
        rows = input.to(dtype)
        bias: Tensor | None = self.bias
        if bias is not None:
            bias = bias.to(dtype)
        if self.update is not None:
            down, up = (factor.to(dtype) for factor in self.update)
            updated: Tensor = _UpdatedProduct.apply(rows, bias, down, up, packs)
            return updated
        if not torch.is_grad_enabled():
            return packs.product(rows, bias)
        product: Tensor = _Product.apply(rows, bias, packs)
        return product


class StandIn:
    """A weight that takes the place of a layer's own within a context, with its own packed forms.

    Args:
        weight: Of the shape and dtype of the layer's own, without gradients.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self._packs: _Packs | None = None

    @contextmanager
    def within(self, layer: nn.Linear) -> Iterator[None]:
        """Let a layer multiply by this weight within the context."""
        parameters: dict[str, Any] = layer._parameters
        weight = parameters["weight"]
        packs = layer._packs if isinstance(layer, OneDNNLinear) else None
        parameters["weight"] = self.weight
        if isinstance(layer, OneDNNLinear):
            layer._packs = self._packs
        try:
            yield
        finally:
            parameters["weight"] = weight
            if isinstance(layer, OneDNNLinear):
                self._packs = layer._packs
                layer._packs = packs


def products_of(model: nn.Module) -> str:
    """Return whose products a model's linear layers take, for a record."""
    if any(isinstance(module, OneDNNLinear) for module in model.modules()):
        return "oneDNN's"
    return "torch's"


class _Packs:
    """A weight, packed when it is first needed for a forward or a backward; a copy of a layer packs anew."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.detach()
        # torch counts changes in place: a weight loaded anew is packed anew
        self._version = weight._version
        self._forward: Tensor | None = None
        self._backward: Tensor | None = None

    def are_of(self, weight: Tensor) -> bool:
        """Whether a weight is the packed one, and unchanged."""
        return self.weight.data_ptr() == weight.data_ptr() and self._version == weight._version

    def product(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``rows @ weight.T + bias``."""
        if self._forward is None:
            self._forward = _packed(self.weight, rows)
        return _product(rows, self._forward, bias)

    def back(self, rows: Tensor) -> Tensor:
        """Return ``rows @ weight``."""
        if self._backward is None:
            self._backward = _packed(self.weight.T.contiguous(), rows)
        return _product(rows, self._backward, bias=None)

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, bias: Tensor | None, packs: _Packs) -> Tensor:
        ctx.packs = packs
        return packs.product(rows, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Return the gradients of rows ``[..., in]`` and bias ``[out]``, as far as they are needed."""
        (gradient,) = gradients
        needs_rows, needs_bias, _ = ctx.needs_input_grad
        of_rows = None
        if needs_rows:
            of_rows = ctx.packs.back(gradient)
        of_bias = None
        if needs_bias:
            of_bias = gradient.flatten(0, -2).sum(0)
        return of_rows, of_bias, None


class _UpdatedProduct(torch.autograd.Function):
    """A product by a frozen weight and a low-rank update of it."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, packs: _Packs
    ) -> Tensor:
        """Return ``rows W' + bias + (rows down') up'``, ``[..., out]``."""
        product = packs.product(rows, bias)
        flat = rows.flatten(0, -2)
        inner = flat @ down.T
        # the product is added to in place: nobody else has seen it yet
        product.view(-1, len(up)).addmm_(inner, up.T)
        ctx.packs = packs
        ctx.save_for_backward(flat, inner, down, up)
        return product

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of rows, bias, down and up, as far as they are needed; None for the packs."""
        (gradient,) = gradients
        flat, inner, down, up = ctx.saved_tensors
        needs_rows, needs_bias, needs_down, needs_up, _ = ctx.needs_input_grad
        of_output = gradient.flatten(0, -2)
        of_inner = of_output @ up
        of_rows = of_bias = of_down = of_up = None
        if needs_rows:
            of_rows = ctx.packs.back(gradient)
            of_rows.view(-1, flat.shape[-1]).addmm_(of_inner, down)
        if needs_bias:
            of_bias = of_output.sum(0)
        if needs_down:
            of_down = of_inner.T @ flat
        if needs_up:
            of_up = of_output.T @ inner
        return of_rows, of_bias, of_down, of_up, None


def _packed(weight: Tensor, rows: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows.numel() // rows.shape[-1])
    return packed


def _product(rows: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows.contiguous(), packed, bias, "none", [], "")
    return product
