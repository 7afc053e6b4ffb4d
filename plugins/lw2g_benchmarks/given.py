"""A benchmark of Python objects: torch data sets, arrays, lists of files, Hugging Face data sets.

``[(train, test), ...]`` gives the tasks; one ``(train, test)``, or a mapping with these keys, is cut into
tasks of ``increment`` classes. With ``test_share`` one split is cut, and that share of each class tests. A
split is

- a pair ``(images, labels)`` of arrays or sequences,
- a list of pairs ``(image, label)``, where an image is a path, a PIL image, an array or a tensor,
- a data set with ``__len__`` and ``__getitem__`` that gives such pairs (torch, torchvision),
- a Hugging Face data set with a column of images and one of labels.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from lw2g.errors import ConfigError, DataError, counted, error_text, no_folder, shown
from lw2g.interfaces.stream import TaskStream
from lw2g_benchmarks.objects import ListedFiles, ObjectSource
from lw2g_benchmarks.options import GivenConfig
from lw2g_benchmarks.orders import ordered
from lw2g_benchmarks.recurrence import Portion, sizes_of
from lw2g_benchmarks.tasks import HashedSource, JoinedSource, LabelledImages, PartSource, build_stream
from lw2g_benchmarks.transforms import TransformPair, make_transforms

__all__ = ["GivenBenchmark"]

_FORMS = "give (images, labels), a list of (path, label), or a data set of such pairs"
_SPLITS = ("train", "test")
_TEST_NAMES = ("test", "validation", "valid", "val")
_IMAGE_COLUMNS = ("image", "img")
_LABEL_COLUMNS = ("label", "labels", "fine_label")
# names are listed up to the largest label, so a mistaken one must not fill the memory
_MOST_CLASSES = 2**20
_WHOLE = "the data set"


@attrs.frozen(kw_only=True)
class _Split:
    """A split of one task, or of all: images, raw labels, and names of classes by raw label."""

    source: HashedSource
    labels: tuple[int, ...]
    names: Sequence[str] = ()

    @property
    def classes(self) -> list[int]:
        return sorted(set(self.labels))


@attrs.frozen
class GivenBenchmark:
    """Labelled images from Python.

    A class may be in several tasks. All its test images belong to the first of them, in whichever task's test
    set they are; with the stream ``domains`` every task is a domain and keeps its own.

    Args:
        config: The options.
        images: The tasks or the data set, as the module describes; None without a Python program.
    """

    config: GivenConfig
    images: Any = None

    def stream(self) -> TaskStream:
        """Read all labels and return the task stream.

        Raises:
            ConfigError: No images were given, or the classes do not split evenly.
            DataError: A split cannot be read, or train and test hold different classes.
        """
        config = self.config
        given = _from_hub(config.hub) if config.hub else self.images
        if given is None:
            raise ConfigError(
                "benchmark 'given' has no images",
                "give them from Python, lw2g.run(benchmark=[(train, test), ...]) or "
                "lw2g.resume(RUN, local={'benchmark': ...}), or set benchmark.hub",
            )
        # with test_share a list is one split of pairs (image, label), not a list of tasks
        listed = isinstance(given, list) and config.test_share is None
        tasks = _tasks(given, config, listed=listed)
        trains, tests = zip(*tasks, strict=True)
        names = _names(tasks)
        planned = _planned(tasks, domains=listed and config.stream == "domains", listed=listed)
        met: list[int] = []
        for portion in planned:
            met += portion.labels
        # a class that comes again keeps the place where it came first
        order = list(dict.fromkeys(met))
        _require_fitting(config, listed=listed, comes_again=len(met) > len(order))
        sizes: tuple[int, ...] = ()
        if not listed:
            # one data set is cut by sizes; its portion was made for the checks of its classes
            planned = []
            places = ordered(config, [names[label] for label in order])
            order = [order[place] for place in places]
            sizes = sizes_of(config, len(order))
        return build_stream(
            name="given",
            train=_joined(trains),
            test=_joined(tests),
            class_names=names,
            order=order,
            sizes=sizes,
            planned=planned,
            options=config,
            domains=[f"domain-{number}" for number in range(1, 1 + len(tasks))],
            deviations=_deviations(config),
        )

    def transforms(self, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> TransformPair:
        """Return the configured transforms."""
        return make_transforms(self.config, image_size=image_size, mean=mean, std=std)


def _deviations(config: GivenConfig) -> list[str]:
    """Return in words what another machine could not repeat, and what was drawn."""
    deviations = []
    if not config.hub:
        deviations.append("the images are objects of the Python program that started the run")
    if config.test_share is not None:
        deviations.append(
            f"test images are a share of {config.test_share:g} of each class, drawn ({config.order_seed})"
        )
    return deviations


def _tasks(given: Any, config: GivenConfig, *, listed: bool) -> list[tuple[_Split, _Split]]:
    """Return training and test images of each given task, or of the one data set.

    Raises:
        DataError: There is none, or a split cannot be read.
    """
    if config.test_share is not None:
        return [_drawn(given, config.test_share, config.order_seed)]
    pairs = given if listed else [given]
    if not pairs:
        raise DataError("benchmark: no task was given", "give a list of (train, test)")
    _require_own_images(pairs)
    root = _common_root(pairs)
    tasks = []
    for number, pair in enumerate(pairs, start=1):
        prefix = f"task-{number}/" if listed else ""
        tasks.append(_task(pair, prefix, root))
    return tasks


def _require_fitting(config: GivenConfig, *, listed: bool, comes_again: bool) -> None:
    """Refuse options that cut or thin out tasks that are given.

    Args:
        config: The options.
        listed: Whether the tasks are given.
        comes_again: Whether a class is in several of them.

    Raises:
        ConfigError: An option does not fit, or ``increment`` is missing.
    """
    if listed and config.increment is not None:
        raise ConfigError("benchmark.increment: the tasks are given", "leave it out")
    if not listed and config.increment is None:
        raise ConfigError(
            "benchmark.increment: how many classes has a task?", "set it, or give a list of tasks"
        )
    if listed and config.stream not in ("classes", "domains"):
        raise ConfigError(
            f"benchmark.stream: {config.stream!r} cuts tasks, and the tasks are given",
            "leave it out, set 'domains' where each task is a domain, or give one (train, test)",
        )
    if listed and config.imbalance > 1 and comes_again:
        raise ConfigError(
            "benchmark.imbalance: a class in several given tasks could lose all images of one",
            "leave it out, or give fewer images",
        )


def _drawn(given: Any, share: float, seed: int) -> tuple[_Split, _Split]:
    """Return training and test images of one split; of each class at least one tests and one trains.

    Raises:
        DataError: It is a pair of splits or a list of tasks, or a class has one image.
    """
    has_train = isinstance(given, Mapping) and "train" in given
    if has_train and len(given) == 1:
        given = given["train"]
    elif isinstance(given, Mapping):
        raise DataError(
            f"benchmark: there are the splits {', '.join(map(str, given))}, so there is nothing to draw",
            "leave test_share out",
        )
    # a pair with no second split: the root is that of the files of this one
    whole = _split(given, "images", _common_root([(given, [])]))
    chosen = np.random.default_rng(seed)
    train: list[int] = []
    test: list[int] = []
    for label in whole.classes:
        own = np.flatnonzero(np.array(whole.labels) == label)
        if len(own) < 2:
            raise DataError(
                f"benchmark: class {label} has one image, and test_share needs two: one to test with",
                "add images, or leave the class out",
            )
        # the share of a small class rounds to none or to all of it
        count = min(max(round(share * len(own)), 1), len(own) - 1)
        own = chosen.permutation(own)
        test += own[:count].tolist()
        train += own[count:].tolist()
    return _rows_of(whole, train), _rows_of(whole, test)


def _rows_of(whole: _Split, rows: Iterable[int]) -> _Split:
    """Return some images of a split, in the split's order."""
    places = sorted(rows)
    labels = tuple(whole.labels[place] for place in places)
    return _Split(source=PartSource(whole.source, places), labels=labels, names=whole.names)


