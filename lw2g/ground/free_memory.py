"""Memory: how much there is, and what can never fit. Importing it imports no torch."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lw2g.errors import ConfigError

if TYPE_CHECKING:
    import torch

__all__ = ["CGROUP", "memory_of", "require_memory", "usable_memory"]

CGROUP = Path("/sys/fs/cgroup")
_GIB = 2**30


def usable_memory(cgroup: Path = CGROUP) -> int | None:
    """Return the bytes of memory that this process may use; None if the system does not report them."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    with suppress(OSError, ValueError):
        return min(size, int((cgroup / "memory.max").read_text(encoding="utf-8")))
    return size


def memory_of(device: torch.device | None = None) -> int | None:
    """Return the bytes of a device's memory, for None or a CPU of main memory; None if nothing tells them."""
    if device is None or device.type != "cuda":
        return usable_memory()
    import torch

    total: int = torch.cuda.get_device_properties(device).total_memory
    return total


def require_memory(needed: int, what: str, remedy: str, device: torch.device | None = None) -> None:
    """Refuse what does not fit even into empty memory.

    Args:
        needed: A lower bound of the bytes it needs.
        what: Its name in the message.
        remedy: What the user can do.
        device: The device whose memory it needs; None for main memory.

    Raises:
        ConfigError: It needs more than the total memory.
    """
    total = memory_of(device)
    if total is not None and needed > total:
        raise ConfigError(
            f"{what} cannot fit: {needed / _GIB:.4g} GiB at least, and there are {total / _GIB:.4g}",
            remedy,
        )
