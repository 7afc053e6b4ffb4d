"""Evidence for the growth decision: HFC, HFC_pre and Z of every candidate, their errors and nulls.

Gradients and pre-trained spaces come from disjoint halves of D_sub, because a space fitted on the very images
of the gradient biases Z towards reuse; Z is averaged over partitions into halves and over draws of the new
classes' head. Its error comes from half-samples of the stored groups and from the spread between the draws
(rulings f, g, h).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from lw2g.geometry.hindrance import energy_null_hfc, null_hfc, over_sites, site_angles
from lw2g.geometry.moments import SecondMoment, side_by_side
from lw2g.geometry.subspace import Subspace
from lw2g.geometry.subspace import side_by_side as spaces_side_by_side
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.growth import CandidateEvidence, Evidence, SiteEvidence
from lw2g.interfaces.memory import SubspaceMemory
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.site import Activation, Site
from lw2g.training.comparisons import disjoint_halves, in_sample
from lw2g.training.probe import GroupGradients, Probe, merged, undisturbed
from lw2g.training.progress import Steps
from lw2g.vit.taps import Tap

__all__ = ["collect_evidence", "unmeasured"]


def unmeasured(pool: Pool, memory: SubspaceMemory, baseline: Baseline, task: int) -> Evidence:
    """Return evidence that only names the live sets and their ranks, for policies that need no more."""
    ranks = {
        set_id: sum(space.rank for _, space in _spaces(baseline, pool, memory, set_id)) for set_id in pool.ids
    }
    candidates = tuple(CandidateEvidence(set=set_id, rank=ranks[set_id]) for set_id in pool.ids)
    return Evidence(task=task, candidates=candidates)


def collect_evidence(
    baseline: Baseline,
    pool: Pool,
    memory: SubspaceMemory,
    probe: Probe,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evidence:
    """Measure every live set as a candidate for the task that has arrived.

    Args:
        baseline: Whose probe loss and sites are used.
        pool: The live sets.
        memory: Their spaces.
        probe: The task's D_sub.
        progress: Told how many gradients and comparisons are done, of how many.
    """
    task = probe.task.index
    spaces = {set_id: _spaces(baseline, pool, memory, set_id) for set_id in pool.ids}
    closed = {set_id: _closed(found) for set_id, found in spaces.items()}
    candidates = [set_id for set_id in pool.ids if closed[set_id] is None]
    measured: dict[int, CandidateEvidence] = {}
    if candidates:
        sites = {set_id: [site for site, _ in spaces[set_id]] for set_id in candidates}
        count = sum(len(probe.groups) + len(found) for found in sites.values())
        step = Steps(count, progress)
        with undisturbed([baseline, *pool.sets]):
            gradients = probe.gradients(baseline, pool, candidates, sites, step)
            measured = _Measure(probe).candidates({one: spaces[one] for one in candidates}, gradients, step)
    entries = tuple(
        measured[set_id]
        if set_id in measured
        else CandidateEvidence(
            set=set_id, rank=sum(space.rank for _, space in spaces[set_id]), excluded=closed[set_id]
        )
        for set_id in pool.ids
    )
    return Evidence(task=task, candidates=entries)


def _spaces(
    baseline: Baseline, pool: Pool, memory: SubspaceMemory, set_id: int
) -> list[tuple[Site, Subspace]]:
    """Return the measured sites of a set, shared ones included, with their old spaces."""
    found = []
    for site in (*baseline.sites(pool[set_id]), *baseline.shared_sites()):
        space = memory.space(set_id, site)
        if site.measured and space is not None:
            found.append((site, space))
    return found


def _closed(spaces: Sequence[tuple[Site, Subspace]]) -> str | None:
    owned = [space for site, space in spaces if site.owner == "set"]
    if not spaces:
        return "no measured site with a space"
    if owned and all(space.is_full for space in owned):
        return "space is full"
    return None


class _Measure:
    """Angles of candidates against their old spaces and the pre-trained ones, all comparisons at once."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        options = probe.options
        self._reduce = options.reduce
        plan = in_sample if options.evidence == "literal" else disjoint_halves
        self._comparisons = plan(len(probe.groups), probe.generator("half-samples"))

    def candidates(
        self,
        spaces: Mapping[int, Sequence[tuple[Site, Subspace]]],
        gradients: Mapping[int, GroupGradients],
        step: Callable[[], None],
    ) -> dict[int, CandidateEvidence]:
        """Return all evidence on every candidate."""
        angles: dict[int, dict[str, tuple[Tensor, Tensor]]] = {set_id: {} for set_id in spaces}
        nulls: dict[int, list[tuple[Subspace, SecondMoment]]] = {set_id: [] for set_id in spaces}
        # tap by tap: the spaces of one tap serve all candidates, and those of all taps need not fit in memory
        for tap in dict.fromkeys(site.activation.tap for found in spaces.values() for site, _ in found):
            at_tap = _AtTap(self._probe, tap, self._comparisons.subsets)
            for set_id, found in spaces.items():
                for (site, space), gradient in zip(found, gradients[set_id], strict=True):
                    if site.activation.tap != tap:
                        continue
                    angles[set_id][site.name] = self._angles(at_tap, site, space, gradient)
                    if not site.activation.is_image:
                        nulls[set_id].append((space, site.activation.moment(at_tap.total)))
                    step()
        return {
            set_id: self._summary(set_id, found, angles[set_id], nulls[set_id])
            for set_id, found in spaces.items()
        }

    def _angles(self, at_tap: _AtTap, site: Site, space: Subspace, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return a site's angles against old and pre-trained spaces, both ``[draws, width, subsets]``."""
        plan = self._comparisons
        subsets = plan.subsets.to(gradient.device)
        sums = torch.einsum("sg,mgrd->msrd", subsets, gradient.double())
        old = site_angles(sums, space, reduce=self._reduce)
        pretrained = at_tap.pretrained(site.activation)
        pre = site_angles(sums[:, plan.gradient], pretrained, reduce=self._reduce)
        return old[:, plan.gradient].cpu(), pre.cpu()

    def _summary(
        self,
        set_id: int,
        spaces: Sequence[tuple[Site, Subspace]],
        angles: Mapping[str, tuple[Tensor, Tensor]],
        nulls: Sequence[tuple[Subspace, SecondMoment]],
    ) -> CandidateEvidence:
        old, pre = (torch.stack([angles[site.name][i] for site, _ in spaces]) for i in (0, 1))
        together = [over_sites(one, reduce=self._reduce).rad2deg() for one in (old, pre)]
        hfc, hfc_pre = (self._comparisons.value(one) for one in together)  # [draws]
        rank = sum(space.rank for _, space in spaces)
        if bool(hfc.isnan().all()):
            return CandidateEvidence(set=set_id, rank=rank, excluded="gradient is zero at every site")
        per_site = [self._comparisons.value(one.rad2deg()).nanmean(dim=1).tolist() for one in (old, pre)]
        degrees, degrees_pre = float(hfc.nanmean()), float(hfc_pre.nanmean())
        return CandidateEvidence(
            set=set_id,
            hfc=degrees,
            hfc_pre=degrees_pre,
            z=degrees - degrees_pre,
            z_error=self._error(together[0] - together[1]),
            rank=rank,
            null_hfc=null_hfc([(space.rank, space.dim) for _, space in spaces]),
            energy_null_hfc=energy_null_hfc(*map(list, zip(*nulls, strict=True))) if nulls else None,
            sites=tuple(
                SiteEvidence(
                    site=site.name, hfc=_known(own), hfc_pre=_known(own_pre), rank=space.rank, dim=space.dim
                )
                for (site, space), own, own_pre in zip(spaces, *per_site, strict=True)
            ),
        )

    def _error(self, z: Tensor) -> float | None:
        """Return the standard error of the mean over draws of Z, from Z by comparison ``[draws, ...]``.

        The images' part is that of a sample without replacement: a D_sub of all images has none. Draws differ
        by the head, and by what head and images do together.
        """
        images = self._comparisons.variance(z.nanmean(dim=0))
        if images is None:
            return None
        by_draw = self._comparisons.value(z)
        by_draw = by_draw[~by_draw.isnan()]
        heads = float(by_draw.var()) / len(by_draw) if len(by_draw) > 1 else 0.0
        return math.sqrt(images * self._probe.left_out + heads)


class _AtTap:
    """The un-prompted activations at one tap: second moments and spaces of all subsets of groups."""

    def __init__(self, probe: Probe, tap: Tap, subsets: Tensor) -> None:
        self._build = probe.pretrained_options.build
        groups = probe.moments([tap])[tap]
        centre = probe.options.centre

        def moment(chosen: Sequence[int]) -> SecondMoment:
            found = merged([groups[i] for i in chosen])
            return found.centred() if centre else found

        self.total = moment(range(len(groups)))
        self._moments = [moment(one.nonzero()[:, 0].tolist()) for one in subsets]
        self._tapped: Subspace | None = None

    def pretrained(self, activation: Activation) -> Subspace:
        """Return the spaces of an activation, one per subset, side by side."""
        if activation.cut == "map":
            return self._build(side_by_side([activation.moment(moment) for moment in self._moments]))
        if self._tapped is None:
            self._tapped = self._build(side_by_side(self._moments))
        if not activation.is_image:
            return self._tapped
        parts = self._tapped.parts(len(self._moments))
        return spaces_side_by_side([activation.image(part) for part in parts])


def _known(angle: float) -> float | None:
    return None if math.isnan(angle) else angle
