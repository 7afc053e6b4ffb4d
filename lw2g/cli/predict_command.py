"""``lw2g predict`` classifies image files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g.api import models
from lw2g.cli.paths import AnyPath, ModelPath, require_model_first
from lw2g.cli.shared_options import USUAL_REJECT, RejectRate, box_options, can_reject, json_option
from lw2g.cli.signature import Further, LongCommand, help_of, option_of, options_of
from lw2g.runtime.console import console, note, percent, printable, table

if TYPE_CHECKING:
    from lw2g.model.trained import TrainedModel

__all__ = ["predict"]

_EXAMPLE = "lw2g predict model photo.jpg --top-k 3"
_EXIT_CODE = "Exit code 1 says that some image cannot be used."


@click.command(
    cls=LongCommand,
    help=f"\b\n{_EXAMPLE}\n\n{help_of(models.predict, _EXIT_CODE)}",
)
@click.argument("run", metavar="MODEL", type=ModelPath(path_type=Path))
@click.argument("images", metavar="IMAGES...", type=AnyPath(path_type=Path), nargs=-1)
@option_of(models.predict, "top_k", metavar="K")
@options_of(models.load, "device")
@options_of(models.load, "task", "batch_size", "weights", cls=Further)
@option_of(models.predict, "reject", type=RejectRate(), metavar="RATE")
@box_options(models.predict)
@option_of(models.predict, "out")
@json_option("Print a JSON list (tasks count from 0).")
def predict(run: Path, images: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Print the classes of each image, and where sets differ the task and the set that answered."""
    require_model_first(run, *images)
    if not images:
        raise click.UsageError("missing argument 'IMAGES...'")
    model, entries = models.predict(run, images, **options)
    bad = [entry for entry in entries if "error" in entry]
    if as_json:
        click.echo(json.dumps(entries, indent=1))
    else:
        _print(
            entries,
            has_several_sets=len(set(model.task_to_set)) > 1,
            is_calibrated=model.temperature is not None,
        )
        if len(model.known) == 1:
            note(f"the model knows one class, and calls every image {model.known[0]}")
        elif options["reject"] is None and any("error" not in entry for entry in entries):
            note(_among_classes(model))
        if command := models.calibrating(model, run, task=options["task"], weights=options["weights"]):
            note(f"probabilities are uncalibrated; a model of this run has calibrated ones: {command}")
    for entry in bad:
        click.echo(f"error: {printable(entry['error'])}", err=True)
    if bad:
        raise click.exceptions.Exit(1)


def _among_classes(model: TrainedModel) -> str:
    """Return what an answer means that may be of a strange image, and what refuses some of these."""
    rejecting = f" (--reject {USUAL_REJECT:g} calls some unknown)" if can_reject(model) else ""
    shares = "probabilities are shares among its classes, too high for images that it has learned"
    return f"each image gets a class of the model, whatever it shows{rejecting}; {shares}"


def _print(entries: Sequence[dict[str, Any]], *, has_several_sets: bool, is_calibrated: bool) -> None:
    """Print a table of the answers."""
    # a softmax of scores looks as sure of a wrong answer as of a right one
    columns = ["image", "class", "probability" if is_calibrated else "uncalibrated probability"]
    # without a hard choice no set has answered alone
    if has_several_sets and any(entry["task"] is not None for entry in entries):
        columns += ["task", "set"]
    rows = []
    for entry in entries:
        rows += [row[: len(columns)] for row in _rows(entry, is_calibrated=is_calibrated)]
    console().print(table("", columns, rows, left=2))


def _rows(entry: dict[str, Any], *, is_calibrated: bool) -> Iterator[tuple[str, ...]]:
    """Yield one row per class; only the first shows image, task and set."""
    if "error" in entry:
        yield (str(entry["path"]), "cannot be used", "-", "-", "-")
        return
    rejected = entry.get("rejected", False)
    image = str(entry["path"])
    chosen = (_count(entry["task"], 1), _count(entry["set"], 0, "#"))
    for answer in entry["top"]:
        name = str(answer["class"])
        # a per cent is a promise: of such answers about that share is right
        sure = percent(answer["probability"]) if is_calibrated else f"{answer['probability']:.3f}"
        if rejected:
            # the shares, and the further classes, are among the known ones, of which it is none
            yield (image, f"unknown (nearest: {name})", "-", *chosen)
            return
        yield (image, name, sure, *chosen)
        image = ""
        chosen = ("", "")


def _count(value: int | None, first: int, mark: str = "") -> str:
    """Return a number as text, counted from ``first``; a dash where there is none."""
    if value is None:
        return "-"
    return f"{mark}{value + first}"
