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

from lw2g.data.archive import extract, put_in_place
from lw2g.data.download import Report, checksum_of, download, matches
from lw2g.data.parquet import export
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.dataset import ByHand, DataSet, FileRoute, HubRoute, RemoteFile, Route, TorchvisionRoute

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
    counts = [
        split.train + split.test
        for split in data.splits.values()
        if split.train is not None and split.test is not None and split.reader != "arrays"
    ]
    return min(counts, default=0)


def _by_routes(data: DataSet, root: Path, report: Report, say: Say, revision: str | None) -> None:
    failed: list[str] = []
    for route in data.routes:
        if isinstance(route, ByHand):
            continue
        try:
            _by_route(data, route, root, report, say, revision)
            return
        except (DataError, ConfigError) as error:
            failed.append(str(error))
            say(f"{route}: {error}")
    hands = [
        f"{route.where} ({route.checksum})" if route.checksum else route.where
        for route in data.routes
        if isinstance(route, ByHand)
    ]
    how = f"fetch {' or '.join(hands)} with a browser, then `lw2g data get {data.name} --from FILE`"
    why = (
        f"{data.title} could not be fetched ({failed[-1]})"
        if failed
        else f"{data.title} has no direct download"
    )
    raise DataError(why, how if hands else "name an archive of yours with --from")


def _by_route(
    data: DataSet, route: Route, root: Path, report: Report, say: Say, revision: str | None
) -> None:
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
    folder = Path(source).expanduser()
    if folder.is_dir():
        with put_in_place(root / data.folder) as place:
            shutil.copytree(folder, place, dirs_exist_ok=True)
        return
    checksums = set(_checksums(data))
    remote = re.match(r"https?://", source) is not None
    if remote:
        name = (
            re.sub(r"[^\w.-]+", "_", source.split("?")[0].rstrip("/").rpartition("/")[2]).lstrip(".")
            or "archive"
        )
        archive = download(RemoteFile(name=name, url=source), root, report)
    else:
        archive = folder
        if not archive.is_file():
            raise DataError(f"no archive {str(archive)!r}", "name a file, a folder, or an http address")
    fitting = next(
        (checksum for checksum in checksums if checksum is not None and matches(archive, checksum)), None
    )
    if fitting is not None:
        say(f"{archive.name} is the published file ({fitting})")
    elif None not in checksums:
        wanted, actual = (
            " or ".join(sorted(checksum for checksum in checksums if checksum)),
            checksum_of(archive, "md5"),
        )
        if remote:
            archive.unlink()
        raise DataError(
            f"{str(archive)!r} is not the published archive of {data.title}: expected {wanted} but got "
            f"{actual}",
            "fetch it again",
        )
    else:
        say(f"{archive.name} has {checksum_of(archive, 'sha256')}, which nobody has confirmed")
    extract(archive, root / data.folder, report, _published(data), data.renamed)
    if remote:
        archive.unlink()


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
        options: dict[str, Any] = {"split": split} if name == "SVHN" else {"train": split == "train"}
        kind(str(root), download=download, **options)


def _first_of(urls: list[str], file: RemoteFile, folder: Path, report: Report) -> None:
    for url in urls:
        try:
            download(RemoteFile(name=file.name, url=url, checksum=file.checksum), folder, report)
            return
        except DataError:
            if url == urls[-1]:
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
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        if route.form == "archive":
            path = hf_hub_download(
                route.repo, route.file, repo_type="dataset", revision=revision, local_dir=folder
            )
            return Path(path)
        patterns = (
            [f"*{split}-*.parquet" for split in route.splits] if route.form == "parquet" else route.file
        )
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
