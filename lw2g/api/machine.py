"""Checks without torch: Python, memory, cores and threads, disk space for runs, and package versions."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from lw2g.api.finding import Finding, note, ok, problem
from lw2g.config.directory import RUNS
from lw2g.ground.free_memory import CGROUP, usable_memory
from lw2g.ground.processor import allowed_cores, is_busy

__all__ = ["machine_findings", "package_findings", "room_finding", "thread_finding", "usable_cores"]

_GIB = 2**30
_LITTLE_MEMORY = 4 * _GIB
"""Less memory than a ViT-B run needs."""
_LITTLE_ROOM = _GIB
"""Less disk space than the checkpoints of a long run need."""
_NO_ROOM = _GIB // 10
"""Less disk space than any run needs."""


def machine_findings() -> Iterator[Finding]:
    """Yield findings on Python, memory, cores and the folder of runs."""
    versions = "python -m torch.utils.collect_env tells all versions"
    yield ok("machine", f"Python {platform.python_version()} on {platform.platform()} ({versions})")
    yield _memory_finding(usable_memory())
    load = 0.0
    if hasattr(os, "getloadavg"):  # not on Windows
        load = os.getloadavg()[0]
    yield thread_finding(usable_cores(), load, os.environ.get("OMP_NUM_THREADS"))
    yield room_finding()


def _memory_finding(size: int | None) -> Finding:
    """Judge the memory that this process may use, in bytes; None if it is not known."""
    if size is None:
        return ok("machine", "memory unknown")
    text = f"{size / _GIB:.1f} GiB memory"
    if size >= _LITTLE_MEMORY:
        return ok("machine", text)
    remedy = "use a small backbone, and lower baseline.batch_size and run.evaluation_batch"
    return note("machine", f"{text}: a ViT-B run needs more", remedy)


def thread_finding(cores: float, load: float, setting: str | None) -> Finding:
    """Judge the number of threads that torch will use.

    Args:
        cores: Cores that this process may use.
        load: The load average of the last minute.
        setting: The environment variable OMP_NUM_THREADS.
    """
    text = f"{cores:g} cores, load {load:.1f}, OMP_NUM_THREADS="
    if setting is None:
        text += "(not set)"
        # torch takes a thread for each core, and threads that wait for each other are slower than one
        if cores <= 2:
            return note("machine", text, "cores are few: export OMP_NUM_THREADS=1")
        if is_busy(load, cores):
            return note("machine", text, "cores are busy: export OMP_NUM_THREADS=1")
        return ok("machine", text)
    text += setting
    if not setting.isdigit() or int(setting) == 0:
        return problem("machine", f"{text} is no number of threads", "export OMP_NUM_THREADS=1, or unset it")
    if int(setting) > cores:
        remedy = f"export OMP_NUM_THREADS={int(cores) or 1}"
        return note("machine", f"{text}: more threads than cores", remedy)
    return ok("machine", text)


def usable_cores(cgroup: Path = CGROUP) -> float:
    """Return the number of cores this process may use, by its affinity and its container's quota."""
    bound = allowed_cores()
    with suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text(encoding="utf-8").split()
        return min(bound, int(quota) / int(period))
    return bound


def room_finding(directory: Path = RUNS) -> Finding:
    """Return whether the default folder of runs is writable, and its free disk space."""
    existing = directory.absolute()
    while not existing.exists():  # the first run creates the directory
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        text = f"runs cannot be written to {str(directory.absolute())!r} ({error})"
        return problem("machine", text, "work in a writable folder, or name one with --out DIR")
    text = f"runs go to {str(directory.absolute())!r}, {free / _GIB:.1f} GiB free"
    if free >= _LITTLE_ROOM:
        return ok("machine", text)
    text += ": checkpoints may not fit"
    remedy = "make room, or use --out on another disk"
    if free >= _NO_ROOM:
        return note("machine", text, remedy)
    return problem("machine", text, remedy)


def package_findings() -> Iterator[Finding]:
    """Yield whether lw2g's distribution, its requirements, and their requirements in turn fit together."""
    name = "lw2g"
    own = _version(name)
    if own is None:
        text = f"{name} is not installed, so no plugin can be found"
        yield problem("packages", text, f"pip install . in the checkout, or pip install {name}")
        return
    yield ok("packages", f"{name} {own}")
    about = metadata(name)
    here = platform.python_version()
    python = Requirement(f"python{(about.get_all('Requires-Python') or [''])[0]}")
    if not python.specifier.contains(here, prereleases=True):
        remedy = f"make an environment with {python} and install {name} there"
        yield problem("packages", f"Python {here} does not fit {name}, which needs {python}", remedy)
    needed = _requirements(name)
    fitting = []
    owners = (name, *(need.name for need in needed))  # torchvision requires the torch it was built for
    for owner in owners:
        for need in _requirements(owner):
            installed = _version(need.name)
            if not _is_met(need):
                what = f"{need.name} {installed or 'is not installed,'}"
                text = f"{what} does not fit {owner}, which needs {need}"
                yield problem("packages", text, f'pip install "{need.name}{need.specifier}"')
            elif owner == name:
                fitting.append(f"{need.name} {installed}")
    yield ok("packages", f"{len(fitting)} of {len(needed)} dependencies fit: {', '.join(fitting)}")


def _requirements(name: str) -> list[Requirement]:
    """Return the requirements of a distribution on this machine; none if it is not installed."""
    try:
        stated = [Requirement(text) for text in requires(name) or ()]
    except PackageNotFoundError:
        return []
    return [need for need in stated if need.marker is None or need.marker.evaluate({"extra": ""})]


def _is_met(need: Requirement) -> bool:
    """Whether a distribution is installed in a version that fits."""
    installed = _version(need.name)
    return installed is not None and need.specifier.contains(installed, prereleases=True)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
