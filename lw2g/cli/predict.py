"""``lw2g predict`` classifies image files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lw2g.cli.options import FiniteRange

__all__ = ["predict"]


@click.command(short_help="Classify image files with a run or an export.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@click.argument("images", metavar="IMAGES...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--task", type=click.IntRange(min=1), metavar="N", help="Use the model as it was after task N.")
@click.option("--top-k", type=click.IntRange(min=1), default=1, metavar="K", help="Name the K best classes.")
@click.option("--device", metavar="NAME", help="cpu, cuda, cuda:N or mps. [default: the run's]")
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Images per forward; smaller is faster for few images, which are padded. [default: the run's]",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The backbone's weights, if they have moved.",
)
@click.option(
    "--reject",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    metavar="RATE",
    help="Call images unknown that are like no class, and at most this share of known ones, as in 0.05.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list (tasks count from 0).")
def predict(
    run: Path,
    images: tuple[Path, ...],
    task: int | None,
    top_k: int,
    device: str | None,
    batch_size: int | None,
    weights: Path | None,
    reject: float | None,
    as_json: bool,
) -> None:
    """Classify IMAGES, files or folders, with the run or export in the directory RUN.

    A model of stored features takes .npy files of vectors, or the test rows of files of stored features.

    The model is that after the run's last task unless --task says otherwise.
    """
    missing = [str(path) for path in images if not path.exists()]
    if missing:
        from lw2g.errors import DataError

        raise DataError(f"no image file at {', '.join(map(repr, missing))}", "check the paths")
    from lw2g.images.pictures import as_list
    from lw2g.models.saved import open_model
    from lw2g.registry.catalogue import load_catalogue

    listed = [image for path in images for image in as_list(path)]
    model = open_model(run, load_catalogue(), task, device=device, batch_size=batch_size, weights=weights)
    entries = model.predict(listed, top_k, reject)
    if as_json:
        click.echo(json.dumps(entries, indent=1))
        return
    from lw2g.console.output import console, table

    chosen = len(set(model.task_to_set)) > 1 and entries[0]["task"] is not None
    columns = ("image", "class", "probability", *(("task", "set") if chosen else ()))
    rows = [row[: len(columns)] for entry in entries for row in _rows(entry)]
    console().print(table("", columns, rows, left=2))


def _rows(entry: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield one row per class; only the first shows image, task and set."""
    head, tail = str(entry["path"]), (_count(entry["task"], 1), _count(entry["set"], 0, "#"))
    rejected = entry.get("rejected", False)
    for answer in entry["top"]:
        name = f"unknown (nearest: {answer['class']})" if rejected and head else str(answer["class"])
        yield (head, name, f"{answer['probability']:.3f}", *tail)
        head, tail = "", ("", "")


def _count(value: int | None, first: int, mark: str = "") -> str:
    """Return a number as text, counted from ``first``."""
    return "-" if value is None else f"{mark}{value + first}"
