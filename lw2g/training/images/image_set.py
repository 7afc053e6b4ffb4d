"""Images of one or more tasks under one transform, in batches, and their un-prompted features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.stream import ImageTransform, RandomTransform
from lw2g.training.devices.engine import Engine
from lw2g.training.images.augmented import Augmented
from lw2g.training.images.decoding import Decoder, Images, Pass, chunks
from lw2g.training.images.features import FeatureCache
from lw2g.training.images.pixels import Originals
from lw2g.vit.backbone import Backbone

__all__ = ["ImageSet"]


class ImageSet:
    """The samples of some tasks, in order, under one transform.

    Un-prompted features are computed once per run where the transform is deterministic.

    Args:
        originals: The images; several sets may share them.
        transform: From uint8 ``[3, H, W]`` to float ``[3, S, S]``.
        deterministic: Whether the transform draws no random number.
        fast: Whether a random transform is applied by the batch where it can be.
        backbone: For un-prompted features.
        engine: Device and precision.
        batch_size: Images per forward of un-prompted features.
        workers: Processes that decode and transform.
        query_norm: Whether un-prompted features are taken after the final norm (else before it).
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
        workers: int = 0,
        query_norm: bool = True,
    ) -> None:
        self.originals = originals
        self._decoder: Images = (
            Augmented(originals, transform.batch, workers=workers)
            if fast and isinstance(transform, RandomTransform)
            else Decoder(originals, transform, deterministic=deterministic, workers=workers)
        )
        self._deterministic, self._backbone, self._engine = deterministic, backbone, engine
        self._batch_size, self._query_norm = batch_size, query_norm
        self.labels = torch.as_tensor(np.concatenate([part.labels for part in originals.parts]))
        self.ids = tuple(name for part in originals.parts for name in part.ids)
        self._queries = FeatureCache(len(self.labels))

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, order: Sequence[Sequence[int]], *, seed: int | None = None) -> Iterator[Batch]:
        """Yield one batch per list of positions; images are decoded only if someone asks for them.

        Args:
            order: Positions, batch by batch.
            seed: Of the random transform; each sample derives its own from it and its position.
        """
        opened = Pass(self._decoder, order, seed)
        index = torch.tensor([position for positions in order for position in positions], dtype=torch.int64)
        sizes = [len(positions) for positions in order]
        # handed over once: a step then waits for nothing
        labels = torch.split(self.labels[index].to(self._engine.device, non_blocking=True), sizes)
        for number, (samples, known) in enumerate(zip(torch.split(index, sizes), labels, strict=True)):
            yield self._batch(samples, known, opened, number)

    def queries(self, positions: Sequence[int]) -> Tensor:
        """Return un-prompted features of samples, ``[n, dim]`` float32 on the device, computed once.

        Raises:
            ValueError: The transform is random, so a sample has no single feature.
        """
        if not self._deterministic:
            raise ValueError("expected a deterministic transform, but got a random one")
        parts = self._parts(self._queries.missing(positions))
        batches = self.batches([whole for _, whole in parts])
        for (part, _), batch in zip(parts, batches, strict=True):
            self._queries.store(part, self._features(batch.images)[: len(part)])
        return self._queries.rows(positions)

    def _parts(self, positions: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """Return positions batch by batch, each beside itself filled up.

        Batches always have one size, so that a feature has the same bits whatever it is computed with.
        """
        parts = chunks(positions, self._batch_size)
        return [(part, part + [part[0]] * (self._batch_size - len(part))) for part in parts]

    @torch.no_grad()
    def _features(self, images: Tensor) -> Tensor:
        with self._engine.autocast(), self._backbone.unread():
            return self._backbone.features(images, norm=self._query_norm).float()

    def _batch(self, samples: Tensor, labels: Tensor, opened: Pass, number: int) -> Batch:
        images = cache(lambda: opened.images(number))  # decoded once, whichever of the two asks first
        return Batch(
            labels=labels,
            samples=samples,
            images=images,
            query=lambda: self.queries(samples.tolist()) if self._deterministic else self._features(images()),
        )
