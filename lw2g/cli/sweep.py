"""``lw2g sweep``: runs all cells of a grid as processes and shows their status."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g.cli.options import FiniteRange, settings_given, settings_option
from lw2g.cli.report import report
from lw2g.config.model import DEFAULT_BENCHMARK
from lw2g.console.output import console, note, number, printable, table
from lw2g.errors import ConfigError, counted, nearest

if TYPE_CHECKING:
    from lw2g.registry.catalogue import Catalogue
    from lw2g.sweeps.grid import Cell
    from lw2g.sweeps.store import Status, SweepDirectory

__all__ = ["fitting", "sweep"]

_DEFAULT = "grid"
_COLUMNS = ("cell", "state", "task", "left", "FAA", "images/s", "host")
_ON_A_LINE = ("task", "left", "FAA", "host")
_EXECUTORS = ("local", "ray", "slurm")
_INTERRUPTED = 130
_ROWS_TO_SPARE = 8


class SweepGroup(click.Group):
    """A group whose first argument is a grid unless it names a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command if none is named."""
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all commands but the default one."""
        return [name for name in super().list_commands(ctx) if name != _DEFAULT]


def _executor_options(command: Any) -> Any:
    for option in (
        click.option(
            "--executor-set",
            "special",
            metavar="KEY=VALUE",
            multiple=True,
            callback=settings_given,
            help="An option of the executor, such as partition=gpu; repeatable.",
        ),
        click.option(
            "--gpus-per-job", type=FiniteRange(min=0), help="GPUs of a run; with 0.5 two runs share one."
        ),
        click.option(
            "--threads", type=click.IntRange(min=1), help="Cores of a run (default: an equal share)."
        ),
        click.option("--jobs", type=click.IntRange(min=1), help="Runs at a time (default here: 1)."),
        click.option(
            "--executor", type=click.Choice(_EXECUTORS), help="Where runs go (default: this machine)."
        ),
    ):
        command = option(command)
    return command


@click.group(cls=SweepGroup, short_help="Run all cells of a grid and show their status.")
def sweep() -> None:
    """Run the cells of a grid: lw2g sweep GRID.toml [--out DIR] [--jobs N] [--dry-run] [--set KEY=VALUE]

    --executor ray and slurm run them on a cluster; a grid can say so in a table [executor].

    \b
      [base.benchmark]                        what all cells share, as in a configuration
      name = "cifar100"
      [axes]                                  lists that multiply
      policy = ["always", "min"]
      seed = [0, 1]
      "growth.energy" = [0.9, 0.95]
      [[rows]]                                alternatives
      baseline = {name = "hide-prompt", epochs = 5}
      [[rows]]
      baseline = "simple-cil"
      policy = "always"                       set here: this row is not multiplied by it
      axes = {seed = [0]}                     its own list in place of the grid's

    The same command continues a stopped sweep: it keeps finished cells, resumes interrupted ones, and lists
    failed ones. The exit code is 1 if a cell has failed, 130 if the sweep was stopped.
    """


@sweep.command(_DEFAULT, hidden=True, short_help="Run a grid.")
@click.argument("grid", metavar="GRID.toml", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Directory (default: runs/GRID)."
)
@_executor_options
@click.option("--dry-run", is_flag=True, help="Print the cells, their needs and their costs; run nothing.")
@click.option(
    "--cost/--no-cost", default=True, help="With --dry-run: whether to measure costs (a few steps each)."
)
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: print JSON.")
@click.option(
    "--rehearse",
    metavar="[BENCHMARK|FOLDER]",
    is_flag=False,
    flag_value=DEFAULT_BENCHMARK,
    help="After GRID.toml: run each kind of cell once, in minutes, on the embedded benchmark and backbone "
    "(or on this data), print the table, and list what the real run needs.",
)
@settings_option("A setting of every cell, which overrides the grid; repeatable.", complete=False)
def run_grid(
    grid: Path,
    out: Path | None,
    dry_run: bool,
    cost: bool,
    as_json: bool,
    rehearse: str | None,
    settings: dict[str, Any],
    **values: Any,
) -> None:
    """Run the cells of GRID.toml, each in its own directory below DIR."""
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.sweeps.grid import read_grid
    from lw2g.sweeps.store import SweepDirectory

    if as_json and not dry_run:
        raise click.UsageError("--json goes with --dry-run; for a sweep: lw2g sweep status DIR --json")
    if not dry_run:
        from lw2g.api import sweep as run_cells

        special = values.pop("special")
        with _watching() as watch:
            result = run_cells(
                grid,
                out=out,
                settings=settings,
                executor_options=special,
                rehearse=rehearse,
                watch=watch,
                **values,
            )
        if rehearse is not None:
            real = read_grid(grid, settings)
            _print_rehearsal(grid, SweepDirectory(result.path), real, load_catalogue())
        _finish(SweepDirectory(result.path), result.cells)
        return
    from lw2g.cli.plan import print_plan
    from lw2g.config.directory import RUNS
    from lw2g.sweeps.engine import require_valid
    from lw2g.sweeps.needs import without_missing_files
    from lw2g.sweeps.rehearse import rehearsed_cells

    cells = read_grid(grid, settings)
    catalogue = load_catalogue()
    require_valid([without_missing_files(cell) for cell in cells], catalogue)
    if rehearse is not None:
        cells = rehearsed_cells(grid, catalogue, settings, rehearse)
    store = SweepDirectory(out or RUNS / grid.stem)
    took = {
        status.cell.name: float(status.run.record["seconds"]["total"])
        for status in store.statuses(cells)
        if status.state == "finished" and status.run is not None
    }
    print_plan(cells, catalogue, cost=cost, as_json=as_json, took=took)


