"""The command for adapters, for ``lw2g --help``; what it does is not imported here."""

from __future__ import annotations

from lw2g.interfaces.command import PHOTOS, Command
from lw2g.registry.markers import hookimpl

__all__ = ["lw2g_commands"]


@hookimpl
def lw2g_commands() -> list[Command]:
    """Offer the command."""
    return [
        Command(
            name="peft",
            help="Write a LoRA set as an adapter folder that peft loads.",
            target="lw2g_peft.peft_command:peft",
            group=PHOTOS,
            rank=11,
        ),
    ]
