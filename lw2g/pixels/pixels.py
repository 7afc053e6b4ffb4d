"""Images in memory: decoded once and kept under a limit, as bytes where the transform leaves bytes.

Nothing is evicted: training and evaluation walk over all their images again and again, an order in which
evicting the oldest would never hit. A task's training images are dropped with the task.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lw2g.interfaces.stream import TaskData

__all__ = ["Disk", "Kept", "Originals", "Packed", "Room", "to_device"]

_CPU = torch.device("cpu")
_DEVICE_SHARE = 8
"""A room takes one part in this many of a GPU's free memory."""


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return values on the device without waiting for it: a copy from memory that may move would wait."""
    if device.type == "cuda" and values.device.type == "cpu" and not values.is_pinned():
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


class Packed(NamedTuple):
    """Images of any sizes in one tensor, for a single copy to a process or a device.

    Attributes:
        values: All values, ``[sum of h * w * 3]``.
        shapes: The shape of each image.
    """

    values: Tensor
    shapes: Sequence[Sequence[int]]

    @classmethod
    def of(cls, images: Sequence[Tensor]) -> Packed:
        """Pack images of one dtype."""
        values = torch.empty(0)
        if images:
            values = torch.cat([image.flatten() for image in images])
        return cls(values, [tuple(image.shape) for image in images])

    def to(self, device: torch.device) -> Packed:
        """Return the images on a device."""
        return self._replace(values=to_device(self.values, device))

    def batch(self) -> Tensor:
        """Return images of one shape as a batch ``[B, ...]``."""
        return self.values.view(len(self.shapes), *self.shapes[0])

    def images(self) -> list[Tensor]:
        """Return the images; they share the memory of ``values``."""
        parts = torch.split(self.values, [math.prod(shape) for shape in self.shapes])
        return [part.view(*shape) for part, shape in zip(parts, self.shapes, strict=True)]


@attrs.define
class Room:
    """A limit on memory that several stores of images share.

    Attributes:
        left: Bytes that are not taken.
        device: Where it is.
    """

    left: int
    device: torch.device = _CPU

    @classmethod
    def on(cls, device: torch.device) -> Room:
        """Return an eighth of the memory that is free on a GPU."""
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return cls((torch.cuda.mem_get_info(device)[0] + reusable) // _DEVICE_SHARE, device)


class Disk:
    """Bytes in a file that has no name, so that nothing of it outlives the process.

    The file grows as it is written to; the system keeps in memory what memory has room for.

    Args:
        folder: Where it lies.
        limit: Its largest size in bytes.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._left = limit
        self._used = 0
        self._file: IO[bytes] | None = None
        self._bytes: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def __del__(self) -> None:
        """Close the file, and with it free its blocks."""
        if self._file is not None:
            self._file.close()

    def put(self, image: Tensor) -> Tensor | None:
        """Return a view of a copy in the file; None where it has no room, or the image is not of bytes."""
        size = image.numel()
        if size > self._left or image.dtype != torch.uint8:
            return None
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - open as long as this
                self._file.truncate(self._left)  # without blocks: they come with what is written
                self._bytes = np.memmap(self._file, dtype=np.uint8, mode="r+", shape=(self._left,))
            # a full disk is an error here; a write to mapped memory would end the process
            written = os.pwrite(self._file.fileno(), image.contiguous().numpy().data, self._used)
        except OSError:
            written = 0
        if written < size:
            self._left = 0
            return None
        start = self._used
        self._used += size
        self._left -= size
        return torch.from_numpy(self._bytes[start : start + size]).view(image.shape)


