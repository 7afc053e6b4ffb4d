"""Feature rows that belong to samples: computed once, or kept as long as what they come from is the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["FeatureCache", "Integers", "VersionedRows"]

Integers = npt.NDArray[np.int64]


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
        wanted = np.asarray(positions, dtype=np.int64)
        return list(dict.fromkeys(wanted[~self._known[wanted]].tolist()))

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


class VersionedRows:
    """Feature rows of samples, each with what it came from (a set, say) and that one's version.

    Args:
        size: Number of samples.
    """

    def __init__(self, size: int) -> None:
        self._sources = np.full(size, -1, dtype=np.int64)
        self._versions = np.full(size, -1, dtype=np.int64)
        self._rows: Tensor | None = None

    @property
    def rows(self) -> Tensor:
        """The rows of all samples ``[size, ...]``, on the device where they were computed.

        Raises:
            ValueError: No row was ever computed.
        """
        if self._rows is None:
            raise ValueError("expected an evaluation, but there was none yet")
        return self._rows

    def forget(self) -> None:
        """Let no row be valid any longer."""
        self._versions[:] = -1

    def compare(
        self, sources: Integers, versions: Integers
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return of the first samples whether their rows are valid, and whether there are any of that source.

        Args:
            sources: What the rows should come from, ``[n]``.
            versions: Its version, ``[n]``, from 0.
        """
        count = len(sources)
        before = self._versions[:count]
        same = (before >= 0) & (self._sources[:count] == sources)
        return same & (before == versions), same

    def replace(self, positions: Integers, rows: Tensor) -> Tensor:
        """Put new rows ``[n, ...]`` in place of old ones; return the relative change of each, ``[n]``.

        The change of a row that was never computed is not finite.
        """
        if self._rows is None:
            self._rows = rows.new_zeros(len(self._sources), *rows.shape[1:])
        where = torch.from_numpy(positions).to(self._rows.device, non_blocking=True)
        old = self._rows[where]
        self._rows[where] = rows
        return torch.linalg.vector_norm(rows - old, dim=1) / torch.linalg.vector_norm(old, dim=1)

    def note(self, sources: Integers, versions: Integers) -> None:
        """Say what the rows of the first samples have come from by now."""
        self._sources[: len(sources)], self._versions[: len(sources)] = sources, versions
