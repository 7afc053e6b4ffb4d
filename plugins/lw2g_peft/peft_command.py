"""``lw2g peft`` writes a LoRA set as an adapter folder that peft loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g.cli.paths import AnyPath
from lw2g.cli.signature import help_of, option_of, options_of
from lw2g_peft.writing_adapters import write_adapter

__all__ = ["peft"]


@click.command(help=help_of(write_adapter))
@click.argument("run", metavar="RUN", type=AnyPath(path_type=Path, file_okay=False))
@click.argument("out", metavar="OUT", type=AnyPath(path_type=Path))
@option_of(write_adapter, "set_id", type=click.IntRange(min=0), metavar="N")
@options_of(write_adapter, "task", "weights")
def peft(run: Path, out: Path, **options: Any) -> None:
    """Print what the adapter is for."""
    adapter = write_adapter(run, out, **options)
    click.echo(
        f"{out}: {adapter.layers} layers at rank {adapter.rank}, for {adapter.model} at "
        f"{adapter.image_size} pixels"
    )
