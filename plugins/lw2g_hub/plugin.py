"""The commands for models on the hub, for ``lw2g --help``; what they do is not imported here."""

from __future__ import annotations

from lw2g.interfaces.command import PHOTOS, Command
from lw2g.registry.markers import hookimpl

__all__ = ["lw2g_commands"]


@hookimpl
def lw2g_commands() -> list[Command]:
    """Offer the commands."""
    return [
        Command(
            name="push",
            help="Put a model on the hub, with a card; private by default.",
            target="lw2g_hub.hub_commands:push",
            group=PHOTOS,
            rank=9,
        ),
        Command(
            name="pull",
            help="Copy a model from the hub into a folder.",
            target="lw2g_hub.hub_commands:pull",
            group=PHOTOS,
            rank=10,
        ),
    ]
