"""A process's part of a training batch, and how terms that couple its images see the whole of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

__all__ = ["Slice"]


@attrs.frozen(kw_only=True, eq=False)
class Slice:
    """Some images of a batch, one after the other.

    Where a batch has fewer images than there are processes, a process without any computes on the first one
    and counts for nothing.

    Attributes:
        first: Of its images, in the batch.
        last: One past the last.
        total: Images of the batch.
        weight: Of what is found here in the mean over the batch.
        gather: Gives the rows of all images of those of each process; None where all images are here.
    """

    first: int
    last: int
    total: int
    weight: float
    gather: Callable[[Tensor], Tensor] | None = None

    def of(self, positions: Sequence[int]) -> Sequence[int]:
        """Return those of the batch's positions that are here."""
        return positions[self.first : self.last] or positions[:1]

    def whole(self, rows: Tensor) -> Tensor:
        """Return the rows of all images; see :meth:`lw2g.interfaces.batch.Batch.whole`."""
        if self.gather is None:
            return rows
        found: Tensor = _Whole.apply(rows, self)
        return found

    def draw(self, make: Callable[[int], Tensor]) -> Tensor:
        """Return rows drawn for all images, of those that are here."""
        made = make(self.total)
        return made[self.first : self.last] if self.last > self.first else made[:1]


class _Whole(torch.autograd.Function):
    """Gathers rows; back come the gradients of a process's own, divided by its weight.

    Every process finds the same loss of all rows, and the mean of their gradients by weight is taken later:
    with the division it is the gradient of that loss.
    """

    @staticmethod
    def forward(context: Any, rows: Tensor, cut: Slice) -> Tensor:
        context.cut, context.like = cut, rows
        assert cut.gather is not None
        return cut.gather(rows.detach())

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        cut: Slice = context.cut
        if cut.last == cut.first:
            return torch.zeros_like(context.like), None
        return gradient[cut.first : cut.last] / cut.weight, None
