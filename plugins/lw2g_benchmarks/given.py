"""A benchmark of Python objects: torch data sets, arrays, lists of files, Hugging Face data sets.

``[(train, test), ...]`` gives the tasks; one ``(train, test)``, or a mapping with these keys, is cut into
tasks of ``increment`` classes. With ``test_share`` one split is cut, and that share of each class tests. What
a split may be is said in :mod:`lw2g_benchmarks.given_splits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from lw2g.plugin import ConfigError, DataError, TaskStream
from lw2g_benchmarks.given_splits import (
    WHOLE,
    GivenSplit,
    Tasks,
    common_root,
    from_hub,
    is_split,
    numbered,
    read_split,
    read_task,
    require_classes,
    require_own_images,
    require_test_images,
)
from lw2g_benchmarks.options import GivenConfig
from lw2g_benchmarks.orders import ordered
from lw2g_benchmarks.recurrence import Portion, sizes_of
from lw2g_benchmarks.tasks import JoinedSource, LabelledImages, PartSource, build_stream
from lw2g_benchmarks.transforms import ConfiguredTransforms

__all__ = ["GivenBenchmark"]

_NAMED = 3
"""Tasks that a note names."""


@attrs.frozen
class GivenBenchmark(ConfiguredTransforms):
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
        given = from_hub(config.hub) if config.hub else self.images
        if given is None:
            raise ConfigError(
                "benchmark 'given' has no images",
                "give them from Python, lw2g.run(benchmark=[(train, test), ...]) or as "
                "local={'benchmark': ...} to lw2g.resume, continue_run or fork, or set benchmark.hub",
            )
        # with test_share a list is one split of pairs (image, label), not a list of tasks
        listed = isinstance(given, list) and config.test_share is None
        tasks = numbered(_tasks(given, config, listed=listed))
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
            notes=_notes(planned) if listed else (),
        )


def _notes(planned: Sequence[Portion]) -> list[str]:
    """Return in words which given tasks bring no new class: as domains they would be tested on their own."""
    met: set[tuple[int | None, int]] = set()
    known = []
    for number, portion in enumerate(planned, start=1):
        classes = {(portion.domain, label) for label in portion.labels}
        if classes <= met:
            known.append(f"task-{number}")
        met |= classes
    if not known:
        return []
    which = ", ".join(known[:_NAMED]) + (", ..." if len(known) > _NAMED else "")
    return [
        f"no new class in {which}: test images of such a task count to the first task with their class, and "
        'FAA is over the other tasks; if each task is a domain: **{"benchmark.stream": "domains"}'
    ]


def _deviations(config: GivenConfig) -> list[str]:
    """Return in words what another machine could not repeat, and what was drawn."""
    deviations = []
    if not config.hub:
        deviations.append("the images are objects of the Python program that started the run")
    if config.test_share is not None:
        deviations.append(
            f"test images are a share of {config.test_share:g} of each class, drawn ({config.split_seed})"
        )
    return deviations


def _tasks(given: Any, config: GivenConfig, *, listed: bool) -> Tasks:
    """Return training and test images of each given task, or of the one data set.

    Raises:
        DataError: There is none, or a split cannot be read.
    """
    if config.test_share is not None:
        return [_drawn(given, config.test_share, config.split_seed)]
    pairs = given if listed else [given]
    if not pairs:
        raise DataError("benchmark: no task was given", "give a list of (train, test)")
    if listed:
        require_test_images(given)
    require_own_images(pairs)
    root = common_root(pairs)
    tasks = []
    for number, pair in enumerate(pairs, start=1):
        prefix = f"task-{number}/" if listed else ""
        tasks.append(read_task(pair, prefix, root))
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
    if listed:
        for option, value in {"increment": config.increment, "base": config.base}.items():
            if value:
                raise ConfigError(f"benchmark.{option}: the tasks are given", "leave it out")
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


def _drawn(given: Any, share: float, seed: int) -> tuple[GivenSplit, GivenSplit]:
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
    if isinstance(given, tuple) and len(given) == 2 and is_split(given[1]):
        raise DataError(
            "benchmark: two splits, (train, test), and test_share, which draws test images from one",
            "leave one of both out",
        )
    # a pair with no second split: the root is that of the files of this one
    whole = read_split(given, "images", common_root([(given, [])]))
    chosen = np.random.default_rng(seed)
    train: list[int] = []
    test: list[int] = []
    for label in whole.classes:
        positions = np.flatnonzero(np.array(whole.labels) == label)
        if len(positions) < 2:
            raise DataError(
                f"benchmark: class {label!r} has one image, and test_share needs two: one to test with",
                "add images, or leave the class out",
            )
        # the share of a small class rounds to none or to all of it
        count = min(max(round(share * len(positions)), 1), len(positions) - 1)
        positions = chosen.permutation(positions)
        test += positions[:count].tolist()
        train += positions[count:].tolist()
    return _rows_of(whole, train), _rows_of(whole, test)


def _rows_of(whole: GivenSplit, rows: Iterable[int]) -> GivenSplit:
    """Return some images of a split, in the split's order."""
    places = sorted(rows)
    labels = tuple(whole.labels[place] for place in places)
    return GivenSplit(source=PartSource(whole.source, places), labels=labels, names=whole.names)


def _planned(tasks: Sequence[tuple[GivenSplit, GivenSplit]], *, domains: bool, listed: bool) -> list[Portion]:
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
        where = f"task-{number + 1}" if listed else WHOLE
        require_classes(where, "train", new, test.classes)
        # rows count the images of all tasks, one after the other, as _joined puts them
        start = end
        end = start + len(train.labels)
        domain = number if domains else None
        planned.append(Portion(labels=tuple(train.classes), domain=domain, rows=np.arange(start, end)))
    return planned


def _joined(splits: Sequence[GivenSplit]) -> LabelledImages:
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


def _names(tasks: Sequence[tuple[GivenSplit, GivenSplit]]) -> list[str]:
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
