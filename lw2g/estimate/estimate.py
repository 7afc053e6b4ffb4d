"""The cost of a run, and the data and weights it lacks, without writing it: ``lw2g run --dry-run``.

The code of a run (:mod:`lw2g.tasks.learner`) learns the first two tasks, with a few steps a phase and
with as few images as the machine has time for. The cost of work on images is scaled to the full number;
later tasks are extrapolated on the line through the two.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from lw2g.base.boundary import guarded
from lw2g.base.ranks import on_its_device
from lw2g.config.model import ExperimentConfig
from lw2g.errors import ConfigError, DataError
from lw2g.estimate.rehearsal import Rehearsal, TaskCost
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.growth import CandidateEvidence, Evidence, Grow
from lw2g.interfaces.stream import Task
from lw2g.registry.catalogue import Catalogue
from lw2g.tasks.data import RunData
from lw2g.tasks.parts import RunParts
from lw2g.tasks.session import open_session
from lw2g.vit.offline import without_network

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
    def over(cls, values: Iterable[float]) -> Range:
        """Return the range of some values."""
        known = [float(value) for value in values]
        return cls(min(known), max(known))

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
    chosen, lines = config.backbone, list[str]()
    benchmark, backbone = (
        catalogue.get("benchmark", config.benchmark.name),
        catalogue.get("backbone", chosen.name),
    )
    with guarded(catalogue, config), without_network():
        try:
            benchmark.build(config.benchmark.config).stream()
        except DataError as error:
            lines.append(str(error))
        except ConfigError as error:
            if getattr(config.benchmark.config, "root", "") is not None:
                raise
            lines.append(str(error))  # the benchmark does not declare its data
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
        rehearsal = Rehearsal(session, Path(folder), plans[0])
        both = [rehearsal.measure(index) for index in range(min(2, goal))]
    return _continued(session.parts, session.data, plans, both, opening)


def _plans(parts: RunParts, tasks: int, *, reads: bool) -> list[tuple[int, ...]]:
    """Return the possible plans (the set of each task): one, or the two that bound all others.

    The plan with the most sets comes first; it is measured.

    Args:
        parts: The run.
        tasks: After how many tasks it stops.
        reads: Whether the policy reads measures, so that nobody knows what it decides.
    """
    shared, own = (0,) * tasks, tuple(range(tasks))
    if parts.growth.fixed:
        return [shared]
    if reads:
        return [own, shared] if tasks > 1 else [shared]
    plan, seed = list[int](), parts.config.run.seed
    for task in range(tasks):
        live = tuple(CandidateEvidence(set=known) for known in sorted(set(plan)))
        generator = np.random.default_rng(derive_seed(seed, "task", task, "policy"))
        decision = parts.growth.policy.decide(Evidence(task=task, candidates=live), generator)
        plan.append(len(live) if isinstance(decision, Grow) else decision.set)
    return [tuple(plan)]


def _continued(
    parts: RunParts,
    data: RunData,
    plans: Sequence[tuple[int, ...]],
    both: Sequence[TaskCost],
    opening: float,
) -> Estimate:
    """Return the cost of a run from its first one or two tasks, measured under the first plan."""
    tasks = data.stream.tasks[: len(plans[0])]
    sets = both[-1].stored - both[0].stored
    # a task that reuses a set adds none
    shared = attrs.evolve(both[-1], stored=both[0].stored, disk=both[-1].disk - _NUMBER * sets)
    grown = [both, *([both[0], shared] for _ in plans[1:])]
    seconds = [{"data": opening, **_seconds(tasks, plan, both, plan is plans[0])} for plan in plans]
    devices = [task.device_memory for task in both if task.device_memory is not None]
    seen = [parts.infos[count - 1].seen for count in (len(both), len(tasks))]
    # what comes with classes lies on the run's device
    more = parts.bytes_of(seen[1]) - parts.bytes_of(seen[0])
    tests = [len(task.test) for task in tasks]
    disk = len(json.dumps(list(data.evaluator.ids))) + _ROW * sum(itertools.accumulate(tests))
    return Estimate(
        seconds=Range.over(sum(line.values()) for line in seconds),
        parts={part: Range.over(line[part] for line in seconds) for part in PARTS},
        memory=max(task.memory for task in both) + (0 if devices else more),
        device_memory=max(devices) + more if devices else None,
        disk=Range.over(disk + _sum_of_line([task.disk for task in some], len(tasks)) for some in grown),
        trained=max(task.trained for task in both),
        stored=Range.over(_end_of_line([task.stored for task in some], len(tasks)) for some in grown),
        flops=both[0].flops,
        sets=Range.over(len(set(plan)) for plan in plans),
        tasks=len(tasks),
        images=(sum(len(task.train) for task in tasks), sum(tests)),
        device=parts.engine.device_name or str(parts.engine.device),
    )


def _seconds(
    tasks: Sequence[Task], plan: Sequence[int], both: Sequence[TaskCost], measured: bool
) -> dict[str, float]:
    """Return the seconds of all tasks by part, under the plan that was measured or one of fewer sets."""
    first, second = both[0], both[-1]
    before = [len(set(plan[:task])) for task in range(len(plan))]
    sizes = [len(task.train) for task in tasks]
    paces = [task.training / size for task, size in zip(both, sizes, strict=False)]
    growth = max(0.0, paces[-1] - paces[0]) if paces[-1] > _NOISE * paces[0] else 0.0
    later = paces[-1] if growth or paces[0] > _NOISE * paces[-1] else statistics.mean(paces)
    tests = list(itertools.accumulate(len(task.test) for task in tasks))
    more = first.evaluation / tests[0]  # where all tasks share a set, every evaluation computes all images
    if measured and len(tests) > 1:
        more = max(0.0, second.evaluation - first.evaluation) / (tests[1] - tests[0])
    of_a_set = max(0.0, second.evidence - first.evidence)
    return {
        "evidence": sum(first.evidence + of_a_set * sets for sets in before),
        "training": first.training
        + sum(size * (later + growth * task) for task, size in enumerate(sizes[1:])),
        "spaces": first.spaces + second.spaces * (len(plan) - 1),
        "evaluation": sum(first.evaluation + more * (seen - tests[0]) for seen in tests),
        "checkpoints": _sum_of_line([task.checkpoints for task in both], len(plan)),
    }


def _end_of_line(both: Sequence[float], count: int) -> float:
    """Return the last of ``count`` numbers on the line through the first two.

    >>> _end_of_line([1, 3], 4)
    7.0
    """
    return float(both[-1] + max(0.0, both[-1] - both[0]) * max(0, count - 2))


def _sum_of_line(both: Sequence[float], count: int) -> float:
    """Return the sum of ``count`` numbers on the line through the first two; the line never falls.

    >>> _sum_of_line([1, 3], 4)
    16.0
    """
    return sum((_end_of_line(both, task) for task in range(2, count + 1)), float(both[0]))
