"""How many images of class folders a trained model names rightly."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from lw2g.errors import DataError, nearest
from lw2g.ground.notes import tell_note
from lw2g.model.trained import TrainedModel
from lw2g_photos.class_folders import notes_of, read_class_folders
from lw2g_photos.class_vectors import read_class_vectors

__all__ = ["score"]


def score(model: TrainedModel, folder: Path) -> dict[str, Any]:
    """Classify the images below ``FOLDER/<class>`` and compare the answers with the names of the folders.

    Args:
        model: The model.
        folder: Images in a folder for each class, or the test rows of a file of stored features; classes of
            the model may be missing.

    Returns:
        ``accuracy`` in percent over all ``images``; and for each of ``classes`` its name, number of images,
        ``recall`` in percent and ``taken_for``, the wrong answers with their counts, most frequent first.

    Raises:
        DataError: A folder's name is no class of the model, or an image cannot be read.
    """
    if model.backbone.takes_vectors:
        tested = read_class_vectors(folder, "test", model.backbone.fingerprint)
    else:
        tested = read_class_folders(folder)
        for text in notes_of(tested):
            tell_note(text)
    unknown = [name for name in tested if name not in model.classes]
    if unknown:
        raise DataError(
            f"{str(folder)!r}: the model knows no class {unknown[0]!r}{nearest(unknown[0], model.classes)}",
            "name the folders as the classes that the model was trained with",
        )
    rows: list[dict[str, Any]] = []
    rights = 0
    for name, images in tested.items():
        answers = Counter(entry["top"][0]["class"] for entry in model.predict(list(images.paths)))
        right = answers.pop(name, 0)
        count = len(images.paths)
        rights += right
        rows.append(
            {
                "class": name,
                "images": count,
                "recall": 100 * right / count,
                "taken_for": answers.most_common(),
            }
        )
    total = sum(len(images.paths) for images in tested.values())
    return {
        "accuracy": 100 * rights / total,
        "images": total,
        "classes": rows,
    }
