"""The commands for models of photographs, for ``lw2g --help``; what they do is not imported here."""

from __future__ import annotations

from lw2g.interfaces.command import PHOTOS, Command
from lw2g.registry.markers import hookimpl

__all__ = ["lw2g_commands"]


@hookimpl
def lw2g_commands() -> list[Command]:
    """Offer the commands."""
    return [
        Command(
            name="start",
            help="Make a model of your photos, in a folder for each class.",
            target="lw2g_photos.learn_commands:start",
            group=PHOTOS,
            rank=1,
        ),
        Command(
            name="learn",
            help="Let a model learn new classes, or more images of known ones.",
            target="lw2g_photos.learn_commands:learn",
            group=PHOTOS,
            rank=3,
        ),
        Command(
            name="unlearn",
            help="Take back a class or the last step of learning.",
            target="lw2g_photos.learn_commands:unlearn",
            group=PHOTOS,
            rank=7,
        ),
        Command(
            name="teach",
            help="Teach a model from a page in the browser.",
            target="lw2g_photos.teach_command:teach",
            group=PHOTOS,
            rank=6,
        ),
        Command(
            name="test",
            help="Test a run or a model on class folders.",
            target="lw2g_photos.score_command:test",
            group=PHOTOS,
            rank=4,
        ),
    ]
