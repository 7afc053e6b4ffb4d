"""The checks of a store: what its continuous integration runs on every change, without torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from lw2g.config.directory import RECORD
from lw2g.errors import Lw2gError
from lw2g.registry.catalogue import Catalogue
from lw2g.store.badges import read_badges
from lw2g.store.bounds import Integers, read_columns, read_json
from lw2g.store.layout import BADGES, RUN_FOLDER, packs_in, read_protocol, require_store
from lw2g.store.packs import FILES, PREDICTED, SUBMISSION, examine
from lw2g.training.files.verdicts import Verdict

__all__ = ["check_store", "values_beside"]

_NEAR = 0.995
"""The share of equal predictions from which two runs count as copies."""


def check_store(store: Path, catalogue: Catalogue, changed: Iterable[str] | None = None) -> list[Verdict]:
    """Check a store, or a change of it.

    Args:
        store: Its folder.
        catalogue: Knows controls.
        changed: The lines of ``git diff --name-status``; None for the whole store.

    Returns:
        One result per run where all holds, else those that do not hold, and the results of badges.

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
    failed = {verdict.what.partition(": ")[0] for verdict in verdicts if verdict.holds is False}
    verdicts += _copies(store, stored, [folder for folder in wanted if folder not in failed])
    if changed is None:
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
    """Yield what does not hold of a run, or that it holds."""
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
            text += f"; {shared['count']} of {shared['tested']} test images are training images, too"
        yield Verdict(what=folder, holds=True, text=text)


# -- copies ----------------------------------------------------------------------------------------------


def _copies(store: Path, stored: list[str], wanted: list[str]) -> Iterator[Verdict]:
    """Yield runs with the predictions of another one, unless they are a submitter's other seeds."""
    by_protocol: dict[str, list[str]] = defaultdict(list)
    for folder in stored:
        if (fits := RUN_FOLDER.fullmatch(folder)) is not None:
            by_protocol[fits["protocol"]].append(folder)
    new = set(wanted)
    for folders in by_protocol.values():
        if not new & set(folders):
            continue
        last = {folder: predicted for folder in folders if (predicted := _last(store / folder)) is not None}
        names = list(last)
        for first, folder in enumerate(names):
            before = names[:first]
            # of two new runs the later one is named, of a new and an old one the new
            for other in before if folder in new else [name for name in before if name in new]:
                if last[folder].shape != last[other].shape:
                    continue
                share = float(np.mean(last[folder] == last[other]))
                if share >= _NEAR and not _own(store / folder, store / other, alike=share == 1):
                    named, copied = (folder, other) if folder in new else (other, folder)
                    text = f"duplicates: {100 * share:.1f} % of the predictions are those of {copied}"
                    yield Verdict(what=named, holds=False, text=text)


def _last(folder: Path) -> Integers | None:
    """Return the predictions of a run after its last task; None where they cannot be read."""
    try:
        columns = read_columns(folder / PREDICTED)
        return columns["predicted"][-len(columns["true"]) :]
    except (Lw2gError, OSError, KeyError):
        return None


def _own(one: Path, other: Path, *, alike: bool) -> bool:
    """Whether two runs are a submitter's own: of two seeds (some methods draw nothing), or of two options.

    Of two methods or options, equal predictions are a copy all the same. A correction, which names the record
    it replaces, may be alike too.
    """
    try:
        told = [read_json(folder / SUBMISSION) for folder in (one, other)]
        configs = [read_json(folder / RECORD)["config"] for folder in (one, other)]
        seeds = [config["run"]["seed"] for config in configs]
    except (Lw2gError, OSError, KeyError, TypeError):
        return False
    replaced = any(a.get("replaces") and a["replaces"] == b["record"] for a, b in (told, told[::-1]))
    seeded = one.parent == other.parent and (seeds[0] != seeds[1] or replaced)
    return bool(told[0]["who"] == told[1]["who"] and (seeded or (not alike and configs[0] != configs[1])))


def _badges(store: Path, stored: list[str]) -> Iterator[Verdict]:
    known = {folder.rsplit("/", 1)[-1] for folder in stored}
    for path in sorted((store / BADGES).glob("*.json")):
        what = f"{BADGES}/{path.name[:80]}"
        try:
            count = len(read_badges(path))
            holds, text = path.stem in known, f"{count} badges"
            if not holds:
                text = "badge of a run that is not stored"
        except Lw2gError as error:
            holds, text = False, str(error)
        yield Verdict(what=what, holds=holds, text=text)


def values_beside(pack: Path) -> list[float]:
    """Return the FAA of the stored runs in the folder of a run's method, its own among them."""
    values = []
    for path in sorted(pack.resolve().parent.glob(f"*/{RECORD}")):
        try:
            values.append(float(read_json(path)["metrics"]["faa"]))
        except (Lw2gError, KeyError, TypeError, ValueError):
            continue
    return values
