"""How well features under a set that has never seen the new classes separate them, against un-prompted ones.

``logme`` (You et al., ICML 2021; 2110.10545): the log evidence of a linear model of each class's 0/1
labels, ``max over alpha, beta of log N(y; 0, I/beta + F F'/alpha) / n``, mean over classes, in nats per
sample. The released default keeps ``d/2 log alpha`` though only k < d singular values exist: wrong by ``(d
- k)/(2n) log alpha`` wherever there are fewer images than dimensions, which is always the case here.
``loo-ncm``: the accuracy of the nearest class mean with each image left out of its own. The distance to the
own mean without an image is exactly ``n/(n-1)`` of that with it.

Both are gains over the same images' un-prompted features, to be compared with the gain under permuted labels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from lw2g.plugin import Measure, Measurement, Sample, half_samples, spread_over_halves

__all__ = ["LeaveOneOut", "LogMe", "is_right_left_out", "log_evidence"]

_ITERATIONS = 300
_CONVERGED = 1e-6
_LEAST = 1e-12


class LogMe(Measure):
    """The gain in log evidence of a linear model over un-prompted features."""

    needs = frozenset(("queries", "features"))

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return the gain of every candidate."""
        generator = sample.generator("half-samples")
        halves = half_samples(sample.groups, generator)
        permuted = sample.labels[torch.randperm(len(sample), generator=generator)]
        everything = torch.arange(len(sample))
        plain: dict[bytes, float | None] = {}  # by images and labels; the same for all candidates

        def gain(features: Tensor, labels: Tensor, at: Tensor) -> float | None:
            """Return the log evidence under a set less that without, on the images at some positions."""
            # without a set it is the same for all candidates, and computed once for the same images
            key = torch.stack([at, labels[at]]).numpy().tobytes()
            if key not in plain:
                plain[key] = log_evidence(_of(sample.queries)[at], labels[at])
            under = log_evidence(features[at], labels[at])
            without = plain[key]
            if under is None or without is None:
                return None
            return under - without

        gains = {}
        for candidate in sample.candidates:
            features = _of(candidate.features)
            value = gain(features, sample.labels, everything)
            if value is None:
                gains[candidate.set] = Measurement(n=len(sample), unit="nats", why="there is but one class")
                continue
            spread = spread_over_halves(partial(gain, features, sample.labels), halves, sample.left_out)
            shuffled = gain(features, permuted, everything)
            gains[candidate.set] = Measurement(
                value=value,
                error=spread.error,
                replicates=spread.replicates,
                null=shuffled,
                shuffled=shuffled,
                n=len(sample),
                unit="nats",
            )
        return gains


