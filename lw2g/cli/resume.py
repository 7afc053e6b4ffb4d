"""``lw2g resume`` resumes an interrupted run."""

from __future__ import annotations

from pathlib import Path

import click

from lw2g.cli.options import devices_option

__all__ = ["resume"]


@click.command(short_help="Resume an interrupted run.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@devices_option("Processes of the run from now on (default: as configured).")
def resume(run: Path, devices: int | None) -> None:
    """Resume the run in the directory RUN from its newest intact checkpoint.

    The result equals that of an uninterrupted run. In a directory of several seeds, unfinished runs resume.
    """
    from lw2g.cli.execute import resume_one, resume_seeds, warn_of_problems
    from lw2g.registry.catalogue import load_catalogue

    catalogue = load_catalogue()
    warn_of_problems(catalogue)
    if (run / "seeds.json").exists():
        resume_seeds(run, catalogue, devices)
    else:
        resume_one(run, catalogue, devices)
