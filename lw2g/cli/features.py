"""``lw2g data features`` writes the features of a benchmark's images into one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g.cli.bars import Bars
from lw2g.cli.completion import complete_component
from lw2g.cli.options import settings_option
from lw2g.console.output import in_units, note

__all__ = ["features"]


@click.command(short_help="Store the features of a benchmark's images.")
@click.option(
    "--benchmark",
    required=True,
    metavar="NAME",
    help="The benchmark whose images are read.",
    shell_complete=complete_component("benchmark"),
)
@click.option(
    "--backbone",
    metavar="NAME",
    help="The frozen backbone, or any timm model. [default: the benchmark's]",
    shell_complete=complete_component("backbone"),
)
@click.option("--weights", metavar="FILE", type=click.Path(path_type=Path), help="Its weights file.")
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A .npz or .safetensors file, or a new folder of .npy files.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    help="How numbers are stored; float16 halves the file and rounds. [default: float32]",
)
@settings_option("An option of benchmark, backbone or run, such as benchmark.root=FOLDER; repeatable.")
def features(
    benchmark: str,
    backbone: str | None,
    weights: Path | None,
    out: Path,
    dtype: Any,
    settings: tuple[tuple[str, Any], ...],
) -> None:
    """Store the features of all images of a benchmark, for `lw2g run --benchmark features`.

    Images go through the benchmark's test transform, the same for all methods (run.protocol=like-for-like).
    Killed and started again, it goes on where it was. The file says what made it: backbone and weights,
    transform, precision and images.
    """
    from lw2g.config.protocols import LIKE_FOR_LIKE
    from lw2g.config.resolve import resolve
    from lw2g.data.features import write_features
    from lw2g.registry.catalogue import load_catalogue

    catalogue = load_catalogue()
    config = resolve(
        catalogue,
        overrides={"run.protocol": LIKE_FOR_LIKE, **dict(settings)},
        baseline="simple-cil",
        benchmark=benchmark,
        backbone=backbone,
        weights=weights,
    ).config
    with Bars(counted=True) as bars:
        made = write_features(config, catalogue, out, dtype=dtype, progress=bars.report)
    model, size = made["backbone"], sum(file.stat().st_size for file in _files(out))
    note(f"{model['timm_name']} ({model['sha256'][:12]}), {model['dim']} numbers a row, {in_units(size)}")
    click.echo(
        f"{str(out)!r}: lw2g run --benchmark features --set benchmark.file={out} --baseline simple-cil"
    )


def _files(out: Path) -> list[Path]:
    return [*out.iterdir()] if out.is_dir() else [out]
