"""``lw2g predict``: classes and sets for image files."""

from __future__ import annotations

import json
from pathlib import Path

import click

__all__ = ["predict"]


@click.command(short_help="Classify image files with a run.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@click.argument("images", metavar="IMAGES...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--task", type=click.IntRange(min=1), metavar="N", help="Use the model as it was after task N.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list (tasks count from 0).")
def predict(run: Path, images: tuple[Path, ...], task: int | None, as_json: bool) -> None:
    """Classify IMAGES with the newest finished task of the run in the directory RUN."""
    missing = [str(path) for path in images if not path.is_file()]
    if missing:
        from lw2g.errors import DataError

        raise DataError(f"no image file at {', '.join(map(repr, missing))}; check the paths")
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.training.saved import open_run

    found = open_run(run, load_catalogue(), None if task is None else task - 1).predict(images)
    if as_json:
        click.echo(json.dumps([{**row, "path": str(row["path"])} for row in found], indent=1))
        return
    from lw2g.cli.output import console, table

    rows = [
        (str(row["path"]), str(row["class"]), _count(row["task"], 1), _count(row["set"], 0, "#"))
        for row in found
    ]
    console().print(table("", ("image", "class", "task", "set"), rows, left=2))


def _count(value: int | None, first: int, mark: str = "") -> str:
    """Return a number as text; tasks count from 1 in text, sets are shown by their ids."""
    return "-" if value is None else f"{mark}{value + first}"
