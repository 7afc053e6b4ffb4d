"""What of a model learns from features alone: its head in closed form, and its frozen expert, if any."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from lw2g.blocks.closed_form import ClosedForm
from lw2g.blocks.expert import FrozenExpert, of_targets
from lw2g.errors import ConfigError
from lw2g.model.frozen_expert import expert_of
from lw2g.model.parts import ModelParts

__all__ = ["Solved", "solved_of"]


@attrs.frozen(kw_only=True, eq=False)
class Solved:
    """A head in closed form, and the expert if there is one; both learn exactly.

    Rows are features as the head is fed, ``[n, F]``; with an expert un-prompted ones stand to their right,
    ``[n, F + dim]``.

    Attributes:
        head: The head.
        expert: The expert; None without one.
        trained: Whether the features that it was first solved from were trained. Then images of the training
            look more known than any other, and the sums, which were carried along, hold them no longer as
            they are.
    """

    head: ClosedForm
    expert: FrozenExpert | None = None
    trained: bool = False

    @property
    def device(self) -> torch.device:
        """Where the sums are."""
        return self.head.count.device

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of the head and those of the expert, ``[n, 0]`` without one."""
        width = rows.shape[1]
        if self.expert is not None:
            width -= self.expert.dim
        return rows[:, :width], rows[:, width:]

    def update(self, rows: Tensor, labels: Tensor) -> None:
        """Add rows of images with labels ``[n]`` to the sums."""
        features, queries = self.split(rows)
        self.head.update(features, labels)
        if self.expert is not None:
            self.expert.classifier.update(queries, labels)

    def predicted_targets(self, rows: Tensor, targets: Sequence[int]) -> Tensor:
        """Return the target that each row is taken for, ``[n]``.

        Args:
            rows: The rows.
            targets: The target of each class.
        """
        features, queries = self.split(rows)
        logits = of_targets(self.head.scores(features, len(targets)), targets)
        if self.expert is not None:
            logits = self.expert.product(logits, self.expert.log_posterior(queries, targets))
        return logits.argmax(dim=1)


def solved_of(parts: ModelParts) -> Solved:
    """Return what learns: the head, and the frozen expert if there is one.

    Raises:
        ConfigError: The model has none whose sums can grow.
    """
    head = parts.baseline.closed_form
    if head is None or parts.unsolved:
        raise ConfigError(
            f"{parts.unsolved}, so that new classes cannot be added to sums",
            "use a baseline without sets that are chosen, with baseline.head=lda, or lw2g start",
        )
    return Solved(head=head, expert=expert_of(parts.baseline), trained=parts.baseline.scope.learned)
