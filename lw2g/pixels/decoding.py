"""Decoding: torch's loader reads and transforms images in this process or in workers."""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.stream import ImageTransform
from lw2g.pixels.pixels import Originals, Packed
from lw2g.runtime.frames import Handed

__all__ = ["Decoder", "chunks", "require_open_files", "workers_of"]

_FILES = 64
"""Files that a run has open."""
_FILES_PER_WORKER = 32
"""Files per worker, for the batches that it hands over in shared memory."""
_ENOUGH = 4
"""Workers that feed a GPU: each augments some 1,700 images a second, and a ViT-B/16 takes up to 3,300."""


def workers_of(asked: int | Literal["auto"], device: torch.device) -> int:
    """Return the number of processes that decode and augment images for a device.

    ``auto`` is none on a CPU, whose cores are busy, and where processes are not forked: each would import
    torch anew in every epoch.
    """
    if asked != "auto":
        return asked
    if device.type != "cuda" or multiprocessing.get_start_method() != "fork":
        return 0
    return min(_ENOUGH, len(os.sched_getaffinity(0)) - 1)


def chunks(positions: Sequence[int], size: int) -> list[list[int]]:
    """Cut a sequence into lists of at most ``size``.

    >>> chunks([1, 2, 3], 2)
    [[1, 2], [3]]
    """
    listed = list(positions)
    return [listed[start : start + size] for start in range(0, len(listed), size)]


def require_open_files(workers: int) -> None:
    """Refuse more workers than the limit on open files allows.

    Raises:
        ConfigError: The system allows too few open files.
    """
    if not workers:
        return
    needed = _FILES + workers * _FILES_PER_WORKER
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        raise ConfigError(
            f"run.workers: {workers} need {needed} open files, and the system allows {allowed}",
            "raise its limit (ulimit -n), or lower run.workers",
        )


class _Loaded(NamedTuple):
    """The images of a batch of positions.

    Attributes:
        made: Transformed images.
        sizes: Height and width of their originals, ``[B, 2]``.
        fresh: Originals that were decoded just now and are worth keeping, by position.
    """

    made: Packed
    sizes: Tensor
    fresh: dict[int, Tensor]


class Decoder(Dataset[Any]):
    """Reads and transforms images by ``(position, seed)``; every sample of a pass has a seed of its own.

    Args:
        originals: The images, and the memory for them.
        transform: From uint8 ``[3, H, W]`` to what is wanted, such as float ``[3, S, S]``.
        workers: Processes that decode and transform.
    """

    def __init__(self, originals: Originals, transform: ImageTransform, workers: int = 0) -> None:
        self._originals = originals
        self._transform = transform
        self._workers = workers

    def load(self, batches: Sequence[Sequence[int]], seed: int | None) -> Iterator[Packed]:
        """Yield the transformed images of each batch of positions, and keep new originals.

        Args:
            batches: Positions, batch by batch, all opened by one loader.
            seed: The seed of the pass, which gives each sample its own; None if the transform draws nothing.

        Raises:
            DataError: An image cannot be read, or holds NaN or infinity after the transform.
        """
        keys: list[list[tuple[int, int | None]]] = []
        for batch in batches:
            if seed is None:
                keys.append([(position, None) for position in batch])
            else:
                # by position, so that a sample has the same numbers in any batch and any process
                keys.append([(position, derive_seed(seed, position)) for position in batch])
        loader: DataLoader[Any] = DataLoader(
            self,
            batch_sampler=keys,
            collate_fn=_as_it_is,
            num_workers=self._workers,
            pin_memory=self._originals.device.type == "cuda",
            # The loader would otherwise draw a base seed from the global generator.
            generator=torch.Generator().manual_seed(0),
        )
        for batch, loaded in zip(batches, loader, strict=True):
            if isinstance(loaded, Handed):
                raise loaded.raised()
            self._originals.keep(loaded.fresh)
            self._originals.sizes[list(batch)] = loaded.sizes
            yield loaded.made

    def __getitems__(self, keys: Sequence[tuple[int, int | None]]) -> _Loaded | Handed:
        try:
            return self._loaded(keys)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if not self._workers:
                raise
            return Handed.of(error)  # an error from another process would lose its traceback

    def _loaded(self, keys: Sequence[tuple[int, int | None]]) -> _Loaded:
        fresh: dict[int, Tensor] = {}
        # transforms draw on the CPU, and torch.manual_seed would seed every device there may be
        generator = torch.default_generator
        before = generator.get_state()
        made = []
        sizes = []
        try:
            for position, seed in keys:
                image = self._originals.get(position, fresh)
                if seed is not None:
                    generator.manual_seed(seed)
                made.append(self._made(position, image))
                sizes.append(image.shape[1:])
        finally:
            generator.set_state(before)
        return _Loaded(Packed.of(made), torch.tensor(sizes), fresh)

    def _made(self, position: int, image: Tensor) -> Tensor:
        made = self._transform(image)
        # checked in the workers, not on the device; the sum is NaN or infinite if a value is
        if made.is_floating_point() and not made.sum().isfinite():
            raise DataError(
                f"image {self._originals.name(position)!r} holds NaN or infinity after the transform",
                "look at its source and at mean and std of the normalisation",
            )
        return made


def _as_it_is(loaded: Any) -> Any:
    return loaded
