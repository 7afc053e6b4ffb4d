"""Class means of un-prompted features: how near new classes are to old ones, how often they are mistaken.

``centroid`` (ConvPrompt, Roy et al., CVPR 2024, which adds fewer prompts the nearer a task is): the mean
over new classes of the largest cosine with a class mean of the set. The mean of all old class means is
taken off, because what all images share makes every cosine large (.78 against .23 without it). The largest
of many cosines grows with their number, so that a large set wins by size: the null is that of as many
random directions.

``confusion``: the share of the new task's images that would be taken for a task of the set at test time.
Class means of the new task, fitted on half of the evidence sample, compete for the other half (in-sample they
win too often); where an old class wins, the run's own retrieval says which old task it is. Sharing a set with
the tasks that one is mistaken for makes the mistake harmless: it gains ``(N_tj + N_jt) / N`` of the retrieval
accuracy (PRA).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from lw2g.plugin import Measure, Measurement, Sample, Spread, half_samples, spread_over_halves

__all__ = ["Centroid", "Confusion", "expected_largest_cosine"]

_PARTITIONS = 4


class _ClassMeans(Measure):
    """Stores the mean of the queries of each class."""

    needs = frozenset(("queries",))
    stores = "end"
    store_needs = frozenset(("queries",))

    def store(self, sample: Sample) -> Mapping[str, Tensor]:
        """Add the task's class means, and the task of each."""
        (candidate,) = sample.candidates
        stored = sample.stored.get(candidate.set, {})
        means = _means(sample, torch.arange(len(sample)))
        tasks = torch.full((len(means),), sample.task.index)
        if stored:
            means = torch.cat([stored["means"], means])
            tasks = torch.cat([stored["tasks"], tasks])
        return {"means": means, "tasks": tasks}


class Centroid(_ClassMeans):
    """Mean over new classes of the largest cosine with a class mean of the set."""

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return the similarity of every candidate with stored class means."""
        if not sample.stored:
            return {}
        # over all sets, also those that are no candidates: what all images share
        common = torch.cat([stored["means"] for stored in sample.stored.values()]).mean(dim=0)
        halves = half_samples(sample.groups, sample.generator("half-samples"))
        similarities = {}
        for candidate in sample.candidates:
            if candidate.set in sample.stored:
                old = functional.normalize(sample.stored[candidate.set]["means"] - common, dim=1)
                similarities[candidate.set] = _similarity(sample, old, common, halves)
        return similarities


def _similarity(
    sample: Sample, old: Tensor, common: Tensor, halves: Sequence[tuple[Tensor, Tensor]]
) -> Measurement:
    """Return how near the task's classes are to the old classes of one set.

    Args:
        sample: The task's sample.
        old: Centred directions of the set's class means, ``[m, dim]``.
        common: The centre, which is taken off the task's class means too, ``[dim]``.
        halves: Disjoint half-samples, as positions of images.
    """

    def largest_cosines(positions: Tensor) -> Tensor:
        """Return each new class's largest cosine with an old one, from the images at some positions."""
        new = functional.normalize(_means(sample, positions) - common, dim=1)
        return (new @ old.T).amax(dim=1).double()

    cosines = largest_cosines(torch.arange(len(sample)))
    of_images = spread_over_halves(
        lambda positions: float(largest_cosines(positions).mean()), halves, sample.left_out
    )
    spread = _with_class_variance(of_images, cosines)
    return Measurement(
        value=float(cosines.mean()),
        error=spread.error,
        replicates=spread.replicates,
        null=expected_largest_cosine(len(old), old.shape[1]),
        own=_own_similarity(old),
        n=len(sample),
        unit="cosine",
        parts={"classes": float(len(old))},
    )


def _with_class_variance(spread: Spread, cosines: Tensor) -> Spread:
    """Return the spread of a mean over classes that also counts which classes stand for the task.

    Args:
        spread: The spread over which images stand for a class.
        cosines: The value of each class, ``[classes]``.
    """
    if spread.error is None:
        return spread
    image_variance = spread.error**2
    class_variance = 0.0
    if len(cosines) > 1:
        class_variance = float(cosines.var()) / len(cosines)
    error = math.sqrt(image_variance + class_variance)
    if image_variance == 0:
        return Spread(error=error)
    # halves resample images and not classes, so the deviations are scaled to the whole error
    factor = math.sqrt((image_variance + class_variance) / image_variance)
    return Spread(error=error, replicates=tuple(replicate * factor for replicate in spread.replicates))


