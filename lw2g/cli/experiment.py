"""``lw2g run`` runs an experiment; ``lw2g config`` takes the same options and only resolves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g import api
from lw2g.cli import execute
from lw2g.cli.estimate import tell_cost
from lw2g.cli.options import (
    RECOMMENDED,
    AnyPath,
    ExperimentCommand,
    ExperimentOptions,
    experiment_options,
)
from lw2g.cli.signature import options_of
from lw2g.console.output import note

__all__ = ["config", "run"]


@click.command(cls=ExperimentCommand, short_help="Run an experiment.")
@experiment_options
@options_of(api.run, "tasks")
@click.option("--dry-run", is_flag=True, help="Print the run's cost and what is missing; run nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: print JSON.")
@click.option(
    "--settled",
    type=AnyPath(path_type=Path, file_okay=False),
    metavar="DIR",
    hidden=True,
    help="A folder that the cells of a sweep share: what --precision auto settled on for the first one.",
)
def run(**values: Any) -> None:
    """Run an experiment: a TOML file, or names and options, or both (options win).

    Without arguments it runs the embedded default. Growth policies (`lw2g plugins`) bring the constraints
    orthogonal and cpk unless --constraint says otherwise; `always` brings none: it is the published baseline.
    """
    if values["as_json"] and not values["dry_run"]:
        raise click.UsageError("--json goes with --dry-run; for a finished run: lw2g show RUN --json")
    if values["seed"] is not None and values["seeds"] is not None:
        raise click.UsageError("--seed and --seeds exclude each other")
    experiment = ExperimentOptions.of(values).resolve()
    if values["recommended"]:
        settings = " ".join(f"--set {key}={value}" for key, value in RECOMMENDED.items() if "." in key)
        note(f"--recommended is: --baseline {RECOMMENDED['baseline']} {settings}")
    execute.announce(experiment)
    if values["dry_run"]:
        num_runs = 1 if values["seeds"] is None else len(values["seeds"])
        tell_cost(experiment, tasks=values["tasks"], runs=num_runs, as_json=values["as_json"])
        return
    with experiment.new_directory(values["out"]) as directory:
        if values["seeds"] is None:
            execute.run_one(experiment, directory, values["tasks"], values["settled"])
        else:
            execute.run_seeds(experiment, directory, values["seeds"], values["tasks"])


@click.command(cls=ExperimentCommand, short_help="Print the complete configuration of a run command.")
@experiment_options
def config(**values: Any) -> None:
    """Print the complete TOML of an experiment, with a comment on each option; run nothing.

    It takes the options of `lw2g run`; --out and --seeds do not belong to a configuration and have no effect.
    """
    experiment = ExperimentOptions.of(values).resolve()
    for text in experiment.notes:
        note(text)
    click.echo(experiment.to_toml(), nl=False)
