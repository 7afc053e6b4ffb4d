"""Training images augmented by the batch: bytes are kept, and the device draws, cuts and resamples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lw2g.blocks.augmentation import canvas_of, uniforms
from lw2g.interfaces.stream import BatchAugmentation
from lw2g.training.images.decoding import load
from lw2g.training.images.pixels import Originals, Table, handed_over

__all__ = ["Augmented"]

Canvases = tuple[Tensor, Tensor]
"""Bytes [B, h, w, 3] with smaller images in the top left corner, and per image h, w, H, W [B, 4]."""


class _Bytes(Dataset[tuple[Canvases, dict[int, Tensor]]]):
    """What is kept of images, by position."""

    def __init__(self, originals: Originals, augmentation: BatchAugmentation) -> None:
        self._originals, self._augmentation = originals, augmentation

    def __getitems__(self, positions: Sequence[int]) -> tuple[Canvases, dict[int, Tensor]]:
        fresh: dict[int, Tensor] = {}
        images = [self._originals.get(position, fresh) for position in positions]
        made = [self._augmentation.pixels(image) for image in images]
        shapes = torch.tensor(
            [[*one.shape[:2], *image.shape[1:]] for one, image in zip(made, images, strict=True)]
        )
        return (canvas_of(made), shapes), fresh


class Augmented:
    """Gives augmented images of some tasks, in order, on the run's device.

    Bytes lie on the device where they fit, else in host memory, else they are decoded anew in each pass; the
    result is the same, bit for bit on one kind of device.

    Args:
        originals: The images, and the memory for what is made of them.
        augmentation: Makes network input of them.
        workers: Processes that decode.
    """

    def __init__(self, originals: Originals, augmentation: BatchAugmentation, *, workers: int = 0) -> None:
        self._originals, self._augmentation, self._workers = originals, augmentation, workers
        self._dataset = _Bytes(originals, augmentation)
        self._shapes = torch.zeros(len(originals), 4, dtype=torch.int64)
        self._tables: tuple[Table, Table] | None = None

    def tensors(self, order: Sequence[Sequence[int]], seed: int | None) -> Iterator[Tensor]:
        """Yield the images of one batch after another, ``[B, 3, S, S]``.

        Args:
            order: Positions, batch by batch.
            seed: Of the pass; each sample's draws depend on it and the sample's position.
        """
        device = self._originals.device
        flat = torch.tensor([position for positions in order for position in positions], dtype=torch.int64)
        draws = uniforms(seed or 0, flat.to(device, non_blocking=True), self._augmentation.draws)
        parts = torch.split(draws, [len(positions) for positions in order])
        for drawn, (images, shapes) in zip(parts, self._canvases(order), strict=True):
            yield self._augmentation(handed_over(images, device), handed_over(shapes, device), drawn)

    def _canvases(self, order: Sequence[Sequence[int]]) -> Iterator[Canvases]:
        """Yield bytes and shapes of one batch after another, decoding what no table holds."""
        missing = [self._missing(positions) for positions in order]
        if self._tables is not None and not any(missing):
            stored = zip(*(table.walk(order) for table in self._tables), strict=True)
            for positions, (images, shapes) in zip(order, stored, strict=True):
                yield _sized(images, *self._size(positions)), shapes
            return
        loaded = load(self._dataset, self._originals, [new for new in missing if new], self._workers)
        for positions, new in zip(order, missing, strict=True):
            made = None
            if new:
                made, self._shapes[new] = next(loaded)
                self._keep(new, made)
            yield self._together(positions, new, made), self._shapes[list(positions)]

    def _missing(self, positions: Sequence[int]) -> list[int]:
        if self._tables is None:
            return list(dict.fromkeys(positions))
        return self._tables[0].without(positions)

    def _keep(self, positions: Sequence[int], images: Tensor) -> None:
        """Keep what has room; the first batch says how large a canvas is, larger images are not kept."""
        if self._tables is None:
            self._tables = self._originals.table(images[0]), self._originals.table(self._shapes[0])
        table, shapes = self._tables
        height, width = table.shape[:2]
        fits = (self._shapes[list(positions), :2] <= torch.tensor([height, width])).all(1)
        kept = [position for position, fit in zip(positions, fits.tolist(), strict=True) if fit]
        table.store(kept, _sized(images[fits], height, width))
        shapes.store(kept, self._shapes[kept])

    def _together(self, positions: Sequence[int], new: Sequence[int], made: Tensor | None) -> Tensor:
        """Return the bytes of a batch, of which some were just made and the others lie in the table."""
        held = list(set(positions).difference(new))
        size = self._size(positions)
        device = self._originals.device
        parts = [] if made is None else [_sized(made.to(device, non_blocking=True), *size)]
        if self._tables is not None and held:
            parts.append(_sized(self._tables[0].rows(held).to(device, non_blocking=True), *size))
        where = {position: place for place, position in enumerate([*new, *held])}
        return torch.cat(parts)[torch.tensor([where[position] for position in positions])]

    def _size(self, positions: Sequence[int]) -> tuple[int, int]:
        """Return the least canvas for a batch, so that what a table has room for changes no bit."""
        height, width = self._shapes[list(positions), :2].amax(0).tolist()
        return height, width


def _sized(images: Tensor, height: int, width: int) -> Tensor:
    """Cut or fill canvases ``[B, h, w, 3]`` to a size; what is cut off must be empty."""
    cut = images[:, :height, :width]
    if cut.shape[1:3] == (height, width):
        return cut
    made = images.new_zeros(len(images), height, width, 3)
    made[:, : cut.shape[1], : cut.shape[2]] = cut
    return made