def _planned(tasks: Sequence[tuple[_Split, _Split]], *, domains: bool, listed: bool) -> list[Portion]:
    """Return what each given task gets: its own training images.

    Raises:
        DataError: A class has no test images in the first task that brings it (in its domain).
    """
    planned: list[Portion] = []
    met: set[int] = set()
    end = 0
    for number, (train, test) in enumerate(tasks):
        # within a domain every class is new; elsewhere a class is tested in its first task
        new = set(train.classes)
        if not domains:
            new -= met
        met |= new
        where = f"task-{number + 1}" if listed else _WHOLE
        _require_classes(where, "train", new, test.classes)
        # rows count the images of all tasks, one after the other, as _joined puts them
        start = end
        end = start + len(train.labels)
        domain = number if domains else None
        planned.append(Portion(labels=tuple(train.classes), domain=domain, rows=np.arange(start, end)))
    return planned


def _joined(splits: Sequence[_Split]) -> LabelledImages:
    """Return the splits of all tasks as one; the number of a task is that of its domain."""
    source = JoinedSource([split.source for split in splits])
    labels: list[int] = []
    domain: list[int] = []
    for number, split in enumerate(splits):
        labels += split.labels
        domain += [number] * len(split.labels)
    numbers = np.array(labels, dtype=np.int64)
    if len(splits) == 1:  # tasks that are cut from one data set are no domains
        return LabelledImages(source=source, labels=numbers)
    return LabelledImages(source=source, labels=numbers, domain=np.array(domain, dtype=np.int64))


