"""Length of a gradient's part inside or outside the old space: one overlap, read with opposite signs.

``projection`` (TRGP, Lin et al., ICLR 2022): ``p = |P g| / |g|`` per site. A large part inside means that
the old tasks are related, so reuse. ``capacity`` (API, Liang and Li, CVPR 2023): ``q = |g - P g| / |g|``. A
small part outside means that there is no room, so grow. ``p^2 + q^2 = 1`` site by site: what divides them
is policy. A random space of rank r in R^d gives ``p = sqrt(r / d)``: at the published thresholds of one
half it is "related" from r > d/4, and "out of capacity" from r > 3d/4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lw2g.plugin import Candidate, Comparisons, Measure, Measurement, Sample, site_angles

__all__ = ["Capacity", "Projection"]

_DIMENSIONS = 10
"""New dimensions that API adds where there is no room at all; none from a half on."""


class Projection(Measure):
    """The relative length of the gradient inside the old space, mean over sites."""

    needs = frozenset(("spaces", "gradients"))
    alike: ClassVar[Literal[1, -1]] = 1

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return the mean length of every candidate that has spaces."""
        # unlike Z, this needs no second half: an old space was fitted on images of old tasks
        comparisons = Comparisons.in_sample(sample.num_groups, sample.generator("half-samples"))
        by_set = {}
        for candidate in sample.candidates:
            if candidate.spaces:
                by_set[candidate.set] = self._measured(candidate, comparisons, sample)
        return by_set

    def _measured(self, candidate: Candidate, comparisons: Comparisons, sample: Sample) -> Measurement:
        """Return the length of the gradient inside the candidate's spaces, mean over its sites."""
        angles = []
        nulls = []
        for name, space in candidate.spaces.items():
            gradient = candidate.gradients[name]
            # global: |P g| of the site's whole gradient, as TRGP and API have it, not row by row
            angles.append(site_angles(gradient, comparisons.subsets[None], space, reduce="global"))
            nulls.append(self.null(space.rank / space.dim))
        lengths = self.length(torch.stack(angles)[..., 0].cpu())  # [sites, draws, subsets]
        table = lengths[..., comparisons.gradient]  # [sites, draws, width, subsets]
        values = comparisons.value(table.nanmean(dim=0))
        if bool(values.isnan().all()):
            return Measurement(n=len(sample), alike=self.alike, why="gradient is zero at every site")
        value = float(values.nanmean())
        spread = comparisons.spread(table.nanmean(dim=0), sample.left_out)
        sites: dict[str, dict[str, float | None]] = {}
        per_site = comparisons.value(table).nanmean(dim=1).tolist()
        for name, length, null in zip(candidate.spaces, per_site, nulls, strict=True):
            sites[name] = {"value": None, "null": null}
            if not math.isnan(length):  # else the gradient is zero here
                sites[name]["value"] = length
        return Measurement(
            value=value,
            error=spread.error,
            replicates=spread.replicates,
            null=sum(nulls) / len(nulls),
            n=len(sample),
            unit="relative length",
            alike=self.alike,
            parts=self.parts(value),
            sites=sites,
        )

    def length(self, angles: Tensor) -> Tensor:
        """Return the lengths that belong to angles against the complement, in radians."""
        return angles.sin()

    def null(self, share: float) -> float:
        """Return the length that a random space of a share of all dimensions gives."""
        return math.sqrt(share)

    def parts(self, value: float) -> dict[str, float | None]:
        """Return further numbers."""
        return {}


class Capacity(Projection):
    """The relative length of the gradient outside the old space, and the dimensions that API would add."""

    alike = -1

    def length(self, angles: Tensor) -> Tensor:
        """Return the lengths outside: the cosines of the angles, which are against the outside."""
        return angles.cos()

    def null(self, share: float) -> float:
        """Return the length outside a random space."""
        return math.sqrt(1 - share)

    def parts(self, value: float) -> dict[str, float | None]:
        """Return the new dimensions, ``ceil(10 max(1/2 - q, 0))``."""
        return {"dimensions": float(math.ceil(_DIMENSIONS * max(0.5 - value, 0.0)))}
