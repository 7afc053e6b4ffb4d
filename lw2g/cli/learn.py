"""``lw2g start``, ``learn`` and ``unlearn``: a model that goes on learning from new images alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from lw2g.cli.options import FiniteRange, settings_option

__all__ = ["learn", "start", "unlearn"]

_PATH = click.Path(path_type=Path)
_MODEL = click.argument("model", metavar="MODEL", type=click.Path(path_type=Path, file_okay=False))
_OUT = click.option(
    "--out", type=_PATH, metavar="MODEL2", help="The new folder. [default: the next free MODEL-N]"
)
_TEST = click.option(
    "--test",
    type=_PATH,
    metavar="FOLDER2",
    help="Images, CLASS/*, that check the result. [default: a fifth of the new ones, which join afterwards]",
)


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all three commands have."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
        click.option("--weights", type=_PATH, metavar="FILE", help="The backbone's weights."),
        click.option(
            "--device", metavar="NAME", help="cpu, cuda, cuda:N or mps. [default: a GPU if present]"
        ),
    ):
        command = decorate(command)
    return command


@click.command(short_help="Make a first model from a folder of images, without a run.")
@click.argument("folder", metavar="FOLDER", type=_PATH)
@click.argument("out", metavar="MODEL", type=_PATH)
@click.option("--backbone", metavar="NAME", help="A backbone, or any timm model. [default: micro]")
@click.option("--image-size", type=click.IntRange(min=1), metavar="N", help="Side of its input in pixels.")
@click.option("--head", default="lda", metavar="NAME", help="lda, cosine or mahalanobis. [default: lda]")
@settings_option(
    "An option of the backbone, such as backbone.mean=[0.5,0.5,0.5]; repeatable.", complete=False
)
@_TEST
@_shared
def start(
    folder: Path, out: Path, as_json: bool, settings: tuple[tuple[str, Any], ...], **options: Any
) -> None:
    """Make the model MODEL of the images in FOLDER/CLASS: a closed-form head on a frozen backbone.

    FOLDER may be a file of stored features (lw2g data features); then there is no backbone to name.

    The embedded backbone `micro` knows small drawings and no photos: name another for real images.
    """
    from lw2g.console.output import note
    from lw2g.inputs.feature_files import is_feature_file
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.updates.starting import start as begin

    report = begin(folder, out, load_catalogue(), settings=dict(settings), **options)[1]
    if options["backbone"] is None and not is_feature_file(folder):
        note("the embedded backbone knows small drawings, no photos; --backbone vit-tiny is for these")
    _print(report, as_json=as_json)


@click.command(short_help="Let a model learn new classes, or more images of known ones.")
@_MODEL
@click.argument("folder", metavar="FOLDER", type=_PATH)
@_OUT
@_TEST
@click.option(
    "--max-loss",
    type=FiniteRange(min=0),
    metavar="POINTS",
    help="Refuse if old classes lose more accuracy.",
)
@_shared
def learn(model: Path, folder: Path, as_json: bool, **options: Any) -> None:
    """Let the exported MODEL learn the images in FOLDER/CLASS, and write the result into a new folder.

    A known name adds images to that class, any other name is a new class. No old image is read. A model of
    stored features learns from the training rows of a file of these (FOLDER2: from its test rows).

    A run that shall train on new classes goes on with `lw2g continue RUN --benchmark folder`.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.updates.learning import learn as add

    _print(add(model, folder, load_catalogue(), **options)[1], as_json=as_json)


@click.command(short_help="Take a class or the last step of learning back.")
@_MODEL
@click.argument("name", metavar="[CLASS]", required=False)
@click.option("--last", is_flag=True, help="Take the last step of `lw2g learn` back.")
@_OUT
@_shared
def unlearn(model: Path, name: str | None, last: bool, as_json: bool, **options: Any) -> None:
    """Take CLASS or the last step of the exported MODEL back, and write the result into a new folder.

    The sums have the same bits as if it had never been learned. The numbers of other classes stay.
    """
    if (name is None) != last:
        raise click.UsageError("give a class, or --last")
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.updates.learning import unlearn as remove

    _, report = remove(model, name, load_catalogue(), **options)
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    from lw2g.console.output import note, printable

    gone = ", ".join(report["forgotten"]) or "no class, but images of known ones"
    click.echo(printable(f"{report['out']}: {len(report['classes'])} classes; gone: {gone}"))
    for words in report["remains"]:
        note(f"not taken back: {words}")


def _print(report: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what was learned and what the checks say."""
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    from lw2g.console.output import console, note, number, printable, table

    rows = [
        (
            entry["class"],
            "new" if entry["new"] else "known",
            str(entry["images"]),
            str(entry["checked"]),
            number(entry["recall"], 0),
        )
        for entry in report["classes"]
    ]
    console().print(table("", ("class", "", "images", "checked", "found %"), rows, left=2))
    if report["accuracy"] is not None:
        checked = sum(entry["checked"] for entry in report["classes"])
        click.echo(f"accuracy: {report['accuracy']:.1f} % of {checked} images that were not learned from")
    losses = (("measured", report["loss"]), ("estimated", report["estimated_loss"]))
    told = ", ".join(f"{value:.1f} points ({how})" for how, value in losses if value is not None)
    click.echo(f"loss of the old classes: {told or 'not known for this head'}")
    if report["ece"] is not None:
        click.echo(f"calibration error of --reject's probabilities: {report['ece']:.1f} % (ECE)")
    for warning in report["warnings"]:
        note(warning)
    click.echo(printable(f"{report['out']}: learned in {report['seconds']:.1f} s"))
