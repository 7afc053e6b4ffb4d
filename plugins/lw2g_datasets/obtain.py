"""Fetches a published data set by the first of its routes that works.

Complete files are not fetched again; incomplete ones are continued or replaced. The libraries of routes
(torchvision, the hub's client and pyarrow) are imported only when used.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lw2g.config.directory import require_outside
from lw2g.errors import ConfigError, DataError
from lw2g.ground.spelling import expanded
from lw2g.interfaces.dataset import ByHand, DataSet, FileRoute, HubRoute, RemoteFile, Route, TorchvisionRoute
from lw2g_datasets.archive import extract, put_in_place
from lw2g_datasets.download import Report, checksum_of, download, matches
from lw2g_datasets.parquet import export

__all__ = ["obtain"]

LISTS = "splits"
"""The folder, below the root, of files that list splits."""

Say = Callable[[str], None]


def obtain(
    data: DataSet,
    root: Path,
    report: Report,
    say: Say,
    *,
    source: str | None = None,
    revision: str | None = None,
) -> None:
    """Fetch a data set below ``root``: its images into their own folder, its lists into ``splits``.

    Args:
        data: The data set.
        root: The folder of all data sets; created if missing.
        report: Receives the progress.
        say: Receives notes for the user, such as a failed route or an unconfirmed checksum.
        source: An archive (path or address) or a folder to use instead of the routes.
        revision: The commit of a hub data set without a confirmed one.

    Raises:
        ConfigError: A library or a commit is missing.
        DataError: No route works; the message says how to proceed.
    """
    root.mkdir(parents=True, exist_ok=True)
    for file in data.lists():
        try:
            _fetched(file, root / LISTS, report, say)
        except DataError as error:  # the images are useful without the list
            say(f"{error}")
    for file in data.beside:
        target = root / Path(file.name).stem
        if not target.exists():
            _unpack(_fetched(file, root, report, say), target, report)
    target = root / data.folder
    from_torchvision = any(isinstance(route, TorchvisionRoute) for route in data.routes)
    if data.folder and target.exists() and not from_torchvision:
        say(f"{str(target)!r} exists already; `lw2g data check {data.name}` examines it")
    elif source is not None:
        _from_source(data, root, source, report, say)
    else:
        _by_routes(data, root, report, say, revision)


def _fetched(file: RemoteFile, folder: Path, report: Report, say: Say) -> Path:
    path = download(file, folder, report)
    if file.checksum is None:
        say(f"{file.name} has {checksum_of(path, 'sha256')}, which nobody has confirmed")
    return path


def _unpack(
    archive: Path, target: Path, report: Report, least: int = 0, renamed: Mapping[str, str] | None = None
) -> None:
    extract(archive, target, report, least, renamed)
    archive.unlink()


def _published(data: DataSet) -> int:
    """Return the smallest number of image files of the data set; 0 if its counts are unknown."""
    counts = []
    for split in data.splits.values():
        if split.reader == "arrays":  # of few files, whatever the number of images
            continue
        if split.train is not None and split.test is not None:
            counts.append(split.train + split.test)
    return min(counts, default=0)


def _by_routes(data: DataSet, root: Path, report: Report, say: Say, revision: str | None) -> None:
    """Fetch a data set by the first of its routes that leads there."""
    why = f"{data.title} has no direct download"
    routes = [route for route in data.routes if not isinstance(route, ByHand)]
    for route in routes:
        try:
            _by_route(data, route, root, report, say, revision)
            return
        except (DataError, ConfigError) as error:
            why = f"{data.title} could not be fetched ({error})"
            if route is not routes[-1]:  # of the last one the error tells
                say(f"{route}: {error}")
    remedy = "name an archive of yours with --from"
    pages = list(_pages(data))
    if pages:
        remedy = f"fetch {' or '.join(pages)} with a browser, then `lw2g data get {data.name} --from FILE`"
    raise DataError(why, remedy)


def _pages(data: DataSet) -> Iterator[str]:
    """Yield the web pages from which the data set must be downloaded in a browser, with its checksum."""
    for route in data.routes:
        if isinstance(route, ByHand) and route.checksum:
            yield f"{route.where} ({route.checksum})"
        elif isinstance(route, ByHand):
            yield route.where


def _by_route(
    data: DataSet, route: Route, root: Path, report: Report, say: Say, revision: str | None
) -> None:
    """Fetch a data set by one route."""
    match route:
        case TorchvisionRoute():
            _from_torchvision(route, root, report)
        case FileRoute():
            archive = _fetched(route.file, root, report, say)
            _unpack(archive, root / data.folder, report, _published(data), data.renamed)
        case HubRoute():
            _from_hub(data, route, root, report, revision)
            default = next(iter(data.splits))
            if route.form != "archive" and data.splits[default].reader != "folders":
                say(f"the hub has class folders, not the split {default!r}; set benchmark.split=folders")


def _from_source(data: DataSet, root: Path, source: str, report: Report, say: Say) -> None:
    """Unpack an archive or copy a folder that the user names; local files stay in place."""
    folder = expanded(source)
    if folder.is_dir():
        require_outside(root / data.folder, folder)
        with put_in_place(root / data.folder) as place:
            shutil.copytree(folder, place, dirs_exist_ok=True)
        return
    is_remote = re.match(r"https?://", source) is not None
    if is_remote:
        archive = download(RemoteFile(name=_name_of(source), url=source), root, report)
    else:
        archive = folder
        if not archive.is_file():
            raise DataError(f"no archive {str(archive)!r}", "name a file, a folder, or an http address")
    try:
        say(_confirmed(data, archive))
    except DataError:
        if is_remote:  # a file of the user's own stays where it is
            archive.unlink()
        raise
    extract(archive, root / data.folder, report, _published(data), data.renamed)
    if is_remote:
        archive.unlink()


def _name_of(address: str) -> str:
    """Return the file name that an address ends in, with letters that every file system takes."""
    last = address.split("?")[0].rstrip("/").rpartition("/")[2]
    return re.sub(r"[^\w.-]+", "_", last).lstrip(".") or "archive"


def _confirmed(data: DataSet, archive: Path) -> str:
    """Return whether an archive is known to be the published one, in words.

    Raises:
        DataError: It is known not to be.
    """
    checksums = set(_checksums(data))
    published = sorted(checksum for checksum in checksums if checksum is not None)
    for checksum in published:
        if matches(archive, checksum):
            return f"{archive.name} is the published file ({checksum})"
    if None in checksums or not published:  # nobody has a checksum of one of the routes, or none has archives
        return f"{archive.name} has {checksum_of(archive, 'sha256')}, which nobody has confirmed"
    raise DataError(
        f"{str(archive)!r} is not the published archive of {data.title}: expected "
        f"{' or '.join(filter(None, published))} but got {checksum_of(archive, 'md5')}",
        "fetch it again",
    )


def _checksums(data: DataSet) -> Iterator[str | None]:
    """Yield the checksums of all archives; None for an unknown one."""
    for route in data.routes:
        match route:
            case ByHand():
                yield route.checksum
            case FileRoute():
                yield route.file.checksum
            case HubRoute(form="archive"):
                yield route.checksum


def _from_torchvision(route: TorchvisionRoute, root: Path, report: Report) -> None:
    """Fetch torchvision's files, continuing broken downloads, and let torchvision check and unpack them."""
    import torchvision.datasets

    for name in route.classes:
        kind = getattr(torchvision.datasets, name)
        if _is_whole(kind, name, root):
            continue
        for folder, urls, file, md5 in _torchvision_files(kind):
            _first_of(urls, RemoteFile(name=file, url="", checksum=f"md5:{md5}"), root / folder, report)
        try:
            _opened(kind, name, root, download=True)
        except (RuntimeError, OSError) as error:
            reason = str(error).split("\n")[0]
            raise DataError(f"torchvision cannot use {name} ({reason})", "run the command again") from error


