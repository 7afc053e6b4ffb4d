"""``lw2g continue``: go on with a run that was meant to stop."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["continue_run"]


@click.command("continue", short_help="Go on with a run that was meant to stop.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--tasks", type=click.IntRange(min=1), metavar="N", help="Stop after N tasks, counted from the first."
)
def continue_run(run: Path, tasks: int | None) -> None:
    """Go on with the run in the directory RUN, to the end of its stream or to task N.

    The result is the one a run has that never stopped. A directory of several seeds goes on with each.
    """
    from lw2g.cli.execute import continue_one, continue_seeds, warn_of_problems
    from lw2g.registry.catalogue import load_catalogue

    catalogue = load_catalogue()
    warn_of_problems(catalogue)
    if (run / "seeds.json").exists():
        continue_seeds(run, catalogue, tasks)
    else:
        continue_one(run, catalogue, tasks)
