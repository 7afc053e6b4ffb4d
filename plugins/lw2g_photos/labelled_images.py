"""Images of a Python program with the class of each, in place of class folders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import attrs
from torch import Tensor

from lw2g.errors import DataError, counted, shown
from lw2g.ground.spelling import composed, expanded, is_name
from lw2g.pixels.image_files import examine_images, pixels_of
from lw2g_photos.class_folders import ClassImages

__all__ = ["LabelledImages", "paths_among", "source_of"]

_FORMS = (
    "give a folder of CLASS/IMAGE, (images, labels), a list of (image, label), or a data set of such pairs"
)


@attrs.frozen(kw_only=True, eq=False)
class LabelledImages:
    """Images and their classes.

    Attributes:
        images: Paths of files, or pixels, uint8 ``[3, H, W]``.
        names: The class of each.
        order: All classes, as they are numbered.
        unnamed: Whether a class is a number for which nothing has a name.
    """

    images: tuple[Path | Tensor, ...]
    names: tuple[str, ...]
    order: tuple[str, ...]
    unnamed: bool = False

    @classmethod
    def of(cls, given: Any, where: str) -> LabelledImages:
        """Return what a program gave; messages begin with ``where``.

        Classes that are numbers keep their order, and others are sorted by name, as folders are.

        Raises:
            DataError: It is no labelled images; images and labels are not as many; a label is neither a name
                nor a number; something is no image.
        """
        listed, labels, classes = _parts(given, where)
        if not listed:
            raise DataError(f"{where}no image was given", "give at least one of each class")
        values = [_plain(label, place, where) for place, label in enumerate(labels)]
        names = tuple(_name(value, classes, where) for value in values)
        numbered = all(isinstance(value, int) for value in values)
        keys = dict(zip(names, values if numbered else names, strict=True))
        return cls(
            images=tuple(_image(image, place, where) for place, image in enumerate(listed)),
            names=names,
            order=tuple(sorted(keys, key=keys.__getitem__)),
            unnamed=any(isinstance(value, int) and not 0 <= value < len(classes) for value in values),
        )

    def by_class(self) -> dict[str, ClassImages]:
        """Return the images of each class; one that comes several times counts once.

        Raises:
            DataError: One is of two classes, or a file is no image; all such files are named.
        """
        headers = examine_images(image for image in self.images if isinstance(image, Path))
        owner: dict[str, str] = {}
        found: dict[str, dict[str, Path | Tensor]] = {name: {} for name in self.order}
        for place, (image, name) in enumerate(zip(self.images, self.names, strict=True)):
            digest = headers[image].digest.hex() if isinstance(image, Path) else _digest_of(image)
            if owner.setdefault(digest, name) != name:
                which = repr(str(image)) if isinstance(image, Path) else f"image {place}"
                raise DataError(
                    f"{which} of class {name!r} is one of class {owner[digest]!r}, too",
                    "keep it in one of the two",
                )
            found[name].setdefault(digest, image)
        images = {}
        for name, of_class in found.items():
            copies = self.names.count(name) - len(of_class)
            images[name] = ClassImages(paths=tuple(of_class.values()), digests=tuple(of_class), copies=copies)
        return images

    def require_images(self, *, takes_vectors: bool) -> None:
        """Refuse a model on stored features, which takes no images.

        Raises:
            DataError: It is one.
        """
        if takes_vectors:
            raise DataError(
                "the model is on stored features and takes no images",
                "give a file of such: lw2g data features",
            )

    def require_named_as(self, known: Sequence[str]) -> None:
        """Refuse numbers beside names: number 1 is no class 1 of a model whose classes have names.

        Raises:
            DataError: Labels are numbers, and all classes that a model knows have names.
        """
        if self.unnamed and known and not any(name.isdecimal() for name in known):
            raise DataError(
                f"the labels are numbers, and the classes of the model have names, such as {known[0]!r}",
                "give a name for each image; str(number) makes a new class of that name",
            )

    def sizes(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield what each image is called and its width and height; of files nothing is said."""
        for place, image in enumerate(self.images):
            if not isinstance(image, Path):
                yield f"image {place}", (image.shape[2], image.shape[1])


