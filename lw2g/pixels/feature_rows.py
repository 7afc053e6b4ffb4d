"""Feature rows of samples: computed once, or kept while their source and its version stay the same."""

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
    """Feature rows of samples, each with its source (a set, say) and the source's version.

    A sample has a *slot* for each set that answers for it: memory grows with the number of answering sets,
    not of all sets.

    Args:
        size: Number of samples.
    """

    def __init__(self, size: int) -> None:
        # no source is -2 (-1 stands for the backbone alone), and no version is -1
        self._sources = np.full((size, 1), -2, dtype=np.int64)
        self._versions = np.full((size, 1), -1, dtype=np.int64)
        self._slots: list[Tensor] = []

    def rows(self, slot: int = 0) -> Tensor:
        """Return the rows of all samples in a slot, ``[size, ...]``, on the device where they were computed.

        Raises:
            ValueError: No row was ever computed.
        """
        if slot >= len(self._slots):
            raise ValueError("expected an evaluation, but there was none yet")
        return self._slots[slot]

    def forget(self) -> None:
        """Mark all rows as invalid."""
        self._versions[:] = -1

    def place(self, sources: Integers, *, all_of_them: bool) -> Integers:
        """Return the sources of the first samples, arranged so that earlier sources keep their slots.

        Args:
            sources: The sources that answer, ``[n, k]``, ascending in every row; k never shrinks.
            all_of_them: Whether all sources answer, so that each has a fixed slot.
        """
        count, slots = sources.shape
        # a new slot has no source (-2) and no version (-1)
        num_missing = slots - self._sources.shape[1]
        self._sources = np.pad(self._sources, ((0, 0), (0, num_missing)), constant_values=-2)
        self._versions = np.pad(self._versions, ((0, 0), (0, num_missing)), constant_values=-1)
        if all_of_them or slots == 1:
            return sources
        before = self._sources[:count]
        same = before[:, :, None] == sources[:, None, :]
        stays = same.any(2)
        placed = np.where(stays, before, -2)
        placed[~stays] = sources[~same.any(1)]  # as many new ones as free slots, row by row
        return placed

    def compare(
        self, sources: Integers, versions: Integers
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return whether the rows of the first samples are valid, and whether they have rows of that source.

        Args:
            sources: What the rows should come from, ``[n, k]``.
            versions: Its version, ``[n, k]``, from 0.
        """
        before = self._versions[: len(sources)]
        same = (before >= 0) & (self._sources[: len(sources)] == sources)
        return same & (before == versions), same

    def replace(self, positions: Integers, slots: Integers, rows: Tensor) -> Tensor:
        """Put new rows ``[n, ...]`` in place of old ones; return the relative change of each, ``[n]``.

        The change of a row that was never computed is not finite.

        Args:
            positions: The samples, ``[n]``.
            slots: The slot of each, ``[n]``.
            rows: What they hold from now on.
        """
        while len(self._slots) < self._sources.shape[1]:
            self._slots.append(rows.new_zeros(len(self._sources), *rows.shape[1:]))
        change = rows.new_empty(len(rows))
        for slot in np.unique(slots):
            here = torch.from_numpy(np.flatnonzero(slots == slot)).to(rows.device)
            where = torch.from_numpy(positions[slots == slot]).to(rows.device, non_blocking=True)
            old = self._slots[slot][where]
            new = rows[here]
            self._slots[slot][where] = new
            distance = torch.linalg.vector_norm(new - old, dim=1)
            # the old row of one never computed is 0, and its change infinite
            change[here] = distance / torch.linalg.vector_norm(old, dim=1)
        return change

    def note(self, sources: Integers, versions: Integers) -> None:
        """Note the present sources and versions of the rows of the first samples."""
        self._sources[: len(sources)] = sources
        self._versions[: len(sources)] = versions
