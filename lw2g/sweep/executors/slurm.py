"""The executor of Slurm, through submitit: job arrays that are requeued when they have to make room.

Run directories lie on a file system that all nodes share, and so does the sweep's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import submitit
from attrs.validators import ge, gt, optional
from submitit.helpers import DelayedSubmission

from lw2g.errors import ConfigError
from lw2g.interfaces.options import option
from lw2g.sweep.executors import Executor, Options
from lw2g.sweep.job import Attempt, Job
from lw2g.training.files.lock import holder_of

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


class Requeued(Attempt):
    """What a job of Slurm does: it brings a run on, and when it has to make room it saves and is requeued."""

    def __call__(self) -> int:
        """Return the exit code of ``lw2g run`` or ``lw2g resume``."""
        return self.run()

    def checkpoint(self) -> DelayedSubmission:
        """Stop where the run can be resumed, and return what is to be requeued."""
        self.stop()
        return DelayedSubmission(Requeued(self.job, self.environment))


class SlurmExecutor(Executor):
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

    def submit(self, jobs: Sequence[Job]) -> list[submitit.Job[int]]:
        """Submit jobs as one array."""
        with self._executor.batch():
            return [self._executor.submit(Requeued(job, self._environment)) for job in jobs]

    def cancel(self, job: Job, future: submitit.Job[int]) -> None:
        """Ask a run by a file: Slurm would leave it half a minute; withdraw what does not run."""
        job.cancelled.touch()
        if holder_of(job.lock) is None:
            future.cancel(check=False)


OPTIONS, EXECUTOR = SlurmOptions, SlurmExecutor
