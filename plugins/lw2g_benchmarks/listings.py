"""Which file is in which split: class folders, seeded splits of them, files of paths, CUB's tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import attrs
import torch
import yaml

from lw2g.plugin import (
    DataError,
    DataSet,
    FoundImages,
    RemoteFile,
    Split,
    find_classes,
    is_hidden,
    passed_over,
    shown,
    text_of,
)

__all__ = ["Item", "Listing", "file_list_sha256", "from_folders", "from_index", "from_lists", "from_seed"]

_SPLITS = ("train", "test")
_TRAIN_SHARE = 0.8
_NAMED = 5
_DIGITS = 9
"""Of a number in a table at most; no data set has more images."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Item:
    """One image: where it lies, its id (a relative path that does not depend on where), its raw label."""

    path: Path
    id: str
    label: int


@attrs.frozen(kw_only=True)
class Listing:
    """The images of a data set by split, ``train`` and ``test``, and its class names by raw label.

    ``passed_over`` says in words which files of its folders were not taken; it is empty for none.
    """

    splits: Mapping[str, Sequence[Item]]
    class_names: Sequence[str]
    passed_over: str = ""


def file_list_sha256(ids: Iterable[str]) -> str:
    """Return the SHA-256 of the sorted ids joined by line feeds."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


def from_folders(data: DataSet, folder: Path) -> Listing:
    """Read ``train/<class>/*`` and ``test/<class>/*``; labels count the sorted class folders.

    Raises:
        DataError: If a split is missing or both hold different classes.
    """
    missing = [split for split in _SPLITS if not (folder / split).is_dir()]
    if missing:
        lacks = " and ".join(f"{split}/" for split in missing)
        entries = ", ".join(sorted(repr(entry.name) for entry in folder.iterdir())[:_NAMED]) or "nothing"
        raise DataError(
            f"{data.title}: {str(folder)!r} lacks {lacks} (found {entries})",
            f"expected {data.layout}, see `lw2g data get {data.name}`",
        )
    train = find_classes(folder / "train")
    test = find_classes(folder / "test")
    names = sorted(train)
    differing = sorted(train.keys() ^ test.keys())
    if differing:
        raise DataError(
            f"{data.title}: {len(train)} classes in train/ and {len(test)} in test/ of "
            f"{str(folder)!r}, in one only {differing[:_NAMED]!r}",
            "extract the archive again",
        )
    splits: dict[str, list[Item]] = {}
    for split, classes in (("train", train), ("test", test)):
        splits[split] = []
        for label, name in enumerate(names):
            for path in classes[name].paths:
                splits[split].append(Item(path=path, id=path.relative_to(folder).as_posix(), label=label))
    left_out = passed_over([*train.values(), *test.values()])
    return Listing(splits=splits, class_names=names, passed_over=left_out)


def from_seed(data: DataSet, folder: Path, seed: int) -> Listing:
    """Cut all files, sorted, into four fifths and one fifth, as HiDe-Prompt's first run does.

    Files may lie below ``train/`` and ``test/``, where other code has moved them; that changes nothing.
    """
    path_of, left_out = _pooled(data, folder)
    ids = sorted(path_of)
    class_of = {image_id: PurePosixPath(image_id).parent.name for image_id in ids}
    names = sorted(set(class_of.values()))
    label_of = {name: label for label, name in enumerate(names)}
    # one permutation of all images, as torch's random_split draws it: classes keep about a fifth, not exactly
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed)).tolist()
    cut = int(_TRAIN_SHARE * len(ids))
    splits: dict[str, list[Item]] = {}
    for split, drawn in (("train", order[:cut]), ("test", order[cut:])):
        splits[split] = []
        for place in sorted(drawn):
            image_id = ids[place]
            label = label_of[class_of[image_id]]
            splits[split].append(Item(path=path_of[image_id], id=image_id, label=label))
    return Listing(splits=splits, class_names=names, passed_over=left_out)


def _pooled(data: DataSet, folder: Path) -> tuple[dict[str, Path], str]:
    """Return ``<class>/<image>`` -> path of all images, flat or below ``train/`` and ``test/``.

    It also says what was passed over.

    Raises:
        DataError: If class folders lie next to ``train/`` or ``test/``, or an image lies in both.
    """
    bases = [folder / name for name in _SPLITS if (folder / name).is_dir()]
    other_folders = []
    for entry in folder.iterdir():
        if entry.is_dir() and entry not in bases and not is_hidden(entry.name):
            other_folders.append(entry.name)
    if bases and other_folders:
        raise DataError(
            f"{data.title}: {str(folder)!r} holds class folders, first {min(other_folders)!r}, beside "
            f"{bases[0].name + '/'!r}",
            "keep one of the two layouts",
        )
    paths_by_id: dict[str, Path] = {}
    every: list[FoundImages] = []
    for base in bases or [folder]:
        for found in find_classes(base).values():
            every.append(found)
            for path in found.paths:
                # relative to the split: an id must be the same in both layouts, or the seed cuts otherwise
                name = path.relative_to(base).as_posix()
                if name in paths_by_id:
                    raise DataError(
                        f"{data.title}: {name!r} lies in train/ and in test/ of {str(folder)!r}",
                        "extract the archive again",
                    )
                paths_by_id[name] = path
    return paths_by_id, passed_over(every)


def from_lists(data: DataSet, split: Split, root: Path) -> Listing:
    """Read files that list paths and labels, ``root/splits/<name>``.

    Raises:
        DataError: If a list or a listed file is missing, or a list is not the published one.
    """
    folder = root / data.folder
    splits: dict[str, list[Item]] = {"train": [], "test": []}
    for name, files in (("train", split.train_lists), ("test", split.test_lists)):
        for file in files:
            for image_id, label in _entries(data, root, file):
                splits[name].append(_item(folder, image_id, label))
    lost = _missing(splits)
    if lost:
        total = len(splits["train"]) + len(splits["test"])
        raise DataError(
            f"{data.title}: {len(lost)} of {total} listed images are not in "
            f"{str(folder)!r}, first {lost[:_NAMED]!r}",
            f"expected {data.layout}",
        )
    return Listing(splits=splits, class_names=_names(data, splits))


def _missing(splits: Mapping[str, Sequence[Item]]) -> list[str]:
    """Return the ids of images that are not there."""
    lost = []
    for items in splits.values():
        for item in items:
            if not item.path.is_file():
                lost.append(item.id)
    return lost


def _item(folder: Path, name: str, label: int) -> Item:
    """Return an image of a list, wherever other code has moved it."""
    path = folder / name
    for split in _SPLITS:
        moved = folder / split / name
        if not path.is_file() and moved.is_file():
            path = moved
    return Item(path=path, id=name, label=label)


def _entries(data: DataSet, root: Path, file: RemoteFile) -> Iterator[tuple[str, int]]:
    """Yield relative path and label of each line; what stands before the data set's folder is cut off."""
    path = root / "splits" / file.name
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{data.title}: no list {str(path)!r}",
            f"run `lw2g data get {data.name}`, save {file.url} there, or choose another benchmark.split "
            f"({', '.join(data.split_names())})",
        ) from error
    if file.checksum and hashlib.sha256(text).hexdigest() != file.checksum.partition(":")[2]:
        raise DataError(f"list {str(path)!r} is not the published one ({file.checksum})", "fetch it again")
    for name, label in _parsed(path, text):
        parts = PurePosixPath(name).parts
        # lists of other code name the folder in their own letter case
        folders = [part.lower() for part in parts]
        start = 0
        if data.folder.lower() in folders:
            start = folders.index(data.folder.lower()) + 1
        yield "/".join(parts[start:]), label


def _parsed(path: Path, text: bytes) -> Iterator[tuple[str, int]]:
    """Yield the entries of a YAML file of ``data`` and ``targets``, or of lines ``path label``.

    Raises:
        DataError: It is no such file, or a row is broken.
    """
    if path.suffix == ".yaml":
        yield from _parsed_yaml(path, text)
        return
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"list {str(path)!r} is not understood ({error})", "fetch it again") from error
    for number, line in enumerate(lines, 1):
        # a line is cut at its last space: names of files may hold others
        name, _, text_of_label = line.rpartition(" ")
        try:
            label = _number(text_of_label, 0)
            name = _relative(name)
        except ValueError as error:
            raise _broken(path, number, error, "fetch it again") from error
        yield name, label


def _parsed_yaml(path: Path, text: bytes) -> Iterator[tuple[str, int]]:
    """Yield paths and labels of a list, a table of two lists of equal length: ``data`` and ``targets``."""
    try:
        # the loader in C, where PyYAML has it, is many times faster: lists have thousands of lines
        table: Any = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        names, labels = list(table["data"]), list(table["targets"])
        if len(names) != len(labels):
            raise ValueError(f"{len(names)} paths in data and {len(labels)} labels in targets")
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"list {str(path)!r} is not understood ({reason})", "fetch it again") from error
    for number, (name, label) in enumerate(zip(names, labels, strict=True), 1):
        try:
            entry = _relative(str(name)), _number(str(label), 0)
        except ValueError as error:
            raise DataError(f"{str(path)!r}, entry {number}: {error}", "fetch it again") from error
        yield entry


def _names(data: DataSet, splits: Mapping[str, Sequence[Item]]) -> list[str]:
    """Return class names by label: the folder of a class, with its parent where that alone is not unique.

    Labels without a folder of their own are named by their number.
    """
    folders: dict[int, set[str]] = {}
    for items in splits.values():
        for item in items:
            folders.setdefault(item.label, set()).add(str(PurePosixPath(item.id).parent))
    if sorted(folders) != list(range(data.num_classes)):
        raise DataError(
            f"{data.title}: expected labels 0 to {data.num_classes - 1} in the lists but found "
            f"{len(folders)} from {min(folders, default=0)} to {max(folders, default=0)}",
            "fetch them again",
        )
    whole: list[set[str]] = []
    last: list[set[str]] = []
    for label in range(data.num_classes):
        whole.append(folders[label])
        last.append({PurePosixPath(folder).name for folder in folders[label]})
    for candidates in (last, whole):
        names = [min(names_of_class) for names_of_class in candidates]
        # a name has to be that of one class, and a class has to have one name
        if len(set(names)) == len(names) and max(map(len, candidates)) == 1:
            return names
    return [str(label) for label in range(data.num_classes)]


def from_index(data: DataSet, folder: Path) -> Listing:
    """Read CUB's ``images.txt``, ``image_class_labels.txt`` and ``train_test_split.txt`` (1: training).

    Raises:
        DataError: If a table or an image is missing, or the tables do not fit each other.
    """
    paths = _table(data, folder / "images.txt", _relative)
    # CUB counts its classes from 1
    labels = _table(data, folder / "image_class_labels.txt", lambda text: _number(text, 1) - 1)
    training = _table(data, folder / "train_test_split.txt", lambda text: _number(text, 0, 1))
    if not paths.keys() == labels.keys() == training.keys():
        raise DataError(
            f"{data.title}: the tables in {str(folder)!r} number other images", "extract it again"
        )
    splits: dict[str, list[Item]] = {"train": [], "test": []}
    for number, name in paths.items():
        item = Item(path=folder / "images" / name, id=name, label=labels[number])
        splits["train" if training[number] else "test"].append(item)
    lost = _missing(splits)
    if lost:
        raise DataError(
            f"{data.title}: {len(lost)} of {len(paths)} images are not in {str(folder / 'images')!r}, first "
            f"{lost[:_NAMED]!r}",
            "extract the archive again",
        )
    return Listing(splits=splits, class_names=_names(data, splits))


def _table(data: DataSet, path: Path, read: Callable[[str], T]) -> dict[int, T]:
    """Return the values of a table of lines ``number value``.

    Args:
        data: The data set, for messages.
        path: The table.
        read: Returns what a value is, or raises ``ValueError`` that says what is expected.

    Raises:
        DataError: There is no such table, or a row is broken.
    """
    try:
        lines = text_of(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{data.title}: cannot read {str(path)!r}",
            f"expected {data.layout}, see `lw2g data get {data.name}`",
        ) from error
    table: dict[int, T] = {}
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        number, _, value = line.strip().partition(" ")
        try:
            row = _number(number, 1)
            if row in table:
                raise ValueError(f"expected each image once but got number {row} again")
            table[row] = read(value.strip())
        except ValueError as error:
            raise _broken(path, place, error, "extract it again") from error
    return table


def _number(text: str, least: int, most: int | None = None) -> int:
    """Return a number of a table.

    Raises:
        ValueError: It is none, or not in the range.
    """
    wanted = f"a number from {least}" if most is None else f"a number from {least} to {most}"
    # not int() alone, which reads 1_0 and digits of other scripts
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS:
        raise ValueError(f"expected {wanted} but got {shown(text)}")
    number = int(text)
    if number < least or (most is not None and number > most):
        raise ValueError(f"expected {wanted} but got {number}")
    return number


def _relative(name: str) -> str:
    """Return a path of a table, below a folder.

    Raises:
        ValueError: It is empty or leads elsewhere: what it names is opened.
    """
    if not name or "\0" in name or name.startswith("/") or ".." in PurePosixPath(name).parts:
        raise ValueError(f"expected the path of an image below the data set but got {shown(name)}")
    return name


def _broken(path: Path, line: int, error: ValueError, remedy: str) -> DataError:
    """Return the error of a row of a table."""
    return DataError(f"{str(path)!r}, line {line}: {error}", remedy)
