"""Decoding: images are read and transformed, batch by batch, in this process or in others."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from lw2g.errors import ConfigError, DataError
from lw2g.ground.processor import allowed_cores
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.stream import ImageTransform, TaskStream, Transforms
from lw2g.pixels.pixels import Originals, Packed
from lw2g.pixels.workers import Keys, Part, Workers, shared_objects

__all__ = ["Decoder", "Made", "chunks", "open_workers", "require_open_files", "workers_of"]

_FILES = 64
"""Files that a run has open."""
_FILES_PER_WORKER = 4
"""Files per worker: both ends of what it talks through, and what tells its end."""
_ENOUGH = 4
"""Workers that feed a GPU: each augments some 1,700 images a second, and a ViT-B/16 takes up to 3,300."""


def workers_of(asked: int | Literal["auto"], device: torch.device) -> int:
    """Return the number of processes that decode and augment images for a device.

    ``auto`` is none on a CPU, whose cores are busy, and where processes are not forked: each would import
    torch anew.
    """
    if asked != "auto":
        return asked
    if device.type != "cuda" or multiprocessing.get_start_method() != "fork":
        return 0
    return min(_ENOUGH, allowed_cores() - 1)


def open_workers(
    asked: int | Literal["auto"], stream: TaskStream, transforms: Transforms, device: torch.device
) -> Workers | None:
    """Return the processes that decode and augment the images of a stream; None for none, and for vectors.

    Args:
        asked: How many, as configured.
        stream: Whose images.
        transforms: What they go through.
        device: Where the run computes. Beside a GPU, call this before it is opened: the processes start at
            once, and a process is not to be forked from one that holds a GPU.
    """
    count = workers_of(asked, device)
    if not count or stream.vectors is not None:
        return None
    parts = [data for task in stream.tasks for data in (task.train, task.test)]
    workers = Workers(count, shared_objects(parts, transforms.train, transforms.test), device)
    if device.type == "cuda":
        workers.start()
    return workers


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


class Made:
    """The transformed images of a batch, in parts as processes have made them.

    Args:
        parts: At least one.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    @property
    def first(self) -> Tensor:
        """One of the images."""
        return self._parts[0].packed.images()[0]

    def on(self, device: torch.device) -> dict[int, Tensor]:
        """Return the images by position, on a device."""
        rows: dict[int, Tensor] = {}
        for part in self._parts:
            rows.update(zip(part.positions, part.packed.to(device).images(), strict=True))
        return rows

    def batch(self, positions: Sequence[int], device: torch.device) -> Tensor:
        """Return images of one shape as a batch ``[B, ...]`` on a device.

        Args:
            positions: Which, in this order; an image may come several times.
            device: Where to.
        """
        only = self._parts[0]
        if list(only.positions) == list(positions):
            return only.packed.to(device).batch()  # as it is: to cut and stack would copy the batch once more
        rows = self.on(device)
        return torch.stack([rows[position] for position in positions])


class Decoder:
    """Reads and transforms images by ``(position, seed)``; every sample of a pass has a seed of its own.

    Args:
        originals: The images, and the memory for them.
        transform: From uint8 ``[3, H, W]`` to what is wanted, such as float ``[3, S, S]``.
        workers: Processes that decode and transform; None: this one does.
    """

    def __init__(
        self, originals: Originals, transform: ImageTransform, workers: Workers | None = None
    ) -> None:
        self._originals = originals
        self._transform = transform
        self._workers = workers

    def __getstate__(self) -> dict[str, object]:
        """A worker has none of its own."""
        return {**self.__dict__, "_workers": None}

    def load(self, batches: Sequence[Sequence[int]], seed: int | None) -> Iterator[Made]:
        """Yield the transformed images of each batch of positions; new originals are kept.

        Args:
            batches: Positions, batch by batch, each position once in a batch.
            seed: The seed of the pass, which gives each sample its own; None if the transform draws nothing.

        Raises:
            DataError: An image cannot be read, or holds NaN or infinity after the transform.
            WorkerLostError: A process that decodes has ended.
        """
        keys: list[Keys] = []
        for batch in batches:
            if seed is None:
                keys.append([(position, None) for position in batch])
            else:
                # seeded by position, so that a sample has the same numbers in any batch and any process
                keys.append([(position, derive_seed(seed, position)) for position in batch])
        if self._workers is None:
            walk: Iterator[list[Part]] = ([self.make(of_batch)] for of_batch in keys)
        else:
            walk = self._workers.walk(self, keys, self._originals)
        for parts in walk:
            for part in parts:
                self._originals.sizes[list(part.positions)] = torch.tensor(part.sizes)
                self._originals.left -= part.kept
            yield Made(parts)

    def make(self, keys: Keys) -> Part:
        """Return images, made in this process, which keeps new originals as far as there is room."""
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
                sizes.append((image.shape[1], image.shape[2]))
        finally:
            generator.set_state(before)
        self._originals.keep(fresh)
        return Part([position for position, _ in keys], Packed.of(made), sizes, kept=0)

    def _made(self, position: int, image: Tensor) -> Tensor:
        """Return the transformed image; one with NaN or infinity is refused by its name."""
        made = self._transform(image)
        # checked in the workers, not on the device; the sum is NaN or infinite if a value is
        if made.is_floating_point() and not made.sum().isfinite():
            raise DataError(
                f"image {self._originals.name(position)!r} holds NaN or infinity after the transform",
                "look at its source and at mean and std of the normalisation",
            )
        return made
