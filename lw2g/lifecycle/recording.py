"""The record of a run, made of its configuration, its session and its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, compress
from typing import Any

import attrs
from torch import Tensor, nn

from lw2g import __version__
from lw2g.config.resolve import Resolved
from lw2g.config.structure import unstructure
from lw2g.config.toml import to_mapping
from lw2g.disk.contents import record_hash
from lw2g.disk.protocol import protocol_keys
from lw2g.interfaces.classes import ClassMap
from lw2g.interfaces.context import TaskInfo
from lw2g.learning.session import Session
from lw2g.learning.session_data import RunData
from lw2g.learning.session_parts import RunParts
from lw2g.learning.state import fingerprints, kept_numbers
from lw2g.lifecycle.ledger import Ledger
from lw2g.lifecycle.named_deviations import list_deviations
from lw2g.maths.metrics import adjusted_rand_index
from lw2g.model.frozen_expert import expert_of
from lw2g.pixels.shared import short_hashes
from lw2g.runtime.engine import environment
from lw2g.vit.products import products_of

__all__ = ["build_record"]


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
        # of finished tasks: the one under way may have its set already
        agreement = _agreement(ledger.task_to_set[: len(ledger.accuracy)], planted)
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
        },
        "precision": ledger.precision,
        "fingerprints": fingerprints(session),
        "sources": _sources(data),
        "shared_images": None if data.shared is None else data.shared.as_mapping(),
        "image_hashes": short_hashes([task.test for task in stream.tasks]),
        "origin": ledger.origin,
        # results compare where this is the same
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
        "storage": _storage(session, base),
        "flops": _flops(ledger),
        "seconds": _seconds(data, ledger),
        "images_per_second": _speed(ledger),
        "findings": dict(parts.baseline.findings()),
        "deviations": list_deviations(
            resolved, parts, session.components, stream.deviations, ledger.task_to_set
        ),
        "files": ledger.checksums(),
    }
    record |= _expert(parts, ledger)
    if ledger.calibration is not None:
        record["calibration"] = ledger.calibration
    # the protocol is a hash over other entries of the record, and the record's hash one over all of them
    record |= protocol_keys(record, data.noted_facts) | _next_domain(ledger, parts.infos)
    return record | {"record_hash": record_hash(record)}


def _storage(session: Session, base: Mapping[str, Tensor] | None) -> dict[str, float]:
    """Return how many vectors and numbers a run keeps besides its frozen backbone."""
    parts = session.parts
    basis_vectors = parts.memory.basis_vectors
    for constraint in parts.constraints.values():
        basis_vectors += constraint.basis_vectors
    parameters = _parameters(parts)
    return {
        # counted in units of the backbone's width, whatever the form of a set: methods compare by it
        "prompt_vectors": _vectors(parts),
        "basis_vectors": basis_vectors,
        "parameters": parameters,
        "statistics": kept_numbers(session, base) - parameters,  # all that is kept includes the parameters
    }


def _flops(ledger: Ledger) -> dict[str, float | None]:
    """Return the operations per image; those of an expert only where there is one."""
    flops = {
        "training_per_image": ledger.flops.get("training_per_image"),
        "inference_per_image": ledger.flops.get("inference_per_image"),
    }
    if "expert_per_image" in ledger.flops:
        flops["expert_per_image"] = ledger.flops["expert_per_image"]
    return flops


def _seconds(data: RunData, ledger: Ledger) -> dict[str, float]:
    """Return what each part of a run has taken, and an image of its last evaluation."""
    seconds = {}
    for part in ("evidence", "training", "subspace", "evaluation", "total"):
        seconds[part] = round(ledger.seconds.get(part, 0.0), 3)
    seconds["per_test_image"] = round(data.evaluator.seconds_per_image, 9)
    return seconds


def _speed(ledger: Ledger) -> float | None:
    """Return training images per second; None where nothing was trained by steps."""
    training = ledger.seconds.get("training", 0.0)
    if not ledger.images or not training:
        return None
    return round(ledger.images / training, 1)


def _expert(parts: RunParts, ledger: Ledger) -> dict[str, Any]:
    """Return what a frozen expert costs and knows; nothing without one."""
    expert = expert_of(parts.baseline)
    if expert is None:
        return {}
    expert_flops = ledger.flops.get("expert_per_image")
    forwards = None  # nobody has counted
    if expert_flops is not None:
        # the expert reads the query: where the run computes it anyway, no forward and 0 operations more
        forwards = int(expert_flops > 0)
    return {
        "expert": {
            "kind": "frozen" if expert.chosen is None else "auto",
            "forwards_per_image": forwards,
            "numbers": expert.numbers,
            "temperature": expert.warmth,  # divides the head's scores before the expert's are added
            **expert.classifier.findings(),
        }
    }


def _next_domain(ledger: Ledger, infos: Sequence[TaskInfo]) -> dict[str, Any]:
    """Return the accuracy on each task before it is learned, the mean of those that are known, and chance.

    Forward transfer would subtract what a model of random weights gets (Lopez-Paz & Ranzato, 2017). Chance is
    what a guess among the classes gets that were known by then: a floor, and no substitute for that model.
    """
    if not ledger.ahead:
        return {}
    # each evaluation looks at the task that comes next: nothing does so for the first, and the last has none
    by_task = [None, *ledger.ahead[:-1]]
    known = {task: share for task, share in enumerate(by_task) if share is not None}
    mean = None
    chance = None
    if known:
        mean = sum(known.values()) / len(known)
        # percent, as accuracies are
        chance = sum(100 / _num_known(infos[:task]) for task in known) / len(known)
    return {"next_domain": {"by_task": by_task, "mean": mean, "chance": chance}}


def _num_known(infos: Sequence[TaskInfo]) -> int:
    """Return the number of distinct classes of some tasks."""
    return len(ClassMap.of(infos).known)


def _stale(infos: Sequence[TaskInfo], ledger: Ledger) -> dict[str, Any]:
    """Return the share of the seen classes with stale statistics, after each task and at the end."""
    sizes = [len(info.classes) for info in infos[: len(ledger.stale)]]
    shares = []
    last = None
    for flags, seen in zip(ledger.stale, accumulate(sizes), strict=True):
        last = sum(compress(sizes, flags)) / seen
        shares.append(last)
    return {"by_task": shares, "last": last}


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
    sources = []
    for source, end in zip(data.sources, data.ends, strict=True):
        tasks = data.stream.tasks[source.first : end]
        entry = {
            "benchmark": {"name": source.benchmark.name, **unstructure(source.benchmark.config)},
            "fingerprint": source.own,
            "first_task": source.first,
            "tasks": len(tasks),
            "first_class": tasks[0].classes[0],
            "classes": sum(len(task.classes) for task in tasks),
        }
        sources.append(entry)
    return sources


def _agreement(sets: list[int], planted: tuple[int, ...]) -> float | None:
    return adjusted_rand_index(dict(enumerate(sets)), dict(enumerate(planted[: len(sets)])))


def _vectors(parts: RunParts) -> float:
    """Return the number of vectors of the backbone's width in the live sets."""
    vectors = parts.pool.size / parts.backbone.dim
    if vectors.is_integer():
        return int(vectors)
    return vectors


def _parameters(parts: RunParts) -> int:
    """Return the number of parameters beside the backbone: of the sets, the method and the retrieval."""
    modules: list[nn.Module] = [parts.baseline]
    if parts.retrieval is not None:
        modules.append(parts.retrieval)
    count = parts.pool.size
    for module in modules:
        count += sum(parameter.numel() for parameter in module.parameters())
    return count
