"""The entry point: the group of all commands, and how errors end a command.

A mistake of the user or of a plugin ends with one message on stderr and exit code 2; a bug keeps its
traceback. Nothing here imports torch: commands import what they need when they run.
"""

from __future__ import annotations

from typing import Any, NoReturn

import click

from lw2g import __version__
from lw2g.cli.check import check
from lw2g.cli.completion import completion
from lw2g.cli.doctor import doctor
from lw2g.cli.experiment import config, run
from lw2g.cli.new_plugin import new_plugin
from lw2g.cli.plugins import plugins
from lw2g.cli.predict import predict
from lw2g.cli.resume import resume
from lw2g.cli.show import show
from lw2g.errors import Lw2gError, nearest

__all__ = ["main"]


class UserError(click.ClickException):
    """A mistake that is told in one message."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        """Print the message on stderr."""
        click.echo(f"error: {self.message}", err=True)


class Commands(click.Group):
    """A group that tells lw2g's own errors without a traceback and suggests the nearest command."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except Lw2gError as error:
            raise UserError(str(error)) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or fail with the nearest name."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            self._refuse(ctx, name)
        return super().resolve_command(ctx, args)

    def _refuse(self, ctx: click.Context, name: str) -> NoReturn:
        ctx.fail(f"no command is called {name!r}{nearest(name, self.list_commands(ctx))}")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="lw2g")
def main() -> None:
    """Continual learning on frozen pre-trained ViTs.

    Baseline, growth policy and constraints vary independently:

    \b
      lw2g run --baseline hide-prompt --policy min
      lw2g run --baseline dual-prompt --policy always --benchmark digits
      lw2g plugins
    """


for command in (run, resume, predict, plugins, show, config, new_plugin, check, doctor, completion):
    main.add_command(command)
