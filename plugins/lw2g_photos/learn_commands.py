"""``lw2g start``, ``learn`` and ``unlearn``: a model that goes on learning from new images alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lw2g.api.recorded import (
    LeadingCheck,
    check_of,
    holds_model,
    leading_check,
    manifest_of,
    words_of_change,
)
from lw2g.cli.paths import AnyPath, ModelPath, require_model_first, words_of_input
from lw2g.cli.shared_options import (
    USUAL_REJECT,
    FiniteRange,
    box_options,
    can_reject,
    json_option,
    settings_option,
)
from lw2g.cli.signals import saying_what_is_left
from lw2g.cli.signature import Further, LongCommand, help_of, option_of, options_of
from lw2g.errors import ConfigError, DataError, as_word, counted
from lw2g.runtime.console import note, printable
from lw2g_photos import photographs
from lw2g_photos.step_words import as_typed, made_from, new_folder, step_lines, words_of_near_copies
from lw2g_photos.training_line import training_command

if TYPE_CHECKING:
    from lw2g.model.trained import TrainedModel

__all__ = ["learn", "start", "unlearn"]

_PATH = AnyPath(path_type=Path)
_MODEL = click.argument("model", metavar="MODEL", type=AnyPath(path_type=Path, file_okay=False))
_EXAMPLE = "lw2g start photos model --backbone vit-tiny     # photos/CLASS/*.jpg"
_NEW = "MODEL is a new folder, into which the model is written."
_EXAMPLE_OF_LEARN = "lw2g learn model new     # new/CLASS/*.jpg; makes model-2"
_EXAMPLES_OF_UNLEARN = (
    "lw2g unlearn model-2 --last     # makes model-3, without the last step\n"
    "lw2g unlearn model-2 cup        # makes model-3, without the class cup"
)
_ANY_MODEL = "MODEL is a model of `lw2g start`, or an exported one; it stays as it is."
_JSON = json_option("Print the report as JSON.")


@click.command(
    cls=LongCommand,
    help=f"\b\n{_EXAMPLE}\n\n{help_of(photographs.start, _NEW)}",
)
@click.argument("folder", metavar="FOLDER", type=_PATH)
@click.argument("out", metavar="MODEL", type=_PATH)
@options_of(photographs.start, "backbone")
@options_of(photographs.start, "image_size", "head", cls=Further)
@settings_option(photographs.start, complete=False, cls=Further)
@option_of(photographs.start, "test", metavar="FOLDER2")
@box_options(photographs.start)
@options_of(photographs.start, "device", "weights")
@_JSON
def start(folder: Path, out: Path, as_json: bool, settings: dict[str, Any], **options: Any) -> None:
    """Print what was learned."""
    if holds_model(folder):
        photos = as_word(out) if out.is_dir() else "FOLDER"
        raise ConfigError(f"{str(folder)!r} is a model: lw2g learn {as_word(folder)} {photos}")
    with saying_what_is_left(out):
        model, report = photographs.start(folder, out, settings=settings, **options)
    # the default is there to try lw2g with: its features tell photos apart badly, and nothing fails
    if options["backbone"] is None and not model.backbone.takes_vectors:
        note("the embedded backbone knows small drawings, no photos; --backbone vit-tiny is for these")
    _print(report, as_json=as_json)
    if not as_json:
        # training on what was not meant is no advice
        training = "" if report["domains"] else training_command(folder, report, options)
        _say_what_next(report, model, training)


@click.command(
    cls=LongCommand,
    help=f"\b\n{_EXAMPLE_OF_LEARN}\n\n{help_of(photographs.learn, _ANY_MODEL)}",
)
@click.argument("model", metavar="MODEL", type=ModelPath(path_type=Path))
@click.argument("folder", metavar="FOLDER", type=_PATH)
@option_of(photographs.learn, "out", metavar="MODEL2")
@option_of(photographs.learn, "test", metavar="FOLDER2")
@box_options(photographs.start)
@option_of(photographs.learn, "max_loss", type=FiniteRange(min=0), metavar="POINTS")
@options_of(photographs.learn, "device", "weights")
@_JSON
def learn(model: Path, folder: Path, as_json: bool, **options: Any) -> None:
    """Print what was learned."""
    require_model_first(model, folder)
    with _saying_what_is_left(model, options["out"]):
        learned, report = photographs.learn(model, folder, **options)
    _print(report, model, as_json=as_json)
    if not as_json:
        place = as_typed(report["out"])
        back = f"lw2g unlearn {shlex.quote(place)} --last"
        click.echo(printable(f"next: {_predicting(learned, place)}; back again: {back}"))
    from lw2g_photos.later_models import words_of_later  # imports torch, which is there by now

    photos = folder if options["boxes"] is None else None
    if later := words_of_later(model, Path(report["out"]), photos):
        note(later)


@click.command(help=f"\b\n{_EXAMPLES_OF_UNLEARN}\n\n{help_of(photographs.unlearn, _ANY_MODEL)}")
@_MODEL
@click.argument("names", metavar="[CLASS]", nargs=-1)
@options_of(photographs.unlearn, "last")
@option_of(photographs.unlearn, "out", metavar="MODEL2")
@options_of(photographs.unlearn, "device", "weights")
@_JSON
def unlearn(model: Path, names: tuple[str, ...], last: bool, as_json: bool, **options: Any) -> None:
    """Print what was forgotten, and what of it may remain."""
    if len(names) > 1:
        raise click.UsageError(f"one class at a time, or in quotes: {as_word(' '.join(names))}")
    if names:
        require_model_first(model, Path(names[0]))
    name = names[0] if names else None
    if (name is None) != last:
        raise click.UsageError("give a class or --last" + (", not both" if last else ""))
    _require_no_option(model, name)
    with _saying_what_is_left(model, options["out"]):
        less, report = photographs.unlearn(model, name, last=last, **options)
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    gone = ", ".join(report["forgotten"]) or "no class, but images of known ones"
    made = made_from(as_typed(report["out"]), model)
    click.echo(printable(f"{made}: {counted(len(report['classes']), 'class')}; gone: {gone}"))
    if check := _check_as_shown(report):
        click.echo(printable(f"accuracy: {check.words}"))
    if series := words_of_near_copies(report["near_copies"], as_typed(report["out"])):
        note(series)
    if changed := words_of_change(report.get("choice", {})):
        click.echo(changed)
    for words in report["remains"]:
        note(f"not taken back: {words}")
    if report["forgotten"]:
        what = "it" if len(report["forgotten"]) == 1 else "them"
        # a step is taken back to go on from before, a class so that it is nowhere known
        remedy = "" if last else f"; to forget {what} there, too, remove that folder"
        note(f"{model} stays as it is, and still knows {what}{remedy}")
    click.echo(printable(f"next: {_predicting(less, as_typed(report['out']))}"))


def _require_no_option(model: Path, name: str | None) -> None:
    """Refuse ``last`` without its dashes, where it is no class of the model.

    Raises:
        DataError: It is none.
    """
    manifest = manifest_of(model) if name == "last" else None
    if manifest is not None and name not in manifest.class_map.by_name:
        command = f"lw2g unlearn {as_word(str(model))} --last"
        raise DataError("no class is called 'last'", f"the last step is taken back by: {command}")


def _check_as_shown(report: Mapping[str, Any]) -> LeadingCheck | None:
    """Return what `lw2g show` says of a model from which something was taken back, or else its report."""
    made = manifest_of(Path(report["out"]))
    shown = None if made is None else check_of(made)
    return shown or leading_check(report, has_old_classes=True)


def _saying_what_is_left(model: Path, out: Path | None) -> AbstractContextManager[None]:
    """Let a Ctrl-C within the block say that the model is as it was, and whether the next is there."""
    return saying_what_is_left(new_folder(model, out), model)


def _print(report: Mapping[str, Any], before: Path | None = None, *, as_json: bool) -> None:
    """Print what was learned and what the checks say.

    Args:
        report: Of the step.
        before: The model that took it; None where it is the first one.
        as_json: Whether to print the report as it is.
    """
    if as_json:
        click.echo(json.dumps(report, indent=1))
        return
    from lw2g_photos.step_checks import missed_words  # imports torch

    if report["domains"]:  # before the numbers: they are of something else than was meant
        note(report["domains"])
    for line in step_lines(report, before):
        click.echo(printable(line))
    check = leading_check(report, has_old_classes=False)
    # the line on the lowest classes has said it
    said = {report["domains"], "" if check is None else missed_words(check)}
    for warning in report["warnings"]:
        if warning not in said:
            note(warning)


def _predicting(model: TrainedModel, place: str) -> str:
    """Return the command that asks a model in a folder."""
    what, _ = words_of_input(takes_vectors=model.backbone.takes_vectors)
    what += "" if model.backbone.takes_vectors else _rejecting(model)
    return f"lw2g predict {shlex.quote(place)} {what}"


def _rejecting(model: TrainedModel) -> str:
    """Return the option that calls images unknown, with a space before it; nothing where the model cannot."""
    return f" --reject {USUAL_REJECT:g}" if can_reject(model) else ""


def _say_what_next(report: Mapping[str, Any], made: TrainedModel, training: str) -> None:
    """Print what a new model is for, and what may make a better one.

    Args:
        report: Of what made it.
        made: The model.
        training: The command that trains on the same images; empty where none can.
    """
    model = shlex.quote(as_typed(report["out"]))
    if made.backbone.takes_vectors:
        lines = [f"next: lw2g predict {model} FILE, lw2g test {model} FILE, lw2g learn {model} FILE"]
    else:
        lines = [
            f"next: lw2g predict {model} PHOTO{_rejecting(made)}, lw2g test {model} FOLDER",
            f"more classes: lw2g learn {model} FOLDER, or in the browser lw2g teach {model}",
            *_more_accuracy(report, training),
        ]
    for line in lines:
        click.echo(printable(line))


def _more_accuracy(report: Mapping[str, Any], training: str) -> list[str]:
    """Return in lines what may answer better than a new model; a command has a line of its own."""
    if "choice" not in report:
        return ["more accuracy: start without --head, which tries several layers, too"]
    check = leading_check(report, has_old_classes=False)
    if check is not None and check.accuracy == 100:  # no image tells what would be better
        return []
    lines = ["more accuracy: more images of each class"]
    known = report["training"]
    if known is None:
        return lines
    if known["advised"] and training:
        lines += [f"{known['words']}; to try it:", f"  {training}"]
    else:
        lines.append(known["words"])
    return lines
