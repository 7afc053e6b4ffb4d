"""``lw2g export`` writes a run's model into its own folder, for use without the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

__all__ = ["export"]


@click.command(short_help="Write a run's model into its own folder.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--task", type=click.IntRange(min=1), metavar="N", help="Export the model as it was after task N."
)
@click.option(
    "--with-backbone", is_flag=True, help="Include the frozen weights. [default: only their checksum]"
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The backbone's weights, if they have moved.",
)
@click.option(
    "--learnable",
    is_flag=True,
    help="Keep features of up to 20 training images a class, for checks and --reject; reads the run's data.",
)
def export(
    run: Path, out: Path, task: int | None, with_backbone: bool, weights: Path | None, learnable: bool
) -> None:
    """Write the model of the run in the directory RUN into the new folder OUT.

    `lw2g predict OUT IMAGES` and `lw2g.load(OUT)` use it like a run, with the same predictions. They need
    neither the run nor its data, only the installed baseline, retrieval strategy and backbone.
    """
    from lw2g.models.saved import export_run
    from lw2g.registry.catalogue import load_catalogue

    options: Any = {"with_backbone": with_backbone, "weights": weights}
    if learnable:
        from lw2g.updates.learning import export_learnable

        size = export_learnable(run, load_catalogue(), out, task, **options)
    else:
        size = export_run(run, load_catalogue(), out, task, **options)
    from lw2g.console.output import in_units

    inside = "with its backbone" if with_backbone else "without its backbone"
    click.echo(f"{out}: {in_units(size)}, {inside}")
