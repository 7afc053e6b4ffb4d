"""``lw2g resume`` resumes an interrupted run."""

from __future__ import annotations

from pathlib import Path

import click

from lw2g import api
from lw2g.api.experiment import Begun
from lw2g.cli.execute import load_components, run_to_end
from lw2g.cli.signature import help_of, options_of

__all__ = ["resume"]


@click.command(short_help="Resume an interrupted run.", help=help_of(api.resume))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@options_of(api.resume, "devices")
def resume(run: Path, devices: int | None) -> None:
    """Print the progress, and what the run has reached."""
    catalogue = load_components()
    begun = Begun(run, catalogue)
    run_to_end(run, catalogue, lambda listeners: begun.resume(listeners, devices=devices))
