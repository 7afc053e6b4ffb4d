"""Evidence for the growth decision: what every measure says of every candidate, from one pass over D_sub.

Measures are components. Here it is looked at the task for all of them at once: each is shown what it declares
to need, and what it has stored of the tasks before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence, Set

import attrs
import torch
from torch import Tensor

from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import Subspace, captured_shares
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.component import Screen
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.evidence import Candidate, Moment, Need, Sample, SampleOptions, unread, untried
from lw2g.interfaces.growth import CandidateEvidence, Evidence, Measured
from lw2g.interfaces.site import Site
from lw2g.training.evaluation.answers import require_measured
from lw2g.training.evidence.fitted import FittedHead
from lw2g.training.evidence.gradients import GroupGradients, group_gradients, set_features
from lw2g.training.evidence.probe import Probe, merged, undisturbed
from lw2g.training.evidence.trial import Trials
from lw2g.training.progress import Steps
from lw2g.training.session import Session
from lw2g.vit.taps import Tap

__all__ = ["collect_evidence", "screened", "store_statistics", "unmeasured"]


@attrs.frozen(kw_only=True, eq=False)
class _Places:
    """The measured sites of a set, shared ones included, and the spaces of old tasks there."""

    sites: dict[str, Site]
    spaces: dict[str, Subspace]

    @classmethod
    def of(cls, session: Session, set_id: int) -> _Places:
        baseline, memory = session.baseline, session.memory
        every = (*baseline.sites(session.pool[set_id]), *baseline.shared_sites())
        sites = {site.name: site for site in every if site.measured}
        found = {name: memory.space(set_id, site) for name, site in sites.items()}
        return cls(sites=sites, spaces={name: one for name, one in found.items() if one is not None})

    @property
    def rank(self) -> int:
        """Rank over all sites."""
        return sum(space.rank for space in self.spaces.values())

    def closed(self, *, wanted: bool) -> str | None:
        """Return why the set cannot be reused; None if it can. Where spaces are wanted it must have some."""
        if wanted and not self.spaces:
            return "no measured site with a space"
        owned = [space for name, space in self.spaces.items() if self.sites[name].owner == "set"]
        return "space is full" if owned and all(space.is_full for space in owned) else None


def unmeasured(session: Session, task: int) -> Evidence:
    """Return evidence that only names the live sets and their ranks, where no measure is in use."""
    ids = session.pool.ids
    # else no set is asked for its sites, of which there may be many
    kept = session.memory.basis_vectors > 0
    ranks = [_Places.of(session, set_id).rank if kept else 0 for set_id in ids]
    candidates = (CandidateEvidence(set=one, rank=rank) for one, rank in zip(ids, ranks, strict=True))
    return Evidence(task=task, candidates=tuple(candidates))


def collect_evidence(
    session: Session,
    probe: Probe,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evidence:
    """Measure every live set as a candidate for the task that has arrived, or as many as ``growth.screen``.

    Nothing of the training state changes by looking.

    Args:
        session: The run.
        probe: The task's D_sub.
        progress: Told how many passes and measures are done, of how many.
    """
    measures, pool = session.measures, session.pool
    needs = frozenset[Need]().union(*(one.needs for one in measures.values()))
    places = {set_id: _Places.of(session, set_id) for set_id in pool.ids}
    everywhere = all("spaces" in one.needs for one in measures.values())
    closed = {one: why for one, at in places.items() if (why := at.closed(wanted=everywhere)) is not None}
    opened = {one: at for one, at in places.items() if one not in closed}
    found: dict[str, Mapping[int, Measured]] = {}
    captured: Mapping[int, Mapping[str, float | None]] = {}
    if opened:
        with undisturbed(session.modules):
            if {"spaces", "moments"} <= needs or session.config.growth.screen:
                captured = _captured(probe, opened)
            kept = screened(
                {one: _mean(captured.get(one, {})) for one in opened},
                session.config.growth.screen,
                session.policy_component.screen,
            )
            shares = {one: _mean(captured.get(one, {})) or 0.0 for one in opened.keys() - kept}
            closed |= {one: f"screened out: captures {share:.1%}" for one, share in shares.items()}
            chosen = {one: at for one, at in opened.items() if one in kept}
            step = Steps(_passes(session, probe, chosen, needs) + len(measures), progress)
            sample = _sample(session, probe, chosen, needs, captured, step)
            for name, measure in measures.items():
                shown = _shown(sample, measure.needs)
                with torch.no_grad():
                    said = measure.measure(attrs.evolve(shown, stored=session.stored.of(name)))
                found[name] = require_measured(name, said, chosen.keys())
                step()
    entries = tuple(
        CandidateEvidence(
            set=one,
            measures={name: said[one] for name, said in found.items() if one in said},
            rank=places[one].rank,
            captured=_mean(captured.get(one, {})),
            excluded=closed.get(one),
        )
        for one in pool.ids
    )
    return Evidence(task=probe.task.index, candidates=entries)


def store_statistics(session: Session, context: TaskContext, probe: Probe, moment: Moment) -> None:
    """Let measures store what they will have to know of a task that has its set.

    Args:
        session: The run.
        context: The task.
        probe: Its D_sub.
        moment: Whether the task begins, or is learned.
    """
    measures = {name: one for name, one in session.measures.items() if one.stores == moment}
    if not measures:
        return
    needs = frozenset[Need]().union(*(one.store_needs for one in measures.values()))
    own = context.set_id
    with undisturbed(session.modules):
        places = {own: _Places.of(session, own)}
        captured = _captured(probe, places) if {"spaces", "moments"} <= needs else {}
        sample = _sample(session, probe, places, needs, captured)
        for name, measure in measures.items():
            shown = _shown(sample, measure.store_needs)
            held = {one: values for one, values in session.stored.of(name).items() if one == own}
            with torch.no_grad():
                session.stored.put(name, own, measure.store(attrs.evolve(shown, stored=held)))


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


def _passes(session: Session, probe: Probe, chosen: Mapping[int, _Places], needs: Set[Need]) -> int:
    """Return how many batches go through the backbone."""
    forwards = bool(needs & {"gradients", "features", "fitted"}) + ("fitted" in needs)
    return forwards * probe.num_batches * (1 if session.baseline.feature_scope == "pool" else len(chosen))


def _sample(
    session: Session,
    probe: Probe,
    places: Mapping[int, _Places],
    needs: Set[Need],
    captured: Mapping[int, Mapping[str, float | None]],
    step: Callable[[], None] = lambda: None,
) -> Sample:
    """Look at D_sub, at each set in question, as far as is needed."""
    gradients, features = _through_sets(session, probe, places, needs, step)
    fitted = _fitted(session, probe, places, features, step) if "fitted" in needs else {}
    options = probe.options
    pool = session.pool
    return Sample(
        task=probe.task,
        labels=probe.labels,
        groups=torch.tensor([number for number, one in enumerate(probe.groups) for _ in one]),
        left_out=probe.left_out,
        seed=probe.seed,
        options=SampleOptions(
            pretrained=probe.pretrained_options,
            reduce=options.reduce,
            literal=options.evidence == "literal",
            centre=options.centre,
        ),
        candidates=tuple(
            Candidate(
                set=one,
                tasks=pool.tasks_of(one),
                sites=at.sites,
                spaces=at.spaces,
                captured=captured.get(one, {}),
                gradients=dict(zip(at.spaces, gradients.get(one, ()), strict=False)),
                fitted=dict(zip(at.sites, (rows[0] for rows in fitted.get(one, ())), strict=False)),
                features=features.get(one),
            )
            for one, at in places.items()
        ),
        task_to_set=tuple(pool.task_to_set),
        moments=probe.moments,
        queries=probe.queries if needs & {"queries", "retrieved"} else None,
        trial=Trials(session, probe) if "trial" in needs else untried,
        retrieved=_retrieved(session, probe) if "retrieved" in needs else None,
        generator=probe.generator,
    )


def _through_sets(
    session: Session,
    probe: Probe,
    places: Mapping[int, _Places],
    needs: Set[Need],
    step: Callable[[], None],
) -> tuple[dict[int, GroupGradients], dict[int, Tensor]]:
    """Return gradients and features of each set, from one forward where both are needed."""
    baseline, pool = session.baseline, session.pool
    seen: dict[int, list[Tensor]] = {one: [] for one in places}
    gradients: dict[int, GroupGradients] = {}
    if "gradients" in needs:
        sites = {one: [at.sites[name] for name in at.spaces] for one, at in places.items() if at.spaces}
        gradients = group_gradients(
            probe, baseline, pool, sites, step, lambda one, features: seen[one].append(features)
        )
    if needs & {"features", "fitted"}:
        unseen = [one for one, found in seen.items() if not found]
        seen |= set_features(probe, baseline, pool, unseen, step)
    return gradients, {one: torch.cat(found).float().cpu() for one, found in seen.items() if found}


def _fitted(
    session: Session,
    probe: Probe,
    places: Mapping[int, _Places],
    features: Mapping[int, Tensor],
    step: Callable[[], None],
) -> dict[int, GroupGradients]:
    """Return the gradients of heads fitted to the features of each set, at all its sites."""
    sites = {one: list(at.sites.values()) for one, at in places.items() if at.sites}
    heads = {one: FittedHead(probe, features[one]) for one in sites}
    return group_gradients(probe, session.baseline, session.pool, sites, step, fitted=heads.__getitem__)


def _retrieved(session: Session, probe: Probe) -> Tensor | None:
    """Return the old task that the run's retrieval gives each image of D_sub; None where it chooses none."""
    strategy, task = session.retrieval, probe.task.index
    if strategy is None or getattr(strategy, "control", False) or not task:  # an oracle is not asked
        return None
    tasks = torch.tensor([one.index for one in session.infos[:task] for _ in one.classes])

    def retrieve(batch: Batch) -> Tensor:
        query = strategy.query(batch).float()
        return strategy.retrieve(query, range(task), tasks.to(query.device)).cpu()

    with torch.no_grad():
        return torch.cat([retrieve(batch) for batch, _ in probe.batches()])


