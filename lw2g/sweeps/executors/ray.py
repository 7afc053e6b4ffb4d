"""The Ray executor: remote tasks on a cluster whose nodes were started by ``ray start``.

A task is one attempt at a job; Ray retries it when its worker or node dies. All nodes share the directory.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import attrs
import ray
from attrs.validators import ge

from lw2g.errors import ConfigError
from lw2g.interfaces.options import option
from lw2g.sweeps.executors import Executor, Options
from lw2g.sweeps.job import Attempt, Job

__all__ = ["EXECUTOR", "OPTIONS", "RayExecutor", "RayOptions"]

_ALL = 10_000
"""More than any sweep has: Ray's own queue decides how many tasks run."""


@attrs.frozen(kw_only=True)
class RayOptions(Options):
    """The options of the Ray executor."""

    retries: int = option(3, "how often a job is resumed whose worker or node died", validator=ge(0))
    address: str = option(
        "auto", "address of the cluster; auto: the one of this machine; local: a new one for this sweep"
    )


def _bring_on(job: Job, environment: Mapping[str, str]) -> int:
    return Attempt(job, dict(environment)).run()


class RayExecutor(Executor):
    """Tasks of a Ray cluster, which has its own queue.

    Args:
        options: The resources of a task, and the cluster.
        directory: The sweep's directory.

    Raises:
        ConfigError: No cluster answers.
    """

    def __init__(self, options: RayOptions, directory: Path) -> None:
        self.slots = options.jobs or _ALL
        self.retries = options.retries
        try:
            ray.init(address=options.address, logging_level=logging.ERROR, log_to_driver=False)
        # Ray raises bare ones when its node does not start in time; their texts can fill a screen
        except Exception as error:
            raise ConfigError(
                f"executor 'ray': no cluster at {options.address!r} ({' '.join(str(error).split())[:200]})",
                "start one by `ray start --head`, or --executor-set address=local",
            ) from error
        self._environment = {"OMP_NUM_THREADS": str(options.threads or 1)}
        self._task = ray.remote(
            num_cpus=options.threads or 1, num_gpus=options.gpus_per_job, max_retries=options.retries
        )(_bring_on)
        self._tasks: dict[Future[int], Any] = {}
        self._asked: set[Future[int]] = set()

    def submit(self, jobs: Sequence[Job]) -> list[Future[int]]:
        """Submit a task for each job."""
        futures = []
        for job in jobs:
            task = self._task.options(name=f"lw2g {job.name}").remote(job, self._environment)
            future = task.future()
            self._tasks[future] = task  # to cancel, Ray takes the task, not its future
            futures.append(future)
        return futures

    def cancel(self, job: Job, future: Future[int]) -> None:
        """Interrupt a task, which then stops its run; a second call kills its worker and the run with it."""
        ray.cancel(self._tasks[future], force=future in self._asked)
        self._asked.add(future)

    def close(self) -> None:
        """Leave the cluster."""
        ray.shutdown()


OPTIONS = RayOptions
EXECUTOR = RayExecutor
