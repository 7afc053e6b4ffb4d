"""What a cell needs before it can run: data and weights, and whether they are here."""

from __future__ import annotations

from pathlib import Path

import attrs

from lw2g.config.model import BackboneChoice, Chosen
from lw2g.config.resolve import resolve
from lw2g.interfaces.dataset import ROOT_VARIABLE, default_root
from lw2g.registry.catalogue import Catalogue
from lw2g.sweep.grid import Cell

__all__ = ["Need", "needs_of"]


@attrs.frozen(kw_only=True)
class Need:
    """Something that a cell needs.

    Attributes:
        what: What it is, and where it is expected.
        here: Whether it is on this machine; None where only loading it tells.
        remedy: How it is had, empty where it is here.
    """

    what: str
    here: bool | None
    remedy: str = ""


def needs_of(cell: Cell, catalogue: Catalogue) -> tuple[Need, ...]:
    """Return the data, the weights and the files of a cell, as far as can be told without reading them.

    Raises:
        ConfigError: It cannot be resolved.
    """
    config = resolve(catalogue, file=cell.tables()).config
    files = (
        Need(what=str(path), here=path.exists(), remedy=f"--set constraints.{one.name}.{field}=FILE")
        for one in config.constraints
        for field, path in attrs.asdict(one.config, recurse=False).items()
        if isinstance(path, Path)
    )
    return _data(config.benchmark, catalogue), _weights(config.backbone, catalogue), *files


def _data(benchmark: Chosen, catalogue: Catalogue) -> Need:
    component = catalogue.get("benchmark", benchmark.name)
    if component.embedded:
        return Need(what=f"{benchmark.name} (embedded)", here=True)
    root, known = getattr(benchmark.config, "root", None), component.data
    parts = (benchmark.name, str(root or ""), f"({known.size})" if known is not None and known.size else "")
    what = " ".join(part for part in parts if part)
    if known is not None and root is None:
        here, remedy = known.lies_below(default_root()), f"lw2g data get {known.name}, or set {ROOT_VARIABLE}"
    else:
        here, remedy = root is not None and Path(root).is_dir(), "--set benchmark.root=FOLDER"
    return Need(what=what, here=here, remedy="" if here else remedy)


def _weights(choice: BackboneChoice, catalogue: Catalogue) -> Need:
    if catalogue.get("backbone", choice.name).embedded:
        return Need(what=f"{choice.name} (embedded)", here=True)
    name = getattr(choice.config, "model", "") or choice.name
    if choice.weights is not None:  # resolved, so it is a file
        return Need(what=f"{name} {choice.weights}", here=True)
    return Need(what=name, here=None, remedy="from the hub, or --set weights=FILE")
