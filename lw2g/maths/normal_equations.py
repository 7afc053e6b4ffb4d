"""Ridge regression from its sums, also where these are wide.

With ``G = H^T H`` and ``Q = H^T Y`` of rows H and one-hot labels Y, the weights at a penalty p are
``W = (G + p I)^-1 Q``. Beside G about two matrices of its size are there at the peak, LAPACK's copy among
them (``benchmarks/ridge_sums.py memory``): at 4,608 features 0.17 GB each.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lw2g.maths.band import Band, lower_squares, reduced

__all__ = [
    "ROWS_OF_WIDE",
    "WIDE_SUMS",
    "add_products",
    "best_penalty",
    "left_out_scores",
    "penalised",
    "products",
    "require_factor",
    "weights_of",
]

WIDE_SUMS = 2048
"""Width of sums above which products are added in halves, which have other last bits."""
ROWS_OF_WIDE = 4096
"""Rows whose products are added to them at once: of fewer they are slow, of more they take memory."""
_LEVELS: tuple[float, ...] = tuple(10.0 ** (half / 2) for half in range(-18, 5))
"""Candidates of generalised cross-validation, in mean eigenvalues of the sums: features of any scale fit."""
_FIRST = 14
"""The candidate that is tried first: 0.01 mean eigenvalues, to which the best one is often near."""
_FREE = 0.99
"""Share of the rows beyond which degrees of freedom leave no residual to judge a penalty by."""
_COLUMNS = 80
"""Columns up to which a product of them is computed whole."""
_SMALLEST = 1e-9
"""What a row leaves to the others at least; a row that explains itself alone says nothing."""


def add_products(gram: Tensor, parts: Iterable[Tensor]) -> None:
    """Add ``rows^T rows`` of each part to a symmetric matrix in place, by its lower half.

    It takes half of the operations, and no second matrix of this size.

    Args:
        gram: ``[M, M]`` float64.
        parts: Rows, ``[n, M]`` float64 each.
    """
    for rows in parts:
        for down, across in lower_squares(0, len(gram), _COLUMNS):
            gram[down, across].addmm_(rows[:, down].T, rows[:, across])
    for down, across in lower_squares(0, len(gram), _COLUMNS):
        if down != across:
            gram[across, down] = gram[down, across].T


def products(rows: Tensor) -> Tensor:
    """Return ``rows^T rows`` of rows ``[n, M]`` float64: ``[M, M]``."""
    if rows.shape[1] <= WIDE_SUMS:
        return rows.T @ rows
    gram = rows.new_zeros(rows.shape[1], rows.shape[1])
    add_products(gram, [rows])
    return gram


def penalised(gram: Tensor, penalty: float) -> tuple[Tensor, bool]:
    """Return the Cholesky factor of sums at a penalty, and whether there is one in float64.

    Args:
        gram: ``[M, M]`` float64; it stays as it is.
        penalty: The penalty.
    """
    # symmetric to the bit: rounding of sums makes the halves differ, and one of them alone is read
    work = (gram + gram.mT).mul_(0.5)
    work.diagonal().add_(penalty)
    # factored in place: a result of its own would be a second matrix of this size
    _, failed = torch.linalg.cholesky_ex(
        work, out=(work, torch.empty(0, dtype=torch.int32, device=work.device))
    )
    return work, not bool(failed)


def require_factor(gram: Tensor, penalty: float) -> Tensor:
    """Return the Cholesky factor of sums at a penalty.

    Raises:
        ValueError: They are singular in float64.
    """
    lower, found = penalised(gram, penalty)
    if not found:
        raise ValueError("expected a positive definite matrix but got a singular one; raise the penalty")
    return lower


def weights_of(gram: Tensor, cross: Tensor, penalty: float) -> Tensor:
    """Return the weights of ridge regression, ``[M, k]``.

    Args:
        gram: ``G``, ``[M, M]`` float64.
        cross: ``Q``, ``[M, k]`` float64.
        penalty: The penalty.
    """
    weights: Tensor = torch.cholesky_solve(cross, require_factor(gram, penalty))
    return weights


def best_penalty(gram: Tensor, cross: Tensor, rows: int, norm: float, *, width: int | None = None) -> float:
    """Return the penalty of least generalised cross-validation error, from the sums alone.

    The error is ``(R / n) / (1 - df / n)^2`` with the residual ``R`` and the degrees of freedom ``df`` of
    ridge regression: ``df = M - p tr((G + p I)^-1)`` and ``R = |Y|^2 - tr(W^T Q) - p |W|^2``, of a band to
    which the sums are reduced once. From one of the candidates the way goes downhill. A penalty whose degrees
    of freedom reach the number of rows explains everything and says nothing: its error is infinite.

    Args:
        gram: ``G``, ``[M, M]`` float64.
        cross: ``Q``, ``[M, k]`` float64.
        rows: Number n of rows.
        norm: ``|Y|^2``; for one-hot labels the number of rows.
        width: Width of the features where M are coordinates in the range of the rows; None for M.
    """
    # candidates are in mean eigenvalues, of which those outside of a range are zero
    level = float(gram.diagonal().mean()) * (len(gram) / (width or len(gram)))
    errors: dict[int, float] = {}
    band = reduced(gram, cross)

    def error(place: int) -> float:
        """Return the error of a candidate; infinite where it says nothing."""
        if place not in range(len(_LEVELS)):
            return float("inf")
        if place not in errors:
            errors[place] = _validation_error(band, len(gram), _LEVELS[place] * level, rows, norm)
        return errors[place]

    best = _FIRST
    for stride in (2, 1):
        while True:
            # of equal errors the largest penalty wins: a few images leave every candidate without a residual
            better = min((best - stride, best, best + stride), key=lambda place: (error(place), -place))
            if better == best or better not in range(len(_LEVELS)):
                break
            best = better
    return _LEVELS[best] * level


def _validation_error(band: Band, width: int, penalty: float, rows: int, norm: float) -> float:
    """Return the generalised cross-validation error of one penalty, as :func:`best_penalty` says."""
    traces = band.at(penalty)
    if traces is None:
        return float("inf")
    inverse, explained, squares = traces
    unexplained = 1 - (width - penalty * inverse) / rows
    if not unexplained >= 1 - _FREE:  # or NaN
        return float("inf")
    # rounding may take what is left of the labels below zero
    residual = max(norm - explained - penalty * squares, 0.0)
    return residual / rows / (unexplained * unexplained)


def left_out_scores(lower: Tensor, weights: Tensor, rows: Tensor, targets: Tensor) -> Tensor:
    """Return the predictions for rows by the regression without each of them alone, ``[n, k]``.

    With the leverage ``l = h^T (G + p I)^-1 h`` of a row in the sums, the regression without it predicts
    ``(f - l y) / (1 - l)`` where the whole one predicts f of its label y: no regression is solved again.

    Args:
        lower: The Cholesky factor of ``G + p I``, ``[M, M]``.
        weights: ``W``, ``[M, k]``.
        rows: Some of the rows that the sums hold, ``[n, M]``.
        targets: The column of the label of each, ``[n]``.
    """
    white = torch.linalg.solve_triangular(lower, rows.T, upper=False)
    leverage = white.square().sum(0)[:, None]
    labels = torch.nn.functional.one_hot(targets, weights.shape[1])
    scores: Tensor = (rows @ weights - leverage * labels) / (1 - leverage).clamp(min=_SMALLEST)
    return scores
