"""Images in memory: what is decoded once and kept, as bytes where the transform leaves bytes, under a limit.

Nothing is evicted: training and evaluation walk over all their images again and again, an order in which
evicting the oldest would never hit. The tables of a task's training images go with the task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np
import torch
from torch import Tensor

from lw2g.interfaces.stream import TaskData

__all__ = ["Originals", "Room", "Table", "handed_over"]

_CPU = torch.device("cpu")
_DEVICE_SHARE = 8
"""A room on a GPU is one part in this many of the memory that is free."""


def handed_over(rows: Tensor, device: torch.device) -> Tensor:
    """Return rows on the device without waiting for it: a copy from memory that may move would wait."""
    if device.type == "cuda" and rows.device.type == "cpu" and not rows.is_pinned():
        rows = rows.pin_memory()
    return rows.to(device, non_blocking=True)


@attrs.define
class Room:
    """Memory that several tables share.

    Attributes:
        left: Bytes that are not taken.
    """

    left: int

    @classmethod
    def on(cls, device: torch.device) -> Room:
        """Return an eighth of the memory that is free on a GPU."""
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return cls((torch.cuda.mem_get_info(device)[0] + reusable) // _DEVICE_SHARE)

    def take(self, size: int) -> bool:
        """Take some bytes; False where they are not left."""
        if size > self.left:
            return False
        self.left -= size
        return True


class Originals:
    """Images of some tasks as they are decoded, uint8 ``[3, H, W]`` of any size, and memory for them.

    What a source gives as a view of a larger tensor lies in memory already and is not kept.

    Args:
        parts: One entry per task.
        device: Of the run.
        limit: Bytes of host memory for these images, and for what is made of them.
        keep: Whether decoded images are kept, for several transforms or a random one.
    """

    def __init__(self, parts: Sequence[TaskData], device: torch.device, *, limit: int, keep: bool) -> None:
        self.parts, self._keep, self.device = tuple(parts), keep, device
        self._owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        self._offset = np.concatenate([np.arange(len(part)) for part in parts])
        self._kept: dict[int, Tensor] = {}
        self._host = Room(limit)
        self._near = Room.on(device) if device.type == "cuda" else self._host

    def table(self, row: Tensor) -> Table:
        """Return a table for what is made of the images: on the run's device where all of it fits."""
        fits = len(self) * row.numel() * row.element_size() <= self._near.left
        return Table(len(self), row, self._near if fits else self._host, self.device if fits else _CPU)

    def __len__(self) -> int:
        return len(self._owner)

    def __getstate__(self) -> dict[str, object]:
        """A spawned worker gets none of the kept images: each would cost it a file handle."""
        return {**self.__dict__, "_kept": {}}

    def get(self, position: int, fresh: dict[int, Tensor]) -> Tensor:
        """Return an image; one that had to be decoded and is worth keeping is also put into ``fresh``."""
        kept = self._kept.get(position)
        if kept is not None:
            return kept
        part, number = self._find(position)
        image = part.source.image(number)
        if self._keep and self._host.left >= image.numel() == image.untyped_storage().nbytes():
            fresh[position] = image
        return image

    def name(self, position: int) -> str:
        """Return the id of a sample."""
        part, number = self._find(position)
        return part.source.ids[number]

    def keep(self, images: Mapping[int, Tensor]) -> None:
        """Keep decoded images by position, as far as there is room."""
        for position, image in images.items():
            if position not in self._kept and self._host.take(image.numel()):
                # a copy: what another process hands over holds on to shared memory and a file handle
                self._kept[position] = image.clone()

    def _find(self, position: int) -> tuple[TaskData, int]:
        part = self.parts[self._owner[position]]
        return part, int(part.indices[self._offset[position]])


class Table:
    """Rows of one shape by position, on one device: the first that come, as far as there is room.

    Args:
        size: Number of positions.
        row: One of the rows.
        room: For the rows; on the CPU taken as they come, elsewhere at once.
        device: Where the rows lie.
    """

    def __init__(self, size: int, row: Tensor, room: Room, device: torch.device) -> None:
        self.device = device
        self._bytes, self._room = row.numel() * row.element_size(), room
        self._lazy = device.type == "cpu"  # where memory that is not written to takes no place
        places = min(size, room.left // max(1, self._bytes))
        self._taken = 0
        if not self._lazy:
            self._take(places)
        self._rows = torch.empty(places, *row.shape, dtype=row.dtype, device=device)
        self._place = np.full(size, -1, dtype=np.int64)
        self._used = 0

    def _take(self, rows: int) -> None:
        self._room.take(rows * self._bytes)
        self._taken += rows * self._bytes

    def __del__(self) -> None:
        """Give the room back."""
        self._room.left += self._taken

    @property
    def shape(self) -> torch.Size:
        """Shape of a row."""
        return self._rows.shape[1:]

    def without(self, positions: Sequence[int]) -> list[int]:
        """Return the positions whose rows are not here, each once and in order."""
        return [position for position in dict.fromkeys(positions) if self._place[position] < 0]

    def store(self, positions: Sequence[int], rows: Tensor) -> None:
        """Keep rows ``[n, ...]`` of different positions, as far as there is room."""
        new = [number for number, position in enumerate(positions) if self._place[position] < 0]
        new = new[: len(self._rows) - self._used]
        if self._lazy:
            new = new[: self._room.left // max(1, self._bytes)]
            self._take(len(new))
        end = self._used + len(new)
        self._rows[self._used : end] = rows if len(new) == len(rows) else rows[new]
        self._place[[positions[number] for number in new]] = np.arange(self._used, end)
        self._used = end

    def rows(self, positions: Sequence[int]) -> Tensor:
        """Return the rows of positions that are here, ``[n, ...]``."""
        return next(self.walk([positions]))

    def walk(self, order: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        """Yield the rows of one batch of positions after another; the device is told them all at once."""
        places = torch.from_numpy(self._place[[position for part in order for position in part]])
        there = places.to(self.device, non_blocking=True)
        for part in torch.split(there, [len(part) for part in order]):
            yield self._rows[part]