def _shown(sample: Sample, needs: Set[Need]) -> Sample:
    """Return the sample with nothing in it that a measure has not declared to need.

    Else what it says could depend on which measures stand beside it.
    """
    candidates = tuple(
        attrs.evolve(
            one,
            spaces=one.spaces if "spaces" in needs else {},
            captured=one.captured if {"spaces", "moments"} <= needs else {},
            gradients=one.gradients if "gradients" in needs else {},
            fitted=one.fitted if "fitted" in needs else {},
            features=one.features if "features" in needs else None,
        )
        for one in sample.candidates
    )
    return attrs.evolve(
        sample,
        candidates=candidates,
        moments=sample.moments if "moments" in needs else unread,
        trial=sample.trial if "trial" in needs else untried,
        queries=sample.queries if "queries" in needs else None,
        retrieved=sample.retrieved if "retrieved" in needs else None,
    )


def _captured(probe: Probe, places: Mapping[int, _Places]) -> Mapping[int, Mapping[str, float | None]]:
    """Return the shares of the task's energy in the old spaces, of the sites whose energy is cut there."""
    listed = [
        (one, name, space, at.sites[name].activation)
        for one, at in places.items()
        for name, space in at.spaces.items()
        if not at.sites[name].activation.is_image
    ]
    moments = _totals(probe, [activation.tap for *_, activation in listed])
    pairs = [(space, activation.moment(moments[activation.tap])) for _, _, space, activation in listed]
    found: dict[int, dict[str, float | None]] = {one: {} for one in places}
    for (one, name, _, _), share in zip(listed, captured_shares(pairs), strict=True):
        found[one][name] = share
    return found


def _totals(probe: Probe, taps: Sequence[Tap]) -> dict[Tap, SecondMoment]:
    """Return the moments of the whole of D_sub at some taps, read in one pass over the images."""
    found = {tap: merged(groups) for tap, groups in probe.moments(list(dict.fromkeys(taps))).items()}
    return {tap: one.centred() for tap, one in found.items()} if probe.options.centre else found


def _mean(shares: Mapping[str, float | None]) -> float | None:
    known = [share for share in shares.values() if share is not None]
    return sum(known) / len(known) if known else None
