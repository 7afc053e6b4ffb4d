"""The cost of a run, and the data and weights it lacks, without writing it: ``lw2g run --dry-run``.

The code of a run (:mod:`lw2g.learning.learner`) learns the first two tasks with a few steps a phase, and with
as few images as the machine has time for. The cost of work on images is scaled to the full number; later
tasks lie on the line through the two. That is right to about 50 %.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from lw2g.config.settings import Chosen, ExperimentConfig, is_evaluated
from lw2g.errors import ConfigError, DataError
from lw2g.ground.network import without_network
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.growth import CandidateEvidence, Evidence, Grow
from lw2g.interfaces.stream import Task
from lw2g.learning.session import open_session
from lw2g.learning.session_data import RunData
from lw2g.learning.session_parts import RunParts
from lw2g.lifecycle.rehearsal import Rehearsal, TaskCost
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.boundary import guarded
from lw2g.runtime.ranks import on_its_device
from lw2g.runtime.returned import stream_of
from lw2g.runtime.threads import suited_threads

__all__ = ["Estimate", "estimate", "missing_packages", "missing_parts", "seconds_to_start"]

_NOISE = 1.15
"""Below this ratio two measurements of the same work are taken as equal."""
_ROW = 24
"""Bytes of a test sample in a file of predictions: six columns of int32."""
_START = "import lw2g.cli.run_command, lw2g.lifecycle.runner"
"""What each process of a run does before it opens data and weights."""


@attrs.frozen(kw_only=True)
class Estimate:
    """The cost of a run on this machine, right to about 50 %.

    A policy that reads evidence is taken to add a set with every second task.

    Attributes:
        seconds: Of the run.
        memory: Peak bytes of the process.
        device_memory: Peak bytes of tensors on an accelerator, None without one.
        disk: Bytes of the run's directory at its end.
        tasks: Number of tasks that are learned.
        images: Their training images, and the test images of the stream.
        device: Where it was measured.
        runs: Number of runs, one after the other, that time and disk cover.
        trained: How many tasks, from the first on, train; None: all.
        done: How many tasks a fork takes over.
        notes: What the run will tell of its data.
        starting: Seconds that each run takes to start as a process of its own, which ``seconds`` holds; 0 for
            one run alone.
    """

    seconds: float
    memory: float
    device_memory: float | None
    disk: float
    tasks: int
    images: tuple[int, int]
    device: str
    runs: int = 1
    trained: int | None = None
    done: int = 0
    notes: tuple[str, ...] = ()
    starting: float = 0.0

    def in_process(self, starting: float) -> Estimate:
        """Return the cost of a run that takes so many seconds to start as a process of its own."""
        return attrs.evolve(self, seconds=self.seconds + starting, starting=starting)

    def times(self, runs: int) -> Estimate:
        """Return the cost of several runs that differ only in seed."""
        return attrs.evolve(self, seconds=runs * self.seconds, disk=runs * self.disk, runs=self.runs * runs)

    def as_mapping(self) -> dict[str, Any]:
        """Return a JSON-able mapping."""
        return attrs.asdict(self)


def seconds_to_start() -> float:
    """Return how long a process takes to start and import what a run needs, measured on one."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _START], stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def missing_packages(config: ExperimentConfig, catalogue: Catalogue) -> list[str]:
    """Return a line each for packages of trackers that are not installed."""
    lines = []
    for chosen in config.trackers:
        component = catalogue.get("tracker", chosen.name)
        if not component.is_installed:
            lines.append(
                f"tracker {chosen.name!r} needs the package {component.package}; {component.install}"
            )
    return lines


