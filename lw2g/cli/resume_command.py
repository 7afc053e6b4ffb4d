"""``lw2g resume`` resumes an interrupted run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g import api
from lw2g.api.experiment import Begun
from lw2g.cli.execute import load_components, run_to_end
from lw2g.cli.paths import AnyPath
from lw2g.cli.shared_options import settings_option
from lw2g.cli.signature import help_of, options_of

__all__ = ["resume"]


@click.command(help=help_of(api.resume))
@click.argument("run", metavar="RUN", type=AnyPath(path_type=Path, file_okay=False))
@settings_option(api.resume)
@options_of(api.resume, "devices")
def resume(run: Path, devices: int | None, settings: dict[str, Any]) -> None:
    """Print the progress, and what the run has reached."""
    catalogue = load_components(run)
    begun = Begun(run, catalogue)
    run_to_end(run, catalogue, lambda listeners: begun.resume(listeners, settings=settings, devices=devices))
