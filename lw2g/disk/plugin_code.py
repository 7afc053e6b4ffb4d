"""Which code of strangers' plugins a run has had: the version of a distribution, and a hash of its files.

The name of a sweep's cell is a hash of settings alone, and a folder that is installed keeps its version while
somebody works on it: only the hash of its Python files tells that a run would give other numbers now.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

from lw2g.disk.origins import ComponentOrigin, noted_origins
from lw2g.errors import counted
from lw2g.registry.markers import PROJECT

__all__ = ["CodeNow", "changed_code", "code_among", "code_now", "code_with", "is_of_several", "mixed_code"]

CodeNow = Callable[[str], str | None]
"""Returns the code of an installed distribution, as :func:`code_now` does."""


def code_now(distribution: str) -> str | None:
    """Return version and hash of an installed distribution, such as ``0.1.0 3f2a9c01``; None: it is not here.

    Where its modules are no files, it is the version alone.
    """
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    modules = [entry_point.module for entry_point in found.entry_points.select(group=PROJECT)]
    packages = {module.partition(".")[0] for module in modules}
    digest = hashlib.sha256()
    is_empty = True
    for package in sorted(packages):
        for name, content in _sources(package):
            digest.update(f"{package}/{name} {len(content)}\n".encode() + content)
            is_empty = False
    return found.version if is_empty else f"{found.version} {digest.hexdigest()[:8]}"


def _sources(package: str) -> Iterator[tuple[str, bytes]]:
    """Yield the Python files of a package, or of a module, by their names in it."""
    spec = find_spec(package)
    if spec is None:
        return
    for folder in map(Path, spec.submodule_search_locations or ()):
        for path in sorted(folder.rglob("*.py")):
            if path.is_file():  # an editor leaves links that lead nowhere
                yield path.relative_to(folder).as_posix(), path.read_bytes()
    if not spec.submodule_search_locations and spec.origin and Path(spec.origin).is_file():
        yield "", Path(spec.origin).read_bytes()


def _code_of(directory: Path) -> dict[str, list[str]]:
    """Return what a run has had of each stranger's distribution, one after the other.

    Of a run of an older lw2g it is the version alone.
    """
    noted = noted_origins(directory)
    code = {}
    for name, version in _strangers(noted.components).items():
        code[name] = list(noted.code.get(name, [version]))
    return code


def _strangers(origins: Iterable[ComponentOrigin]) -> dict[str, str]:
    """Return the distributions, with their versions, that a run's numbers may depend on: no tracker's."""
    versions = {}
    for origin in origins:
        if origin.kind != "tracker" and origin.distribution not in (None, PROJECT):
            versions[str(origin.distribution)] = str(origin.version)
    return versions


def code_with(directory: Path | None, origins: Iterable[ComponentOrigin]) -> dict[str, list[str]]:
    """Return what a run has had once it goes on with what is installed now.

    Args:
        directory: The run; None where it has learned nothing yet.
        origins: Who offers its components now.
    """
    code = {} if directory is None else _code_of(directory)
    for name in _strangers(origins):
        now = code_now(name)
        had = code.setdefault(name, [])
        if now is not None and had[-1:] != [now]:
            had.append(now)
    return code


def changed_code(directory: Path, now: CodeNow = code_now) -> list[str]:
    """Return in which distributions a run has had other versions or other code than are installed now."""
    changes: dict[str, None] = {}
    for name, had in _code_of(directory).items():
        installed = now(name)
        if installed is None:
            continue
        version = installed.partition(" ")[0]
        for one in had:
            before = one.partition(" ")[0]
            if before != version:
                changes[f"{name}: {before} then, {version} now"] = None
            elif _differ(one, installed):
                changes[f"{name} {version}: other code then"] = None
    return list(changes)


def _differ(one: str, other: str) -> bool:
    """Whether two of a distribution differ; where one has no hash, the versions decide."""
    if " " in one and " " in other:
        return one != other
    return one.partition(" ")[0] != other.partition(" ")[0]


def code_among(runs: Iterable[Path]) -> Mapping[str, Mapping[tuple[str, ...], int]]:
    """Return what runs have had of each stranger's distribution: how many runs had just these, sorted."""
    counts: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for run in runs:
        for name, had in _code_of(run).items():
            counts[name][tuple(sorted(set(had)))] += 1
    return counts


def mixed_code(runs: Iterable[Path]) -> list[str]:
    """Return by which code how many runs were learned, of each distribution of which they had several."""
    told = []
    for name, counts in code_among(runs).items():
        if is_of_several(counts):
            (first, number), *further = ((" and ".join(had), number) for had, number in counts.items())
            others = (f"{number} by {code}" for code, number in further)
            told.append(", ".join([f"{name}: {counted(number, 'run')} learned by {first}", *others]))
    return told


def is_of_several(of_runs: Iterable[Iterable[str]]) -> bool:
    """Whether two differ among what runs have had of a distribution; one run may have had both."""
    every = {code for had in of_runs for code in had}
    return any(_differ(one, other) for one, other in combinations(every, 2))
