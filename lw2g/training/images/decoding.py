"""Decoding: from samples of some tasks to transformed images on the run's device, in passes.

A pass is one walk over batches of positions. It opens at most one loader, when the first image is asked for,
so that workers decode ahead; what a deterministic transform makes is kept as far as there is room.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.stream import ImageTransform, StagedTransform
from lw2g.training.frames import Handed
from lw2g.training.images.pixels import Originals, Table, handed_over

__all__ = ["Decoder", "Images", "Pass", "chunks", "load", "require_open_files"]

_FILES, _FILES_OF_A_WORKER = 64, 32
"""Files that a run has open, and those for what each worker hands over."""

Loaded = tuple[Tensor, dict[int, Tensor]]
"""Transformed images [B, ...], and the originals that were decoded for them just now, by position."""


def chunks(positions: Sequence[int], size: int) -> list[list[int]]:
    """Cut a sequence into lists of at most ``size``.

    >>> chunks([1, 2, 3], 2)
    [[1, 2], [3]]
    """
    listed = list(positions)
    return [listed[start : start + size] for start in range(0, len(listed), size)]


def require_open_files(workers: int) -> None:
    """Refuse workers who could not hand over what they decode.

    Raises:
        ConfigError: The system allows too few open files.
    """
    needed, (allowed, _) = _FILES + workers * _FILES_OF_A_WORKER, resource.getrlimit(resource.RLIMIT_NOFILE)
    if workers and allowed != resource.RLIM_INFINITY and allowed < needed:
        raise ConfigError(
            f"run.workers: {workers} need {needed} open files, and the system allows {allowed}; raise its "
            "limit (ulimit -n), or lower run.workers"
        )


class _Images(Dataset[Loaded]):
    """Transformed images by ``(position, seed)``; every sample of an epoch has a seed of its own."""

    def __init__(self, originals: Originals, transform: ImageTransform) -> None:
        self._originals, self._transform = originals, transform

    def __getitems__(self, keys: Sequence[tuple[int, int | None]]) -> Loaded:
        fresh: dict[int, Tensor] = {}
        # transforms draw on the CPU, and torch.manual_seed would seed every device there may be
        generator = torch.default_generator
        before = generator.get_state()
        try:
            made = []
            for position, seed in keys:
                if seed is not None:
                    generator.manual_seed(seed)
                made.append(self._made(position, self._originals.get(position, fresh)))
        finally:
            generator.set_state(before)
        return torch.stack(made), fresh

    def _made(self, position: int, image: Tensor) -> Tensor:
        made = self._transform(image)
        # here, so that workers look and no device is asked; a sum is NaN or infinite where a value is
        if made.is_floating_point() and not made.sum().isfinite():
            raise DataError(
                f"image {self._originals.name(position)!r} holds NaN or infinity after the transform; look "
                "at its source and at mean and std of the normalisation"
            )
        return made


class _HandingOver(Dataset[Any]):
    """The same in another process, where an error would lose where it arose."""

    def __init__(self, images: Any) -> None:
        self._images = images

    def __getitems__(self, keys: Sequence[Any]) -> Any:
        try:
            return self._images.__getitems__(keys)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return Handed.of(error)


def _as_it_is(loaded: Any) -> Any:
    return loaded


def load(
    images: Dataset[Any], originals: Originals, keys: Sequence[Sequence[Any]], workers: int
) -> Iterator[Any]:
    """Yield what a data set makes of one list of keys after another, from one loader; keep new originals."""
    loader: DataLoader[Any] = DataLoader(
        _HandingOver(images) if workers else images,
        batch_sampler=keys,  # type: ignore[arg-type]
        collate_fn=_as_it_is,
        num_workers=workers,
        pin_memory=originals.device.type == "cuda",
        # The loader would otherwise draw a base seed from the global generator.
        generator=torch.Generator().manual_seed(0),
    )
    for loaded in loader:
        if isinstance(loaded, Handed):
            raise loaded.raised()
        made, fresh = loaded
        originals.keep(fresh)
        yield made


class Decoder:
    """Gives transformed images of some tasks, in order, on the run's device.

    Args:
        originals: The images, and the memory for what is made of them.
        transform: From uint8 ``[3, H, W]`` to float ``[3, S, S]``.
        deterministic: Whether the transform draws no random number; what it makes is then kept.
        workers: Processes that decode and transform.

    Raises:
        DataError: A staged transform makes NaN or infinity of bytes.
    """

    def __init__(
        self, originals: Originals, transform: ImageTransform, *, deterministic: bool, workers: int = 0
    ) -> None:
        self._finish: ImageTransform | None = None
        if isinstance(transform, StagedTransform):
            self._finish, transform = transform.finish, transform.pixels
            _require_finite(self._finish)
        self._dataset = _Images(originals, transform)
        self._originals, self._device = originals, originals.device
        self._deterministic, self._workers = deterministic, workers
        self._table: Table | None = None

    def tensors(self, order: Sequence[Sequence[int]], seed: int | None) -> Iterator[Tensor]:
        """Yield the images of one batch after another, ``[B, 3, S, S]``.

        Args:
            order: Positions, batch by batch.
            seed: Of the random transform; each sample derives its own from it and its position.
        """
        for made in self._from_table(order) if self._deterministic else self._anew(order, seed):
            images = handed_over(made, self._device)
            yield images if self._finish is None else self._finish(images)

    def _anew(self, order: Sequence[Sequence[int]], seed: int | None) -> Iterator[Tensor]:
        """Make every sample of a batch once, however often it stands there (as padding)."""
        unique = [list(dict.fromkeys(positions)) for positions in order]
        for positions, alone, made in zip(order, unique, self._loaded(unique, seed), strict=True):
            yield made if len(alone) == len(positions) else made[_places(positions, alone)]

    def _from_table(self, order: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        """Make only what the table does not hold, and let it keep that as far as there is room."""
        if not order:
            return
        table = self._opened(order[0][0])
        missing = [table.without(positions) for positions in order]
        if not any(missing):
            yield from table.walk(order)
            return
        loaded = self._loaded([new for new in missing if new], None)
        for positions, new in zip(order, missing, strict=True):
            made = next(loaded) if new else None
            if made is not None:
                table.store(new, made)
            if made is None or not table.without(positions):
                yield table.rows(positions)
            else:
                there = list(set(positions).difference(new))
                together = torch.cat([table.rows(there), made.to(table.device)])
                yield together[_places(positions, [*there, *new])]

    def _opened(self, position: int) -> Table:
        """Return the table; one sample shows how large its rows are, and is its first."""
        if self._table is None:
            rows, fresh = self._dataset.__getitems__([(position, None)])
            self._originals.keep(fresh)
            self._table = self._originals.table(rows[0])
            self._table.store([position], rows)
        return self._table

    def _loaded(self, batches: Sequence[Sequence[int]], seed: int | None) -> Iterator[Tensor]:
        """Yield transformed images of different samples, batch by batch."""
        keys = [
            [(position, None if seed is None else derive_seed(seed, position)) for position in positions]
            for positions in batches
        ]
        return load(self._dataset, self._originals, keys, self._workers)


def _places(positions: Sequence[int], among: Sequence[int]) -> Tensor:
    where = {position: place for place, position in enumerate(among)}
    return torch.tensor([where[position] for position in positions])


def _require_finite(finish: ImageTransform) -> None:
    every_byte = torch.arange(256, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 1, 1)
    if not finish(every_byte).isfinite().all():
        raise DataError("the transform makes NaN or infinity of pixels; look at mean and std")


class Images(Protocol):
    """Gives images of some tasks, batch by batch."""

    def tensors(self, order: Sequence[Sequence[int]], seed: int | None) -> Iterator[Tensor]:
        """Yield the images of one batch of positions after another, ``[B, 3, S, S]``."""
        ...


class Pass:
    """One walk over batches of positions; nothing is decoded before the first image is asked for.

    Args:
        decoder: Gives the images.
        order: Positions, batch by batch.
        seed: Of the random transform.
    """

    def __init__(self, decoder: Images, order: Sequence[Sequence[int]], seed: int | None) -> None:
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
