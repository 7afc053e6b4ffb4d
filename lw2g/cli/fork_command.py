"""``lw2g fork`` repeats a run from one of its tasks on, with other choices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lw2g import api
from lw2g.api.arguments import METHODS, RunConfig
from lw2g.api.experiment import fork_of
from lw2g.cli.execute import announce, run_one
from lw2g.cli.paths import AnyPath
from lw2g.cli.printed_estimate import dry_run_options, require_dry, tell_cost
from lw2g.cli.shared_options import component_option, constraint_option, settings_option
from lw2g.cli.signature import Further, LongCommand, field_option, help_of, option_of, options_of
from lw2g.errors import ConfigError

__all__ = ["fork"]


class _ForkCommand(LongCommand):
    """A command that says why it has no option for the method, and what is called otherwise."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            ConfigError: It names another method, or --task.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            what = f"no such option: {error.option_name}"
            if error.option_name == "--task":
                raise ConfigError(what, "the last task that is taken over is --at-task K") from error
            name = error.option_name.removeprefix("--")
            if name in ("seed", "device", "precision"):
                raise ConfigError(what, f"a fork takes it as --set run.{name}=VALUE") from error
            if error.option_name not in ("--baseline", *(f"--{word}" for word in METHODS)):
                raise
            raise ConfigError(what, "a fork keeps its method; start a new run") from error


@click.command(cls=_ForkCommand, help=help_of(api.fork))
@click.argument("run", metavar="RUN", type=AnyPath(path_type=Path, file_okay=False))
@option_of(api.fork, "at_task", required=True, metavar="K")
@option_of(api.fork, "out", type=AnyPath(path_type=Path), metavar="DIR")
@component_option(api.fork, "policy")
@constraint_option(api.fork, cls=Further)
@settings_option(api.fork, "overrides")
@options_of(api.fork, "tasks")
@field_option(RunConfig, "devices", cls=Further)
@dry_run_options
def fork(
    run: Path,
    at_task: int,
    out: Path | None,
    policy: str | None,
    constraints: tuple[str, ...],
    settings: dict[str, Any],
    tasks: int | None,
    devices: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Print the progress, and what the run has reached; with --dry-run what it would cost."""
    require_dry(dry_run=dry_run, as_json=as_json)
    # a fork is an experiment of its own: on how many devices it runs stands in its configuration
    if devices is not None:
        settings = settings | {"run.devices": devices}
    experiment = fork_of(run, at_task, policy=policy, constraints=constraints or None, overrides=settings)
    announce(experiment)
    if dry_run:
        tell_cost(experiment, tasks=tasks, runs=1, as_json=as_json, out=out)
        return
    with experiment.new_directory(out) as directory:
        run_one(experiment, directory, tasks)
