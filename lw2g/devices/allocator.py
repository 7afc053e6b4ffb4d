"""The C library's allocator: a run on a CPU keeps the memory of its large buffers from step to step.

glibc maps every buffer of more than 32 MB anew and gives it back when it is freed, so that a training step of
a large ViT faults in all its activations again. Importing this needs no torch.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

__all__ = ["KEEP_MEMORY", "keep_memory", "who_manages_memory"]

KEEP_MEMORY = "LW2G_KEEP_MEMORY"
"""The environment variable that leaves the allocator as it is, where it is 0."""

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of malloc.h
_NEVER, _NOTHING = -1, 0
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")
_OTHERS = ("jemalloc", "tcmalloc", "mimalloc")


def who_manages_memory() -> str | None:
    """Return why the allocator is left alone, None where a run lets it keep memory."""
    if sys.platform != "linux" or not _libc().startswith("glibc"):
        return "no glibc on Linux"
    if os.environ.get(KEEP_MEMORY) == "0":
        return f"{KEEP_MEMORY}=0"
    other = next((name for name in _OTHERS if name in os.environ.get("LD_PRELOAD", "")), None)
    if other is not None:
        return f"{other} takes its place"
    chosen = next((name for name in _SETTINGS if name in os.environ), None)
    if chosen is None and "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        chosen = "GLIBC_TUNABLES"
    return None if chosen is None else f"{chosen} is set"


def keep_memory() -> bool:
    """Let this process keep freed memory for its next buffers, of whatever size; return whether it does.

    All buffers come from the heap, which is never trimmed: no pages are mapped and cleared anew in each step.
    A process then stays as large as it once was. What the user has set for the allocator stays as it is.
    """
    if who_manages_memory() is not None:
        return False
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_MMAP_MAX, _NOTHING)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
    return False


def _libc() -> str:
    with suppress(AttributeError, OSError, ValueError):
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    return ""
