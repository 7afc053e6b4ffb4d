"""Gradient agreement (CUBER, Lin et al., NeurIPS 2022): does the new task pull where the old ones pulled?

``c = <P g_new, P g_old> / (|P g_new| |P g_old|)`` per site, in the set's own old space, mean over sites.
The old gradient is the one from the beginning of each task of the set: at its end it is nearly zero, and
its sign is noise. Both are of heads fitted to the features, since through a random head agreement means
nothing. Noise shrinks every cosine: ``own`` is what two noiseless copies of one direction would show, the
root of the product of both reliabilities. Where a set's down factors stand behind up factors that begin at
zero (low rank, adapters), the gradient of the beginning is zero, and so agreement is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from lw2g.plugin import Measure, Measurement, Sample, Subspace, half_samples, spread_over_halves
from lw2g_growth.averages import mean_of_known

__all__ = ["Agreement"]

_Site = tuple[Tensor, Tensor, Subspace]
"""The new gradient by group, the halves of the old one, and the space."""


class Agreement(Measure):
    """Cosine of the new mean gradient with that of old tasks when they began, inside the old space."""

    needs = frozenset(("spaces", "fitted"))
    stores = "begin"
    store_needs = frozenset(("fitted",))

    def store(self, sample: Sample) -> Mapping[str, Tensor]:
        """Add the task's mean gradient, by half of its images: ``[2, rows, dim]`` per site."""
        (candidate,) = sample.candidates
        stored = sample.stored.get(candidate.set, {})
        gradients = {}
        for name, gradient in candidate.fitted.items():
            mean = _halves(gradient).cpu() / len(sample)
            # a mean for each task, so that a task counts the same however many images it has
            if name in stored:
                mean = mean + stored[name]
            gradients[name] = mean
        return gradients

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return the agreement of every candidate with stored gradients."""
        halves = half_samples(torch.arange(sample.num_groups), sample.generator("half-samples"))
        agreements = {}
        for candidate in sample.candidates:
            old = sample.stored.get(candidate.set, {})
            sites: dict[str, _Site] = {}
            for name, space in candidate.spaces.items():
                if name in old:
                    sites[name] = (candidate.fitted[name], old[name], space)
            if not sites:
                continue
            everything = torch.arange(sample.num_groups)

            # sites as a default: it stays that of this candidate while the loop goes on
            def agreement(at: Tensor, sites: Mapping[str, _Site] = sites) -> float | None:
                """Return the mean over sites of the agreement on the images of some groups."""
                return mean_of_known([_agreement(site, at) for site in sites.values()])

            value = agreement(everything)
            if value is None:
                agreements[candidate.set] = Measurement(
                    n=len(sample), unit="cosine", why="a gradient is zero in the space"
                )
                continue
            # the new task's images alone are resampled: of the old ones nothing but two sums is kept
            spread = spread_over_halves(agreement, halves, sample.left_out)
            ceilings = []
            inside = []
            by_site: dict[str, dict[str, float | None]] = {}
            for name, site in sites.items():
                new, old_halves, space = site
                ceilings.append(_ceiling(new, old_halves, space))
                inside.append(_inside(new, space))
                by_site[name] = {"value": _agreement(site, everything)}
            agreements[candidate.set] = Measurement(
                value=value,
                error=spread.error,
                replicates=spread.replicates,
                null=0.0,  # a random gradient agrees as often as it opposes
                own=mean_of_known(ceilings),
                n=len(sample),
                unit="cosine",
                parts={"projection": mean_of_known(inside)},
                sites=by_site,
            )
        return agreements


def _halves(gradient: Tensor) -> Tensor:
    """Return the sums over either half of the groups, in which they take turns, ``[2, rows, dim]``."""
    first = gradient[0::2].sum(dim=0)
    second = gradient[1::2].sum(dim=0)
    # float64: the squares of small gradients leave the range of float32
    return torch.stack([first, second]).double()


def _cosine(one: Tensor, other: Tensor) -> float | None:
    lengths = float(one.norm() * other.norm())
    if lengths <= 0:
        return None
    return float((one * other).sum()) / lengths


def _agreement(site: _Site, at: Tensor) -> float | None:
    new, old, space = site
    total = new[at].sum(dim=0).double()
    return _cosine(space.on(total), space.on(old.sum(dim=0).to(total)))


def _reliability(halves: Tensor) -> float:
    """Return how far the mean of two halves is signal, from the cosine of the halves (Spearman-Brown)."""
    # a cosine below 0 comes of noise alone
    cosine = max(_cosine(*halves) or 0.0, 0.0)
    return 2 * cosine / (1 + cosine)


def _ceiling(new: Tensor, old: Tensor, space: Subspace) -> float:
    """Return the agreement that two copies of one direction would show under this noise (``own``)."""
    of_new = _reliability(space.on(_halves(new)))
    of_old = _reliability(space.on(old.to(new.device).double()))
    return math.sqrt(of_new * of_old)


def _inside(new: Tensor, space: Subspace) -> float | None:
    """Return the share of the gradient's length in the space, where alone agreement can be read."""
    total = new.sum(dim=0).double()
    if float(total.norm()) <= 0:
        return None
    return float(space.on(total).norm() / total.norm())