def _print_rehearsal(grid: Path, store: SweepDirectory, real: Sequence[Cell], catalogue: Catalogue) -> None:
    """Print the table of a rehearsal, and what the real run needs that is not here."""
    from lw2g.api import report as tabulate
    from lw2g.cli.plan import print_missing
    from lw2g.sweeps.grid import read_columns
    from lw2g.sweeps.needs import needs_of

    columns = read_columns(grid)
    finished = any(status.state == "finished" for status in store.statuses(store.cells()))
    if finished:
        click.echo(printable(tabulate(store.path, columns=columns).to_text("md"), lines=True), nl=False)
    kinds = counted(len(store.cells()), "kind")
    click.echo(f"rehearsed: {kinds} of cells, for {counted(len(real), 'cell')} of the real run")
    needs = [needs_of(cell, catalogue) for cell in real]
    print_missing(needs)
    if all(need.here for of_cell in needs for need in of_cell):
        click.echo("the real run has all that it needs")
    place = f"runs/{grid.stem}"
    more = f" --columns {columns}" if columns else ""
    click.echo(f"the real run: lw2g sweep {grid} --out {place}; its table: lw2g report {place}{more}")


@sweep.command(short_help="Show the status of a sweep's cells.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def status(directory: Path, as_json: bool) -> None:
    """Show the status of the cells of the sweep in DIR.

    It also names stale cells: those that finished with other option values than their settings give now.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.sweeps.store import SweepDirectory, differences_now

    store, catalogue = SweepDirectory(directory), load_catalogue()
    statuses = store.statuses(store.cells())
    stale = {status.cell.name: differences_now(status, catalogue) for status in statuses}
    if as_json:
        click.echo(json.dumps([_plain(status, stale[status.cell.name]) for status in statuses], indent=1))
        return
    console().print(_table(statuses))
    _print_failures(store, statuses)
    old = [
        (status.cell.label, ", ".join(stale[status.cell.name]))
        for status in statuses
        if stale[status.cell.name]
    ]
    if old:
        console().print(table("finished with other values than now", ("cell", "option"), old, left=2))
        note(f"`lw2g sweep retry {directory} --stale` runs these again and keeps the old runs")
    click.echo(_counts(statuses))


@sweep.command(short_help="Run failed cells again and continue the others.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@_executor_options
@click.option("--stale", is_flag=True, help="Also rerun cells that finished with other values than now.")
def retry(directory: Path, stale: bool, **values: Any) -> None:
    """Run the failed cells of the sweep in DIR again, and continue those that are not finished.

    A damaged run is moved aside and started anew. The cells run where the sweep ran before, unless --executor
    says otherwise.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.sweeps.engine import run_sweep
    from lw2g.sweeps.executors import load_executor, merged_settings
    from lw2g.sweeps.store import SweepDirectory, differences_now

    store, catalogue = SweepDirectory(directory), load_catalogue()
    cells = store.cells()
    for status in store.statuses(cells):
        if status.state == "failed":
            store.note_failure(status.cell, None)
        if status.damaged or (stale and differences_now(status, catalogue)):
            kept = store.named(store.job(status.cell).set_aside())
            note(printable(f"{status.cell.label}: the old run is kept in {kept}"))
    settings = merged_settings(store.executor(), values, values["special"])
    executor = load_executor(settings, store.path)
    with _watching() as watch:
        statuses = run_sweep(store, cells, executor, watch)
    _finish(store, statuses)


@sweep.command(short_help="Stop cells; they can be resumed.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", metavar="[CELL]...", nargs=-1)
def cancel(directory: Path, names: Sequence[str]) -> None:
    """Ask all cells of the sweep in DIR, or only those named, to stop, on whichever machine they run.

    CELL is a cell's label or the name of its directory. Running cells save their state and stop within
    seconds; waiting cells are not started. The same sweep, or `lw2g sweep retry DIR`, continues all of them.
    """
    from lw2g.sweeps.store import SweepDirectory

    store = SweepDirectory(directory)
    cells = _named(store.cells(), names)
    store.cancel(cells)
    running = sum(status.state == "running" for status in store.statuses(cells))
    click.echo(f"asked {running} running cells to stop; the other {len(cells) - running} will not start")


def _named(cells: Sequence[Cell], names: Sequence[str]) -> Sequence[Cell]:
    """Return the cells with these labels or directories; all cells if no name is given."""
    by_name = {name: cell for cell in cells for name in (cell.label, cell.name)}
    for name in names:
        if name not in by_name:
            raise ConfigError(f"no cell {name!r}{nearest(name, by_name)}", "see lw2g sweep status")
    return [by_name[name] for name in names] or cells


sweep.add_command(report)


def _finish(store: SweepDirectory, statuses: Sequence[Status]) -> None:
    """Print how a sweep has ended, and exit with the command's code."""
    _print_failures(store, statuses)
    click.echo(f"{_counts(statuses)}; in {store.path}")
    states = {status.state for status in statuses}
    if states == {"finished"}:
        return
    over = states <= {"finished", "failed"}
    goes_on = "runs failed cells again" if over else "goes on with all that is not finished"
    note(f"`lw2g sweep retry {store.path}` {goes_on}")
    raise click.exceptions.Exit(1 if over else _INTERRUPTED)


@contextmanager
def _watching() -> Iterator[Callable[[Sequence[Status]], None]]:
    """Yield a function that shows the status of cells: a live table on a terminal, plain lines elsewhere."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield StatusLines()
        return
    from rich.live import Live

    with Live(console=out, auto_refresh=False) as live:
        yield lambda statuses: live.update(_table(fitting(statuses, out.height)), refresh=True)


class StatusLines:
    """Prints a line whenever a cell starts, finishes a task, or ends."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[str, int]] = {}

    def __call__(self, statuses: Sequence[Status]) -> None:
        """Print what has changed."""
        for status in statuses:
            now = (status.state, 0 if status.run is None else status.run.done)
            before = self._before.get(status.cell.name)
            self._before[status.cell.name] = now
            if now != before and (before is not None or status.state != "waiting"):
                details = " ".join(
                    f"{name} {text}"
                    for name, text in zip(_COLUMNS, _row(status), strict=True)
                    if name in _ON_A_LINE
                )
                click.echo(printable(f"{status.cell.label}: {status.state}, {details}"), err=True)


def fitting(statuses: Sequence[Status], height: int) -> Sequence[Status]:
    """Return as many cells as fit on a terminal, around the first running one."""
    room = max(height - _ROWS_TO_SPARE, 1)
    if len(statuses) <= room:
        return statuses
    busy = [place for place, status in enumerate(statuses) if status.state == "running"] or [0]
    begin = max(0, min(busy[0] - room // 3, len(statuses) - room))
    return statuses[begin : begin + room]


def _table(statuses: Sequence[Status]) -> Any:
    return table("", _COLUMNS, [_row(status) for status in statuses], left=2)


def _row(status: Status) -> tuple[str, ...]:
    run, writer = status.run, status.writer
    host = "-" if writer is None else writer.host
    if run is None:
        return (status.cell.label, status.state, "-", "-", "-", "-", host)
    left = "-" if run.remaining is None else str(timedelta(seconds=round(run.remaining)))
    speed = number(run.progress.get("images_per_second"), 0)
    done = f"{run.done}/{run.tasks or '?'}"
    return (status.cell.label, status.state, done, left, number(run.metric("faa")), speed, host)


def _counts(statuses: Sequence[Status]) -> str:
    counts = Counter(status.state for status in statuses)
    return f"{counted(len(statuses), 'cell')}: " + ", ".join(
        f"{count} {state}" for state, count in counts.items()
    )


def _print_failures(store: SweepDirectory, statuses: Sequence[Status]) -> None:
    rows = [
        (status.cell.label, status.reason, str(store.named(store.job(status.cell).log)))
        for status in statuses
        if status.state == "failed"
    ]
    if rows:
        console().print(table("failed", ("cell", "reason", "log"), rows, left=3))


def _plain(status: Status, stale: Sequence[str]) -> dict[str, Any]:
    run = status.run
    return {
        "name": status.cell.name,
        "label": status.cell.label,
        "settings": dict(status.cell.settings),
        "state": status.state,
        "done": 0 if run is None else run.done,
        "tasks": None if run is None else run.tasks,
        "remaining": None if run is None else run.remaining,
        "faa": None if run is None else run.metric("faa"),
        "images_per_second": None if run is None else run.progress.get("images_per_second"),
        "host": None if status.writer is None else status.writer.host,
        "reason": status.reason,
        "stale": list(stale),
    }
