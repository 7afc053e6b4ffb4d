"""``lw2g continue`` continues a run that stopped after --tasks, or after the end of its stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g.cli.completion import complete_component
from lw2g.cli.options import devices_option, settings_option
from lw2g.errors import ConfigError

__all__ = ["continue_run"]


@click.command("continue", short_help="Continue a run that stopped after --tasks, or with new classes.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--tasks", type=click.IntRange(min=1), metavar="N", help="Stop after N tasks, counted from the first."
)
@click.option(
    "--benchmark",
    metavar="NAME",
    help="Benchmark with new classes, for a run at the end of its stream.",
    shell_complete=complete_component("benchmark"),
)
@settings_option("An option of that benchmark, such as benchmark.root=DIR; repeatable.")
@devices_option("Processes of the run from now on (default: as configured).")
def continue_run(
    run: Path,
    tasks: int | None,
    benchmark: str | None,
    settings: dict[str, Any],
    devices: int | None,
) -> None:
    """Continue the run in the directory RUN to the end of its stream, or to task N.

    The result equals that of a run without a stop. In a directory of several seeds every run continues.

    A run at the end of its stream continues with the classes of another benchmark. Their images go through
    the run's own transforms. The data of both benchmarks must be present, since all classes are evaluated.
    """
    from lw2g.cli.execute import continue_one, continue_seeds, warn_of_problems
    from lw2g.config.sources import resolve_source
    from lw2g.registry.catalogue import load_catalogue

    catalogue = load_catalogue()
    warn_of_problems(catalogue)
    if settings and benchmark is None:
        raise ConfigError(
            f"--set {next(iter(settings))}: a run continues as it is configured",
            "name a --benchmark with new classes, or see lw2g fork",
        )
    source = None if benchmark is None else resolve_source(catalogue, benchmark, settings)
    if not (run / "seeds.json").exists():
        continue_one(run, catalogue, tasks, source, devices)
    elif source is None:
        continue_seeds(run, catalogue, tasks, devices)
    else:
        raise ConfigError(
            f"{str(run)!r} holds the runs of several seeds", f"add classes to each of them: {run}/seed-N"
        )
