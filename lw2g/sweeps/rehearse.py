"""Rehearsals: the cells of a grid on the embedded benchmark and backbone, each kind once, in a few steps.

A rehearsal keeps what a cell is about: baseline, policy, constraints, retrieval, head, and the options of
growth and routing. It replaces what costs time or has to be fetched: benchmark, backbone, epochs, seeds,
protocol. Cells that become equal, such as those of several seeds or data sets, are one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from lw2g.config.protocols import LIKE_FOR_LIKE
from lw2g.errors import ConfigError, Lw2gError
from lw2g.ground.spelling import expanded
from lw2g.interfaces.component import BaselineComponent
from lw2g.interfaces.dataset import default_root
from lw2g.interfaces.defaults import DEFAULT_BACKBONE, DEFAULT_BASELINE, DEFAULT_BENCHMARK, FOLDER_BENCHMARK
from lw2g.pixels.found_images import split_folder
from lw2g.registry.catalogue import Catalogue
from lw2g.sweeps.grid import Cell, Settings, read_grid

__all__ = ["rehearsed_cells"]

_REPLACED = ("benchmark.", "backbone.", "run.", "trackers.")
_FEW = {"growth.images": 16, "growth.draws": 2, "routing.held_back": 2}
"""Options of evidence and routing, where a cell does not set them."""
_TASKS = 5
"""Tasks of a folder's classes, as many as the embedded benchmark is rehearsed with."""


def rehearsed_cells(
    grid: Path | Mapping[str, Any],
    catalogue: Catalogue,
    overrides: Mapping[str, Any],
    place: str = DEFAULT_BENCHMARK,
) -> list[Cell]:
    """Return the cells that rehearse a grid.

    Args:
        grid: Its file, or what one holds.
        catalogue: Where components are looked up.
        overrides: Settings of every cell of the grid, as the real run will have them.
        place: Name of the benchmark to rehearse on, or of a folder of ``train/`` and ``test/``, here or below
            the folder of all data sets.

    Raises:
        ConfigError: The grid is not valid, or there is no such benchmark or folder.
    """
    change = partial(_rehearsed, catalogue, _benchmark(place, catalogue))
    return read_grid(grid, overrides, change, catalogue)


def _benchmark(place: str, catalogue: Catalogue) -> Settings:
    """Return the settings of the benchmark to rehearse on."""
    if place in catalogue.names("benchmark"):
        return _shortened(place, catalogue)
    for folder in (expanded(place), default_root() / place):
        if split_folder(folder, "train").is_dir():
            settings = _shortened(FOLDER_BENCHMARK, catalogue)
            settings["benchmark.root"] = str(folder)
            settings["benchmark.increment"] = _increment(folder)
            return settings
    raise ConfigError(
        f"--rehearse: no benchmark and no folder of train/ and test/ {place!r}",
        f"leave the name out, which takes {DEFAULT_BENCHMARK!r}",
    )


def _increment(folder: Path) -> int:
    """Return the number of classes of a task that cuts a folder into about five."""
    classes = sum(entry.is_dir() for entry in split_folder(folder, "train").iterdir())
    increment = max(2, math.ceil(classes / _TASKS))
    # most methods learn nothing from a last task of one class
    while increment < classes and classes % increment == 1:
        increment += 1
    return increment


def _shortened(name: str, catalogue: Catalogue) -> Settings:
    """Return the settings of a benchmark with the options that it declares for rehearsals."""
    settings: Settings = {"benchmark.name": name}
    for option, value in catalogue.get("benchmark", name).rehearsal.items():
        settings[f"benchmark.{option}"] = value
    return settings


def _rehearsed(catalogue: Catalogue, benchmark: Settings, settings: Settings) -> Settings:
    """Return the settings of the cell that rehearses another one."""
    kept = {key: value for key, value in settings.items() if not key.startswith(_REPLACED)}
    stream = settings.get("benchmark.stream")
    component = catalogue.get("benchmark", benchmark["benchmark.name"])
    if stream is not None and component.embedded:
        benchmark = {**benchmark, "benchmark.stream": stream}
    # a protocol's authors never ran the embedded benchmark
    kept |= {**benchmark, "backbone.name": DEFAULT_BACKBONE, "run.protocol": LIKE_FOR_LIKE}
    kept |= _once(catalogue, settings)
    for name in settings.get("constraints", ()):
        kept |= _options(catalogue, "constraint", name, f"constraints.{name}")
    return _FEW | kept  # what the cell itself sets of these stays


def _once(catalogue: Catalogue, settings: Settings) -> Settings:
    """Return one epoch for each phase of the baseline and its retrieval strategy that has epochs."""
    try:
        baseline = catalogue.get("baseline", str(settings.get("baseline.name", DEFAULT_BASELINE)))
        phases: dict[str, Any] = {"baseline": baseline}
        retrieval = settings.get("retrieval.name")
        if retrieval is None and isinstance(baseline, BaselineComponent):
            retrieval = baseline.retrieval
        if retrieval is not None:
            phases["retrieval"] = catalogue.get("retrieval", str(retrieval))
    except Lw2gError:
        return {}  # resolving the cell tells what is wrong with it
    found: Settings = {}
    for section, component in phases.items():
        for field in attrs.fields(component.config):
            if not field.name.endswith("epochs") or field.name.startswith("decay"):  # when a rate falls
                continue
            if field.default != 0:  # none unless asked for, such as those of a warm-up
                found[f"{section}.{field.name}"] = 1
    return found


def _options(catalogue: Catalogue, kind: Any, name: str, section: str) -> Settings:
    try:
        component = catalogue.get(kind, name)
    except Lw2gError:
        return {}
    return {f"{section}.{option}": value for option, value in component.rehearsal.items()}
