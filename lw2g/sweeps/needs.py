"""The data, weights and files that a cell needs, and whether this machine has them."""

from __future__ import annotations

from pathlib import Path

import attrs

from lw2g.config.model import BackboneChoice, Chosen
from lw2g.config.resolve import resolve
from lw2g.interfaces.dataset import ROOT_VARIABLE, default_root
from lw2g.registry.catalogue import Catalogue
from lw2g.sweeps.grid import Cell

__all__ = ["Need", "needs_of"]


@attrs.frozen(kw_only=True)
class Need:
    """Something that a cell needs.

    Attributes:
        what: Its name and expected place.
        here: Whether this machine has it; None if only loading it would show.
        remedy: How to get it; empty if it is here.
    """

    what: str
    here: bool | None
    remedy: str = ""


def needs_of(cell: Cell, catalogue: Catalogue) -> tuple[Need, ...]:
    """Return the data, weights and files that a cell needs, without reading them.

    Raises:
        ConfigError: The cell cannot be resolved.
    """
    config = resolve(catalogue, file=cell.tables()).config
    files = (
        Need(what=str(path), here=path.exists(), remedy=f"--set constraints.{constraint.name}.{field}=FILE")
        for constraint in config.constraints
        for field, path in attrs.asdict(constraint.config, recurse=False).items()
        if isinstance(path, Path)
    )
    return _data(config.benchmark, catalogue), _weights(config.backbone, catalogue), *files


def _data(benchmark: Chosen, catalogue: Catalogue) -> Need:
    component = catalogue.get("benchmark", benchmark.name)
    if component.embedded:
        return Need(what=f"{benchmark.name} (embedded)", here=True)
    root, published = getattr(benchmark.config, "root", None), component.data
    parts = (
        benchmark.name,
        str(root or ""),
        f"({published.size})" if published is not None and published.size else "",
    )
    what = " ".join(part for part in parts if part)
    if published is not None and root is None:
        here, remedy = (
            published.lies_below(default_root()),
            f"lw2g data get {published.name}, or set {ROOT_VARIABLE}",
        )
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
