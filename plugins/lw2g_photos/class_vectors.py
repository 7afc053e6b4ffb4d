"""Stored features to learn from: the rows of a file, class by class."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch

from lw2g.errors import DataError
from lw2g.interfaces.vectors import VectorFacts
from lw2g.pixels.feature_containers import open_container
from lw2g.pixels.feature_files import Split, open_features
from lw2g.pixels.found_images import is_feature_file
from lw2g.pixels.image_vectors import require_made_by
from lw2g.vit.backbone import BackboneFingerprint
from lw2g_photos.class_folders import ClassImages

__all__ = ["facts_of_file", "has_test_rows", "read_class_vectors"]


def read_class_vectors(
    path: Path, split: Split, known: BackboneFingerprint | None = None
) -> dict[str, ClassImages]:
    """Return the rows of a file of stored features by class name, in the order of labels.

    Args:
        path: The file.
        split: The rows that are read.
        known: The backbone that they must be of; None where they are the first.

    Raises:
        DataError: The file cannot be used, or a row is of two classes.
    """
    if not is_feature_file(path):
        raise DataError(
            f"{str(path)!r} holds no stored features, and the model knows no images",
            "store them with the backbone that made the model's: lw2g data features",
        )
    file = open_features(path, (split,))
    if known is not None:
        require_made_by(file, known)
    rows = file.splits[split]
    owner: dict[str, str] = {}
    found = {}
    for label in np.unique(rows.y).tolist():
        name = file.class_names[label]
        first: dict[str, torch.Tensor] = {}
        vectors = rows.x[np.flatnonzero(rows.y == label)].float()
        for vector in vectors:
            digest = hashlib.sha256(vector.numpy().tobytes()).hexdigest()
            if owner.setdefault(digest, name) != name:
                raise DataError(
                    f"{str(path)!r}: a row of class {name!r} is one of class {owner[digest]!r}, too",
                    "keep it in one of the two",
                )
            first.setdefault(digest, vector)  # equal rows count once, as equal files do
        found[name] = ClassImages(
            paths=tuple(first.values()), digests=tuple(first), copies=len(vectors) - len(first)
        )
    return found


def has_test_rows(path: Path) -> bool:
    """Return whether a path is a file of stored features that has rows for tests."""
    return is_feature_file(path) and "test_x" in open_container(path)


def facts_of_file(path: Path, digest: str) -> VectorFacts:
    """Return where the rows of a file come from.

    Args:
        path: The file.
        digest: A hash of the rows that are learned from.
    """
    # what it says of itself is the same for all its splits: one is read, and none has to be there for tests
    file = open_features(path, ("train",))
    return VectorFacts(
        dim=file.dim,
        model=file.said("timm_name"),
        sha256=file.said("sha256"),  # of the backbone's weights
        digest=digest,  # of the rows
        pool=file.pool,
        layers=file.layers,
    )
