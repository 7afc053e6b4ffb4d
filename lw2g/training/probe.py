"""What a new task looks like before it is learned: its sample D_sub, pre-trained spaces, candidate gradients.

Nothing of the training state changes by looking: no parameter, buffer, gradient, optimizer or generator.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import cast

import torch
from torch import Tensor, nn

from lw2g.config.model import GrowthConfig
from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import Subspace
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskInfo, derive_seed
from lw2g.interfaces.memory import SpaceOptions
from lw2g.interfaces.pool import Pool, Routing
from lw2g.interfaces.site import Site
from lw2g.training.decoding import chunks
from lw2g.training.devices import Engine
from lw2g.training.heads import head_draws
from lw2g.training.images import ImageSet
from lw2g.vit.backbone import Backbone
from lw2g.vit.taps import Tap

__all__ = ["Probe", "balanced", "merged", "moments_of", "undisturbed"]

_BATCH = 64

GroupGradients = list[Tensor]
"""One tensor ``[draws, groups, rows, dim]`` per site: sums over a group's images, by draw of the head."""


@contextmanager
def undisturbed(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Keep generators, train modes and requires_grad flags as they are on leaving the block."""
    training = [(module, module.training) for root in modules for module in root.modules()]
    flags = [(parameter, parameter.requires_grad) for root in modules for parameter in root.parameters()]
    cuda = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=cuda):
        for root in modules:
            root.eval()
        try:
            yield
        finally:
            for module, mode in training:
                module.training = mode
            for parameter, flag in flags:
                parameter.requires_grad_(flag)


def tap_heads(tap: Tap, backbone: Backbone, options: GrowthConfig) -> int:
    """Return the number of heads a tap's space is the direct sum over (ruling b)."""
    return backbone.heads if tap.kind == "query" and options.heads == "per-head" else 1


def moments_of(
    taps: Sequence[Tap],
    batches: Iterable[tuple[Batch, Sequence[int]]],
    forward: Callable[[Batch], object],
    backbone: Backbone,
    engine: Engine,
    options: GrowthConfig,
) -> Iterator[dict[Tap, list[SecondMoment]]]:
    """Yield the second moments of one batch after another at the given taps, one per part of the batch.

    Args:
        taps: Where to read, all in one forward that ends at the deepest of them.
        batches: What to read, and how many images each part of a batch has.
        forward: Runs the backbone on a batch, with whatever is injected.
        backbone: The backbone.
        engine: Device and precision.
        options: Per head or joint.
    """
    for batch, sizes in batches:
        with engine.autocast():
            seen = backbone.read(taps, lambda batch=batch: forward(batch))  # type: ignore[misc]
        found: dict[Tap, list[SecondMoment]] = {tap: [] for tap in taps}
        for tap in taps:
            for rows in seen[tap].split(list(sizes)):
                moment = SecondMoment(backbone.dim, tap_heads(tap, backbone, options), device=engine.device)
                moment.update(rows)
                found[tap].append(moment)
        yield found


def merged(moments: Sequence[SecondMoment]) -> SecondMoment:
    """Return the sum of at least one second moment."""
    total = moments[0]
    for moment in moments[1:]:
        total = total.merge(moment)
    return total


class Probe:
    """A task's D_sub: a seeded sample of training images under the test transform, cut into groups.

    Sample and groups are balanced over the task's classes.

    Args:
        task: The task that has arrived.
        images: Its training images under the test transform.
        backbone: The frozen backbone.
        engine: Device and precision.
        options: Sample size, number of groups, energies, per head or joint.
        seed: The run's seed.
    """

    def __init__(
        self,
        task: TaskInfo,
        images: ImageSet,
        backbone: Backbone,
        engine: Engine,
        options: GrowthConfig,
        seed: int,
    ) -> None:
        self.task, self._images, self._backbone = task, images, backbone
        self._engine, self.options = engine, options
        self._seed = seed
        chosen = balanced(images.labels, options.images, self.generator("probe"))
        groups = min(options.groups, len(chosen))
        self.groups = [chosen[start::groups] for start in range(groups)]
        self._moments: dict[Tap, list[SecondMoment]] = {}

    def generator(self, purpose: str) -> torch.Generator:
        """Return a CPU generator of its own for one purpose within the task."""
        return torch.Generator().manual_seed(derive_seed(self._seed, "task", self.task.index, purpose))

    @property
    def sample(self) -> list[int]:
        """Positions of all images of D_sub, group by group."""
        return [position for group in self.groups for position in group]

    @property
    def left_out(self) -> float:
        """Share of the task's training images that D_sub leaves out."""
        return 1 - len(self.sample) / len(self._images)

    @property
    def pretrained_options(self) -> SpaceOptions:
        """How pre-trained spaces are built."""
        options = self.options
        energy = options.energy if options.energy_pre is None else options.energy_pre
        return SpaceOptions(energy=energy, power=options.energy_power, rule=options.rule)

    @property
    def _chunks(self) -> list[list[list[int]]]:
        """Groups that share a batch."""
        return chunks(self.groups, max(1, _BATCH // len(self.groups[0])))

    @property
    def num_batches(self) -> int:
        """How many batches :meth:`batches` yields."""
        return len(self._chunks)

    def batches(self) -> Iterator[tuple[Batch, list[int]]]:
        """Yield D_sub in batches of whole groups, each with the sizes of its groups."""
        joined = [[position for group in groups for position in group] for groups in self._chunks]
        for batch, groups in zip(self._images.batches(joined), self._chunks, strict=True):
            yield batch, [len(group) for group in groups]

    def moments(self, taps: Sequence[Tap]) -> dict[Tap, list[SecondMoment]]:
        """Return the un-prompted activations' second moments, one per group, read once per tap.

        What has to be read is best asked for together, in one pass over the images.
        """
        missing = [tap for tap in dict.fromkeys(taps) if tap not in self._moments]
        if missing:
            forward = self._backbone.features
            parts = moments_of(
                missing,
                self.batches(),
                lambda batch: forward(batch.images),
                self._backbone,
                self._engine,
                self.options,
            )
            listed = list(parts)
            for tap in missing:
                self._moments[tap] = [moment for part in listed for moment in part[tap]]
        return {tap: self._moments[tap] for tap in taps}

    def pretrained_space(self, site: Site) -> Subspace:
        """Return the pre-trained space at a site from the whole of D_sub (for CPK); never centred."""
        tap = site.activation.tap
        return site.activation.space(merged(self.moments([tap])[tap]), self.pretrained_options.build)

    def gradients(
        self,
        baseline: Baseline,
        pool: Pool,
        candidates: Sequence[int],
        sites: dict[int, list[Site]],
        step: Callable[[], None] = lambda: None,
    ) -> dict[int, GroupGradients]:
        """Return each candidate's gradients of the probe loss, by draw of the head and group of images.

        All candidates are asked under the same draws. One forward serves all draws, and several groups, each
        with a copy of the set of its own; where it does not depend on the candidate, all candidates. What a
        candidate is given never depends on which others there are.

        Args:
            baseline: Provides the loss.
            pool: The live sets.
            candidates: Ids of sets.
            sites: The measured sites of each candidate, shared ones included.
            step: Called once a batch and pass.
        """
        alone = baseline.feature_scope != "pool"
        passes = [[one] for one in candidates] if alone else [list(candidates)]
        found: dict[int, list[list[Tensor]]] = {candidate: [] for candidate in candidates}
        with head_draws(baseline, self.task, self.options, self._seed) as heads:
            for batch, sizes in self.batches():
                for together in passes:
                    wanted = [site for candidate in together for site in sites[candidate]]
                    groups: list[list[Tensor]] = []
                    for part, own in _parts(batch, sizes, joint=alone and _separable(baseline, wanted)):
                        asked = (
                            _one_set_each(baseline, pool[together[0]], wanted, own, self._engine.device)
                            if len(own) > 1
                            else (pool.force(together[0]) if alone else pool.route(None), [wanted])
                        )
                        groups += self._gradients(baseline, part, *asked, heads)
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

    def _gradients(
        self,
        baseline: Baseline,
        batch: Batch,
        routing: Routing,
        sites: Sequence[Sequence[Site]],
        heads: Sequence[Callable[[], None]],
    ) -> list[list[Tensor]]:
        """Return the sum over the batch of the gradient at each site, ``[draws, rows, dim]``."""
        every = [site for own in sites for site in own]
        parameters = list({id(site.parameter): site.parameter for site in every}.values())
        for parameter in parameters:
            parameter.requires_grad_(True)
        with torch.enable_grad(), self._engine.autocast():
            features = baseline.features(batch, routing)
        found: list[list[Tensor]] = []
        for number, put in enumerate(heads):
            put()
            with torch.enable_grad(), self._engine.autocast():
                loss = baseline.probe_loss(features, batch, self.task)
            raw = torch.autograd.grad(
                loss, parameters, allow_unused=True, retain_graph=number + 1 < len(heads)
            )
            by_id = {
                id(parameter): torch.zeros_like(parameter) if gradient is None else gradient
                for parameter, gradient in zip(parameters, raw, strict=True)
            }
            # The loss is a mean over the batch; groups may differ by one image.
            found.append([site.rows(by_id[id(site.parameter)]).detach() * len(batch) for site in every])
        for parameter in parameters:
            parameter.requires_grad_(False)
        stacked = iter([torch.stack(draws) for draws in zip(*found, strict=True)])
        return [[next(stacked) for _ in own] for own in sites]


def _separable(baseline: Baseline, sites: Sequence[Site]) -> bool:
    """Whether one forward can give the gradients of several groups, each through a copy of the set."""
    return not baseline.mixes_samples and all(site.owner == "set" for site in sites)


def _parts(batch: Batch, sizes: Sequence[int], *, joint: bool) -> Iterator[tuple[Batch, list[int]]]:
    """Yield what goes through the backbone together: all groups of a batch, or one after the other."""
    if joint or len(sizes) == 1:
        yield batch, list(sizes)
        return
    for end, size in zip(accumulate(sizes), sizes, strict=True):
        yield batch.part(slice(end - size, end)), [size]


def _one_set_each(
    baseline: Baseline,
    parameters: nn.Module,
    sites: Sequence[Site],
    sizes: Sequence[int],
    device: torch.device,
) -> tuple[Routing, list[list[Site]]]:
    """Return the routing that gives each group of images a copy of a set, and the sites of each copy."""
    copies = tuple(copy.deepcopy(parameters) for _ in sizes)
    chosen = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).to(device)
    by_name = [{site.name: site for site in baseline.sites(one)} for one in copies]
    return Routing(sets=copies, chosen=chosen), [[own[site.name] for site in sites] for own in by_name]


def balanced(labels: Tensor, count: int, generator: torch.Generator) -> list[int]:
    """Return positions of ``count`` images, of every class as many as of any other (or all it has), by class.

    Taken in turn they deal each class round robin.
    """
    order = torch.randperm(len(labels), generator=generator)
    turns = torch.empty(len(labels), dtype=torch.long)  # an image's place among those of its class
    for one in set(labels.tolist()):
        own = order[labels[order] == one]
        turns[own] = torch.arange(len(own))
    # ties between classes are broken by the random order
    chosen = order[turns[order].argsort(stable=True)][:count]
    return cast(list[int], chosen[labels[chosen].argsort(stable=True)].tolist())
