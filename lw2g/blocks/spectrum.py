"""Building block: regression on sums by one eigendecomposition, for every penalty and every rank at once.

Heads that regress one-hot labels Y on rows H differ in what they do to the spectrum of ``G = H^T H``. With
``G = V diag(s) V^T`` and ``Q = H^T Y`` the weights are ``V diag(f(s)) V^T Q``: ridge regression has
``f = 1 / (s + penalty)``, a cut spectrum the same on the largest s and 0 elsewhere (TSVD, LoRanPAC: Peng et
al., ICLR 2025), least squares of minimal norm ``f = 1 / s`` on all s above 0. What is chosen from sums alone
depends neither on the order of the rows nor on how they are cut into tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Spectrum"]

_FREE = 0.99
"""Share of the rows beyond which degrees of freedom leave no residual to judge a penalty by."""


class Spectrum:
    """The eigendecomposition of the sums of a regression.

    Attributes:
        values: Eigenvalues of G, ascending, none below 0, ``[M]`` float64.
        vectors: Eigenvectors, in columns ``[M, M]``.
        turned: ``V^T Q``, ``[M, k]``.
    """

    def __init__(self, gram: Tensor, cross: Tensor) -> None:
        """Decompose sums.

        Args:
            gram: ``G = H^T H``, ``[M, M]`` float64.
            cross: ``Q = H^T Y``, ``[M, k]`` float64.
        """
        # symmetric to the bit: eigh reads one half, and rounding of sums makes the halves differ
        values, self.vectors = torch.linalg.eigh((gram + gram.mT) / 2)
        # rounding takes the smallest below zero
        self.values = values.clamp(min=0)
        self.turned = self.vectors.mT @ cross

    def ridge(self, penalty: float) -> Tensor:
        """Return the weights of ridge regression, ``[M, k]``."""
        return self._weights(1 / (self.values + penalty))

    def cut(self, rank: int, penalty: float = 0.0) -> Tensor:
        """Return the weights on the largest eigenvalues alone, ``[M, k]``.

        Args:
            rank: Number of eigenvalues to keep. Those that rounding has made are never kept.
            penalty: Added to the kept ones; 0 for least squares of minimal norm on them.
        """
        largest = self.values[-1]
        noise = torch.finfo(self.values.dtype).eps * len(self.values) * largest
        kept = self.values > noise
        kept[: max(len(kept) - rank, 0)] = False
        return self._weights(torch.where(kept, 1 / (self.values + penalty).clamp(min=noise), 0.0))

    def validation_errors(self, penalties: Sequence[float], rows: int, norm: float) -> Tensor:
        """Return the generalised cross-validation of penalties, ``[penalties]``; the least is the best.

        It is ``(R / n) / (1 - df / n)^2`` with the residual ``R`` and the degrees of freedom ``df`` of ridge
        regression, both from the sums: ``R = |Y|^2 - sum_i b_i^2 (s_i + 2 p) / (s_i + p)^2`` with the squared
        lengths ``b_i^2`` of the rows of ``V^T Q``, and ``df = sum_i s_i / (s_i + p)``. A penalty whose
        degrees of freedom reach the number of rows explains everything and says nothing: its error is
        infinite.

        Args:
            penalties: The candidates.
            rows: Number n of rows.
            norm: ``|Y|^2``; for one-hot labels the number of rows.
        """
        explained = self.turned.square().sum(1)
        errors = []
        for penalty in penalties:
            raised = self.values + penalty
            freedom = (self.values / raised).sum() / rows
            residual = norm - (explained * (raised + penalty) / raised.square()).sum()
            # rounding may take what is left of the labels below zero
            error = residual.clamp(min=0) / rows / (1 - freedom).square()
            errors.append(torch.where(freedom > _FREE, torch.inf, error))
        return torch.stack(errors)

    def _weights(self, factors: Tensor) -> Tensor:
        weights: Tensor = self.vectors @ (factors[:, None] * self.turned)
        return weights
