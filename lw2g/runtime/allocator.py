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

# parameters of mallopt, by their numbers in malloc.h
_TRIM_THRESHOLD = -1
_MMAP_MAX = -4
_NEVER = -1  # as a threshold
_NOTHING = 0  # as a number of mappings
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")
_OTHERS = ("jemalloc", "tcmalloc", "mimalloc")


def who_manages_memory() -> str | None:
    """Return why the allocator is left alone, None where a run lets it keep memory."""
    if sys.platform != "linux" or not _libc().startswith("glibc"):
        return "no glibc on Linux"
    if os.environ.get(KEEP_MEMORY) == "0":
        return f"{KEEP_MEMORY}=0"
    for other in _OTHERS:
        if other in os.environ.get("LD_PRELOAD", ""):
            return f"{other} takes its place"
    for setting in _SETTINGS:
        if setting in os.environ:
            return f"{setting} is set"
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return "GLIBC_TUNABLES is set"
    return None


def keep_memory() -> bool:
    """Let this process keep freed memory for its next buffers, of whatever size; return whether it does.

    All buffers come from the heap, which is never trimmed: no pages are mapped and cleared anew in each step.
    A process then stays as large as it once was. What the user has set for the allocator stays as it is.
    """
    if who_manages_memory() is not None:
        return False
    # a process whose libraries cannot be opened, or have no mallopt, goes on without
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_MMAP_MAX, _NOTHING)) and bool(mallopt(_TRIM_THRESHOLD, _NEVER))
    return False


def _libc() -> str:
    with suppress(AttributeError, OSError, ValueError):
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    return ""
