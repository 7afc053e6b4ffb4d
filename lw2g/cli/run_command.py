"""``lw2g run`` runs an experiment; ``lw2g config`` takes the same options and only resolves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g import api
from lw2g.api.arguments import METHODS, as_typed, word_of_method
from lw2g.api.experiment import Experiment
from lw2g.cli import execute
from lw2g.cli.fetching import fetch_missing
from lw2g.cli.paths import AnyPath
from lw2g.cli.printed_estimate import tell_cost
from lw2g.cli.shared_options import (
    ExperimentCommand,
    experiment_options,
    json_option,
    typed_experiment,
    typed_options,
)
from lw2g.cli.signature import Further, help_of, option_of, options_of
from lw2g.runtime.console import note

__all__ = ["config", "run"]

_SAME_OPTIONS = """It takes the options of `lw2g run`; --out and --seeds do not belong to a configuration and
have no effect."""

_DRY_RUN = "Print the run's cost and what is missing (exit code 2 if anything is); run nothing."


@click.command(cls=ExperimentCommand, help=help_of(api.run))
@experiment_options
@options_of(api.run, "tasks", cls=Further)
@click.option("--yes", is_flag=True, cls=Further, help="Fetch a missing published data set without asking.")
@click.option("--dry-run", is_flag=True, help=_DRY_RUN)
@json_option("With --dry-run: print JSON.", cls=Further)
@option_of(Experiment.start, "settled", hidden=True, type=AnyPath(path_type=Path, file_okay=False))
@click.pass_context
def run(context: click.Context, /, yes: bool, **values: Any) -> None:
    """Print the progress, and what the run has reached; with --dry-run what it would cost."""
    if values["as_json"] and not values["dry_run"]:
        raise click.UsageError("--json goes with --dry-run; for a finished run: lw2g show RUN --json")
    if values["seed"] is not None and values["seeds"] is not None:
        raise click.UsageError("--seed and --seeds exclude each other")
    if values["tasks"] is not None and values["seeds"] is not None:
        raise click.UsageError("--tasks and --seeds exclude each other; stop the run of one --seed")
    experiment = typed_experiment(values)
    word = word_of_method(values)
    if word:
        typed = typed_options(values)
        # an option beside the word overrides what it stands for
        meant = {key: typed.get(key, value) for key, value in METHODS[word].items()}
        note(f"--{word} is: {as_typed(meant)}")
    execute.announce(experiment)
    _tell_rule(experiment, values)
    if values["dry_run"]:
        num_runs = 1
        if values["seeds"] is not None:
            num_runs = len(values["seeds"])
        tell_cost(experiment, tasks=values["tasks"], runs=num_runs, as_json=values["as_json"])
        return
    fetch_missing(context, experiment, agreed=yes)
    # the folder is made last: what is refused above leaves no empty one behind
    with experiment.new_directory(values["out"]) as directory:
        if values["seeds"] is None:
            execute.run_one(experiment, directory, values["tasks"], values["settled"])
        else:
            # a sweep, whose modules one run does without
            from lw2g.cli.sweep_command import run_seeds

            run_seeds(experiment, directory, values["seeds"])


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
