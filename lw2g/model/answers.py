"""The answers of a model for images."""

from __future__ import annotations

import attrs
from torch import Tensor

__all__ = ["Answers"]


@attrs.frozen(kw_only=True, eq=False)
class Answers:
    """A model's answers for some images.

    Attributes:
        logits: Of the seen targets, ``[B, C]``; log probabilities where several sets answer.
        features: What the head was fed under the retrieved set, ``[B, F]`` float32; where each set answers,
            under all of them side by side.
        tasks: The retrieved task of each image, from 0, ``[B]`` int64; None where the baseline makes no hard
            choice of a set.
        sets: The set of that task, ``[B]`` int64; None likewise.
        suits: Where each set answers, how well each live set suits each image, ``[B, sets]``; else None.
        by_set: Where several answers are mixed, the logits of the seen classes of each; else None.
        temperature: Of the logits, fitted to images set apart; None where none was fitted.
    """

    logits: Tensor
    features: Tensor
    tasks: Tensor | None = None
    sets: Tensor | None = None
    suits: Tensor | None = None
    by_set: Tensor | None = None
    temperature: float | None = None

    @property
    def probabilities(self) -> Tensor:
        """Softmax of the logits at the temperature, ``[B, C]``; without one as sure as the logits are."""
        if self.temperature is None:
            return self.logits.softmax(dim=1)
        return (self.logits / self.temperature).softmax(dim=1)

    @property
    def classes(self) -> Tensor:
        """The predicted target of each image, ``[B]`` int64."""
        return self.logits.argmax(dim=1)

    def top(self, k: int) -> tuple[Tensor, Tensor]:
        """Return probabilities and numbers of the ``k`` best classes, or of all if fewer, ``[B, k]``."""
        # ranked by logits: probabilities may be equal in float32 where these are not
        best = self.logits.topk(min(k, self.logits.shape[1]), dim=1).indices
        return self.probabilities.gather(1, best), best