class LeaveOneOut(Measure):
    """The gain in leave-one-out accuracy of the nearest class mean over un-prompted features."""

    needs = frozenset(("queries", "features"))

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return the gain of every candidate, in percentage points, with the error of paired answers."""
        generator = sample.generator("shuffled")
        shuffled = sample.labels[torch.randperm(len(sample), generator=generator)]
        queries = _of(sample.queries)
        plain = is_right_left_out(queries, sample.labels)
        plain_chance = is_right_left_out(queries, shuffled)
        gains = {}
        for candidate in sample.candidates:
            features = _of(candidate.features)
            under = is_right_left_out(features, sample.labels)
            n = len(under)
            if n == 0:
                gains[candidate.set] = Measurement(unit="percentage points", why="no class has two images")
                continue
            # paired: what both features answer alike says nothing about their difference
            gained = float((under & ~plain).sum())
            lost = float((~under & plain).sum())
            under_chance = is_right_left_out(features, shuffled).double().mean()
            chance = under_chance - plain_chance.double().mean()
            # n times the variance of a gain of 1, 0 or -1 an image; no less than 0, since an image is gained
            # or lost at most once
            spread = gained + lost - (gained - lost) ** 2 / n
            error = 100 * math.sqrt(spread) / n
            gains[candidate.set] = Measurement(
                value=100 * (gained - lost) / n,
                # of a sample that leaves out no image of the task nothing is uncertain
                error=error * math.sqrt(sample.left_out),
                null=0.0,
                shuffled=100 * float(chance),
                n=n,
                unit="percentage points",
                parts={
                    "accuracy": 100 * float(under.double().mean()),
                    "unprompted": 100 * float(plain.double().mean()),
                    "chance": 100 / len(torch.unique(sample.labels)),
                },
            )
        return gains


def log_evidence(features: Tensor, labels: Tensor) -> float | None:
    """Return LogME of features ``[n, d]`` and labels ``[n]`` in nats per sample; None for a single class."""
    targets = functional.one_hot(torch.unique(labels, return_inverse=True)[1]).double()
    n, classes = targets.shape
    if classes < 2:
        return None
    # float64: alpha and beta run over many orders of magnitude
    left, singular, _ = torch.linalg.svd(features.double(), full_matrices=False)
    # the usual tolerance of a numerical rank: alpha / total is 1 in the directions that are left out
    kept = singular > singular.max() * max(features.shape) * torch.finfo(torch.float64).eps
    sigma = singular[kept].square()  # [k]
    inside = (left[:, kept].T @ targets).square().T  # [classes, k]
    outside = (targets.square().sum(dim=0) - inside.sum(dim=1)).clamp(min=0)
    alpha = torch.ones(classes, 1).double()  # the precision of the weights
    beta = torch.ones(classes, 1).double()  # the precision of the labels' noise
    last = torch.full((classes,), -math.inf, dtype=torch.float64)
    for _ in range(_ITERATIONS):
        total = alpha + beta * sigma
        # the weights' posterior mean m gives |m|^2 and |F m - y|^2
        length = (beta.square() * sigma * inside / total.square()).sum(dim=1)
        residual = (alpha.square() * inside / total.square()).sum(dim=1) + outside
        evidence = (alpha / total).log().sum(dim=1) / 2 + n / 2 * (beta[:, 0].log() - math.log(2 * math.pi))
        evidence = (evidence - beta[:, 0] / 2 * residual - alpha[:, 0] / 2 * length) / n
        if float((evidence - last).abs().max()) < _CONVERGED:
            break
        last = evidence
        # MacKay's fixed point: gamma is the number of weights that the data determine
        gamma = (beta * sigma / total).sum(dim=1)
        alpha = (gamma / length.clamp(min=_LEAST)).clamp(_LEAST, 1 / _LEAST)[:, None]
        beta = ((n - gamma) / residual.clamp(min=_LEAST)).clamp(_LEAST, 1 / _LEAST)[:, None]
    return float(evidence.mean())


def is_right_left_out(features: Tensor, labels: Tensor) -> Tensor:
    """Return whether each image is nearest to its own class's mean without it, ``[images]`` bool.

    Features are centred and of length 1. Images of a class that has no other are left out.

    Args:
        features: ``[n, d]``.
        labels: ``[n]``.
    """
    _, numbers, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    kept = counts[numbers] > 1
    if not kept.any():
        return torch.zeros(0, dtype=torch.bool)
    rows = functional.normalize(features.double() - features.double().mean(dim=0), dim=1)
    member = functional.one_hot(numbers).double()
    means = (member.T @ rows) / counts[:, None]
    # exact distances: the quick form of cdist loses the small ones, which decide
    distance = torch.cdist(rows, means, compute_mode="donot_use_mm_for_euclid_dist")
    # |x - mean without x| = n / (n - 1) |x - mean|
    scale = torch.where(member.bool(), (counts / (counts - 1).clamp(min=1))[None].double(), 1.0)
    right: Tensor = (distance * scale).argmin(dim=1) == numbers
    return right[kept]


def _of(features: Tensor | None) -> Tensor:
    assert features is not None, "features are needed, and declared to be"
    return features
