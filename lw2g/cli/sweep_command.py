"""``lw2g sweep``: runs all cells of a grid as processes and shows their status."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g import report as tabulate  # the root names the functions of the products
from lw2g.api import sweeps
from lw2g.api.status_lines import COLUMNS, StatusLines, counts_of, row_of
from lw2g.cli.execute import tell
from lw2g.cli.paths import AnyPath
from lw2g.cli.plan import print_missing, print_plan
from lw2g.cli.shared_options import FiniteRange, json_option, settings_option
from lw2g.cli.signature import Further, LongCommand, documented, help_of, option_of, options_of
from lw2g.errors import ConfigError, DataError, Interrupted, as_word, counted, nearest
from lw2g.runtime.console import console, note, printable, table

if TYPE_CHECKING:
    from lw2g.api.experiment import Experiment
    from lw2g.api.sweeps import Plan
    from lw2g.api.tabular import SweepResult
    from lw2g.sweeps.grid import Cell
    from lw2g.sweeps.sweep_directory import Status

__all__ = ["fitting", "run_cells", "sweep"]

_DEFAULT = "GRID.toml"
"""How messages name the command that is not named."""
_ROWS_TO_SPARE = 8
_DRY_RUN = (
    "Print the cells, what they need (exit code 2 if something is missing) and what those to run cost, each "
    "kind measured for some seconds; run nothing."
)


class SweepGroup(click.Group):
    """A group whose first argument is a grid unless it names a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command if none is named.

        Raises:
            UsageError: The word is near the name of a command, and no file.
        """
        commands = self.list_commands(ctx)
        # the name of a grid ends in .toml
        is_word = bool(args) and args[0].isalpha() and not Path(args[0]).exists()
        if is_word and args[0] not in commands and (meant := nearest(args[0], commands)):
            raise click.UsageError(f"no file and no command {args[0]!r}{meant}", ctx)
        if args and args[0] not in {*commands, *ctx.help_option_names}:
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all commands but the default one."""
        return [name for name in super().list_commands(ctx) if name != _DEFAULT]


class _RunGrid(LongCommand):
    """The command that is not named."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return what follows the command's name, which is its argument."""
        return ["[OPTIONS]"]


_DIRECTORY = click.argument("directory", metavar="DIR", type=AnyPath(path_type=Path, file_okay=False))


def _executor_options(command: Any) -> Any:
    """Add the options that say where and how cells run."""
    # options are added in reverse, because click lists first what is added last
    for decorate in (
        settings_option(
            sweeps.sweep,
            "executor_options",
            "--executor-set",
            called="executor_options",
            complete=False,
            cls=Further,
        ),
        option_of(sweeps.sweep, "gpus_per_job", type=FiniteRange(min=0), cls=Further),
        options_of(sweeps.sweep, "threads", cls=Further),
        options_of(sweeps.sweep, "jobs"),
        option_of(sweeps.sweep, "executor", type=click.Choice(sweeps.EXECUTORS)),
    ):
        command = decorate(command)
    return command


@click.group(cls=SweepGroup)
@documented
def sweep() -> None:
    """Run the cells of a grid: lw2g sweep GRID.toml [--out DIR] [--jobs N] [--dry-run] [--rehearse]

    All its options: lw2g sweep GRID.toml --help

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


@sweep.command(_DEFAULT, cls=_RunGrid, hidden=True, help=help_of(sweeps.sweep))
@click.argument("grid", metavar="GRID.toml", type=AnyPath(path_type=Path))
@option_of(sweeps.sweep, "out", type=AnyPath(path_type=Path, file_okay=False))
@_executor_options
@click.option("--dry-run", is_flag=True, help=_DRY_RUN)
@json_option("With --dry-run: print JSON.", cls=Further)
@option_of(
    sweeps.sweep,
    "rehearse",
    metavar="[BENCHMARK|FOLDER]",
    is_flag=False,
    flag_value=sweeps.DEFAULT_BENCHMARK,  # without a value, so GRID.toml stands before the option
)
@settings_option(sweeps.sweep, complete=False)
def run_grid(
    grid: Path,
    out: Path | None,
    dry_run: bool,
    as_json: bool,
    rehearse: str | None,
    settings: dict[str, Any],
    **executor_options: Any,
) -> None:
    """Run the cells of GRID.toml, each in its own directory below DIR."""
    if as_json and not dry_run:
        raise click.UsageError("--json goes with --dry-run; for a sweep: lw2g sweep status DIR --json")
    if dry_run:
        plan = sweeps.plan_of(grid, settings=settings, rehearse=rehearse, **executor_options)
        print_plan(plan, _finished_cells(plan, out or sweeps.RUNS / grid.stem), as_json=as_json)
        return
    with _watching() as watch:
        result = sweeps.sweep(
            grid, out=out, settings=settings, rehearse=rehearse, watch=watch, **executor_options
        )
    if rehearse is not None:  # what the real run lacks is told beside what the rehearsal has shown
        _print_rehearsal(result, sweeps.plan_of(grid, settings=settings))
    _finish(result, has_table=rehearse is None, has_grid=True)


def _finished_cells(plan: Plan, out: Path) -> frozenset[str]:
    """Return the directories of the cells that a sweep has finished; tell those of a plan that are stale."""
    try:
        result = sweeps.sweep_status(out)
    except (ConfigError, DataError):  # there is none yet, or one of another lw2g
        return frozenset()
    names = {cell.name for cell in plan.cells}
    sweeps.tell_stale(result.path, {name: why for name, why in result.stale.items() if name in names})
    return frozenset(status.cell.name for status in result.cells if status.state == "finished")


def run_cells(experiment: Experiment, directory: Path, cells: Sequence[Cell]) -> None:
    """Run an experiment's cells, and print mean and deviation of what was reached."""
    with _watching() as watch:
        result = sweeps.run_cells(directory, cells, watch=watch)
    if result.finished:
        found = [status.run for status in result.cells if status.run is not None]
        records = {run.path: run.record for run in found}
        tell(records, directory, experiment.catalogue)
        _tell_of_orders(experiment, cells)
    _finish(result)


