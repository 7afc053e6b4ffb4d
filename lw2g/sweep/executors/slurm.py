"""The executor of Slurm, through submitit: job arrays that are requeued when they have to make room.

Run directories lie on a file system that all nodes share, and so does the sweep's.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import attrs
import submitit
from attrs.validators import ge, gt, optional
from submitit.helpers import DelayedSubmission

from lw2g.errors import ConfigError
from lw2g.interfaces.options import option
from lw2g.sweep.executors.base import Executor, Options
from lw2g.sweep.job import Attempt, Job
from lw2g.training.files.lock import ask_to_stop

__all__ = ["EXECUTOR", "OPTIONS", "SlurmExecutor", "SlurmOptions"]

_LARGEST_ARRAY = 1_000
_ANY_NUMBER = 10_000


@attrs.frozen(kw_only=True)
class SlurmOptions(Options):
    """What Slurm is told of the jobs."""

    retries: int = option(3, "how often a job is submitted again that died without a word", validator=ge(0))
    minutes: int = option(
        24 * 60, "time of a job; one that runs out of it goes on in another", validator=gt(0)
    )
    partition: str | None = option(None, "where jobs are queued")
    memory_gb: float | None = option(None, "memory of a job", validator=optional(gt(0)))
    sbatch: tuple[str, ...] = option(
        (), "further options of sbatch, such as 'constraint=a100'", converter=tuple
    )
    cluster: Literal["slurm", "local"] = option("slurm", "local: processes of this machine, to try it out")

    def parameters(self) -> dict[str, Any]:
        """Return what submitit calls them.

        Raises:
            ConfigError: A share of a GPU was asked for, or an option of sbatch is none.
        """
        if self.gpus_per_job != int(self.gpus_per_job):
            raise ConfigError(
                f"executor.gpus_per_job: Slurm gives whole GPUs but {self.gpus_per_job} was asked for; "
                "name a whole number"
            )
        pairs = [text.partition("=") for text in self.sbatch]
        if not all(key and value for key, _, value in pairs):
            raise ConfigError(f"executor.sbatch: expected texts KEY=VALUE but got {list(self.sbatch)}")
        told: dict[str, Any] = {
            "name": "lw2g",
            "timeout_min": self.minutes,
            "cpus_per_task": self.threads or 1,
            "gpus_per_node": int(self.gpus_per_job) or None,
            "mem_gb": self.memory_gb,
            "slurm_partition": self.partition,
            "slurm_array_parallelism": self.jobs or _LARGEST_ARRAY,
            "slurm_additional_parameters": {"requeue": True} | {key: value for key, _, value in pairs},
        }
        return {key: value for key, value in told.items() if value is not None}


class Requeued:
    """What a job of Slurm does: it brings a run on, and when it has to make room it saves and is requeued.

    Args:
        job: The job.
        environment: Variables that its process sees.
    """

    def __init__(self, job: Job, environment: Mapping[str, str | None]) -> None:
        self._attempt = Attempt(job, environment)

    def __call__(self) -> int:
        """Return the exit code of ``lw2g run`` or ``lw2g resume``."""
        return self._attempt.run()

    def checkpoint(self) -> DelayedSubmission:
        """Stop where the run can be gone on with, and return what is to be requeued."""
        self._attempt.stop()
        return DelayedSubmission(Requeued(self._attempt.job, self._attempt.environment))


@attrs.frozen(kw_only=True, eq=False)
class _Handle:
    """A job of ours and Slurm's of it."""

    job: Job
    submitted: submitit.Job[int]


class SlurmExecutor(Executor[_Handle]):
    """Jobs of Slurm, as many at a time as it has room for, or ``jobs`` of an array.

    Jobs outlive the sweep that has submitted them: the next one waits for those that run.

    Args:
        options: What a job needs.
        directory: The sweep's; what submitit writes goes to ``.submitit`` there.

    Raises:
        ConfigError: This is no machine of a cluster, or the options do not fit it.
    """

    def __init__(self, options: SlurmOptions, directory: Path) -> None:
        parameters = options.parameters()
        local = options.cluster == "local"
        self.slots = (options.jobs or _LARGEST_ARRAY) if local else _LARGEST_ARRAY
        self.pause, self.retries = 0.4 if local else 5.0, options.retries
        folder = (directory / ".submitit").absolute()
        try:
            self._executor = submitit.AutoExecutor(
                folder,
                cluster=options.cluster,
                slurm_max_num_timeout=_ANY_NUMBER,
                local_max_num_timeout=_ANY_NUMBER,
            )
            self._executor.update_parameters(**parameters)
        except (RuntimeError, NameError) as error:
            raise ConfigError(f"executor 'slurm': {error}; run it where jobs are submitted") from error
        self._environment = {"OMP_NUM_THREADS": str(options.threads or 1)}

    def submit(self, job: Job) -> _Handle:
        """Submit a job; within :meth:`together` as a part of an array."""
        return _Handle(job=job, submitted=self._executor.submit(Requeued(job, self._environment)))

    def poll(self, handle: _Handle) -> int | None:
        """Return the exit code; -9 of a job that died without a word."""
        if not handle.submitted.done():
            return None
        try:
            code: int = handle.submitted.result()
        except Exception as error:  # whatever submitit finds in place of a result
            with handle.job.log.open("a") as log:
                log.write(f"error: {' '.join(str(error).split())}\n")
            return -signal.SIGKILL
        return code

    def cancel(self, handle: _Handle) -> None:
        """Ask a run by a file: Slurm would leave it half a minute; withdraw what does not run."""
        if not ask_to_stop(handle.job.run):
            handle.submitted.cancel(check=False)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Submit what the block submits as one array."""
        with self._executor.batch():
            yield


OPTIONS, EXECUTOR = SlurmOptions, SlurmExecutor
