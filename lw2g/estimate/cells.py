"""What the cells of a grid cost: cells that differ in seeds and class orders alone cost the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lw2g.config.resolve import resolve
from lw2g.config.toml import flat, to_mapping
from lw2g.errors import Lw2gError
from lw2g.estimate import estimate as estimating
from lw2g.estimate.estimate import Estimate, Range
from lw2g.registry.catalogue import Catalogue
from lw2g.reports.names import AVERAGED
from lw2g.sweeps.grid import Cell

__all__ = ["costs_beside", "costs_of"]


def costs_of(cells: Sequence[Cell], catalogue: Catalogue) -> Iterator[Estimate | Lw2gError]:
    """Yield the measured cost of each cell, or the error that prevented it.

    Cells of one kind are measured once.
    """
    measured: dict[str, Estimate | Lw2gError] = {}
    for cell in cells:
        try:
            kind = _kind_of(cell, catalogue)
        except Lw2gError as error:
            yield error
            continue
        if kind not in measured:
            # an error is kept, too: the other cells of the kind would fail after as many seconds
            try:
                config = resolve(catalogue, file=cell.tables()).config
                measured[kind] = estimating.estimate(config, catalogue)
            except Lw2gError as error:
                measured[kind] = error
        yield measured[kind]


def costs_beside(
    cells: Sequence[Cell], catalogue: Catalogue, took: Mapping[str, float]
) -> Iterator[tuple[Cell, Range | None, Estimate | Lw2gError | None]]:
    """Yield each cell that is not finished with its cost.

    Args:
        cells: All cells.
        catalogue: Where their components come from.
        took: Seconds of finished cells, by the names of their directories.

    Yields:
        The cell; the seconds that a finished cell of its kind took, or None; without these its measured
        cost, or the error that prevented it.
    """
    by_kind: dict[str, float] = {}
    for cell in cells:
        if cell.name in took:
            by_kind[_kind_of(cell, catalogue)] = took[cell.name]
    known: list[tuple[Cell, float | None]] = []
    for cell in cells:
        if cell.name not in took:
            known.append((cell, _known(cell, catalogue, by_kind)))
    # measured lazily, so that each line can be printed as soon as it is known
    costs = costs_of([cell for cell, seconds in known if seconds is None], catalogue)
    for cell, seconds in known:
        if seconds is None:
            yield cell, None, next(costs)
        else:
            yield cell, Range(seconds, seconds), None


def _kind_of(cell: Cell, catalogue: Catalogue) -> str:
    """Return what a cell shares with those of other seeds and class orders: their costs are taken as equal.

    Raises:
        ConfigError: The cell cannot be resolved.
    """
    settings = flat(to_mapping(resolve(catalogue, file=cell.tables()).config))
    classes = sorted(map(str, settings.get("benchmark.class_order", ())))
    shared = sorted((name, value) for name, value in settings.items() if name not in AVERAGED)
    return repr((classes, shared))


def _known(cell: Cell, catalogue: Catalogue, by_kind: Mapping[str, float]) -> float | None:
    """Return the seconds that a finished cell of the same kind took; None if there is none."""
    if not by_kind:
        return None
    try:
        return by_kind.get(_kind_of(cell, catalogue))
    except Lw2gError:
        return None