def _is_whole(kind: Any, name: str, root: Path) -> bool:
    try:
        _opened(kind, name, root, download=False)
    except (RuntimeError, OSError):  # torchvision raises these for missing and altered files
        return False
    return True


def _opened(kind: Any, name: str, root: Path, *, download: bool) -> None:
    for split in ("train", "test"):
        if name == "SVHN":
            kind(str(root), split=split, download=download)
        else:
            kind(str(root), train=split == "train", download=download)


def _first_of(urls: list[str], file: RemoteFile, folder: Path, report: Report) -> None:
    """Download a file from the first of its addresses that works."""
    for url in urls:
        try:
            download(RemoteFile(name=file.name, url=url, checksum=file.checksum), folder, report)
            return
        except DataError:
            if url == urls[-1]:  # the others are mirrors of the same file
                raise


def _torchvision_files(kind: Any) -> Iterator[tuple[str, list[str], str, str]]:
    """Yield folder, addresses, name and MD5 checksum of the files of a torchvision data set."""
    if hasattr(kind, "tgz_md5"):  # CIFAR
        yield "", [kind.url], kind.filename, kind.tgz_md5
    elif hasattr(kind, "split_list"):  # SVHN
        for split in ("train", "test"):
            url, file, md5 = kind.split_list[split]
            yield "", [url], file, md5
    else:  # MNIST and its like
        for file, md5 in kind.resources:
            yield f"{kind.__name__}/raw", [f"{mirror}{file}" for mirror in kind.mirrors], file, md5


def _from_hub(data: DataSet, route: HubRoute, root: Path, report: Report, revision: str | None) -> None:
    """Fetch files of the hub with its own client through a temporary folder."""
    pinned = route.revision or revision
    if pinned is None or re.fullmatch(r"[0-9a-f]{40}", pinned) is None:
        raise ConfigError(
            f"revision {pinned!r} of the hub data set {route.repo!r} does not pin it",
            "look up a commit of 40 digits on its page (none is confirmed) and name it with --revision",
        )
    kept = root / f".{data.folder}.hub"
    files = _hub_files(route, pinned, kept)
    if route.form == "archive":
        if route.checksum is not None and not matches(files, route.checksum):
            files.unlink()
            raise DataError(
                f"{route.file} of {route.repo} is not {route.checksum}", "it was deleted, try again"
            )
        extract(files, root / data.folder, report, _published(data))
    else:
        with put_in_place(root / data.folder, _published(data)) as place:
            if route.form == "parquet":
                export(list(kept.rglob("*.parquet")), route, place, data.num_classes, report)
            else:
                for path in kept.iterdir():
                    if not path.name.startswith("."):
                        shutil.move(path, place / path.name)
    shutil.rmtree(kept)


def _hub_files(route: HubRoute, revision: str, folder: Path) -> Path:
    """Fetch the files of a data set from the hub, and return where they lie: an archive, or a folder."""
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        if route.form == "archive":
            path = hf_hub_download(
                route.repo, route.file, repo_type="dataset", revision=revision, local_dir=folder
            )
            return Path(path)
        patterns: str | list[str] = route.file  # "tree": a pattern of paths
        if route.form == "parquet":  # without the splits that nobody asked for
            patterns = [f"*{split}-*.parquet" for split in route.splits]
        return Path(
            snapshot_download(
                route.repo, repo_type="dataset", revision=revision, local_dir=folder, allow_patterns=patterns
            )
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise DataError(
            f"the hub does not give {route.repo} ({reason})",
            "run the command again, or name an archive with --from",
        ) from error
