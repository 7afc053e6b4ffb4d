"""What a run would cost, and what it lacks, before anything of it is written: ``lw2g run --dry-run``."""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import numpy as np
import torch

from lw2g.config.model import ExperimentConfig
from lw2g.config.toml import to_mapping
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.growth import CandidateEvidence, Evidence, Grow
from lw2g.registry.catalogue import Catalogue
from lw2g.training.boundary import guarded
from lw2g.training.costs.pricing import Model, Models
from lw2g.training.costs.rehearsal import Findings, Rehearsal
from lw2g.training.costs.stand_ins import Missing, stand_in_data
from lw2g.training.costs.thinning import PARTS, Measured
from lw2g.training.goal import require_goal
from lw2g.training.session import Session, open_session

__all__ = ["Estimate", "Estimator", "Missing", "Range", "estimate"]

Method = Literal["rehearsed", "counted"]
_PATIENCE = 0.1
"""Seconds that an image's forward may take for one run to be rehearsed: some thousand of them are."""
_ROW = 24
"""Bytes of a test sample in a file of predictions: six columns of int32."""


@attrs.frozen
class Range:
    """From the least to the most, in the unit of what it is of."""

    least: float
    most: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Range:
        """Return the range of some values."""
        return cls(float(min(values)), float(max(values)))

    def times(self, count: int) -> Range:
        """Return the range of so many of it."""
        return Range(count * self.least, count * self.most)


