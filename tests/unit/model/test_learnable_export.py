"""Which images of a run an export keeps, so that it can go on learning."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from lw2g.model.learnable_export import _kept_features


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("expert", [None, object()])
def test_the_first_twenty_images_of_each_class_are_kept(expert: Any, trained: bool) -> None:
    """In the order of the task: training images, or test images where features were trained."""
    asked = []

    def features(images: list[int], *, queries: bool, progress: Callable[[int], None]) -> torch.Tensor:
        asked.append(queries)
        progress(len(images))
        return torch.tensor(images, dtype=torch.float32)[:, None]

    # rows of the source stand in another order than the task's images, and classes are mixed
    labels = np.array([0, 1] * 15 + [0] * 15)
    indices = np.random.default_rng(0).permutation(90)[: len(labels)]
    source = SimpleNamespace(image=lambda row: row)
    first = SimpleNamespace(indices=indices, labels=labels, source=source)
    later = SimpleNamespace(indices=np.array([7, 3]), labels=np.array([2, 2]), source=source)
    split, other = ("test", "train") if trained else ("train", "test")
    tasks: Any = [
        SimpleNamespace(classes=(0, 1), **{split: first, other: later}),
        SimpleNamespace(classes=(2,), **{split: later, other: first}),
    ]
    model: Any = SimpleNamespace(features=features)
    solved: Any = SimpleNamespace(expert=expert, trained=trained)
    kept = _kept_features(model, solved, tasks)
    assert list(kept) == ["kept/0", "kept/1", "kept/2"]
    assert kept["kept/0"][:, 0].tolist() == indices[labels == 0][:20].tolist()
    assert kept["kept/1"][:, 0].tolist() == indices[labels == 1].tolist()
    assert kept["kept/2"][:, 0].tolist() == [7, 3]
    assert len(kept["kept/1"]) == 15
    assert asked == [expert is not None] * 3
