"""``lw2g export`` writes a run's model into its own folder, for use without the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g.api import models
from lw2g.cli.paths import AnyPath
from lw2g.cli.signature import help_of, options_of
from lw2g.runtime.console import in_units

__all__ = ["export"]


@click.command(help=help_of(models.export))
@click.argument("run", metavar="RUN", type=AnyPath(path_type=Path, file_okay=False))
@click.argument("out", metavar="OUT", type=AnyPath(path_type=Path))
@options_of(models.export, "task", "with_backbone", "weights", "learnable")
def export(run: Path, out: Path, with_backbone: bool, **options: Any) -> None:
    """Print how large the export is."""
    size = models.export(run, out, with_backbone=with_backbone, **options)
    inside = "with its backbone" if with_backbone else "without its backbone"
    click.echo(f"{out}: {in_units(size)}, {inside}")
