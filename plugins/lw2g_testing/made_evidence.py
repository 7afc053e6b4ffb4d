"""Evidence and samples made by hand, for tests of policies and of measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from lw2g.interfaces.context import TaskInfo, derive_seed
from lw2g.interfaces.defaults import DEFAULT_MEASURES
from lw2g.interfaces.evidence import Candidate, Sample
from lw2g.interfaces.growth import CandidateEvidence, Measurement
from lw2g.interfaces.memory import SpaceOptions
from lw2g.interfaces.site import Activation, Site
from lw2g.maths.moments import SecondMoment
from lw2g.vit.taps import Tap

__all__ = ["grouped_moments", "made_sample", "made_site", "measured_set"]


def measured_set(
    set_id: int,
    value: float | None,
    error: float | None = None,
    *,
    measure: str = DEFAULT_MEASURES[0],
    **said: Any,
) -> CandidateEvidence:
    """Return the evidence of one live set with the value of one measure.

    Args:
        set_id: The set's id.
        value: The measure; None for a set without a value.
        error: Its standard error.
        measure: Its name.
        **said: Other attributes of :class:`~lw2g.interfaces.growth.CandidateEvidence` (``rank``,
            ``captured``, ``excluded``) or of :class:`~lw2g.interfaces.growth.Measurement`.

    >>> measured_set(0, -1.5, rank=3).measures["hindrance"].value
    -1.5
    """
    of_set = {}
    of_measure = {}
    for name, attribute in said.items():
        if name in attrs.fields_dict(CandidateEvidence):
            of_set[name] = attribute
        else:
            of_measure[name] = attribute
    measures = {}
    if value is not None:
        measures[measure] = Measurement(value=value, error=error, **of_measure)
    return CandidateEvidence(set=set_id, measures=measures, **of_set)


def made_sample(
    labels: Tensor,
    *,
    groups: int = 4,
    candidates: Sequence[Candidate] = (),
    moments: Mapping[Tap, list[SecondMoment]] | None = None,
    energy: float = 0.95,
    literal: bool = False,
    **said: Any,
) -> Sample:
    """Return the sample of a task that a measure is given, made by hand: for tests of measures.

    Args:
        labels: Positions of the images' classes, ``[n]``; the images are dealt into groups in turn, so that
            each group is a stretch of what is given.
        groups: How many groups.
        candidates: The live sets.
        moments: Of un-prompted activations, by tap and group.
        energy: Of pre-trained spaces.
        literal: As of :class:`~lw2g.interfaces.evidence.Sample`.
        **said: Other attributes of :class:`~lw2g.interfaces.evidence.Sample`.
    """
    classes = tuple(sorted(set(labels.tolist())))
    task = TaskInfo(
        index=len(said.get("task_to_set", ())),
        classes=classes,
        class_names=tuple(f"class {label}" for label in classes),
        seen=max(classes) + 1,
        num_images=len(labels),
    )
    known = dict(moments or {})
    defaults: dict[str, Any] = {"left_out": 1.0}
    return Sample(
        task=task,
        labels=labels,
        groups=torch.arange(len(labels)) * groups // len(labels),
        space_options=SpaceOptions(energy=energy),
        literal=literal,
        candidates=tuple(candidates),
        moments=lambda taps: {tap: known[tap] for tap in taps},
        generator=lambda purpose: torch.Generator().manual_seed(derive_seed(0, purpose)),
        **(defaults | said),
    )


def made_site(name: str, dim: int, block: int = 0) -> Site:
    """Return a site of one parameter row that multiplies the input of a block's attention."""
    return Site(
        name=name,
        parameter=nn.Parameter(torch.zeros(1, dim)),
        activation=Activation(tap=Tap(block=block, kind="attn_in")),
    )


def grouped_moments(rows: Tensor, groups: int, heads: int = 1) -> list[SecondMoment]:
    """Return the second moments of rows ``[n, dim]``, cut into equal groups."""
    moments = []
    for part in rows.chunk(groups):
        moment = SecondMoment(rows.shape[1], heads)
        moment.update(part)
        moments.append(moment)
    return moments
