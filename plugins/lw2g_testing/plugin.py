"""The commands for checking components, for ``lw2g --help``; what they do is not imported here."""

from __future__ import annotations

from lw2g.interfaces.command import INSTALLATION, Command
from lw2g.registry.markers import hookimpl

__all__ = ["lw2g_commands"]


@hookimpl
def lw2g_commands() -> list[Command]:
    """Offer the commands."""
    return [
        Command(
            name="check",
            help="Check that components keep the promises the framework relies on.",
            target="lw2g_testing.check_command:check",
            group=INSTALLATION,
        ),
    ]
