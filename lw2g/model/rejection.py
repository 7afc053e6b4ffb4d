"""Telling unknown images from known ones by the Gaussians in the sums of a closed-form head.

The score is the relative Mahalanobis distance (Ren et al., arXiv 2106.09022), negated: an image is known if
it is nearer to a class than to the Gaussian of all images. Its threshold is a quantile of scores of images
that were left out of the sums, one by one (split conformal prediction).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_UP, Context, Decimal
from functools import cached_property

import attrs
import torch
from torch import Tensor

from lw2g.blocks.closed_form import ClosedForm
from lw2g.errors import ConfigError
from lw2g.interfaces.calibration import least_loss
from lw2g.interfaces.head import GAUSSIAN_SHRINKAGE
from lw2g.maths.few_rows import Range
from lw2g.maths.normal_equations import products

__all__ = [
    "Gaussians",
    "TooFewImages",
    "Unknown",
    "expected_error",
    "left_out",
    "moments_of",
    "no_scores",
    "scores_of",
    "temperature_of",
    "threshold_of",
]

_SMALLEST = 1e-6
"""What an image leaves of a covariance at least: without it, a direction would have no width."""
_LEAST_ECE = 200
"""Fewer images say nothing of calibration."""
_BINS = 15
_WIDEST = 5000
"""Random features beyond which a covariance of them takes minutes to solve."""


@attrs.frozen(eq=False)
class Gaussians:
    """Classes with one covariance, and the Gaussian of all their images.

    Attributes:
        counts: Images of each class, ``[C]``.
        means: ``[C, D]`` float64.
        within: Scatter about the class means, ``[D, D]``.
        width: Of the features; more than D where these are coordinates in the range of all images.
        known: This range; None where D are the features themselves.
    """

    counts: Tensor
    means: Tensor
    within: Tensor
    width: int = attrs.field(
        default=attrs.Factory(lambda gaussians: gaussians.means.shape[1], takes_self=True)
    )
    known: Range | None = None

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the covariance within classes."""
        return max(int(self.counts.sum()) - int((self.counts > 0).sum()), 1)

    @cached_property
    def _centre(self) -> Tensor:
        """The mean of all images."""
        counts = self.counts.to(self.means)
        return counts @ self.means / counts.sum()

    @cached_property
    def _within(self) -> Tensor:
        """The covariance within classes."""
        return self.within / self.freedom

    @cached_property
    def _total(self) -> Tensor:
        """The covariance of all images."""
        # scaled so that their outer products are the scatter between classes
        differences = (self.means - self._centre) * self.counts.to(self.means).sqrt()[:, None]
        scatter = self.within + differences.T @ differences
        return scatter / max(int(self.counts.sum()) - 1, 1)

    @cached_property
    def _factor_within(self) -> Tensor:
        return _factor(self._within, self.width)

    @cached_property
    def _factor_total(self) -> Tensor:
        return _factor(self._total, self.width)

    def distances(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return squared Mahalanobis distances to classes ``[n, C]`` and to the mean of all ``[n]``."""
        inner = self.coordinates(rows)
        squares, everything = self.distances_in_range(inner)
        if self.known is not None:
            # out of the range of the images a covariance has what is added to its diagonal alone
            outside = (rows.square().sum(1) - inner.square().sum(1)).clamp(min=0)
            squares = squares + (outside / _added(self._within, self.width))[:, None]
            everything = everything + outside / _added(self._total, self.width)
        return squares, everything

    def distances_in_range(self, inner: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same of rows in the range of the images, by their coordinates ``[n, D]``."""
        return self.squares(self.white(inner)), self.squares_to_all(inner)

    @cached_property
    def white_means(self) -> Tensor:
        """Return the means as :meth:`white` has rows, ``[C, D]``."""
        return self.white(self.means)

    def white(self, inner: Tensor) -> Tensor:
        """Return rows ``[n, D]`` about the mean of all, turned so that classes have the covariance 1."""
        if self.known is not None and inner is self.known.inner:
            return self._white_images
        return _whitened(inner - self._centre, self._factor_within)

    @cached_property
    def _white_images(self) -> Tensor:
        """The images themselves, where they are few."""
        assert self.known is not None
        return _whitened(self.known.inner - self._centre, self._factor_within)

    def squares(self, white: Tensor) -> Tensor:
        """Return squared distances of white rows to classes, ``[n, C]``."""
        centres = self.white_means
        squares = white.square().sum(1)[:, None] - 2 * white @ centres.T + centres.square().sum(1)
        return squares.clamp(min=0).masked_fill(self.counts == 0, math.inf)

    def squares_to_all(self, inner: Tensor) -> Tensor:
        """Return squared distances of rows ``[n, D]`` to the mean of all, by their covariance, ``[n]``."""
        return _whitened(inner - self._centre, self._factor_total).square().sum(1)

    def coordinates(self, rows: Tensor) -> Tensor:
        """Return rows ``[n, width]`` as the means are, ``[n, D]``."""
        return rows if self.known is None else self.known.coordinates(rows)

    def scores(self, rows: Tensor) -> Tensor:
        """Return how known each row ``[n, D]`` is, ``[n]``: the larger, the more."""
        classes, everything = self.distances(rows)
        return everything - classes.amin(1)

    def errors(self) -> Tensor | None:
        """Return the rate at which each class is taken for each other one, ``[C, C]``, if all is Gaussian.

        Measured squared distances are too large by chance: an inverse covariance of f degrees of freedom by
        ``f / (f - p - 1)`` in p dimensions, and the mean of n images by ``p / n``. They are corrected for
        both. None with fewer images than twice the width.
        """
        freedom = self.freedom
        width = self.width
        if freedom < 2 * width:
            return None
        of_means = width / self.counts.clamp(min=1)
        measured = self.squares(self.white_means)
        squares = measured * ((freedom - width - 1) / freedom) - of_means - of_means[:, None]
        # two Gaussians of one covariance at the squared distance D confuse the share Phi(-sqrt(D) / 2)
        rates: Tensor = torch.special.ndtr(-squares.clamp(min=0).sqrt() / 2).fill_diagonal_(0)
        return rates


def moments_of(head: ClosedForm, classes: int) -> Gaussians | None:
    """Return the Gaussians of targets that a head's sums hold; None where it keeps no covariance.

    They are those of lifted features (:meth:`~lw2g.blocks.closed_form.ClosedForm.lifted`).

    Args:
        head: Which has features of all these classes.
        classes: How many classes it has seen.
    """
    counts = head.count[:classes]
    # a class that came again has sums in each of its tasks: they are one Gaussian
    targets = torch.tensor(head.targets[:classes], device=counts.device)
    size = int(targets.max()) + 1
    few = head.rows_in_range()
    if few is not None and few.rows.shape[1] <= _WIDEST:
        return _gaussians_of(few.range(), targets[few.labels], size)
    moments = head.class_gaussians(classes, _WIDEST)
    if moments is None:
        return None
    means, within = moments
    if size == classes:
        return Gaussians(counts, means, within)
    pooled = counts.new_zeros(size).index_add_(0, targets, counts)
    centres = means.new_zeros(size, means.shape[1]).index_add_(0, targets, means * counts[:, None])
    centres /= pooled[:, None]
    # between the means of a target's classes lies scatter of its one Gaussian
    differences = (means - centres[targets]) * counts[:, None].to(means).sqrt()
    return Gaussians(pooled, centres, within + differences.T @ differences)


def _gaussians_of(known: Range, labels: Tensor, classes: int) -> Gaussians:
    """Return the Gaussians of few wide rows.

    Args:
        known: All images of the classes, and their coordinates.
        labels: Their targets, ``[n]``.
        classes: Number of targets.
    """
    # of the same images under another head they are the same
    others = known.shared.get("gaussians")
    if others is not None and torch.equal(others[0], labels):
        shared: Gaussians = others[1]
        return shared
    rows = known.inner
    counts = torch.bincount(labels, minlength=classes)
    means = rows.new_zeros(classes, rows.shape[1]).index_add_(0, labels, rows)
    means /= counts.clamp(min=1)[:, None]
    within = products(rows - means[labels])
    gaussians = Gaussians(counts, means, within, known.rows.shape[1], known)
    known.shared["gaussians"] = (labels, gaussians)
    return gaussians


@attrs.frozen(kw_only=True, eq=False)
class Unknown:
    """Images that Gaussians do not know.

    Attributes:
        which: Their numbers, ``[n]``.
        distances: Squared, to classes, ``[n, C]``.
        scores: Returns how known each is, ``[n]``: a factor more, which not everyone asks for.
    """

    which: Tensor
    distances: Tensor
    scores: Callable[[], Tensor]


def scores_of(gaussians: Gaussians, rows: Tensor, labels: Tensor, held: Tensor) -> Unknown:
    """Return what Gaussians say of images that they do not know.

    Args:
        gaussians: Of the classes.
        rows: Lifted features of the images, ``[N, D]``.
        labels: Their targets, ``[N]``.
        held: Whether the sums of the Gaussians hold each image, ``[N]`` bool: then it is left out of them.
    """
    outside = (~held).nonzero()[:, 0]
    if not len(outside):
        return left_out(gaussians, rows, labels)
    inside = held.nonzero()[:, 0]
    others = left_out(gaussians, rows[inside], labels[inside])
    classes, everything = gaussians.distances(rows[outside])
    return Unknown(
        which=torch.cat([outside, inside[others.which]]),
        distances=torch.cat([classes, others.distances]),
        scores=lambda: torch.cat([everything - classes.amin(1), others.scores()]),
    )


def left_out(gaussians: Gaussians, rows: Tensor, labels: Tensor) -> Unknown:
    """Return what Gaussians without each image say of those whose classes have several.

    Let z be an image of a class of n, d = z - m, and f the degrees of freedom of the covariance S within
    classes. Without z the class's mean is ``n / (n - 1) d`` away from it, and S becomes
    ``f / (f - 1) (S - w d d')`` with ``w = n / (n - 1) (1 - shrinkage) / f``. By Sherman and Morrison
    x' S^-1 x then grows by ``w (x' S^-1 d)^2 / (1 - w d' S^-1 d)``. The added diagonal stays as it is.

    Args:
        gaussians: Whose sums hold the images.
        rows: Their lifted features, ``[N, D]``.
        labels: Their targets, ``[N]``.
    """
    inner = gaussians.coordinates(rows)
    which = (gaussians.counts[labels] > 1).nonzero()[:, 0]
    if len(which) < len(labels):
        inner = inner[which]
        labels = labels[which]
    if not len(which):  # one image alone leaves nothing to compare with
        nothing = rows.new_zeros(0, len(gaussians.counts))
        return Unknown(which=which, distances=nothing, scores=lambda: nothing.sum(1))
    count = gaussians.counts[labels].to(rows)
    white = gaussians.white(inner)
    classes = gaussians.squares(white)
    own_square = classes.gather(1, labels[:, None])[:, 0]  # d' S^-1 d
    deviations = white - gaussians.white_means[labels]
    # (z - m_c)' S^-1 d of all classes c
    products_with = (white * deviations).sum(1)[:, None] - deviations @ gaussians.white_means.T
    kept = 1 - GAUSSIAN_SHRINKAGE
    freedom = gaussians.freedom
    farther = count / (count - 1)
    per_square = kept / freedom
    denominator = (1 - farther * per_square * own_square).clamp(min=_SMALLEST)
    classes = classes + (farther * per_square / denominator)[:, None] * products_with.square()
    # to the own mean d' S^-1 d becomes d' S^-1 d / denominator, and d is longer
    classes.scatter_(1, labels[:, None], (farther.square() * own_square / denominator)[:, None])
    classes *= (freedom - 1) / freedom

    def scores() -> Tensor:
        """Return how known each image is."""
        # the same about the mean of all images, whose covariance has one degree of freedom less than images
        everything = gaussians.squares_to_all(inner)
        total = int(gaussians.counts.sum())
        farther_of_all = total / (total - 1)
        denominator_of_all = (1 - farther_of_all * kept / (total - 1) * everything).clamp(min=_SMALLEST)
        everything = (total - 2) / (total - 1) * farther_of_all**2 * everything / denominator_of_all
        return everything - classes.amin(1)

    return Unknown(which=which, distances=classes, scores=scores)


def temperature_of(scores: Tensor, labels: Tensor) -> tuple[float, float | None]:
    """Return the temperature of least log loss, and the calibration error that it leaves in percent.

    Args:
        scores: What a softmax makes probabilities of, by a model without each image, ``[n, C]``.
        labels: The targets of the images, ``[n]``.

    Returns:
        The error is None below 200 images.
    """
    # the rule of succession: that n images are right leaves a doubt of 1 in n + 2, and not none
    doubt = 1 / (len(labels) + 2) if scores.shape[1] > 1 else 0.0
    temperature = least_loss(scores, labels, doubt=doubt)
    best, chosen = (scores / temperature).softmax(1).max(1)
    return temperature, calibration_error(best, chosen == labels)


def calibration_error(probability: Tensor, right: Tensor) -> float | None:
    """Return the expected calibration error in percent; None below 200 images, which say nothing of it.

    Args:
        probability: As for :func:`expected_error`; likewise the next.
        right: Whether each prediction is right.
    """
    if len(right) < _LEAST_ECE:
        return None
    return 100 * expected_error(probability, right)


def expected_error(probability: Tensor, right: Tensor) -> float:
    """Return the expected calibration error (ECE) over 15 equal bins of the probability of the best class.

    It is the mean over images of what the share of right answers in their bin differs from the mean
    probability there (Guo et al., On Calibration of Modern Neural Networks, ICML 2017).

    Args:
        probability: Of the predicted class, ``[n]``.
        right: Whether it is right, ``[n]`` bool.

    >>> expected_error(torch.tensor([0.75, 0.75]), torch.tensor([True, False]))
    0.25
    """
    bins = (probability * _BINS).long().clamp(max=_BINS - 1)
    gaps = torch.zeros(_BINS, dtype=torch.float64, device=probability.device)
    gaps.index_add_(0, bins, probability.double() - right.double())
    return float(gaps.abs().sum() / len(bins))


def no_scores(unsolved: str, gaussians: Gaussians | None, *, num_classes: int) -> ConfigError:
    """Return the error of a model without images whose scores are known, or with scores that tell nothing.

    Args:
        unsolved: Why its head is in no closed form; empty where it is in one.
        gaussians: What scores are computed from; None where its head keeps no covariance.
        num_classes: Classes that it knows: the Gaussian of a single one is that of all images.
    """
    reason = unsolved
    remedy = "export a run with baseline.head=lda as learnable, or make a model with lw2g start"
    if not reason and gaussians is None:
        reason = "its head keeps no covariance"
        remedy = "start without --head, or export a run with baseline.head=lda as learnable"
    elif not reason and num_classes == 1:
        reason = "it knows one class"
        remedy = "teach it another: lw2g learn"
    elif not reason and gaussians is not None and gaussians.counts.max() < 2:
        reason = "it has learned 1 image of each class, and one is compared with others of its class"
        remedy = "let it learn more: lw2g learn"
    elif not reason:
        reason = "it keeps features of 0 images"
        remedy = "let it learn some: lw2g learn (of a run: lw2g export RUN MODEL --learnable)"
    return ConfigError(f"this model cannot tell unknown images: {reason}", remedy)


class TooFewImages(ConfigError):
    """A rate of false rejects needs more images than the model can compare with.

    Args:
        rate: The rate.
        images: How many images the model has.
    """

    def __init__(self, rate: float, images: int) -> None:
        self.images = images
        self.needed = math.ceil(1 / rate - 1e-9) - 1
        # two digits, rounded up: with one image more, the rate times their number is one at least
        least = Context(prec=2, rounding=ROUND_UP).divide(Decimal(1), Decimal(images + 1))
        super().__init__(
            f"reject: a rate of {rate} needs {self.needed} learned images to compare with, and the model has "
            f"{images}",
            f"raise the rate to {least} or more, or let the model learn more images",
        )


def threshold_of(known: Tensor, rate: float) -> float:
    """Return the score below which an image is unknown, at a rate of false rejects.

    Args:
        known: Scores of known images, ascending, as the model keeps them.
        rate: Share of known images that may be rejected, between 0 and 1.

    Raises:
        ConfigError: It is no rate.
        TooFewImages: There are too few images for it.
    """
    if not 0 < rate < 1:  # NaN is not, either
        raise ConfigError(
            f"reject: expected a rate between 0 and 1 but got {rate}", "0.05 rejects 5 % of known"
        )
    rank = math.floor(rate * (len(known) + 1) + 1e-9)
    if not rank:
        raise TooFewImages(rate, len(known))
    return float(known[rank - 1])


def _factor(covariance: Tensor, width: int) -> Tensor:
    """Return the Cholesky factor of ``(1 - a) S + a l I``, l the mean variance of a feature.

    a is GAUSSIAN_SHRINKAGE: it makes a covariance one that can be solved.

    Args:
        covariance: S, of features, or of coordinates in their range.
        width: Of the features.
    """
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    # rounding of sums makes the halves of a covariance differ
    factor: Tensor = torch.linalg.cholesky(
        (1 - GAUSSIAN_SHRINKAGE) * (covariance + covariance.T) / 2 + _added(covariance, width) * eye
    )
    return factor


def _added(covariance: Tensor, width: int) -> Tensor:
    """Return ``a l``, what is added to the diagonal of a covariance."""
    level = covariance.diagonal().mean() * (len(covariance) / width)
    return GAUSSIAN_SHRINKAGE * level.clamp(min=torch.finfo(torch.float64).tiny)


def _whitened(rows: Tensor, factor: Tensor) -> Tensor:
    white: Tensor = torch.linalg.solve_triangular(factor, rows.T, upper=False)
    return white.T
