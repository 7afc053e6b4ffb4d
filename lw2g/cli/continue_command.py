"""``lw2g continue`` continues a run that stopped after --tasks, or after the end of its stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g import api
from lw2g.api.experiment import Begun
from lw2g.cli.execute import load_components, run_to_end
from lw2g.cli.paths import AnyPath
from lw2g.cli.shared_options import component_option, settings_option
from lw2g.cli.signature import help_of, options_of

__all__ = ["continue_run"]


@click.command(
    "continue",
    help=help_of(api.continue_run),
)
@click.argument("run", metavar="RUN", type=AnyPath(path_type=Path, file_okay=False))
@options_of(api.continue_run, "tasks")
@component_option(api.continue_run, "benchmark")
@settings_option(api.continue_run)
@options_of(api.continue_run, "devices")
def continue_run(run: Path, tasks: int | None, devices: int | None, **options: Any) -> None:
    """Print the progress, and what the run has reached."""
    catalogue = load_components(run)
    begun = Begun(run, catalogue)
    run_to_end(
        run,
        catalogue,
        lambda listeners: begun.go_on(listeners, tasks=tasks, devices=devices, **options),
    )
