"""Hindrance Z (LW2G, section 4): does an old space hinder the task more than pre-trained knowledge does?

``Z = HFC(g, S_old) - HFC(g, S_pre)`` in degrees, for the gradient g of the new task's loss at a set.
Gradients and pre-trained spaces come from disjoint halves of the evidence sample, because a space fitted on
the very images of the gradient biases Z towards reuse; Z is averaged over partitions into halves and over
draws of the new classes' head. The literal form takes one draw and the same images. A large Z means that the
gradient lies in the old space: the task is like the old ones, which LW2G reads as a reason not to share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lw2g.plugin import (
    Activation,
    Candidate,
    Comparisons,
    Measure,
    Measurement,
    Sample,
    SecondMoment,
    Subspace,
    Tap,
    energy_null_hfc,
    null_hfc,
    over_sites,
    site_angles,
)
from lw2g_growth.options import PlainConfig

__all__ = ["Hindrance"]


class Hindrance(Measure):
    """Angles of candidates' gradients against old and pre-trained spaces, all comparisons at once."""

    needs = frozenset(("spaces", "gradients", "moments"))

    def __init__(self, config: PlainConfig) -> None:
        """Take no options: ``growth`` has those of spaces, draws and angles."""

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return Z of every candidate: HFC less HFC_pre, in degrees."""
        plan = Comparisons.in_sample if sample.literal else Comparisons.disjoint_halves
        comparisons = plan(sample.num_groups, sample.generator("half-samples"))
        angles: dict[tuple[int, str], Tensor] = {}
        ranks: dict[tuple[int, str], list[int]] = {}
        # tap by tap: the spaces of one tap serve all candidates, and those of all taps need not fit in memory
        for tap, at_tap in _by_tap(sample.candidates).items():
            activations = [candidate.sites[name].activation for candidate, name in at_tap]
            pretrained = _Pretrained(sample, tap, comparisons.subsets).spaces(activations)
            for (candidate, name), pre in zip(at_tap, pretrained, strict=True):
                angles[candidate.set, name] = _angles(
                    candidate.gradients[name], candidate.spaces[name], pre, comparisons, sample
                )
                parts = pre.parts(len(comparisons.subsets))
                ranks[candidate.set, name] = [part.rank for part in parts]
        if not angles:
            return {}
        # one transfer from the device for all
        table = torch.stack(list(angles.values()), dim=1).cpu()
        column = {key: number for number, key in enumerate(angles)}
        by_set: dict[int, Measurement] = {}
        for candidate in sample.candidates:
            if not candidate.spaces:
                continue
            keys = [(candidate.set, name) for name in candidate.spaces]
            angles_of_set = table[:, [column[key] for key in keys]]
            pre_ranks = [ranks[key] for key in keys]
            by_set[candidate.set] = _summary(candidate, angles_of_set, pre_ranks, comparisons, sample)
        return by_set


def _by_tap(candidates: Sequence[Candidate]) -> dict[Tap, list[tuple[Candidate, str]]]:
    by_tap: dict[Tap, list[tuple[Candidate, str]]] = {}
    for candidate in candidates:
        for name in candidate.spaces:
            by_tap.setdefault(candidate.sites[name].activation.tap, []).append((candidate, name))
    return by_tap


def _angles(
    gradient: Tensor, space: Subspace, pretrained: Subspace, comparisons: Comparisons, sample: Sample
) -> Tensor:
    """Return a site's angles against old and pre-trained spaces, ``[2, draws, width, subsets]``."""
    members = comparisons.subsets
    chosen = comparisons.gradient
    # the old space is the same in all comparisons, so its angle is taken once for each gradient ...
    old = site_angles(gradient, members[None], space, reduce=sample.reduce)[:, :, 0]
    # ... and the pre-trained space is another one in each, fitted on the images of its own subset
    pre = site_angles(gradient, members[chosen].transpose(0, 1), pretrained, reduce=sample.reduce)
    return torch.stack([old[:, chosen.to(old.device)], pre])


