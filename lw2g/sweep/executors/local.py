"""The executor of this machine: processes that share its cores and GPUs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import attrs

from lw2g.errors import ConfigError
from lw2g.sweep.executors.base import Executor, Options
from lw2g.sweep.job import Job

__all__ = ["EXECUTOR", "OPTIONS", "LocalExecutor"]

_GPUS = Path("/proc/driver/nvidia/gpus")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


@attrs.frozen(kw_only=True, eq=False)
class _Handle:
    """A process, and the GPUs it was given."""

    process: subprocess.Popen[bytes]
    gpus: str | None


class LocalExecutor(Executor[_Handle]):
    """Processes of this machine.

    A job has its share of the cores, unless ``OMP_NUM_THREADS`` or an option says otherwise. It sees all
    GPUs, unless it is given some: then as many jobs run as the GPUs have room for, or as are asked for.

    Args:
        options: How many jobs, and what each is given.
        directory: The sweep's.

    Raises:
        ConfigError: There are too few GPUs for one job.
    """

    pause = 0.2

    def __init__(self, options: Options, directory: Path) -> None:
        places = _places(options.gpus_per_job)
        self.slots = options.jobs or (len(places) if places else 1)
        if places:
            self.slots = min(self.slots, len(places))
        self.retries = options.retries
        self._free: list[str | None] = list(places[: self.slots]) if places else [None] * self.slots
        threads = str(max(1, _cores() // self.slots))
        self._environment: dict[str, str | None] = {
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads)
        }
        self._environment |= options.environment

    def submit(self, job: Job) -> _Handle:
        """Start a process, on the GPUs that have been free for longest."""
        gpus = self._free.pop(0)
        return _Handle(
            process=job.start(self._environment | ({} if gpus is None else {_VISIBLE: gpus})), gpus=gpus
        )

    def poll(self, handle: _Handle) -> int | None:
        """Return the exit code, None while the process runs."""
        code = handle.process.poll()
        if code is not None:
            self._free.append(handle.gpus)
        return code

    def cancel(self, handle: _Handle) -> None:
        """Send the signal on which a run saves what it has learned and stops."""
        handle.process.send_signal(signal.SIGTERM)


def _places(share: float) -> list[str]:
    """Return what a job sees as its GPUs, for as many jobs as there is room for; neighbours on several GPUs.

    Raises:
        ConfigError: There is no room for one.
    """
    if share == 0:
        return []
    told = os.environ.get(_VISIBLE)
    gpus = [str(number) for number in range(len(list(_GPUS.glob("*"))))] if told is None else told.split(",")
    gpus = [gpu for gpu in gpus if gpu]
    if share <= 1:
        found = [gpu for _ in range(int(1 / share + 1e-9)) for gpu in gpus]
    else:
        size = int(share)
        found = [",".join(gpus[begin : begin + size]) for begin in range(0, len(gpus) - size + 1, size)]
    if not found:
        raise ConfigError(
            f"executor.gpus_per_job: {share:g} of {len(gpus)} GPUs cannot be given; leave it out"
        )
    return found


def _cores() -> int:
    """Return the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


OPTIONS, EXECUTOR = Options, LocalExecutor
