"""What the processor is, as Linux tells it: who made it, which instructions it has, and the cores to use."""

from __future__ import annotations

import os
import re
from pathlib import Path

import attrs

__all__ = ["CPU_INFO", "Processor", "allowed_cores", "is_busy", "read_processor"]

CPU_INFO = Path("/proc/cpuinfo")
_MAKER = re.compile(r"^(?:vendor_id|CPU implementer)\s*:\s*(\S+)", re.MULTILINE)
_FLAGS = re.compile(r"^(?:flags|Features)\s*:(.*)$", re.MULTILINE)


@attrs.frozen(kw_only=True)
class Processor:
    """A processor.

    Attributes:
        maker: As the system writes it, such as ``"AuthenticAMD"``, or ``"0x41"`` on ARM.
        flags: Its instructions, such as ``"avx512_bf16"``.
    """

    maker: str
    flags: frozenset[str]


def allowed_cores() -> int:
    """Return the number of cores that this process may use, which a container or a scheduler may limit."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_busy(load: float, cores: float) -> bool:
    """Return whether so many cores have less than half of their time for another process.

    Args:
        load: The load average of the last minute.
        cores: Cores that this process may use.
    """
    return load > cores / 2


def read_processor(info: Path = CPU_INFO) -> Processor | None:
    """Return the first processor of this machine; None where the system does not tell it, as on macOS."""
    try:
        text = info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    maker = _MAKER.search(text)
    flags = _FLAGS.search(text)
    if maker is None or flags is None:
        return None
    return Processor(maker=maker[1], flags=frozenset(flags[1].split()))
