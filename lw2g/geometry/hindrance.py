"""Hinder forward capability (HFC): how much of a gradient a protected subspace would take away.

HFC(g, S) is the angle between a gradient g and its part outside the subspace S: 0 degrees when g is
orthogonal to S and nothing is lost, 90 degrees when g lies in S and nothing is left (LW2G, definition of
HFC and Theorem 1). Beside it stand two nulls, the angles that a comparison with chance needs, and the
jackknife error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import attrs
import torch
from torch import Tensor

from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import Subspace

__all__ = ["Hindrance", "Reduce", "energy_null_hfc", "hfc", "jackknife_error", "null_hfc"]

Reduce = Literal["mean-cos", "mean-angle", "global"]


@attrs.frozen(kw_only=True)
class Hindrance:
    """HFC of one candidate in degrees, over all sites and per site; None where the gradient is zero.

    A zero gradient has no direction: it is undefined evidence, not an angle of zero.
    """

    degrees: float | None
    per_site: tuple[float | None, ...]


def hfc(gradients: Sequence[Tensor], spaces: Sequence[Subspace], *, reduce: Reduce = "mean-cos") -> Hindrance:
    """Return the angle between gradients [rows, dim], one per site, and their parts outside ``spaces``.

    The angle of a row is ``atan2(|on|, |off|)`` in float64. Zero rows are skipped and a site with only zero
    rows is left out. ``reduce`` says what becomes one angle: "mean-cos" the arccos of the mean over sites
    (equal weight) of the mean over rows of the cosine, as in LW2G; "mean-angle" the mean over sites of the
    mean angle over rows; "global" takes each site's gradient as one vector and averages the sites' cosines.

    >>> axis = Subspace(basis=torch.tensor([[[1.0], [0.0]]]), ranks=(1,))
    >>> round(hfc([torch.tensor([[1.0, 1.0]])], [axis]).degrees, 6)
    45.0

    Raises:
        ValueError: no site, counts or widths that differ, a gradient that is not finite, or an unknown
        ``reduce``.
    """
    if not gradients or len(gradients) != len(spaces):
        raise ValueError(f"expected one space per gradient but got {len(gradients)} and {len(spaces)}")
    if reduce not in ("mean-cos", "mean-angle", "global"):
        raise ValueError(f"expected reduce 'mean-cos', 'mean-angle' or 'global' but got {reduce!r}")
    sites = [_site_angle(*site, reduce) for site in zip(gradients, spaces, strict=True)]
    defined = torch.tensor([angle for angle in sites if angle is not None], dtype=torch.float64)
    if len(defined) == 0:
        return Hindrance(degrees=None, per_site=(None,) * len(sites))
    together = float(defined.mean()) if reduce == "mean-angle" else _angle_of_mean_cosine(defined)
    per_site = tuple(None if angle is None else math.degrees(angle) for angle in sites)
    return Hindrance(degrees=math.degrees(together), per_site=per_site)


def null_hfc(ranks_and_dims: Sequence[tuple[int, int]]) -> float:
    """Return the HFC in degrees that random subspaces of the same ranks would give.

    For a fixed g and a random S of rank r in R^d the squared cosine is ``1 - Beta(r/2, (d-r)/2)``, that is
    Beta(b, a) with b = (d-r)/2 and a = r/2, and ``E sqrt Beta(b, a) = G(b+1/2) G(a+b) / (G(b) G(a+b+1/2))``
    with the gamma function G. A direct sum over heads enters with its total rank in its total width: an
    approximation that holds when all heads have about the same share of rank. Sites are averaged as
    cosines.

    >>> null_hfc([(0, 8)]), null_hfc([(8, 8)])
    (0.0, 90.0)

    Raises:
        ValueError: there is no site, or a rank is not between 0 and its dim.
    """
    if not ranks_and_dims:
        raise ValueError("expected at least one site but got none")
    cosines = [_expected_cosine(rank, dim) for rank, dim in ranks_and_dims]
    return math.degrees(math.acos(min(1.0, sum(cosines) / len(cosines))))


def energy_null_hfc(spaces: Sequence[Subspace], moments: Sequence[SecondMoment]) -> float | None:
    """Return the HFC in degrees that a random combination of the new task's activations would show.

    ``moments`` are the new task's second moments at the sites' taps. The share of energy a space captures
    is the mean squared cosine with the space, so a site counts ``sqrt(1 - captured)``. Sites whose moment
    holds no energy are left out; without any energy the angle is undefined.

    Raises:
        ValueError: there is no site, or counts, widths or heads differ.
    """
    if not spaces or len(spaces) != len(moments):
        raise ValueError(f"expected one moment per space but got {len(moments)} and {len(spaces)}")
    shares = [space.captured(moment) for space, moment in zip(spaces, moments, strict=True)]
    energetic = [share for share, moment in zip(shares, moments, strict=True) if moment.trace() > 0]
    if not energetic:
        return None
    angles = torch.tensor(energetic, dtype=torch.float64).sqrt().asin()
    return math.degrees(_angle_of_mean_cosine(angles))


def jackknife_error(leave_one_out: Sequence[float]) -> float:
    """Return the jackknife standard error ``sqrt((n-1)/n sum (x_i - mean)^2)`` of n leave-one-out values.

    >>> jackknife_error([1.0, 3.0])
    1.0

    Raises:
        ValueError: fewer than two values.
    """
    count = len(leave_one_out)
    if count < 2:
        raise ValueError(f"expected at least 2 leave-one-out values but got {count}")
    mean = math.fsum(leave_one_out) / count
    return math.sqrt((count - 1) / count * math.fsum((value - mean) ** 2 for value in leave_one_out))


@torch.no_grad()
def _site_angle(gradient: Tensor, space: Subspace, reduce: Reduce) -> float | None:
    """Return the angle of one site in radians, or None when every row is zero."""
    if gradient.ndim == 0 or gradient.shape[-1] != space.dim:
        raise ValueError(f"expected a gradient [rows, {space.dim}] but got {tuple(gradient.shape)}")
    rows = gradient.reshape(-1, space.dim).to(torch.float64)
    if not bool(torch.isfinite(rows).all()):
        raise ValueError("expected a finite gradient but got values that are infinite or not a number")
    rows = rows[rows.any(dim=1)]
    if len(rows) == 0:
        return None
    # Angles know no scale; without it the squares of a tiny gradient vanish.
    largest = rows.abs().amax(dim=1, keepdim=True)
    rows = rows / (largest.amax() if reduce == "global" else largest)
    inside = space.on(rows)
    over = (0, 1) if reduce == "global" else 1
    sine = torch.linalg.vector_norm(inside, dim=over)
    cosine = torch.linalg.vector_norm(rows - inside, dim=over)
    angles = torch.atan2(sine, cosine).reshape(-1)
    return float(angles.mean()) if reduce == "mean-angle" else _angle_of_mean_cosine(angles)


def _angle_of_mean_cosine(angles: Tensor) -> float:
    """Return ``arccos(mean cos(angles))`` in radians, near 0 too, where arccos loses half the digits."""
    versine = float((2 * torch.sin(angles / 2).square()).mean())  # 1 - cos
    return 2 * math.asin(math.sqrt(versine / 2))


def _expected_cosine(rank: int, dim: int) -> float:
    if not 0 <= rank <= dim or dim < 1:
        raise ValueError(f"expected a rank from 0 to its dim but got {rank!r} of {dim!r}")
    if rank in (0, dim):
        return float(rank == 0)
    whole, outside = dim / 2, (dim - rank) / 2
    ratio = math.lgamma(outside + 0.5) - math.lgamma(outside) + math.lgamma(whole) - math.lgamma(whole + 0.5)
    return math.exp(ratio)
