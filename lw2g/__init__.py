"""lw2g: continual learning on frozen pre-trained ViTs.

``lw2g.run`` and its neighbours are the commands from Python, under the same names (:mod:`lw2g.api`).
Importing this package imports neither torch nor any plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# imported first: later, they would replace the functions of their names
_PACKAGES = {name: import_module(f"lw2g.{name}") for name in ("report", "sweep")}

from lw2g.api import (  # noqa: E402
    continue_run,
    export,
    fork,
    load,
    report,
    resume,
    run,
    runs,
    sweep,
    verify,
)

__all__ = [
    "__version__",
    "continue_run",
    "export",
    "fork",
    "load",
    "report",
    "resume",
    "run",
    "runs",
    "sweep",
    "verify",
]


class _Command:
    """A function that has the name of a package; the package's content stays its attributes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.__dict__["__wrapped__"](*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(_PACKAGES[self.__dict__["__name__"]], name)


if not TYPE_CHECKING:
    report, sweep = _Command(report), _Command(sweep)
