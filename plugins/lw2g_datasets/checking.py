"""Examines the data of a benchmark: every image is decoded, and the lists of files are counted and hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lw2g.config.structure import structure
from lw2g.errors import ConfigError, DataError
from lw2g.ground.notes import tell_note
from lw2g.interfaces.stream import TaskData, TaskStream
from lw2g.pixels.shared import notes_on
from lw2g.pixels.unusable_images import refusal
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.returned import stream_of

__all__ = ["SPLITS", "examine_data"]

SPLITS = ("train", "test")

Progress = Callable[[str, int, int], None]


def examine_data(
    name: str, catalogue: Catalogue, options: Mapping[str, Any], *, progress: Progress
) -> dict[str, Any]:
    """Return what the data of a benchmark are, after every image was decoded.

    Args:
        name: The benchmark.
        catalogue: Where it comes from.
        options: Those of its options that are not left at their defaults.
        progress: Receives a step's name, how much of it is done, and its total.

    Raises:
        ConfigError: The benchmark has no such option.
        DataError: Images are missing or cannot be decoded.
    """
    component = catalogue.get("benchmark", name)
    config, problems = structure(component.config, options)
    if config is None:
        raise ConfigError("\n".join(f"benchmark.{key}: {text}" for key, text in problems))
    stream = stream_of(component.build(config), component.name)
    for text in notes_on(stream):
        tell_note(text)
    _require_decodable(stream, progress)
    facts = component.data
    return {
        "name": name,
        "split": None if facts is None else config.split,
        "classes": _counts_by_class(stream),
        "sha256": {part: _sha256_of_files(stream, part) for part in SPLITS},
        "fingerprint": stream.fingerprint,
        "differs": list(stream.deviations),
        "flaws": "" if facts is None else facts.flaws,
        "unconfirmed": [] if facts is None else list(facts.unconfirmed),
    }


def _require_decodable(stream: TaskStream, progress: Progress) -> None:
    """Decode every image of a stream, since a JPEG may be damaged in the middle.

    Raises:
        DataError: Some images cannot be decoded; the message names them.
    """
    places: list[tuple[TaskData, int]] = []
    for task in stream.tasks:
        for part in (task.train, task.test):
            places += [(part, int(index)) for index in part.indices]
    bad: dict[str, DataError] = {}
    with ThreadPoolExecutor() as pool:
        faults = pool.map(_fault_of, places)
        for done, ((part, index), fault) in enumerate(zip(places, faults, strict=True), 1):
            if fault is not None:
                bad[part.source.ids[index]] = fault
            progress("decoding", done, len(places))
    if bad:
        raise refusal(bad, len(places))


def _fault_of(place: tuple[TaskData, int]) -> DataError | None:
    """Return why an image cannot be decoded; None if it can."""
    part, index = place
    try:
        part.source.image(index)
    except DataError as error:
        return error
    return None


def _counts_by_class(stream: TaskStream) -> dict[str, dict[str, int]]:
    """Return the number of images of each class in each split."""
    counts = {}
    for task in stream.tasks:
        for position, label in zip(task.classes, task.class_names, strict=True):
            counts[label] = {part: int((getattr(task, part).labels == position).sum()) for part in SPLITS}
    return counts


def _sha256_of_files(stream: TaskStream, part: str) -> str:
    """Return the checksum of the sorted names of all files of a split."""
    ids: list[str] = []
    for task in stream.tasks:
        ids += getattr(task, part).ids
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
