"""Rows of a file of stored features become classes: each row once, in its order, of one class alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from lw2g.errors import DataError
from lw2g_photos.class_vectors import read_class_vectors


def _write(path: Path, rows: list[list[float]], labels: list[int]) -> Path:
    np.savez(
        path,
        train_x=np.array(rows, np.float32),
        train_y=np.array(labels),
        test_x=np.array([[9.0, 9.0], [8.0, 8.0]], np.float32),
        test_y=np.array([0, 1]),
        class_names=np.array(["ant", "bee"]),
    )
    return path


def test_equal_rows_of_a_class_count_once(tmp_path: Path) -> None:
    """Vectors, digests and the number of copies are those of the rows, counted by hand."""
    rows = [[1.0, 0.0], [0.0, 2.0], [1.0, 0.0], [3.0, 0.0], [1.0, 0.0], [0.0, 4.0]]
    found = read_class_vectors(_write(tmp_path / "f.npz", rows, [0, 1, 0, 0, 0, 1]), "train")
    assert list(found) == ["ant", "bee"]
    assert [vector.tolist() for vector in found["ant"].paths] == [[1.0, 0.0], [3.0, 0.0]]
    assert [vector.tolist() for vector in found["bee"].paths] == [[0.0, 2.0], [0.0, 4.0]]
    assert (found["ant"].copies, found["bee"].copies) == (2, 0)
    for images in found.values():
        sums = [hashlib.sha256(vector.numpy().tobytes()).hexdigest() for vector in images.paths]
        assert list(images.digests) == sums


def test_a_row_of_two_classes_is_refused_by_both_names(tmp_path: Path) -> None:
    """It would count for one and against the other; the line says which classes have it."""
    path = _write(tmp_path / "f.npz", [[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]], [0, 1, 1])
    with pytest.raises(DataError, match="a row of class 'bee' is one of class 'ant', too; keep it in one"):
        read_class_vectors(path, "train")
