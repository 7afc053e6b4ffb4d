"""Rows that stand in place of wide sums, as long as they are few.

Of n rows of M numbers the sums ``H^T H`` are M x M and have n directions. As long as n is eight ninths of M
at most, the rows say the same in less memory, and what is solved of the sums is solved of n x n products in
coordinates of their range: ridge regression, discriminants and distances do not change where features are
turned. With more rows a head forms its sums, because to find the range then takes longer than it saves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from lw2g.maths.normal_equations import products

__all__ = ["FewRows", "Range", "few_rows", "rows_in", "sharing_ranges"]

FEW = "few"
"""What heads call such rows, as the names of their tensors say."""

_WIDE = 1024
"""Width up to which sums are small, and solved in no time."""
_FEW = 9 / 8
"""How many times their number rows are wide at least."""
_DISTINCT = 1e-5
"""Least length of what a row adds to those before it, over the largest, for coordinates from products."""

_shared: ContextVar[list[FewRows] | None] = ContextVar("_shared", default=None)
"""Rows whose range is known, where others may have the same."""


@attrs.frozen(eq=False)
class Range:
    """What rows H span.

    Attributes:
        rows: H, ``[n, M]``.
        shared: What others have computed of them: heads that share rows share it, too.
    """

    rows: Tensor
    shared: dict[str, Any] = attrs.field(factory=dict, init=False)

    @cached_property
    def between(self) -> Tensor:
        """Products ``H H^T`` of the rows with each other, ``[n, n]``."""
        return products(self.rows.T)

    @cached_property
    def _directions(self) -> tuple[Tensor, Tensor | None]:
        """Coordinates, and orthogonal directions along which they are, ``[M, n]``.

        Directions are None where they follow from the rows and from a lower triangle of coordinates L, with
        ``H H^T = L L^T``, as ``H^T L^-T``: to find them takes three times as long.
        """
        lower, failed = torch.linalg.cholesky_ex(self.between)
        scale = lower.diagonal()
        if len(scale) and not bool(failed) and bool(scale.min() > _DISTINCT * scale.max()):
            return lower, None
        # rows that are alike: their products have no digits left to tell them apart
        basis, upper = torch.linalg.qr(self.rows.T)
        return upper.T, basis

    @property
    def inner(self) -> Tensor:
        """Coordinates of the rows, ``[n, n]``."""
        return self._directions[0]

    @cached_property
    def gram(self) -> Tensor:
        """Products of the coordinates, ``[n, n]``."""
        return products(self.inner)

    def coordinates(self, rows: Tensor) -> Tensor:
        """Return the coordinates of other rows ``[k, M]``, or of the same, which are known: ``[k, n]``."""
        lower, basis = self._directions
        if torch.equal(rows, self.rows):
            return lower
        if basis is not None:
            return rows @ basis
        inner: Tensor = torch.linalg.solve_triangular(lower, self.rows @ rows.T, upper=False)
        return inner.T

    def spread(self, columns: Tensor) -> Tensor:
        """Return the vectors ``[M, k]`` that have coordinates ``[n, k]``."""
        lower, basis = self._directions
        if basis is not None:
            return basis @ columns
        solved: Tensor = torch.linalg.solve_triangular(lower.T, columns, upper=True)
        return self.rows.T @ solved


class FewRows(nn.Module):
    """Rows and their labels, and the coordinates of their range.

    Args:
        width: Width M of the rows.

    Attributes:
        rows: ``[n, M]`` float64.
        labels: ``[n]`` int64.
    """

    rows: Tensor
    labels: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(0, width, dtype=torch.float64))
        self.register_buffer("labels", torch.zeros(0, dtype=torch.int64))
        self._range: Range | None = None

    @property
    def bytes_of_sums(self) -> int:
        """The bytes of the sums in whose place they stand."""
        width = self.rows.shape[1]
        return width * width * self.rows.element_size()

    def has_room(self, count: int) -> bool:
        """Return whether they are few with so many more."""
        return _FEW * (len(self.rows) + count) <= self.rows.shape[1]

    def add(self, rows: Tensor, labels: Tensor) -> None:
        """Keep rows ``[n, M]`` with labels ``[n]``."""
        self.rows = torch.cat([self.rows, rows])
        self.labels = torch.cat([self.labels, labels])
        self._range = None

    def clear(self) -> None:
        """Keep none any more."""
        self.rows = self.rows[:0]
        self.labels = self.labels[:0]
        self._range = None

    def range(self) -> Range:
        """Return what the rows span."""
        if self._range is None or self._range.rows.device != self.rows.device:
            self._range = self._known_range()
        return self._range

    def _known_range(self) -> Range:
        shared = _shared.get()
        for other in shared or ():
            if other._range is not None and torch.equal(other.rows, self.rows):
                return other._range
        if shared is not None:
            shared.append(self)
        return Range(self.rows)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        # states that an earlier lw2g wrote have the sums
        state.setdefault(f"{prefix}rows", self.rows[:0])
        state.setdefault(f"{prefix}labels", self.labels[:0])
        # torch refuses a state whose shape is not that of the buffers
        count = len(state[f"{prefix}rows"])
        self.rows = self.rows.new_empty(count, self.rows.shape[1])
        self.labels = self.labels.new_empty(count)
        self._range = None
        super()._load_from_state_dict(state, prefix, *others)


def rows_in(state: Mapping[str, Tensor]) -> int:
    """Return of how many images a state holds the rows themselves; heads of one model keep the same ones."""
    return max((len(value) for name, value in state.items() if name.endswith(f".{FEW}.rows")), default=0)


def few_rows(width: int) -> FewRows | None:
    """Return what keeps rows of some width in place of their sums; None where the sums are small."""
    return FewRows(width) if width > _WIDE else None


@contextmanager
def sharing_ranges() -> Iterator[None]:
    """Compute the range of the same rows once within the context, whichever heads keep them."""
    token = _shared.set([])
    try:
        yield
    finally:
        _shared.reset(token)
