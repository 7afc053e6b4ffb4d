"""The executor of this machine: processes that share its cores and GPUs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from lw2g.errors import ConfigError
from lw2g.ground.processor import allowed_cores
from lw2g.sweeps.executors import Executor, Options
from lw2g.sweeps.grid import Cell
from lw2g.sweeps.job import Attempt, Job

__all__ = ["EXECUTOR", "OPTIONS", "LocalExecutor"]

_GPUS = Path("/proc/driver/nvidia/gpus")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class LocalExecutor(Executor):
    """Processes on this machine.

    Each job gets an equal share of the cores, unless ``OMP_NUM_THREADS`` or an option says otherwise. It sees
    all GPUs, unless ``gpus_per_job`` assigns some; then at most as many jobs run as the GPUs hold.

    Args:
        options: The number of jobs, and the cores and GPUs of each.
        directory: The sweep's directory.

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
        self._gpus_per_job = options.gpus_per_job
        self._free: SimpleQueue[dict[str, str]] = SimpleQueue()
        for slot in range(self.slots):
            variables = {}
            if places:
                variables = {_VISIBLE: places[slot]}
            self._free.put(variables)
        # more threads than cores, in all jobs together, make each of them slower than one thread would be
        cores_per_job = max(1, allowed_cores() // self.slots)
        self._threads = str(options.threads or os.environ.get("OMP_NUM_THREADS", cores_per_job))
        self._pool = ThreadPoolExecutor(self.slots)
        self._attempts: dict[str, Attempt] = {}

    def require_room(self, cells: Sequence[Cell]) -> None:
        """Refuse cells that together need more processes than there are GPUs or, without GPUs, cores."""
        for cell in cells:
            num_gpus = 0
            if cell.settings.get("run.device") != "cpu":
                num_gpus = len(_visible_gpus())
            if num_gpus and self._gpus_per_job:
                most = int(self._gpus_per_job)
            else:
                most = (num_gpus or allowed_cores()) // self.slots
            most = max(most, 1)  # a share of a GPU or core is enough for one process
            devices = cell.settings.get("run.devices", 1)
            if devices > most:
                present = f"{num_gpus} GPUs" if num_gpus else f"{allowed_cores()} cores"
                raise ConfigError(
                    f"run.devices: {devices} is too many for {self.slots} cells at a time on {present} "
                    f"(in the cell {cell.label!r})",
                    f"use at most {most}, or change --jobs or --gpus-per-job",
                )

    def submit(self, jobs: Sequence[Job]) -> list[Future[int]]:
        """Start a process for each job, on the GPUs that have been free for longest."""
        futures = []
        for job in jobs:
            attempt = Attempt(job, {"OMP_NUM_THREADS": self._threads})
            self._attempts[job.name] = attempt
            futures.append(self._pool.submit(self._run, attempt))
        return futures

    def cancel(self, job: Job, future: Future[int]) -> None:
        """Send the signal on which a run saves its state and stops."""
        self._attempts[job.name].ask()

    def close(self) -> None:
        """Stop the jobs that an error of the sweep has left running."""
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
    """Return the visible GPUs of each job, for as many jobs as fit; a job with several gets neighbours.

    Raises:
        ConfigError: Not even one job fits.
    """
    if share == 0:
        return []
    gpus = _visible_gpus()
    if share <= 1:
        # all GPUs once, then again; 1 / (1 / 3) may be a little less than 3
        places = gpus * int(1 / share + 1e-9)
    else:
        size = int(share)
        places = []
        for begin in range(0, len(gpus) - size + 1, size):
            places.append(",".join(gpus[begin : begin + size]))
    if not places:
        raise ConfigError(
            f"executor.gpus_per_job: {share:g} of {len(gpus)} GPUs cannot be given", "leave it out"
        )
    return places


def _visible_gpus() -> list[str]:
    visible = os.environ.get(_VISIBLE)
    if visible is None:
        return [str(number) for number in range(len(list(_GPUS.glob("*"))))]
    return [gpu for gpu in visible.split(",") if gpu]


OPTIONS = Options
EXECUTOR = LocalExecutor
