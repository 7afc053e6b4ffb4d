"""lw2g: continual learning on frozen pre-trained ViTs.

``lw2g.run`` and its neighbours are the commands from Python, under the same names (:mod:`lw2g.api`).
Importing this package imports neither torch nor any plugin.
"""

from __future__ import annotations

__version__ = "0.2.0"

from lw2g.api import (
    continue_run,
    export,
    fork,
    load,
    resume,
    run,
    runs,
    sweep,
)
from lw2g_page.reporting import report
from lw2g_photos.photographs import learn, start, unlearn
from lw2g_store.stores import verify

__all__ = [
    "__version__",
    "continue_run",
    "export",
    "fork",
    "learn",
    "load",
    "report",
    "resume",
    "run",
    "runs",
    "start",
    "sweep",
    "unlearn",
    "verify",
]
