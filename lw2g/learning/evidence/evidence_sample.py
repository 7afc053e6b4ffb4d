"""The evidence sample of a new task (D_sub in the paper), and the pre-trained spaces at its sites.

Reading it changes nothing of the training state: no parameter, buffer, gradient, optimizer or generator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from lw2g.config.settings import GrowthConfig
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskInfo, derive_seed
from lw2g.interfaces.memory import SpaceOptions
from lw2g.interfaces.site import Site
from lw2g.learning.evidence.space_rows import Rows
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace
from lw2g.pixels.image_set import ImageSet
from lw2g.runtime.engine import Engine
from lw2g.vit.backbone import Backbone
from lw2g.vit.taps import Tap

__all__ = ["GROUPS", "EvidenceSample", "balanced", "merged", "moments_of", "undisturbed"]

R = TypeVar("R")

GROUPS = 16
"""Groups of the images of the sample; standard errors come from one gradient per group."""

_BATCH = 64
_BYTES = 2**31
"""Bytes that a batch may keep for its backward; a group of images that needs more goes alone."""


@contextmanager
def undisturbed(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Keep generators, train modes and requires_grad flags as they are on leaving the block."""
    training: list[tuple[nn.Module, bool]] = []
    flags: list[tuple[nn.Parameter, bool]] = []
    for root in modules:
        for module in root.modules():
            training.append((module, module.training))
        for parameter in root.parameters():
            flags.append((parameter, parameter.requires_grad))
    cuda: list[int] = []
    if torch.cuda.is_available():
        cuda = list(range(torch.cuda.device_count()))
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
    """Return the number of heads whose spaces a tap's space is the direct sum of."""
    if tap.kind in ("query", "query_used") and options.heads == "per-head":
        return backbone.heads
    return 1  # other taps have no heads


def moments_of(
    taps: Sequence[Tap],
    batches: Iterable[tuple[Batch, Sequence[int]]],
    forward: Callable[[Batch], object],
    backbone: Backbone,
    engine: Engine,
    options: GrowthConfig,
    rows: Rows,
    generator: torch.Generator,
) -> Iterator[dict[Tap, list[SecondMoment]]]:
    """Yield the second moments of one batch after another at the given taps, one per part of the batch.

    Args:
        taps: Where to read, all in one forward that ends at the deepest of them.
        batches: The batches, each with the number of images of its parts.
        forward: Runs the backbone on a batch, with whatever is injected.
        backbone: The backbone.
        engine: Device and precision.
        options: Per head or joint.
        rows: Which rows stand for the activations at the taps.
        generator: Draws a token of each image, where one of them is its row.
    """
    read_at = {tap: rows.read_at(tap, backbone) for tap in taps}
    where = list(dict.fromkeys(read_at.values()))
    for batch, sizes in batches:
        with engine.autocast():
            seen = backbone.read(where, partial(forward, batch))
        # the same token at every tap
        places = torch.randint(max(1, backbone.num_tokens), (sum(sizes),), generator=generator)
        moments: dict[Tap, list[SecondMoment]] = {tap: [] for tap in taps}
        for tap, source in read_at.items():
            heads = tap_heads(source, backbone, options)
            for part in torch.split(rows.chosen(seen[source], places), list(sizes)):
                moment = SecondMoment(part.shape[-1], heads, device=engine.device)
                moment.update(part)
                moments[tap].append(moment)
        yield moments


def merged(moments: Sequence[SecondMoment]) -> SecondMoment:
    """Return the sum of at least one second moment."""
    total = moments[0]
    for moment in moments[1:]:
        total = total.merge(moment)
    return total


