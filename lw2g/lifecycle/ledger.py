"""The ledger: the results of a run so far. Every checkpoint holds it, and it becomes the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from lw2g.disk.contents import prediction_name
from lw2g.disk.predictions import Predictions
from lw2g.disk.sealed import Lines
from lw2g.errors import DataError
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.growth import CandidateEvidence, Decision, Evidence, GrowthPolicy, Limiting, Merge, Reuse
from lw2g.learning.computed import compute_metrics, describe_metrics, inputs_of, right_by_class
from lw2g.learning.matrix import GrowingMatrix
from lw2g.learning.session import Session
from lw2g.maths.metrics import CALIBRATION_BINS, calibration_error
from lw2g.model.predictor import Predictor

__all__ = ["Ledger"]


_CHOICES = 10
"""Number of first choices that coverage is noted for."""

_LATER = {"calibration"}
"""Entries that checkpoints of 0.2.0 lack; their defaults say what those runs have: none."""


class _Written:
    """The results of evaluated tasks as lines of the record; each line is formatted once."""

    def __init__(self, ledger: Ledger) -> None:
        self.accuracy = GrowingMatrix()
        self.retrieval = GrowingMatrix()
        self.decisions: list[str] = []
        self.drift: list[str] = []
        self.format_new_entries(ledger)

    def format_new_entries(self, ledger: Ledger) -> None:
        """Add the ledger's new entries."""
        for task in range(len(self.drift), len(ledger.drift)):
            self.accuracy.add(ledger.accuracy[task])
            self.decisions.append(json.dumps(ledger.decisions[task], allow_nan=False))
            self.drift.append(json.dumps(ledger.drift[task], allow_nan=False))
        for column in ledger.retrieval[len(self.retrieval.lines) :]:
            self.retrieval.add(column)


