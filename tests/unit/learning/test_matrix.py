"""A matrix that grows by columns is, as numbers and as text, what making it anew would give."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from lw2g.learning.matrix import GrowingMatrix


@given(draw=st.data(), tasks=st.integers(0, 20))
def test_rows_and_numbers_are_those_of_the_columns(draw: st.DataObject, tasks: int) -> None:
    """``A[i][t]`` is what evaluation t found of task i, and undefined before that task."""
    percent = st.one_of(st.floats(0, 100), st.integers(0, 100))
    columns = [draw.draw(st.lists(percent, min_size=t + 1, max_size=t + 1)) for t in range(tasks)]
    grown = GrowingMatrix(columns[: tasks // 2])
    for column in columns[tasks // 2 :]:
        grown.add(column)
    rows = [[columns[t][i] if i <= t else None for t in range(tasks)] for i in range(tasks)]
    assert grown.lines == [json.dumps(row) for row in rows]
    numbers = [[None if math.isnan(value) else value for value in row] for row in grown.values.tolist()]
    assert numbers == rows
