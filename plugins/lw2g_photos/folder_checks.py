"""What is wrong with a folder of class folders, by the names in it: no image is opened, no torch imported."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lw2g.api.recorded import holds_model
from lw2g.errors import ConfigError, DataError, as_word, counted, no_folder, shown
from lw2g.ground.spelling import is_name
from lw2g.model.places import require_free
from lw2g.pixels.found_images import (
    find_classes,
    find_images,
    image_endings,
    is_feature_file,
    is_hidden,
    splits_in,
)

__all__ = ["first_names", "or_all_domains", "require_classes", "require_photos"]

_SHOWN = 3
"""Names that a message shows."""


def require_photos(folder: Path, out: Path, backbone: str) -> None:
    """Refuse what `lw2g start` cannot begin with, before anything is imported that takes seconds.

    Args:
        folder: The class folders, or a file of stored features.
        out: The model's folder.
        backbone: Options of the backbone as one types them.

    Raises:
        DataError: As :func:`require_classes`; or the two are swapped; or the classes lie one level deeper, or
            hold no image.
        ConfigError: In the model's folder there is a model, or anything else.
    """

    def command(photos: Path, model: Path) -> str:
        return " ".join(filter(None, [f"lw2g start {as_word(photos)} {as_word(model)}", backbone]))

    if not folder.exists() and _holds_classes(out):
        raise DataError(f"no folder {str(folder)!r}", f"the photos come first: {command(out, folder)}")
    if holds_model(out):
        raise ConfigError(
            f"{str(out)!r} is there already",
            f"teach that model more: lw2g learn {as_word(out)} {as_word(folder)}; or choose another folder",
        )
    require_free(out)
    if is_feature_file(folder):
        return
    require_classes(folder, backbone)
    names = [entry for entry in folder.iterdir() if entry.is_dir() and not is_hidden(entry.name)]
    # a first model of a single class is hardly meant, and its folders look like classes
    if len(names) == 1 and not _holds_images(names[0]) and len(_image_folders(names[0])) > 1:
        (only,) = names
        raise DataError(
            f"{str(folder)!r} holds one folder and no classes",
            f"the class folders are in {as_word(only)}: {command(only, out)}",
        )
    find_classes(folder)  # before weights are fetched for a folder without images


def _holds_classes(folder: Path) -> bool:
    """Whether there are images in the folders of a folder."""
    if not folder.is_dir():
        return False
    return any(find_images(entry).paths for entry in sorted(folder.iterdir()) if entry.is_dir())


def _image_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder that hold images."""
    return [entry for entry in sorted(folder.iterdir()) if _holds_images(entry)]


def require_classes(folder: Path, backbone: str | None = None) -> None:
    """Look at the folders of a folder, and at no image.

    Args:
        folder: The folder.
        backbone: Options of the backbone as one types them, for a run on what lies there; None where it is a
            model's own, and no run is meant.

    Raises:
        DataError: There is no such folder, no class in it, or ``train/`` and its like instead of classes, or
            domains with these; a class has a name with control characters.
    """
    if not folder.is_dir():
        remedy = "give a folder that holds CLASS/IMAGE"
        if folder.is_file():
            remedy += ", or stored features (.npz, .safetensors)"
        raise DataError(no_folder(folder), remedy)
    entries = sorted(entry for entry in folder.iterdir() if not is_hidden(entry.name))
    endings = image_endings()
    loose = [entry.name for entry in entries if entry.is_file() and entry.suffix.lower() in endings]
    names = [entry.name for entry in entries if entry.is_dir()]
    if loose or not names:
        what = "no class"
        if len(loose) == 1 or (loose and not names):
            what = f"the image {loose[0]!r} lies in no class"
        elif loose:
            what = f"{counted(len(loose), 'image')} lie in no class, first {loose[0]!r}"
        remedy = f"make a folder for each class: {folder / 'CLASS' / 'IMAGE'}"
        if loose and names:
            remedy = f"move {'it' if len(loose) == 1 else 'each'} into a class folder, or out of {folder}"
        elif loose:
            remedy += _or_above(folder)
        raise DataError(f"{str(folder)!r}: {what}", remedy)
    _require_no_splits(folder)
    _require_no_domains(folder, names, backbone)
    if unprintable := [name for name in names if not is_name(name)]:
        raise DataError(f"no class can be called {shown(unprintable[0])}", "rename its folder")


def _called(folder: Path) -> Path:
    """Return a folder by its name, as it was given where that has one: ``.`` has none."""
    return folder if folder.parent.name not in ("", "..") else Path(os.path.abspath(folder))


def _or_above(folder: Path) -> str:
    """Return in words to give the folder above, where all folders in that look like classes; else nothing."""
    folder = _called(folder)
    beside = [entry for entry in sorted(folder.parent.iterdir()) if not is_hidden(entry.name)]
    others = [entry for entry in beside if entry.is_dir() and entry.name != folder.name]
    has_loose = any(entry.suffix.lower() in image_endings() for entry in beside if entry.is_file())
    if has_loose or not all(map(_holds_images, others)):
        return ""
    words = f"; or, if {folder.name!r} is a class, give {str(folder.parent)!r}"
    if others:
        are = "is a class" if len(others) == 1 else "are classes"
        words += f" (then {first_names([other.name for other in others])} {are}, too)"
    return words


def _holds_images(entry: Path) -> bool:
    """Whether an entry of a folder is a folder of images, like that of a class, and may be read."""
    endings = image_endings()
    try:
        return entry.is_dir() and any(inside.suffix.lower() in endings for inside in entry.iterdir())
    except OSError:
        return False


def or_all_domains(root: Path, options: str, backbone: str | None) -> str:
    """Return the command that learns domain after domain, behind what one of them takes.

    Args:
        root: The folder of the domains.
        options: Those of the stream, as one types them.
        backbone: As for :func:`require_classes`.
    """
    if backbone is None:
        return ""
    words = ["lw2g run --recommended", backbone, f"--benchmark folder --set benchmark.root={as_word(root)}"]
    return f", or for all of them: {' '.join(filter(None, [*words, options]))}"


def first_names(names: Sequence[str]) -> str:
    """Return the first of some names, as a note shows them."""
    return ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")


def _require_no_splits(folder: Path) -> None:
    """Refuse the root of a data set: its splits would be learned as classes.

    Raises:
        DataError: All folders are called as splits are, and there are folders in them.
    """
    splits = splits_in(folder)
    if not splits:
        return
    named = " and ".join(f"{split.name}/" for split in splits)
    raise DataError(
        f"{str(folder)!r} holds {named} and no classes",
        f"the class folders are in {as_word(splits[0])}: give that",
    )


def _require_no_domains(folder: Path, names: Sequence[str], backbone: str | None) -> None:
    """Refuse domains that have splits of their own: they would be learned as classes.

    Raises:
        DataError: In each folder lie splits alone, and folders in all of these.
    """
    splits = [splits_in(folder / name) for name in names]
    if not all(splits):
        return
    first = splits[0][0]
    raise DataError(
        f"{str(folder)!r} holds domains with splits ({first.relative_to(folder)}, ...) and no classes",
        f"give {as_word(first)} for one domain"
        + or_all_domains(folder, "--set benchmark.stream=domains", backbone),
    )