def _names(tasks: Sequence[tuple[_Split, _Split]]) -> list[str]:
    """Return the names of classes by raw label: those of the data sets, else the labels."""
    known: dict[int, str] = {}
    count = 0
    for task in tasks:
        for split in task:
            classes = split.classes
            count = max(count, 1 + classes[-1])
            for label in classes:
                if label < len(split.names):
                    known[label] = str(split.names[label])
    return [known.get(label, str(label)) for label in range(count)]


# -- tasks and splits ------------------------------------------------------------------------------------


def _task(pair: Any, prefix: str, root: Path | None) -> tuple[_Split, _Split]:
    """Return training and test images of a task, or of all tasks.

    Raises:
        DataError: It is no pair, or a class is tested and not trained.
    """
    where = prefix.rstrip("/") or _WHOLE
    first, second = _parts(pair, where)
    train = _split(first, f"{prefix}train", root)
    test = _split(second, f"{prefix}test", root)
    _require_classes(where, "test", test.classes, train.classes)
    return train, test


def _require_classes(where: str, name: str, classes: Iterable[int], others: Iterable[int]) -> None:
    alone = sorted(set(classes) - set(others))
    if not alone:
        return
    missing = "test" if name == "train" else "train"
    raise DataError(
        f"benchmark: class {alone[0]} of {where} is in {name} and not in {missing}",
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


def _split(data: Any, name: str, root: Path | None) -> _Split:
    """Return a split from any of its forms.

    Raises:
        DataError: It is none of them, or a label is not an integer from 0.
    """
    if isinstance(data, tuple) and len(data) == 2:
        images, labels = data
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


def _of_files(data: Sequence[tuple[str | Path, Any]], name: str, root: Path | None) -> _Split:
    """Return a split of (path, label); ids are the paths below the root."""
    paths = []
    ids = []
    labels = []
    for file, label in data:
        path = Path(file)
        below_root = path.absolute().relative_to(root or Path("/"))
        paths.append(path)
        ids.append(f"{name}/{below_root.as_posix()}")
        labels.append(label)
    _require_each_once(paths, name)
    return _with_labels(ListedFiles(paths, ids), labels, name)


def _of_columns(data: Any, name: str) -> _Split:
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


def _with_labels(source: HashedSource, labels: Iterable[Any], name: str, names: Any = ()) -> _Split:
    """Return a split with checked labels."""
    numbers = tuple(_integer(label, index, name) for index, label in enumerate(labels))
    if not numbers:
        raise DataError(f"benchmark: {name} holds no image", "give at least one of each class")
    return _Split(source=source, labels=numbers, names=tuple(names or ()))


def _integer(label: Any, index: int, name: str) -> int:
    value = label
    # a number of numpy or torch, which a label of an array is
    if hasattr(label, "item") and not getattr(label, "ndim", 0):
        value = label.item()
    # True is an int to Python, and a label of a data set that has been read wrongly
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_CLASSES:
        raise DataError(
            f"benchmark: label {index} of {name} is {shown(value)}, and no class number",
            "number the classes 0, 1, ...",
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


def _common_root(pairs: Sequence[Any]) -> Path | None:
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
                files += [str(Path(path).absolute()) for path, _ in data]
    _require_each_once(files, "the lists of images")
    if not files:
        return None
    return Path(os.path.commonpath([os.path.dirname(path) for path in files]))


def _require_own_images(pairs: Sequence[Any]) -> None:
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


def _from_hub(name: str) -> Any:
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
