"""Hinder forward capability (HFC): how much of a gradient the projection off a subspace removes.

HFC(g, S) is the angle between a gradient g and its part outside the subspace S: 0 degrees if g is orthogonal
to S, so that nothing is removed, 90 degrees if g lies in S, so that nothing is left (LW2G, definition of HFC
and Theorem 1). Two nulls give the angles by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import attrs
import torch
from torch import Tensor

from lw2g.maths.subspace import Subspace

__all__ = ["Hindrance", "Reduce", "energy_null_hfc", "hfc", "null_hfc", "over_sites", "site_angles"]

Reduce = Literal["mean-cos", "mean-angle", "global"]


@attrs.frozen(kw_only=True)
class Hindrance:
    """HFC in degrees, over all sites and per site; None if the gradient is zero, which has no direction."""

    degrees: float | None
    per_site: tuple[float | None, ...]


def hfc(gradients: Sequence[Tensor], spaces: Sequence[Subspace], *, reduce: Reduce = "mean-cos") -> Hindrance:
    """Return the angle between gradients [rows, dim], one per site, and their parts outside ``spaces``.

    The angle of a row is ``atan2(|on|, |off|)`` in float64. Zero rows are skipped, and so is a site with only
    zero rows. ``reduce`` "mean-cos" gives the arccos of the mean over sites (equal weight) of the mean over
    rows of the cosine, as in LW2G; "mean-angle" the mean over sites of the mean angle over rows; "global"
    takes each site's gradient as one vector and averages the sites' cosines.

    >>> axis = Subspace(basis=torch.tensor([[[1.0], [0.0]]]), ranks=(1,))
    >>> round(hfc([torch.tensor([[1.0, 1.0]])], [axis]).degrees, 6)
    45.0

    Raises:
        ValueError: No site, counts or widths that differ, a gradient that is not finite, or an unknown
        ``reduce``.
    """
    if not gradients or len(gradients) != len(spaces):
        raise ValueError(f"expected one space per gradient but got {len(gradients)} and {len(spaces)}")
    one_sum = torch.ones(1, 1, 1, dtype=torch.float64)
    angles = []
    for gradient, space in zip(gradients, spaces, strict=True):
        rows = gradient
        if gradient.ndim:  # a number is refused as it is
            rows = gradient.reshape(-1, gradient.shape[-1])
        angles.append(site_angles(rows[None, None], one_sum, space, reduce=reduce)[0, 0, 0])
    sites = torch.stack(angles)
    return Hindrance(
        degrees=_degrees(float(over_sites(sites, reduce=reduce))),
        per_site=tuple(map(_degrees, sites.tolist())),
    )


def _degrees(angle: float) -> float | None:
    """Return an angle in radians in degrees; None for NaN."""
    if math.isnan(angle):
        return None
    return math.degrees(angle)


@torch.no_grad()
def site_angles(
    gradients: Tensor, weights: Tensor, space: Subspace, *, reduce: Reduce = "mean-cos"
) -> Tensor:
    """Return the angles in radians of many sums of gradients at one site, NaN where a sum is zero.

    Args:
        gradients: The gradients to sum over groups, ``[draws, groups, rows, dim]``.
        weights: The weight of each group in each sum, ``[n, width, groups]`` float64.
        space: The direct sum of n spaces (:meth:`Subspace.side_by_side`); the sums of
            ``weights[i]`` are measured against the i-th of them.
        reduce: As in :func:`hfc`.

    Returns:
        ``[draws, width, n]`` float64.

    Raises:
        ValueError: Widths differ, a gradient is not finite, or ``reduce`` is unknown.
    """
    if reduce not in ("mean-cos", "mean-angle", "global"):
        raise ValueError(f"expected reduce 'mean-cos', 'mean-angle' or 'global' but got {reduce!r}")
    count, width, groups = weights.shape
    dim = space.dim // count
    if gradients.ndim != 4 or gradients.shape[-1] != dim or space.heads % count:
        raise ValueError(f"expected a gradient [rows, {dim}] but got {tuple(gradients.shape[2:])}")
    double = gradients.to(torch.float64)
    if not bool(torch.isfinite(double).all()):
        raise ValueError("expected a finite gradient but got values that are infinite or not a number")
    # Angles do not depend on scale, but the squares of a tiny gradient would vanish. A row is scaled alone,
    # unless its size relative to the other rows counts.
    shared = (1, 2, 3) if reduce == "global" else (1, 3)
    largest = double.abs().amax(dim=shared, keepdim=True)
    double = double / torch.where(largest > 0, largest, 1.0)
    draws = len(double)
    rows = double.shape[2]
    heads = space.heads // count
    across = dim // heads  # width of a head
    # [heads, groups, draws * rows * width of a head]: one product gives all sums in the layout needed below
    split = double.reshape(draws, groups, rows, heads, across).permute(3, 1, 0, 2, 4)
    sums = weights.to(double).reshape(-1, groups) @ split.reshape(heads, groups, -1)
    sums = sums.reshape(heads * count, width * draws * rows, across)
    basis = space.basis.to(double).reshape(count, heads, across, -1).transpose(0, 1).flatten(0, 1)
    inside = sums @ basis  # coordinates, of the same norm as the part itself
    sums.baddbmm_(inside, basis.mT, alpha=-1)  # less the part inside; in place to save memory
    parts = torch.stack([inside.square_().sum(dim=-1), sums.square_().sum(dim=-1)])
    parts = parts.reshape(2, heads, -1).sum(dim=1)
    parts = parts.reshape(2, count, width, draws, rows)
    if reduce == "global":
        parts = parts.sum(dim=-1, keepdim=True)
    sine, cosine = parts.sqrt()
    # atan2(0, 0) would be 0 degrees: a gradient of zero is not hindered, it has no direction
    angles = torch.where((sine > 0) | (cosine > 0), torch.atan2(sine, cosine), math.nan)
    return _mean(angles, -1, reduce).permute(2, 1, 0)


def over_sites(angles: Tensor, *, reduce: Reduce = "mean-cos") -> Tensor:
    """Return the angle [...] over all sites from angles [sites, ...]; NaN sites are left out."""
    return _mean(angles, 0, reduce)


def _mean(angles: Tensor, dim: int, reduce: Reduce) -> Tensor:
    if reduce == "mean-angle":
        return angles.nanmean(dim=dim)
    return _angle_of_mean_cosine(angles, dim)


def null_hfc(ranks_and_dims: Sequence[tuple[int, int]]) -> float:
    """Return the HFC in degrees that random subspaces of the same ranks would give.

    For a fixed g and a random S of rank r in R^d the squared cosine is ``1 - Beta(r/2, (d-r)/2)``, that is
    Beta(b, a) with b = (d-r)/2 and a = r/2, and ``E sqrt Beta(b, a) = G(b+1/2) G(a+b) / (G(b) G(a+b+1/2))``
    with the gamma function G. A direct sum over heads counts with its total rank in its total width, which is
    a good approximation if all heads have about the same rank. Sites are averaged as cosines.

    >>> null_hfc([(0, 8)]), null_hfc([(8, 8)])
    (0.0, 90.0)

    Raises:
        ValueError: There is no site, or a rank is not between 0 and its dim.
    """
    if not ranks_and_dims:
        raise ValueError("expected at least one site but got none")
    cosines = [_expected_cosine(rank, dim) for rank, dim in ranks_and_dims]
    mean = sum(cosines) / len(cosines)
    return math.degrees(math.acos(min(1.0, mean)))  # rounding may carry a mean of ones above 1


def energy_null_hfc(shares: Sequence[float | None]) -> float | None:
    """Return the HFC in degrees of a random combination of the new task's activations.

    ``shares`` are the shares of the new task's energy that the sites' spaces capture
    (:func:`~lw2g.maths.subspace.captured_shares`): each is the mean squared cosine with the space, so a
    site's cosine is ``sqrt(1 - share)``. Sites without energy (None) are left out; None without any others.

    >>> round(energy_null_hfc([0.75, 0.75]), 6)
    60.0
    """
    energetic = [share for share in shares if share is not None]
    if not energetic:
        return None
    angles = torch.tensor(energetic, dtype=torch.float64).sqrt().asin()
    return math.degrees(float(_angle_of_mean_cosine(angles, 0)))


def _angle_of_mean_cosine(angles: Tensor, dim: int) -> Tensor:
    """Return ``arccos(mean cos(angles))`` in radians, accurate also near 0, where arccos is not."""
    versine = (2 * torch.sin(angles / 2).square()).nanmean(dim=dim)  # 1 - cos
    return 2 * (versine / 2).sqrt().asin()


def _expected_cosine(rank: int, dim: int) -> float:
    """Return the mean cosine ``E sqrt(X)`` of :func:`null_hfc`; 1 where a space is empty, 0 where it is all.

    With a + b = dim / 2 and b = (dim - rank) / 2 it is ``G(b + 1/2) G(a + b) / (G(b) G(a + b + 1/2))``.
    """
    if not 0 <= rank <= dim or dim < 1:
        raise ValueError(f"expected a rank from 0 to its dim but got {rank!r} of {dim!r}")
    if rank == 0:
        return 1.0
    if rank == dim:
        return 0.0
    whole = dim / 2  # a + b of null_hfc
    outside = (dim - rank) / 2  # b
    # logarithms, because the gamma function of a width of 768 overflows
    ratio = math.lgamma(outside + 0.5) - math.lgamma(outside) + math.lgamma(whole) - math.lgamma(whole + 0.5)
    return math.exp(ratio)
