"""Gradients of the probe loss at candidate sets, by draw of the head and group of images of D_sub.

Several groups share a forward: each has a copy of the set of its own, and of shared parameters a row of its
own, so that their gradients stay apart.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate

import attrs
import torch
from torch import Tensor, nn

from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.pool import Pool, Routing
from lw2g.interfaces.site import Site
from lw2g.training.evidence.draws import head_draws
from lw2g.training.evidence.probe import Probe

__all__ = ["GroupGradients", "Way", "each_its_own", "group_gradients", "set_features"]

Loss = Callable[[Tensor, Batch], Tensor]
"""The mean loss of features of some images."""

GroupGradients = list[Tensor]
"""One tensor ``[draws, groups, rows, dim]`` per site: sums over a group's images, by draw of the head."""

_Seen = tuple[list[Tensor], list[list[Tensor]]]
"""Features part by part, and the gradients of each group at all sites."""


@attrs.frozen(kw_only=True, eq=False)
class Way:
    """How some groups of images go through a baseline in one forward.

    Attributes:
        baseline: Whose forward it is.
        routing: Gives each image its set.
        sites: Where each group's gradient is found.
        shared: Shared parameters by identity, with a row per group in front.
        chosen: The group of each image, ``[B]`` int64.
    """

    baseline: Baseline
    routing: Routing
    sites: list[list[Site]]
    shared: Mapping[int, nn.Parameter] = attrs.field(factory=dict)
    chosen: Tensor | None = None

    def features(self, batch: Batch) -> Tensor:
        """Return the features of all groups, ``[B, F]``."""
        with self._a_row_each():
            return self.baseline.features(batch, self.routing)

    @contextmanager
    def _a_row_each(self) -> Iterator[None]:
        """Let each image meet its group's row of the shared parameters within the block."""
        places = [
            (module._parameters, name, value)
            for module in (self.baseline.modules() if self.shared else ())
            for name, value in module._parameters.items()
            if id(value) in self.shared
        ]
        try:
            for owned, name, value in places:
                owned[name] = self.shared[id(value)][self.chosen]  # type: ignore[assignment]
            yield
        finally:
            for owned, name, value in places:
                owned[name] = value


def each_its_own(
    baseline: Baseline, parameters: nn.Module, sites: Sequence[Site], sizes: Sequence[int]
) -> Way:
    """Return the way on which each group of images has a copy of a set.

    Args:
        baseline: The baseline.
        parameters: The set.
        sites: Of the set, and shared ones that say ``per_sample``.
        sizes: Images of each group, in the order of the batch.
    """
    copies = tuple(copy.deepcopy(parameters) for _ in sizes)
    groups = torch.arange(len(sizes)).repeat_interleave(torch.tensor(list(sizes)))
    chosen = groups.to(baseline.context.device)
    shared = {
        id(site.parameter): nn.Parameter(
            torch.stack([site.parameter.detach()] * len(sizes)), requires_grad=False
        )
        for site in sites
        if site.owner == "shared"
    }
    own = [{site.name: site for site in baseline.sites(one)} for one in copies]

    def of_group(group: int, site: Site) -> Site:
        if site.owner == "set":
            return own[group][site.name]
        return attrs.evolve(site, parameter=shared[id(site.parameter)], index=(group, *site.index))

    return Way(
        baseline=baseline,
        routing=Routing(sets=copies, chosen=chosen),
        sites=[[of_group(group, site) for site in sites] for group in range(len(sizes))],
        shared=shared,
        chosen=chosen,
    )


def group_gradients(
    probe: Probe,
    baseline: Baseline,
    pool: Pool,
    sites: Mapping[int, Sequence[Site]],
    step: Callable[[], None] = lambda: None,
    seen: Callable[[int, Tensor], object] = lambda candidate, features: None,
    fitted: Callable[[int], Loss] | None = None,
) -> dict[int, GroupGradients]:
    """Return each candidate's gradients of the probe loss.

    All candidates are asked under the same draws. One forward serves all draws and several groups; where it
    does not depend on the candidate, all candidates. What is found at a candidate never depends on which
    others there are.

    Args:
        probe: The task's D_sub.
        baseline: Provides the loss.
        pool: The live sets.
        sites: The measured sites of each candidate, shared ones included.
        step: Called once a batch and pass.
        seen: Told each candidate's features of some images ``[B, F]``, in the order of D_sub.
        fitted: Gives the loss of a candidate in place of the probe loss under draws of the head: then there
            is one draw.
    """
    alone = baseline.feature_scope != "pool"
    passes = [[one] for one in sites] if alone else [list(sites)]
    found: dict[int, list[list[Tensor]]] = {candidate: [] for candidate in sites}

    def read(batch: Batch, sizes: Sequence[int], together: Sequence[int]) -> _Seen:
        wanted = [site for candidate in together for site in sites[candidate]]
        told: list[Tensor] = []
        groups: list[list[Tensor]] = []
        for part, own in _parts(batch, sizes, joint=alone and _separable(baseline, wanted)):
            if len(own) > 1:
                way = each_its_own(baseline, pool[together[0]], wanted, own)
            else:
                routing = pool.force(together[0]) if alone else pool.route(None)
                way = Way(baseline=baseline, routing=routing, sites=[wanted])
            features, gradients = _gradients(probe, way, part, losses(together[0]))
            told.append(features)
            groups += gradients
        return told, groups

    with _losses(probe, baseline, fitted) as losses:
        for batch, sizes in probe.batches():
            for together in passes:
                told, groups = read(batch, sizes, together)
                for features in told:
                    for candidate in together:
                        seen(candidate, features)
                at = 0
                for candidate in together:
                    last = at + len(sites[candidate])
                    found[candidate] += [rows[at:last] for rows in groups]
                    at = last
                step()
    return {
        candidate: [torch.stack(parts, dim=1) for parts in zip(*groups, strict=True)]
        for candidate, groups in found.items()
    }


