"""The commands for published data sets, for ``lw2g --help``; what they do is not imported here."""

from __future__ import annotations

from lw2g.interfaces.command import INSTALLATION, Command
from lw2g.registry.markers import hookimpl

__all__ = ["lw2g_commands"]


@hookimpl
def lw2g_commands() -> list[Command]:
    """Offer the commands."""
    return [
        Command(
            name="data",
            help="List, fetch and check data sets; store features.",
            target="lw2g_datasets.data_commands:data",
            group=INSTALLATION,
        ),
    ]
