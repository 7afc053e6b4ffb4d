"""Models beside one that were made from it: by later steps, and by sessions of its page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lw2g.config.directory import WEIGHTS
from lw2g.errors import DataError, as_word
from lw2g.model.exported import is_export, read_manifest
from lw2g.model.manifest import Manifest
from lw2g_photos.step_checks import misspelt
from lw2g_photos.step_words import as_typed

__all__ = [
    "later_models",
    "most_classes",
    "session_of",
    "sessions_like",
    "words_of_later",
    "words_of_session",
]

_NUMBERED = r"-(\d{1,6})"
_SESSION = re.compile(rf"(?P<name>.+-taught)(?:{_NUMBERED})?")
"""The name of a session's folder."""
_SHOWN = 3
"""Classes that a note names."""


def later_models(model: Path) -> dict[Path, Manifest]:
    """Return the models MODEL-N beside a model that were learned from it, in the order of their numbers."""
    stem = re.sub(f"{_NUMBERED}$", "", model.absolute().name)
    return _learned_from(model, _numbered(model.absolute().parent, f"{re.escape(stem)}{_NUMBERED}").values())


def most_classes(models: Mapping[Path, Manifest]) -> Path:
    """Return the model that knows most classes, and of several the last one."""
    return max(reversed(list(models)), key=lambda place: len(models[place].class_map.target_names))


def words_of_later(model: Path, made: Path, folder: Path | None) -> str:
    """Return that a model beside knows more than one that was made just now from the same; else nothing.

    Args:
        model: The model that both were made from.
        made: What was made.
        folder: What it has learned from, as the next command names it; None where that has to say more.
    """
    known = read_manifest(made)
    step = known.history.steps[-1]
    same: dict[Path, Manifest] = {}
    more: dict[Path, Manifest] = {}
    for place, manifest in later_models(model).items():
        if place == made.absolute():
            continue
        steps = manifest.history.steps
        if step.digest and any((one.digest, one.classes) == (step.digest, step.classes) for one in steps):
            same[place] = manifest
        if _beyond(known, manifest):
            more[place] = manifest
    if same:
        has_learned = as_typed(str(most_classes(same)))
        needless = as_typed(str(made.absolute()))
        return f"{has_learned} has learned these images already: go on from it, and remove {needless}"
    if not more:
        return ""
    best = most_classes(more)
    names = _beyond(known, more[best])
    listed = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    also_knows = as_typed(str(best))
    words = f"{also_knows} also knows {listed}"
    # a name that is likely misspelt would be taken as one more class there, too
    if folder is None or any(misspelt(step.classes, more[best].class_map.target_names)):
        return words
    return f"{words}; to add to it: lw2g learn {as_word(also_knows)} {as_word(folder)}"


def session_of(model: Path) -> Path:
    """Return the folder of a session with a model; a model of an earlier session gets one next to that."""
    model = model.absolute()
    found = _SESSION.fullmatch(model.parent.name)
    if found and model.name.isdecimal():
        return model.parent.with_name(found["name"])
    return model.with_name(f"{model.name}-taught")


def sessions_like(first: Path) -> dict[int, Path]:
    """Return the folders of sessions that are there, by their numbers; that of the first one has none."""
    numbered = _numbered(first.parent, f"{re.escape(first.name)}{_NUMBERED}")
    return {1: first, **numbered} if first.exists() else numbered


def _last_of_sessions(model: Path) -> Path | None:
    """Return the newest model of the last session that has taught a model; None where none has.

    It may be the model of before, where all was undone at the end.
    """
    for session in reversed(sessions_like(session_of(model)).values()):
        models = list(_numbered(session, r"(\d{1,6})").values())
        if _learned_from(model, models):
            last = models[-1]
            return None if last == model.absolute() else last
    return None


def words_of_session(model: Path) -> str:
    """Return where the last session with a model ended, and how to go on from there; else nothing."""
    last = _last_of_sessions(model)
    if last is None:
        return ""
    place = as_typed(str(last))
    return f"the last session with {model} ended with {place}; to go on: lw2g teach {as_word(place)}"


def _numbered(folder: Path, pattern: str) -> dict[int, Path]:
    """Return the folders in a folder whose names fit, by the number that is the pattern's only group."""
    found: dict[int, Path] = {}
    with suppress(OSError):  # it need not be there, or may not be read
        for place in folder.iterdir():
            if match := re.fullmatch(pattern, place.name):
                found[int(match[1])] = place
    return dict(sorted(found.items()))


def _learned_from(model: Path, places: Iterable[Path]) -> dict[Path, Manifest]:
    """Return those among models that have learned a step from a model."""
    if not is_export(model):
        return {}
    own = read_manifest(model).files.get(WEIGHTS)
    return {
        place: manifest
        for place, manifest in _read(places)
        if any(step.parent == own for step in manifest.history.steps)
    }


def _read(places: Iterable[Path]) -> Iterator[tuple[Path, Manifest]]:
    for place in places:
        # what lies beside a model may be damaged, or not be read
        with suppress(DataError, OSError):
            if is_export(place):
                yield place, read_manifest(place)


def _beyond(known: Manifest, other: Manifest) -> Sequence[str]:
    """Return the classes that another model knows and this one does not."""
    return [name for name in other.class_map.target_names if name not in known.class_map.by_name]
