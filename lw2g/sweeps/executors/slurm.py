"""The Slurm executor, through submitit: job arrays that Slurm requeues after preemption.

All nodes must share the file system of the sweep's directory and of its runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import submitit
from attrs.validators import ge, gt, optional
from submitit.helpers import DelayedSubmission

from lw2g.disk.lock import holder_of
from lw2g.errors import ConfigError
from lw2g.interfaces.options import option
from lw2g.sweeps.executors import Executor, Options
from lw2g.sweeps.job import Attempt, Job

__all__ = ["EXECUTOR", "OPTIONS", "SlurmExecutor", "SlurmOptions"]

_LARGEST_ARRAY = 1_000
_ANY_NUMBER = 10_000


@attrs.frozen(kw_only=True)
class SlurmOptions(Options):
    """The options of the Slurm executor."""

    retries: int = option(3, "how often a job killed by a signal is submitted again", validator=ge(0))
    minutes: int = option(24 * 60, "time limit of a job; the run goes on in another job", validator=gt(0))
    partition: str | None = option(None, "where jobs are queued")
    memory_gb: float | None = option(None, "memory of a job", validator=optional(gt(0)))
    sbatch: tuple[str, ...] = option(
        (), "further options of sbatch, such as 'constraint=a100'", converter=tuple
    )
    cluster: Literal["slurm", "local"] = option("slurm", "local: processes on this machine, for a trial")

    def parameters(self) -> dict[str, Any]:
        """Return the options under submitit's names.

        Raises:
            ConfigError: A job would get a fraction of a GPU, or an entry of ``sbatch`` is not KEY=VALUE.
        """
        if self.gpus_per_job != int(self.gpus_per_job):
            raise ConfigError(
                f"executor.gpus_per_job: Slurm gives whole GPUs but {self.gpus_per_job} was asked for",
                "name a whole number",
            )
        further: dict[str, Any] = {"requeue": True}
        for text in self.sbatch:
            key, _, value = text.partition("=")
            if not key or not value:
                raise ConfigError(f"executor.sbatch: expected texts KEY=VALUE but got {list(self.sbatch)}")
            further[key] = value
        parameters: dict[str, Any] = {
            "name": "lw2g",
            "timeout_min": self.minutes,
            "cpus_per_task": self.threads or 1,
            "gpus_per_node": int(self.gpus_per_job) or None,
            "mem_gb": self.memory_gb,
            "slurm_partition": self.partition,
            "slurm_array_parallelism": self.jobs or _LARGEST_ARRAY,
            "slurm_additional_parameters": further,
        }
        return {key: value for key, value in parameters.items() if value is not None}


class Requeued(Attempt):
    """An attempt as a Slurm job: on preemption the run saves its state and the job is requeued."""

    def __call__(self) -> int:
        """Return the exit code of ``lw2g run`` or ``lw2g resume``."""
        return self.run()

    def checkpoint(self) -> DelayedSubmission:
        """Stop the run where it can be resumed, and return the job to requeue."""
        self.stop()
        return DelayedSubmission(Requeued(self.job, self.environment))


class SlurmExecutor(Executor):
    """Slurm jobs: as many at a time as Slurm starts, or at most ``jobs`` of an array.

    Jobs outlive the driver that submitted them; the next driver waits for those that run.

    Args:
        options: The resources of a job.
        directory: The sweep's directory; submitit writes to ``.submitit`` there.

    Raises:
        ConfigError: This machine belongs to no Slurm cluster, or the options do not fit it.
    """

    def __init__(self, options: SlurmOptions, directory: Path) -> None:
        parameters = options.parameters()
        self.retries = options.retries
        # Slurm starts the jobs of an array itself, as many at a time as ``parameters`` say
        self.slots = _LARGEST_ARRAY
        self.pause = 5.0  # seconds; each look asks Slurm's controller, which all users share
        if options.cluster == "local":  # processes of this machine: the sweep alone counts them
            self.slots = options.jobs or _LARGEST_ARRAY
            self.pause = 0.4
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
            raise ConfigError(f"executor 'slurm': {error}", "run it where jobs are submitted") from error
        self._environment = {"OMP_NUM_THREADS": str(options.threads or 1)}

    def submit(self, jobs: Sequence[Job]) -> list[submitit.Job[int]]:
        """Submit jobs as one array."""
        with self._executor.batch():
            return [self._executor.submit(Requeued(job, self._environment)) for job in jobs]

    def cancel(self, job: Job, future: submitit.Job[int]) -> None:
        """Ask a running job by a file (Slurm kills it after half a minute); withdraw a waiting one."""
        job.cancelled.touch()
        if holder_of(job.lock) is None:
            future.cancel(check=False)


OPTIONS = SlurmOptions
EXECUTOR = SlurmExecutor
