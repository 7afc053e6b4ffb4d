"""What a step of learning reads: images of classes, what checks them, and what a model is fed of both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import attrs
from torch import Tensor

from lw2g.errors import DataError, counted
from lw2g.model.manifest import Manifest
from lw2g.model.solved import solved_of
from lw2g.model.trained import TrainedModel
from lw2g.pixels.crops import Crops
from lw2g.pixels.found_images import is_split
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.telling import Telling
from lw2g_photos.class_crops import class_crops
from lw2g_photos.class_folders import ClassImages, notes_of, read_class_folders, shared_files
from lw2g_photos.class_vectors import has_test_rows, read_class_vectors
from lw2g_photos.labelled_images import LabelledImages
from lw2g_photos.step_checks import shared_rows

__all__ = ["Lesson", "Rows", "read_lesson", "read_rows", "rows_of"]

T = TypeVar("T")


class _Undecodable(DataError):
    """A file that looked like an image until it was decoded."""


@attrs.frozen(kw_only=True, eq=False)
class Rows:
    """What a model is fed of a lesson, ``[n, F]`` of each class.

    Attributes:
        images: Of what it learns from.
        tested: Of what checks it; None where nothing else does.
    """

    images: dict[str, Tensor]
    tested: dict[str, Tensor] | None

    def of_last(self, width: int) -> Rows:
        """Return the last columns: features of the last layers."""

        def cut(rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: of_class[:, -width:].contiguous() for name, of_class in rows.items()}

        return Rows(images=cut(self.images), tested=None if self.tested is None else cut(self.tested))

    def among(self, chosen: Mapping[str, Tensor]) -> Rows:
        """Return the rows of some of the images, as for :meth:`Lesson.among`."""
        rows = {name: self.images[name][is_chosen] for name, is_chosen in chosen.items() if is_chosen.any()}
        return Rows(images=rows, tested=self.tested)


@attrs.frozen(kw_only=True, eq=False)
class Lesson:
    """What a step learns from, and what checks it.

    Attributes:
        images: Of each class.
        tested: Those that check the result; None where a fifth of the images is left out for that.
        num_shared: Images that are in both, or check the result and were learned before.
        places: Where both come from, as ``learned_from`` and ``tested_on``; the latter is empty where a fifth
            of the images is left out.
        num_again: Images that were left out, as the model has learned them before.
        leaves_tests: Whether the file that is learned from has rows for tests, which are not read.
    """

    images: dict[str, ClassImages]
    tested: dict[str, ClassImages] | None
    num_shared: int
    places: dict[str, str]
    num_again: int = 0
    leaves_tests: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """The number of images of each class."""
        return {name: len(of_class.paths) for name, of_class in self.images.items()}

    @property
    def unusable(self) -> list[Path]:
        """The files that are left out because they are no images."""
        every = [*self.images.values(), *(self.tested or {}).values()]
        return [path for of_class in every for path in of_class.bad]

    def among(self, chosen: Mapping[str, Tensor]) -> Lesson:
        """Return the lesson with some of its images alone; a class without any is left out.

        Args:
            chosen: Which ones of each class, bool ``[n]``.
        """
        images = {}
        for name, is_chosen in chosen.items():
            of_class = self.images[name]
            places = is_chosen.nonzero().flatten().tolist()
            paths = tuple(of_class.paths[place] for place in places)
            digests = tuple(of_class.digests[place] for place in places)
            if places:
                images[name] = attrs.evolve(of_class, paths=paths, digests=digests)
        again = sum(int((~is_chosen).sum()) for is_chosen in chosen.values())
        return attrs.evolve(self, images=images, num_again=again)

    def warnings(self) -> Iterator[str]:
        """Yield what is to be said of images that are not learned."""
        if self.num_again:
            yield f"{counted(self.num_again, 'image')} learned before, and left out"
        if self.leaves_tests:
            yield "the file's test rows are not read: given as --test, too, it checks the result by them"

    def compared(self, rows: Rows, learned: Sequence[Tensor]) -> Lesson:
        """Return the lesson with how many images that check the result are learned, in this step or before.

        By features, too: in another encoding the same image has other bytes.

        Args:
            rows: Of the lesson, by one model.
            learned: What that model has learned before.

        Raises:
            DataError: All of them are: they would all be found.
        """
        if rows.tested is None:
            return self
        num_shared = shared_rows([*rows.images.values(), *learned], rows.tested)
        count = sum(map(len, rows.tested.values()))
        if learned and num_shared == count:
            raise DataError(
                f"test: all of its images ({count}) are among those that are learned, now or before",
                "give others, or leave --test out",
            )
        return attrs.evolve(self, num_shared=max(self.num_shared, num_shared))

    def test_warnings(self) -> Iterator[str]:
        """Yield what is to be said of the images that check the result."""
        if self.tested is None:
            return
        if self.num_shared:
            yield f"test: shares {counted(self.num_shared, 'image')} with what is learned"
        for text in notes_of(self.tested):
            yield f"test: {text}"


def read_lesson(
    folder: Path | LabelledImages,
    test: Path | LabelledImages | None,
    manifest: Manifest,
    catalogue: Catalogue,
    crops: Crops | None = None,
    *,
    decode: bool = False,
) -> Lesson:
    """Return what a model learns from.

    Args:
        folder: Images of each class, in folders or labelled; or a file of stored features.
        test: What checks the result, likewise; None for a fifth of the images.
        manifest: The model before the step.
        catalogue: Where components come from.
        crops: What it learns from instead of class folders: parts of the images in ``folder``.
        decode: As for :func:`~lw2g_photos.class_folders.read_class_folders`.

    Raises:
        DataError: A folder or an image cannot be used, or ``test`` has a class that the model does not know
            even after the step.
    """
    places = {"learned_from": _called(folder), "tested_on": _called(test)}
    images = _read_classes(folder, "train", manifest, catalogue, crops, decode=decode)
    if test is None:
        leaves_tests = isinstance(folder, Path) and has_test_rows(folder)
        return Lesson(images=images, tested=None, num_shared=0, places=places, leaves_tests=leaves_tests)
    tested = _read_classes(test, "test", manifest, catalogue, decode=decode)
    num_shared = shared_files(images, tested)
    _require_known(tested, {*manifest.class_map.target_names, *images})
    return Lesson(images=images, tested=tested, num_shared=num_shared, places=places)


def _called(source: Path | LabelledImages | None) -> str:
    """Return the name of a folder, of a split with that above it, and nothing more of its path."""
    if source is None:
        return ""
    if isinstance(source, LabelledImages):
        return "a program"
    place = source.absolute()
    return f"{place.parent.name}/{place.name}" if is_split(place.name) else place.name


def read_rows(read: Callable[..., Lesson], feed: Callable[[Lesson], T]) -> T:
    """Return what models are fed of a lesson.

    Where a file shows only then that it is no image, all are decoded, and the lesson is read without such.

    Args:
        read: Reads the lesson, with the argument ``decode`` of :func:`read_lesson`.
        feed: Returns what models are fed.
    """
    try:
        return feed(read())
    except _Undecodable:
        return feed(read(decode=True))


def rows_of(model: TrainedModel, lesson: Lesson) -> Rows:
    """Return what a model is fed of a lesson: its head's features, with an expert also its queries."""
    with_queries = solved_of(model.parts).expert is not None

    def read(images: Mapping[str, ClassImages]) -> dict[str, Tensor]:
        rows = {}
        with Telling("reading", sum(len(of_class.paths) for of_class in images.values())) as tell:
            for name, of_class in images.items():
                try:
                    rows[name] = model.features(of_class.paths, queries=with_queries, progress=tell).cpu()
                except DataError as error:
                    raise _Undecodable(error.what, error.remedy) from error
        return rows

    images = read(lesson.images)
    return Rows(images=images, tested=None if lesson.tested is None else read(lesson.tested))


