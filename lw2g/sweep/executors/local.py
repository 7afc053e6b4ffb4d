"""The executor of this machine: processes that share its cores and GPUs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from lw2g.errors import ConfigError
from lw2g.sweep.executors import Executor, Options
from lw2g.sweep.job import Attempt, Job

__all__ = ["EXECUTOR", "OPTIONS", "LocalExecutor"]

_GPUS = Path("/proc/driver/nvidia/gpus")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class LocalExecutor(Executor):
    """Processes of this machine, which end with it.

    A job has its share of the cores, unless ``OMP_NUM_THREADS`` or an option says otherwise. It sees all
    GPUs, unless it is given some: then as many jobs run as the GPUs have room for, or as are asked for.

    Args:
        options: How many jobs, and what each is given.
        directory: The sweep's.

    Raises:
        ConfigError: There are too few GPUs for one job.
    """

    pause = 0.1

    def __init__(self, options: Options, directory: Path) -> None:
        places = _places(options.gpus_per_job)
        self.slots = options.jobs or len(places) or 1
        if places:
            self.slots = min(self.slots, len(places))
        self.retries = options.retries
        self._free: SimpleQueue[dict[str, str]] = SimpleQueue()
        for slot in range(self.slots):
            self._free.put({_VISIBLE: places[slot]} if places else {})
        share = os.environ.get("OMP_NUM_THREADS", str(max(1, _cores() // self.slots)))
        self._threads = str(options.threads or share)
        self._pool = ThreadPoolExecutor(self.slots)
        self._attempts: dict[str, Attempt] = {}

    def submit(self, jobs: Sequence[Job]) -> list[Future[int]]:
        """Start a process for each, on the GPUs that have been free for longest."""
        attempts = {job.name: Attempt(job, {"OMP_NUM_THREADS": self._threads}) for job in jobs}
        self._attempts |= attempts
        return [self._pool.submit(self._run, attempt) for attempt in attempts.values()]

    def cancel(self, job: Job, future: Future[int]) -> None:
        """Send the signal on which a run saves what it has learned and stops."""
        self._attempts[job.name].ask()

    def close(self) -> None:
        """Stop what an error of the sweep has left under way."""
        for attempt in self._attempts.values():
            attempt.ask()
        self._pool.shutdown()

    def _run(self, attempt: Attempt) -> int:
        gpus = self._free.get()
        try:
            attempt.environment |= gpus
            return attempt.run()
        finally:
            self._free.put(gpus)


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
