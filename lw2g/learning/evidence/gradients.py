"""Gradients of the probe loss at candidate sets, by draw of the head and group of the evidence sample.

Several groups share a forward: each has its own copy of the set and its own row of the shared parameters, so
that their gradients stay apart.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain

import attrs
import torch
from torch import Tensor, nn

from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.pool import Pool, Routing
from lw2g.interfaces.site import Site
from lw2g.learning.evidence.draws import head_draws
from lw2g.learning.evidence.evidence_sample import EvidenceSample
from lw2g.runtime.returned import require_probe_graph

__all__ = ["GroupGradients", "GroupedForward", "each_its_own", "group_gradients", "set_features"]

Loss = Callable[[Tensor, Batch], Tensor]
"""The mean loss of features of some images."""

GroupGradients = list[Tensor]
"""One tensor ``[draws, groups, rows, dim]`` per site: sums over a group's images, by draw of the head."""


@attrs.frozen(kw_only=True, eq=False)
class GroupedForward:
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
        if not self.shared:
            yield
            return
        places = []
        for module in self.baseline.modules():
            for name, value in module._parameters.items():
                if id(value) in self.shared:
                    places.append((module._parameters, name, value))
        try:
            for owned, name, value in places:
                owned[name] = self.shared[id(value)][self.chosen]  # type: ignore[assignment]
            yield
        finally:
            for owned, name, value in places:
                owned[name] = value


def each_its_own(
    baseline: Baseline, parameters: nn.Module, sites: Sequence[Site], sizes: Sequence[int]
) -> GroupedForward:
    """Return the forward in which each group of images has a copy of a set.

    Args:
        baseline: The baseline.
        parameters: The set.
        sites: Of the set, and shared ones that say ``per_sample``.
        sizes: Images of each group, in the order of the batch.
    """
    # a set each: autograd then keeps the groups' gradients apart
    copies = tuple(copy.deepcopy(parameters) for _ in sizes)
    groups = torch.arange(len(sizes)).repeat_interleave(torch.tensor(list(sizes)))
    chosen = groups.to(baseline.context.device)
    shared: dict[int, nn.Parameter] = {}
    for site in sites:
        if site.owner == "shared":
            rows = torch.stack([site.parameter.detach()] * len(sizes))
            shared[id(site.parameter)] = nn.Parameter(rows, requires_grad=False)
    by_group: list[list[Site]] = []
    for group, of_copy in enumerate(copies):
        named = {site.name: site for site in baseline.sites(of_copy)}
        of_group = []
        for site in sites:
            if site.owner == "set":
                of_group.append(named[site.name])
            else:
                parameter = shared[id(site.parameter)]
                # a group's row of the stacked parameter: its number comes before the axes of the site
                of_group.append(attrs.evolve(site, parameter=parameter, index=(group, *site.index)))
        by_group.append(of_group)
    return GroupedForward(
        baseline=baseline,
        routing=Routing(sets=copies, chosen=chosen),
        sites=by_group,
        shared=shared,
        chosen=chosen,
    )


def group_gradients(
    evidence_sample: EvidenceSample,
    baseline: Baseline,
    pool: Pool,
    sites: Mapping[int, Sequence[Site]],
    step: Callable[[int], None] = lambda count: None,
    seen: Callable[[int, Tensor], object] = lambda candidate, features: None,
    fitted: Callable[[int], Loss] | None = None,
    whose: str = "baseline",
) -> dict[int, GroupGradients]:
    """Return each candidate's gradients of the probe loss.

    All candidates share the draws. One forward serves all draws and several groups, and all candidates where
    it does not depend on them. A candidate's gradients never depend on the other candidates.

    Args:
        evidence_sample: The task's.
        baseline: Provides the loss.
        pool: The live sets.
        sites: The measured sites of each candidate, shared ones included.
        step: Called for each batch and pass with its number of images.
        seen: Told each candidate's features of some images ``[B, F]``, in the order of the evidence sample.
        fitted: Gives the loss of a candidate in place of the probe loss under draws of the head: then there
            is one draw.
        whose: Kind and name of the baseline, for messages.

    Raises:
        ContractError: Features or the loss have no gradient at all.
    """
    scope = baseline.scope
    passes = scope.passes(list(sites))
    collected: dict[int, list[list[Tensor]]] = {}

    def read(
        batch: Batch, sizes: Sequence[int], together: Sequence[int], losses: Sequence[Loss]
    ) -> tuple[list[Tensor], list[list[Tensor]]]:
        """Return features part by part, and the gradients of each group at all sites.

        Args:
            batch: Images of several groups.
            sizes: Images of each group.
            together: The candidates that share the forward.
            losses: One for each draw of the head.
        """
        wanted: list[Site] = []
        for candidate in together:
            wanted += sites[candidate]
        parts: list[Tensor] = []
        groups: list[list[Tensor]] = []
        for part, own in _parts(batch, sizes, joint=_separable(baseline, wanted)):
            if len(own) > 1:
                forward = each_its_own(baseline, pool[together[0]], wanted, own)
            else:
                forward = GroupedForward(
                    baseline=baseline, routing=scope.force(pool, together[0]), sites=[wanted]
                )
            features, gradients = _gradients(evidence_sample, forward, part, losses, whose)
            parts.append(features)
            groups += gradients
        return parts, groups

    with _losses(evidence_sample, baseline, fitted) as losses_of:
        for batch, sizes in evidence_sample.batches():
            for together in passes:
                # candidates share a pass where the forward does not depend on them: any one stands for all
                parts, groups = read(batch, sizes, together, losses_of(together[0]))
                for features in parts:
                    for candidate in together:
                        seen(candidate, features)
                # the candidates' sites stand side by side
                at = 0
                for candidate in together:
                    last = at + len(sites[candidate])
                    of_candidate = collected.setdefault(candidate, [])
                    of_candidate += [rows[at:last] for rows in groups]
                    at = last
                step(len(batch))
    gradients: dict[int, GroupGradients] = {}
    for candidate, groups in collected.items():
        by_site = zip(*groups, strict=True)
        gradients[candidate] = [torch.stack(rows, dim=1) for rows in by_site]
    return gradients


