"""Images to learn from: a folder for each class."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from lw2g.errors import DataError, as_word
from lw2g.pixels.found_images import (
    Domains,
    FoundImages,
    domains_below,
    find_classes,
    passed_over,
)
from lw2g.pixels.image_files import ImageHeader, examine_each, fault_of
from lw2g.pixels.unusable_images import left_out, refusal
from lw2g_photos.folder_checks import first_names, or_all_domains, require_classes

__all__ = [
    "LEAST_CHECKED",
    "OTHER_FILES",
    "ClassImages",
    "digest_of",
    "note_of_domains",
    "notes_of",
    "read_class_folders",
    "shared_files",
]

OTHER_FILES = "replace them, or remove the folder"
"""What to do about a class without a usable image; on the page of ``lw2g teach`` it is called otherwise."""
_HELD_OUT = 5
"""Of so many images, one is set apart."""
LEAST_CHECKED = 5
"""Images of a class from which on some are set apart."""
_MOST = 10
"""Images of a class that are set apart at most."""


@attrs.frozen(kw_only=True)
class ClassImages:
    """The image files of a class, or its vectors.

    Attributes:
        paths: Sorted; of files with equal bytes the first. Of stored features, the vectors themselves.
        digests: SHA-256 of each.
        copies: Number of files that were left out for that.
        found: Where the files were found, and what was passed over; None of vectors.
        bad: What is wrong with files that were left out since they are no usable image.
    """

    paths: tuple[Any, ...]
    digests: tuple[str, ...]
    copies: int
    found: FoundImages | None = None
    bad: Mapping[Path, DataError] = attrs.field(factory=dict)

    @property
    def held_out(self) -> list[bool]:
        """Which images check the model before they join it: a fifth by content, at most ten, from five."""
        if len(self.paths) < LEAST_CHECKED:
            return [False] * len(self.paths)
        count = min(len(self.paths) // _HELD_OUT, _MOST)
        # by content: the same images are set apart whatever the files are called
        chosen = set(sorted(self.digests)[:count])
        return [digest in chosen for digest in self.digests]


def read_class_folders(folder: Path, *, decode: bool = False) -> dict[str, ClassImages]:
    """Return the images below ``FOLDER/<class>``, by sorted class name; files that are none are left out.

    So all is as if these files were not there. :func:`notes_of` names them.

    Args:
        folder: The folder.
        decode: Whether to decode each file. Without, some look whole that are not: whoever comes upon one
            reads again.

    Raises:
        DataError: As :func:`require_classes`; a class has no usable image; an image lies in the folders of
            two classes.
    """
    require_classes(folder)
    classes = find_classes(folder)
    headers, bad = _examined(classes, decode=decode)
    owner: dict[str, tuple[str, Path]] = {}
    twice: list[tuple[Path, Path]] = []
    images = {}
    for name, found in classes.items():
        files: dict[str, Path] = {}
        for path in found.paths:
            if path in bad[name]:
                continue
            digest = headers[path].digest.hex()
            class_of_first, first = owner.setdefault(digest, (name, path))
            if class_of_first != name:
                twice.append((first, path))
            files.setdefault(digest, path)  # a copy is no second image
        copies = len(found.paths) - len(bad[name]) - len(files)
        images[name] = ClassImages(
            paths=tuple(files.values()), digests=tuple(files), copies=copies, found=found, bad=bad[name]
        )
    if twice:  # they would teach that both classes are one
        first, second = twice[0]
        which = f"{str(first)!r} and {str(second)!r}"
        if len(twice) == 1:
            raise DataError(f"1 image lies in two classes, {which}", "keep it in one")
        raise DataError(f"{len(twice)} images lie in two classes, first {which}", "keep each in one")
    return images


def _examined(
    classes: Mapping[str, FoundImages], *, decode: bool
) -> tuple[dict[Path, ImageHeader], dict[str, dict[Path, DataError]]]:
    """Return the headers of the files that are images, and by class what is wrong with the others.

    Raises:
        DataError: A class has no file that is an image.
    """
    paths = [path for found in classes.values() for path in found.paths]
    headers: dict[Path, ImageHeader] = {}
    wrong: dict[Path, DataError] = {}
    for path, header in zip(paths, examine_each(paths), strict=True):
        if isinstance(header, DataError):
            wrong[path] = header
            continue
        headers[path] = header
        if decode and (fault := fault_of(path)) is not None:
            wrong[path] = fault
    bad = {}
    for name, found in classes.items():
        bad[name] = {path: wrong[path] for path in found.paths if path in wrong}
    empty = [name for name, found in classes.items() if len(bad[name]) == len(found.paths)]
    if empty:
        which = f"class {empty[0]!r}" + (f" and {len(empty) - 1} more" if len(empty) > 1 else "")
        all_bad = refusal({str(path): wrong[path] for name in empty for path in bad[name]})
        raise DataError(f"no image of {which} can be used: {all_bad.what}", OTHER_FILES)
    return headers, bad


def notes_of(images: Mapping[str, ClassImages], backbone: str | None = None) -> Iterator[str]:
    """Yield what a user should know of the folders that images were read from.

    Args:
        images: Those of each class.
        backbone: As for :func:`require_classes`.
    """
    classes = _found(images)
    domains = note_of_domains(images, backbone)
    if domains:  # first: what is learned is something else than was meant
        yield domains
    bad = {str(path): error for of_class in images.values() for path, error in of_class.bad.items()}
    if bad:
        total = sum(len(found.paths) for found in classes.values())
        yield left_out(bad, total)
    if passed := passed_over(classes.values()):
        yield passed
    if not domains and (inside := _inside(classes)):
        yield f"images of subfolders count to the class folder above them: {first_names(inside)}"
    if len(classes) == 1:
        (only,) = classes.values()
        below = sorted(only.subfolders)
        if len(below) > 1 and "" not in below:
            folder = str(only.folders[0])
            yield (
                f"{folder!r} is the only class; if the folders in it ({first_names(below)}) are the classes, "
                f"give {folder}"
            )


def note_of_domains(images: Mapping[str, ClassImages], backbone: str | None = None) -> str:
    """Return the note which says that class folders look like domains, and what to give; else nothing.

    Args:
        images: As for :func:`notes_of`.
        backbone: Likewise.
    """
    domains = _domains(_found(images))
    if domains is None:
        return ""
    words = f"{domains}: give {as_word(domains.classes)} for one domain"
    return words + or_all_domains(domains.first.parent, domains.options, backbone)


def _found(images: Mapping[str, ClassImages]) -> dict[str, FoundImages]:
    """Return where the files of each class were found; classes of vectors have none."""
    return {name: of_class.found for name, of_class in images.items() if of_class.found is not None}


def _domains(classes: Mapping[str, FoundImages]) -> Domains | None:
    """Return class folders as domains where they look like such; else None."""
    domains = domains_below(classes)
    # splits in a class folder are none: those of domains have been refused
    return None if domains is None or domains.are_split else domains


def _inside(classes: Mapping[str, FoundImages]) -> list[str]:
    """Return the folders in class folders whose images are merged."""
    inside = []
    for name, found in classes.items():
        if len(found.subfolders) > 1:  # one alone, as in CLASS/images/, merges nothing
            inside += [f"{name}/{below}" for below in sorted(found.subfolders) if below]
    return inside if len(classes) > 1 else []


def digest_of(images: dict[str, ClassImages]) -> str:
    """Return a SHA-256 over the sorted checksums of all images."""
    every = sorted(digest for one in images.values() for digest in one.digests)
    return hashlib.sha256("".join(every).encode()).hexdigest()


def shared_files(images: dict[str, ClassImages], tested: dict[str, ClassImages]) -> int:
    """Return how many images that test a model are among those that it learns, by their bytes.

    Raises:
        DataError: All of them are.
    """
    learned = {digest for one in images.values() for digest in one.digests}
    digests = [digest for one in tested.values() for digest in one.digests]
    count = sum(digest in learned for digest in digests)
    if digests and count == len(digests):
        raise DataError(
            f"test: all of its images ({count}) are among those that are learned",
            "give others, or leave --test out",
        )
    return count
