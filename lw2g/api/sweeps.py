"""The functions of lw2g for sweeps: run the cells of a grid, plan them, see, retry and cancel them.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lw2g.api.arguments import as_plain
from lw2g.api.recorded import leaked_images
from lw2g.api.status_lines import StatusLines
from lw2g.api.tabular import SweepResult
from lw2g.config.directory import RUNS
from lw2g.config.resolve import resolve
from lw2g.config.roles import keys_of_role
from lw2g.config.toml import as_toml_holds, dump_resolved
from lw2g.disk.plugin_code import mixed_code
from lw2g.errors import ConfigError, as_word, counted, nearest, shown
from lw2g.ground.notes import tell_note
from lw2g.ground.spelling import expands_paths
from lw2g.interfaces.defaults import DEFAULT_BENCHMARK
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.results.found_runs import columns_of_sweep
from lw2g.sweeps import EXECUTORS
from lw2g.sweeps.cell_costs import cell_costs
from lw2g.sweeps.drawn_cells import cells_of_draws
from lw2g.sweeps.executors import executor_name, load_executor, merged_settings, need_of_executor
from lw2g.sweeps.grid import Cell, read_columns, read_executor, read_grid
from lw2g.sweeps.needs import Need, missing_needs, needs_of, require_present, without_missing_files
from lw2g.sweeps.rehearse import rehearsed_cells
from lw2g.sweeps.sweep_directory import Status, SweepDirectory, stale_cells
from lw2g.sweeps.sweep_engine import require_valid, run_sweep

if TYPE_CHECKING:
    from lw2g.api.experiment import Experiment
    from lw2g.lifecycle.estimate import Estimate

__all__ = [
    "DEFAULT_BENCHMARK",
    "EXECUTORS",
    "RUNS",
    "Plan",
    "cancel_sweep",
    "cells_of",
    "plan_of",
    "require_here",
    "retry_sweep",
    "run_cells",
    "sweep",
    "sweep_status",
    "tell_stale",
]

_SEED = "run.seed"
_ORDER_SEED = "benchmark.order_seed"
Watch = Callable[["Sequence[Status]"], None]


def _unwatched(statuses: Sequence[Status]) -> None:
    """Show nothing."""


@expands_paths
def sweep(
    grid: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    executor: str | None = None,
    jobs: int | None = None,
    threads: int | None = None,
    gpus_per_job: float | None = None,
    executor_options: Mapping[str, Any] | None = None,
    rehearse: str | None = None,
    progress: bool = True,
    watch: Watch | None = None,
) -> SweepResult:
    """Run the cells of a grid, each as a process of its own; a stopped sweep goes on where it stopped.

    Args:
        grid: A TOML file. From Python also a dict of its form, which needs ``out``.
        out: The sweep's directory; None for runs/GRID.
        settings: Settings of every cell by their dotted keys, which override the grid's.
        executor: Where runs go; None for the grid's own, or this machine.
        jobs: Runs at a time; None for the grid's own, or 1 here.
        threads: Cores of a run; None for an equal share.
        gpus_per_job: GPUs of a run; with 0.5 two runs share one.
        executor_options: Further options of the executor, such as ``partition=gpu``.
        rehearse: Run each kind of cell once, in minutes, with the embedded backbone and few epochs, on this
            benchmark (``glyphs`` is embedded) or folder of images; ``out`` is then by default
            runs/GRID-rehearsed.
        progress: Whether to show the progress: a line on stderr whenever a cell moves.
        watch: Receives the status of all cells a few times a second, in place of these lines.

    Raises:
        ConfigError: The grid, a cell or the executor cannot be used.
    """
    file, name = _grid_and_name(grid, out)
    catalogue = load_catalogue()
    cells = _cells(file, catalogue, as_plain(settings or {}), rehearse)
    # cells are checked before the first one starts: a mistake in the last would be reported after hours
    require_valid(cells, catalogue, rehearsed=rehearse is not None)
    if rehearse is not None:
        # it has a folder next to that of the real sweep, which must not take these cells for its own
        name += "-rehearsed"
    store = SweepDirectory(Path(out) if out else RUNS / name)
    given = {"executor": executor, "jobs": jobs, "threads": threads, "gpus_per_job": gpus_per_job}
    chosen = merged_settings(read_executor(file), given, executor_options or {})
    shown_by = watch or (StatusLines() if progress else _unwatched)
    tell_stale(store.path, stale_cells(store.statuses(cells), catalogue))
    executor_of = load_executor(chosen, store.path)
    waiting = [status.cell for status in store.statuses(cells) if status.state != "finished"]
    require_here(waiting, catalogue, chosen)
    statuses = run_sweep(store, cells, executor_of, shown_by, read_columns(file))
    _tell_of_runs(store.path, statuses)
    return SweepResult(store.path, statuses)


def tell_stale(directory: Path, stale: Mapping[str, Sequence[str]]) -> None:
    """Note how many finished cells would run otherwise now, why, and how to run them again.

    Args:
        directory: The sweep's directory.
        stale: By a cell's name in what it differs.
    """
    number = sum(map(bool, stale.values()))
    if not number:
        return
    why, *others = dict.fromkeys(chain.from_iterable(stale.values()))
    more = f"; {len(others)} more" if others else ""
    tell_note(
        f"{counted(number, 'finished cell')} would run otherwise now ({why}{more}); `lw2g sweep retry "
        f"{as_word(directory)} --stale` runs such cells again and keeps the old runs"
    )


def _tell_of_runs(directory: Path, statuses: Sequence[Status]) -> None:
    """Note what readers of a sweep's table must know of its runs, once for all cells.

    It is which finished cells were learned by different code of a plugin, and how many test images were
    trained on: cells say so in their logs alone, as each reads its images.
    """
    if leak := leaked_images(status.run.record for status in statuses if status.run and status.run.record):
        tell_note(leak)
    finished = (status.run.path for status in statuses if status.state == "finished" and status.run)
    if told := mixed_code(finished):
        tell_note(
            f"cells have different code of a plugin: {'; '.join(told)}; `lw2g sweep retry "
            f"{as_word(directory)} --stale` runs those of older code again and keeps the old runs"
        )


def _grid_and_name(grid: Any, out: str | Path | None) -> tuple[Path | Mapping[str, Any], str]:
    """Return a grid as its file or what a file would hold, and the name of its folder below runs/.

    Raises:
        ConfigError: It is neither, or has no name.
    """
    if isinstance(grid, str | os.PathLike):
        return Path(grid), Path(grid).stem
    if not isinstance(grid, Mapping):
        raise ConfigError(
            f"grid: expected a path or a dict but got {shown(grid)}", "give a TOML file, or a dict"
        )
    if out is None:
        raise ConfigError("out: a grid in a dict has no name", 'say where it goes: out="runs/NAME"')
    try:
        plain = as_plain(grid)
    except RecursionError as error:
        raise ConfigError("grid: nested too deeply", "give the form that a TOML file has") from error
    return as_toml_holds(plain, "grid"), ""


def require_here(cells: Sequence[Cell], catalogue: Catalogue, executor: Mapping[str, Any]) -> None:
    """Refuse cells that lack data, weights, files or packages on this machine, where they would run.

    Args:
        cells: Those that are not finished.
        catalogue: The components.
        executor: The settings of the executor: what other machines have, nobody knows here.

    Raises:
        DataError: Something is missing.
    """
    if not EXECUTORS[executor_name(executor)]:  # this machine needs no package
        require_present(cells, catalogue)


def cells_of(experiment: Experiment, *, seeds: Sequence[int] = (), orders: Sequence[int] = ()) -> list[Cell]:
    """Return an experiment's runs with several seeds and class orders, as cells of a sweep.

    Args:
        experiment: The experiment.
        seeds: Those of the runs; none for the experiment's own.
        orders: Those of the class orders (``benchmark.order_seed``); none for the experiment's own order.

    Raises:
        ConfigError: Nothing draws the class order.
    """
    return cells_of_draws(tomllib.loads(dump_resolved(experiment.resolved)), seeds, orders)


def run_cells(directory: Path, cells: Sequence[Cell], *, watch: Watch = _unwatched) -> SweepResult:
    """Run an experiment's cells one after the other: a sweep, which ``lw2g sweep`` shows and continues.

    Args:
        directory: As :meth:`~lw2g.api.experiment.Experiment.new_directory` makes it.
        cells: Its runs (:func:`cells_of`).
        watch: As for :func:`sweep`.

    Raises:
        ConfigError: The runs need more processes than there are cores or GPUs.
    """
    store = SweepDirectory(directory)
    statuses = run_sweep(store, cells, load_executor({}, store.path), watch)
    _tell_of_runs(directory, statuses)
    return SweepResult(directory, statuses)


def _cells(
    grid: Path | Mapping[str, Any], catalogue: Catalogue, settings: Mapping[str, Any], rehearse: str | None
) -> Sequence[Cell]:
    """Return the cells of a grid, or those that rehearse it.

    Raises:
        ConfigError: The grid or a cell cannot be used.
    """
    cells = read_grid(grid, settings, catalogue=catalogue)
    if rehearse is None:
        return cells
    # a rehearsal needs no weights, and yet shows mistakes in all cells of the real run
    require_valid([without_missing_files(cell) for cell in cells], catalogue)
    return rehearsed_cells(grid, catalogue, settings, rehearse)


class Plan:
    """The cells of a grid before they run, and what they need.

    Attributes:
        grid: The TOML file.
        cells: The cells.
        executor: The settings of the executor.
    """

    def __init__(
        self, grid: Path, cells: Sequence[Cell], catalogue: Catalogue, executor: Mapping[str, Any]
    ) -> None:
        self.grid = grid
        self.cells = cells
        self.executor = executor
        self._catalogue = catalogue

    @cached_property
    def needs(self) -> list[tuple[Need, ...]]:
        """What each cell needs: data, weights, files, packages; and whether it is here."""
        shared = need_of_executor(self.executor)
        of_all = () if shared is None else (shared,)
        return [(*needs_of(cell, self._catalogue), *of_all) for cell in self.cells]

    @property
    def draws(self) -> str:
        """How many seeds the cells have, and in how many class orders: a seed draws no order."""
        drawn = sorted(keys_of_role("draw", self._catalogue) - {_SEED})
        seeds = {cell.settings.get(_SEED) for cell in self.cells}
        orders: dict[Any, set[str]] = defaultdict(set)
        for cell in self.cells:
            config = resolve(self._catalogue, file=without_missing_files(cell).tables()).config
            # of options that say nothing of it a seed is taken to draw an order
            draws_order = getattr(config.benchmark.config, "draws_order", True)
            order = [cell.settings.get(key) for key in drawn if draws_order or key != _ORDER_SEED]
            orders[cell.settings.get("benchmark.name")].add(json.dumps(order))
        most = max(map(len, orders.values()))
        return (
            f"{counted(len(seeds), 'seed')} of {'one class order' if most == 1 else f'{most} class orders'}"
        )

    @property
    def missing(self) -> Sequence[tuple[Need, int]]:
        """What is not here, each thing once, with the number of cells that need it."""
        return list(missing_needs(self.needs))

    def costs(self, cells: Sequence[Cell]) -> list[Estimate | None]:
        """Measure what each of some cells costs here, each kind once; None where something is missing.

        Raises:
            ConfigError: A cell cannot run, though all that it needs is here.
        """
        return cell_costs(cells, self._catalogue)


@expands_paths
def plan_of(
    grid: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    executor: str | None = None,
    jobs: int | None = None,
    threads: int | None = None,
    gpus_per_job: float | None = None,
    executor_options: Mapping[str, Any] | None = None,
    rehearse: str | None = None,
) -> Plan:
    """Return the cells of a grid without running them.

    Args:
        grid: A TOML file.
        settings: As for :func:`sweep`.
        executor: As for :func:`sweep`.
        jobs: As for :func:`sweep`.
        threads: As for :func:`sweep`.
        gpus_per_job: As for :func:`sweep`.
        executor_options: As for :func:`sweep`.
        rehearse: As for :func:`sweep`.

    Raises:
        ConfigError: The grid or a cell cannot be used.
    """
    file = Path(grid)
    catalogue = load_catalogue()
    cells = _cells(file, catalogue, settings or {}, rehearse)
    if rehearse is None:  # for a rehearsal `_cells` has checked the cells of the real sweep
        # a plan lists missing files among the needs, so that they are no mistake here
        require_valid([without_missing_files(cell) for cell in cells], catalogue)
    given = {"executor": executor, "jobs": jobs, "threads": threads, "gpus_per_job": gpus_per_job}
    return Plan(file, cells, catalogue, merged_settings(read_executor(file), given, executor_options or {}))


@expands_paths
def sweep_status(directory: str | Path) -> SweepResult:
    """Show the status of the cells of a sweep.

    It also names stale cells: those that finished with other options or other code of a plugin than now.

    Args:
        directory: The sweep's directory.

    Raises:
        DataError: There is no sweep.
    """
    store = SweepDirectory(Path(directory))
    catalogue = load_catalogue()
    statuses = store.statuses(store.cells())
    return SweepResult(store.path, statuses, stale_cells(statuses, catalogue))


@expands_paths
def retry_sweep(
    directory: str | Path,
    *,
    stale: bool = False,
    executor: str | None = None,
    jobs: int | None = None,
    threads: int | None = None,
    gpus_per_job: float | None = None,
    executor_options: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = print,
    watch: Watch = _unwatched,
) -> SweepResult:
    """Run the failed cells of a sweep again, and continue those that are not finished.

    A damaged run is moved aside and started anew. The cells run where the sweep ran before, unless
    ``executor`` says otherwise.

    Args:
        directory: The sweep's directory.
        stale: Whether to rerun also cells that finished with other options or plugin code than now;
            ``lw2g report DIR DIR/.stale`` shows the old runs beside the new.
        executor: As for :func:`sweep`.
        jobs: As for :func:`sweep`.
        threads: As for :func:`sweep`.
        gpus_per_job: As for :func:`sweep`.
        executor_options: As for :func:`sweep`.
        say: Receives a line for each run that is moved aside, or that there is nothing to do.
        watch: As for :func:`sweep`.

    Raises:
        DataError: There is no sweep.
        ConfigError: The executor cannot be used.
    """
    store = SweepDirectory(Path(directory))
    catalogue = load_catalogue()
    cells = store.cells()
    before = store.statuses(cells)
    differences = stale_cells(before, catalogue)
    if not stale:
        tell_stale(store.path, differences)
    again = {status.cell.name for status in before if status.damaged}
    if stale:
        again |= {name for name, options in differences.items() if options}
    if not again and all(status.state == "finished" for status in before):
        say(f"nothing to do: {counted(len(before), 'cell')}, all finished")
        _tell_of_runs(store.path, before)
        return SweepResult(store.path, before)
    given = {"executor": executor, "jobs": jobs, "threads": threads, "gpus_per_job": gpus_per_job}
    chosen = merged_settings(store.executor(), given, executor_options or {})
    require_here([status.cell for status in before if status.state != "finished"], catalogue, chosen)
    for status in before:
        if status.state == "failed":
            store.note_failure(status.cell, reason=None)  # clears the note
        if status.cell.name in again:
            # moved, not removed: nothing that a run has computed is deleted
            kept = store.named(store.job(status.cell).set_aside())
            say(f"{status.cell.label}: the old run is kept in {kept}")
    statuses = run_sweep(store, cells, load_executor(chosen, store.path), watch, columns_of_sweep(store.path))
    _tell_of_runs(store.path, statuses)
    return SweepResult(store.path, statuses)


@expands_paths
def cancel_sweep(directory: str | Path, *names: str) -> tuple[int, int]:
    """Ask all cells of a sweep, or only those named, to stop, on whichever machine they run.

    Running cells save their state and stop within seconds; waiting cells are not started. The same sweep, or
    ``lw2g sweep retry``, continues all of them.

    Args:
        directory: The sweep's directory.
        *names: Labels of cells, or names of their directories.

    Returns:
        The number of cells that run and were asked to stop, and of those that wait and will not start.

    Raises:
        DataError: There is no sweep.
        ConfigError: There is no such cell.
    """
    store = SweepDirectory(Path(directory))
    cells = store.cells()
    if names:
        cells = _named(cells, names, store.path)
    store.cancel(cells)
    # asked after the request: a cell that ends meanwhile is counted as it is now
    states = [status.state for status in store.statuses(cells)]
    return states.count("running"), states.count("waiting") + states.count("interrupted")


def _named(cells: Sequence[Cell], names: Sequence[str], directory: Path) -> list[Cell]:
    """Return the cells of a sweep with these labels or names of directories."""
    by_name: dict[str, Cell] = {}
    for cell in cells:
        by_name[cell.label] = cell
        by_name[cell.name] = cell
    for name in names:
        if name not in by_name:
            remedy = f"see lw2g sweep status {as_word(directory)}"
            raise ConfigError(f"no cell {name!r}{nearest(name, by_name)}", remedy)
    return [by_name[name] for name in names]
