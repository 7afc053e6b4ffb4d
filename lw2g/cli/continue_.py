"""``lw2g continue`` continues a run that stopped after --tasks, or after the end of its stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g import api
from lw2g.api import seeds
from lw2g.api.experiment import Begun
from lw2g.cli.execute import go_on_with_seeds, load_components, run_to_end
from lw2g.cli.options import component_option, settings_option
from lw2g.cli.paths import AnyPath
from lw2g.cli.signature import help_of, options_of
from lw2g.errors import ConfigError

__all__ = ["continue_run"]

_SEEDS = "In a directory of several seeds every run continues."


@click.command(
    "continue",
    short_help="Continue a run that stopped after --tasks, or with new classes.",
    help=help_of(api.continue_run, _SEEDS),
)
@click.argument("run", metavar="RUN", type=AnyPath(path_type=Path, file_okay=False))
@options_of(api.continue_run, "tasks")
@component_option(api.continue_run, "benchmark")
@settings_option(api.continue_run)
@options_of(api.continue_run, "devices")
def continue_run(run: Path, tasks: int | None, devices: int | None, **options: Any) -> None:
    """Print the progress, and what the run has reached."""
    catalogue = load_components()
    if not seeds.holds_seeds(run):
        begun = Begun(run, catalogue)
        run_to_end(
            run,
            catalogue,
            lambda listeners: begun.go_on(listeners, tasks=tasks, devices=devices, **options),
        )
        return
    if options["benchmark"] is not None:
        raise ConfigError(
            f"{str(run)!r} holds the runs of several seeds", f"add classes to each of them: {run}/seed-N"
        )
    go_on_with_seeds(
        run,
        catalogue,
        lambda begins: seeds.continue_seeds(
            run,
            tasks=tasks,
            settings=options["settings"],
            devices=devices,
            begins=begins,
            catalogue=catalogue,
        ),
    )
