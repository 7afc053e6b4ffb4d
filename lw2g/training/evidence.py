"""Evidence for the growth decision: HFC, HFC_pre and Z of every candidate, their errors and nulls.

Gradients and pre-trained spaces come from disjoint halves of D_sub, because a space fitted on the very images
of the gradient biases Z towards reuse; Z is averaged over partitions into halves and over draws of the new
classes' head. Its error comes from half-samples of the stored groups and from the spread between the draws
(rulings f, g, h).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import attrs
import torch
from torch import Tensor

from lw2g.geometry.hindrance import energy_null_hfc, null_hfc, over_sites, site_angles
from lw2g.geometry.moments import SecondMoment, side_by_side, subsets
from lw2g.geometry.subspace import Subspace, captured_shares
from lw2g.geometry.subspace import side_by_side as spaces_side_by_side
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.component import Screen
from lw2g.interfaces.growth import CandidateEvidence, Evidence, SiteEvidence
from lw2g.interfaces.memory import SubspaceMemory
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.site import Activation, Site
from lw2g.training.comparisons import disjoint_halves, in_sample
from lw2g.training.gradients import GroupGradients, group_gradients
from lw2g.training.probe import Probe, merged, undisturbed
from lw2g.training.progress import Steps
from lw2g.vit.taps import Tap

__all__ = ["collect_evidence", "screened", "unmeasured"]


def unmeasured(pool: Pool, memory: SubspaceMemory, baseline: Baseline, task: int) -> Evidence:
    """Return evidence that only names the live sets and their ranks, for policies that need no more."""
    ranks = dict.fromkeys(pool.ids, 0)
    if memory.basis_vectors:  # else no set is asked for its sites, of which there may be many
        ranks = {one: sum(space.rank for _, space in _spaces(baseline, pool, memory, one)) for one in ranks}
    candidates = tuple(CandidateEvidence(set=set_id, rank=rank) for set_id, rank in ranks.items())
    return Evidence(task=task, candidates=candidates)


def collect_evidence(
    baseline: Baseline,
    pool: Pool,
    memory: SubspaceMemory,
    probe: Probe,
    progress: Callable[[int, int], None] = lambda done, total: None,
    screen: Screen = "ends",
) -> Evidence:
    """Measure every live set as a candidate for the task that has arrived, or as many as ``growth.screen``.

    Args:
        baseline: Whose probe loss and sites are used.
        pool: The live sets.
        memory: Their spaces.
        probe: The task's D_sub.
        progress: Told how many passes and comparisons are done, of how many.
        screen: Which sets are measured where not all are.
    """
    spaces = {set_id: _spaces(baseline, pool, memory, set_id) for set_id in pool.ids}
    closed = {set_id: reason for set_id, found in spaces.items() if (reason := _closed(found)) is not None}
    opened = {set_id: found for set_id, found in spaces.items() if set_id not in closed}
    measured: dict[int, CandidateEvidence] = {}
    if opened:
        with undisturbed([baseline, *pool.sets]):
            shares = _shares(probe, opened)
            captured = {set_id: _mean(found) for set_id, found in shares.items()}
            kept = screened(captured, probe.options.screen, screen)
            closed |= {one: f"screened out: captures {captured[one]:.1%}" for one in opened.keys() - kept}
            chosen = {set_id: found for set_id, found in opened.items() if set_id in kept}
            sites = {set_id: [site for site, _ in found] for set_id, found in chosen.items()}
            passes = 1 if baseline.feature_scope == "pool" else len(chosen)
            step = Steps(probe.num_batches * passes + sum(map(len, sites.values())), progress)
            gradients = group_gradients(probe, baseline, pool, sites, step)
            found = _Measure(probe).candidates(chosen, gradients, step)
            measured = {
                set_id: attrs.evolve(
                    one, captured=captured[set_id], energy_null_hfc=energy_null_hfc(shares[set_id])
                )
                for set_id, one in found.items()
            }
    entries = tuple(
        measured[set_id]
        if set_id in measured
        else CandidateEvidence(
            set=set_id,
            rank=sum(space.rank for _, space in spaces[set_id]),
            captured=captured[set_id] if set_id in opened else None,
            excluded=closed[set_id],
        )
        for set_id in pool.ids
    )
    return Evidence(task=probe.task.index, candidates=entries)


def screened(captured: Mapping[int, float | None], count: int, screen: Screen) -> set[int]:
    """Return the sets to be measured: all, or ``count`` chosen by the share of energy that they capture.

    Sets without a share, and equals of lower id, come first. From both ends they are taken in turn, the
    least first.

    >>> sorted(screened({0: 0.9, 1: 0.2, 2: 0.5, 3: 0.4}, 3, "ends"))
    [0, 1, 3]
    """
    if not 0 < count < len(captured):
        return set(captured)
    known = {one: share for one, share in captured.items() if share is not None}
    unknown = [one for one in captured if one not in known]
    least = sorted(known, key=lambda one: (known[one], one))
    most = sorted(known, key=lambda one: (-known[one], one))
    turns = itertools.chain.from_iterable(zip(least, most, strict=True))
    ordered = {"least": least, "most": most, "ends": list(dict.fromkeys(turns))}[screen]
    return set([*unknown, *ordered][:count])


def _shares(
    probe: Probe, spaces: Mapping[int, Sequence[tuple[Site, Subspace]]]
) -> dict[int, list[float | None]]:
    """Return the shares of the task's energy in the old spaces, of the sites whose energy is cut there."""
    moments = _totals(probe, spaces)
    pairs = [
        (set_id, space, site.activation.moment(moments[site.activation.tap]))
        for set_id, found in spaces.items()
        for site, space in found
        if not site.activation.is_image
    ]
    shares: dict[int, list[float | None]] = {set_id: [] for set_id in spaces}
    for (set_id, _, _), share in zip(
        pairs, captured_shares([(space, moment) for _, space, moment in pairs]), strict=True
    ):
        shares[set_id].append(share)
    return shares


