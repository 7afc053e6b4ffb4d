"""The most memory that a block of work has held, on the machine and on its accelerator."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import torch

__all__ = ["PeakMemory"]

_SELF = Path("/proc/self")
_RESET = "5"
"""Written to ``clear_refs``: the peak begins anew at what is held now (proc(5))."""


class PeakMemory:
    """Peaks since it was made, in bytes.

    Where the system cannot let the peak begin anew (it can on Linux), the machine's is that of the whole
    process so far.

    Args:
        device: Where tensors live.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with suppress(OSError):
            (_SELF / "clear_refs").write_text(_RESET, encoding="utf-8")
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    @property
    def machine(self) -> int:
        """Bytes of the process."""
        with suppress(OSError, StopIteration, ValueError):
            lines = (_SELF / "status").read_text(encoding="utf-8").splitlines()
            peak = next(line for line in lines if line.startswith("VmHWM:"))
            return 1024 * int(peak.split()[1])  # "VmHWM:  123 kB"
        try:
            import resource
        except ImportError:  # Windows
            return 0
        unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @property
    def device(self) -> int | None:
        """Bytes of torch's tensors on the accelerator, None without one."""
        if self._device.type != "cuda":
            return None
        return torch.cuda.max_memory_allocated(self._device)
