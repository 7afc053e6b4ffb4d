"""A feature cache: rows that belong to samples, each computed once and kept until it is dropped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

__all__ = ["FeatureCache"]


class FeatureCache:
    """Feature rows of a fixed number of samples.

    Args:
        size: Number of samples.
    """

    def __init__(self, size: int) -> None:
        self._known = np.zeros(size, dtype=bool)
        self._rows: Tensor | None = None

    def missing(self, positions: Sequence[int]) -> list[int]:
        """Return the positions whose rows are not known, each once and in order."""
        return [position for position in dict.fromkeys(positions) if not self._known[position]]

    def store(self, positions: Sequence[int], rows: Tensor) -> None:
        """Keep the rows ``[n, ...]`` of ``n`` different samples."""
        if self._rows is None:
            self._rows = rows.new_zeros(len(self._known), *rows.shape[1:])
        self._rows[list(positions)] = rows
        self._known[list(positions)] = True

    def rows(self, positions: Sequence[int]) -> Tensor:
        """Return the rows of samples ``[n, ...]``, on the device where they were computed.

        Raises:
            ValueError: a row is not known.
        """
        if self._rows is None or not self._known[list(positions)].all():
            raise ValueError("expected samples whose features are known; store them first")
        return self._rows[torch.as_tensor(list(positions), device=self._rows.device)]
