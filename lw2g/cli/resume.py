"""``lw2g resume``: go on with an interrupted run."""

from __future__ import annotations

from pathlib import Path

import click

from lw2g.cli.options import devices_option

__all__ = ["resume"]


@click.command(short_help="Go on with an interrupted run.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@devices_option("Processes that work on it from now on (default: as the run is configured).")
def resume(run: Path, devices: int | None) -> None:
    """Go on with the run in the directory RUN from its newest whole checkpoint.

    The result is the one an uninterrupted run would have had. A directory of several seeds goes on with the
    seeds that are not finished.
    """
    from lw2g.cli.execute import resume_one, resume_seeds, warn_of_problems
    from lw2g.registry.catalogue import load_catalogue

    catalogue = load_catalogue()
    warn_of_problems(catalogue)
    if (run / "seeds.json").exists():
        resume_seeds(run, catalogue, devices)
    else:
        resume_one(run, catalogue, devices)
