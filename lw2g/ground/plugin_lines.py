"""The line of a plugin's own code at which an error arose."""

from __future__ import annotations

import traceback
from pathlib import Path

__all__ = ["line_of_plugin"]

_BETWEEN = {"attr", "importlib", "lw2g", "pluggy"}
"""Packages through which lw2g imports plugins and calls their records."""


def line_of_plugin(error: BaseException) -> str:
    """Return where a plugin raised an error, as ``" (my_method/plugin.py:26)"``.

    It is the innermost line of the first package that lw2g called: what that one calls in turn may have
    raised the error. Empty where no line of a plugin ran, as for a syntax error, whose message has the line.
    """
    called = place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        folder = str(frame.f_globals.get("__package__") or "")
        module = str(frame.f_globals.get("__name__"))
        package = module.partition(".")[0]
        file = frame.f_code.co_filename
        if package in _BETWEEN or file.startswith("<"):  # code that is generated has no file
            continue
        called = called or package
        if package == called:
            place = "/".join([*filter(None, folder.split(".")), f"{Path(file).name}:{line}"])
    return f" ({place})" if place else ""
