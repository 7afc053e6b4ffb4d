"""Which files below a folder are images, which class each is of, and what was passed over.

Whoever looks for images in folders looks through here, so that all commands find the same files, call the
classes alike, and say what they left out.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from lw2g.errors import DataError, counted, shown
from lw2g.ground.spelling import composed, path_order
from lw2g.pixels.heic import HEIC_ENDINGS, reads_heic, way_out

__all__ = [
    "EXTENSIONS",
    "OF_A_SYSTEM",
    "Domains",
    "FoundImages",
    "domains_below",
    "files_below",
    "find_classes",
    "find_images",
    "image_ending",
    "image_endings",
    "is_feature_file",
    "is_hidden",
    "is_split",
    "named_folders",
    "passed_over",
    "split_folder",
    "splits_in",
    "ways_out",
]

EXTENSIONS = frozenset(
    {
        *(".bmp", ".gif", ".png", ".tif", ".tiff", ".webp"),
        *(".jfif", ".jpe", ".jpeg", ".jpg"),
        *(".pbm", ".pgm", ".pnm", ".ppm"),
    }
)
"""The endings by which image files are found in folders: those of the formats that are always decoded."""

_SPLITS = frozenset({"train", "training", "test", "testing", "val", "valid", "validation"})
"""What folders are called, in any case, that hold the classes of a data set's split."""

_PICTURES = frozenset({".avif", ".dng", ".heic", ".heif", ".jp2", ".jxl"})
"""Endings of pictures whose format is not decoded, HEIC where it cannot be."""
OF_A_SYSTEM = frozenset(
    {
        *("__macosx", "lost+found", "$recycle.bin", "system volume information"),
        *("@eadir", "#recycle", "#snapshot", "@recycle", "@recently-snapshot"),  # of network storage
    }
)
"""Folders that a system makes for itself, in lower case: caches of previews, and what was deleted."""
_NAMED = 5
"""Classes that an error names."""
_SHOWN = 3
"""Names that a note shows."""


@attrs.frozen(kw_only=True)
class FoundImages:
    """The image files in and below some folders.

    Attributes:
        folders: The folders; several where the names of folders differ in their Unicode form alone.
        paths: The files, sorted.
        passed_over: How many files of other endings there are, by ending; of those without one, by name.
    """

    folders: tuple[Path, ...]
    paths: tuple[Path, ...]
    passed_over: Mapping[str, int]

    @property
    def subfolders(self) -> Counter[str]:
        """How many images lie below each folder in these folders; under ``""`` those that lie in none."""
        depth = len(self.folders[0].parts)  # they lie side by side
        counts = Counter[str]()
        for path in self.paths:
            below = path.parts[depth:-1]
            counts[composed(below[0]) if below else ""] += 1
        return counts


def find_images(*folders: Path) -> FoundImages:
    """Return the image files in and below folders, by their endings; hidden ones are left out."""
    known = image_endings()
    paths = []
    others = Counter[str]()
    for folder in folders:
        for path in files_below(folder):
            ending = path.suffix.lower()
            if ending in known:
                paths.append(path)
            else:
                others[ending or path.name] += 1
    # a folder lists its files in an order of its own
    return FoundImages(
        folders=folders, paths=tuple(sorted(paths, key=path_order)), passed_over=dict(sorted(others.items()))
    )


def find_classes(folder: Path) -> dict[str, FoundImages]:
    """Return the images of each class folder, ``FOLDER/<class>/**``, by sorted class name.

    Names are composed (:func:`~lw2g.ground.spelling.composed`): folders whose names look the same are one
    class.

    Raises:
        DataError: There is no class folder, or a class holds no image.
    """
    classes = {name: find_images(*folders) for name, folders in named_folders(folder).items()}
    if not classes:
        raise DataError(
            f"no class folders in {str(folder)!r}", f"expected {str(folder / '<class>')!r} with images"
        )
    empty = [name for name, found in classes.items() if not found.paths]
    if not empty:
        return classes
    left_out = passed_over(classes[name] for name in empty)
    named = ", ".join(map(repr, empty[:_NAMED]))
    hold = "holds" if len(empty) == 1 else "hold"
    raise DataError(
        f"{len(empty)} of {counted(len(classes), 'class')} in {str(folder)!r} {hold} no image, first "
        f"{named}{f' ({left_out})' if left_out else ''}",
        f"add images ({', '.join(sorted(image_endings()))}) or remove the folders",
    )