@torch.no_grad()
def set_features(
    evidence_sample: EvidenceSample,
    baseline: Baseline,
    pool: Pool,
    candidates: Sequence[int],
    step: Callable[[int], None] = lambda count: None,
) -> dict[int, list[Tensor]]:
    """Return each candidate's features of the sample, by batch; computed once if they are equal for all."""
    collected: dict[int, list[Tensor]] = {}
    passes = baseline.scope.passes(candidates)

    def read(batch: Batch, together: Sequence[int]) -> Tensor:
        with evidence_sample.engine.autocast():
            return baseline.features(batch, baseline.scope.force(pool, together[0]))

    for batch, _ in evidence_sample.batches() if passes else ():
        for together in passes:
            features = read(batch, together)
            for candidate in together:
                collected.setdefault(candidate, []).append(features)
            step(len(batch))
    return collected


@contextmanager
def _losses(
    evidence_sample: EvidenceSample, baseline: Baseline, fitted: Callable[[int], Loss] | None
) -> Iterator[Callable[[int], Sequence[Loss]]]:
    """Yield functions that return a candidate's losses: a fitted one, or the probe loss under each draw."""
    if fitted is not None:
        yield lambda candidate: [fitted(candidate)]
        return
    with head_draws(baseline, evidence_sample.task, evidence_sample.options, evidence_sample.seed) as heads:

        def under(put: Callable[[], None]) -> Loss:
            def loss(features: Tensor, batch: Batch) -> Tensor:
                put()  # the head's values of this draw
                return baseline.probe_loss(features, batch, evidence_sample.task)

            return loss

        draws = list(map(under, heads))
        yield lambda candidate: draws


def _gradients(
    evidence_sample: EvidenceSample,
    forward: GroupedForward,
    batch: Batch,
    losses: Sequence[Loss],
    whose: str,
) -> tuple[Tensor, list[list[Tensor]]]:
    """Return features, and the sums over each group of the gradients at its sites, ``[draws, rows, dim]``."""
    every = list(chain.from_iterable(forward.sites))
    # several sites may lie in one parameter
    parameters = list({id(site.parameter): site.parameter for site in every}.values())
    for parameter in parameters:
        parameter.requires_grad_(True)
    with torch.enable_grad(), evidence_sample.engine.autocast():
        features = forward.features(batch)
    rows_of: list[list[Tensor]] = [[] for _ in every]  # of each site, draw by draw
    for number, loss_of in enumerate(losses):
        # the forward's graph stays until the last draw has gone back through it
        with torch.enable_grad(), evidence_sample.engine.autocast():
            loss = loss_of(features, batch)
        require_probe_graph(features, loss, whose)
        is_last = number + 1 == len(losses)
        raw = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=not is_last)
        by_id: dict[int, Tensor] = {}
        for parameter, gradient in zip(parameters, raw, strict=True):
            by_id[id(parameter)] = torch.zeros_like(parameter) if gradient is None else gradient
        for site, of_draws in zip(every, rows_of, strict=True):
            # the loss is a mean over the batch; groups may differ by one image
            of_draws.append(site.rows(by_id[id(site.parameter)]).detach() * len(batch))
    for parameter in parameters:
        parameter.requires_grad_(False)
    stacked = list(map(torch.stack, rows_of))
    by_group = []
    first = 0
    for sites_of_group in forward.sites:
        last = first + len(sites_of_group)
        by_group.append(stacked[first:last])
        first = last
    return features.detach(), by_group


def _separable(baseline: Baseline, sites: Sequence[Site]) -> bool:
    """Whether one forward can give the gradients of several groups."""
    copies = baseline.scope.choice and baseline.takes_copies
    return copies and all(site.owner == "set" or site.per_sample for site in sites)


def _parts(batch: Batch, sizes: Sequence[int], *, joint: bool) -> Iterator[tuple[Batch, list[int]]]:
    """Yield the groups of each forward: all groups of a batch, or one after the other."""
    if joint or len(sizes) == 1:
        yield batch, list(sizes)
        return
    for end, size in zip(accumulate(sizes), sizes, strict=True):
        yield batch.part(slice(end - size, end)), [size]
