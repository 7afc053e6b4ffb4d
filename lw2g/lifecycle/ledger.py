"""The ledger: the results of a run so far. Every checkpoint holds it, and it becomes the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, compress
from typing import Any

import attrs
from torch import Tensor, nn

from lw2g import __version__
from lw2g.config.resolve import Resolved
from lw2g.config.structure import unstructure
from lw2g.config.toml import to_mapping
from lw2g.devices.engine import environment
from lw2g.errors import DataError
from lw2g.evaluation.computed import compute_metrics, describe_metrics, inputs_of, right_by_class
from lw2g.evaluation.matrix import GrowingMatrix
from lw2g.files.contents import prediction_name, record_hash
from lw2g.files.predictions import Predictions
from lw2g.files.protocol import protocol_keys
from lw2g.files.sealed import Lines
from lw2g.interfaces.classes import ClassMap
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.growth import CandidateEvidence, Decision, Evidence, GrowthPolicy, Limiting, Merge
from lw2g.lifecycle.deviations import list_deviations
from lw2g.metrics import adjusted_rand_index
from lw2g.models.expert import expert_of
from lw2g.tasks.data import RunData
from lw2g.tasks.parts import RunParts
from lw2g.tasks.session import Session
from lw2g.tasks.state import fingerprints, kept_numbers
from lw2g.vit.products import products_of

__all__ = ["Ledger", "build_record"]


_CHOICES = 10
"""Number of first choices that coverage is noted for."""


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
        entry: dict[str, Any] = {
            "task": task,
            "candidates": [
                candidate.as_mapping() for candidate in evidence.candidates if _has_measurements(candidate)
            ],
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
        self.decisions.append(entry)
        return entry

    @classmethod
    def restored(cls, kept: Mapping[str, Any]) -> Ledger:
        """Return the ledger of a checkpoint.

        Raises:
            DataError: It is of an older lw2g.
        """
        if kept.keys() != Ledger().as_mapping().keys():
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
            ranks = range(1, 1 + min(len(set(self.task_to_set)), _CHOICES))
            self.coverage.append([_mean_of_known(predictions.coverage(sets) or []) for sets in ranks])
        self.right.append(right_by_class(predictions.true, predictions.predicted, classes))
        self.drift.append(drift)
        self._note_moved(session.data.evaluator.moved)
        self._written.format_new_entries(self)
        inputs = inputs_of(
            {field.name: getattr(predictions, field.name) for field in attrs.fields(Predictions)},
            self._written.accuracy.values,
            self._written.retrieval.values if self.retrieval else None,
            self.task_to_set if session.parts.pool.size else None,
            session.data.stream.planted_groups,
            classes=classes,
            domains=domains,
            right=self.right,
        )
        self.metrics.append(compute_metrics(session.components.metrics, inputs, warn))
        self.definitions |= describe_metrics(session.components.metrics)
        return accuracies, retrievals

    def pass_over(self, session: Session) -> None:
        """Note a task that no evaluation follows."""
        task = len(self.accuracy)
        self.accuracy += _unmeasured([task])
        if self.retrieval:
            self.retrieval += _unmeasured([task])
        self.right.append([])
        self.predictions.append(None)
        self.drift.append([None] * task)
        self._note_moved(session.data.evaluator.moved)
        self._written.format_new_entries(self)
        self.metrics.append({entry.component.name: None for entry in session.components.metrics})
        self.definitions |= describe_metrics(session.components.metrics)

    def _note_moved(self, moved: Sequence[bool]) -> None:
        """Note for which tasks the features of their own images may have changed since their end."""
        before = [*self.stale[-1], False] if self.stale else []
        # once stale, always stale: later statistics do not come back to images that are gone
        self.stale.append([old or now for old, now in zip(before, moved, strict=True)])

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


def build_record(
    resolved: Resolved, session: Session, ledger: Ledger, base: Mapping[str, Tensor] | None = None
) -> dict[str, Any]:
    """Return the record of a run, finished or not; ``base`` has the tensors of the last checkpoint."""
    parts = session.parts
    data = session.data
    stream = data.stream
    tables = ledger.tables()
    domains = [info.domain for info in parts.infos]
    planted = stream.planted_groups
    agreement = None
    if planted is not None and parts.pool.size:
        agreement = _agreement(ledger.task_to_set[: len(ledger.accuracy)], planted)
    training = ledger.seconds.get("training", 0.0)
    parameters = _parameters(parts)
    record = {
        "lw2g_version": __version__,
        "protocol": parts.config.run.protocol,
        "protocol_changes": resolved.protocol_changes,
        "config": to_mapping(parts.config),
        "seed": parts.config.run.seed,
        "tasks": len(stream.tasks),
        "environment": environment(parts.engine)
        | {
            "attention": parts.backbone.attention,
            "products": products_of(parts.backbone.model),
            "graphs": str(parts.backbone.graphs or "none"),
        },
        "precision": ledger.precision,
        "fingerprints": fingerprints(session),
        "sources": _sources(data),
        "shared_images": None if data.shared is None else data.shared.as_mapping(),
        "origin": ledger.origin,
        "backbone": attrs.asdict(parts.backbone.fingerprint),
        "class_order": list(stream.class_order),
        "class_names": list(stream.target_names),
        "task_classes": [list(info.targets) for info in parts.infos],
        "domains": domains if any(domains) else None,
        "accuracy_matrix": tables["accuracy_matrix"],
        "retrieval_matrix": tables["retrieval_matrix"],
        "decisions": tables["decisions"],
        "task_to_set": list(ledger.task_to_set),
        "metrics": ledger.metrics[-1] if ledger.metrics else {},
        "metric_definitions": ledger.definitions,
        "planted_groups": list(planted) if planted is not None else None,
        "adjusted_rand_index": agreement,
        "feature_drift": tables["feature_drift"],
        "stale_classes": _stale(parts.infos, ledger),
        "routing": _routing(parts, ledger),
        "storage": {
            # in units of the backbone's width, whatever the form of a set: methods compare by it
            "prompt_vectors": _vectors(parts),
            "basis_vectors": parts.memory.basis_vectors
            + sum(constraint.basis_vectors for constraint in parts.constraints.values()),
            "parameters": parameters,
            "statistics": kept_numbers(session, base) - parameters,
        },
        "flops": {
            "training_per_image": ledger.flops.get("training_per_image"),
            "inference_per_image": ledger.flops.get("inference_per_image"),
        }
        | {name: value for name, value in ledger.flops.items() if name == "expert_per_image"},
        "seconds": {
            part: round(ledger.seconds.get(part, 0.0), 3)
            for part in ("evidence", "training", "subspace", "evaluation", "total")
        }
        | {"per_test_image": round(data.evaluator.seconds_per_image, 6)},
        "images_per_second": round(ledger.images / training, 1) if ledger.images and training else None,
        "findings": dict(parts.baseline.findings()),
        "deviations": list_deviations(
            resolved, parts, session.components, stream.deviations, ledger.task_to_set
        ),
        "files": ledger.checksums(),
    }
    record |= _expert(parts, ledger)
    # the protocol is a hash over other entries of the record, and the record's hash one over all of them
    record |= protocol_keys(record, data.noted_facts) | _next_domain(ledger, parts.infos)
    return record | {"record_hash": record_hash(record)}


def _expert(parts: RunParts, ledger: Ledger) -> dict[str, Any]:
    """Return what a frozen expert costs and knows; nothing without one."""
    expert = expert_of(parts.baseline)
    if expert is None:
        return {}
    own = ledger.flops.get("expert_per_image")
    return {
        "expert": {
            "kind": "frozen",
            "forwards_per_image": None if own is None else int(own > 0),
            "numbers": expert.lda.mean.numel() + expert.lda.scatter.numel(),
            "temperature": expert.warmth,
        }
    }


def _next_domain(ledger: Ledger, infos: Sequence[TaskInfo]) -> dict[str, Any]:
    """Return the accuracy on each task before it is learned, the mean of those that are known, and chance.

    Forward transfer would subtract what a model of random weights gets (Lopez-Paz & Ranzato, 2017). Chance is
    what a guess among the classes gets that were known by then: a floor, and no substitute for that model.
    """
    if not ledger.ahead:
        return {}
    by_task = [None, *ledger.ahead[:-1]]
    known = {task: share for task, share in enumerate(by_task) if share is not None}
    mean = None
    chance = None
    if known:
        mean = sum(known.values()) / len(known)
        chance = sum(100 / _num_known(infos[:task]) for task in known) / len(known)
    return {"next_domain": {"by_task": by_task, "mean": mean, "chance": chance}}


def _num_known(infos: Sequence[TaskInfo]) -> int:
    """Return the number of distinct classes of some tasks."""
    return len(ClassMap.of(infos).known)


def _stale(infos: Sequence[TaskInfo], ledger: Ledger) -> dict[str, Any]:
    """Return the share of the seen classes with stale statistics, after each task and at the end."""
    sizes = [len(info.classes) for info in infos[: len(ledger.stale)]]
    shares = [
        sum(compress(sizes, flags)) / seen
        for flags, seen in zip(ledger.stale, accumulate(sizes), strict=True)
    ]
    return {"by_task": shares, "last": shares[-1] if shares else None}


def _routing(parts: RunParts, ledger: Ledger) -> dict[str, Any] | None:
    """Return how test images get their sets; None where one network answers for all of them."""
    if not ledger.coverage and not parts.baseline.scope.each:
        return None
    mixer = parts.mixer
    return {
        "passes_per_image": parts.passes(len(parts.pool)),
        "coverage": ledger.coverage[-1] if ledger.coverage else None,
        "constants": None if mixer is None else mixer.named_constants(),
    }


def _sources(data: RunData) -> list[dict[str, Any]]:
    """Return where the classes come from: one entry per benchmark, the configuration's first."""
    tasks = data.stream.tasks
    return [
        {
            "benchmark": {"name": source.benchmark.name, **unstructure(source.benchmark.config)},
            "fingerprint": source.own,
            "first_task": source.first,
            "tasks": end - source.first,
            "first_class": tasks[source.first].classes[0],
            "classes": sum(len(task.classes) for task in tasks[source.first : end]),
        }
        for source, end in zip(data.sources, data.ends, strict=True)
    ]


def _agreement(sets: list[int], planted: tuple[int, ...]) -> float | None:
    return adjusted_rand_index(dict(enumerate(sets)), dict(enumerate(planted[: len(sets)])))


def _vectors(parts: RunParts) -> float:
    """Return the number of vectors of the backbone's width in the live sets."""
    vectors = parts.pool.size / parts.backbone.dim
    return int(vectors) if vectors.is_integer() else vectors


def _parameters(parts: RunParts) -> int:
    modules: list[nn.Module] = [parts.baseline]
    if parts.retrieval is not None:
        modules.append(parts.retrieval)
    count = parts.pool.size
    for module in modules:
        count += sum(parameter.numel() for parameter in module.parameters())
    return count