def missing_parts(config: ExperimentConfig, catalogue: Catalogue) -> list[str]:
    """Return a line each for missing data and missing weights, without using the network.

    Raises:
        ConfigError: Benchmark or backbone cannot be built as configured.
    """
    chosen = config.backbone
    benchmark = catalogue.get("benchmark", config.benchmark.name)
    backbone = catalogue.get("backbone", chosen.name)
    lines: list[str] = []
    with guarded(catalogue, config), without_network():
        try:
            stream_of(benchmark.build(config.benchmark.config), benchmark.name)
        except DataError as error:
            lines.append(str(error))
        except ConfigError as error:
            if benchmark.lacks(config.benchmark.config) is None:  # then it is a mistake
                raise
            lines.append(str(error))
        try:
            backbone.build(chosen.config, chosen.weights, chosen.image_size)
        except DataError as error:
            lines.append(str(error))
    return lines


def estimate(
    config: ExperimentConfig,
    catalogue: Catalogue,
    *,
    tasks: int | None = None,
    done: int = 0,
    later: Sequence[Chosen] = (),
    moved: Chosen | None = None,
) -> Estimate:
    """Return the cost of an experiment whose data and weights are on this machine.

    It writes only checkpoints, to a temporary folder, to time them.

    Args:
        config: The experiment.
        catalogue: Where its components come from.
        tasks: After how many tasks it stops; None for all.
        done: How many tasks a fork takes over: time is that of the others, disk that of all.
        later: Benchmarks whose classes follow.
        moved: The benchmark with the place where its data lie now.

    Raises:
        ConfigError: It cannot be built as configured, or has fewer tasks.
        DataError: Data or weights are missing.
        ComponentError: A component raised an error.
    """
    # for its refusals alone, which are those of a run: what follows is measured on one device
    on_its_device(config, config.run.devices)
    with guarded(catalogue, config), without_network(), tempfile.TemporaryDirectory(prefix="lw2g-") as folder:
        began = time.perf_counter()
        session = open_session(config, catalogue, later, moved=moved)
        opening = time.perf_counter() - began
        goal = session.parts.require_goal(done, tasks)
        reads = session.components.policy.reads(config.policy.config)
        plan = _plan(session.parts, goal, reads=bool(reads))
        # on as many threads as the run will have
        with suited_threads(session.parts.backbone, session.parts.engine.device):
            rehearsal = Rehearsal(session, Path(folder), plan)
            first = rehearsal.measure(0)
            second = first
            if goal > 1:
                second = rehearsal.measure(1)
    return _continued(session.parts, session.data, plan, first, second, opening, done)


