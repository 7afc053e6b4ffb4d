"""``lw2g run`` runs an experiment; ``lw2g config`` takes the same options and only resolves them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g import api
from lw2g.api.arguments import METHODS, as_typed, word_of_method
from lw2g.api.experiment import Experiment
from lw2g.cli import execute
from lw2g.cli.fetching import fetch_missing
from lw2g.cli.paths import AnyPath
from lw2g.cli.printed_estimate import dry_run_options, require_dry, tell_cost
from lw2g.cli.shared_options import (
    ExperimentCommand,
    experiment_options,
    typed_experiment,
    typed_options,
)
from lw2g.cli.signature import Further, help_of, option_of, options_of
from lw2g.runtime.console import note

if TYPE_CHECKING:
    from lw2g.sweeps.grid import Cell

__all__ = ["config", "run"]

_SAME_OPTIONS = """It takes the options of `lw2g run`; --out, --seeds and --orders do not belong to a
configuration and have no effect."""


@click.command(cls=ExperimentCommand, help=help_of(api.run))
@experiment_options
@options_of(api.run, "tasks", cls=Further)
@click.option("--yes", is_flag=True, cls=Further, help="Fetch a missing published data set without asking.")
@dry_run_options
@option_of(Experiment.start, "settled", hidden=True, type=AnyPath(path_type=Path, file_okay=False))
@click.pass_context
def run(context: click.Context, /, yes: bool, **values: Any) -> None:
    """Print the progress, and what the run has reached; with --dry-run what it would cost."""
    require_dry(dry_run=values["dry_run"], as_json=values["as_json"])
    if values["seed"] is not None and values["seeds"] is not None:
        raise click.UsageError("--seed and --seeds exclude each other")
    several = [name for name in ("seeds", "orders") if values[name] is not None]
    if values["tasks"] is not None and several:
        raise click.UsageError(f"--tasks and --{several[0]} exclude each other; stop the run of one --seed")
    experiment = typed_experiment(values)
    word = word_of_method(values)
    if word:
        typed = typed_options(values)
        meant = METHODS[word]
        # an option beside the word overrides what it stands for
        instead = {key: typed[key] for key in meant if typed.get(key, meant[key]) != meant[key]}
        overridden = f"; overridden by {as_typed(instead)}" if instead else ""
        note(f"--{word} is: {as_typed(meant)}{overridden}")
    cells = _cells(experiment, values) if several else []
    execute.announce(experiment)
    _tell_rule(experiment, values)
    if values["dry_run"]:
        asked = {name: values[name] for name in ("tasks", "as_json", "out")}
        tell_cost(experiment, runs=len(cells) or 1, **asked)
        return
    fetch_missing(context, experiment, agreed=yes)
    if cells:
        from lw2g.api.sweeps import require_here

        require_here(cells, experiment.catalogue, {})
    # the folder is made last: what is refused above leaves no empty one behind
    with experiment.new_directory(values["out"]) as directory:
        if cells:
            from lw2g.cli.sweep_command import run_cells

            run_cells(experiment, directory, cells)
        else:
            execute.run_one(experiment, directory, values["tasks"], values["settled"])


def _cells(experiment: Experiment, values: dict[str, Any]) -> Sequence[Cell]:
    """Return the runs of several seeds and class orders; tell where the order becomes a drawn one."""
    # of sweeps, whose modules one run does without
    from lw2g.api.sweeps import cells_of

    cells = cells_of(experiment, seeds=values["seeds"] or (), orders=values["orders"] or ())
    order = cells[0].settings.get("benchmark.order")
    if values["orders"] is not None:
        configured = experiment.config.benchmark.config.order
        if order != configured:  # which a file may say, such as one of `lw2g config`, or nobody
            note(f"--orders draws class orders: benchmark.order={order}, not {configured}")
    return cells


def _tell_rule(experiment: Experiment, values: dict[str, Any]) -> None:
    """Note that a published method is run under lw2g's rule, where nobody has named a policy."""
    if values["file"] is not None:
        return
    told = experiment.rule_note(typed_options(values), "--policy {}")
    if told:
        note(told)


@click.command(cls=ExperimentCommand, help=help_of(Experiment.to_toml, _SAME_OPTIONS))
@experiment_options
def config(**values: Any) -> None:
    """Print the configuration, and what was noticed about it."""
    experiment = typed_experiment(values)
    for text in experiment.notes:
        note(text)
    click.echo(experiment.to_toml(), nl=False)
