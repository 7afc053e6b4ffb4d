"""The data, weights, files and packages that a cell needs, and whether this machine has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

import attrs

from lw2g.config.resolve import resolve
from lw2g.config.settings import BackboneChoice, Chosen
from lw2g.config.sources import lost_places, places_of
from lw2g.config.structure import NONE
from lw2g.errors import ConfigError, DataError, counted
from lw2g.ground.spelling import expanded
from lw2g.interfaces.dataset import ROOT_VARIABLE, default_root
from lw2g.registry.catalogue import Catalogue
from lw2g.sweeps.grid import Cell

__all__ = ["Need", "missing_needs", "needs_of", "require_present", "without_missing_files"]

_WEIGHTS = "backbone.weights"


@attrs.frozen(kw_only=True)
class Need:
    """Something that a cell needs.

    Attributes:
        what: Its name and expected place.
        here: Whether this machine has it; None if only loading it would show.
        remedy: How to get it; empty if it is here.
        fetched: Whether a run fetches it by itself, where the hub answers.
    """

    what: str
    here: bool | None
    remedy: str = ""
    fetched: bool = False


def needs_of(cell: Cell, catalogue: Catalogue) -> tuple[Need, ...]:
    """Return data, weights, files and packages that a cell needs, without reading them or using the network.

    Raises:
        ConfigError: The cell cannot be resolved.
    """
    present = without_missing_files(cell)
    config = resolve(catalogue, file=present.tables()).config
    files = []
    for constraint in config.constraints:
        for field, path in attrs.asdict(constraint.config, recurse=False).items():
            if isinstance(path, Path):
                remedy = f"--set constraints.{constraint.name}.{field}=FILE"
                files.append(Need(what=str(path), here=path.exists(), remedy=remedy))
    for constraint in config.constraints:
        lacking = catalogue.get("constraint", constraint.name).lacks(constraint.config)
        if lacking is not None:
            field, command = lacking
            option = f"constraints.{constraint.name}.{field}"
            remedy = f"{command}, then --set {option}=FILE"
            files.append(Need(what=f"a file for {option}", here=False, remedy=remedy))
    weights = _weights(config.backbone, catalogue)
    if present is not cell:
        weights = Need(what=str(cell.settings[_WEIGHTS]), here=False, remedy="--set weights=FILE")
    return _data(config.benchmark, catalogue), weights, *files, *_packages(config.trackers, catalogue)


def without_missing_files(cell: Cell) -> Cell:
    """Return a cell without its weights if these are not here, so that all else of it can be resolved."""
    weights = cell.settings.get(_WEIGHTS)
    if weights in (None, NONE) or expanded(str(weights)).exists():
        return cell
    settings = dict(cell.settings)
    del settings[_WEIGHTS]
    return attrs.evolve(cell, settings=settings)


def missing_needs(needs: Sequence[Sequence[Need]]) -> list[tuple[Need, int]]:
    """Return what cells need that is not known to be here, each once, with the number of its cells."""
    counts: Counter[Need] = Counter()
    for of_cell in needs:
        counts.update(need for need in of_cell if not need.here)
    return list(counts.items())


def require_present(cells: Sequence[Cell], catalogue: Catalogue) -> None:
    """Refuse cells that lack something: else each would fail in its turn, the last one after hours.

    Raises:
        DataError: Data, weights, files or packages are missing, and no run fetches them.
    """
    from lw2g.ground.network import hub_fails  # imports the hub's client

    needs = []
    for cell in cells:
        with suppress(ConfigError):  # one of an older sweep, which fails with that reason
            needs.append(needs_of(cell, catalogue))
    lacking = []
    for need, count in missing_needs(needs):
        comes = need.here is None or (need.fetched and hub_fails() is None)
        if not comes:
            lacking.append(f"missing for {counted(count, 'cell')}: {need.what}; {need.remedy}")
    if lacking:
        raise DataError("; ".join(lacking))


def _packages(trackers: Sequence[Chosen], catalogue: Catalogue) -> Iterator[Need]:
    """Yield the packages that trackers import."""
    for chosen in trackers:
        component = catalogue.get("tracker", chosen.name)
        if component.package:
            yield _need(f"tracker {chosen.name}", component.is_installed, component.install)


def _data(benchmark: Chosen, catalogue: Catalogue) -> Need:
    """Return the data that a benchmark reads, whether they are here, and how to get them."""
    component = catalogue.get("benchmark", benchmark.name)
    if component.embedded:
        return Need(what=f"{benchmark.name} (embedded)", here=True)
    published = component.data
    places = list(chain.from_iterable(places_of(benchmark).values()))
    what = " ".join([benchmark.name, *map(str, places)])
    if published is not None and published.size:
        what += f" ({published.size})"
    if published is not None:
        is_here = published.lies_below(benchmark.config.root or default_root())
        return _need(what, is_here, f"lw2g data get {published.name}, or set {ROOT_VARIABLE}")
    lacking = component.lacks(benchmark.config)
    if lacking is not None:
        option, how = lacking
        return Need(what=what, here=False, remedy=f"{how}, then --set benchmark.{option}=FOLDER")
    lost = [f"--set {key}=PLACE" for key in lost_places(benchmark)]
    return _need(what, not lost, " ".join(lost))


def _need(what: str, here: bool, remedy: str) -> Need:
    return Need(what=what, here=here, remedy="" if here else remedy)


def _weights(choice: BackboneChoice, catalogue: Catalogue) -> Need:
    """Return the weights that a backbone loads, whether they are here, and how to get them."""
    component = catalogue.get("backbone", choice.name)
    if component.embedded:
        return Need(what=f"{choice.name} (embedded)", here=True)
    hub = component.repository(choice.config)
    # a backbone of many models is called by the one that its options name
    name = hub.rpartition("/")[2] if callable(component.hub) and hub else choice.name
    if choice.weights is not None:  # resolved, so it is there
        return Need(what=f"{name} {choice.weights}", here=True)
    if not hub:
        return Need(what=name, here=False, remedy=component.page or "--set weights=FILE")
    need = _need(name, _in_cache(hub), f"hf download {hub}, or --set weights=FILE")
    return attrs.evolve(need, fetched=True)


def _in_cache(repository: str) -> bool:
    """Return whether the hub's client has weights of a repository on this machine."""
    from huggingface_hub import try_to_load_from_cache

    names = ("model.safetensors", "pytorch_model.bin", "open_clip_model.safetensors")
    return any(isinstance(try_to_load_from_cache(repository, name), str) for name in names)
