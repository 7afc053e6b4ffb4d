"""On how many threads a CPU computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from lw2g.vit.backbone import Backbone

__all__ = ["has_small_products", "largest_product", "suited_threads"]

_WORTH_SHARING = 100e6
"""Operations of a product below which a second thread saves little (``benchmarks/README.md``)."""
_IMAGES = 32


def largest_product(backbone: Backbone) -> float:
    """Return the operations of the largest linear layer of a backbone for a batch of 32 images.

    A network without tokens has infinitely many: what it multiplies depends on more than its weights.
    """
    if backbone.num_tokens == 0:
        return float("inf")
    widest = 0
    for module in backbone.model.modules():
        if isinstance(module, nn.Linear):
            widest = max(widest, module.weight.numel())
    return 2.0 * _IMAGES * backbone.num_tokens * widest


def has_small_products(backbone: Backbone) -> bool:
    """Whether no product of a backbone is worth a second thread, or a GPU."""
    return largest_product(backbone) < _WORTH_SHARING


@contextmanager
def suited_threads(backbone: Backbone, device: torch.device) -> Iterator[None]:
    """Compute on one thread within the context if a backbone's products are too small to be shared.

    torch hands parts of every operation to all threads and lets each wait in a loop for the last one. With
    products of microseconds this waiting is a third of the work on an idle machine; on a busy one the last
    thread is waiting for a core, and a run takes several times as long.

    Args:
        backbone: Whose products they are.
        device: Where the run computes; on an accelerator threads are left as they are.
    """
    before = torch.get_num_threads()
    # whether products are small is asked last: it looks at all layers
    if device.type != "cpu" or before == 1 or not has_small_products(backbone):
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
