"""The import of torch by a command that answers and ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lw2g.ground.processor import allowed_cores, is_busy
from lw2g.runtime.collector import collector_waits

__all__ = ["importing_torch"]


@contextmanager
def importing_torch() -> Iterator[None]:
    """Let torch be imported in the context without collections, and on a busy machine compute on one thread.

    Threads of torch wait for each other in loops: on cores that others hold, two of them take several
    times the time of one. ``OMP_NUM_THREADS`` has the last word. Runs keep their threads, whose number is
    one of the things that their last bits depend on. In a process that has imported torch nothing changes.
    """
    is_first = "torch" not in sys.modules
    with collector_waits():
        yield
    if is_first and "torch" in sys.modules and "OMP_NUM_THREADS" not in os.environ and _is_machine_busy():
        import torch

        torch.set_num_threads(1)


def _is_machine_busy() -> bool:
    if not hasattr(os, "getloadavg"):  # not on Windows
        return False
    return is_busy(os.getloadavg()[0], allowed_cores())
