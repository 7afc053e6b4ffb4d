"""Evidence for the growth decision: HFC, HFC_pre and Z of every candidate, their errors and nulls.

Gradients and pre-trained spaces come from disjoint halves of D_sub, halves swapped and averaged, because a
space fitted on the very images of the gradient biases Z towards reuse. Leaving out one group of images at a
time gives the jackknife error of Z over gradients and space together (rulings f, g, h).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import torch

from lw2g.geometry.hindrance import Hindrance, energy_null_hfc, hfc, jackknife_error, null_hfc
from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import Subspace
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.growth import CandidateEvidence, Evidence, SiteEvidence
from lw2g.interfaces.memory import SubspaceMemory
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.site import Site
from lw2g.training.probe import GroupGradients, Probe, merged, undisturbed
from lw2g.training.progress import Steps
from lw2g.vit.taps import Tap

__all__ = ["collect_evidence", "unmeasured"]


@attrs.frozen(kw_only=True)
class _Angles:
    """HFC, HFC_pre and Z of one candidate from some of the groups; None where undefined."""

    hfc: float | None
    hfc_pre: float | None
    per_site: tuple[float | None, ...] = ()
    per_site_pre: tuple[float | None, ...] = ()

    @property
    def z(self) -> float | None:
        return None if self.hfc is None or self.hfc_pre is None else self.hfc - self.hfc_pre


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
        step = Steps((len(probe.groups) + 1) * len(candidates), progress)
        with undisturbed([baseline, *pool.sets]):
            gradients = probe.gradients(baseline, pool, candidates, sites, step)
            measure = _Measure(probe, sites[candidates[0]])
            for set_id in candidates:
                found = [space for _, space in spaces[set_id]]
                measured[set_id] = measure.candidate(set_id, sites[set_id], found, gradients[set_id])
                step()
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
    """Angles of candidates against their old spaces and the pre-trained ones, with groups left out."""

    def __init__(self, probe: Probe, sites: Sequence[Site]) -> None:
        self._probe = probe
        self._reduce = probe.options.reduce
        # A sample of one image has no second half: then space and gradient share it.
        count = len(probe.groups)
        self._halves = (range(count // 2), range(count // 2, count)) if count > 1 else (range(1), range(1))
        moments = probe.moments([site.activation.tap for site in sites])
        self._moments: dict[Tap, list[SecondMoment]] = {
            tap: [self._centred(part) for part in parts] for tap, parts in moments.items()
        }
        groups = [None, *range(count)] if min(len(half) for half in self._halves) > 1 else [None]
        self._left_out: list[int | None] = list(groups)
        at_tap = {site.activation.tap for site in sites if site.activation.cut == "tap"}
        options = self._probe.pretrained_options
        self._pretrained = {
            (half, left_out): {tap: options.build(self._kept(tap, half, left_out)) for tap in at_tap}
            for half in (0, 1)
            for left_out in self._left_out
            if left_out is None or left_out in self._halves[half]
        }

    def _centred(self, moment: SecondMoment) -> SecondMoment:
        return moment.centred() if self._probe.options.centre else moment

    def _kept(self, tap: Tap, half: int, left_out: int | None) -> SecondMoment:
        return merged(
            [
                moment
                for group, moment in enumerate(self._moments[tap])
                if group in self._halves[half] and group != left_out
            ]
        )

    def _pretrained_space(self, site: Site, half: int, left_out: int | None) -> Subspace:
        if (half, left_out) not in self._pretrained:  # the group belongs to the other half
            left_out = None
        activation = site.activation
        if activation.cut == "tap":
            return activation.image(self._pretrained[half, left_out][activation.tap])
        moment = self._kept(activation.tap, half, left_out)
        return activation.space(moment, self._probe.pretrained_options.build)

    def candidate(
        self, set_id: int, sites: Sequence[Site], spaces: Sequence[Subspace], gradients: GroupGradients
    ) -> CandidateEvidence:
        """Return all evidence on one candidate."""
        whole = self._angles(sites, spaces, gradients, None)
        rank = sum(space.rank for space in spaces)
        if whole.z is None:
            return CandidateEvidence(set=set_id, rank=rank, excluded="gradient is zero at every site")
        without = [self._angles(sites, spaces, gradients, group).z for group in self._left_out[1:]]
        defined = [z for z in without if z is not None]
        plain = [not site.activation.is_image for site in sites]
        totals = [
            site.activation.moment(merged(self._moments[site.activation.tap]))
            for site, kept in zip(sites, plain, strict=True)
            if kept
        ]
        own = [space for space, kept in zip(spaces, plain, strict=True) if kept]
        return CandidateEvidence(
            set=set_id,
            hfc=whole.hfc,
            hfc_pre=whole.hfc_pre,
            z=whole.z,
            z_error=jackknife_error(defined) if len(defined) > 1 else None,
            rank=rank,
            null_hfc=null_hfc([(space.rank, space.dim) for space in spaces]),
            energy_null_hfc=energy_null_hfc(own, totals) if own else None,
            sites=tuple(
                SiteEvidence(site=site.name, hfc=old, hfc_pre=pre, rank=space.rank, dim=space.dim)
                for site, space, old, pre in zip(
                    sites, spaces, whole.per_site, whole.per_site_pre, strict=True
                )
            ),
        )

    def _angles(
        self,
        sites: Sequence[Site],
        spaces: Sequence[Subspace],
        gradients: GroupGradients,
        left_out: int | None,
    ) -> _Angles:
        """Average both halves: the gradient of one against the pre-trained space of the other."""
        old: list[Hindrance] = []
        pre: list[Hindrance] = []
        for half in (0, 1):
            groups = [group for group in self._halves[half] if group != left_out]
            mean = [
                torch.stack([gradients[group][i].double() for group in groups]).sum(0)
                for i in range(len(sites))
            ]
            old.append(hfc(mean, spaces, reduce=self._reduce))
            pretrained = [self._pretrained_space(site, 1 - half, left_out) for site in sites]
            pre.append(hfc(mean, pretrained, reduce=self._reduce))
        return _Angles(
            hfc=_mean([one.degrees for one in old]),
            hfc_pre=_mean([one.degrees for one in pre]),
            per_site=tuple(_mean(list(pair)) for pair in zip(*(one.per_site for one in old), strict=True)),
            per_site_pre=tuple(
                _mean(list(pair)) for pair in zip(*(one.per_site for one in pre), strict=True)
            ),
        )


def _mean(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None
