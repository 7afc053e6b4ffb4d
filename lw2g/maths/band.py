"""Symmetric systems that are solved at many penalties: reduced to a band once, each penalty costs little.

A symmetric matrix G is ``Q B Q^T`` with an orthogonal Q and a band B, and ``G + p I = Q (B + p I) Q^T`` for
every p. The reduction takes products of blocks of columns (Dongarra, Sorensen and Hammarling, Block reduction
of matrices to condensed form, 1989); all eigenvalues would take products of single ones, and say no more.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import torch
from torch import Tensor

__all__ = ["Band", "lower_squares", "reduced"]

_BLOCK = 96
"""Columns that are reduced at once."""
_SQUARE = 500
"""Side up to which a square on the diagonal is computed whole."""


def lower_squares(first: int, last: int, smallest: int) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of squares that make up a lower half, as large as they come: these are fastest.

    Args:
        first: The first row and column.
        last: Where they end.
        smallest: Side up to which a square on the diagonal is whole.
    """
    if last - first <= smallest:
        yield slice(first, last), slice(first, last)
        return
    middle = (first + last) // 2
    yield from lower_squares(first, middle, smallest)
    yield from lower_squares(middle, last, smallest)
    yield slice(middle, last), slice(first, middle)


@attrs.frozen(eq=False)
class Band:
    """A system ``B W = Q`` whose matrix has blocks on its diagonal and beside it alone.

    Attributes:
        diagonal: The blocks on the diagonal, ``[b, b]`` each; the last may be smaller.
        below: The blocks below them.
        cross: The right sides, in rows as the blocks, ``[b, k]`` each.
    """

    diagonal: list[Tensor]
    below: list[Tensor]
    cross: list[Tensor]

    def at(self, penalty: float) -> tuple[float, float, float] | None:
        """Return ``tr((B + p I)^-1)``, ``tr(W^T Q)`` and ``|W|^2`` of ``(B + p I) W = Q``.

        None where ``B + p I`` is not positive definite in float64.
        """
        factors: list[Tensor] = []
        beside: list[Tensor] = []
        half_solved: list[Tensor] = []
        failures = []
        for place, block in enumerate(self.diagonal):
            block = block.clone()
            block.diagonal().add_(penalty)
            right = self.cross[place]
            if place:
                block -= beside[-1] @ beside[-1].T
                right = right - beside[-1] @ half_solved[-1]
            lower, failed = torch.linalg.cholesky_ex(block)
            failures.append(failed)
            factors.append(lower)
            half_solved.append(torch.linalg.solve_triangular(lower, right, upper=False))
            if place < len(self.below):
                beside.append(torch.linalg.solve_triangular(lower, self.below[place].T, upper=False).T)
        if bool(torch.stack(failures).any()):
            return None
        explained = sum(float(part.square().sum()) for part in half_solved)
        trace, squares = _back(factors, beside, half_solved)
        return trace, explained, squares


def _back(factors: list[Tensor], beside: list[Tensor], half_solved: list[Tensor]) -> tuple[float, float]:
    """Return the trace of the inverse and the square of the solution, from the last block to the first.

    Args:
        factors: Lower Cholesky factors of the diagonal, as blocks.
        beside: What the factor has below them.
        half_solved: The right sides, solved by the factor.
    """
    inverse = torch.cholesky_inverse(factors[-1])  # the block of the inverse matrix
    solution = torch.linalg.solve_triangular(factors[-1].T, half_solved[-1], upper=True)
    trace = inverse.trace()
    squares = solution.square().sum()
    for lower, under, right in zip(factors[-2::-1], beside[::-1], half_solved[-2::-1], strict=True):
        solution = torch.linalg.solve_triangular(lower.T, right - under.T @ solution, upper=True)
        along = torch.linalg.solve_triangular(lower, under, upper=False, left=False)
        inverse = torch.cholesky_inverse(lower) + along.T @ inverse @ along
        trace += inverse.trace()
        squares += solution.square().sum()
    return float(trace), float(squares)


def reduced(gram: Tensor, cross: Tensor) -> Band:
    """Return a system of symmetric ``gram`` as a band, turned so that ``cross`` has its own right sides.

    Args:
        gram: ``[M, M]`` float64; it stays as it is.
        cross: ``[M, k]`` float64; likewise.
    """
    # symmetric to the bit: rounding of sums makes the halves differ
    work = (gram + gram.mT).mul_(0.5)
    cross = cross.clone()
    # the same all along: above them the matrix is not kept
    squares = list(lower_squares(0, len(work), _SQUARE))
    diagonal: list[Tensor] = []
    below: list[Tensor] = []
    first = 0
    while len(work) - first > _BLOCK:
        last = first + _BLOCK
        diagonal.append(work[first:last, first:last].clone())
        if len(work) - last > _BLOCK:
            rest = _behind(squares, last)
            below.append(_reduce_columns(work[last:, first:last], work[last:, last:], rest, cross[last:]))
        else:
            below.append(work[last:, first:last].clone())
        first = last
    diagonal.append(work[first:, first:].clone())
    return Band(diagonal, below, list(torch.split(cross, _BLOCK)))


def _behind(squares: list[tuple[slice, slice]], first: int) -> list[tuple[slice, slice]]:
    """Return what of squares lies behind the first rows and columns, counted from there."""
    rest = []
    for down, across in squares:
        if across.stop > first:
            below = slice(max(down.start - first, 0), down.stop - first)
            rest.append((below, slice(max(across.start - first, 0), across.stop - first)))
    return rest


def _reduce_columns(
    columns: Tensor, trailing: Tensor, squares: list[tuple[slice, slice]], cross: Tensor
) -> Tensor:
    """Turn the rows of columns so that those below the first square vanish, and return this square.

    With ``columns = H R``, H orthogonal, ``trailing`` becomes ``H^T A H`` and ``cross`` ``H^T C`` in place.

    Args:
        columns: ``[m, b]`` with m > b.
        trailing: The symmetric rest A of the matrix, ``[m, m]``, a view.
        squares: Its rows and columns that are read and written: those of a lower half.
        cross: The right sides C of its rows, ``[m, k]``, a view.
    """
    packed, taus = torch.geqrf(columns)
    size = len(taus)
    # H = I - V T V^T with the inverse of T in the products of V (Puglisi 1992)
    vectors = packed.tril(-1)
    vectors.diagonal().fill_(1)
    turns = taus != 0  # a column of zeros is not turned
    vectors *= turns
    inverse = (vectors.T @ vectors).triu(1)
    inverse.diagonal().copy_(torch.where(turns, 1 / taus, 1.0))
    eye = torch.eye(size, dtype=columns.dtype, device=columns.device)
    middle = torch.linalg.solve_triangular(inverse, eye, upper=True)  # T
    turned = vectors @ middle
    along = torch.zeros_like(vectors)  # A V T
    for down, across in squares:
        along[down].addmm_(trailing[down, across], turned[across])
        if down != across:
            along[across].addmm_(trailing[down, across].T, turned[down])
    along -= vectors @ (middle.T @ (vectors.T @ along)) / 2
    left = torch.cat([along, vectors], 1)
    right = torch.cat([vectors, along], 1)
    for down, across in squares:
        trailing[down, across].addmm_(left[down], right[across].T, alpha=-1)
    cross -= vectors @ (middle.T @ (vectors.T @ cross))
    return packed[:size].triu()
