"""A closed-form head fitted to features, for gradients that do not depend on a random head.

The mean of the gradient over random heads is zero, so that its direction says nothing. Here the logits are
cosines with class means, fitted on one half of the evidence sample and evaluated on the other, at the
temperature that fits best.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from lw2g.interfaces.batch import Batch
from lw2g.learning.evidence.evidence_sample import EvidenceSample

__all__ = ["FittedHead"]

_SCALES = torch.logspace(0, 1.2, 16)
"""Of cosines; a larger one makes the loss of classes far apart 0, and their gradient noise."""


class FittedHead:
    """The loss of each image of the evidence sample under class means of the other half of its groups.

    Args:
        evidence_sample: The task's.
        features: Of all its images under one set, in its order, ``[n, F]``.
    """

    def __init__(self, evidence_sample: EvidenceSample, features: Tensor) -> None:
        sample = evidence_sample.positions
        self._classes = torch.tensor(evidence_sample.task.classes)
        side = evidence_sample.group_numbers % 2  # neighbouring groups go to different halves
        # a batch knows its images by their positions in the task: the half of each, 0 for those of no group
        places = torch.zeros(max(sample) + 1, dtype=torch.long)
        places[torch.tensor(sample)] = side
        self._side = places
        labels = evidence_sample.labels
        # each half is asked by the head of the other
        self._heads = [self._fit(features[side != half], labels[side != half]) for half in (0, 1)]
        losses = [0.0] * len(_SCALES)
        for half in (0, 1):
            cosines = self._cosines(features[side == half], half)
            wanted = self._targets(labels[side == half])
            for number, scale in enumerate(_SCALES):
                losses[number] += float(functional.cross_entropy(scale * cosines, wanted))
        self._scale = float(_SCALES[int(torch.tensor(losses).argmin())])

    def _fit(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the common mean ``[dim]``, and directions of class means from it, ``[classes, dim]``.

        The direction of a class without images is zero.
        """
        common = features.mean(dim=0)
        means = []
        for label in self._classes:
            rows = features[labels == label]
            means.append(rows.mean(dim=0) - common if len(rows) else torch.zeros_like(common))
        return common, functional.normalize(torch.stack(means), dim=1)

    def _cosines(self, features: Tensor, side: int) -> Tensor:
        """Return the cosines of features to the directions fitted on a side, ``[n, classes]``."""
        common, directions = self._heads[side]
        centred = functional.normalize(features - common.to(features), dim=1)
        return centred @ directions.to(features).T

    def _targets(self, labels: Tensor) -> Tensor:
        return (labels.cpu()[:, None] == self._classes).int().argmax(dim=1)

    def __call__(self, features: Tensor, batch: Batch) -> Tensor:
        """Return the mean loss of some images of the evidence sample."""
        sides = self._side[batch.samples.cpu()].to(features.device)[:, None]
        features = features.float()
        cosines = torch.where(sides == 0, self._cosines(features, 0), self._cosines(features, 1))
        return functional.cross_entropy(
            self._scale * cosines, self._targets(batch.labels).to(features.device)
        )