def _tell_of_orders(experiment: Experiment, cells: Sequence[Cell]) -> None:
    """Note how to run other class orders, where the runs have one and something draws it."""
    if len({cell.settings.get("benchmark.order_seed") for cell in cells}) > 1:
        return
    with suppress(ConfigError):  # nothing draws its class order
        sweeps.cells_of(experiment, orders=(1, 2, 3))
        note("seeds alone vary here; class orders: --orders 1,2,3")


def _print_rehearsal(result: SweepResult, real: Plan) -> None:
    """Print the table of a rehearsal, and what the real run needs that is not here."""
    ended = [status for status in result.cells if status.state in ("finished", "failed")]
    if any(status.state == "finished" for status in ended):
        text = tabulate(result.path).to_text("md")
        click.echo(printable(text, lines=True), nl=False)
    kinds = counted(len(result.cells), "kind")
    if len(ended) < len(result.cells):  # the rehearsal was stopped
        kinds = f"{len(ended)} of {kinds}"
    click.echo(f"rehearsed: {kinds} of cells, for {counted(len(real.cells), 'cell')} of the real run")
    for status in result.cells:
        if status not in ended:
            click.echo(printable(f"not rehearsed to its end: {status.cell.label}"))
    print_missing(real)
    needs = [need for of_cell in real.needs for need in of_cell]
    if all(need.here for need in needs):
        click.echo("the real run has all that it needs")
    grid = real.grid
    place = as_word(sweeps.RUNS / grid.stem)
    click.echo(f"the real run: lw2g sweep {as_word(grid)} --out {place}; its table: lw2g report {place}")


@sweep.command(short_help="Show the status of a sweep's cells.", help=help_of(sweeps.sweep_status))
@_DIRECTORY
@json_option("Print a JSON list.")
def status(directory: Path, as_json: bool) -> None:
    """Print a row per cell, why cells failed, and which are stale."""
    result = sweeps.sweep_status(directory)
    if as_json:
        entries = [_plain(status, result.stale[status.cell.name]) for status in result.cells]
        click.echo(json.dumps(entries, indent=1))
        return
    console().print(_table(result.cells))
    _print_failures(result)
    old = []
    for status in result.cells:
        options = result.stale[status.cell.name]
        if options:
            old.append((status.cell.label, ", ".join(options)))
    if old:
        console().print(table("finished otherwise than now", ("cell", "what differs"), old, left=2))
        note(f"`lw2g sweep retry {as_word(directory)} --stale` runs these again and keeps the old runs")
    click.echo(counts_of(result.cells))
    states = {status.state for status in result.cells}
    if "running" not in states and states != {"finished"}:
        goes_on = f"`lw2g sweep retry {as_word(directory)}` goes on with all that is not finished"
        waiting = [status.cell.label for status in result.cells if status.open]
        # between two cells nothing runs for a moment
        following = f" now, and {waiting[0]!r} is next" if waiting else ""
        note(printable(f"no cell runs{following}; if the sweep has ended, {goes_on}"))