@attrs.define(kw_only=True)
class Ledger:
    """Mutable state of a run that is not a tensor; JSON-able throughout.

    Lists have an entry per task and only grow, so that a checkpoint stores their new entries alone. A task
    without an evaluation (``run.evaluate``) has nulls there, or an empty entry.

    Attributes:
        tasks: Each task that has begun, as in a model's manifest.
        task_to_set: The pool's map.
        accuracy: Per evaluation, the accuracy of each seen task in percent; None without test images.
        retrieval: The same for retrieved sets; empty where the baseline makes no hard choice.
        coverage: Per evaluation, the percentage (mean over tasks) of test samples whose own set is the first
            choice of retrieval, among the first two, and so on up to ten; empty where nothing is chosen.
        right: Per evaluation, how many test samples of each seen class are predicted rightly.
        ahead: Per evaluation, the accuracy on the next task before it is learned, in percent, None where it
            brings something unknown; empty where the run does not ask for it.
        metrics: Per evaluation, the values of all metrics by name.
        definitions: The definitions of plugins' metrics, by name.
        calibration: Of the last evaluation, the calibration error of its probabilities; None without any.
        drift: Per evaluation and old task, the mean relative change of its test features since the last
            evaluation (samples that kept their set); None where it is not known.
        stale: Per evaluation and old task, whether features of its own images may have changed since its end:
            then statistics of its classes describe features that no image has any more.
        decisions: The record's entries.
        predictions: SHA-256 of each evaluation's file; None for a task without one.
        files: SHA-256 of the files written once.
        seconds: Clocks by part.
        images: Training images stepped on so far.
        flops: Floating point operations per image.
        origin: The run that this one was forked from, and what was changed; None for a run of its own.
        precision: What was asked for, what is used, and why.
    """

    tasks: list[dict[str, Any]] = attrs.field(factory=list)
    task_to_set: list[int] = attrs.field(factory=list)
    accuracy: list[list[float | None]] = attrs.field(factory=list)
    retrieval: list[list[float | None]] = attrs.field(factory=list)
    coverage: list[list[float]] = attrs.field(factory=list)
    right: list[list[int]] = attrs.field(factory=list)
    ahead: list[float | None] = attrs.field(factory=list)
    metrics: list[dict[str, float | None]] = attrs.field(factory=list)
    definitions: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    calibration: dict[str, Any] | None = None
    drift: list[list[float | None]] = attrs.field(factory=list)
    stale: list[list[bool]] = attrs.field(factory=list)
    decisions: list[dict[str, Any]] = attrs.field(factory=list)
    predictions: list[str | None] = attrs.field(factory=list)
    files: dict[str, str] = attrs.field(factory=dict)
    seconds: dict[str, float] = attrs.field(factory=dict)
    images: int = 0
    flops: dict[str, float | None] = attrs.field(factory=dict)
    origin: dict[str, Any] | None = None
    precision: dict[str, str] = attrs.field(factory=dict)
    _written: _Written = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._written = _Written(self)

    def decide(
        self, task: int, evidence: Evidence, decision: Decision, set_id: int, policy: GrowthPolicy
    ) -> dict[str, Any]:
        """Note a decision of a policy and the set that the task got; return its entry."""
        candidates = []
        for candidate in evidence.candidates:
            if _has_measurements(candidate):
                candidates.append(candidate.as_mapping())
        entry: dict[str, Any] = {
            "task": task,
            "candidates": candidates,
            "decision": type(decision).__name__.lower(),
            "set": set_id,
            "margin": policy.margin,
            "burden": policy.burden,
            "confidence": decision.confidence,
            "limits": _limits(policy, evidence),
            "ranks_after": {},
        }
        if isinstance(decision, Merge):
            entry["weight"] = decision.weight
        if isinstance(decision, Reuse) and decision.held:
            entry["held"] = True
        self.decisions.append(entry)
        return entry

    @classmethod
    def restored(cls, kept: Mapping[str, Any]) -> Ledger:
        """Return the ledger of a checkpoint.

        Raises:
            DataError: It is of an older lw2g.
        """
        fields = Ledger().as_mapping().keys()
        if not fields - _LATER <= kept.keys() <= fields:
            raise DataError(
                "the checkpoints are of another lw2g", "run it anew: lw2g run RUN/config.toml --out NEW"
            )
        return cls(**kept)

    def evaluate(
        self,
        session: Session,
        predictions: Predictions,
        drift: list[float | None],
        warn: Callable[[str], None],
    ) -> tuple[list[float | None], list[float | None] | None]:
        """Note an evaluation; return the accuracies and retrieval accuracies by task.

        Args:
            session: What was evaluated.
            predictions: Of all test samples of the seen tasks.
            drift: An entry of the attribute.
            warn: Called with a line for each metric that cannot be computed.
        """
        infos = session.parts.infos[: len(self.accuracy) + 1]
        classes = [info.targets for info in infos]
        domains = [info.domain for info in infos]
        accuracies = _of_all(infos, predictions.accuracies())
        retrievals = predictions.retrievals(self.task_to_set, classes, domains)
        self.accuracy.append(accuracies)
        if retrievals is not None:
            retrievals = _of_all(infos, retrievals)
            # that sets are chosen is known since the first evaluation only
            self.retrieval += _unmeasured(range(len(self.retrieval), len(infos) - 1))
            self.retrieval.append(retrievals)
            coverage = []
            for choices in range(1, 1 + min(len(set(self.task_to_set)), _CHOICES)):
                coverage.append(_mean_of_known(predictions.coverage(choices) or []))
            self.coverage.append(coverage)
        self.right.append(right_by_class(predictions.true, predictions.predicted, classes))
        self.drift.append(drift)
        self._note_moved(session.data.evaluator.moved)
        # before the metrics, which are computed from the formatted matrices
        self._written.format_new_entries(self)
        inputs = inputs_of(
            {field.name: getattr(predictions, field.name) for field in attrs.fields(Predictions)},
            self._written.accuracy.values,
            self._written.retrieval.values if self.retrieval else None,
            # sets of a method on frozen features hold nothing, and are nothing that was chosen
            self.task_to_set if session.parts.pool.size else None,
            session.data.stream.planted_groups,
            classes=classes,
            domains=domains,
            right=self.right,
        )
        self.metrics.append(compute_metrics(session.components.metrics, inputs, warn))
        self.definitions |= describe_metrics(session.components.metrics)
        self.calibration = None
        if predictions.probability is not None:
            temperature = Predictor.of(session.parts, len(infos) - 1).temperature
            error = calibration_error(predictions.probability, predictions.predicted == predictions.true)
            self.calibration = {"ece": error, "bins": CALIBRATION_BINS, "temperature": temperature}
        return accuracies, retrievals

    def pass_over(self, session: Session) -> None:
        """Note a task that no evaluation follows."""
        self.calibration = None
        self._note_unmeasured(session)
        self._note_moved(session.data.evaluator.moved)

    def take_back(self, session: Session) -> None:
        """Note the last task as one that no evaluation follows, in place of its evaluation."""
        self.calibration = None
        for entries in (self.accuracy, self.right, self.predictions, self.drift, self.metrics):
            entries.pop()
        if self.retrieval:
            self.retrieval.pop()
            self.coverage.pop()
        if self.last_evaluated is None:
            # before the first evaluation nobody knows whether sets are chosen: see ``evaluate``
            self.retrieval.clear()
        self._written = _Written(self)  # formatted anew, without the lines of what was taken back
        self._note_unmeasured(session)

    def _note_unmeasured(self, session: Session) -> None:
        """Add the entries of a task after which nothing is tested: each list keeps one entry a task."""
        task = len(self.accuracy)
        self.accuracy += _unmeasured([task])
        if self.retrieval:
            self.retrieval += _unmeasured([task])
        self.right.append([])
        self.predictions.append(None)
        self.drift.append([None] * task)
        self._written.format_new_entries(self)
        self.metrics.append({entry.component.name: None for entry in session.components.metrics})
        self.definitions |= describe_metrics(session.components.metrics)

    def _note_moved(self, moved: Sequence[bool]) -> None:
        """Note for which tasks the features of their own images may have changed since their end."""
        before: list[bool] = []
        if self.stale:
            # and the task that was new then: nothing had made its statistics stale
            before = [*self.stale[-1], False]
        # once stale, always stale: later statistics do not come back to images that are gone
        self.stale.append([old or now for old, now in zip(before, moved, strict=True)])

    @property
    def last_evaluated(self) -> int | None:
        """The last task (from 0) that an evaluation followed; None without any."""
        for task in reversed(range(len(self.predictions))):
            if self.predictions[task] is not None:
                return task
        return None

    def as_mapping(self) -> dict[str, Any]:
        """Return the fields by name, as they are."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(Ledger) if field.init}

    def checksums(self) -> dict[str, str]:
        """Return the checksum of every file of the run by its name."""
        checksums = dict(self.files)
        for task, checksum in enumerate(self.predictions):
            if checksum is not None:
                checksums[prediction_name(task)] = checksum
        return checksums

    def tables(self) -> dict[str, Lines | None]:
        """Return the record's entries on tasks and evaluations, as lines that are formatted once."""
        written = self._written
        # the decision on a task under way may still change
        late = [json.dumps(entry, allow_nan=False) for entry in self.decisions[len(written.decisions) :]]
        return {
            "accuracy_matrix": Lines(written.accuracy.lines),
            "retrieval_matrix": Lines(written.retrieval.lines) if self.retrieval else None,
            "decisions": Lines([*written.decisions, *late]),
            "feature_drift": Lines(written.drift),
        }


def _mean_of_known(shares: Sequence[float | None]) -> float:
    """Return the mean over the tasks that have test images."""
    known = [share for share in shares if share is not None]
    return sum(known) / len(known)


def _of_all(infos: Sequence[TaskInfo], values: list[float | None]) -> list[float | None]:
    """Return values by task with None for the last tasks, if these have no test images."""
    return values + [None] * (len(infos) - len(values))


def _unmeasured(tasks: Iterable[int]) -> list[list[float | None]]:
    """Return the columns of a matrix after tasks (from 0) that no evaluation followed."""
    return [[None] * (task + 1) for task in tasks]


def _limits(policy: GrowthPolicy, evidence: Evidence) -> dict[str, dict[str, float]]:
    """Return the limit of each measure of each set, as in a record."""
    if not isinstance(policy, Limiting):
        return {}
    limits = {}
    for name, sets in policy.limits(evidence).items():
        limits[name] = {str(set_id): limit for set_id, limit in sets.items()}  # keys of JSON are text
    return limits


def _has_measurements(candidate: CandidateEvidence) -> bool:
    """Return whether anything is known of a set; the record leaves out the others."""
    return bool(candidate.measures) or bool(candidate.rank) or candidate.excluded is not None
