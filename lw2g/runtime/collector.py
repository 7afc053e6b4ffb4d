"""The garbage collector during imports."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_waits"]


@contextmanager
def collector_waits() -> Iterator[None]:
    """Disable the garbage collector during imports, and exclude their objects from later collections.

    torch creates so many permanent objects that collecting takes a fifth of its import time, and half a
    second before the first step. In a process that has imported torch nothing changes.
    """
    if "torch" in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # extensions look for leaked objects at exit
        gc.enable()
