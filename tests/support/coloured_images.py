"""Small labelled images of a colour per class, in the forms that the Python functions take."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from PIL import Image

__all__ = ["QUICK", "TASKS", "TEST", "TRAIN", "TRAIN_AND_TEST", "as_columns", "images_of", "task"]

QUICK = {"baseline": "simple-cil", "progress": False, "precision": "32-true", "run.device": "cpu"}


def images_of(classes, count, seed):
    """Return images [N, 8, 8, 3] of a colour per class with a little noise, and labels."""
    draw = np.random.default_rng(seed)
    labels = np.repeat(classes, count)
    noise = draw.integers(0, 20, (len(labels), 8, 8, 3))
    return (noise + labels[:, None, None, None] * 30).astype(np.uint8), labels


def task(*classes):
    return images_of(classes, 4, 0), images_of(classes, 2, 1)


TASKS = [task(0, 1), task(2, 5)]
TRAIN_AND_TEST = task(0, 1)
TRAIN, TEST = TRAIN_AND_TEST


def as_columns(part):
    """Return a split with the interface of a Hugging Face data set."""

    class Columns:
        features = {"picture": type("Image", (), {})(), "label": SimpleNamespace(names=list("abcdef"))}  # noqa: RUF012

        def __len__(self):
            return len(part[1])

        def __getitem__(self, key):
            if isinstance(key, str):
                return [int(label) for label in part[1]]
            return {"picture": Image.fromarray(part[0][key]), "label": int(part[1][key])}

    return Columns()