class EvidenceSample:
    """A task's evidence sample: some training images under the test transform, drawn by the seed, in groups.

    Sample and groups are balanced over the task's classes.

    Args:
        task: The task that has arrived.
        images: Its training images under the test transform.
        backbone: The frozen backbone.
        engine: Device and precision.
        options: Sample size, energies, per head or joint.
        seed: The run's seed.
        taps: Returns the taps of all sites; the first request reads all of them.
    """

    def __init__(
        self,
        task: TaskInfo,
        images: ImageSet,
        backbone: Backbone,
        engine: Engine,
        options: GrowthConfig,
        seed: int,
        taps: Callable[[], Iterable[Tap]] = tuple,
    ) -> None:
        self.task = task
        self.engine = engine
        self.options = options
        self.seed = seed
        self._images = images
        self._backbone = backbone
        chosen = balanced(images.labels, options.images, self.generator("probe"))
        groups = min(GROUPS, len(chosen))
        self.groups = [chosen[start::groups] for start in range(groups)]
        self._taps = taps
        self._moments: dict[tuple[Rows, Tap], list[SecondMoment]] = {}

    def generator(self, purpose: str) -> torch.Generator:
        """Return a CPU generator of its own for one purpose within the task."""
        return torch.Generator().manual_seed(derive_seed(self.seed, "task", self.task.index, purpose))

    @property
    def positions(self) -> list[int]:
        """Positions of all images of the sample, group by group."""
        return list(itertools.chain.from_iterable(self.groups))

    @property
    def group_numbers(self) -> Tensor:
        """The group of each image of the sample, ``[n]`` int64."""
        sizes = torch.tensor([len(group) for group in self.groups])
        return torch.arange(len(self.groups)).repeat_interleave(sizes)

    @property
    def labels(self) -> Tensor:
        """Classes of all images of the sample, group by group, ``[n]`` int64."""
        return self._images.labels[self.positions]

    @property
    def queries(self) -> Tensor:
        """Un-prompted features of all images, group by group, ``[n, dim]`` float32 on the CPU."""
        return torch.cat([batch.query for batch, _ in self.batches()]).float().cpu()

    @property
    def left_out(self) -> float:
        """Share of the task's training images that the sample leaves out."""
        return 1 - len(self.positions) / len(self._images)

    @property
    def pretrained_options(self) -> SpaceOptions:
        """How pre-trained spaces are built."""
        options = self.options
        energy = options.energy if options.energy_pre is None else options.energy_pre
        return SpaceOptions(energy=energy, power=options.energy_power, rule=options.rule)

    @property
    def _chunks(self) -> list[list[list[int]]]:
        """Groups that share a batch."""
        # a batch has as many images as a forward can keep for its backward
        kept = self._backbone.depth * self._backbone.bytes_per_image
        images = min(_BATCH, _BYTES // kept)
        # a group is never cut: its gradient is one sum
        size = max(1, images // len(self.groups[0]))
        return [self.groups[start : start + size] for start in range(0, len(self.groups), size)]

    @property
    def num_images(self) -> int:
        """How many images it has."""
        return len(self.positions)

    def batches(self) -> Iterator[tuple[Batch, list[int]]]:
        """Yield the sample in batches of whole groups, each with the sizes of its groups."""
        together = self._chunks
        joined = [list(itertools.chain.from_iterable(groups)) for groups in together]
        for batch, groups in zip(self._images.batches(joined), together, strict=True):
            yield batch, [len(group) for group in groups]

    @property
    def space_chunks(self) -> list[list[int]]:
        """Positions of the images that give the task's space once it is finished, by batch."""
        count = self.options.space_images
        if count is None or count >= len(self.positions):
            return [list(itertools.chain.from_iterable(groups)) for groups in self._chunks]
        chosen = balanced(self.labels, count, self.generator("space images"))
        positions = [self.positions[number] for number in chosen]
        return [positions[start : start + _BATCH] for start in range(0, count, _BATCH)]

    def space_batches(self) -> Iterator[Batch]:
        """Yield the images that give the task's space."""
        yield from self._images.batches(self.space_chunks)

    def moments(self, taps: Sequence[Tap], rows: Rows | None = None) -> dict[Tap, list[SecondMoment]]:
        """Return the un-prompted activations' second moments, one per group, all read in one pass.

        Args:
            taps: Those of the sites.
            rows: What stands for the activations there; None: what spans pre-trained spaces.
        """
        rows = Rows.of_pretrained(self.options) if rows is None else rows
        if not self._moments.keys() >= {(rows, tap) for tap in taps}:
            # those that will be asked for later, too: the images are then read once
            every = dict.fromkeys((*taps, *self._taps()))
            missing = [tap for tap in every if (rows, tap) not in self._moments]
            forward = self._backbone.features
            parts = moments_of(
                missing,
                self.batches(),
                lambda batch: forward(batch.images),
                self._backbone,
                self.engine,
                self.options,
                rows,
                self.generator("rows"),
            )
            read: dict[Tap, list[SecondMoment]] = {tap: [] for tap in missing}
            for part in parts:
                for tap in missing:
                    read[tap] += part[tap]
            for tap in missing:
                self._moments[rows, tap] = read[tap]
        return {tap: self._moments[rows, tap] for tap in taps}

    def pretrained_space(self, site: Site) -> Subspace:
        """Return the pre-trained space at a site from the whole evidence sample (for CPK); never centred."""
        tap = site.activation.tap
        return site.activation.space(merged(self.moments([tap])[tap]), self.pretrained_options.build)


def balanced(labels: Tensor, count: int, generator: torch.Generator) -> list[int]:
    """Return positions of ``count`` images, balanced over the classes as far as they have images, by class.

    Every n-th of them deals each class round robin.
    """
    order = torch.randperm(len(labels), generator=generator)
    turns = torch.empty(len(labels), dtype=torch.long)  # an image's place among those of its class
    for label in set(labels.tolist()):
        positions = order[labels[order] == label]
        turns[positions] = torch.arange(len(positions))
    # ties between classes are broken by the random order
    chosen = order[turns[order].argsort(stable=True)][:count]
    return cast(list[int], chosen[labels[chosen].argsort(stable=True)].tolist())
