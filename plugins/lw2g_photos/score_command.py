"""``lw2g test`` counts right answers on class folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from lw2g.api.recorded import ClassCheck
from lw2g.cli.paths import AnyPath, ModelPath, require_model_first
from lw2g.cli.shared_options import RejectRate, box_options, json_option
from lw2g.cli.signals import saying_what_is_left
from lw2g.cli.signature import LongCommand, help_of, option_of, options_of
from lw2g.errors import counted, is_counted
from lw2g.runtime.console import console, note, number, printable, table
from lw2g_photos import photographs
from lw2g_photos.step_words import calibration_words, lowest_classes, words_of_test

__all__ = ["test"]


_EXAMPLES = (
    "lw2g test model more                        # more/CLASS/*.jpg\n"
    "lw2g test model more --strangers others     # others/*.jpg: of none of its classes"
)


@click.command(cls=LongCommand, help=f"\b\n{_EXAMPLES}\n\n{help_of(photographs.test)}")
@click.argument("model", metavar="MODEL", type=ModelPath(path_type=Path))
@click.argument("folder", metavar="FOLDER", type=AnyPath(path_type=Path))
@option_of(photographs.test, "strangers", metavar="FOLDER2")
@option_of(photographs.test, "reject", type=RejectRate(), metavar="RATE")
@box_options(photographs.start)
@options_of(photographs.test, "device", "weights")
@click.option("--all", "every_class", is_flag=True, help="Print a row for each class.")
@json_option("Print JSON.")
def test(model: Path, folder: Path, every_class: bool, as_json: bool, **options: Any) -> None:
    """Print how many images are named rightly, and of which classes the fewest."""
    typed = click.get_current_context().get_parameter_source("reject")
    if options["strangers"] is None and typed is ParameterSource.COMMANDLINE:
        raise click.UsageError("--reject is for --strangers; give these, too")
    require_model_first(model, folder)
    with saying_what_is_left():
        scored = photographs.test(model, folder, **options)
    if as_json:
        click.echo(json.dumps(scored, indent=1))
        return
    if every_class:
        rows = []
        for row in scored["classes"]:
            wrong = ", ".join(f"{name} ({count})" for name, count in row["taken_for"][:3])
            rows.append((row["class"], wrong, str(row["images"]), number(row["recall"], 0)))
        console().print(table("", ("class", "taken for", "images", "found %"), rows, left=2))
    said = words_of_test(scored, f" of {counted(len(scored['classes']), 'class')}")
    click.echo(f"accuracy: {said}")
    if scored["learned"]:
        note("of images that the model has not learned, fewer may be right")
    found = []
    for row in scored["classes"]:
        taken_for = [name for name, _ in row["taken_for"]]
        found.append(ClassCheck(row["class"], row["images"], row["recall"], taken_for))
    lowest = lowest_classes(found)
    if lowest and not every_class:
        click.echo(printable(f"{lowest}; each class: --all"))
    if scored["ece"] is not None:
        whose = "probabilities" if scored["calibrated"] else "uncalibrated probabilities"
        click.echo(calibration_words(scored["ece"], whose))
    if scored["strangers"] is not None:
        strange = scored["strangers"]
        refused = _share_of(strange["refused"], strange["images"], "stranger")
        known = _share_of(strange["known_refused"], scored["images"], "image")
        click.echo(f"{refused} called unknown, and {known} above (--reject {strange['reject']:g})")


def _share_of(percent: float, images: int, noun: str) -> str:
    """Return how many of some images, which are named with their number."""
    share = f"{round(percent * images / 100)}" if is_counted(images) else f"{percent:.1f} %"
    return f"{share} of {counted(images, noun)}"
