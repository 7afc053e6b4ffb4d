"""The ledger: what a run has found so far. It travels in every checkpoint and becomes the record."""

from __future__ import annotations

import json
from typing import Any

import attrs

from lw2g import __version__
from lw2g.config.resolve import Resolved
from lw2g.config.toml import to_mapping
from lw2g.interfaces.growth import Evidence
from lw2g.metrics import adjusted_rand_index
from lw2g.training.deviations import list_deviations
from lw2g.training.devices import environment
from lw2g.training.evaluation import Predictions
from lw2g.training.record import candidate_entry, run_metrics
from lw2g.training.session import Session

__all__ = ["Ledger", "build_record"]

Matrix = list[list[float | None]]


@attrs.define(kw_only=True)
class Ledger:
    """Mutable state of a run that is not a tensor; JSON-able throughout.

    Attributes:
        task_to_set: The pool's map.
        accuracy: ``A[i][t]`` in percent, None for ``i > t``.
        retrieval: The same for retrieved sets; empty where the baseline makes no hard choice.
        drift: Per evaluation and old task, the mean relative change of its test features since the last
            evaluation (samples that kept their set); None where it is not known.
        decisions: The record's entries.
        seconds: Clocks by part.
        images: Training images stepped on so far.
        flops: Floating point operations per image.
    """

    task_to_set: list[int] = attrs.field(factory=list)
    accuracy: Matrix = attrs.field(factory=list)
    retrieval: Matrix = attrs.field(factory=list)
    drift: list[list[float | None]] = attrs.field(factory=list)
    decisions: list[dict[str, Any]] = attrs.field(factory=list)
    seconds: dict[str, float] = attrs.field(factory=dict)
    images: int = 0
    flops: dict[str, float | None] = attrs.field(factory=dict)

    def decide(
        self, task: int, evidence: Evidence, *, grew: bool, set_id: int, margin: float
    ) -> dict[str, Any]:
        """Note a decision and return its entry."""
        entry = {
            "task": task,
            "candidates": [candidate_entry(candidate) for candidate in evidence.candidates],
            "decision": "grow" if grew else "reuse",
            "set": set_id,
            "margin": margin,
            "ranks_after": {},
        }
        self.decisions.append(entry)
        return entry

    def evaluate(self, predictions: Predictions) -> tuple[list[float], list[float] | None]:
        """Add a column to the matrices; return the accuracies and retrieval accuracies by task."""
        accuracies = predictions.accuracies()
        retrievals = predictions.retrievals(self.task_to_set)
        _add_column(self.accuracy, accuracies)
        if retrievals is not None:
            _add_column(self.retrieval, retrievals)
        return accuracies, retrievals


def _add_column(matrix: Matrix, column: list[float]) -> None:
    after = len(column) - 1
    while len(matrix) < len(column):
        matrix.append([None] * after)
    for row, value in zip(matrix, column, strict=True):
        row.append(value)


def build_record(resolved: Resolved, session: Session, ledger: Ledger) -> dict[str, Any]:
    """Return the record of a run, finished or not."""
    tasks = len(ledger.accuracy)
    samples = session.evaluator.sizes(tasks)
    has_sets = any(True for module in session.pool.sets for _ in module.parameters())
    sets = ledger.task_to_set[:tasks] if has_sets else None
    planted = session.stream.planted_groups
    training = ledger.seconds.get("training", 0.0)
    record = {
        "lw2g_version": __version__,
        "protocol": session.config.run.protocol,
        "protocol_changes": resolved.protocol_changes,
        "config": to_mapping(session.config),
        "seed": session.config.run.seed,
        "environment": environment(session.engine),
        "fingerprints": {
            "benchmark": session.stream.fingerprint,
            "backbone": session.backbone.fingerprint.sha256,
        },
        "backbone": attrs.asdict(session.backbone.fingerprint),
        "class_order": list(session.stream.class_order),
        "class_names": list(session.stream.class_names),
        "accuracy_matrix": ledger.accuracy,
        "retrieval_matrix": ledger.retrieval or None,
        "decisions": ledger.decisions,
        "task_to_set": list(ledger.task_to_set),
        "metrics": run_metrics(ledger.accuracy, ledger.retrieval or None, sets, samples),
        "planted_groups": list(planted) if planted is not None else None,
        "adjusted_rand_index": None if planted is None or sets is None else _agreement(sets, planted),
        "feature_drift": ledger.drift,
        "storage": {
            "prompt_vectors": _vectors(session),
            "basis_vectors": session.memory.basis_vectors
            + sum(constraint.basis_vectors for constraint in session.constraints.values()),
            "parameters": _parameters(session),
        },
        "flops": {
            "training_per_image": ledger.flops.get("training_per_image"),
            "inference_per_image": ledger.flops.get("inference_per_image"),
        },
        "seconds": {
            part: round(ledger.seconds.get(part, 0.0), 3)
            for part in ("evidence", "training", "subspace", "evaluation", "total")
        },
        "images_per_second": round(ledger.images / training, 1) if ledger.images and training else None,
        "deviations": list_deviations(resolved, session, ledger.task_to_set),
    }
    # What is returned equals what is written: lists, not tuples, and plain strings.
    plain: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False))
    return plain


def _agreement(sets: list[int], planted: tuple[int, ...]) -> float | None:
    return adjusted_rand_index(dict(enumerate(sets)), dict(enumerate(planted[: len(sets)])))


def _vectors(session: Session) -> float:
    """Return how many vectors of the backbone's width the live sets hold."""
    count = sum(parameter.numel() for module in session.pool.sets for parameter in module.parameters())
    vectors = count / session.backbone.dim
    return int(vectors) if vectors.is_integer() else vectors


def _parameters(session: Session) -> int:
    return sum(parameter.numel() for module in session.modules for parameter in module.parameters())
