"""The facts of a published data set: where it comes from, its terms, its splits and its checksums.

A benchmark reads its images by these records, and ``lw2g data`` lists, fetches and checks data by them. A
fact that nobody has confirmed is left out (None or empty) and named in ``unconfirmed``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from lw2g.errors import PluginError
from lw2g.ground.spelling import expanded
from lw2g.interfaces.tables import make_record

__all__ = [
    "ROOT_VARIABLE",
    "ByHand",
    "DataSet",
    "FileRoute",
    "HubRoute",
    "Reader",
    "RemoteFile",
    "Route",
    "Split",
    "TorchvisionRoute",
    "default_root",
]

ROOT_VARIABLE = "LW2G_DATA"
"""The environment variable that names the folder of all data sets."""

DEFAULT_ROOT = "~/lw2g-data"
"""That folder where the variable is not set."""


def default_root() -> Path:
    """Return the folder of all data sets: what the environment variable names, else ``~/lw2g-data``."""
    return expanded(os.environ.get(ROOT_VARIABLE) or DEFAULT_ROOT).absolute()


Reader: TypeAlias = Literal["arrays", "folders", "lists", "random", "index"]

_CHECKSUM = attrs.validators.optional(attrs.validators.matches_re(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}"))
_FILE_NAME = attrs.validators.matches_re(r"[\w][\w.-]*")


@attrs.frozen(kw_only=True)
class RemoteFile:
    """A file to download.

    Attributes:
        name: Its name on disk.
        url: Its address.
        checksum: ``"md5:..."`` or ``"sha256:..."``; None if nobody published one.
    """

    name: str = attrs.field(validator=_FILE_NAME)
    url: str
    checksum: str | None = attrs.field(default=None, validator=_CHECKSUM)


@attrs.frozen(kw_only=True)
class TorchvisionRoute:
    """A data set that torchvision downloads, given the names of its data-set classes."""

    classes: tuple[str, ...]

    def __str__(self) -> str:
        return f"torchvision ({', '.join(self.classes)})"


@attrs.frozen(kw_only=True)
class FileRoute:
    """An archive at an address."""

    file: RemoteFile

    def __str__(self) -> str:
        return self.file.url


@attrs.frozen(kw_only=True)
class HubRoute:
    """A data set of the Hugging Face hub.

    Attributes:
        repo: The data set's id.
        revision: The pinned commit; None if none is confirmed, and the user has to name one.
        form: ``archive`` (one file), ``tree`` (a folder of files) or ``parquet`` (one image per row).
        file: Name of the archive; for a tree the glob pattern of the files to fetch.
        checksum: Checksum of the archive.
        splits: Parquet: split of the hub -> folder that it is written to.
        image: Parquet: accepted names of the column of images.
        label: Parquet: accepted names of the column of class numbers.
    """

    repo: str
    revision: str | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.matches_re(r"[0-9a-f]{40}"))
    )
    form: Literal["archive", "tree", "parquet"] = "archive"
    file: str = "*"
    checksum: str | None = attrs.field(default=None, validator=_CHECKSUM)
    splits: Mapping[str, str] = attrs.field(factory=lambda: {"train": "train", "test": "test"})
    image: tuple[str, ...] = ("image", "img")
    label: tuple[str, ...] = ("label",)

    def __str__(self) -> str:
        return f"hub data set {self.repo} at {self.revision or 'no confirmed revision'} ({self.form})"


@attrs.frozen(kw_only=True)
class ByHand:
    """An archive that the user fetches with a browser and passes to ``lw2g data get NAME --from``.

    Attributes:
        where: The page or link, in words.
        checksum: Checksum of the archive.
    """

    where: str
    checksum: str | None = attrs.field(default=None, validator=_CHECKSUM)

    def __str__(self) -> str:
        return f"by hand: {self.where}"


Route: TypeAlias = TorchvisionRoute | HubRoute | FileRoute | ByHand

_ROUTES: Mapping[str, type[Route]] = {
    "classes": TorchvisionRoute,
    "repo": HubRoute,
    "where": ByHand,
    # this key is tried last: a route to the hub names a file, too
    "file": FileRoute,
}
"""The kind of a route by the key that it must have."""


@attrs.frozen(kw_only=True)
class Split:
    """A split of a data set into training and test images.

    Attributes:
        reader: How it is read: ``arrays`` (containers of torchvision), ``folders`` (``train/CLASS/*``,
            ``test/CLASS/*``), ``random`` (four fifths of the sorted files), ``lists`` (files of paths and
            labels) or ``index`` (CUB's numbered tables).
        train: Number of training images; None if unconfirmed.
        test: Number of test images; None if unconfirmed.
        train_sha256: SHA-256 of the sorted relative paths joined by line feeds; empty if unknown.
        test_sha256: The same for test images.
        test_sizes: Numbers of test images in equal, consecutive groups of classes; empty if unknown.
        test_order: Seed of the class order in which ``test_sizes`` counts; None for the natural order.
        train_lists: ``lists``: the files that list training images.
        test_lists: ``lists``: the files that list test images.
    """

    reader: Reader
    train: int | None = None
    test: int | None = None
    train_sha256: str = ""
    test_sha256: str = ""
    test_sizes: tuple[int, ...] = ()
    test_order: int | None = None
    train_lists: tuple[RemoteFile, ...] = ()
    test_lists: tuple[RemoteFile, ...] = ()


@attrs.frozen(kw_only=True)
class DataSet:
    """The facts of one data set.

    Attributes:
        name: Name of its benchmark.
        title: The data set's usual name.
        num_classes: Number of classes.
        folder: Its folder below the root.
        layout: What that folder holds, in one line.
        splits: Splits by name, the default first; ``random`` stands for every ``random:<seed>``.
        page: Web page of its publisher.
        terms: Terms of use, as far as known.
        rehosting_forbidden: Whether the terms forbid redistribution.
        size: Size of the download in words; empty if unknown.
        routes: Sources of the data, best first.
        domains: The folders with which the paths in its lists begin, in order, where these are domains.
        beside: Archives that are needed in addition, each with a folder of its own below the root.
        renamed: Names of folders in its archives, and what they are called when they are unpacked.
        flaws: Known errors in the data.
        unconfirmed: Facts that are missing or rest on a single source.
    """

    name: str
    title: str
    num_classes: int
    folder: str
    layout: str
    splits: Mapping[str, Split]
    page: str
    terms: str
    rehosting_forbidden: bool = False
    size: str = ""
    routes: tuple[Route, ...]
    domains: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    beside: tuple[RemoteFile, ...] = ()
    renamed: Mapping[str, str] = attrs.field(factory=dict)
    flaws: str = ""
    unconfirmed: tuple[str, ...] = ()

    @classmethod
    def from_table(cls, name: str, table: Mapping[str, Any], where: str) -> DataSet:
        """Return the facts that a table of a plugin's TOML file states (:func:`read_table`).

        A route is of the kind whose key it has: ``classes`` (torchvision), ``repo`` (the hub), ``where`` (by
        hand) or ``file`` (an address).

        Args:
            name: Name of the benchmark.
            table: The facts, by the names of the fields.
            where: File and key of the table, for messages.

        Raises:
            PluginError: A fact is unknown, missing or of another type.
        """
        splits = {}
        for key, split in table["splits"].items():
            place = f"{where}.splits.{key}"
            splits[key] = make_record(
                Split,
                split,
                place,
                train_lists=_files(split, "train_lists", place),
                test_lists=_files(split, "test_lists", place),
            )
        routes = [_route(route, f"{where}.routes") for route in table["routes"]]
        beside = _files(table, "beside", where)
        return make_record(cls, table, where, name=name, splits=splits, routes=tuple(routes), beside=beside)

    def split(self, name: str) -> Split:
        """Return the split of a name, which may be ``random:<seed>``.

        Raises:
            ValueError: There is no such split.
        """
        kind, _, seed = name.partition(":")
        # 20 digits are enough to see that a number is no int64, and Python refuses to parse thousands
        seeded = kind == "random" and seed.isdecimal() and int(seed[:20]) < 2**63
        key = name
        if seeded and name not in self.splits:
            key = "random"
        if key not in self.splits or name == "random":
            raise ValueError(f"expected one of {', '.join(self.split_names())} but got {name!r}")
        return self.splits[key]

    @property
    def direct(self) -> bool:
        """Whether one command fetches it, without a browser or a commit that the user has to name."""
        for route in self.routes:
            by_hand = isinstance(route, ByHand)
            # without a confirmed commit the hub may hold anything
            unpinned = isinstance(route, HubRoute) and route.revision is None
            if not by_hand and not unpinned:
                return True
        return False

    def lies_below(self, root: Path) -> bool:
        """Return whether the data set's folder exists below a root."""
        return (root / self.folder).is_dir()

    def split_names(self) -> tuple[str, ...]:
        """Return the names a user can choose from."""
        return tuple("random:<seed>" if name == "random" else name for name in self.splits)

    def lists(self) -> tuple[RemoteFile, ...]:
        """Return the list files of all splits."""
        return tuple(file for split in self.splits.values() for file in split.train_lists + split.test_lists)


def _files(table: Mapping[str, Any], key: str, where: str) -> tuple[RemoteFile, ...]:
    return tuple(make_record(RemoteFile, file, f"{where}.{key}") for file in table.get(key, ()))


def _route(table: Mapping[str, Any], where: str) -> Route:
    """Return the way to get a data set that a table describes; its key tells which one."""
    for key, kind in _ROUTES.items():
        if key not in table:
            continue
        if kind is FileRoute:  # the one whose field is a record of its own
            return FileRoute(file=make_record(RemoteFile, table["file"], f"{where}.file"))
        return make_record(kind, table, where)
    raise PluginError(f"{where}: expected one of the keys {', '.join(_ROUTES)}", "correct the file")
