"""Worked examples, published figures and refusals of lw2g.maths.hindrance."""

from __future__ import annotations

import math

import pytest
import torch

from lw2g.maths.hindrance import Hindrance, energy_null_hfc, hfc, null_hfc
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace, captured_shares

VIT_BASE_WIDTH = 12 * 64  # heads x head width of the backbone behind the published figures
AXIS = Subspace(basis=torch.tensor([[[1.0], [0.0]]], dtype=torch.float64), ranks=(1,))


def row(degrees: float, size: float = 1.0) -> torch.Tensor:
    """Return a gradient row at an angle from the direction that AXIS leaves free."""
    angle = math.radians(degrees)
    return size * torch.tensor([math.sin(angle), math.cos(angle)], dtype=torch.float64)


def test_a_gradient_of_any_shape_is_one_of_rows() -> None:
    """Leading axes (blocks, positions) only count rows."""
    rows = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for reduce in ("mean-cos", "mean-angle", "global"):
        assert hfc([rows.reshape(2, 3, 2)], [AXIS], reduce=reduce) == hfc([rows], [AXIS], reduce=reduce)


def test_zero_gradient_is_undefined_evidence() -> None:
    """A gradient of zeros has no angle, not an angle of zero."""
    nothing = hfc([torch.zeros(3, 2), torch.zeros(0, 2)], [AXIS, AXIS])
    assert nothing == Hindrance(degrees=None, per_site=(None, None))


def test_float32_gradient_is_measured_in_float64() -> None:
    """A tiny float32 gradient, whose squares vanish in float32, still has its angle."""
    assert hfc([row(30)[None].float() * 1e-30], [AXIS]).degrees == pytest.approx(30, abs=1e-5)


@pytest.mark.parametrize(
    ("ranks", "law", "logged"),
    [((40, 44, 47, 46, 46), 13.94, 13.90), ((311, 340, 369, 372, 363), 42.51, 42.54)],
)
def test_null_reproduces_published_angles(ranks: tuple[int, ...], law: float, logged: float) -> None:
    """The released run's angles follow from its ranks alone, within a quarter of a degree (LW2G, Table 7)."""
    null = null_hfc([(rank, VIT_BASE_WIDTH) for rank in ranks])
    assert null == pytest.approx(law, abs=0.25)
    assert null == pytest.approx(logged, abs=0.25)


@pytest.mark.parametrize(("rank", "dim"), [(1, 2), (3, 8), (7, 8), (20, 24)])
def test_null_equals_mean_over_random_gradients(rank: int, dim: int) -> None:
    """The closed form is the mean cosine of normal gradients with a fixed space of that rank."""
    normal = torch.randn(100_000, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(dim))
    cosines = normal[:, rank:].norm(dim=1) / normal.norm(dim=1)
    error = float(cosines.std()) / math.sqrt(len(cosines))
    assert math.cos(math.radians(null_hfc([(rank, dim)]))) == pytest.approx(
        float(cosines.mean()), abs=5 * error
    )


def test_null_averages_sites_as_cosines() -> None:
    """An empty and a full site have the mean cosine 1/2."""
    assert null_hfc([(0, 6), (6, 6)]) == pytest.approx(60)


def test_energy_null_by_hand() -> None:
    """Shares 1/4 and 1 inside give cosines sqrt(3/4) and 0; a site without energy is left out."""
    quarter, whole = SecondMoment(2), SecondMoment(2)
    quarter.update(torch.tensor([[1.0, 0.0], [0.0, math.sqrt(3)]]))
    whole.update(torch.tensor([[5.0, 0.0]]))
    expected = math.degrees(math.acos(math.sqrt(0.75) / 2))
    assert energy_null_hfc(captured_shares([(AXIS, quarter), (AXIS, whole)])) == pytest.approx(expected)
    assert energy_null_hfc(captured_shares([(AXIS, SecondMoment(2)), (AXIS, whole)])) == pytest.approx(90)
    assert energy_null_hfc(captured_shares([(AXIS, SecondMoment(2))])) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hfc([], []), "expected one space per gradient but got 0 and 0"),
        (lambda: hfc([row(0)], []), "expected one space per gradient but got 1 and 0"),
        (lambda: hfc([torch.ones(1, 3)], [AXIS]), r"expected a gradient \[rows, 2\] but got \(1, 3\)"),
        (lambda: hfc([torch.full((1, 2), math.nan)], [AXIS]), "expected a finite gradient"),
        (lambda: hfc([row(0)], [AXIS], reduce="median"), "but got 'median'"),
        (lambda: null_hfc([]), "expected at least one site"),
        (lambda: null_hfc([(3, 2)]), "expected a rank from 0 to its dim but got 3 of 2"),
        (lambda: null_hfc([(0, 0)]), "expected a rank from 0 to its dim but got 0 of 0"),
    ],
)
def test_misuse_is_refused_with_expected_and_got(call: object, message: str) -> None:
    """Counts, shapes and choices that do not fit raise ValueError and say why."""
    with pytest.raises(ValueError, match=message):
        call()
