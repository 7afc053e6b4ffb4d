"""The function of lw2g that examines an installation.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lw2g.api.examination import examine as findings

if TYPE_CHECKING:
    from lw2g.api.finding import Finding

__all__ = ["examine"]


def examine(*, quick: bool = False) -> Iterator[Finding]:
    """Examine this machine and installation, and tell a remedy for everything that is wrong.

    It looks at the machine, packages, libraries, devices and plugins, and makes one small run: about twenty
    seconds. It downloads nothing.

    Args:
        quick: Whether to look at machine, packages, torch and plugins alone: a second or two.

    Yields:
        Each finding as soon as it is made.
    """
    yield from findings(quick=quick)
