"""``lw2g predict`` classifies image files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lw2g.api import models
from lw2g.cli.options import FiniteRange
from lw2g.cli.signature import options_of
from lw2g.console.output import console, table
from lw2g.errors import DataError

__all__ = ["predict"]


@click.command(short_help="Classify image files with a run or an export.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@click.argument("images", metavar="IMAGES...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--top-k", type=click.IntRange(min=1), default=1, metavar="K", help="Name the K best classes.")
@options_of(models.load, "task", "device", "batch_size", "weights")
@click.option(
    "--reject",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    metavar="RATE",
    help="Call images unknown that are like no class, and at most this share of known ones, as in 0.05.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list (tasks count from 0).")
def predict(
    run: Path, images: tuple[Path, ...], top_k: int, reject: float | None, as_json: bool, **options: Any
) -> None:
    """Classify IMAGES, files or folders, with the run or export in the directory RUN.

    A model of stored features takes .npy files of vectors, or the test rows of files of stored features.

    The model is that after the run's last task unless --task says otherwise.
    """
    # told before a model is loaded, which takes seconds
    missing = [str(path) for path in images if not path.exists()]
    if missing:
        raise DataError(f"no image file at {', '.join(map(repr, missing))}", "check the paths")
    model = models.load(run, **options)
    entries = model.predict(images, top_k, reject)
    if as_json:
        click.echo(json.dumps(entries, indent=1))
        return
    columns = ["image", "class", "probability"]
    has_several_sets = len(set(model.task_to_set)) > 1
    if has_several_sets and entries[0]["task"] is not None:
        columns += ["task", "set"]
    rows = []
    for entry in entries:
        rows += [row[: len(columns)] for row in _rows(entry)]
    console().print(table("", columns, rows, left=2))


def _rows(entry: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield one row per class; only the first shows image, task and set."""
    rejected = entry.get("rejected", False)
    image = str(entry["path"])
    chosen = (_count(entry["task"], 1), _count(entry["set"], 0, "#"))
    for place, answer in enumerate(entry["top"]):
        name = str(answer["class"])
        if rejected and place == 0:
            name = f"unknown (nearest: {name})"
        yield (image, name, f"{answer['probability']:.3f}", *chosen)
        image = ""
        chosen = ("", "")


def _count(value: int | None, first: int, mark: str = "") -> str:
    """Return a number as text, counted from ``first``."""
    return "-" if value is None else f"{mark}{value + first}"
