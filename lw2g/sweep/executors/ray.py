"""The executor of Ray: remote tasks on a cluster that ``ray start`` has begun on its nodes.

A task is one attempt at a job; Ray tries it again where a worker or a node died under it. Nodes share the
sweep's directory.
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
from lw2g.sweep.executors import Executor, Options
from lw2g.sweep.job import Attempt, Job

__all__ = ["EXECUTOR", "OPTIONS", "RayExecutor", "RayOptions"]

_ALL = 10_000


@attrs.frozen(kw_only=True)
class RayOptions(Options):
    """What Ray is told of the jobs."""

    retries: int = option(3, "how often a job is resumed whose worker or node died", validator=ge(0))
    address: str = option(
        "auto", "the cluster's; auto: that of this machine; local: one for this sweep alone"
    )


def _bring_on(job: Job, environment: Mapping[str, str]) -> int:
    return Attempt(job, dict(environment)).run()


class RayExecutor(Executor):
    """Tasks of a Ray cluster, which queues as many as there are.

    Args:
        options: What a task needs, and the cluster.
        directory: The sweep's.

    Raises:
        ConfigError: No cluster answers.
    """

    def __init__(self, options: RayOptions, directory: Path) -> None:
        self.slots, self.retries = options.jobs or _ALL, options.retries
        try:
            ray.init(address=options.address, logging_level=logging.ERROR, log_to_driver=False)
        except Exception as error:  # Ray raises bare ones, too, where its own node is not there in time
            raise ConfigError(
                f"executor 'ray': no cluster at {options.address!r} ({' '.join(str(error).split())[:200]}); "
                "start one by `ray start --head`, or --executor-set address=local"
            ) from error
        self._environment = {"OMP_NUM_THREADS": str(options.threads or 1)}
        self._task = ray.remote(
            num_cpus=options.threads or 1, num_gpus=options.gpus_per_job, max_retries=options.retries
        )(_bring_on)
        self._tasks: dict[Future[int], Any] = {}
        self._asked: set[Future[int]] = set()

    def submit(self, jobs: Sequence[Job]) -> list[Future[int]]:
        """Submit a task for each."""
        tasks = [self._task.options(name=f"lw2g {job.name}").remote(job, self._environment) for job in jobs]
        futures = [task.future() for task in tasks]
        self._tasks |= zip(futures, tasks, strict=True)
        return futures

    def cancel(self, job: Job, future: Future[int]) -> None:
        """Interrupt a task, which then stops its run; once more: kill its worker, and the run with it."""
        ray.cancel(self._tasks[future], force=future in self._asked)
        self._asked.add(future)

    def close(self) -> None:
        """Leave the cluster."""
        ray.shutdown()


OPTIONS, EXECUTOR = RayOptions, RayExecutor
