"""How many images of class folders a trained model names rightly, how sure it is, and what it refuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lw2g.config.directory import LEARNED
from lw2g.errors import DataError, as_word, nearest
from lw2g.ground.notes import tell_note
from lw2g.model.exported import Saved, read_learned, read_manifest
from lw2g.model.rejection import calibration_error
from lw2g.model.trained import TrainedModel
from lw2g.pixels.crops import Crops
from lw2g.pixels.image_files import Crop, fault_of
from lw2g.pixels.pictures import ImageLike
from lw2g.pixels.unusable_images import left_out
from lw2g.results.summaries import wilson
from lw2g_photos.class_crops import class_crops
from lw2g_photos.class_folders import ClassImages, digest_of, notes_of, read_class_folders
from lw2g_photos.class_vectors import read_class_vectors
from lw2g_photos.labelled_images import LabelledImages
from lw2g_photos.later_models import later_models, most_classes
from lw2g_photos.step_checks import is_among, learned_rows
from lw2g_photos.step_words import as_typed

__all__ = ["score"]

Entries = Sequence[Mapping[str, Any]]


def score(
    model: TrainedModel,
    folder: Path | LabelledImages,
    strangers: Path | Sequence[ImageLike] | None = None,
    reject: float = 0.05,
    crops: Crops | None = None,
) -> dict[str, Any]:
    """Classify the images below ``FOLDER/<class>`` and compare the answers with the names of the folders.

    Args:
        model: The model.
        folder: Images in a folder for each class, or labelled, or the test rows of a file of stored features;
            classes of the model may be missing.
        strangers: Images of no class that the model knows, in and below a folder, in memory, or such a file;
            None where nothing is said of unknown images.
        reject: Share of known images that may be called unknown.
        crops: What is classified instead of class folders: parts of the images in ``folder``.

    Returns:
        As :func:`lw2g.test`.

    Raises:
        DataError: A folder's name is no class of the model, or no image of a class or of all can be read.
        ConfigError: There are strangers, and the model cannot tell unknown images at this rate.
    """
    rate = None
    if strangers is not None:
        rate = reject
        model.threshold(rate)  # before any image is read: a model that cannot tell would end late
        if isinstance(strangers, Path):
            _require_strange(strangers, model)
    tested = _read(folder, model, crops, strangers)
    # all at once: whoever waits sees one count
    images_of_all = [image for of_class in tested.values() for image in of_class.paths]
    fed: list[Tensor] = []
    answers_of_all = model.predict(images_of_all, reject=rate, partial=True, on_features=fed.append)
    _tell_of_bad(images_of_all, answers_of_all)
    if not _knows_its_images(model):
        tell_note(
            "if the run trained on these images, which its model cannot tell, of new ones fewer may be right"
        )
    every = [entry for entry in answers_of_all if "error" not in entry]
    rows, rights = _compared(tested, answers_of_all)
    probabilities = torch.tensor([entry["probability"] for entry in every], dtype=torch.float64)
    accuracy = 100 * sum(rights) / len(every)
    return {
        "accuracy": accuracy,
        "interval": wilson(accuracy, len(every)),
        "images": len(every),
        "learned": _num_learned(model, fed[0]),
        "classes": rows,
        "calibrated": model.temperature is not None,
        "ece": calibration_error(probabilities, torch.tensor(rights)),
        "strangers": None if strangers is None else _refused(model, strangers, reject, every),
    }


def _knows_its_images(model: TrainedModel) -> bool:
    """Whether a model keeps features of what it was trained on.

    A run keeps none, and an export that can learn keeps test images of a run that trained more than a head.
    """
    folder = None if model.home is None else model.home.folder
    if folder is None or not (folder / LEARNED).is_file():
        return False
    return not model.baseline.scope.learned or read_manifest(folder).num_base_classes == 0


def _num_learned(model: TrainedModel, features: Tensor) -> int:
    """Return how many images a model is known to have learned, by the features that it keeps of these."""
    folder = None if model.home is None else model.home.folder
    if folder is None or not (folder / LEARNED).is_file():
        return 0
    manifest = read_manifest(folder)
    saved = Saved(manifest=manifest, tensors={}, learned=read_learned(folder, manifest))
    learned = learned_rows(saved, trained=model.baseline.scope.learned)
    if not learned:
        return 0
    # beside an expert, un-prompted features stand to the right
    kept = torch.cat([rows for _, rows in learned])[:, : features.shape[1]]
    return int(is_among(features.cpu(), kept).sum())


def _compared(tested: Mapping[str, ClassImages], answers: Entries) -> tuple[list[dict[str, Any]], list[bool]]:
    """Return what is found of each class, and of each image with an answer whether it is right.

    Args:
        tested: The images of each class.
        answers: Of all of them, one after the other.
    """
    rows: list[dict[str, Any]] = []
    rights: list[bool] = []
    following = iter(answers)
    for name, images in tested.items():
        entries = [entry for entry in islice(following, len(images.paths)) if "error" not in entry]
        if not entries:
            continue
        # what is refused has a nearest class all the same: probability and "unknown" are two answers
        counts = Counter(entry["top"][0]["class"] for entry in entries)
        rights += [entry["top"][0]["class"] == name for entry in entries]
        right = counts.pop(name, 0)
        rows.append(
            {
                "class": name,
                "images": len(entries),
                "recall": 100 * right / len(entries),
                "taken_for": counts.most_common(),
            }
        )
    return rows, rights


def _read(
    folder: Path | LabelledImages,
    model: TrainedModel,
    crops: Crops | None,
    strangers: Path | Sequence[ImageLike] | None,
) -> dict[str, ClassImages]:
    """Return the images of each class of a folder, labelled images, or the crops.

    Raises:
        DataError: The model does not know one of them.
    """
    if crops is not None:
        crops.require_images(takes_vectors=model.backbone.takes_vectors)
        tested = class_crops(crops)
    elif isinstance(folder, LabelledImages):
        folder.require_images(takes_vectors=model.backbone.takes_vectors)
        tested = folder.by_class()
    elif model.backbone.takes_vectors:
        tested = read_class_vectors(folder, "test", model.backbone.fingerprint)
    else:
        tested = read_class_folders(folder)
        for text in notes_of(tested):
            tell_note(text)
    unknown = [name for name in tested if name not in model.known]
    if unknown:
        what = "its folder" if crops is None else "the class of its boxes"
        where = repr(str(folder))
        if isinstance(folder, LabelledImages):
            where = what = "labels"
        if unknown[0] in model.forgotten:
            raise DataError(
                f"{where}: the model has forgotten the class {unknown[0]!r}",
                f"leave {what} out, or teach it again: lw2g learn",
            )
        for name in unknown:
            if crops is None and _are_given(strangers, folder, name):
                raise DataError(
                    f"{where}: the model knows no class {name!r}, which is given as strangers, too",
                    f"move {name!r} out of {where}",
                )
        later = _later_model(model, tested)
        if later is None:
            remedy = f"rename {what} as the model calls it, learn it, or give unknown classes as "
            remedy += "--strangers FOLDER"
        elif isinstance(folder, Path) and crops is None:
            remedy = f"{later} knows it: lw2g test {as_word(later)} {as_word(folder)}"
        else:
            remedy = f"{later} knows it"
        raise DataError(
            f"{where}: the model knows no class {unknown[0]!r}{nearest(unknown[0], model.known)}", remedy
        )
    return tested


def _are_given(strangers: Any, folder: Path | LabelledImages, name: str) -> bool:
    """Whether the images of a class folder are among those that are given as strangers."""
    if not isinstance(strangers, Path) or not isinstance(folder, Path):
        return False
    return (folder / name).resolve().is_relative_to(strangers.resolve())


def _later_model(model: TrainedModel, tested: dict[str, ClassImages]) -> str | None:
    """Return the MODEL-N beside a model learned from it that knows all classes tested, and most others.

    One that has learned these very images finds most of them: it is named where no other knows the classes.
    """
    if model.home is None:
        return None
    knowing = {
        place: manifest
        for place, manifest in later_models(model.home.folder).items()
        if set(tested) <= set(manifest.class_map.target_names)
    }
    images = digest_of(tested)
    unseen = {
        place: manifest
        for place, manifest in knowing.items()
        if images not in [step.digest for step in manifest.history.steps]
    }
    return as_typed(str(most_classes(unseen or knowing))) if knowing else None


def _tell_of_bad(images: Sequence[ImageLike | None], entries: Entries, of: str = "") -> None:
    """Say which images were found to be none while they were decoded.

    Args:
        images: All images; None stands for one in memory.
        entries: The answers for them.
        of: What they are, with a colon.
    """
    bad = {}
    for image, entry in zip(images, entries, strict=True):
        if "error" not in entry:
            continue
        if not isinstance(image, Path | Crop):
            bad[entry["name"]] = DataError(entry["error"])
        elif (fault := fault_of(image)) is not None:
            bad[str(image)] = fault
    if bad:
        tell_note(of + left_out(bad, len(entries)))


def _require_strange(folder: Path, model: TrainedModel) -> None:
    """Refuse a folder of strangers that has one of a class of the model.

    Raises:
        DataError: It has.
    """
    if not folder.exists():
        raise DataError(f"strangers: there is nothing at {str(folder)!r}", "check the path")
    if not folder.is_dir():
        return
    known = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name in model.known)
    if known:
        raise DataError(
            f"strangers: the model knows the class {known[0]!r}",
            "give images of classes that it does not know",
        )


def _refused(
    model: TrainedModel, strangers: Path | Sequence[ImageLike], reject: float, known: Entries
) -> dict[str, Any]:
    """Return how many strangers are called unknown, how many known images are, and what the others pass for.

    Args:
        model: The model.
        strangers: Where the strangers are.
        reject: As for :func:`score`.
        known: The entries of the known images.
    """
    answers = model.predict(strangers, reject=reject, partial=True)
    files = [None if entry["path"] is None else Path(entry["path"]) for entry in answers]
    _tell_of_bad(files, answers, "strangers: ")
    entries = [entry for entry in answers if "error" not in entry]
    accepted = Counter(entry["class"] for entry in entries if not entry["rejected"])
    return {
        "images": len(entries),
        "reject": reject,
        "refused": 100 * sum(entry["rejected"] for entry in entries) / len(entries),
        "known_refused": 100 * sum(entry["rejected"] for entry in known) / len(known),
        "taken_for": accepted.most_common(),
    }
