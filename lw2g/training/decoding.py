"""Decoding: from samples of some tasks to transformed images on the run's device, in passes.

A pass is one walk over batches of positions. It opens at most one loader, when the first image is asked for,
so that workers decode ahead; where the transform is deterministic and all images fit, they are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lw2g.errors import DataError
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.stream import ImageTransform, TaskData

__all__ = ["Decoder", "Pass", "chunks"]

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
        made = self._transform(image) if seed is None else self._augmented(image, seed)
        if not made.isfinite().all():  # here, so that workers look and no device is asked
            name = part.source.ids[int(part.indices[self._offset[position]])]
            raise DataError(
                f"image {name!r} holds NaN or infinity after the transform; look at its source and at mean "
                "and std of the normalisation"
            )
        return made

    def _augmented(self, image: Tensor, seed: int) -> Tensor:
        before = torch.get_rng_state()  # transforms draw on the CPU: cheaper than forking every generator
        torch.manual_seed(seed)
        try:
            return self._transform(image)
        finally:
            torch.set_rng_state(before)


class Decoder:
    """Gives transformed images of some tasks, in order, on the run's device.

    Args:
        parts: One entry per task.
        transform: From uint8 ``[3, H, W]`` to float ``[3, S, S]``.
        deterministic: Whether the transform draws no random number; images are then kept, up to a budget.
        device: Where images go.
        workers: Processes that decode and transform.
    """

    def __init__(
        self,
        parts: Sequence[TaskData],
        transform: ImageTransform,
        *,
        deterministic: bool,
        device: torch.device,
        workers: int = 0,
    ) -> None:
        self._dataset = _Images(parts, transform)
        self._deterministic, self._device, self._workers = deterministic, device, workers
        self._size = sum(len(part) for part in parts)
        self._table: Tensor | None = None
        self._kept = np.zeros(self._size, dtype=bool)

    def tensors(self, order: Sequence[Sequence[int]], seed: int | None) -> Iterator[Tensor]:
        """Yield the images of one batch after another, ``[B, 3, S, S]``.

        Args:
            order: Positions, batch by batch.
            seed: Of the random transform; each sample derives its own from it and its position.
        """
        if not self._deterministic:
            yield from self._loaded(order, seed)
        elif self._fits(order):
            yield from self._from_table(order)
        else:
            yield from self._loaded(order, None)

    def _fits(self, order: Sequence[Sequence[int]]) -> bool:
        """Whether all transformed images can be kept; allocates the table on first use."""
        if self._table is None and order:
            sample = self._dataset[(order[0][0], None)]
            if sample.numel() * sample.element_size() * self._size > _TABLE_BYTES:
                return False
            self._table = torch.zeros(self._size, *sample.shape, device=self._device)
        return True

    def _from_table(self, order: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        kept, missing = self._kept.copy(), []
        for positions in order:
            missing.append([position for position in dict.fromkeys(positions) if not kept[position]])
            kept[missing[-1]] = True
        loaded = self._loaded([new for new in missing if new], None)
        for positions, new in zip(order, missing, strict=True):
            if self._table is not None:
                if new:
                    self._table[new] = next(loaded)
                    self._kept[new] = True
                where = torch.as_tensor(list(positions)).to(self._device, non_blocking=True)
                yield self._table[where]

    def _loaded(self, order: Sequence[Sequence[int]], seed: int | None) -> Iterator[Tensor]:
        """Decode every sample of a batch once, however often it stands there (as padding)."""
        unique = [list(dict.fromkeys(positions)) for positions in order]
        keys = [
            [(position, None if seed is None else derive_seed(seed, position)) for position in positions]
            for positions in unique
        ]
        loader: DataLoader[Any] = DataLoader(
            self._dataset,
            batch_sampler=keys,
            num_workers=self._workers,
            pin_memory=self._device.type == "cuda",
            # The loader would otherwise draw a base seed from the global generator.
            generator=torch.Generator().manual_seed(0),
        )
        for positions, alone, tensor in zip(order, unique, loader, strict=True):
            images = tensor.to(self._device, non_blocking=True)
            if len(alone) < len(positions):
                where = {position: place for place, position in enumerate(alone)}
                images = images[torch.tensor([where[position] for position in positions])]
            yield images


class Pass:
    """One walk over batches of positions; nothing is decoded before the first image is asked for.

    Args:
        decoder: Gives the images.
        order: Positions, batch by batch.
        seed: Of the random transform.
    """

    def __init__(self, decoder: Decoder, order: Sequence[Sequence[int]], seed: int | None) -> None:
        self._decoder, self._order, self._seed = decoder, order, seed
        self._next = 0
        self._stream: Iterator[Tensor] | None = None

    @torch.no_grad()
    def images(self, number: int) -> Tensor:
        """Return the images of one batch, ``[B, 3, S, S]``; batches are best asked for in order."""
        # whoever asks may compute in reduced precision, transforms never do
        with torch.autocast("cpu", enabled=False):
            if self._stream is None or number < self._next:
                self._stream, self._next = self._decoder.tensors(self._order[number:], self._seed), number
            for images in self._stream:
                self._next += 1
                if self._next > number:
                    return images
        raise ValueError(f"expected a batch below {len(self._order)} but got {number!r}")
