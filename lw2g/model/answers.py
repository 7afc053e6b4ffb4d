"""The answers of a model for images, and the classes that their columns are of."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from torch import Tensor

from lw2g.ground.spelling import composed_names

__all__ = ["Answers", "Columns"]

FORGOTTEN = "(forgotten)"
"""Names the column of a class that a model has forgotten."""


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


@attrs.frozen(kw_only=True)
class Columns:
    """What the columns of a model's logits are: numbers are never given twice, so forgotten classes have one.

    Attributes:
        names: The class of each number, forgotten ones too.
        numbers: The number of each class that the model knows.
    """

    names: Sequence[str] = attrs.field(converter=composed_names)
    numbers: Sequence[int]

    @property
    def known(self) -> tuple[str, ...]:
        """The classes that the model can name."""
        return tuple(self.names[number] for number in self.numbers)

    @property
    def forgotten(self) -> tuple[str, ...]:
        """The others."""
        known = set(self.numbers)
        return tuple(name for number, name in enumerate(self.names) if number not in known)

    @property
    def shown(self) -> tuple[str, ...]:
        """The name of each column, ``(forgotten)`` of classes that were."""
        known = set(self.numbers)
        return tuple(name if n in known else FORGOTTEN for n, name in enumerate(self.names))

    def of(self, logits: Tensor) -> Tensor:
        """Return logits of the known classes by number, -inf where there is no class."""
        if len(self.numbers) == len(self.names):
            return logits
        by_number = logits.new_full((len(logits), len(self.names)), float("-inf"))
        by_number[:, list(self.numbers)] = logits
        return by_number
