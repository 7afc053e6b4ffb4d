"""Small files of stored features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CLASSES", "DIM", "vector_file"]

CLASSES, DIM = 6, 8


def vector_file(path: Path, *, seed: int = 0, train: int = 12, test: int = 4, **changes: Any) -> Path:
    """Write an archive of classes that lie apart, and return its path.

    Args:
        path: Where.
        seed: Draws the vectors.
        train: Training rows a class.
        test: Test rows a class.
        **changes: Entries to replace or to add; None leaves one out.
    """
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(CLASSES, DIM))
    entries: dict[str, Any] = {"class_names": np.array([f"class {label}" for label in range(CLASSES)])}
    for split, each in (("train", train), ("test", test)):
        labels = np.tile(np.arange(CLASSES), each)
        noise = draw.normal(size=(len(labels), DIM))
        entries[f"{split}_x"] = (centres[labels] + 0.5 * noise).astype(np.float32)
        entries[f"{split}_y"] = labels
        entries[f"{split}_domain"] = np.arange(len(labels)) // CLASSES % 2
    entries |= changes
    np.savez(path, **{name: value for name, value in entries.items() if value is not None})
    return path
