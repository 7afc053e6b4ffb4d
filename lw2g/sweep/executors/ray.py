"""The executor of Ray: remote tasks, on a cluster that ``ray start`` has begun on its nodes.

A task starts one process of lw2g, and goes on with the run where a worker or a node died under it. Nodes
share the sweep's directory, or else (``directories = "copied"``) runs lie on the nodes' own disks while they
are under way, and are copied back (:mod:`lw2g.sweep.carrying`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import ray
from attrs.validators import ge

from lw2g.errors import ConfigError
from lw2g.interfaces.options import option
from lw2g.sweep.carrying import Home, carried
from lw2g.sweep.executors.base import Executor, Options
from lw2g.sweep.job import INTERRUPTED, Attempt, Job

__all__ = ["EXECUTOR", "OPTIONS", "RayExecutor", "RayOptions"]

_ALL = 10_000


@attrs.frozen(kw_only=True)
class RayOptions(Options):
    """What Ray is told of the jobs."""

    retries: int = option(3, "how often a job is gone on with whose worker or node died", validator=ge(0))
    address: str = option(
        "auto", "the cluster's; auto: that of this machine; local: one for this sweep alone"
    )
    directories: Literal["shared", "copied"] = option(
        "shared", "copied: nodes have disks of their own, and runs are copied back while they are under way"
    )


def _bring_on(job: Job, environment: Mapping[str, str | None], home: Any = None) -> int:
    """Bring a run on; what a task of Ray does.

    Args:
        job: The job; where it was copied here, that at home.
        environment: Variables that its process sees.
        home: The actor that has the run at home; None where directories are shared.
    """
    if home is not None:
        return carried(job, _Remote(home), lambda away, meanwhile: _attempt(away, environment, meanwhile))
    return _attempt(job, environment, lambda: None)


def _attempt(job: Job, environment: Mapping[str, str | None], meanwhile: Any) -> int:
    attempt = Attempt(job, environment)
    try:
        return attempt.run(meanwhile)
    except KeyboardInterrupt:  # how Ray tells a task to stop
        attempt.stop()
        return INTERRUPTED


class _Remote(Home):
    """The home of a run as its task sees it: on another machine."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def fetch(self, job: Job) -> dict[str, bytes]:
        """Return the files of the run so far."""
        found: dict[str, bytes] = ray.get(self._actor.fetch.remote(job))
        return found

    def bring(self, job: Job, files: Mapping[str, bytes], kept: frozenset[str], said: bytes) -> bool:
        """Bring what has changed home; return whether the run is asked to stop."""
        asked: bool = ray.get(self._actor.bring.remote(job, files, kept, said))
        return asked


class RayExecutor(Executor[Any]):
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
        self._home = _home_here() if options.directories == "copied" else None
        self._open: list[Any] = []
        self._ready: set[Any] = set()
        self._asked: set[Any] = set()
        self._next_look = 0.0

    def submit(self, job: Job) -> Any:
        """Submit a task."""
        task = self._task.options(name=f"lw2g {job.name}").remote(job, self._environment, self._home)
        self._open.append(task)
        return task

    def poll(self, handle: Any) -> int | None:
        """Return the exit code; all tasks are looked at together."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + self.pause / 2
            self._ready = set(ray.wait(self._open, num_returns=len(self._open), timeout=0)[0])
        if handle not in self._ready:
            return None
        self._open.remove(handle)
        self._ready.discard(handle)
        try:
            code: int = ray.get(handle)
        except ray.exceptions.TaskCancelledError:
            return INTERRUPTED
        return code

    def cancel(self, handle: Any) -> None:
        """Interrupt a task, which then stops its run; once more: kill its worker, and the run with it."""
        ray.cancel(handle, force=handle in self._asked)
        self._asked.add(handle)

    def close(self) -> None:
        """Leave the cluster."""
        ray.shutdown()


def _home_here() -> Any:
    """Return an actor on this node, which has the runs at home."""
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    return ray.remote(Home).options(num_cpus=0, scheduling_strategy=here).remote()


OPTIONS, EXECUTOR = RayOptions, RayExecutor
