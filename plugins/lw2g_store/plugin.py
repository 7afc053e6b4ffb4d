"""The commands for results that others can check, for ``lw2g --help``; what they do is not imported here."""

from __future__ import annotations

from lw2g.interfaces.command import RESULTS, Command
from lw2g.registry.markers import hookimpl

__all__ = ["lw2g_commands"]


@hookimpl
def lw2g_commands() -> list[Command]:
    """Offer the commands."""
    return [
        Command(
            name="verify",
            help="Check all files of a run and recompute its metrics.",
            target="lw2g_store.verify_command:verify",
            group=RESULTS,
        ),
        Command(
            name="submit",
            help="Pack a run for a store of results; uploads nothing.",
            target="lw2g_store.store_commands:submit",
            group=RESULTS,
        ),
        Command(
            name="store",
            help="Make and check a store of results.",
            target="lw2g_store.store_commands:store",
            group=RESULTS,
        ),
    ]
