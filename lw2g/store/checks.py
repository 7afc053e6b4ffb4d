"""The checks of a store: what its continuous integration runs on every change, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from lw2g.errors import Lw2gError, counted
from lw2g.registry.catalogue import Catalogue
from lw2g.results.verdicts import Verdict
from lw2g.store.badges import read_badges
from lw2g.store.layout import (
    BADGES,
    PROTOCOLS,
    RUN_FOLDER,
    packs_in,
    protocols_in,
    read_protocol,
    require_store,
)
from lw2g.store.packs import FILES, examine

__all__ = ["check_store"]


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
        DataError: There is no store.
    """
    require_store(store)
    stored = list(packs_in(store))
    verdicts: list[Verdict] = []
    wanted = stored
    if changed is not None:
        verdicts, wanted = _path_rule(store, list(changed))
    protocols: dict[str, Any] = {}
    for folder in wanted:
        verdicts += _run(store, folder, catalogue, protocols)
    if changed is None:
        verdicts += _protocols(store)
        verdicts += _badges(store, stored)
    return verdicts


def _path_rule(store: Path, changed: list[str]) -> tuple[list[Verdict], list[str]]:
    """Return what breaks the rule that a change adds the files of one run alone; and that run's folder."""
    folders: set[str] = set()
    for line in changed:
        status, _, name = line.rstrip("\n").partition("\t")
        path = PurePosixPath(name)
        if status != "A":
            text = f"{name[:200]!r} is changed or removed ({status[:5]}): files are only added"
        elif not RUN_FOLDER.fullmatch(str(path.parent)) or path.name not in FILES or str(path) != name:
            text = f"{name[:200]!r} is no file of a run; protocols, badges and tools are the maintainers'"
        else:
            folders.add(str(path.parent))
            continue
        return [Verdict(what="paths", holds=False, text=text)], []
    if len(folders) != 1:
        return [Verdict(what="paths", holds=False, text=f"{len(folders)} runs at once, not one")], []
    inside = [store / folder for folder in _parents(next(iter(folders)))]
    if link := next((path for path in inside if path.is_symlink()), None):
        return [Verdict(what="paths", holds=False, text=f"{link.name[:100]!r} is a link")], []
    return [], sorted(folders)


def _parents(folder: str) -> list[str]:
    parts = folder.split("/")
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def _run(store: Path, folder: str, catalogue: Catalogue, protocols: dict[str, Any]) -> Iterator[Verdict]:
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
        for what, written, place in (
            ("method", pack.submission["method"], fits["method"]),
            ("record", pack.record["sha256"][:12], fits["sha"]),
        ):
            if written != place:
                broken.append(
                    Verdict(what="paths", holds=False, text=f"{what} {written!r} lies in {place!r}")
                )
    for verdict in broken:
        yield Verdict(what=folder, holds=False, text=f"{verdict.what}: {verdict.text}")
    if not broken and pack is not None:
        faa, shared = pack.record["metrics"]["faa"], pack.record.get("shared_images")
        text = f"recomputed: FAA {faa:.2f}, seed {pack.record['seed']}"
        if shared and shared["count"]:
            text += f"; test images that are training images, too: {shared['count']} of {shared['tested']}"
        if plugin := pack.submission.get("plugin"):
            text += f"; plugin {plugin}"
        yield Verdict(what=folder, holds=True, text=text)


def _protocols(store: Path) -> Iterator[Verdict]:
    """Yield the protocols that cannot be read."""
    for name in protocols_in(store):
        try:
            read_protocol(store, name)
        except Lw2gError as error:
            yield Verdict(what=f"{PROTOCOLS}/{name[:200]}", holds=False, text=str(error))


def _badges(store: Path, stored: list[str]) -> Iterator[Verdict]:
    known = {folder.rsplit("/", 1)[-1] for folder in stored}
    for path in sorted((store / BADGES).glob("*.json")):
        what = f"{BADGES}/{path.name[:80]}"
        try:
            count = len(read_badges(path))
            holds, text = path.stem in known, counted(count, "badge")
            if not holds:
                text = "badge of a run that is not stored"
        except Lw2gError as error:
            holds, text = False, str(error)
        yield Verdict(what=what, holds=holds, text=text)
