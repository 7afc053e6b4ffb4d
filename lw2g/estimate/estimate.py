"""The cost of a run, and the data and weights it lacks, without writing it: ``lw2g run --dry-run``.

The code of a run (:mod:`lw2g.tasks.learner`) learns the first two tasks with a few steps a phase, and with
as few images as the machine has time for. The cost of work on images is scaled to the full number; later
tasks lie on the line through the two. That is right to about 50 %.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from lw2g.base.boundary import guarded
from lw2g.base.checks import stream_of
from lw2g.base.ranks import on_its_device
from lw2g.config.model import ExperimentConfig, is_evaluated
from lw2g.devices.threads import suited_threads
from lw2g.errors import ConfigError, DataError
from lw2g.estimate.rehearsal import Rehearsal, TaskCost
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.growth import CandidateEvidence, Evidence, Grow
from lw2g.interfaces.stream import Task
from lw2g.network import without_network
from lw2g.registry.catalogue import Catalogue
from lw2g.tasks.data import RunData
from lw2g.tasks.parts import RunParts
from lw2g.tasks.session import open_session

__all__ = ["PARTS", "Estimate", "Range", "estimate", "missing_parts"]

PARTS = ("data", "evidence", "training", "spaces", "evaluation", "checkpoints")
_NOISE = 1.15
"""Below this ratio two measurements of the same work are taken as equal."""
_NUMBER = 4
"""Bytes of a parameter."""
_ROW = 24
"""Bytes of a test sample in a file of predictions: six columns of int32."""


@attrs.frozen
class Range:
    """A range of a quantity, in its unit."""

    least: float
    most: float

    @classmethod
    def between(cls, one: float, other: float) -> Range:
        """Return the range between two values."""
        return cls(float(min(one, other)), float(max(one, other)))

    def times(self, count: int) -> Range:
        """Return the range of the quantity times a number."""
        return Range(count * self.least, count * self.most)


@attrs.frozen(kw_only=True)
class Estimate:
    """The cost of a run on this machine.

    A range covers the decisions of a policy that reads evidence, from one set in all to one per task.

    Attributes:
        seconds: Of the run.
        parts: The same by part: data (opened and checked), evidence, training, spaces, evaluation,
            checkpoints.
        memory: Peak bytes of the process.
        device_memory: Peak bytes of tensors on an accelerator, None without one.
        disk: Bytes of the run's directory at its end.
        trained: Parameters that a task trains.
        stored: Parameters of all sets, heads and what else the run leaves behind.
        flops: Floating point operations per image, as in the record.
        sets: Number of parameter sets.
        tasks: Number of tasks.
        images: Training and test images of the stream.
        device: Where it was measured.
        runs: Number of runs, one after the other, that time and disk cover.
    """

    seconds: Range
    parts: Mapping[str, Range]
    memory: float
    device_memory: float | None
    disk: Range
    trained: float
    stored: Range
    flops: Mapping[str, float | None]
    sets: Range
    tasks: int
    images: tuple[int, int]
    device: str
    runs: int = 1

    def times(self, runs: int) -> Estimate:
        """Return the cost of several runs that differ only in seed."""
        return attrs.evolve(
            self,
            seconds=self.seconds.times(runs),
            parts={part: seconds.times(runs) for part, seconds in self.parts.items()},
            disk=self.disk.times(runs),
            runs=self.runs * runs,
        )

    def as_mapping(self) -> dict[str, Any]:
        """Return a JSON-able mapping; a range is ``{least, most}``."""
        return attrs.asdict(self)


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
            # a benchmark of a folder that nobody has named lacks its data; anything else is a mistake
            names_no_folder = getattr(config.benchmark.config, "root", "") is None
            if not names_no_folder:
                raise
            lines.append(str(error))
        try:
            backbone.build(chosen.config, chosen.weights, chosen.image_size)
        except DataError as error:
            lines.append(str(error))
    return lines


def estimate(config: ExperimentConfig, catalogue: Catalogue, *, tasks: int | None = None) -> Estimate:
    """Return the cost of an experiment whose data and weights are on this machine.

    It writes only checkpoints, to a temporary folder, to time them.

    Args:
        config: The experiment.
        catalogue: Where its components come from.
        tasks: After how many tasks it stops; None for all.

    Raises:
        ConfigError: It cannot be built as configured, or has fewer tasks.
        DataError: Data or weights are missing.
        ComponentError: A component raised an error.
    """
    on_its_device(config, config.run.devices)  # a run would refuse it, too; measured on one
    with guarded(catalogue, config), without_network(), tempfile.TemporaryDirectory(prefix="lw2g-") as folder:
        began = time.perf_counter()
        session = open_session(config, catalogue)
        opening = time.perf_counter() - began
        goal = session.parts.require_goal(0, tasks)
        reads = session.components.policy.reads(config.policy.config)
        plans = _plans(session.parts, goal, reads=bool(reads))
        # on as many threads as the run will have
        with suited_threads(session.parts.backbone, session.parts.engine.device):
            rehearsal = Rehearsal(session, Path(folder), plans[0])
            first = rehearsal.measure(0)
            second = first
            if goal > 1:
                second = rehearsal.measure(1)
    return _continued(session.parts, session.data, plans, first, second, opening)


def _plans(parts: RunParts, tasks: int, *, reads: bool) -> list[tuple[int, ...]]:
    """Return the possible plans (the set of each task): one, or the two that bound all others.

    The plan with the most sets comes first; it is measured.

    Args:
        parts: The run.
        tasks: After how many tasks it stops.
        reads: Whether the policy reads measures, so that nobody knows what it decides.
    """
    shared = (0,) * tasks
    if parts.growth.fixed or (reads and tasks == 1):
        return [shared]
    if reads:
        return [tuple(range(tasks)), shared]
    # a policy that reads no evidence is asked, with the draws that it will have in the run
    plan: list[int] = []
    for task in range(tasks):
        live = tuple(CandidateEvidence(set=known) for known in sorted(set(plan)))
        generator = np.random.default_rng(derive_seed(parts.config.run.seed, "task", task, "policy"))
        decision = parts.growth.policy.decide(Evidence(task=task, candidates=live), generator)
        if isinstance(decision, Grow):
            plan.append(len(live))
        else:
            plan.append(decision.set)
    return [tuple(plan)]


@attrs.frozen(kw_only=True)
class _Priced:
    """The cost of a run under one plan: seconds by part, bytes, numbers of parameters and of sets."""

    parts: Mapping[str, float]
    disk: float
    stored: float
    sets: int


def _continued(
    run: RunParts,
    data: RunData,
    plans: Sequence[tuple[int, ...]],
    first: TaskCost,
    second: TaskCost,
    opening: float,
) -> Estimate:
    """Return the cost of a run from its first two tasks, measured under the first plan.

    Args:
        run: What learns.
        data: What it learns from.
        plans: What :func:`_plans` returned.
        first: The cost of the first task.
        second: That of the second; the first again where there is no second.
        opening: Seconds of opening the session.
    """
    tasks = data.stream.tasks[: len(plans[0])]
    measured = _priced(run, data, tasks, plans[0], first, second)
    other = measured
    if len(plans) > 1:
        # a task that reuses a set adds none, and its evaluation computes all images again
        set_size = second.stored - first.stored
        tests = len(tasks[0].test)
        reusing = attrs.evolve(
            second,
            stored=first.stored,
            disk=second.disk - _NUMBER * set_size,
            evaluation=first.evaluation * (tests + len(tasks[1].test)) / tests,
        )
        other = _priced(run, data, tasks, plans[1], first, reusing)
    parts = {"data": Range(opening, opening)}
    for part, seconds in measured.parts.items():
        parts[part] = Range.between(seconds, other.parts[part])
    # what comes with classes lies on the run's device
    seen = run.infos[min(2, len(tasks)) - 1].seen
    more = run.bytes_of(run.infos[len(tasks) - 1].seen) - run.bytes_of(seen)
    memory = max(first.memory, second.memory)
    device_memory = None
    if first.device_memory is None or second.device_memory is None:
        memory += more
    else:
        device_memory = max(first.device_memory, second.device_memory) + more
    in_all = (sum(measured.parts.values()), sum(other.parts.values()))
    return Estimate(
        seconds=Range.between(opening + in_all[0], opening + in_all[1]),
        parts=parts,
        memory=memory,
        device_memory=device_memory,
        disk=Range.between(measured.disk, other.disk),
        trained=max(first.trained, second.trained),
        stored=Range.between(measured.stored, other.stored),
        flops=first.flops,
        sets=Range.between(measured.sets, other.sets),
        tasks=len(tasks),
        images=(sum(len(task.train) for task in tasks), sum(len(task.test) for task in tasks)),
        device=run.engine.device_name or str(run.engine.device),
    )


def _priced(
    run: RunParts,
    data: RunData,
    tasks: Sequence[Task],
    plan: Sequence[int],
    first: TaskCost,
    second: TaskCost,
) -> _Priced:
    """Return the cost of all tasks under a plan, on the lines through the first two tasks."""
    count = len(tasks)
    tested = len(tasks[0].test)
    pace = first.training / len(tasks[0].train)
    later_pace = pace
    of_a_test = first.evaluation / tested
    if count > 1:
        later_pace = second.training / len(tasks[1].train)
        of_a_test = max(0.0, second.evaluation - first.evaluation) / len(tasks[1].test)
    # a slope between two measurements of the same work would be multiplied by the number of tasks
    slope = 0.0
    if later_pace > _NOISE * pace:
        slope = later_pace - pace
    of_a_set = max(0.0, second.evidence - first.evidence)
    evidence = first.evidence
    training = first.training
    for index, task in enumerate(tasks[1:]):
        evidence += first.evidence + of_a_set * len(set(plan[: index + 1]))
        training += len(task.train) * (later_pace + slope * index)
    evaluation = 0.0
    rows = 0
    seen = 0
    for index, task in enumerate(tasks):
        seen += len(task.test)
        if is_evaluated(index, count - 1, run.config.run.evaluate):
            rows += seen
            evaluation += first.evaluation + of_a_test * (seen - tested)
    names = len(json.dumps(list(data.evaluator.ids)))
    return _Priced(
        parts={
            "evidence": evidence,
            "training": training,
            "spaces": first.spaces + second.spaces * (count - 1),
            "evaluation": evaluation,
            "checkpoints": _sum_of_line(first.checkpoints, second.checkpoints, count),
        },
        disk=names + _ROW * rows + _sum_of_line(first.disk, second.disk, count),
        stored=first.stored + max(0.0, second.stored - first.stored) * (count - 1),
        sets=len(set(plan)),
    )


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
