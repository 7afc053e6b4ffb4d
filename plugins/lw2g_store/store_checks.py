"""The checks of a store: what its continuous integration runs on every change, without torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from lw2g.disk.sealed import sha256_of
from lw2g.errors import DataError, Lw2gError, counted, shown
from lw2g.registry.catalogue import Catalogue
from lw2g.results.verdicts import Verdict
from lw2g_store.badges import read_badges
from lw2g_store.layout import (
    BADGES,
    PROTOCOLS,
    RUN_FOLDER,
    packs_in,
    protocols_in,
    read_protocol,
    require_store,
)
from lw2g_store.packs import FILES, PREDICTED, Pack, examine

__all__ = ["check_store"]

_CHANGE = re.compile(r"[A-Z][0-9]{0,3}\t.+")
"""A line of ``git diff --name-status``: what was done, how alike two names of a file are, and its name."""


def check_store(store: Path, catalogue: Catalogue, changed: Iterable[str] | None = None) -> list[Verdict]:
    """Check a store, or a change of it.

    Args:
        store: Its folder.
        catalogue: Knows controls.
        changed: The lines of ``git diff --name-status``; None for the whole store.

    Returns:
        One result per run where all holds, else those that do not hold; protocols that cannot be read;
        the results of badges.

    Raises:
        DataError: There is no store, or a line is none of a change.
    """
    require_store(store)
    stored = list(packs_in(store))
    verdicts: list[Verdict] = []
    wanted = stored
    if changed is not None:
        verdicts, wanted = _path_rule(store, list(changed))
    # a file of a protocol is read once for all of its runs
    protocols: dict[str, Any] = {}
    alike = _alike(store, stored)
    for folder in wanted:
        verdicts += _run(store, folder, catalogue, protocols, alike)
    if changed is None:
        verdicts += _protocols(store)
        verdicts += _badges(store, stored)
    return verdicts


def _path_rule(store: Path, changed: list[str]) -> tuple[list[Verdict], list[str]]:
    """Return what breaks the rule that a change adds the files of one run alone; and that run's folder.

    A proposal of a run must not touch what it is checked by: tools, protocols, other runs.

    Raises:
        DataError: A line is none of a change.
    """
    for number, line in enumerate(changed, start=1):
        if _CHANGE.fullmatch(line.rstrip("\n")) is None:
            raise DataError(
                f"changed: line {number}, {shown(line)}, is no change of a file",
                "write the list by: git diff --no-renames --name-status BASE HEAD",
            )
    folders: set[str] = set()
    for line in changed:
        status, _, name = line.rstrip("\n").partition("\t")
        if status != "A":
            return _refused(f"{name[:200]!r} is changed or removed ({status[:5]}): files are only added")
        if not _is_file_of_a_run(name):
            return _refused(
                f"{name[:200]!r} is no file of a run; protocols, badges and tools are the maintainers'"
            )
        folders.add(str(PurePosixPath(name).parent))
    if len(folders) != 1:
        return _refused(f"{len(folders)} runs at once, not one")
    # a link among the parents would let the files come from anywhere
    path = store
    for part in next(iter(folders)).split("/"):
        path = path / part
        if path.is_symlink():
            return _refused(f"{path.name[:100]!r} is a link")
    return [], sorted(folders)


def _refused(text: str) -> tuple[list[Verdict], list[str]]:
    return [Verdict(what="paths", holds=False, text=text)], []


def _is_file_of_a_run(name: str) -> bool:
    path = PurePosixPath(name)
    if str(path) != name:  # "a//b" and "./a" are other names of a file, and none is ever written
        return False
    return path.name in FILES and RUN_FOLDER.fullmatch(str(path.parent)) is not None


def _alike(store: Path, stored: Iterable[str]) -> dict[str, list[str]]:
    """Return the folders of runs by the checksum of their predictions."""
    folders: dict[str, list[str]] = {}
    for folder in stored:
        path = store / folder / PREDICTED
        if not path.is_symlink() and (checksum := sha256_of(path)) is not None:
            folders.setdefault(checksum, []).append(folder)
    return folders


def _run(
    store: Path,
    folder: str,
    catalogue: Catalogue,
    protocols: dict[str, Any],
    alike: Mapping[str, Sequence[str]],
) -> Iterator[Verdict]:
    """Yield the failed checks of a run, or one passing verdict."""
    fits = RUN_FOLDER.fullmatch(folder)
    if fits is None:
        yield Verdict(what=folder[:300], holds=False, text="paths: no folder of a run")
        return
    name = fits["protocol"]
    try:
        if name not in protocols:
            protocols[name] = read_protocol(store, name)
        verdicts, pack = examine(store / folder, catalogue, protocols[name])
    except Lw2gError as error:
        yield Verdict(what=folder, holds=False, text=f"protocol: {error}")
        return
    broken = [verdict for verdict in verdicts if verdict.holds is False]
    if pack is not None and not broken:
        # the folder's name is what readers and links go by, and only here it meets what the pack says
        for what, written, place in (
            ("method", pack.submission["method"], fits["method"]),
            ("record", pack.record["sha256"][:12], fits["sha"]),
        ):
            if written != place:
                text = f"{what} {written!r} lies in {place!r}"
                broken.append(Verdict(what="paths", holds=False, text=text))
    for verdict in broken:
        yield Verdict(what=folder, holds=False, text=f"{verdict.what}: {verdict.text}")
    if not broken and pack is not None:
        same = [other for other in alike.get(pack.record["files"][PREDICTED], ()) if other != folder]
        yield Verdict(what=folder, holds=True, text=_summary(pack, same))


def _summary(pack: Pack, same: Sequence[str]) -> str:
    """Return what a maintainer wants to know of a run that holds, in one line."""
    text = f"recomputed: FAA {pack.record['metrics']['faa']:.2f}, seed {pack.record['seed']}"
    shared = pack.record.get("shared_images")
    if shared and shared["count"]:
        text += f"; test images that are training images, too: {shared['count']} of {shared['tested']}"
    if same:
        # no evidence of a copy: the same run made again gives the same bits, and a perfect one has no others
        text += f"; the same predictions as {counted(len(same), 'other run')}, among them {same[0][:300]}"
    if plugin := pack.submission.get("plugin"):
        text += f"; plugin {plugin}"
    return text


def _protocols(store: Path) -> Iterator[Verdict]:
    """Yield the protocols that cannot be read."""
    for name in protocols_in(store):
        try:
            read_protocol(store, name)
        except Lw2gError as error:
            yield Verdict(what=f"{PROTOCOLS}/{name[:200]}", holds=False, text=str(error))


def _badges(store: Path, stored: list[str]) -> Iterator[Verdict]:
    """Yield a verdict for each file of badges: it can be read, and its run is stored."""
    known = {folder.rsplit("/", 1)[-1] for folder in stored}
    for path in sorted((store / BADGES).glob("*.json")):
        what = f"{BADGES}/{path.name[:80]}"
        try:
            badges = read_badges(path)
        except Lw2gError as error:
            yield Verdict(what=what, holds=False, text=str(error))
            continue
        if path.stem in known:
            yield Verdict(what=what, holds=True, text=counted(len(badges), "badge"))
        else:
            yield Verdict(what=what, holds=False, text="badge of a run that is not stored")
