"""The carries of the study in numpy: what they do to class means and a shared covariance.

``tests/unit/test_carries_experiment.py`` compares them with ``lw2g.blocks.carrying`` and works the gate out
by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
"""Features, ``[n, dim]``."""

Map = Callable[[Rows], Rows]

SHRINKAGE = 0.01
"""Share of ``lda``'s covariance that a multiple of the identity replaces (lw2g's default)."""

STRENGTHS = (0.01, 0.1, 1.0, 10.0)
SHARES = (0.05, 0.25, 1.0, float("inf"))
HELD = 5
"""Every fifth class judges the candidates of a carry."""

MOST = 1024
"""Images whose distances give the width of a shift."""


class Motion:
    """Where a task takes features: ``x -> move(x)``; its linear part moves a scatter, None leaves it."""

    def __init__(self, move: Map, linear: Rows | None = None) -> None:
        self.move, self.linear = move, linear

    def __call__(self, rows: Rows) -> Rows:
        """Return features ``[n, dim]`` after the motion."""
        return self.move(rows)

    def scatter(self, scatter: Rows) -> Rows:
        """Return a scatter ``[dim, dim]`` after the motion."""
        return scatter if self.linear is None else self.linear.T @ scatter @ self.linear


def still(before: Rows, after: Rows) -> Motion:
    """Return the motion that moves nothing."""
    return Motion(lambda rows: rows)


def affine(before: Rows, after: Rows, strength: float) -> Motion:
    """Return the map ``x A + b`` by ridge regression, A shrunk towards the identity."""
    centre, moved = before.mean(0), after.mean(0)
    rows = before - centre
    scatter = rows.T @ rows
    held = max(strength * np.diag(scatter).mean(), np.finfo(float).tiny) * np.eye(len(scatter))
    matrix = np.linalg.solve(scatter + held, rows.T @ (after - moved) + held)
    return Motion(lambda rows: rows @ matrix + (moved - centre @ matrix), matrix)


def shift(before: Rows, after: Rows, share: float) -> Motion:
    """Return the motion by the drift of near images; ``share`` median squared distances are near."""
    drift = after - before
    if share == float("inf"):
        return Motion(lambda rows: rows + drift.mean(0))
    apart = distances(some := before[:: -(-len(before) // MOST)], some)[np.triu_indices(len(some), 1)]
    apart = np.sort(apart[apart > 0])
    width = share * (apart[(len(apart) - 1) // 2] if len(apart) else 1.0)

    def moved(rows: Rows) -> Rows:
        nearness = -distances(rows, before) / (2 * width)
        weights = np.exp(nearness - nearness.max(1, keepdims=True))
        return rows + weights / weights.sum(1, keepdims=True) @ drift

    return Motion(moved)


def distances(one: Rows, other: Rows) -> Rows:
    """Return squared distances ``[n, m]``."""
    return np.stack([np.square(row - other).sum(1) for row in one]) if len(one) else np.zeros((0, len(other)))


def _affine(strength: float) -> Callable[[Rows, Rows], Motion]:
    return lambda before, after: affine(before, after, strength)


def _shift(share: float) -> Callable[[Rows, Rows], Motion]:
    return lambda before, after: shift(before, after, share)


_MAPS = [_affine(strength) for strength in STRENGTHS]
_SHIFTS = [_shift(share) for share in SHARES]

CANDIDATES: Mapping[str, list[Callable[[Rows, Rows], Motion]]] = {
    "none": [still],
    "shift": _SHIFTS,
    "affine": _MAPS,
    "auto": [still, *_MAPS, *_SHIFTS],
}
"""The candidates of each carry; the last one serves where no image can be held out."""


def fit(carry: str, before: Rows, after: Rows, labels: NDArray[np.int64]) -> Motion:
    """Return the motion of images' features by the candidate of a carry that held-out classes choose.

    Args:
        carry: Its name in :data:`CANDIDATES`.
        before: Features before a task, ``[n, dim]``.
        after: Features of the same images after it.
        labels: Their classes, ``[n]``.
    """
    candidates = CANDIDATES[carry]
    classes, places = np.unique(labels, return_inverse=True)
    held = (places if len(classes) > 1 else np.arange(len(labels))) % HELD == 0
    choice = len(candidates) - 1
    if len(candidates) > 1 and not held.all():
        motions = [candidate(before[~held], after[~held]) for candidate in candidates]
        choice = int(np.argmin([np.square(motion(before[held]) - after[held]).sum() for motion in motions]))
    return candidates[choice](before, after)


def gates(old: Rows, new: Rows, tau: float = 1.0) -> NDArray[np.float64]:
    """Return how far each old class follows a motion of new classes, ``[old]`` within 0 to 1.

    ``min(1, tau r / d)``, d the squared distance to the nearest new class, r the median over new classes of
    that to the nearest other one: a class as near as new classes are to each other follows wholly, a far one
    hardly.

    Args:
        old: Means of old classes, ``[old, dim]``.
        new: Means of the task's classes before it, ``[new, dim]``, at least two.
        tau: Factor on r.
    """
    between = distances(new, new)
    np.fill_diagonal(between, np.inf)
    reach = max(tau * float(np.median(between.min(1))), np.finfo(float).tiny)
    return reach / np.maximum(distances(old, new).min(1), reach)


class Discriminant:
    """Linear discriminant analysis from class means and one scatter, as lw2g's ``lda``.

    Attributes:
        mean: Class means, ``[classes, dim]``.
        scatter: Scatter about them, ``[dim, dim]``.
        count: Images in all.
    """

    def __init__(self, dim: int) -> None:
        self.mean = np.zeros((0, dim))
        self.scatter = np.zeros((dim, dim))
        self.count = 0

    def copy(self) -> Discriminant:
        """Return a copy."""
        other = Discriminant(self.mean.shape[1])
        other.mean, other.scatter, other.count = self.mean.copy(), self.scatter.copy(), self.count
        return other

    def carry(self, motion: Motion) -> None:
        """Move means and scatter by a motion."""
        self.mean, self.scatter = motion(self.mean), motion.scatter(self.scatter)

    def learn(self, rows: Rows, labels: NDArray[np.int64]) -> None:
        """Add the images of new classes, numbered on from those known."""
        for label in np.unique(labels):
            own = rows[labels == label]
            self.mean = np.vstack([self.mean, own.mean(0)])
            self.scatter = self.scatter + (own - own.mean(0)).T @ (own - own.mean(0))
        self.count += len(rows)

    def posteriors(self, rows: Rows) -> Rows:
        """Return log posteriors under equal priors, ``[n, classes]``."""
        covariance = self.scatter / max(self.count - len(self.mean), 1)
        level = max(np.diag(covariance).mean(), np.finfo(float).tiny)
        covariance = (1 - SHRINKAGE) * covariance + SHRINKAGE * level * np.eye(len(covariance))
        weight = np.linalg.solve(covariance, self.mean.T)
        return normalised(rows @ weight - 0.5 * (self.mean * weight.T).sum(1))


def normalised(scores: Rows) -> Rows:
    """Return log softmax of scores, ``[n, classes]``."""
    scores = scores - scores.max(1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))
