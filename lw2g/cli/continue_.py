"""``lw2g continue``: go on with a run that was meant to stop, or after the end of its stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g.cli.completion import complete_component
from lw2g.cli.options import devices_option, settings_option
from lw2g.errors import ConfigError

__all__ = ["continue_run"]


@click.command("continue", short_help="Go on with a run that was meant to stop, or with new classes.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--tasks", type=click.IntRange(min=1), metavar="N", help="Stop after N tasks, counted from the first."
)
@click.option(
    "--benchmark",
    metavar="NAME",
    help="After the end of the stream: where new classes come from.",
    shell_complete=complete_component("benchmark"),
)
@settings_option("An option of that benchmark, such as benchmark.root=DIR; repeatable.")
@devices_option("Processes that work on it from now on (default: as the run is configured).")
def continue_run(
    run: Path,
    tasks: int | None,
    benchmark: str | None,
    settings: tuple[tuple[str, Any], ...],
    devices: int | None,
) -> None:
    """Go on with the run in the directory RUN, to the end of its stream or to task N.

    The result is the one a run has that never stopped. A directory of several seeds goes on with each.

    A run at the end of its stream goes on with the classes of another benchmark. Their images go through the
    transforms that the run began with; the data of both must be there, since all classes are evaluated.
    """
    from lw2g.cli.execute import continue_one, continue_seeds, warn_of_problems
    from lw2g.config.sources import resolve_source
    from lw2g.registry.catalogue import load_catalogue

    catalogue = load_catalogue()
    warn_of_problems(catalogue)
    if settings and benchmark is None:
        raise ConfigError(
            f"--set {settings[0][0]}: a run goes on as it is configured; name a --benchmark of new classes, "
            "or see lw2g fork"
        )
    source = None if benchmark is None else resolve_source(catalogue, benchmark, dict(settings))
    if not (run / "seeds.json").exists():
        continue_one(run, catalogue, tasks, source, devices)
    elif source is None:
        continue_seeds(run, catalogue, tasks, devices)
    else:
        raise ConfigError(
            f"{str(run)!r} holds the runs of several seeds; add classes to each of them: {run}/seed-N"
        )
