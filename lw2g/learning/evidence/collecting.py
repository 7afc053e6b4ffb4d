"""Evidence for the growth decision: the value of every measure for every candidate, from one sample.

Measures are components. This module reads the task once for all of them, and shows each measure what it
declares to need and what it has stored of old tasks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Literal

import attrs
import torch
from torch import Tensor

from lw2g.interfaces.choices import Screen
from lw2g.interfaces.context import TaskContext, task_of_class
from lw2g.interfaces.evidence import Candidate, Need, Sample, unlearned, unread, untried
from lw2g.interfaces.growth import CandidateEvidence, Evidence, Measurement, Measures
from lw2g.interfaces.site import Site
from lw2g.learning.evidence.evidence_sample import EvidenceSample, merged, undisturbed
from lw2g.learning.evidence.fitted import FittedHead
from lw2g.learning.evidence.gradients import GroupGradients, group_gradients, set_features
from lw2g.learning.evidence.space_rows import Rows
from lw2g.learning.evidence.trial import Trials
from lw2g.learning.session_parts import RunParts
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace, captured_shares
from lw2g.runtime.progress import Steps
from lw2g.runtime.returned import require_measurements
from lw2g.vit.taps import Tap

__all__ = ["collect_evidence", "has_sites", "screened", "store_statistics", "unmeasured"]


@attrs.frozen(kw_only=True, eq=False)
class _Places:
    """The measured sites of a set, shared ones included, and the spaces of old tasks at them."""

    sites: dict[str, Site]
    spaces: dict[str, Subspace]

    @classmethod
    def of(cls, parts: RunParts, set_id: int) -> _Places:
        """Return the measured sites of a set, and the old feature spaces that they have."""
        sites: dict[str, Site] = {}
        spaces: dict[str, Subspace] = {}
        sites_of_set = parts.baseline.sites(parts.pool[set_id])
        for site in (*sites_of_set, *parts.baseline.shared_sites()):
            if not site.measured:
                continue
            sites[site.name] = site
            space = parts.memory.space(set_id, site)
            if space is not None:
                spaces[site.name] = space
        return cls(sites=sites, spaces=spaces)

    @property
    def rank(self) -> int:
        """Rank over all sites."""
        return sum(space.rank for space in self.spaces.values())

    def closed(self, *, needs_spaces: bool) -> str | None:
        """Return why the set cannot be reused; None if it can."""
        if needs_spaces and not self.spaces:
            return "no measured site with a space"
        # a full shared space closes no set: it would close all of them
        owned = [space for name, space in self.spaces.items() if self.sites[name].owner == "set"]
        if owned and all(space.is_full for space in owned):
            return "space is full"
        return None


def has_sites(parts: RunParts) -> bool:
    """Whether a live set has a site, or the baseline a shared one."""
    return bool(parts.baseline.shared_sites()) or any(map(parts.baseline.sites, parts.pool.sets))


def unmeasured(parts: RunParts, task: int) -> Evidence:
    """Return evidence without measures: the live sets and their ranks."""
    # without spaces, skip the sites, of which there may be many
    has_spaces = parts.memory.basis_vectors > 0
    candidates = []
    for set_id in parts.pool.ids:
        rank = _Places.of(parts, set_id).rank if has_spaces else 0
        candidates.append(CandidateEvidence(set=set_id, rank=rank))
    return Evidence(task=task, candidates=tuple(candidates), task_to_set=tuple(parts.pool.task_to_set))


def collect_evidence(
    parts: RunParts,
    evidence_sample: EvidenceSample,
    progress: Callable[[int, int], None] = lambda done, total: None,
    trials: Callable[[], Trials] | None = None,
) -> Evidence:
    """Measure every live set, or as many as ``growth.screen``, as a candidate for the new task.

    Nothing of the training state changes by looking.

    Args:
        parts: The run.
        evidence_sample: The task's.
        progress: Called with the number of images that have passed through a set, and their total.
        trials: Returns what trains copies; called if a measure needs it, and not to be left out then.
    """
    measures = parts.growth.measures
    needs = frozenset[Need]().union(*(measure.needs for measure in measures.values()))
    # a measure that needs no spaces has something to say of a set without any
    needs_spaces = all("spaces" in measure.needs for measure in measures.values())
    places = {set_id: _Places.of(parts, set_id) for set_id in parts.pool.ids}
    excluded: dict[int, str] = {}  # why a set cannot be reused, or is not measured
    opened: dict[int, _Places] = {}
    for set_id, of_set in places.items():
        reason = of_set.closed(needs_spaces=needs_spaces)
        if reason is None:
            opened[set_id] = of_set
        else:
            excluded[set_id] = reason
    shares: dict[int, float | None] = {}  # of the task's energy that a set's spaces capture
    measured: dict[str, Mapping[int, Measurement]] = {}
    if opened:
        with undisturbed(parts.modules):
            captured: Mapping[int, Mapping[str, float | None]] = {}
            if {"spaces", "moments"} <= needs or parts.config.growth.screen:
                captured = _captured(evidence_sample, opened)
            shares = {set_id: _mean(captured.get(set_id, {})) for set_id in opened}
            kept = screened(shares, parts.config.growth.screen, parts.growth.screen)
            for set_id in opened.keys() - kept:
                excluded[set_id] = f"screened out: captures {shares[set_id] or 0.0:.1%}"
            chosen = {set_id: of_set for set_id, of_set in opened.items() if set_id in kept}
            step = Steps(_images_to_read(parts, evidence_sample, chosen, needs), progress)
            sample = _sample(parts, evidence_sample, chosen, needs, captured, trials, step)
            for name, measure in measures.items():
                shown = _shown(sample, measure.needs)
                with torch.no_grad():
                    values = measure.measure(attrs.evolve(shown, stored=parts.growth.stored.of(name)))
                measured[name] = require_measurements(name, values, chosen.keys())
    candidates = []
    for set_id, of_set in places.items():
        measurements = {}
        for name, values in measured.items():
            if set_id in values:
                measurements[name] = values[set_id]
        candidates.append(
            CandidateEvidence(
                set=set_id,
                measures=Measures(measurements, tuple(measures)),
                rank=of_set.rank,
                captured=shares.get(set_id),
                excluded=excluded.get(set_id),
            )
        )
    task = evidence_sample.task.index
    return Evidence(task=task, candidates=tuple(candidates), task_to_set=tuple(parts.pool.task_to_set))


def store_statistics(
    parts: RunParts,
    context: TaskContext,
    evidence_sample: EvidenceSample,
    moment: Literal["begin", "end"],
    trials: Callable[[], Trials] | None = None,
) -> None:
    """Let measures store statistics of a task that has its set, for later comparisons.

    Args:
        parts: The run.
        context: The task.
        evidence_sample: The task's.
        moment: Whether the task begins, or is learned.
        trials: As for :func:`collect_evidence`.
    """
    measures = {name: measure for name, measure in parts.growth.measures.items() if measure.stores == moment}
    if not measures:
        return
    needs = frozenset[Need]().union(*(measure.store_needs for measure in measures.values()))
    set_id = context.set_id
    with undisturbed(parts.modules):
        places = {set_id: _Places.of(parts, set_id)}
        captured: Mapping[int, Mapping[str, float | None]] = {}
        if {"spaces", "moments"} <= needs:
            captured = _captured(evidence_sample, places)
        sample = _sample(parts, evidence_sample, places, needs, captured, trials)
        for name, measure in measures.items():
            # what it has stored of this set; of others it has nothing to add to
            stored = parts.growth.stored.of(name)
            before = {set_id: stored[set_id]} if set_id in stored else {}
            shown = attrs.evolve(_shown(sample, measure.store_needs), stored=before)
            with torch.no_grad():
                parts.growth.stored.put(name, set_id, measure.store(shown))


def screened(captured: Mapping[int, float | None], count: int, screen: Screen) -> set[int]:
    """Return the sets to be measured: all, or ``count`` chosen by the share of energy that they capture.

    Sets without a share, and equals of lower id, come first. ``"ends"`` takes them from both ends in turn,
    the least first.

    >>> sorted(screened({0: 0.9, 1: 0.2, 2: 0.5, 3: 0.4}, 3, "ends"))
    [0, 1, 3]
    """
    if not 0 < count < len(captured):
        return set(captured)
    known: dict[int, float] = {}
    unknown: list[int] = []
    for set_id, share in captured.items():
        if share is None:
            unknown.append(set_id)
        else:
            known[set_id] = share
    least = sorted(known, key=lambda set_id: (known[set_id], set_id))
    most = sorted(known, key=lambda set_id: (-known[set_id], set_id))
    turns = itertools.chain.from_iterable(zip(least, most, strict=True))
    ordered = {"least": least, "most": most, "ends": list(dict.fromkeys(turns))}[screen]
    return set([*unknown, *ordered][:count])


def _images_to_read(
    parts: RunParts, evidence_sample: EvidenceSample, chosen: Mapping[int, _Places], needs: Set[Need]
) -> int:
    """Return how many images go through the backbone, each once for every pass."""
    # a head is fitted to features first, and its gradients take a forward of their own
    forwards = bool(needs & {"gradients", "features", "fitted"}) + ("fitted" in needs)
    return forwards * evidence_sample.num_images * len(parts.baseline.scope.passes(list(chosen)))


def _sample(
    parts: RunParts,
    evidence_sample: EvidenceSample,
    places: Mapping[int, _Places],
    needs: Set[Need],
    captured: Mapping[int, Mapping[str, float | None]],
    trials: Callable[[], Trials] | None,
    step: Callable[[int], None] = lambda count: None,
) -> Sample:
    """Return the evidence sample with what the measures need, of each set in question."""
    gradients, features = _through_sets(parts, evidence_sample, places, needs, step)
    fitted: Mapping[int, GroupGradients] = {}
    if "fitted" in needs:
        fitted = _fitted(parts, evidence_sample, places, features, step)
    candidates = []
    for set_id, of_set in places.items():
        of_fitted = {}
        if set_id in fitted:
            for name, draws in zip(of_set.sites, fitted[set_id], strict=True):
                of_fitted[name] = draws[0]  # a fitted head is one draw
        candidates.append(
            Candidate(
                set=set_id,
                tasks=parts.pool.tasks_of(set_id),
                sites=of_set.sites,
                spaces=of_set.spaces,
                captured=captured.get(set_id, {}),
                # not strict: no measure may need gradients
                gradients=dict(zip(of_set.spaces, gradients.get(set_id, ()), strict=False)),
                fitted=of_fitted,
                features=features.get(set_id),
            )
        )
    options = evidence_sample.options
    tried = trials() if trials is not None and needs & {"trial", "outcome"} else None
    return Sample(
        task=evidence_sample.task,
        labels=evidence_sample.labels,
        groups=evidence_sample.group_numbers,
        left_out=evidence_sample.left_out,
        seed=evidence_sample.seed,
        space_options=evidence_sample.pretrained_options,
        reduce=options.reduce,
        literal=options.evidence == "literal",
        centre=options.centre,
        candidates=tuple(candidates),
        task_to_set=tuple(parts.pool.task_to_set),
        moments=evidence_sample.moments,
        queries=evidence_sample.queries if needs & {"queries", "retrieved"} else None,
        trial=untried if tried is None else tried,
        outcome=unlearned if tried is None else tried.outcome,
        retrieved=_retrieved(parts, evidence_sample) if "retrieved" in needs else None,
        generator=evidence_sample.generator,
    )


def _through_sets(
    parts: RunParts,
    evidence_sample: EvidenceSample,
    places: Mapping[int, _Places],
    needs: Set[Need],
    step: Callable[[int], None],
) -> tuple[dict[int, GroupGradients], dict[int, Tensor]]:
    """Return gradients and features of each set, from one forward where both are needed."""
    seen: dict[int, list[Tensor]] = {}
    gradients: dict[int, GroupGradients] = {}
    if "gradients" in needs:
        sites: dict[int, list[Site]] = {}
        for set_id, of_set in places.items():
            if of_set.spaces:  # an angle to a space takes one
                sites[set_id] = [of_set.sites[name] for name in of_set.spaces]
        gradients = group_gradients(
            evidence_sample,
            parts.baseline,
            parts.pool,
            sites,
            step,
            lambda set_id, features: seen.setdefault(set_id, []).append(features),
            whose=parts.names[0],
        )
    if needs & {"features", "fitted"}:
        unseen = [set_id for set_id in places if set_id not in seen]
        seen |= set_features(evidence_sample, parts.baseline, parts.pool, unseen, step)
    features: dict[int, Tensor] = {}
    for set_id, rows in seen.items():
        features[set_id] = torch.cat(rows).float().cpu()
    return gradients, features


def _fitted(
    parts: RunParts,
    evidence_sample: EvidenceSample,
    places: Mapping[int, _Places],
    features: Mapping[int, Tensor],
    step: Callable[[int], None],
) -> dict[int, GroupGradients]:
    """Return the gradients of heads fitted to the features of each set, at all its sites."""
    sites: dict[int, list[Site]] = {}
    heads: dict[int, FittedHead] = {}
    for set_id, of_set in places.items():
        if of_set.sites:
            sites[set_id] = list(of_set.sites.values())
            heads[set_id] = FittedHead(evidence_sample, features[set_id])
    return group_gradients(
        evidence_sample,
        parts.baseline,
        parts.pool,
        sites,
        step,
        fitted=heads.__getitem__,
        whose=parts.names[0],
    )


def _retrieved(parts: RunParts, evidence_sample: EvidenceSample) -> Tensor | None:
    """Return the old task that retrieval gives each image of the evidence sample; None if it chooses none."""
    strategy = parts.retrieval
    task = evidence_sample.task.index
    if strategy is None or strategy.control or not task:  # an oracle retrieves nothing
        return None
    tasks = task_of_class(parts.infos[:task], parts.engine.device)

    retrieved = []
    with torch.no_grad():
        for batch, _ in evidence_sample.batches():
            scores = strategy.scores(strategy.query(batch).float(), range(task), tasks)
            retrieved.append(scores.argmax(dim=1).cpu())
    return torch.cat(retrieved)


def _shown(sample: Sample, needs: Set[Need]) -> Sample:
    """Return the sample with nothing in it that a measure has not declared to need.

    Otherwise its value could depend on the other measures of the run.
    """
    of_candidate: dict[Need, Any] = {"spaces": {}, "gradients": {}, "fitted": {}, "features": None}
    of_sample: dict[Need, Any] = {
        "moments": unread,
        "trial": untried,
        "outcome": unlearned,
        "queries": None,
        "retrieved": None,
    }
    hidden: dict[str, Any] = {need: empty for need, empty in of_candidate.items() if need not in needs}
    if not {"spaces", "moments"} <= needs:
        hidden["captured"] = {}
    candidates = tuple(attrs.evolve(candidate, **hidden) for candidate in sample.candidates)
    unread_parts: dict[str, Any] = {need: empty for need, empty in of_sample.items() if need not in needs}
    return attrs.evolve(sample, candidates=candidates, **unread_parts)


def _captured(
    evidence_sample: EvidenceSample, places: Mapping[int, _Places]
) -> Mapping[int, Mapping[str, float | None]]:
    """Return the shares of the task's energy in the old spaces, of the sites whose energy is cut there."""
    listed: list[tuple[int, str]] = []
    taps: list[Tap] = []
    for set_id, of_set in places.items():
        for name in of_set.spaces:
            activation = of_set.sites[name].activation
            if not activation.is_image:
                listed.append((set_id, name))
                taps.append(activation.tap)
    moments = _totals(evidence_sample, taps)  # of all sets at once: the images are read in one pass
    pairs = []
    for (set_id, name), tap in zip(listed, taps, strict=True):
        of_set = places[set_id]
        pairs.append((of_set.spaces[name], of_set.sites[name].activation.moment(moments[tap])))
    shares: dict[int, dict[str, float | None]] = {}
    for (set_id, name), share in zip(listed, captured_shares(pairs), strict=True):
        shares.setdefault(set_id, {})[name] = share
    return shares


def _totals(evidence_sample: EvidenceSample, taps: Sequence[Tap]) -> dict[Tap, SecondMoment]:
    """Return the moments of the whole evidence sample at some taps, read in one pass over the images."""
    options = evidence_sample.options
    # moments are of the rows that old spaces are built from, or shares could not be compared
    rows = Rows.of_finished(options)
    totals: dict[Tap, SecondMoment] = {}
    for tap, groups in evidence_sample.moments(list(dict.fromkeys(taps)), rows).items():
        moment = merged(groups)
        totals[tap] = moment.centred() if options.centre or options.centre_old else moment
    return totals


def _mean(shares: Mapping[str, float | None]) -> float | None:
    known = [share for share in shares.values() if share is not None]
    if not known:
        return None
    return sum(known) / len(known)
