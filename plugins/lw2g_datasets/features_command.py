"""``lw2g data features`` writes the features of a benchmark's images into one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g.cli.bars import Bars
from lw2g.cli.shared_options import component_option, settings_option
from lw2g.cli.signature import help_of, option_of, options_of
from lw2g.runtime.console import in_units, note
from lw2g_datasets.datasets import store_features

__all__ = ["features"]


@click.command(short_help="Store the features of a benchmark's images.", help=help_of(store_features))
@component_option(store_features, "benchmark", required=True)
@component_option(store_features, "backbone")
@options_of(store_features, "weights")
@option_of(store_features, "out", required=True)
@options_of(store_features, "dtype")
@settings_option(store_features)
def features(benchmark: str, out: Path, settings: dict[str, Any], **options: Any) -> None:
    """Print what was stored, and the command that learns from it."""
    with Bars(counted=True) as bars:
        made = store_features(benchmark, out, settings=settings, progress=bars.report, **options)
    model = made["backbone"]
    size = sum(file.stat().st_size for file in _files(out))
    note(f"{model['timm_name']} ({model['sha256'][:12]}), {model['width']:,} numbers a row, {in_units(size)}")
    click.echo(
        f"{str(out)!r}: lw2g run --benchmark features --set benchmark.file={out} --baseline simple-cil"
    )


def _files(out: Path) -> list[Path]:
    if out.is_dir():
        return list(out.iterdir())
    return [out]