@sweep.command(
    cls=LongCommand,
    short_help="Run failed cells again and continue the others.",
    help=help_of(sweeps.retry_sweep),
)
@_DIRECTORY
@_executor_options
@options_of(sweeps.retry_sweep, "stale")
def retry(directory: Path, **options: Any) -> None:
    """Print the status of the cells while they run."""
    with _watching() as watch:
        result = sweeps.retry_sweep(directory, say=lambda text: note(printable(text)), watch=watch, **options)
    _finish(result, has_table=True)


@sweep.command(
    short_help="Stop cells; they can be resumed.",
    help=help_of(sweeps.cancel_sweep, "CELL is a cell's label or the name of its directory."),
)
@_DIRECTORY
@click.argument("names", metavar="[CELL]...", nargs=-1)
def cancel(directory: Path, names: Sequence[str]) -> None:
    """Print how many cells were asked."""
    running, waiting = sweeps.cancel_sweep(directory, *names)
    if running or waiting:
        stops = f"asked {counted(running, 'running cell')} to stop"
        click.echo(f"{stops}; {counted(waiting, 'waiting cell')} will not start")
        note(f"`lw2g sweep retry {as_word(directory)}` goes on with all that is not finished")
    else:
        click.echo("nothing to stop: these cells have ended")


def _finish(result: SweepResult, *, has_table: bool = False, has_grid: bool = False) -> None:
    """Print how a sweep has ended and, where it has one, how to see its table; exit with its code.

    Args:
        result: What the sweep has come to.
        has_table: Whether ``lw2g report`` has a table of it.
        has_grid: Whether the command names a grid: typed again, it continues all but failed cells.
    """
    _print_failures(result)
    states = {status.state for status in result.cells}
    table_of = f" (table: lw2g report {as_word(result.path)})" if has_table and "finished" in states else ""
    click.echo(f"{counts_of(result.cells)}; in {result.path}{table_of}")
    if states == {"finished"}:
        return
    # failed cells are an error; with others that only stopped, the sweep as a whole was interrupted
    retry = f"`lw2g sweep retry {result.path}`"
    if states <= {"finished", "failed"}:
        note(f"{retry} runs failed cells again")
        raise click.exceptions.Exit(1)
    goes_on = "the same command" if has_grid and "failed" not in states else retry
    note(f"{goes_on} goes on with all that is not finished")
    raise click.exceptions.Exit(Interrupted.exit_code)


@contextmanager
def _watching() -> Iterator[Callable[[Sequence[Status]], None]]:
    """Yield a function that shows the status of cells: a live table on a terminal, plain lines elsewhere."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield StatusLines()
        return
    from rich.console import Group
    from rich.live import Live

    def show(statuses: Sequence[Status]) -> None:
        # of many cells not all fit, and the counts are of all
        live.update(Group(_table(fitting(statuses, out.height)), counts_of(statuses)), refresh=True)

    with Live(console=out, auto_refresh=False) as live:
        yield show


def fitting(statuses: Sequence[Status], height: int) -> Sequence[Status]:
    """Return as many cells as fit on a terminal, around the first running one."""
    room = max(height - _ROWS_TO_SPARE, 1)
    if len(statuses) <= room:
        return statuses
    # a third of the screen shows cells before the running one, the rest those that wait
    busy = [row for row, status in enumerate(statuses) if status.state == "running"] or [0]
    begin = max(0, min(busy[0] - room // 3, len(statuses) - room))
    return statuses[begin : begin + room]


def _table(statuses: Sequence[Status]) -> Any:
    return table("", COLUMNS, [row_of(status) for status in statuses], left=2)


def _print_failures(result: SweepResult) -> None:
    rows = []
    for status in result.cells:
        if status.state == "failed":
            rows.append((status.cell.label, status.reason, str(result.log_of(status))))
    if rows:
        console().print(table("failed", ("cell", "reason", "log"), rows, left=3))


def _plain(status: Status, stale: Sequence[str]) -> dict[str, Any]:
    """Return the entry of a cell in ``--json``."""
    content: dict[str, Any] = {
        "name": status.cell.name,
        "label": status.cell.label,
        "settings": dict(status.cell.settings),
        "state": status.state,
        # what a cell has that was not started; in this place for the order of the keys
        "done": 0,
        "tasks": None,
        "remaining": None,
        "faa": None,
        "images_per_second": None,
        "host": None,
        "reason": status.reason,
        "stale": list(stale),
    }
    run = status.run
    if run is not None:
        content["done"] = run.done
        content["tasks"] = run.tasks
        content["remaining"] = run.remaining
        content["faa"] = run.metric("faa")
        content["images_per_second"] = run.progress.get("images_per_second")
    if status.writer is not None:
        content["host"] = status.writer.host or None
    return content