def named_folders(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Return the folders in a folder by their composed names, sorted; hidden ones are left out."""
    found: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir(), key=path_order):
        if entry.is_dir() and not is_hidden(entry.name):
            found.setdefault(composed(entry.name), []).append(entry)
    return {name: tuple(folders) for name, folders in found.items()}


def is_split(name: str) -> bool:
    """Whether a folder is called as the split of a data set, ``train`` or ``Val``.

    >>> is_split("TRAIN"), is_split("trains")
    (True, False)
    """
    return name.lower() in _SPLITS


def split_folder(folder: Path, split: str) -> Path:
    """Return the folder of a split, however its name is capitalised; ``FOLDER/split`` where there is none."""
    exact = folder / split
    if exact.is_dir() or not folder.is_dir():
        return exact
    entries = sorted(folder.iterdir(), key=path_order)
    return next((entry for entry in entries if entry.name.lower() == split and entry.is_dir()), exact)


def splits_in(folder: Path) -> tuple[Path, ...]:
    """Return the splits of a data set in its folder, training first; none where other folders are in it, too.

    Each has folders in it: a class may be called ``test``.
    """
    entries = [path for twins in named_folders(folder).values() for path in twins]
    if not all(is_split(entry.name) and named_folders(entry) for entry in entries):
        return ()
    return tuple(sorted(entries, key=lambda entry: not _is_training(entry.name)))


def _is_training(split: str) -> bool:
    return split.lower().startswith("train")


def passed_over(found: Iterable[FoundImages]) -> str:
    """Return in words what was passed over; empty where nothing was."""
    endings = Counter[str]()
    for one in found:
        endings.update(one.passed_over)
    if not endings:
        return ""
    listed = ", ".join(f"{count} {ending}" for ending, count in sorted(endings.items()))
    text = f"files of no known image format were passed over: {listed}"
    pictures = sorted(_PICTURES & endings.keys())
    if pictures:
        text += f"; {way_out([ending[1:].upper() for ending in pictures])}"
    return text


def image_endings() -> frozenset[str]:
    """Return the endings by which image files are found here."""
    return EXTENSIONS | HEIC_ENDINGS if reads_heic() else EXTENSIONS


def image_ending(name: str) -> str:
    """Return the ending of an image file's name.

    Raises:
        DataError: It is none of an image that can be read.
    """
    ending = Path(name).suffix.lower()
    if ending in image_endings():
        return ending
    if ending in _PICTURES:
        kind = ending[1:].upper()
        raise DataError(f"{shown(name)} is of the format {kind}", way_out([kind]))
    raise DataError(f"{shown(name)} is no image file", f"send {', '.join(sorted(image_endings()))}")


def ways_out() -> dict[str, str]:
    """Return what to do about pictures of the formats that are not decoded here, by their endings."""
    return {ending: way_out([ending[1:].upper()]) for ending in sorted(_PICTURES - image_endings())}


@attrs.frozen(kw_only=True)
class Domains:
    """Class folders that look like domains: the folders in them share their names.

    Attributes:
        first: The first of them.
        names: The names that they share, sorted.
    """

    first: Path
    names: tuple[str, ...]

    @property
    def are_split(self) -> bool:
        """Whether each has its own ``train/`` and ``test/``, with the classes below."""
        return all(map(is_split, self.names))

    @property
    def classes(self) -> Path:
        """The folder that holds the training images of the first by class."""
        if not self.are_split:
            return self.first
        return self.first / next(filter(_is_training, self.names), self.names[0])

    @property
    def drawing(self) -> str:
        """The option, after a blank, with which a run draws test images; empty where they lie apart."""
        return "" if self.are_split else " --set benchmark.test_share=0.2"

    @property
    def options(self) -> str:
        """The options with which a run learns domain after domain, apart from the root."""
        return f"--set benchmark.stream=domains{self.drawing}"

    def __str__(self) -> str:
        named = ", ".join(map(repr, self.names[:_SHOWN])) + (", ..." if len(self.names) > _SHOWN else "")
        root = str(self.first.parent)
        return f"{root!r}: these look like domains, as the folders in them share their names ({named})"


def domains_below(classes: Mapping[str, FoundImages]) -> Domains | None:
    """Return the class folders as domains where they look like such, as in ``Art/Clock/1.jpg``; else None.

    One shared name tells nothing: ``CLASS/images/1.jpg`` is a usual layout.
    """
    subfolders = {name: found.subfolders for name, found in classes.items()}
    counts = Counter(below for names in subfolders.values() for below in names if below)
    # subfolders of one name in several class folders: they would be the classes
    shared = {below for below, count in counts.items() if count > 1}
    images_in_shared = sum(names[below] for names in subfolders.values() for below in shared)
    total = sum(names.total() for names in subfolders.values())
    if len(shared) < 2 or 2 * images_in_shared <= total:  # they have to hold most images
        return None
    first = next(name for name, names in subfolders.items() if shared & names.keys())
    return Domains(first=classes[first].folders[0], names=tuple(sorted(shared)))


def files_below(folder: str | Path) -> Iterator[Path]:
    """Yield the files in and below a folder, in no order; hidden ones are left out.

    Links are followed, but for those that lead back to a folder above them. A link to nothing counts as a
    file: whoever reads it says that it cannot be read, where a name that is passed over would be lost unsaid.
    """
    # what scandir knows of an entry saves a question to the file system for each of a million images
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_dir():
                if not (entry.is_symlink() and _leads_back(entry.path)):
                    yield from files_below(entry.path)
            elif entry.is_file() or entry.is_symlink():
                yield Path(entry.path)


def is_feature_file(path: Path) -> bool:
    """Whether a path is one of stored features by its ending, or by what its folder holds."""
    if path.suffix in (".npz", ".safetensors"):
        return True
    return (path / "train_x.npy").is_file() or (path / "test_x.npy").is_file()


def is_hidden(name: str) -> bool:
    """Whether a file or folder belongs to a system and not to its user: caches of previews lie in such.

    >>> is_hidden(".cache"), is_hidden("@eaDir"), is_hidden("$Recycle.Bin"), is_hidden("eaDir")
    (True, True, True, False)
    """
    return name.startswith(".") or name.lower() in OF_A_SYSTEM


def _leads_back(link: str) -> bool:
    """Whether a link to a folder leads to one that it lies in."""
    place = Path(os.path.realpath(os.path.dirname(link)))
    target = Path(os.path.realpath(link))
    return target == place or target in place.parents
