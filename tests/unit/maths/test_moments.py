"""Sums, limits and refusals of lw2g.maths.moments."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lw2g.maths.moments import SecondMoment


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Return standard normal float64 values."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_half_precision_rows_are_summed_in_float64() -> None:
    """Thousands of bfloat16 rows add up without loss."""
    moment = SecondMoment(2)
    for _ in range(300):
        moment.update(torch.ones(100, 2, dtype=torch.bfloat16))
    assert moment.matrix.tolist() == [[[30000.0, 30000.0], [30000.0, 30000.0]]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SecondMoment(6, 4), "expected heads that divide dim but got dim 6 and heads 4"),
        (
            lambda: SecondMoment(4).update(torch.ones(2, 3)),
            r"expected floating point rows \[\.\.\., 4\] but got",
        ),
        (lambda: SecondMoment(4).update(torch.ones(2, 4, dtype=torch.int64)), "but got torch.int64"),
        (lambda: SecondMoment(4).merge(SecondMoment(4, 2)), "dim 4 in 1 heads but got 4 in 2"),
    ],
)
def test_misuse_is_refused_with_expected_and_got(call: object, message: str) -> None:
    """Shapes and counts that do not fit raise ValueError and say why."""
    with pytest.raises(ValueError, match=message):
        call()
