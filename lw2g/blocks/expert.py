"""Building block: an expert on frozen features, whose answer is combined with that of a baseline's head.

A classifier in closed form on un-prompted features is exact for every class ever seen, for nothing that is
trained moves them. Its posterior is multiplied with the head's (a product of experts): where the head has
lost old classes, the expert still speaks for them. Both factors must be posteriors of their own. A head whose
scores are no log likelihoods gets a temperature, fitted to images that nothing was trained on; so does every
head beside a classifier that has one, for else the surer of both would decide alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lw2g.blocks.discriminants import Discriminant
from lw2g.interfaces.calibration import Temperature
from lw2g.interfaces.head import ClosedForm

__all__ = ["FrozenExpert", "of_targets"]


class FrozenExpert(nn.Module):
    """A classifier on un-prompted features, and the temperature of the head combined with it.

    It keeps ``C d + d^2`` numbers for C classes and features of width d.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        fitted: Whether the head's logits get a fitted temperature.
        chosen: The classifier; None for linear discriminant analysis.

    Attributes:
        dim: Width of the features.
        lda: The sums over the features, of linear discriminant analysis; else None.
        chosen: The other classifier; else None.
        temperature: Of the head's logits; None where it is 1.
    """

    lda: Discriminant | None
    chosen: ClosedForm | None
    temperature: Temperature | None

    def __init__(self, dim: int, num_classes: int, *, fitted: bool, chosen: ClosedForm | None = None) -> None:
        super().__init__()
        self.dim = dim
        # a name each: runs of before have sums by the first one
        self.lda = Discriminant(dim, num_classes) if chosen is None else None
        self.chosen = chosen
        temperature = None
        if fitted:
            temperature = Temperature(1.0)
        self.register_module("temperature", temperature)

    @property
    def classifier(self) -> ClosedForm:
        """What answers."""
        answering = self.lda if self.chosen is None else self.chosen
        assert answering is not None
        return answering

    @property
    def numbers(self) -> int:
        """Numbers that the classifier keeps: a row for each class, and a square matrix."""
        # of sums that are shared by several classifiers once
        return sum(sums.numel() for sums in self.classifier.buffers() if sums.ndim > 1)

    @property
    def warmth(self) -> float:
        """The temperature that divides the head's logits."""
        if self.temperature is None:
            return 1.0
        return self.temperature.value

    def log_posterior(self, queries: Tensor, targets: Sequence[int]) -> Tensor:
        """Return the log probability of each target, ``[n, T]`` float32; ``exp`` sums to 1.

        Args:
            queries: Un-prompted features, ``[n, dim]``.
            targets: The target of each seen class.
        """
        scores = self.classifier.scores(queries, len(targets))
        if self.classifier.temperature is not None:
            scores = scores / self.classifier.temperature.value
        # targets before the softmax: a class that came twice would have two shares
        return of_targets(scores, targets).log_softmax(dim=1).float()

    def product(self, logits: Tensor, log_posterior: Tensor) -> Tensor:
        """Return the log probability of each target by head and expert together, ``[n, T]`` float32.

        Args:
            logits: Of the targets by the head, ``[n, T]``.
            log_posterior: What :meth:`log_posterior` returned for the same images.
        """
        of_head = (logits.double() / self.warmth).log_softmax(dim=1)
        return (of_head + log_posterior.double()).log_softmax(dim=1).float()

    def observe(self, logits: Tensor, targets: Tensor) -> None:
        """Fit the temperature to images that nothing was trained on, besides all that were observed before.

        Args:
            logits: Of the targets by the head, ``[n, T]``.
            targets: The true ones, ``[n]``.
        """
        if self.temperature is not None:
            self.temperature.observe(logits, targets)


def of_targets(scores: Tensor, targets: Sequence[int]) -> Tensor:
    """Return the scores of targets, given those of classes: classes of one target have the same."""
    first = [targets.index(target) for target in range(max(targets) + 1)]
    if len(first) == len(targets):
        return scores
    return scores[:, torch.tensor(first, device=scores.device)]