def source_of(given: Any, where: str) -> Path | LabelledImages:
    """Return a path, or the labelled images that a program gave; messages begin with ``where``."""
    if isinstance(given, str | PathLike):
        return Path(given)
    return LabelledImages.of(given, where)


def paths_among(*sources: Path | LabelledImages | None) -> list[Path]:
    """Return those sources that lie on the disk."""
    return [source for source in sources if isinstance(source, Path)]


def _parts(given: Any, where: str) -> tuple[Sequence[Any], Sequence[Any], Sequence[str]]:
    """Return images, labels, and names of classes by number where a data set has some.

    Raises:
        DataError: It is in none of the forms.
    """
    if isinstance(given, tuple) and len(given) == 2 and all(hasattr(part, "__len__") for part in given):
        for what, part in zip(("images", "labels"), given, strict=True):
            _require_several(part, what, where)
        images, labels = (list(part) for part in given)
        if len(images) != len(labels):
            raise DataError(
                f"{where}{counted(len(images), 'image')} and {counted(len(labels), 'label')}",
                "give one for each",
            )
        return images, labels, ()
    if isinstance(given, Mapping) or not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
        remedy = _FORMS
        if hasattr(given, "dataset"):
            remedy = "a loader gives batches: give its data set, loader.dataset"
        raise DataError(f"{where}expected a folder or labelled images but got {type(given).__name__}", remedy)
    items = [given[index] for index in range(len(given))]
    for index, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(
                f"{where}item {index} is a {type(item).__name__}, and no pair (image, label)", _FORMS
            )
    while not hasattr(given, "classes") and hasattr(given, "dataset"):
        given = given.dataset  # a part of a data set, as torch's random_split makes it
    return [image for image, _ in items], [label for _, label in items], getattr(given, "classes", ())


def _require_several(part: Any, what: str, where: str) -> None:
    """Refuse one name in place of a list: its letters, or its keys, would be taken one by one.

    Raises:
        DataError: It is one.
    """
    if not isinstance(part, str | bytes | Mapping):
        return
    remedy = "paths, arrays or tensors, one by one"
    if what == "labels":
        remedy = "the class of each image"
        if isinstance(part, str):
            remedy += f", as in [{part!r}] * len(images)"
    raise DataError(f"{where}expected a list of {what} but got {shown(part)}", f"give {remedy}")


def _plain(label: Any, place: int, where: str) -> int | str:
    """Return a label as a name or a number.

    Raises:
        DataError: It is neither, or a negative number.
    """
    value = label
    if hasattr(label, "item") and not getattr(label, "ndim", 0):  # of numpy or torch
        value = label.item()
    # True is an int to Python, and a label that has been read wrongly; -1 says that there is none
    if isinstance(value, bool) or not isinstance(value, int | str) or (isinstance(value, int) and value < 0):
        raise DataError(
            f"{where}label {place} is {shown(value)}, and no class",
            "give the name of a class or its number, 0 or above, for each image",
        )
    return value


def _name(value: int | str, classes: Sequence[str], where: str) -> str:
    """Return the name of the class of a label.

    Raises:
        DataError: Nothing can be called so.
    """
    name = str(classes[value] if isinstance(value, int) and 0 <= value < len(classes) else value).strip()
    if not name or not is_name(name):
        raise DataError(f"{where}no class can be called {shown(name)}", "rename it")
    return composed(name)


def _image(image: Any, place: int, where: str) -> Path | Tensor:
    """Return the path of a file, or the pixels of anything else.

    Raises:
        DataError: It is no image.
    """
    try:
        if isinstance(image, str | PathLike):
            return expanded(image)
        return pixels_of(image)
    except DataError as error:
        raise DataError(f"{where}image {place}: {error.what}", error.remedy) from error


def _digest_of(pixels: Tensor) -> str:
    """Return a SHA-256 of pixels and their shape."""
    content = pixels.contiguous().numpy()
    return hashlib.sha256(repr(content.shape).encode() + content.tobytes()).hexdigest()
