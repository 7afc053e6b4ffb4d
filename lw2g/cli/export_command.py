"""``lw2g export`` writes a run's model into its own folder, for use without the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g.api import models
from lw2g.cli.paths import AnyPath, words_of_input
from lw2g.cli.signals import saying_what_is_left
from lw2g.cli.signature import help_of, options_of
from lw2g.errors import ConfigError, as_word, counted
from lw2g.runtime.console import in_units

__all__ = ["export"]


@click.command(
    help=help_of(
        models.export,
        "With `--onnx` a RUN or a MODEL becomes one file for programs without lw2g, and no folder.",
    )
)
@click.argument("run", metavar="RUN", type=AnyPath(path_type=Path, file_okay=False))
@click.argument("out", metavar="[OUT]", type=AnyPath(path_type=Path), required=False)
@options_of(models.export, "task", "with_backbone", "weights", "learnable")
@click.option(
    "--onnx",
    metavar="FILE",
    type=AnyPath(path_type=Path, dir_okay=False),
    help="Write an ONNX file in place of OUT: normalised images in, probabilities out (extra onnx).",
)
def export(run: Path, out: Path | None, onnx: Path | None, **options: Any) -> None:
    """Print how large the export is."""
    if onnx is not None:
        _export_onnx(run, out, onnx, **options)
        return
    if out is None:
        raise ConfigError(
            "nothing says where the model goes", "lw2g export RUN OUT, or lw2g export RUN --onnx FILE"
        )
    if out.suffix.lower() == ".onnx" and not out.is_dir():
        raise ConfigError(
            f"{str(out)!r} would be a folder and no ONNX file",
            f"write one: lw2g export {as_word(run)} --onnx {as_word(out)}",
        )
    with saying_what_is_left(out, run):
        size = models.export(run, out, **options)
    inside = "with its backbone" if options["with_backbone"] else "without its backbone"
    click.echo(f"{out}: {in_units(size)}, {inside}")
    model = as_word(out)
    asked, learned = words_of_input(takes_vectors=models.takes_vectors(out))
    further = f", or lw2g learn {model} {learned}" if options["learnable"] else ""
    click.echo(f"next: lw2g predict {model} {asked}{further}")


def _export_onnx(
    run: Path, out: Path | None, file: Path, *, with_backbone: bool, learnable: bool, **options: Any
) -> None:
    """Write an ONNX file, and print what it is."""
    given = {repr(str(out)): out is not None, "--with-backbone": with_backbone, "--learnable": learnable}
    for name, is_given in given.items():
        if is_given:
            raise ConfigError(
                f"{name} is of a folder, and --onnx writes one file with all its weights",
                "give one of both",
            )
    # a function of a product, which the core does not import: the root names it, as it does for `lw2g.load`
    from lw2g import export_onnx

    with saying_what_is_left(file, run):
        written = export_onnx(run, file, **options)
    sure = "calibrated" if written.calibrated else "uncalibrated"
    click.echo(
        f"{file}: {in_units(written.size)}, opset {written.opset}, {sure} probabilities of "
        f"{counted(len(written.classes), 'class')}; onnxruntime and torch differ by at most "
        f"{written.difference:.0e}"
    )
