"""The bytes of open files, and of uploads as web servers hand them on."""

from __future__ import annotations

import inspect
from typing import Any

from lw2g.errors import DataError, first_line

__all__ = ["content_of"]


def content_of(file: Any) -> bytes:
    """Return the bytes of an open file or an upload, from its beginning where it can be wound back.

    Raises:
        DataError: It gives no bytes.
    """
    if hasattr(file, "filename") and hasattr(file, "file"):
        file = file.file  # an upload whose own `read` is to be awaited
    try:
        if getattr(file, "seekable", lambda: False)():
            file.seek(0)
        content = file.read()
    except (OSError, ValueError) as error:  # closed, or not open for reading
        raise DataError(
            f"an open file cannot be read ({first_line(error)})", "open it to read bytes"
        ) from error
    if inspect.iscoroutine(content):
        content.close()
    if not isinstance(content, bytes | bytearray):
        raise DataError(
            f"an open file gives a {type(content).__name__} and no bytes",
            "open it as open(path, 'rb'); of an upload give its bytes or its .file",
        )
    return bytes(content)