def _read_classes(
    folder: Path | LabelledImages,
    split: Literal["train", "test"],
    manifest: Manifest,
    catalogue: Catalogue,
    crops: Crops | None = None,
    *,
    decode: bool,
) -> dict[str, ClassImages]:
    """Return the images of each class; of a model on stored features its vectors.

    Raises:
        DataError: They cannot be used, or there are crops or labelled images for a model that knows none.
    """
    takes_vectors = catalogue.get("backbone", manifest.backbone.name).fit_vectors is not None
    if isinstance(folder, LabelledImages):
        folder.require_images(takes_vectors=takes_vectors)
        folder.require_named_as(manifest.class_map.target_names)
        return folder.by_class()
    if crops is not None:
        crops.require_images(takes_vectors=takes_vectors)
        return class_crops(crops)
    if not takes_vectors:
        return read_class_folders(folder, decode=decode)
    return read_class_vectors(folder, split, manifest.fingerprint)


def _require_known(tested: Mapping[str, ClassImages], known: Collection[str]) -> None:
    """Refuse images of a class that the model does not know, not even after the step.

    Raises:
        DataError: There are some.
    """
    unknown = tested.keys() - set(known)
    if unknown:
        raise DataError(f"test: no class is called {min(unknown)!r}", "give images of classes of the model")
