"""What of a model learns from features alone: its head in closed form, and a frozen expert beside it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from lw2g.blocks.closed_form import ClosedForm
from lw2g.blocks.expert import FrozenExpert, of_targets

__all__ = ["Solved"]


@attrs.frozen(kw_only=True, eq=False)
class Solved:
    """A head in closed form, and the expert if there is one; both learn exactly.

    Rows are features as the head is fed, ``[n, F]``; with an expert un-prompted ones stand to their right,
    ``[n, F + dim]``.

    Attributes:
        head: The head.
        expert: The expert; None without one.
    """

    head: ClosedForm
    expert: FrozenExpert | None = None

    @property
    def device(self) -> torch.device:
        """Where the sums are."""
        return self.head.count.device

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of the head and those of the expert, ``[n, 0]`` without one."""
        own = rows.shape[1] - (0 if self.expert is None else self.expert.lda.mean.shape[1])
        return rows[:, :own], rows[:, own:]

    def update(self, rows: Tensor, labels: Tensor) -> None:
        """Add rows of images with labels ``[n]`` to the sums."""
        features, queries = self.split(rows)
        self.head.update(features, labels)
        if self.expert is not None:
            self.expert.lda.update(queries, labels)

    def named(self, rows: Tensor, targets: Sequence[int]) -> Tensor:
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
