"""The machine without torch: Python, memory, its allocator, cores and threads, and room for runs."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lw2g.config.directory import RUNS
from lw2g.doctor.finding import Finding, note, ok, problem
from lw2g.training.devices.allocator import KEEP_MEMORY, who_manages_memory
from lw2g.vit.room import CGROUP, usable_memory

__all__ = [
    "allocator_finding",
    "machine_findings",
    "memory_finding",
    "run_directory_findings",
    "thread_finding",
    "usable_cores",
]

GIB = 2**30
_LITTLE_MEMORY = 4 * GIB
_LITTLE_ROOM = 1 * GIB
_NO_ROOM = GIB // 10


def machine_findings() -> Iterator[Finding]:
    """Yield what is to be said of Python, memory and cores."""
    yield ok("machine", f"Python {platform.python_version()} on {platform.platform()}")
    yield memory_finding(usable_memory())
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    yield thread_finding(usable_cores(), load, os.environ.get("OMP_NUM_THREADS"))
    yield allocator_finding(who_manages_memory())


def memory_finding(size: int | None) -> Finding:
    """Judge the memory that a process may use, in bytes; None where it is unknown."""
    if size is None:
        return ok("machine", "memory: this system does not say how much there is")
    text = f"{size / GIB:.1f} GiB memory"
    if size >= _LITTLE_MEMORY:
        return ok("machine", text)
    return note(
        "machine",
        f"{text}: a ViT-B run needs more",
        "use a small backbone, and lower baseline.batch_size and run.evaluation_batch",
    )


def thread_finding(cores: float, load: float, setting: str | None) -> Finding:
    """Judge the number of threads that torch will use.

    Args:
        cores: Cores that this process may use.
        load: Processes that want to run, averaged over the last minute.
        setting: The environment variable OMP_NUM_THREADS.
    """
    text = f"{cores:g} cores, load {load:.1f}, OMP_NUM_THREADS={'(not set)' if setting is None else setting}"
    if setting is None:
        if cores <= 2 or load > cores / 2:
            why = "few" if cores <= 2 else "busy"
            remedy = (
                f"cores are {why}: export OMP_NUM_THREADS=1, more so where several runs share the machine"
            )
            return note("machine", text, remedy)
        return ok("machine", text)
    if not setting.isdigit() or int(setting) < 1:
        return problem("machine", f"{text} is no number of threads", "export OMP_NUM_THREADS=1, or unset it")
    if int(setting) > cores:
        return note(
            "machine", f"{text}: more threads than cores", f"export OMP_NUM_THREADS={int(cores) or 1}"
        )
    return ok("machine", text)


def allocator_finding(left_alone: str | None) -> Finding:
    """Say whether runs on the CPU keep the memory of large buffers.

    Args:
        left_alone: Why they do not, None where they do.
    """
    if left_alone is not None:
        return ok("machine", f"allocator: left as it is ({left_alone})")
    return ok(
        "machine",
        f"allocator: runs on the CPU keep freed memory for their next step ({KEEP_MEMORY}=0: they do not)",
    )


def run_directory_findings(directory: Path = RUNS) -> Iterator[Finding]:
    """Yield whether runs can be written where they go by default, and how much room there is."""
    place = directory.absolute()
    while not place.exists():  # the directory itself is made by the first run
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        yield problem(
            "machine",
            f"runs cannot be written to {str(directory.absolute())!r} ({error})",
            "work in a folder of your own, or give runs another one with --out DIR",
        )
        return
    free = shutil.disk_usage(place).free
    text = f"runs go to {str(directory.absolute())!r}, {free / GIB:.1f} GiB free"
    if free >= _LITTLE_ROOM:
        yield ok("machine", text)
    else:
        level = problem if free < _NO_ROOM else note
        yield level("machine", f"{text}: checkpoints may not fit", "make room, or use --out on another disk")


def usable_cores(cgroup: Path = CGROUP) -> float:
    """Return how many cores this process may use: those it is bound to, or a container's share of them."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        return min(bound, int(quota) / int(period))
    return bound
