"""Products of frozen linear layers in float32 by oneDNN, where torch's own are slower.

torch hands float32 products on x86 to MKL, and reaches 100 GFLOP/s on one core of an AMD EPYC (Zen 4) where
oneDNN, to which it hands bf16 ones, reaches 230 in float32 (``benchmarks/README.md``). Results differ in
their last bits: 2e-6 after sums of 512 products.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["OneDNNLinear", "has_faster_products", "products_of"]

_CPU_INFO = Path("/proc/cpuinfo")


def has_faster_products(info: Path = _CPU_INFO) -> bool:
    """Whether oneDNN is known to be faster: AVX-512 of another maker than Intel, and torch with MKL."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    try:
        maker = re.search(r"^vendor_id\s*:\s*(\S+)", info.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return False
    libraries = (torch.backends.mkl, torch.backends.mkldnn)
    both = all(library.is_available() for library in libraries)
    return both and maker is not None and maker[1] != "GenuineIntel"


class OneDNNLinear(nn.Linear):
    """A frozen linear layer on a CPU whose products in float32, forward and backward, are oneDNN's.

    Give it to a layer that there is as its ``__class__``: parameters, hooks and names stay.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input @ weight.T + bias``, ``[..., in]`` -> ``[..., out]``."""
        if input.dtype != torch.float32 or torch.is_autocast_enabled("cpu") or self.weight.requires_grad:
            return super().forward(input)
        product: Tensor = _Product.apply(input, self.weight, self.bias)
        return product


def products_of(model: nn.Module) -> str:
    """Return whose products a model's linear layers take, for a record."""
    return "oneDNN's" if any(isinstance(module, OneDNNLinear) for module in model.modules()) else "torch's"


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(weight)
        return _product(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (weight,) = ctx.saved_tensors
        return _product(gradients[0], weight.T, None), None, None


def _product(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows.contiguous(), weight, bias, "none", [], "")
    return product