class Kept:
    """Images by position: the first ones, as far as there is room.

    Args:
        room: Of which they take, and to which they give back when nobody holds this any longer.
        disk: Takes those that the room has no place for; None: they are not kept.
    """

    def __init__(self, room: Room, disk: Disk | None = None) -> None:
        self.room = room
        self._disk = disk
        self._images: dict[int, Tensor] = {}
        self._taken = 0

    def __del__(self) -> None:
        """Release the room."""
        self.room.left += self._taken

    def __contains__(self, position: int) -> bool:
        return position in self._images

    def __getitem__(self, position: int) -> Tensor:
        return self._images[position]

    def keep(self, images: Mapping[int, Tensor]) -> None:
        """Keep images that lie on the room's device and are not kept yet."""
        for position, image in images.items():
            size = image.numel() * image.element_size()
            if position in self._images:
                continue
            if size > self.room.left:
                # what fits in neither place is decoded again when it is asked for
                if self._disk is not None:
                    on_disk = self._disk.put(image)
                    if on_disk is not None:
                        self._images[position] = on_disk
                continue
            self.room.left -= size
            self._taken += size
            # on the host an image may be a view, which would keep the whole batch that it is cut from; on a
            # GPU the batch that was sent has new images alone: all are kept, and a copy of each takes time
            self._images[position] = image if image.is_cuda else image.clone()


class Originals:
    """Decoded images of some tasks, uint8 ``[3, H, W]`` of any size, and memory for them.

    A source's view of a larger tensor is in memory already and is not kept again.

    Args:
        parts: One entry per task.
        device: Of the run.
        limit: Bytes of host memory for these images, and for what is made of them.
        keep: Whether decoded images are kept, for several transforms or a random one.

    Attributes:
        disk: Takes transformed images that host memory has no room for; None until somebody offers one.
        sizes: Height and width of the images that have been decoded, ``[n, 2]`` int64.
    """

    def __init__(self, parts: Sequence[TaskData], device: torch.device, *, limit: int, keep: bool) -> None:
        self.parts = tuple(parts)
        self.device = device
        self.disk: Disk | None = None
        self._keeps = keep
        # each position has a task, and a place within that task
        sizes = list(map(len, parts))
        self._owner = np.repeat(np.arange(len(parts)), sizes)
        self._offset = np.concatenate(list(map(np.arange, sizes)))
        self._host = Room(limit)
        self._near = self._host
        if device.type == "cuda":
            self._near = Room.on(device)
        self._kept = Kept(self._host)
        self.sizes = torch.zeros(len(self), 2, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self._owner)

    def __getstate__(self) -> dict[str, object]:
        """A worker keeps images of its own, under a limit that it is told."""
        room = Room(0)
        with_no_room = {
            "_host": room,
            "_near": room,
            "_kept": Kept(room),
            "disk": None,
            "sizes": torch.zeros(0, 2),
        }
        return {**self.__dict__, **with_no_room}

    @property
    def left(self) -> int:
        """Bytes of host memory that are not taken."""
        return self._host.left

    @left.setter
    def left(self, left: int) -> None:
        self._host.left = left

    def room_for(self, image: Tensor) -> Room:
        """Return the room for transformed images: on the run's device if they all fit."""
        needed = len(self) * image.numel() * image.element_size()
        if needed <= self._near.left:
            return self._near
        return self._host

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all samples."""
        return tuple(chain.from_iterable(part.ids for part in self.parts))

    def get(self, position: int, fresh: dict[int, Tensor]) -> Tensor:
        """Return an image; one that had to be decoded and is worth keeping is also put into ``fresh``."""
        if position in self._kept:
            return self._kept[position]
        part, number = self._find(position)
        image = part.source.image(number)
        is_own_memory = image.numel() == image.untyped_storage().nbytes()  # no view of the source's tensor
        if self._keeps and is_own_memory and self._host.left >= image.numel():
            fresh[position] = image
        return image

    def keep(self, images: Mapping[int, Tensor]) -> None:
        """Keep decoded images by position, as far as there is room."""
        self._kept.keep(images)

    def name(self, position: int) -> str:
        """Return the id of a sample."""
        part, number = self._find(position)
        return part.source.ids[number]

    def _find(self, position: int) -> tuple[TaskData, int]:
        part = self.parts[self._owner[position]]
        return part, int(part.indices[self._offset[position]])
