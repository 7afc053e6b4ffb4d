"""Text files as people's editors write them."""

from __future__ import annotations

import codecs
from importlib.resources.abc import Traversable
from pathlib import Path

__all__ = ["text_of"]

# what Windows' editors and shells put before a text; without one it is UTF-8
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def text_of(path: Path | Traversable) -> str:
    """Return the text of a file in UTF-8, or as its byte order mark says, with its own line ends.

    Raises:
        OSError: It cannot be read.
        UnicodeDecodeError: It is no text.
    """
    content = path.read_bytes()
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return content.decode(encoding)
    return content.decode("utf-8")
