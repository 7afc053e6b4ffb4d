"""``lw2g fork`` repeats a run from one of its tasks on, with other choices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g.cli.completion import complete_component
from lw2g.cli.options import AnyPath, devices_option, settings_option

__all__ = ["fork"]


@click.command(short_help="Start a run from a task of another run, with other choices.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--at-task",
    "task",
    type=click.IntRange(min=1),
    required=True,
    metavar="K",
    help="Take over tasks 1 to K.",
)
@click.option(
    "--out", type=AnyPath(path_type=Path), metavar="DIR", help="The new run's directory (default: in runs/)."
)
@click.option(
    "--policy",
    metavar="NAME",
    help="Growth policy from there on; constraints stay.",
    shell_complete=complete_component("policy"),
)
@click.option(
    "--constraint",
    metavar="NAME",
    multiple=True,
    help="Constraint in place of the run's; repeatable; `none` for none.",
    shell_complete=complete_component("constraint"),
)
@settings_option("Any option by its dotted key, such as policy.map=[0,0,1]; repeatable.")
@click.option(
    "--tasks", type=click.IntRange(min=1), metavar="N", help="Stop after N tasks, counted from the first."
)
@devices_option("Processes of the new run (default: as the other is configured).")
def fork(
    run: Path,
    task: int,
    out: Path | None,
    policy: str | None,
    constraint: tuple[str, ...],
    settings: dict[str, Any],
    tasks: int | None,
    devices: int | None,
) -> None:
    """Start a run from the end of task K of the run in the directory RUN, which stays unchanged.

    Choices that are not named stay. If nothing changes, the new run repeats the old one. Options that the
    first K tasks depend on cannot change. `--policy fixed --set policy.map=[0,0,1]` forces decisions.
    """
    from lw2g.cli.execute import announce, fork_one
    from lw2g.config.directory import new_directory
    from lw2g.lifecycle.forking import resolve_fork
    from lw2g.registry.catalogue import load_catalogue

    catalogue = load_catalogue()
    overrides = settings | ({} if devices is None else {"run.devices": devices})
    resolved = resolve_fork(
        run, catalogue, policy=policy, constraints=constraint or None, overrides=overrides
    )
    announce(resolved, catalogue)
    with new_directory(resolved.config, out) as directory:
        fork_one(run, task - 1, resolved, catalogue, directory, tasks)