def _own_similarity(directions: Tensor) -> float | None:
    """Return the mean over a set's classes of the largest cosine with another of them; None for one class."""
    if len(directions) < 2:
        return None
    # the diagonal is lowered below every cosine: a class is not compared with itself
    cosines = directions @ directions.T - 2 * torch.eye(len(directions))
    return float(cosines.amax(dim=1).mean())


class Confusion(_ClassMeans):
    """The share of the new task's queries that would be given to a task of the set."""

    needs = frozenset(("queries", "retrieved"))

    def measure(self, sample: Sample) -> Mapping[int, Measurement]:
        """Return the share of every candidate with stored class means."""
        halves = half_samples(sample.groups, sample.generator("half-samples"), _PARTITIONS)
        if not sample.stored or not halves:
            return {}
        old = torch.cat([of_set["means"] for of_set in sample.stored.values()])
        tasks = torch.cat([of_set["tasks"] for of_set in sample.stored.values()])
        queries = _queries(sample)
        answers: list[Tensor] = []  # the task of each image; the new one's index where it is kept
        for pair in halves:
            # the new classes' means are of one half and the answers of the other, each way round
            for fitted, held_out in (pair, pair[::-1]):
                means = torch.cat([old, _means(sample, fitted)])
                common = means.mean(dim=0)
                images = functional.normalize(queries[held_out] - common, dim=1)
                cosine = images @ functional.normalize(means - common, dim=1).T
                to_old = cosine[:, : len(old)].max(dim=1)
                kept = cosine[:, len(old) :].amax(dim=1)
                # class means say whether an image is lost; to which task, the run's own retrieval
                which = sample.retrieved
                if which is None:
                    which = tasks[to_old.indices]
                else:
                    which = which[held_out]
                answers.append(torch.where(to_old.values > kept, which, sample.task.index))
        answer = torch.cat(answers)
        shares = {}
        for candidate in sample.candidates:
            if candidate.set not in sample.stored:
                continue
            share = float(torch.isin(answer, torch.tensor(candidate.tasks)).double().mean())
            shares[candidate.set] = Measurement(
                value=share,
                # by the images, not by the answers: an image answers in every partition
                error=math.sqrt(share * (1 - share) / len(sample)),
                # all old tasks and the new one are equally likely by chance
                null=len(candidate.tasks) / (len(sample.task_to_set) + 1),
                n=len(sample),
                unit="share",
                parts={"kept": float((answer == sample.task.index).double().mean())},
            )
        return shares


def expected_largest_cosine(count: int, dimensions: int) -> float:
    """Return the expected largest cosine of a direction with ``count`` random ones.

    A cosine has the density ``(1 - x^2)^((d - 3) / 2)``, and the largest of K the distribution ``F^K``.

    >>> [round(expected_largest_cosine(count, 64), 2) for count in (5, 10, 50, 100)]
    [0.15, 0.19, 0.28, 0.31]
    """
    x = torch.linspace(-1, 1, 4001, dtype=torch.float64)
    # in fewer than 3 dimensions the density grows beyond all bounds towards -1 and 1
    density = (1 - x.square()).clamp(min=0) ** ((max(dimensions, 3) - 3) / 2)
    # F at a point counts half of the point's own density
    below = density.cumsum(dim=0) - density / 2
    distribution = below / density.sum()
    # E max = 1 - the integral of F^K from -1 to 1, by parts
    return float(1 - torch.trapezoid(distribution**count, x))


def _queries(sample: Sample) -> Tensor:
    assert sample.queries is not None, "queries are needed, and declared to be"
    return sample.queries


def _means(sample: Sample, at: Tensor) -> Tensor:
    """Return the mean query of each class of the task that has an image among those at some positions."""
    labels = sample.labels[at]
    queries = _queries(sample)[at]
    return torch.stack([queries[labels == label].mean(dim=0) for label in torch.unique(labels)])
