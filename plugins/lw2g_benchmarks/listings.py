"""Which file is in which split: class folders, seeded splits of them, files of paths, CUB's tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
import torch
import yaml

from lw2g.errors import DataError
from lw2g.interfaces.dataset import DataSet, RemoteFile, Split
from lw2g_benchmarks.image_files import scan_split

__all__ = ["Item", "Listing", "file_list_sha256", "from_folders", "from_index", "from_lists", "from_seed"]

_SPLITS = ("train", "test")
_TRAIN_SHARE = 0.8
_NAMED = 5


@attrs.frozen(kw_only=True)
class Item:
    """One image: where it lies, its id (a relative path that does not depend on where), its raw label."""

    path: Path
    id: str
    label: int


@attrs.frozen(kw_only=True)
class Listing:
    """The images of a data set by split, ``train`` and ``test``, and its class names by raw label."""

    splits: Mapping[str, Sequence[Item]]
    class_names: Sequence[str]


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
        entries = sorted(entry.name for entry in folder.iterdir())[:_NAMED]
        raise DataError(
            f"{data.title}: {str(folder)!r} lacks {lacks} (found {entries!r})",
            f"expected {data.layout}, see `lw2g data get {data.name}`",
        )
    train = scan_split(folder / "train")
    test = scan_split(folder / "test")
    names = sorted(train)
    differing = sorted(train.keys() ^ test.keys())
    if differing:
        raise DataError(
            f"{data.title}: {len(train)} classes in train/ and {len(test)} in test/ of "
            f"{str(folder)!r}, in one only {differing[:_NAMED]!r}",
            "extract the archive again",
        )
    splits: dict[str, list[Item]] = {}
    for split, paths_of in (("train", train), ("test", test)):
        splits[split] = []
        for label, name in enumerate(names):
            for path in paths_of[name]:
                splits[split].append(Item(path=path, id=path.relative_to(folder).as_posix(), label=label))
    return Listing(splits=splits, class_names=names)


def from_seed(data: DataSet, folder: Path, seed: int) -> Listing:
    """Cut all files, sorted, into four fifths and one fifth, as HiDe-Prompt's first run does.

    Files may lie below ``train/`` and ``test/``, where other code has moved them; that changes nothing.
    """
    path_of = _pooled(data, folder)
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
    return Listing(splits=splits, class_names=names)


def _pooled(data: DataSet, folder: Path) -> dict[str, Path]:
    """Return ``<class>/<image>`` -> path of all images, flat or below ``train/`` and ``test/``.

    Raises:
        DataError: If class folders lie beside ``train/`` or ``test/``, or an image lies in both.
    """
    bases = [folder / name for name in _SPLITS if (folder / name).is_dir()]
    beside = []
    for entry in folder.iterdir():
        if entry.is_dir() and entry not in bases and not entry.name.startswith("."):
            beside.append(entry.name)
    if bases and beside:
        raise DataError(
            f"{data.title}: {str(folder)!r} holds class folders, first {min(beside)!r}, beside "
            f"{bases[0].name + '/'!r}",
            "keep one of the two layouts",
        )
    paths_by_id: dict[str, Path] = {}
    for base in bases or [folder]:
        for paths in scan_split(base).values():
            for path in paths:
                # relative to the split: an id must be the same in both layouts, or the seed cuts otherwise
                name = path.relative_to(base).as_posix()
                if name in paths_by_id:
                    raise DataError(
                        f"{data.title}: {name!r} lies in train/ and in test/ of {str(folder)!r}",
                        "extract the archive again",
                    )
                paths_by_id[name] = path
    return paths_by_id


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
    place = folder / name
    for split in _SPLITS:
        moved = folder / split / name
        if not place.is_file() and moved.is_file():
            place = moved
    return Item(path=place, id=name, label=label)


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
        # a list comes from elsewhere, and what it names is opened
        if ".." in parts or name.startswith("/"):
            raise DataError(f"list {str(path)!r} names {name!r}, which leads elsewhere", "fetch it again")
        # lists of other code name the folder in their own letter case
        folders = [part.lower() for part in parts]
        start = 0
        if data.folder.lower() in folders:
            start = folders.index(data.folder.lower()) + 1
        yield "/".join(parts[start:]), label


def _parsed(path: Path, text: bytes) -> Iterator[tuple[str, int]]:
    """Yield the entries of a YAML file of ``data`` and ``targets``, or of lines ``path label``."""
    try:
        if path.suffix == ".yaml":
            # the loader in C, where PyYAML has it, is many times faster: lists have thousands of lines
            table: Any = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            for name, label in zip(table["data"], table["targets"], strict=True):
                yield str(name), int(label)
        else:
            for line in text.decode().splitlines():
                # at the last space: names of files may hold others
                name, _, label = line.rpartition(" ")
                yield name, int(label)
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"list {str(path)!r} is not understood ({error})", "fetch it again") from error


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
    paths = _table(data, folder / "images.txt")
    labels = _table(data, folder / "image_class_labels.txt")
    training = _table(data, folder / "train_test_split.txt")
    if not paths.keys() == labels.keys() == training.keys():
        raise DataError(
            f"{data.title}: the tables in {str(folder)!r} number other images", "extract it again"
        )
    splits: dict[str, list[Item]] = {"train": [], "test": []}
    for number, name in paths.items():
        # CUB counts its classes from 1
        item = Item(path=folder / "images" / name, id=name, label=int(labels[number]) - 1)
        split = "train" if training[number] == "1" else "test"
        splits[split].append(item)
    lost = _missing(splits)
    if lost:
        raise DataError(
            f"{data.title}: {len(lost)} of {len(paths)} images are not in {str(folder / 'images')!r}, first "
            f"{lost[:_NAMED]!r}",
            "extract the archive again",
        )
    return Listing(splits=splits, class_names=_names(data, splits))


def _table(data: DataSet, path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{data.title}: cannot read {str(path)!r}",
            f"expected {data.layout}, see `lw2g data get {data.name}`",
        ) from error
    table = {}
    for line in lines:
        number, _, value = line.strip().partition(" ")
        if value:
            table[number] = value.strip()
    return table
