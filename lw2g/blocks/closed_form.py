"""Building block: closed-form classifiers, fitted from running sums over features.

Features and labels may come in any batches and any order: the classifier is the same as for all of them at
once, up to rounding in float64. A class that comes again in a later task has sums of its own there, so that
they can be carried apart; the classifier is solved from both together. It keeps no image, has no epochs, and
draws random numbers only from its own seed. Its input is un-prompted features (in retrieval, where no set
makes them drift) or the input of a baseline's head.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from lw2g.interfaces.carry import Motion
from lw2g.interfaces.head import ClosedForm

__all__ = ["ClosedForm", "Cosine", "factor"]


class Cosine(ClosedForm):
    """Nearest class mean by cosine; the means are those of unnormalised features.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
    """

    exact = True
    carried = True
    class_rows = True

    total: Tensor

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__(num_classes)
        self.register_buffer("total", torch.zeros(num_classes, dim, dtype=torch.float64))

    def centres(self, classes: Tensor) -> Tensor:
        """Return the means of classes, ``[n, dim]``."""
        return self.total[classes] / self.count[classes, None]

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Add to the sums of the classes."""
        self.total.index_add_(0, labels, features)

    def move(self, motion: Motion, classes: Tensor, owner: int) -> None:
        """Move the means, at the counts that they have."""
        count = self.count[classes, None]
        # a motion is of features, not of sums: it may have a constant part
        self.total[classes] = motion(self.centres(classes)) * count

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return the means of targets, of length 1, ``[targets, dim]``."""
        return (functional.normalize(self.pooled(self.total[:seen]), dim=-1),)

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return cosines to the means of targets, ``[n, targets]``."""
        return functional.normalize(features, dim=-1) @ solution[0].T

    def without_each(self, features: Tensor, labels: Tensor, seen: int) -> Tensor:
        """Return cosines ``[n, targets]``, of each row to the mean of the others where it is of the class."""
        (directions,) = self.solution(seen)
        scores = self.score(features, directions)
        target_of_class = torch.tensor(self.targets[:seen], device=labels.device)
        targets = target_of_class[labels]
        # a sum has the direction of the mean
        others = functional.normalize(self.pooled(self.total[:seen])[targets] - features, dim=-1)
        own_score = (functional.normalize(features, dim=-1) * others).sum(1, keepdim=True)
        return scores.scatter(1, targets[:, None], own_score)


def factor(matrix: Tensor) -> Tensor:
    """Return the Cholesky factor of a matrix or a stack of matrices.

    Raises:
        ValueError: A matrix is singular in float64.
    """
    lower: Tensor
    # symmetric to the bit: rounding of sums makes the halves differ, and one of them alone is read
    lower, failed = torch.linalg.cholesky_ex((matrix + matrix.mT) / 2)
    if bool(failed.any()):
        raise ValueError(
            "expected a positive definite matrix but got a singular one; raise the shrinkage or the penalty"
        )
    return lower