def _plan(parts: RunParts, tasks: int, *, reads: bool) -> tuple[int, ...]:
    """Return the set of each task, as far as the policy tells.

    Args:
        parts: The run.
        tasks: After how many tasks it stops.
        reads: Whether the policy reads measures, so that nobody knows what it decides: then a set with every
            second task, halfway between the plans that cost least and most.
    """
    if parts.growth.fixed:
        return (0,) * tasks
    if reads:
        return tuple((task + 1) // 2 for task in range(tasks))
    # a policy that reads no evidence is asked, with the draws that it will have in the run
    plan: list[int] = []
    for task in range(tasks):
        live = tuple(CandidateEvidence(set=known) for known in sorted(set(plan)))
        generator = np.random.default_rng(derive_seed(parts.config.run.seed, "task", task, "policy"))
        evidence = Evidence(task=task, candidates=live, task_to_set=tuple(plan))
        decision = parts.growth.policy.decide(evidence, generator)
        if isinstance(decision, Grow):
            plan.append(len(live))
        else:
            plan.append(decision.set)
    return tuple(plan)


def _continued(
    run: RunParts,
    data: RunData,
    plan: Sequence[int],
    first: TaskCost,
    second: TaskCost,
    opening: float,
    done: int,
) -> Estimate:
    """Return the cost of a run from its first two tasks.

    Args:
        run: What learns.
        data: What it learns from.
        plan: The set of each task.
        first: The cost of the first task.
        second: That of the second; the first again where there is no second.
        opening: Seconds of opening the session.
        done: How many tasks are learned already.
    """
    tasks = data.stream.tasks[: len(plan)]
    rows = _rows(run, tasks)
    # What comes with classes: bytes at the end beyond those of the two tasks that were measured, on the run's
    # device.
    seen = run.infos[min(2, len(tasks)) - 1].seen
    more = run.bytes_of(run.infos[len(tasks) - 1].seen) - run.bytes_of(seen)
    memory = max(first.memory, second.memory)
    device_memory = None
    if first.device_memory is None or second.device_memory is None:
        memory += more
    else:
        device_memory = max(first.device_memory, second.device_memory) + more
    names = len(json.dumps(list(data.evaluator.ids)))  # bytes of the list of test images
    trained = run.baseline.trained_tasks
    seconds = _learning(tasks, plan, first, second, trained) + _evaluation(tasks, rows, first, second)
    if done:
        seconds -= _learning(tasks[:done], plan[:done], first, second, trained)
        # the last of these evaluations is repeated, and compared with the other run's
        seconds -= _evaluation(tasks, rows[: done - 1], first, second)
    ahead = tasks[done:]
    return Estimate(
        seconds=opening + seconds,
        memory=memory,
        device_memory=device_memory,
        disk=names + _ROW * sum(rows) + _sum_of_line(first.disk, second.disk, len(tasks)),
        tasks=len(ahead),
        images=(sum(len(task.train) for task in ahead), sum(len(task.test) for task in tasks)),
        device=run.engine.device_name or str(run.engine.device),
        trained=trained,
        done=done,
        notes=tuple(data.notes),
    )


def _rows(run: RunParts, tasks: Sequence[Task]) -> list[int]:
    """Return the number of test images of each evaluation."""
    rows = []
    seen = 0
    for index, task in enumerate(tasks):
        seen += len(task.test)
        if is_evaluated(index, len(tasks) - 1, run.config.run.evaluate):
            rows.append(seen)
    return rows


def _learning(
    tasks: Sequence[Task],
    plan: Sequence[int],
    first: TaskCost,
    second: TaskCost,
    trained: int | None = None,
) -> float:
    """Return the seconds of all tasks but for their evaluations, on the lines through the first two.

    Args:
        tasks: The tasks.
        plan: The set of each.
        first: The cost of the first task.
        second: That of the second.
        trained: How many tasks train; None: all.
    """
    count = len(tasks)
    pace = first.training / len(tasks[0].train)
    later_pace = pace
    spared = 0.0  # of each image of a task that trains nothing
    if count > 1:
        later_pace = second.training / len(tasks[1].train)
        spared = second.steps / len(tasks[1].train)
    # a slope between two measurements of the same work would be multiplied by the number of tasks
    slope = 0.0
    if later_pace > _NOISE * pace:
        slope = later_pace - pace
    of_a_set = max(0.0, second.evidence - first.evidence)
    seconds = first.evidence + first.training
    for index, task in enumerate(tasks[1:]):
        seconds += first.evidence + of_a_set * len(set(plan[: index + 1]))
        seconds += len(task.train) * (later_pace + slope * index)
        if trained is not None and index + 1 >= trained:
            seconds -= len(task.train) * spared
        seconds += second.copies * len(task.train) / len(tasks[1].train)
    seconds += first.spaces + second.spaces * (count - 1)
    return seconds + _sum_of_line(first.checkpoints, second.checkpoints, count)


def _evaluation(tasks: Sequence[Task], rows: Sequence[int], first: TaskCost, second: TaskCost) -> float:
    """Return the seconds of all evaluations, which have so many test images each."""
    tested = len(tasks[0].test)
    of_a_test = first.evaluation / tested
    if len(tasks) > 1 and len(tasks[1].test):  # one that repeats classes brings no test images
        of_a_test = max(0.0, second.evaluation - first.evaluation) / len(tasks[1].test)
    return sum(first.evaluation + of_a_test * (count - tested) for count in rows)


def _sum_of_line(first: float, second: float, count: int) -> float:
    """Return the sum of ``count`` numbers, of which the first two are given; from then on none falls.

    >>> _sum_of_line(1, 3, 4), _sum_of_line(3, 1, 4)
    (16.0, 6.0)
    """
    total = float(first)
    value = float(second)
    for _ in range(count - 1):
        total += value
        value += max(0.0, second - first)
    return total