@torch.no_grad()
def set_features(
    probe: Probe,
    baseline: Baseline,
    pool: Pool,
    candidates: Sequence[int],
    step: Callable[[], None] = lambda: None,
) -> dict[int, list[Tensor]]:
    """Return each candidate's features of D_sub, by batch; of all at once where they depend on no choice."""
    found: dict[int, list[Tensor]] = {candidate: [] for candidate in candidates}
    alone = baseline.feature_scope != "pool"
    passes = [[one] for one in candidates] if alone else [list(candidates)] * bool(candidates)

    def read(batch: Batch, together: Sequence[int]) -> Tensor:
        with probe.engine.autocast():
            return baseline.features(batch, pool.force(together[0]) if alone else pool.route(None))

    for batch, _ in probe.batches() if passes else ():
        for together in passes:
            features = read(batch, together)
            for candidate in together:
                found[candidate].append(features)
            step()
    return found


@contextmanager
def _losses(
    probe: Probe, baseline: Baseline, fitted: Callable[[int], Loss] | None
) -> Iterator[Callable[[int], Sequence[Loss]]]:
    """Yield what returns the losses of a candidate: a fitted one, or the probe loss under each draw."""
    if fitted is not None:
        yield lambda candidate: [fitted(candidate)]
        return
    with head_draws(baseline, probe.task, probe.options, probe.seed) as heads:

        def under(put: Callable[[], None]) -> Loss:
            def loss(features: Tensor, batch: Batch) -> Tensor:
                put()
                return baseline.probe_loss(features, batch, probe.task)

            return loss

        draws = [under(put) for put in heads]
        yield lambda candidate: draws


def _gradients(
    probe: Probe, way: Way, batch: Batch, losses: Sequence[Loss]
) -> tuple[Tensor, list[list[Tensor]]]:
    """Return features, and the sums over each group of the gradients at its sites, ``[draws, rows, dim]``."""
    every = [site for own in way.sites for site in own]
    parameters = list({id(site.parameter): site.parameter for site in every}.values())
    for parameter in parameters:
        parameter.requires_grad_(True)
    with torch.enable_grad(), probe.engine.autocast():
        features = way.features(batch)
    found: list[list[Tensor]] = []
    for number, of in enumerate(losses):
        with torch.enable_grad(), probe.engine.autocast():
            loss = of(features, batch)
        raw = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=number + 1 < len(losses))
        by_id = {
            id(parameter): torch.zeros_like(parameter) if gradient is None else gradient
            for parameter, gradient in zip(parameters, raw, strict=True)
        }
        # The loss is a mean over the batch; groups may differ by one image.
        found.append([site.rows(by_id[id(site.parameter)]).detach() * len(batch) for site in every])
    for parameter in parameters:
        parameter.requires_grad_(False)
    stacked = iter([torch.stack(draws) for draws in zip(*found, strict=True)])
    return features.detach(), [[next(stacked) for _ in own] for own in way.sites]


def _separable(baseline: Baseline, sites: Sequence[Site]) -> bool:
    """Whether one forward can give the gradients of several groups."""
    return baseline.takes_copies and all(site.owner == "set" or site.per_sample for site in sites)


def _parts(batch: Batch, sizes: Sequence[int], *, joint: bool) -> Iterator[tuple[Batch, list[int]]]:
    """Yield what goes through the backbone together: all groups of a batch, or one after the other."""
    if joint or len(sizes) == 1:
        yield batch, list(sizes)
        return
    for end, size in zip(accumulate(sizes), sizes, strict=True):
        yield batch.part(slice(end - size, end)), [size]