def _summary(
    candidate: Candidate,
    angles: Tensor,
    pre_ranks: Sequence[Sequence[int]],
    comparisons: Comparisons,
    sample: Sample,
) -> Measurement:
    """Return Z of a candidate.

    Args:
        candidate: The candidate.
        angles: Its angles against old and pre-trained spaces, ``[2, sites, draws, width, subsets]``.
        pre_ranks: By site, the rank of the pre-trained space of each subset.
        comparisons: Which subsets are compared.
        sample: The task's.
    """
    old, pre = angles
    spaces = candidate.spaces
    # sites first, comparisons after: LW2G takes one arccos of the mean cosine over sites
    old_together = over_sites(old, reduce=sample.reduce).rad2deg()
    pre_together = over_sites(pre, reduce=sample.reduce).rad2deg()
    hfc = comparisons.value(old_together)  # [draws]
    hfc_pre = comparisons.value(pre_together)
    if bool(hfc.isnan().all()):
        return Measurement(n=len(sample), unit="degrees", why="gradient is zero at every site")
    degrees = float(hfc.nanmean())
    degrees_pre = float(hfc_pre.nanmean())
    # the error is of the difference, not of both angles: they share the gradient, and most of its noise
    spread = comparisons.spread(old_together - pre_together, sample.left_out)

    # what angles a gradient without any direction of its own would have, by the ranks alone
    null = null_hfc([(space.rank, space.dim) for space in spaces.values()])
    dims = [space.dim for space in spaces.values()]
    null_pre = []
    # the null is of the subsets that take part in Z: the others are there for its error alone
    for subset in comparisons.whole.sum(dim=0).nonzero()[:, 0].tolist():
        ranks = [of_subsets[subset] for of_subsets in pre_ranks]
        null_pre.append(null_hfc(list(zip(ranks, dims, strict=True))))
    return Measurement(
        value=degrees - degrees_pre,
        error=spread.error,
        replicates=spread.replicates,
        null=null - sum(null_pre) / len(null_pre),
        n=len(sample),
        unit="degrees",
        parts={
            "hfc": degrees,
            "hfc_pre": degrees_pre,
            "null_hfc": null,
            "energy_null_hfc": energy_null_hfc(list(candidate.captured.values())),
        },
        sites=_sites(spaces, old, pre, comparisons),
    )


def _sites(
    spaces: Mapping[str, Subspace], old: Tensor, pre: Tensor, comparisons: Comparisons
) -> dict[str, dict[str, float | None]]:
    """Return both angles in degrees and their difference at each site, with rank and width of its old space.

    Args:
        spaces: The old space at each site.
        old: Angles against them, ``[sites, draws, width, subsets]``.
        pre: The same against the pre-trained spaces.
        comparisons: Which subsets are compared.
    """
    old_by_site = comparisons.value(old.rad2deg()).nanmean(dim=1).tolist()
    pre_by_site = comparisons.value(pre.rad2deg()).nanmean(dim=1).tolist()
    sites: dict[str, dict[str, float | None]] = {}
    for number, (name, space) in enumerate(spaces.items()):
        sites[name] = {"value": None, "hfc": None, "hfc_pre": None, "rank": space.rank, "dim": space.dim}
        hfc = old_by_site[number]
        hfc_pre = pre_by_site[number]
        if not math.isnan(hfc):  # else the gradient is zero here
            sites[name]["value"] = hfc - hfc_pre
            sites[name]["hfc"] = hfc
        if not math.isnan(hfc_pre):
            sites[name]["hfc_pre"] = hfc_pre
    return sites


class _Pretrained:
    """The un-prompted activations at one tap: second moments and spaces of all subsets of groups."""

    def __init__(self, sample: Sample, tap: Tap, members: Tensor) -> None:
        self._build = sample.space_options.build
        moments = SecondMoment.subsets(sample.moments([tap])[tap], members)
        if sample.centre:
            moments = [moment.centred() for moment in moments]
        self._count = len(moments)
        # side by side: the solver takes all subsets in one call
        self._moments = SecondMoment.side_by_side(moments)

    def spaces(self, activations: Sequence[Activation]) -> list[Subspace]:
        """Return the spaces of each activation, one per subset, side by side; each is built once."""
        mapped = [activation for activation in activations if activation.cut == "map"]
        own: tuple[Subspace, ...] = ()
        if mapped:  # the map comes before the cut: each has a space of its own
            moments = [activation.moment(self._moments) for activation in mapped]
            own = self._build(SecondMoment.side_by_side(moments)).parts(len(mapped))
        if len(mapped) == len(activations):
            return list(own)
        # the others are images of one space, that of the tap
        tapped = self._build(self._moments)
        of_mapped = iter(own)
        spaces = []
        for activation in activations:
            if activation.cut == "map":
                spaces.append(next(of_mapped))
            else:
                spaces.append(self._image(activation, tapped))
        return spaces

    def _image(self, activation: Activation, tapped: Subspace) -> Subspace:
        if not activation.is_image:
            return tapped
        return Subspace.side_by_side([activation.image(part) for part in tapped.parts(self._count)])
