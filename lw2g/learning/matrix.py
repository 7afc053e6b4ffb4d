"""A matrix of tasks by tasks that grows by a column per evaluation, as numbers and as the record's text.

A run writes its record after every task. Formatting the whole matrix each time would cost the square of the
tasks, so each row keeps its text and gets one more entry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["GrowingMatrix"]


class GrowingMatrix:
    """``A[i][t]``, undefined for ``i > t`` and where a value is None.

    Args:
        columns: The values of each evaluation, one per task seen by then.

    >>> grown = GrowingMatrix([[90.0], [70.0, 80.0]])
    >>> grown.lines
    ['[90.0, 70.0]', '[null, 80.0]']
    >>> grown.values.tolist()
    [[90.0, 70.0], [nan, 80.0]]
    """

    def __init__(self, columns: Sequence[Sequence[float | None]] = ()) -> None:
        self._values = np.full((8, 8), np.nan)
        self._rows: list[str] = []
        for column in columns:
            self.add(column)

    def add(self, column: Sequence[float | None]) -> None:
        """Add the values of an evaluation: one for each earlier task, and one for the new task."""
        tasks = len(column)
        if tasks > len(self._values):  # doubled at least, so that few evaluations copy the matrix
            self._values = np.pad(self._values, (0, tasks), constant_values=np.nan)
        self._values[:tasks, tasks - 1] = np.array(column, dtype=np.float64)
        # rows are kept as JSON text, too, and each gets a number; the new task has none for earlier ones
        numbers = json.dumps(list(column), allow_nan=False)[1:-1].split(", ")
        self._rows = [f"{row}, {value}" for row, value in zip(self._rows, numbers, strict=False)]
        self._rows.append("null, " * (tasks - 1) + numbers[-1])

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """The matrix as numbers ``[T, T]``, NaN where it is undefined."""
        return self._values[: len(self._rows), : len(self._rows)]

    @property
    def lines(self) -> list[str]:
        """Its rows in JSON, null where it is undefined."""
        return [f"[{row}]" for row in self._rows]
