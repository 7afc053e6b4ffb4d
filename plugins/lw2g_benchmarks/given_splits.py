"""The splits behind a benchmark of Python objects: images and labels in any of the forms that users have.

A split is

- a pair ``(images, labels)`` of arrays or sequences,
- a list of pairs ``(image, label)``, where an image is a path, a PIL image, an array or a tensor,
- a data set with ``__len__`` and ``__getitem__`` that gives such pairs (torch, torchvision),
- a Hugging Face data set with a column of images and one of labels.

Labels are numbers from 0, or names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from lw2g.plugin import ConfigError, DataError, composed, counted, error_text, expanded, no_folder, shown
from lw2g_benchmarks.listed_images import IMAGES_OF, HashedSource
from lw2g_benchmarks.objects import ListedFiles, ObjectSource

__all__ = [
    "WHOLE",
    "GivenSplit",
    "Tasks",
    "common_root",
    "from_hub",
    "is_split",
    "numbered",
    "read_split",
    "read_task",
    "require_classes",
    "require_own_images",
    "require_test_images",
]

_FORMS = "give (images, labels), a list of (path, label), or a data set of such pairs"
_TEST_NAMES = ("test", "validation", "valid", "val")
_IMAGE_COLUMNS = ("image", "img")
_LABEL_COLUMNS = ("label", "labels", "fine_label")
# names are listed up to the largest label, so a mistaken one must not fill the memory
_MOST_CLASSES = 2**20
WHOLE = "the data set"
"""What messages call the one data set that is cut into tasks."""


@attrs.frozen(kw_only=True)
class GivenSplit:
    """A split of one task, or of all: images, raw labels, and names of classes by raw label.

    Labels that are names become numbers once all splits are read (:func:`numbered`).
    """

    source: HashedSource
    labels: tuple[Any, ...]
    names: Sequence[str] = ()

    @property
    def classes(self) -> list[Any]:
        """The raw labels that occur, ascending."""
        return sorted(set(self.labels))


Tasks: TypeAlias = list[tuple[GivenSplit, GivenSplit]]
"""Training and test images of each task."""


def numbered(tasks: Tasks) -> Tasks:
    """Return tasks whose labels are numbers; names are numbered in alphabetical order over all splits.

    Raises:
        DataError: Labels of one split are names, and those of another numbers.
    """
    labels = {label for task in tasks for split in task for label in split.classes}
    names = sorted(label for label in labels if isinstance(label, str))
    if not names:
        return tasks
    if len(names) < len(labels):
        raise DataError(
            f"benchmark: some splits have names as labels, such as {names[0]!r}, and some have numbers",
            "give names or numbers in all",
        )
    numbers = {name: number for number, name in enumerate(names)}

    def with_numbers(split: GivenSplit) -> GivenSplit:
        return attrs.evolve(split, labels=tuple(numbers[name] for name in split.labels), names=names)

    return [(with_numbers(train), with_numbers(test)) for train, test in tasks]


def read_task(pair: Any, prefix: str, root: Path | None) -> tuple[GivenSplit, GivenSplit]:
    """Return training and test images of a task, or of all tasks.

    Raises:
        DataError: It is no pair, or a class is tested and not trained.
    """
    where = prefix.rstrip("/") or WHOLE
    first, second = _parts(pair, where)
    if _are_labels(second):
        raise DataError(
            f"benchmark: expected (train, test) for {where} but got (images, labels)",
            "give two such pairs, one of them for tests, or test_share=0.2, which draws the test images",
        )
    train = read_split(first, f"{prefix}train", root)
    test = read_split(second, f"{prefix}test", root)
    require_classes(where, "test", test.classes, train.classes)
    return train, test


def require_test_images(given: Sequence[Any]) -> None:
    """Refuse one list of files with their labels in place of a list of tasks.

    Raises:
        DataError: It is one.
    """
    if given and _holds_files(given):
        raise DataError(
            "benchmark: a list of (path, label), and no test images",
            "give two such lists, (train, test), or test_share=0.2, which draws the test images",
        )


def _are_labels(split: Any) -> bool:
    """Whether what should be test images are numbers or names: the labels of one data set."""
    if getattr(split, "ndim", None) == 1:
        return True
    return (
        isinstance(split, list | tuple)
        and len(split) > 0
        and all(isinstance(one, int | str) for one in split)
    )


def is_split(data: Any) -> bool:
    """Whether the second of a pair is a split of its own, and no labels of the first."""
    if _are_labels(data) or not hasattr(data, "__getitem__") or not len(data):
        return False
    first = data[0]
    if getattr(first, "ndim", None) == 0:  # a number as an array or a tensor, which has __len__ all the same
        return False
    # an item of a split is an image with its label; of (images, labels) the first one has a length
    return isinstance(first, tuple | list | Mapping) or (
        isinstance(data, tuple) and hasattr(first, "__len__")
    )


def require_classes(where: str, name: str, classes: Iterable[Any], others: Iterable[Any]) -> None:
    """Refuse a split with classes that the other one lacks.

    Args:
        where: The task, for the message.
        name: The split, ``train`` or ``test``.
        classes: Its raw labels.
        others: Those of the other split.

    Raises:
        DataError: A class is in this split alone.
    """
    alone = sorted(set(classes) - set(others))
    if not alone:
        return
    missing = "test" if name == "train" else "train"
    raise DataError(
        f"benchmark: class {alone[0]!r} of {where} is in {name} and not in {missing}",
        "give images of every class in both",
    )


def _parts(pair: Any, where: str) -> tuple[Any, Any]:
    """Return the two splits of a pair or of a mapping."""
    if isinstance(pair, Mapping):
        if "train" in pair:
            # test first: where a data set has both, its validation images are for tuning
            for name in _TEST_NAMES:
                if name in pair:
                    return pair["train"], pair[name]
        raise DataError(
            f"benchmark: expected the splits train and test but got {', '.join(map(str, pair))}",
            "give (train, test)",
        )
    if isinstance(pair, tuple) and len(pair) == 2:
        return pair
    raise DataError(
        f"benchmark: expected (train, test) for {where} but got a {type(pair).__name__}",
        "give [(train, test), ...], a pair per task, or one (train, test) to be cut into tasks",
    )


def read_split(data: Any, name: str, root: Path | None) -> GivenSplit:
    """Return a split from any of its forms.

    Raises:
        DataError: It is none of them, or a label is neither a name nor an integer from 0.
    """
    if isinstance(data, tuple) and len(data) == 2:
        images, labels = data
        for each in data:
            if not hasattr(each, "__len__"):
                raise DataError(f"benchmark: {name} has a {type(each).__name__} in (images, labels)", _FORMS)
        if len(images) != len(labels):
            raise DataError(
                f"benchmark: {name} has {counted(len(images), 'image')} and {counted(len(labels), 'label')}",
                "give one for each",
            )
        return _with_labels(ObjectSource(images, None, name), labels, name)
    if _holds_files(data):
        return _of_files(data, name, root)
    # a Hugging Face data set is known by its columns: the package need not be installed
    if isinstance(getattr(data, "features", None), Mapping):
        return _of_columns(data, name)
    if isinstance(data, str | bytes) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise DataError(f"benchmark: {name} is a {type(data).__name__}, and no data set", _FORMS)
    return _with_labels(
        ObjectSource(data, 0, name), _labels_of(data, name), name, getattr(data, "classes", ())
    )


def _of_files(data: Sequence[tuple[str | Path, Any]], name: str, root: Path | None) -> GivenSplit:
    """Return a split of (path, label); ids are the paths below the root."""
    paths = []
    ids = []
    labels = []
    for file, label in data:
        path = expanded(file)
        below_root = path.absolute().relative_to(root or Path("/"))
        paths.append(path)
        ids.append(f"{name}/{below_root.as_posix()}")
        labels.append(label)
    _require_each_once(paths, name)
    what = IMAGES_OF.get(name.rpartition("/")[2], "images")
    return _with_labels(ListedFiles(paths, ids, what=what), labels, name)


def _of_columns(data: Any, name: str) -> GivenSplit:
    """Return a split of a Hugging Face data set."""
    features = data.features
    image = _column(features, "Image", _IMAGE_COLUMNS, name)
    label = _column(features, "ClassLabel", _LABEL_COLUMNS, name)
    return _with_labels(
        ObjectSource(data, image, name), data[label], name, getattr(features[label], "names", ())
    )


def _column(features: Mapping[str, Any], kind: str, usual: Sequence[str], name: str) -> str:
    """Return the column with a usual name, else the only one of the kind."""
    for column in usual:
        if column in features:
            return column
    fitting = [column for column, feature in features.items() if type(feature).__name__ == kind]
    if len(fitting) == 1:
        return fitting[0]
    raise DataError(
        f"benchmark: {name} has no column {usual[0]!r} (columns: {', '.join(features)})",
        f"rename one: data.rename_column(OLD, {usual[0]!r})",
    )


def _labels_of(data: Any, name: str) -> Sequence[Any]:
    """Return the labels of a data set of pairs, without its images where it keeps them apart."""
    # torchvision's data sets have targets; to ask for items would decode every image
    targets = getattr(data, "targets", None)
    if targets is not None and len(targets) == len(data):
        return list(targets)
    labels = []
    for index in range(len(data)):
        item = data[index]
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise DataError(f"benchmark: {name}[{index}] is a {type(item).__name__}, and no pair", _FORMS)
        labels.append(item[1])
    return labels


def _with_labels(source: HashedSource, labels: Iterable[Any], name: str, names: Any = ()) -> GivenSplit:
    """Return a split with checked labels."""
    checked = tuple(_class(label, index, name) for index, label in enumerate(labels))
    if not checked:
        raise DataError(f"benchmark: {name} holds no image", "give at least one of each class")
    if len({type(label) for label in checked}) > 1:
        raise DataError(
            f"benchmark: some labels of {name} are names, and some are numbers", "give names or numbers"
        )
    return GivenSplit(source=source, labels=checked, names=tuple(names or ()))


def _class(label: Any, index: int, name: str) -> int | str:
    """Return a label as the number or the name of a class."""
    value = label
    # a number of numpy or torch, which a label of an array is
    if hasattr(label, "item") and not getattr(label, "ndim", 0):
        value = label.item()
    if isinstance(value, str) and value.strip():
        return composed(value.strip())
    # True is an int to Python, and a label of a data set that has been read wrongly
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_CLASSES:
        raise DataError(
            f"benchmark: label {index} of {name} is {shown(value)}, and no class",
            "give the name of a class for each image, or number the classes 0, 1, ...",
        )
    return value


# -- files and the hub -----------------------------------------------------------------------------------


def _holds_files(data: Any) -> bool:
    """Whether a split is a list of (path, label)."""
    if not isinstance(data, list):
        return False
    for item in data:
        is_pair = isinstance(item, tuple | list) and len(item) == 2
        if not is_pair or not isinstance(item[0], str | Path):
            return False
    return True


def common_root(pairs: Sequence[Any]) -> Path | None:
    """Return the deepest folder with all files that lists name, so that ids do not depend on its place."""
    files: list[str] = []
    for pair in pairs:
        splits: Iterable[Any] = ()
        if isinstance(pair, Mapping):
            splits = pair.values()
        elif isinstance(pair, tuple):
            splits = pair
        for data in splits:
            if _holds_files(data):
                files += [str(expanded(path).absolute()) for path, _ in data]
    _require_each_once(files, "the lists of images")
    if not files:
        return None
    return Path(os.path.commonpath([os.path.dirname(path) for path in files]))


def require_own_images(pairs: Sequence[Any]) -> None:
    """Refuse one object as images of two tasks: their images would be counted twice."""
    met: dict[int, int] = {}
    for number, pair in enumerate(pairs, start=1):
        for split in _parts(pair, f"task-{number}"):
            # of (images, labels) the images: new labels for the same images are no new images
            images = split[0] if isinstance(split, tuple) and split else split
            if number != met.setdefault(id(images), number):
                raise DataError(
                    f"benchmark: tasks {met[id(images)]} and {number} have the same images",
                    "give every image to one task; test images go to the first task with their class",
                )


def _require_each_once(paths: Sequence[str | Path], name: str) -> None:
    repeated = [str(path) for path, count in Counter(paths).items() if count > 1]
    if repeated:
        raise DataError(f"benchmark: {repeated[0]!r} is twice in {name}", "give every file one place")


def from_hub(name: str) -> Any:
    """Return a data set of the Hugging Face hub, from the cache if it is there."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ConfigError(
            f"benchmark.hub: {no_folder(name)}, and no data set of the hub without the package 'datasets'",
            "pip install 'lw2g[hub]'",
        ) from error
    try:
        return load_dataset(name)
    except Exception as error:  # a missing network, name or permission has many classes
        raise DataError(
            f"benchmark.hub: {name!r} cannot be loaded: {error_text(error)}", "check name and network"
        ) from error
