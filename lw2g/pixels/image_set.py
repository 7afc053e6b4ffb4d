"""Images of one or more tasks under one transform, in batches, and their un-prompted features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, islice

import numpy as np
import torch
from torch import Tensor

from lw2g.errors import DataError
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.stream import BatchAugmentation, ImageTransform, RandomTransform, StagedTransform
from lw2g.pixels.augmentation import canvas_of, uniforms
from lw2g.pixels.decoding import Decoder, Made, chunks
from lw2g.pixels.feature_rows import FeatureCache
from lw2g.pixels.pixels import Kept, Originals, Room, to_device
from lw2g.pixels.workers import Workers
from lw2g.runtime.engine import Engine
from lw2g.vit.backbone import Backbone

__all__ = ["ImageSet"]


class ImageSet:
    """The samples of some tasks, in order, under one transform.

    The deterministic part of a transformed image is kept as far as there is room. Un-prompted
    features are computed once per run where the whole transform is deterministic.

    Args:
        originals: The images; several sets may share them.
        transform: From uint8 ``[3, H, W]`` to float ``[3, S, S]``.
        deterministic: Whether the transform draws no random number.
        fast: Whether a random transform is applied by the batch where it can be.
        backbone: For un-prompted features.
        engine: Device and precision.
        batch_size: Images per forward of un-prompted features.
        workers: Processes that decode and transform; None: this one does.
        query_norm: Whether un-prompted features are taken after the final norm (else before it).
        still: The same images under a deterministic transform, whose un-prompted features are taken instead.

    Raises:
        DataError: A staged transform makes NaN or infinity of bytes.
    """

    def __init__(
        self,
        originals: Originals,
        transform: ImageTransform,
        *,
        deterministic: bool,
        fast: bool = False,
        backbone: Backbone,
        engine: Engine,
        batch_size: int,
        workers: Workers | None = None,
        query_norm: bool = True,
        still: ImageSet | None = None,
    ) -> None:
        self.originals = originals
        self._augment: BatchAugmentation | None = None
        self._finish: ImageTransform = _unchanged
        if isinstance(transform, RandomTransform) and fast:
            self._augment = transform.batch
            transform = transform.batch.pixels
        elif isinstance(transform, RandomTransform):
            transform = transform.image
        if isinstance(transform, StagedTransform):
            self._finish = transform.finish
            transform = transform.pixels
            _require_finite(self._finish)
        self._decoder = Decoder(originals, transform, workers)
        self._has_fixed_part = deterministic or self._augment is not None
        # a room is chosen with the first image, whose size tells what fits; what is random is not kept
        self._kept: Kept | None = None
        if not self._has_fixed_part:
            self._kept = _nothing_kept()
        self._deterministic = deterministic
        self._backbone = backbone
        self._engine = engine
        self._batch_size = batch_size
        self._query_norm = query_norm
        self._known_by = self if deterministic else still
        self.labels = torch.as_tensor(np.concatenate([part.labels for part in originals.parts]))
        self.ids = originals.ids
        self._queries = FeatureCache(len(self.labels))

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, order: Sequence[Sequence[int]], *, seed: int | None = None) -> Iterator[Batch]:
        """Yield one batch per list of positions; a batch decodes its images on first use.

        Args:
            order: Positions, batch by batch.
            seed: Of the random transform; each sample derives its own from it and its position.
        """
        walk = _Walk(lambda first: self._inputs(order[first:], seed))
        known_by = None if self._known_by is None else _Queries(self._known_by, order)
        index = torch.tensor(list(chain.from_iterable(order)), dtype=torch.int64)
        sizes = [len(positions) for positions in order]
        # handed over once: a step then waits for nothing
        labels = torch.split(self.labels[index].to(self._engine.device, non_blocking=True), sizes)
        for number, (samples, known) in enumerate(zip(torch.split(index, sizes), labels, strict=True)):
            images = cache(partial(walk.images, number))
            query = partial(self._query, images)
            if known_by is not None:
                query = partial(known_by.of_batch, number)
            yield Batch(labels=known, samples=samples, images=images, query=query)

    def queries(self, positions: Sequence[int]) -> Tensor:
        """Return un-prompted features of samples, ``[n, dim]`` float32 on the device, computed once.

        Raises:
            ValueError: The transform is random, so a sample has no single feature.
        """
        if not self._deterministic:
            raise ValueError("expected a deterministic transform, but got a random one")
        for _ in self.computed(positions):
            pass
        return self._queries.rows(positions)

    def computed(self, positions: Sequence[int]) -> Iterator[int]:
        """Compute the un-prompted features of samples that are not known yet.

        Yields:
            After each forward, of how many.
        """
        parts = self._parts(self._queries.missing(positions))
        batches = self.batches([whole for _, whole in parts])
        for (part, _), batch in zip(parts, batches, strict=True):
            self._queries.store(part, self._features(batch.images)[: len(part)])
            yield len(part)

    def are_known(self, positions: Sequence[int]) -> bool:
        """Whether the un-prompted features of samples were computed."""
        return not self._queries.missing(positions)

    def _inputs(self, order: Sequence[Sequence[int]], seed: int | None) -> Iterator[Tensor]:
        """Yield network input ``[B, 3, S, S]`` for one batch of positions after another.

        An image that is not kept is made once per batch, even if it stands there several times (as padding).
        """
        kept = self._kept or _nothing_kept()
        missing = []  # of each batch, the images that have to be made
        for positions in order:
            missing.append([position for position in dict.fromkeys(positions) if position not in kept])
        pass_seed = None if self._has_fixed_part else seed
        loaded = self._decoder.load(list(filter(None, missing)), pass_seed)
        numbers: Iterator[Tensor] | None = None
        if order and self._augment is not None and not any(missing):
            # handed over once: a step then waits for nothing
            walk = list(chain.from_iterable(order))
            of_all = self._numbers(walk, [kept[position] for position in walk])
            numbers = iter(torch.split(of_all, list(map(len, order))))
        for positions, new in zip(order, missing, strict=True):
            made = next(loaded) if new else None
            if made is not None and not self._has_fixed_part:  # nothing of it is kept
                yield self._finish(made.batch(positions, self.originals.device))
                continue
            rows = self._rows(positions, made)
            if self._augment is None:
                yield self._finish(to_device(torch.stack(rows), self.originals.device))
                continue
            of_batch = self._numbers(positions, rows) if numbers is None else next(numbers)
            yield self._augmented(self._augment, rows, of_batch, seed or 0)

    def _rows(self, positions: Sequence[int], made: Made | None) -> list[Tensor]:
        """Return the transformed images of a batch; new ones are kept from now on."""
        fresh: dict[int, Tensor] = {}
        if made is not None:
            if self._kept is None:
                room = self.originals.room_for(made.first)
                # what lies on a disk is the host's: a room of another device holds all of them
                disk = self.originals.disk if room.device.type == "cpu" else None
                self._kept = Kept(room, disk)
            fresh = made.on(self._kept.room.device)
            self._kept.keep(fresh)
        kept = self._kept or _nothing_kept()
        # the room may have been too small for new ones
        return [fresh[position] if position in fresh else kept[position] for position in positions]

    def _numbers(self, positions: Sequence[int], rows: Sequence[Tensor]) -> Tensor:
        """Return position, size now and size of the original of each image, ``[n, 5]``, on the device."""
        index = torch.tensor(positions)
        shapes = torch.tensor([row.shape[:2] for row in rows])
        numbers = torch.cat([index[:, None], shapes, self.originals.sizes[index]], dim=1)
        return to_device(numbers, self.originals.device)

    def _augmented(
        self, augment: BatchAugmentation, rows: Sequence[Tensor], numbers: Tensor, seed: int
    ) -> Tensor:
        images = to_device(canvas_of(rows), self.originals.device)
        return augment(images, numbers[:, 1:], uniforms(seed, numbers[:, 0], augment.draws))

    def _parts(self, positions: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """Return positions batch by batch, each with its padded form.

        Batches always have one size, so that a feature has the same bits whatever it is computed with.
        """
        padded = []
        for part in chunks(positions, self._batch_size):
            padding = [part[0]] * (self._batch_size - len(part))
            padded.append((part, part + padding))
        return padded

    @torch.no_grad()
    def _features(self, images: Tensor) -> Tensor:
        with self._engine.autocast(), self._backbone.unread(), self._backbone.joining():
            return self._backbone.features(images, norm=self._query_norm).float()

    def _query(self, images: Callable[[], Tensor]) -> Tensor:
        return self._features(images())


class _Queries:
    """The un-prompted features of the samples of one pass, computed in one walk.

    The first batch that asks opens the walk over the samples of all that follow, so that these are decoded
    while features are computed. It goes only as far as somebody has asked.

    Args:
        images: The samples under the test transform.
        order: Positions, batch by batch.
    """

    def __init__(self, images: ImageSet, order: Sequence[Sequence[int]]) -> None:
        self._images = images
        self._order = order
        self._first = 0
        self._walk: Iterator[int] | None = None

    def of_batch(self, number: int) -> Tensor:
        """Return the features of one batch, ``[B, dim]``."""
        positions = self._order[number]
        if self._walk is None:
            self._first = number
            self._walk = self._images.computed(list(chain.from_iterable(self._order[number:])))
        # an earlier batch is none of the walk's, and a walk that has failed has an end
        while number >= self._first and not self._images.are_known(positions):
            if next(self._walk, 0) == 0:
                break
        return self._images.queries(positions)


class _Walk:
    """One walk over batches; the first use of an image opens its one loader.

    Args:
        inputs: Gives network input from a batch on.
    """

    def __init__(self, inputs: Callable[[int], Iterator[Tensor]]) -> None:
        self._inputs = inputs
        self._next = 0
        self._stream: Iterator[Tensor] | None = None

    @torch.no_grad()
    def images(self, number: int) -> Tensor:
        """Return the images of one batch, ``[B, 3, S, S]``; reading batches in order is fastest."""
        # the caller may compute in reduced precision, transforms never do
        with torch.autocast("cpu", enabled=False):
            if self._stream is None or number < self._next:
                self._stream = self._inputs(number)
                self._next = number
            images = next(islice(self._stream, number - self._next, None))
        self._next = number + 1
        return images


def _unchanged(images: Tensor) -> Tensor:
    return images


def _nothing_kept() -> Kept:
    return Kept(Room(0))


def _require_finite(finish: ImageTransform) -> None:
    """Refuse a normalisation by its values for all bytes, of which every image consists."""
    every_byte = torch.arange(256, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 1, 1)
    if not finish(every_byte).isfinite().all():
        raise DataError("the transform makes NaN or infinity of pixels", "look at mean and std")
