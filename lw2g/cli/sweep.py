"""``lw2g sweep``: all cells of a grid, as processes, with a table of where they stand."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g.cli.options import parse_settings, settings_option
from lw2g.cli.output import console, note, number, printable, table
from lw2g.cli.report import report
from lw2g.errors import ConfigError, nearest

if TYPE_CHECKING:
    from lw2g.sweep.grid import Cell
    from lw2g.sweep.store import Status, SweepDirectory

__all__ = ["fitting", "sweep"]

_DEFAULT = "grid"
_COLUMNS = ("cell", "state", "task", "left", "FAA", "images/s", "host")
_SAID = ("task", "left", "FAA", "host")
_EXECUTORS = ("local", "ray", "slurm")
_INTERRUPTED = 130
_ROWS_TO_SPARE = 8


class SweepGroup(click.Group):
    """A group whose first argument is a grid unless it is one of its commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the default command where none is named."""
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands that are named."""
        return [name for name in super().list_commands(ctx) if name != _DEFAULT]


def _executor_options(command: Any) -> Any:
    for option in (
        click.option(
            "--executor-set",
            "special",
            metavar="KEY=VALUE",
            multiple=True,
            callback=parse_settings,
            help="An option of the executor, such as partition=gpu; repeatable.",
        ),
        click.option(
            "--gpus-per-job", type=click.FloatRange(min=0), help="GPUs of a run; 0.5: two share one."
        ),
        click.option(
            "--threads", type=click.IntRange(min=1), help="Cores of a run (its share, if left out)."
        ),
        click.option(
            "--jobs", type=click.IntRange(min=1), help="Runs at a time (1 on this machine, if left out)."
        ),
        click.option(
            "--executor", type=click.Choice(_EXECUTORS), help="Where runs go (default: this machine)."
        ),
    ):
        command = option(command)
    return command


