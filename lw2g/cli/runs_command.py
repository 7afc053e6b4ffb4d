"""``lw2g runs`` lists the runs below a directory with their states."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g.api.recorded import runs as find
from lw2g.api.tabular import ORDER, Runs
from lw2g.cli.paths import AnyPath
from lw2g.cli.shared_options import json_option
from lw2g.cli.signature import help_of, option_of
from lw2g.errors import as_word, counted
from lw2g.runtime.console import console, fits, note, number, printable, table

if TYPE_CHECKING:
    from rich.table import Table

    from lw2g.results.found_runs import ReportedRun

__all__ = ["runs"]

_COLUMNS = ("run", "baseline", "policy", "benchmark", "backbone", "options", "seed", "state", "task", "FAA")
_SETTINGS = ("baseline", "policy", "benchmark", "backbone", "seed")
"""The columns of which those that say the same of all runs are told below the table."""
_MAY_BE_EMPTY = ("policy", "options")
"""The columns that are left out where they say nothing of any run."""
_WORDS = _COLUMNS[:6]
"""The columns that are aligned to the left."""
_MOST_OPTIONS = 3
"""Options of a run that are shown."""
_LONGEST = 24
"""Letters of an option's value that are shown."""
_DEFAULT = "DIR is `runs`, where `lw2g run` writes, unless another is given."
_EXIT = "The exit code is 1 if any run is damaged, even one that --where excludes."


@click.command(help=help_of(find, _DEFAULT, _EXIT))
@click.argument("directory", metavar="[DIR]", default="runs", type=AnyPath(path_type=Path))
@option_of(Runs.where, "conditions", "--where", metavar="KEY=VALUE", multiple=True)
@json_option("Print a JSON list.")
@click.pass_context
def runs(ctx: click.Context, directory: Path, conditions: Sequence[str], as_json: bool) -> None:
    """Print a row per run, and what is wrong with damaged ones."""
    everything = find(directory)
    chosen = everything.where(*conditions)
    if as_json:
        click.echo(json.dumps([_plain(run) for run in chosen], indent=1))
    elif not everything:
        click.echo(printable(f"no run at or below {str(directory)!r}"))
    elif not chosen:
        click.echo(printable(_met_by_none(everything, conditions)))
    else:
        rows = []
        chosen = chosen.by_draws()
        named = chosen.baseline_names()
        differing = []
        for options, (_, in_name) in zip(chosen.differing_options(preset=False), named, strict=True):
            differing.append({key: value for key, value in options.items() if key not in in_name})
        values = defaultdict(set)
        for options in differing:
            for key, value in options.items():
                values[key].add(value)
        # of many options those stay that tell class orders apart, which nothing else of a line does, then
        # those that tell most runs apart
        first = sorted(values, key=lambda key: (not key.startswith(ORDER), -len(values[key])))
        for entry, options, (name, _) in zip(chosen.rows(), differing, named, strict=True):
            words = [_in_words(key, options[key]) for key in first if key in options]
            if len(words) > _MOST_OPTIONS:
                words[_MOST_OPTIONS:] = ["..."]
            rows.append(_row({**entry, "baseline": name}, ", ".join(words)))
        columns, lines, same = _without_equal(rows)
        printed = table("", columns, lines, left=sum(name in _WORDS for name in columns))
        if not fits(printed):
            printed = _stacked(columns, lines)
        console().print(printed)
        click.echo(printable("; ".join([counted(len(rows), "run"), *same])))
        interrupted = [run for run in chosen if run.state == "interrupted"]
        if interrupted:
            note(f"of those interrupted, one goes on with: lw2g resume {as_word(interrupted[0].path)}")
    problems = [run.problem for run in everything if run.state == "damaged"]
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    ctx.exit(1 if problems else 0)


def _in_words(option: str, value: str) -> str:
    """Return an option in a few letters: the list of a class order has more than a line."""
    if len(value) > _LONGEST:
        value = f"{value[: _LONGEST - 3]}..."
    return f"{option.removeprefix('baseline.').removeprefix('benchmark.')}={value}"


def _met_by_none(everything: Runs, conditions: Sequence[str]) -> str:
    """Return which condition leaves no run over, and what others would."""
    left = everything
    for condition in conditions:
        kept = left.where(condition)
        if not kept:
            return f"no run with {condition}; there are runs with {', '.join(left.values_of(condition))}"
        left = kept
    return "no run"


def _without_equal(rows: Sequence[Sequence[str]]) -> tuple[Sequence[str], Sequence[Sequence[str]], list[str]]:
    """Return the columns and rows without what is the same in all or empty, and what is the same, in words.

    A line of ten columns is longer than many a terminal is wide.
    """
    left_out = []
    same = []
    for at, name in enumerate(_COLUMNS):
        values = {row[at] for row in rows}
        if name in _MAY_BE_EMPTY and values <= {"-", ""}:
            left_out.append(at)
        elif name in _SETTINGS and len(values) == 1 and len(rows) > 1:
            left_out.append(at)
            if rows[0][at] != "?":
                same.append(f"{name} {rows[0][at]}")
    kept = [at for at in range(len(_COLUMNS)) if at not in left_out]
    told = [f"all: {', '.join(same)}"] if same else []
    return [_COLUMNS[at] for at in kept], [[row[at] for at in kept] for row in rows], told


def _stacked(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    """Return the table of a narrow terminal: a run's settings stand in a line below its name."""
    rows = []
    for line in lines:
        of = dict(zip(columns, line, strict=True))
        settings = []
        for name in ("baseline", "policy", "benchmark", "backbone", "options", "seed"):
            if of.get(name, "-") not in {"-", ""}:
                word = f"{name} " if name in {"policy", "seed"} else ""
                settings.append(f"{word}{of[name]}")
        rows.append((of["state"], of["task"], of["FAA"], of["run"]))
        if settings:
            rows.append(("", "", "", ", ".join(settings)))
    return table("", ("state", "task", "FAA", "run"), rows, left=4)


def _row(entry: Mapping[str, Any], options: str) -> tuple[str, ...]:
    """Return the line of a run in the table; "?" stands for what a damaged run does not tell."""
    policy = entry["policy"]
    if policy is None:
        # nothing decides on sets that a method does not have; of a damaged run nothing is known
        policy = "?" if entry["baseline"] is None else "-"
    seed = "?"
    if entry["seed"] is not None:
        seed = str(entry["seed"])
    return (
        as_word(entry["run"]),  # as a command takes it
        str(entry["baseline"] or "?"),
        policy,
        str(entry["benchmark"] or "?"),
        str(entry["backbone"] or "?"),
        options,
        seed,
        entry["state"],
        f"{entry['done']}/{entry['tasks'] or '?'}",
        number(entry.get("faa")),
    )


def _plain(run: ReportedRun) -> dict[str, Any]:
    fields = ("state", "done", "tasks", "remaining", "options")
    parts = {name: run.record.get(name, {}) for name in ("metrics", "seconds")}
    return {"path": str(run.path)} | {name: getattr(run, name) for name in fields} | parts
