"""Images of one or more tasks under one transform, on the run's device, and their un-prompted features.

What can be computed once is computed once: where the transform is deterministic, transformed images are kept
(up to a budget) and un-prompted features are computed a single time per run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.stream import ImageTransform, TaskData
from lw2g.training.devices import Engine
from lw2g.vit.backbone import Backbone

__all__ = ["ImageSet", "chunks"]

_TABLE_BYTES = 512 * 2**20


def chunks(positions: Sequence[int], size: int) -> list[list[int]]:
    """Cut a sequence into lists of at most ``size``.

    >>> chunks([1, 2, 3], 2)
    [[1, 2], [3]]
    """
    listed = list(positions)
    return [listed[start : start + size] for start in range(0, len(listed), size)]


class _Images(Dataset[Tensor]):
    """Transformed images by ``(position, seed)``; every sample of an epoch has a seed of its own."""

    def __init__(self, parts: Sequence[TaskData], transform: ImageTransform) -> None:
        self._parts, self._transform = list(parts), transform
        self._owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        self._offset = np.concatenate([np.arange(len(part)) for part in parts])

    def __getitem__(self, key: tuple[int, int | None]) -> Tensor:
        position, seed = key
        part = self._parts[self._owner[position]]
        image = part.source.image(int(part.indices[self._offset[position]]))
        if seed is None:
            return self._transform(image)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._transform(image)


class ImageSet:
    """The samples of some tasks, in order, under one transform.

    Args:
        parts: One entry per task.
        transform: From uint8 ``[3, H, W]`` to float ``[3, S, S]``.
        deterministic: Whether the transform draws no random number.
        backbone: For un-prompted features.
        engine: Device and precision.
        batch_size: Images per forward of un-prompted features.
        workers: Processes that decode and transform.
        query_norm: Whether un-prompted features are taken after the final norm (else before it).
    """

    def __init__(
        self,
        parts: Sequence[TaskData],
        transform: ImageTransform,
        *,
        deterministic: bool,
        backbone: Backbone,
        engine: Engine,
        batch_size: int,
        workers: int = 0,
        query_norm: bool = True,
    ) -> None:
        self._dataset = _Images(parts, transform)
        self._deterministic, self._backbone, self._engine = deterministic, backbone, engine
        self._batch_size, self._workers = batch_size, workers
        self._query_norm = query_norm
        self.labels = torch.as_tensor(np.concatenate([part.labels for part in parts]))
        self.labels_on_device = self.labels.to(engine.device)
        self.ids = tuple(name for part in parts for name in part.ids)
        self._images: Tensor | None = None
        self._has_image = np.zeros(len(self), dtype=bool)
        self._queries: Tensor | None = None
        self._has_query = np.zeros(len(self), dtype=bool)

    def __len__(self) -> int:
        return len(self.labels)

    def batches(
        self, order: Sequence[Sequence[int]], *, seed: int | None = None, images: bool = True
    ) -> Iterator[Batch]:
        """Yield one batch per list of positions.

        Args:
            order: Positions, batch by batch.
            seed: Of the random transform; each sample derives its own from it and its position.
            images: Whether images will be read; features known already then need no decoding.
        """
        if not images and self._deterministic:
            for positions in order:
                yield self._batch(positions, None)
            return
        for positions, tensor in zip(order, self._tensors(order, seed), strict=True):
            yield self._batch(positions, tensor)

    def queries(self, positions: Sequence[int]) -> Tensor:
        """Return un-prompted features of samples, ``[n, dim]`` float32 on the device, computed once.

        Raises:
            ValueError: The transform is random, so a sample has no single feature.
        """
        if not self._deterministic:
            raise ValueError("expected a deterministic transform, but got a random one")
        missing = [position for position in dict.fromkeys(positions) if not self._has_query[position]]
        if missing:
            self._compute_queries(missing)
        if self._queries is None:
            raise ValueError("expected at least one position, but got none")
        return self._queries[torch.as_tensor(list(positions), device=self._queries.device)]

    def _compute_queries(self, positions: Sequence[int]) -> None:
        parts = chunks(positions, self._batch_size)
        padded = [part + [part[0]] * (self._batch_size - len(part)) for part in parts]
        for part, batch in zip(parts, self.batches(padded), strict=True):
            features = self._features(batch.images)[: len(part)]
            if self._queries is None:
                self._queries = features.new_zeros(len(self), features.shape[1])
            self._queries[part] = features
            self._has_query[part] = True

    @torch.no_grad()
    def _features(self, images: Tensor) -> Tensor:
        with self._engine.autocast():
            return self._backbone.features(images, norm=self._query_norm).float()

    def _batch(self, positions: Sequence[int], tensor: Tensor | None) -> Batch:
        index = torch.as_tensor(list(positions))

        def images() -> Tensor:
            return next(self._tensors([positions], None)) if tensor is None else tensor

        def query() -> Tensor:
            return self.queries(positions) if self._deterministic else self._features(images())

        labels = self.labels_on_device[index.to(self._engine.device)]
        return Batch(labels=labels, samples=index, images=images, query=query)

    def _tensors(self, order: Sequence[Sequence[int]], seed: int | None) -> Iterator[Tensor]:
        if self._deterministic:
            wanted = [position for positions in order for position in positions]
            if self._fits(wanted):
                yield from self._from_table(order)
                return
            seed = None
        for tensor in self._load(order, seed):
            yield tensor.to(self._engine.device, non_blocking=True)

    def _fits(self, wanted: Sequence[int]) -> bool:
        """Whether all transformed images can be kept; allocates the table on first use."""
        if self._images is None and wanted:
            sample = self._dataset[(wanted[0], None)]
            if sample.numel() * sample.element_size() * len(self) > _TABLE_BYTES:
                return False
            self._images = torch.zeros(len(self), *sample.shape, device=self._engine.device)
        return True

    def _from_table(self, order: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        if self._images is None:
            return
        for positions in order:
            missing = [position for position in dict.fromkeys(positions) if not self._has_image[position]]
            for part in chunks(missing, 512):
                self._images[part] = torch.stack([self._dataset[(position, None)] for position in part]).to(
                    self._engine.device
                )
                self._has_image[part] = True
            yield self._images[torch.as_tensor(list(positions), device=self._engine.device)]

    def _load(self, order: Sequence[Sequence[int]], seed: int | None) -> Iterator[Tensor]:
        keys = [
            [(position, None if seed is None else derive_seed(seed, position)) for position in positions]
            for positions in order
        ]
        loader: DataLoader[Any] = DataLoader(
            self._dataset,
            batch_sampler=keys,
            num_workers=self._workers,
            pin_memory=self._engine.device.type == "cuda",
            # The loader would otherwise draw a base seed from the global generator.
            generator=torch.Generator().manual_seed(0),
        )
        yield from loader
