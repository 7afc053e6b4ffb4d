"""Small runs: the shortest one of a baseline, one task learned, and what two runs are compared by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g.config.resolve import Resolved, resolve
from lw2g.disk.checkpoint import CheckpointStore
from lw2g.interfaces.component import NoOptions, PolicyComponent
from lw2g.interfaces.growth import Decision, Evidence
from lw2g.learning.evidence.collecting import store_statistics
from lw2g.learning.evidence.evidence_sample import EvidenceSample
from lw2g.learning.evidence.spaces import absorb_task
from lw2g.learning.session import Session
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.markers import hookimpl
from lw2g_testing.tiny import tiny_catalogue

__all__ = [
    "TIMES",
    "different",
    "learned_one",
    "short_options",
    "shortest",
    "telling",
    "tensors",
    "untimed",
]

TIMES = ("seconds", "images_per_second", "sha256")
"""Of a record, what differs between two runs that learn the same."""

_SHORT = {"batch_size": 8, "components": 4, "rank": 4, "replay_batch": 8}
_SMALL = {
    "benchmark.test": 2,
    "benchmark.train": 4,
    "growth.images": 16,
    "run.device": "cpu",
    "run.precision": "32-true",
    "run.evaluation_batch": 12,
}


def shortest(
    catalogue: Catalogue,
    baseline: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    policy: str | None = None,
    constraints: Sequence[str] | None = None,
) -> Resolved:
    """Resolve a run on the tiny components with one epoch a phase, few images, and small sets."""
    return resolve(
        catalogue,
        overrides={**_SMALL, **short_options(catalogue, baseline), **(overrides or {})},
        baseline=baseline,
        policy=policy,
        constraints=constraints,
        benchmark="tiny",
        backbone="tiny",
    )


def short_options(catalogue: Catalogue, baseline: str) -> dict[str, int]:
    """Return what makes a baseline and its retrieval strategy train one epoch a phase, with small sets."""
    component = catalogue.get("baseline", baseline)
    sections = {"baseline": component.config}
    if component.retrieval is not None:
        sections["retrieval"] = catalogue.get("retrieval", component.retrieval).config
    return {
        f"{section}.{name}": _SHORT.get(name, 1)
        for section, config in sections.items()
        for name in attrs.fields_dict(config)
        if name in _SHORT or name.endswith("epochs")
    }


def telling(*decisions: Decision) -> Catalogue:
    """Return the tiny catalogue with a policy ``told``, whose decision on each task is told."""

    class Told:
        margin = 0.0
        burden = None

        def decide(self, evidence: Evidence, rng: Any) -> Decision:
            return decisions[evidence.task]

    class Plugin:
        @hookimpl
        def lw2g_policies(self) -> list[PolicyComponent]:
            return [
                PolicyComponent(
                    name="told", summary="as told", config=NoOptions, build=lambda _: Told(), measures=()
                )
            ]

    return tiny_catalogue(Plugin())


def untimed(record: Mapping[str, Any], *but: str) -> dict[str, Any]:
    """Return a record without its times, and without what else is named."""
    return {key: value for key, value in record.items() if key not in (*TIMES, *but)}


def tensors(directory: Path, task: int | None = None) -> dict[str, Tensor]:
    """Return what a run holds at the end of a task, of its last one where none is named."""
    return dict(CheckpointStore(directory / "checkpoints").of_task(task).tensors)


def different(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors that are not the same bits in both, or are in one alone."""
    return [
        name
        for name in sorted(one.keys() | other.keys())
        if name not in one or name not in other or not torch.equal(one[name], other[name])
    ]


def learned_one(session: Session) -> EvidenceSample:
    """Give the session one absorbed task with a random set, and return the next task's evidence sample."""
    session.parts.begin_task(0)
    torch.manual_seed(5)
    session.parts.pool.grow(session.parts.new_set(None))
    images = session.data.image_set([session.data.stream.tasks[0].train], train=False)
    context = session.task_context(0, images)
    evidence_sample = session.parts.evidence_sample(0, images)
    store_statistics(session.parts, context, evidence_sample, "begin")
    absorb_task(session.parts, context, evidence_sample)
    store_statistics(session.parts, context, evidence_sample, "end")
    session.parts.begin_task(1)
    return session.parts.evidence_sample(
        1, session.data.image_set([session.data.stream.tasks[1].train], train=False)
    )
