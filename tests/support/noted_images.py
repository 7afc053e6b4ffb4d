"""Images that note when they are decoded; a process that is spawned imports them from here."""

from __future__ import annotations

from pathlib import Path

import torch

from lw2g.errors import DataError

__all__ = ["COUNT", "Noted", "brightened"]

COUNT = 12


class Noted:
    """Images of one colour each, of a size of its own; a file gets a line for each that is decoded."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes
        self.ids = tuple(f"image-{number}" for number in range(COUNT))

    def __len__(self) -> int:
        return COUNT

    def image(self, index: int) -> torch.Tensor:
        """Return an image, and note it; the last one cannot be read."""
        with self.notes.open("a", encoding="utf-8") as notes:
            notes.write(f"{index}\n")
        if index == COUNT - 1:
            raise DataError("'image-11' cannot be read", "replace it")
        return torch.full((3, 4 + index, 5), index, dtype=torch.uint8)

    @property
    def decoded(self) -> list[int]:
        """The images that were decoded, in no order."""
        return sorted(map(int, self.notes.read_text(encoding="utf-8").split()))


def brightened(image: torch.Tensor) -> torch.Tensor:
    """Return a number of each image: its colour, and a draw."""
    return image[:, :1, :1] + torch.rand(3, 1, 1)
