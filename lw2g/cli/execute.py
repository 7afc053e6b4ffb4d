"""Runs an experiment for a command: notes before, progress during, metrics after the run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g.api.experiment import load_engine
from lw2g.api.plugins import components
from lw2g.api.recorded import (
    by_domain,
    head_taken,
    interval_of,
    is_embedded,
    next_method,
    next_model,
    reached,
    spread_of,
)
from lw2g.cli.signals import RUN_OF_COMMAND, telling_of_exits
from lw2g.errors import DataError, Interrupted, as_word
from lw2g.runtime.console import console, in_words, note, printable

if TYPE_CHECKING:
    from lw2g.api.experiment import Experiment
    from lw2g.api.tabular import RunRecord
    from lw2g.registry.catalogue import Catalogue

__all__ = ["announce", "load_components", "run_one", "run_to_end", "tell"]

Listeners = list[Any]


def announce(experiment: Experiment) -> None:
    """Print what a user should know before a run starts."""
    for text in experiment.announcements():
        note(text)
    _tell_problems(experiment.catalogue.problems)


def load_components(run: Path) -> Catalogue:
    """Load the components of a run, and print a note if some of their plugins cannot be used.

    A broken plugin may be why a component of a run is missing, so that the note comes before the run.
    """
    catalogue = components(run)
    _tell_problems(catalogue.problems)
    return catalogue


def _tell_problems(problems: Sequence[Any]) -> None:
    if problems:
        note(f"problems with plugins: {len(problems)}; run `lw2g plugins` to see them")


def run_one(
    experiment: Experiment, directory: Path, tasks: int | None = None, settled: Path | None = None
) -> None:
    """Run one experiment and print its metrics.

    Args:
        experiment: The experiment.
        directory: The run's directory.
        tasks: After how many tasks to stop; None for those of the whole stream.
        settled: As for :meth:`lw2g.api.experiment.Experiment.start`.
    """
    run_to_end(
        directory,
        experiment.catalogue,
        lambda listeners: experiment.start(directory, listeners, tasks=tasks, settled=settled),
    )


def run_to_end(directory: Path, catalogue: Catalogue, action: Callable[[Listeners], RunRecord]) -> None:
    """Run one experiment under a progress display, and tell what it has reached and what comes next."""
    command = click.get_current_context(silent=True)
    if command is not None:
        command.meta[RUN_OF_COMMAND] = directory  # what an error says goes on
    load_engine()  # seconds of imports, before the display counts any
    tell({directory: _under_progress(action, directory)}, directory, catalogue)


def _listeners() -> Listeners:
    from lw2g.runtime.progress_display import progress_tracker

    return [progress_tracker(console(stderr=True))]


def _under_progress(action: Callable[[Listeners], RunRecord], directory: Path) -> RunRecord:
    """Do the run under a progress display; if it is interrupted, end the command and say how to go on.

    Raises:
        click.exceptions.Exit: It was interrupted.
    """
    try:
        with telling_of_exits(directory):
            return action(_listeners())
    except Interrupted:
        # the run has stopped at a safe point, from which it can be resumed
        click.echo(f"interrupted; resume with: lw2g resume {as_word(directory)}", err=True)
    except KeyboardInterrupt:
        # a run that has begun answers Ctrl-C itself
        click.echo("interrupted before anything was learned", err=True)
    raise click.exceptions.Exit(Interrupted.exit_code)


def tell(records: Mapping[Path, Mapping[str, Any]], directory: Path, catalogue: Catalogue) -> None:
    """Print what a run, or the runs of several seeds and class orders, have reached, and the next commands.

    Args:
        records: The record of each run by its directory.
        directory: That of the run, or of the sweep.
        catalogue: The components.
    """
    first = next(iter(records.values()))
    done = len(first["accuracy_matrix"])
    total = first.get("tasks")
    grows = catalogue.grows(first["config"]["baseline"]["name"])
    interval = ""
    try:
        interval = interval_of(records)
    except DataError as error:  # the records are whole, and are told
        click.echo(f"warning: {printable(str(error))}", err=True)
    for line in in_words(reached(records), first, grows=grows, interval=interval):
        click.echo(line)
    if domains := by_domain(list(records.values())):
        click.echo(printable(domains))
    if len(records) > 1:
        click.echo(
            f"means of {len(records)} runs; ±: one sample standard deviation over "
            f"{spread_of(records, catalogue)}, left out where it rounds to 0"
        )
    if total is not None and done < total:
        click.echo(f"stopped after {done} of {total} tasks; go on with: lw2g continue {as_word(directory)}")
    head = head_taken(first)
    if head and len(records) == 1:  # several runs may have taken different heads
        click.echo(head)
    if len(records) > 1:
        click.echo(f"runs: {directory} (all numbers: lw2g report {as_word(directory)})")
    else:
        click.echo(f"run: {directory} (more: lw2g show {as_word(directory)})")
    recommended = next_method(first)
    if recommended:
        # the tables of docs/use.md have it
        why = "it trains nothing, and on most of our streams no training ended clearly above it"
        click.echo(f"next, the recommended method: {why}: lw2g run {recommended}")
    elif len(records) == 1 and done == total and (making := next_model(first, directory)):
        click.echo(f"next, {making}")
    if len(records) == 1 and done == total and is_embedded(first) and sys.stdout.isatty():
        # for who tries lw2g at a terminal; programs that read the output know what they want
        click.echo("next, a model of photos: lw2g start photos model --backbone vit-tiny")
