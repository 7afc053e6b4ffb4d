"""``lw2g export``: a run's model in a folder of its own, to be used without the run."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["export"]


@click.command(short_help="Take a run's model away, in a folder of its own.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--task", type=click.IntRange(min=1), metavar="N", help="Take the model as it was after task N."
)
@click.option(
    "--with-backbone", is_flag=True, help="Put the frozen weights inside. [default: known by their checksum]"
)
def export(run: Path, out: Path, task: int | None, with_backbone: bool) -> None:
    """Write the model of the run in the directory RUN into the new folder OUT.

    `lw2g predict OUT IMAGES` and `lw2g.load(OUT)` use it as they use a run, with the same answers. It needs
    neither the run nor its data: only the baseline, the retrieval strategy and the backbone, installed.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.training.models.saved import export_run

    number = None if task is None else task - 1
    size = export_run(run, load_catalogue(), out, number, with_backbone=with_backbone)
    from lw2g.cli.output import in_units

    inside = "with its backbone" if with_backbone else "without its backbone"
    click.echo(f"{out}: {in_units(size)}, {inside}")
