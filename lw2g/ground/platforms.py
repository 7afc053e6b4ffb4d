"""Where lw2g runs: it locks files, forks workers and answers signals as POSIX systems do."""

from __future__ import annotations

import sys

__all__ = ["why_not_here"]


def why_not_here() -> str:
    """Return in one line why lw2g cannot run on this system; empty where it can."""
    if sys.platform == "win32":
        return "lw2g runs on Linux, macOS and WSL; on Windows: wsl --install, then install lw2g in it"
    return ""
