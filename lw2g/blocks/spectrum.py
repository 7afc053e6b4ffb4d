"""Building block: regression on sums with a cut spectrum, by one eigendecomposition for every rank.

Heads that regress one-hot labels Y on rows H differ in what they do to the spectrum of ``G = H^T H``. With
``G = V diag(s) V^T`` and ``Q = H^T Y`` the weights are ``V diag(f(s)) V^T Q``: ridge regression has
``f = 1 / (s + penalty)``, a cut spectrum the same on the largest s and 0 elsewhere (TSVD, LoRanPAC: Peng et
al., ICLR 2025), least squares of minimal norm ``f = 1 / s`` on all s above 0. What is chosen from sums alone
depends neither on the order of the rows nor on how they are cut into tasks.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Spectrum"]


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

    def cut(self, rank: int, penalty: float = 0.0) -> Tensor:
        """Return the weights on the largest eigenvalues alone, ``[M, k]``.

        Args:
            rank: Number of eigenvalues to keep. Those that rounding has made are never kept.
            penalty: Added to the kept ones; 0 for least squares of minimal norm on them.
        """
        largest = self.values[-1]
        noise = torch.finfo(self.values.dtype).eps * len(self.values) * largest
        kept = self.values > noise
        kept[: max(len(kept) - rank, 0)] = False  # they ascend: the last ``rank`` are the largest
        return self._weights(torch.where(kept, 1 / (self.values + penalty).clamp(min=noise), 0.0))

    def _weights(self, factors: Tensor) -> Tensor:
        weights: Tensor = self.vectors @ (factors[:, None] * self.turned)
        return weights