def _executor_settings(before: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an executor's settings: what a grid or a sweep says of it, under what the command line says."""
    name = values["executor"] or before.get("name", _EXECUTORS[0])
    kept = before if name == before.get("name", _EXECUTORS[0]) else {}
    told = {key: values[key] for key in ("jobs", "threads", "gpus_per_job") if values[key] is not None}
    return {**kept, "name": name, **told, **dict(values["special"])}


@click.group(cls=SweepGroup, short_help="Run all cells of a grid, and say where they stand.")
def sweep() -> None:
    """Run the cells of a grid: lw2g sweep GRID.toml [--out DIR] [--jobs N] [--dry-run] [--set KEY=VALUE]

    --executor ray and slurm run them on a cluster; a table [executor] of the grid says so, too.

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

    The same command goes on where a sweep was stopped: finished cells stay, interrupted ones are resumed,
    failed ones are listed. It ends with exit code 1 if a cell has failed, 130 if it was stopped.
    """


@sweep.command(_DEFAULT, hidden=True, short_help="Run a grid.")
@click.argument("grid", metavar="GRID.toml", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Directory (default: runs/GRID)."
)
@_executor_options
@click.option("--dry-run", is_flag=True, help="Print cells, what they need, and what they would cost.")
@click.option(
    "--cost/--no-cost", default=True, help="With --dry-run: whether to measure costs (a few steps each)."
)
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: print JSON.")
@settings_option("A setting of every cell, which wins over the grid; repeatable.", complete=False)
def run_grid(
    grid: Path,
    out: Path | None,
    dry_run: bool,
    cost: bool,
    as_json: bool,
    settings: Sequence[tuple[str, Any]],
    **values: Any,
) -> None:
    """Run the cells of GRID.toml, each in a directory of its own below DIR."""
    if as_json and not dry_run:
        raise click.UsageError("--json goes with --dry-run; of a sweep: lw2g sweep status DIR --json")
    from lw2g.config.directory import RUNS
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.sweep.engine import require_valid
    from lw2g.sweep.grid import read_executor, read_grid
    from lw2g.sweep.store import SweepDirectory

    cells = read_grid(grid, dict(settings))
    catalogue = load_catalogue()
    require_valid(cells, catalogue)
    store = SweepDirectory(out or RUNS / grid.stem)
    if dry_run:
        from lw2g.cli.plan import print_plan

        print_plan(cells, catalogue, cost=cost, as_json=as_json)
    else:
        _go(store, cells, _executor_settings(read_executor(grid), values))


@sweep.command(short_help="Say where the cells of a sweep stand.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def status(directory: Path, as_json: bool) -> None:
    """Say where the cells of the sweep in DIR stand.

    Cells that finished under other values than their settings mean now are named, too.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.sweep.store import SweepDirectory, differences_now

    store, catalogue = SweepDirectory(directory), load_catalogue()
    found = store.statuses(store.cells())
    stale = {one.cell.name: differences_now(one, catalogue) for one in found}
    if as_json:
        click.echo(json.dumps([_plain(one, stale[one.cell.name]) for one in found], indent=1))
        return
    console().print(_table(found))
    _print_failures(store, found)
    old = [(one.cell.label, ", ".join(stale[one.cell.name])) for one in found if stale[one.cell.name]]
    if old:
        console().print(table("finished under other values than now", ("cell", "option"), old, left=2))
        note(f"`lw2g sweep retry {directory} --stale` runs these anew, and keeps what they found")
    click.echo(_counts(found))


@sweep.command(short_help="Try failed cells again, and go on with the others.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@_executor_options
@click.option("--stale", is_flag=True, help="Also run anew what finished under other values than now.")
def retry(directory: Path, stale: bool, **values: Any) -> None:
    """Try the failed cells of the sweep in DIR again, and go on with what is not finished.

    They go where the sweep ran before, unless --executor says otherwise.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.sweep.store import SweepDirectory, differences_now

    store, catalogue = SweepDirectory(directory), load_catalogue()
    cells = store.cells()
    for found in store.statuses(cells):
        if found.state == "failed":
            store.note_failure(found.cell, None)
        elif stale and differences_now(found, catalogue):
            kept = store.named(store.job(found.cell).set_aside())
            note(printable(f"{found.cell.label}: what it found is kept in {kept}"))
    _go(store, cells, _executor_settings(store.executor(), values))


@sweep.command(short_help="Stop cells where they can be resumed.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", metavar="[CELL]...", nargs=-1)
def cancel(directory: Path, names: Sequence[str]) -> None:
    """Ask the cells of the sweep in DIR, or those named, to stop, whichever sweep runs them, wherever.

    CELL is a cell's label or the name of its directory. What runs saves what it has learned and stops within
    some seconds; what waits is not begun. The same sweep, or `lw2g sweep retry DIR`, goes on with all of it.
    """
    from lw2g.sweep.store import SweepDirectory

    store = SweepDirectory(directory)
    cells = _named(store.cells(), names)
    store.cancel(cells)
    running = sum(one.state == "running" for one in store.statuses(cells))
    click.echo(f"{running} running cells are asked to stop; no other of {len(cells)} is begun")


def _named(cells: Sequence[Cell], names: Sequence[str]) -> Sequence[Cell]:
    """Return the cells of these labels or directories, all of them where none is named."""
    known = {name: cell for cell in cells for name in (cell.label, cell.name)}
    for name in names:
        if name not in known:
            raise ConfigError(f"no cell {name!r}{nearest(name, known)}; see lw2g sweep status")
    return [known[name] for name in names] or cells


sweep.add_command(report)


def _go(store: SweepDirectory, cells: Sequence[Cell], settings: Mapping[str, Any]) -> None:
    """Run a sweep, showing where it stands, and end with the exit code it deserves."""
    from lw2g.sweep.engine import run_sweep
    from lw2g.sweep.executors import load_executor

    executor = load_executor(settings, store.path)
    with _watching() as watch:
        found = run_sweep(store, cells, executor, watch)
    _print_failures(store, found)
    click.echo(f"{_counts(found)}; in {store.path}")
    states = {one.state for one in found}
    if states == {"finished"}:
        return
    if "failed" in states:
        note(f"`lw2g sweep retry {store.path}` tries failed cells again")
    raise click.exceptions.Exit(
        1 if states == {"finished", "failed"} or states == {"failed"} else _INTERRUPTED
    )


@contextmanager
def _watching() -> Iterator[Callable[[Sequence[Status]], None]]:
    """Give what shows where cells stand: a table that is kept up to date, or plain lines off terminals."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield Lines()
        return
    from rich.live import Live

    with Live(console=out, auto_refresh=False) as live:
        yield lambda statuses: live.update(_table(fitting(statuses, out.height)), refresh=True)


class Lines:
    """Prints a line whenever a cell begins, finishes a task, or ends."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[str, int]] = {}

    def __call__(self, statuses: Sequence[Status]) -> None:
        """Print what has changed."""
        for one in statuses:
            now = (one.state, 0 if one.run is None else one.run.done)
            before = self._before.get(one.cell.name)
            self._before[one.cell.name] = now
            if now != before and (before is not None or one.state != "waiting"):
                said = " ".join(
                    f"{name} {text}" for name, text in zip(_COLUMNS, _row(one), strict=True) if name in _SAID
                )
                click.echo(printable(f"{one.cell.label}: {one.state}, {said}"), err=True)


def fitting(statuses: Sequence[Status], height: int) -> Sequence[Status]:
    """Return as many cells as a terminal shows, those that run and those near them first."""
    room = max(height - _ROWS_TO_SPARE, 1)
    if len(statuses) <= room:
        return statuses
    busy = [place for place, one in enumerate(statuses) if one.state == "running"] or [0]
    begin = max(0, min(busy[0] - room // 3, len(statuses) - room))
    return statuses[begin : begin + room]


def _table(statuses: Sequence[Status]) -> Any:
    return table("", _COLUMNS, [_row(one) for one in statuses], left=2)


def _row(one: Status) -> tuple[str, ...]:
    run, writer = one.run, one.writer
    host = "-" if writer is None else writer.host
    if run is None:
        return (one.cell.label, one.state, "-", "-", "-", "-", host)
    left = "-" if run.remaining is None else str(timedelta(seconds=round(run.remaining)))
    speed = number(run.progress.get("images_per_second"), 0)
    done = f"{run.done}/{run.tasks or '?'}"
    return (one.cell.label, one.state, done, left, number(run.metric("faa")), speed, host)


def _counts(statuses: Sequence[Status]) -> str:
    counts = Counter(one.state for one in statuses)
    return f"{len(statuses)} cells: " + ", ".join(f"{count} {state}" for state, count in counts.items())


def _print_failures(store: SweepDirectory, statuses: Sequence[Status]) -> None:
    rows = [
        (one.cell.label, one.reason, str(store.named(store.job(one.cell).log)))
        for one in statuses
        if one.state == "failed"
    ]
    if rows:
        console().print(table("failed", ("cell", "reason", "log"), rows, left=3))


def _plain(one: Status, stale: Sequence[str]) -> dict[str, Any]:
    run = one.run
    return {
        "name": one.cell.name,
        "label": one.cell.label,
        "settings": dict(one.cell.settings),
        "state": one.state,
        "done": 0 if run is None else run.done,
        "tasks": None if run is None else run.tasks,
        "remaining": None if run is None else run.remaining,
        "faa": None if run is None else run.metric("faa"),
        "images_per_second": None if run is None else run.progress.get("images_per_second"),
        "host": None if one.writer is None else one.writer.host,
        "reason": one.reason,
        "stale": list(stale),
    }
