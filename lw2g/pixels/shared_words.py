"""Test images that are training images, in words; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["SharedImages", "shared_of_record"]


@attrs.frozen(kw_only=True)
class SharedImages:
    """How many test images of a stream are training images.

    Attributes:
        count: Their number.
        tested: The number of all test images.
        named: Ids of the first ones, each with that of the equal training image.
    """

    count: int
    tested: int
    named: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        are = "are training images"
        if self.count == 1:
            are = "is a training image"
        examples = [f"{test!r} is {train!r}" for test, train in self.named]
        if self.count > len(self.named):
            examples.append("...")
        return f"{self.count} of {self.tested} test images {are}, too ({', '.join(examples)})"

    def as_mapping(self) -> dict[str, Any]:
        """Return what the record tells of them."""
        return {"count": self.count, "tested": self.tested, "named": [list(pair) for pair in self.named]}


def shared_of_record(record: Mapping[str, Any]) -> str:
    """Return in words which test images a run was trained on, as its record tells; empty for none."""
    told = record.get("shared_images")
    if not told or not told["count"]:
        return ""
    named = tuple((test, train) for test, train in told["named"])
    return str(SharedImages(count=told["count"], tested=told["tested"], named=named))
