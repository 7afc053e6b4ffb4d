"""Images that are sent to the page that teaches: what they are called, and where they may lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import attrs

from lw2g.errors import DataError, shown
from lw2g.ground.spelling import composed, is_name
from lw2g.pixels.found_images import image_ending, is_hidden

__all__ = ["Content", "Upload"]

_LONGEST = 200
"""The most bytes of a class's name; file systems take 255, and its folder may get an ending."""


class Content(Protocol):
    """What is sent."""

    def read(self, size: int, /) -> bytes:
        """Return at most this many bytes more."""
        ...


@attrs.frozen(kw_only=True)
class Upload:
    """A file that is sent. Its name is shown; it never becomes a path, but for its ending."""

    folders: Sequence[str]  # that of its class, then those in it
    name: str
    size: int = attrs.field(validator=attrs.validators.ge(0))

    @property
    def ending(self) -> str:
        """Its ending.

        Raises:
            DataError: It is none of an image.
        """
        return image_ending(self.name)

    def below(self, root: Path) -> Path:
        """Return the folder that it lies in.

        Raises:
            DataError: No folder can have such a name.
        """
        names = [composed(name.strip()) for name in self.folders]
        if wrong := [name for name in names if not _can_be_a_folder(name)]:
            raise DataError(f"no class can be called {shown(wrong[0])}", "give another name")
        return root.joinpath(*names)


def _can_be_a_folder(name: str) -> bool:
    """Whether a name that was sent can become a folder: one, and below the folder it is meant for."""
    if not is_name(name) or is_hidden(name) or "/" in name or "\\" in name:
        return False
    return 0 < len(name.encode(errors="replace")) <= _LONGEST