@attrs.frozen(kw_only=True)
class Estimate:
    """What a run would cost on this machine.

    Ranges are over what cannot be known beforehand: whether a policy that looks at evidence keeps one set or
    gives every task its own.

    Attributes:
        seconds: Of the run.
        parts: The same by part: data (opened and checked), evidence, training, spaces, evaluation,
            checkpoints.
        memory: Peak bytes of the process.
        device_memory: Peak bytes of tensors on an accelerator, None without one.
        disk: Bytes of the run's directory at its end.
        trained: Parameters that a task trains.
        stored: Parameters of all sets, heads and what else the run leaves behind.
        training_flops: Per training image and step, backward included; None where nothing is trained.
        inference_flops: Per test image.
        sets: Number of parameter sets.
        tasks: Number of tasks.
        images: Training and test images of the stream.
        device: Where it was measured.
        method: ``"rehearsed"``: a few steps of every kind were measured. ``"counted"``: where that would take
            long or not fit, passes through the backbone's blocks were counted and priced by what one block
            takes; the rest was measured. Either is within 30 % of the time, and 20 % of the memory, on a
            machine that does nothing else.
        runs: Over how many runs, one after the other, time and disk are.
        missing: What the run lacks; it was measured with stand-ins.
    """

    seconds: Range
    parts: Mapping[str, Range]
    memory: Range
    device_memory: Range | None
    disk: Range
    trained: Range
    stored: Range
    training_flops: float | None
    inference_flops: float | None
    sets: Range
    tasks: int
    images: tuple[int, int]
    device: str
    method: Method
    runs: int = 1
    missing: tuple[Missing, ...] = ()

    def times(self, runs: int) -> Estimate:
        """Return what so many runs cost that differ only in seed."""
        return attrs.evolve(
            self,
            seconds=self.seconds.times(runs),
            parts={part: seconds.times(runs) for part, seconds in self.parts.items()},
            disk=self.disk.times(runs),
            runs=self.runs * runs,
        )

    def as_mapping(self) -> dict[str, Any]:
        """Return all of it as JSON takes it; a range is ``{least, most}``."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class _Outline:
    """What is known of an experiment once it was opened.

    Attributes:
        config: As it is priced.
        model: Its backbone.
        catalogue: With that, and with noise for data that are missing.
        tasks: How many are to be learned.
    """

    config: ExperimentConfig
    model: Model
    catalogue: Catalogue
    missing: tuple[Missing, ...]
    tasks: int
    images: tuple[int, int]
    device: str
    fixed_disk: float


@attrs.frozen(kw_only=True)
class _Scenario:
    """What a run costs whose sets are decided."""

    tasks: Sequence[Measured]
    sets: int
    opening: float
    memory: float
    device_memory: float | None
    flops: Mapping[str, float | None]

    def seconds(self, part: str) -> float:
        """Return those of one part."""
        return (self.opening if part == "data" else 0.0) + sum(task.seconds[part] for task in self.tasks)


class Estimator:
    """Estimates experiments; what was measured for one serves all that differ only in seed and policy.

    The network is not used.

    Args:
        catalogue: Where components come from.
        cells: How many experiments are to be estimated: each is given its share of the patience, and what
            cannot be rehearsed in it is counted.
    """

    def __init__(self, catalogue: Catalogue, cells: int = 1) -> None:
        self._catalogue = catalogue
        self._models = Models(catalogue, _PATIENCE / cells)
        self._outlines: dict[str, _Outline] = {}
        self._opened: tuple[Session, float] | None = None
        self._known: dict[tuple[str, tuple[int, ...]], _Scenario] = {}
        self._shared: dict[Hashable, float] = {}
        self._latest: tuple[str, Findings] | None = None

    def __call__(
        self, config: ExperimentConfig, *, tasks: int | None = None, counted: bool = False
    ) -> Estimate:
        """Return what an experiment would cost.

        Nothing is written but checkpoints in a temporary folder, to see how long that takes.

        Args:
            config: The experiment.
            tasks: After how many tasks it stops; None for all.
            counted: Whether to count though a rehearsal would be quick.

        Raises:
            ConfigError: It cannot be built as configured, or has fewer tasks.
            DataError: Data or weights are missing, and there is nothing to measure in their place.
            ComponentError: A component raised an error.
        """
        with guarded(self._catalogue, config):
            try:
                return self._estimate(config, tasks, counted=counted)
            except torch.OutOfMemoryError:
                if counted:
                    raise
            return self._estimate(config, tasks, counted=True)

    def _estimate(self, config: ExperimentConfig, tasks: int | None, *, counted: bool) -> Estimate:
        key = f"{_key(config)} {tasks} {counted}"
        if key not in self._outlines:
            self._outlines[key] = self._open(config, tasks, self._models(config, counted=counted))
        outline = self._outlines[key]
        plans = self._plans(config, outline.tasks)
        return _combined(outline, [self._scenario(key, outline, plan) for plan in plans])

    def _open(self, config: ExperimentConfig, tasks: int | None, model: Model) -> _Outline:
        """Open an experiment once, with stand-ins for what is missing."""
        backbone = self._catalogue.get("backbone", config.backbone.name)
        catalogue = self._catalogue.with_component(model.component(backbone))
        config, missing = model.config(config), [model.missing] if model.missing else []
        try:
            self._opened = _opened(config, catalogue)
        except (ConfigError, DataError):
            found = stand_in_data(config, catalogue)
            if found is None:
                raise
            lacking, catalogue = found
            missing.insert(0, lacking)
            self._opened = _opened(config, catalogue)
        session = self._opened[0]
        goal = require_goal(session, 0, tasks)
        learned = session.stream.tasks[:goal]
        return _Outline(
            config=config,
            model=model,
            catalogue=catalogue,
            missing=tuple(missing),
            tasks=goal,
            images=(sum(len(task.train) for task in learned), sum(len(task.test) for task in learned)),
            device=session.engine.device_name or str(session.engine.device),
            fixed_disk=_fixed_disk(session, goal),
        )

    def _plans(self, config: ExperimentConfig, tasks: int) -> list[tuple[int, ...]]:
        """Return the set of each task as far as it is known: one plan, or the two that bound all others."""
        one, own = (0,) * tasks, tuple(range(tasks))
        if self._catalogue.get("baseline", config.baseline.name).growth == "fixed":
            return [one]
        component = self._catalogue.get("policy", config.policy.name)
        if component.reads(config.policy.config):
            return [one, own] if tasks > 1 else [one]
        policy, plan = component.build(config.policy.config), list[int]()
        for task in range(tasks):
            live = tuple(CandidateEvidence(set=known) for known in sorted(set(plan)))
            generator = np.random.default_rng(derive_seed(config.run.seed, "task", task, "policy"))
            decision = policy.decide(Evidence(task=task, candidates=live), generator)
            plan.append(len(live) if isinstance(decision, Grow) else decision.set)
        return [tuple(plan)]

    def _scenario(self, key: str, outline: _Outline, plan: tuple[int, ...]) -> _Scenario:
        if (key, plan) not in self._known:
            session, opening = self._opened or _opened(outline.config, outline.catalogue)
            self._opened = None  # a rehearsal leaves it in another state
            with tempfile.TemporaryDirectory(prefix="lw2g-") as folder:
                other = self._latest[1] if self._latest is not None and self._latest[0] == key else None
                rehearsal = Rehearsal(
                    session, plan, Path(folder), outline.model.tally, shared=self._shared, other=other
                )
                tasks = rehearsal.run()
            self._latest = key, rehearsal.findings
            self._known[key, plan] = _Scenario(
                tasks=tasks,
                sets=len(set(plan)),
                opening=opening + outline.model.seconds,
                memory=rehearsal.machine_bytes,
                device_memory=rehearsal.device_bytes,
                flops=rehearsal.flops,
            )
        return self._known[key, plan]


def estimate(config: ExperimentConfig, catalogue: Catalogue) -> Estimate:
    """Return what one experiment would cost; see :class:`Estimator`."""
    return Estimator(catalogue)(config)


def _opened(config: ExperimentConfig, catalogue: Catalogue) -> tuple[Session, float]:
    """Return a new session, and the seconds that opening it has taken."""
    began = time.perf_counter()
    session = open_session(config, catalogue)
    return session, time.perf_counter() - began


def _key(config: ExperimentConfig) -> str:
    """Return what decides the costs of a configuration whose sets are known: all but seed and policy."""
    told = to_mapping(config)
    for section in ("policy", "trackers"):
        told.pop(section, None)
    told["run"] = {name: value for name, value in told["run"].items() if name != "seed"}
    return json.dumps(told, sort_keys=True, default=str)


def _fixed_disk(session: Session, tasks: int) -> float:
    """Return the bytes of sample ids and of the predictions after so many tasks."""
    sizes = session.evaluator.sizes(tasks)
    return len(json.dumps(list(session.evaluator.ids))) + _ROW * sum(itertools.accumulate(sizes))


def _combined(outline: _Outline, found: Sequence[_Scenario]) -> Estimate:
    def over(value: Callable[[_Scenario], float]) -> Range:
        return Range.over([value(one) for one in found])

    on_device = any(one.device_memory is not None for one in found)
    return Estimate(
        seconds=over(lambda one: sum(one.seconds(part) for part in PARTS)),
        parts={part: Range.over([one.seconds(part) for one in found]) for part in PARTS},
        memory=over(lambda one: one.memory),
        device_memory=over(lambda one: one.device_memory or 0.0) if on_device else None,
        disk=over(lambda one: outline.fixed_disk + sum(task.checkpoint for task in one.tasks)),
        trained=over(lambda one: max(task.trained for task in one.tasks)),
        stored=over(lambda one: one.tasks[-1].stored),
        training_flops=found[-1].flops.get("training_per_image"),
        inference_flops=found[-1].flops.get("inference_per_image"),
        sets=over(lambda one: one.sets),
        tasks=outline.tasks,
        images=outline.images,
        device=outline.device,
        method="rehearsed" if outline.model.tally is None else "counted",
        missing=outline.missing,
    )
