"""The commands for reports, for ``lw2g --help``; what they do is not imported here."""

from __future__ import annotations

from lw2g.interfaces.command import STUDIES, Command
from lw2g.registry.markers import hookimpl

__all__ = ["lw2g_commands"]


@hookimpl
def lw2g_commands() -> list[Command]:
    """Offer the commands."""
    return [
        Command(
            name="report",
            help="Print tables of runs, with published values beside ours.",
            target="lw2g_page.report_command:report",
            group=STUDIES,
            rank=3,
        ),
    ]