def _totals(probe: Probe, spaces: Mapping[int, Sequence[tuple[Site, Subspace]]]) -> dict[Tap, SecondMoment]:
    """Return the moments of the whole of D_sub at all taps, read in one pass over the images."""
    taps = list(dict.fromkeys(site.activation.tap for found in spaces.values() for site, _ in found))
    found = {tap: merged(groups) for tap, groups in probe.moments(taps).items()}
    return {tap: one.centred() for tap, one in found.items()} if probe.options.centre else found


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None


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
        angles: dict[tuple[int, str], Tensor] = {}
        # tap by tap: the spaces of one tap serve all candidates, and those of all taps need not fit in memory
        for tap in dict.fromkeys(site.activation.tap for found in spaces.values() for site, _ in found):
            here = [
                (set_id, site, space, gradient)
                for set_id, found in spaces.items()
                for (site, space), gradient in zip(found, gradients[set_id], strict=True)
                if site.activation.tap == tap
            ]
            at_tap = _AtTap(self._probe, tap, self._comparisons.subsets)
            pretrained = at_tap.pretrained([site.activation for _, site, _, _ in here])
            for (set_id, site, space, gradient), pre in zip(here, pretrained, strict=True):
                angles[set_id, site.name] = self._angles(space, pre, gradient)
                step()
        table = torch.stack(list(angles.values()), dim=1).cpu()  # one transfer for all
        numbers = {key: number for number, key in enumerate(angles)}
        return {
            set_id: self._summary(set_id, found, table[:, [numbers[set_id, site.name] for site, _ in found]])
            for set_id, found in spaces.items()
        }

    def _angles(self, space: Subspace, pretrained: Subspace, gradient: Tensor) -> Tensor:
        """Return a site's angles against old and pre-trained spaces, ``[2, draws, width, subsets]``."""
        subsets, chosen = self._comparisons.subsets, self._comparisons.gradient
        old = site_angles(gradient, subsets[None], space, reduce=self._reduce)[:, :, 0]
        pre = site_angles(gradient, subsets[chosen].transpose(0, 1), pretrained, reduce=self._reduce)
        return torch.stack([old[:, chosen.to(old.device)], pre])

    def _summary(
        self,
        set_id: int,
        spaces: Sequence[tuple[Site, Subspace]],
        angles: Tensor,
    ) -> CandidateEvidence:
        """Return the evidence of one candidate from its angles ``[2, sites, draws, width, subsets]``."""
        old, pre = angles
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

    def __init__(self, probe: Probe, tap: Tap, members: Tensor) -> None:
        self._build = probe.pretrained_options.build
        found = subsets(probe.moments([tap])[tap], members)
        self._count = len(found)
        self._moments = side_by_side([one.centred() for one in found] if probe.options.centre else found)

    def pretrained(self, activations: Sequence[Activation]) -> list[Subspace]:
        """Return the spaces of each activation, one per subset, side by side; each is built once."""
        own = [number for number, one in enumerate(activations) if one.cut == "map"]
        found: dict[int, Subspace] = {}
        if own:
            together = self._build(side_by_side([activations[i].moment(self._moments) for i in own]))
            found = dict(zip(own, together.parts(len(own)), strict=True))
        if len(own) < len(activations):
            tapped = self._build(self._moments)
            found |= {
                number: self._image(one, tapped)
                for number, one in enumerate(activations)
                if number not in found
            }
        return [found[number] for number in range(len(activations))]

    def _image(self, activation: Activation, tapped: Subspace) -> Subspace:
        if not activation.is_image:
            return tapped
        return spaces_side_by_side([activation.image(part) for part in tapped.parts(self._count)])


def _known(angle: float) -> float | None:
    return None if math.isnan(angle) else angle
