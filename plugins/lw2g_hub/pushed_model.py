"""What of a model goes to others: what predictions need, and nothing that tells of a machine or its user."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from lw2g.errors import ConfigError, shown
from lw2g.model.exported import Saved
from lw2g.model.manifest import Learning, Manifest, Step

__all__ = ["misplaced_path", "published"]

_FORGOTTEN = "(forgotten)"
"""Stands where the name of a class was that the model has forgotten."""
_PATH = re.compile(r"[/~\\]|\.\.?[/\\]|[A-Za-z]:[/\\]|local-dir:|file:")
"""How a path begins."""
_NAMING: Mapping[str, list[Any]] = {"taken_for": [], "left_out_classes": [], "twins": [], "losing": []}
"""What the checks of a step say of other classes by name, of which some may be forgotten: not told."""
_PLACES = ("learned_from", "tested_on")
"""What they say of folders: not told, either."""


def published(saved: Saved, *, learnable: bool) -> Saved:
    """Return a model as others get it.

    It has no path of this machine, no name of a weights file, and no name of a forgotten class. Unless it is
    learnable, its steps count as learned before the first one, as those of a run's export do, so that it can
    learn more classes and take none back. It has no features of images then, but for a model of few images,
    whose head keeps them in place of wide sums (:mod:`lw2g.maths.few_rows`).

    Args:
        saved: The model; with what only learning reads where it is to be learnable.
        learnable: Whether features of the learned images go along.

    Raises:
        ConfigError: Its description names a place of this machine.
    """
    manifest = saved.manifest
    if manifest.benchmark is not None:
        raise ConfigError(
            f"images are transformed by code of benchmark {manifest.benchmark.name!r} and not as numbers "
            "say, so that others could not use the model",
            "export a run whose test transform is a Preprocessing",
        )
    # the name of a file may say whose it is; that of the architecture is enough to bring the same weights
    is_file = manifest.fingerprint.source == "file"
    cleaned = attrs.evolve(
        manifest,
        backbone=attrs.evolve(manifest.backbone, weights=None),
        weights_name=manifest.fingerprint.timm_name if is_file else manifest.weights_name,
        learning=None if manifest.learning is None else _history(manifest, learnable=learnable),
    )
    found = misplaced_path(cleaned)
    if found is not None:
        where, text = found
        raise ConfigError(
            f"{where}: {shown(text)} is a place on this machine, which must not go to others",
            "export the model with an option that names none",
        )
    learned = saved.learned if learnable else {}
    return Saved(manifest=cleaned, tensors=saved.tensors, learned=learned)


def misplaced_path(manifest: Manifest) -> tuple[str, str] | None:
    """Return where a model's description names a place on a disk, and which; None where it does not.

    What lw2g pushes names none. A stranger's file that does could make whoever opens it read files of their
    own.
    """
    sections = attrs.asdict(manifest)
    sections["candidates"] = sections["learning"]["candidates"] if sections["learning"] else []
    for name in (
        "tasks",
        "learning",
        "files",
    ):  # names of classes, which may look like anything, and checksums
        del sections[name]
    for where, text in _texts(sections, ""):
        if _PATH.match(text) or ("/" in text and Path(text).exists()):
            return where, text
    return None


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield the texts in nested tables and lists, with the place of each."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, where)


def _history(manifest: Manifest, *, learnable: bool) -> Learning:
    """Return the history that others get."""
    history = manifest.history
    live = set(history.numbers)
    names = [name if number in live else _FORGOTTEN for number, name in enumerate(history.names)]
    if learnable:
        return attrs.evolve(history, names=names, steps=[_step(step) for step in history.steps])
    return attrs.evolve(
        history,
        names=names,
        steps=[],
        candidates=[],
        tasks=len(manifest.tasks),
        num_tasks=manifest.num_tasks,
        num_classes=manifest.num_classes,
    )


def _step(step: Step) -> Step:
    """Return a step whose checks name its own classes alone."""
    checks = {name: _NAMING.get(name, value) for name, value in step.checks.items() if name not in _PLACES}
    if "classes" in checks:
        own = [entry for entry in checks["classes"] if entry["class"] in step.classes]
        checks["classes"] = [{**entry, "taken_for": []} for entry in own]
    return attrs.evolve(step, checks=checks)
