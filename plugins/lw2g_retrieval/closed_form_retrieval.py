"""Retrieval by a closed-form classifier on un-prompted features: no epochs, exact in a stream.

The features are those of the frozen backbone, so that no statistic ever goes stale, whatever the sets do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from lw2g.plugin import (
    BuildContext,
    ClassRetrieval,
    ClosedForm,
    ComputePhase,
    Discriminant,
    Mahalanobis,
    Phase,
    Ridge,
    TaskContext,
    collect_features,
    derive_seed,
    held_back,
)
from lw2g_retrieval.options import LdaConfig, MahalanobisConfig, RidgeConfig

__all__ = ["ClosedFormRetrieval", "lda", "mahalanobis", "ridge"]


class ClosedFormRetrieval(ClassRetrieval):
    """The task of the most probable class, by a classifier in closed form.

    A fifth of a task's images is scored before it is taken in: these scores fit the temperature that turns
    scores into probabilities.

    Args:
        classifier: Fitted to queries.
        context: What is known before the first task.
    """

    def __init__(self, classifier: ClosedForm, context: BuildContext) -> None:
        super().__init__(context)
        self.classifier = classifier
        self.to(context.device)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: take in the task's queries."""

        def run(progress: Callable[[int, int], None]) -> None:
            queries, labels = collect_features(context, lambda batch: batch.query, progress)
            self.fit(queries, labels, context)

        return (ComputePhase(name="retrieval-statistics", run=run),)

    def fit(self, queries: Tensor, labels: Tensor, context: TaskContext) -> None:
        """Take in the queries ``[n, dim]`` of a task's images with labels ``[n]``."""
        held = held_back(labels)
        self.classifier.learn(queries[~held], labels[~held], context.generator("retrieval-statistics"))
        if held.any():
            # scored before they are taken in: a classifier is too sure of what it was fitted to
            tasks = [info.index for info in context.history]
            scores = self.scores(queries[held], tasks, context.task_of_class())
            self.temperature.observe(scores, tasks.index(context.task.index))
            # then they join: the sums are of all images
            self.classifier.update(queries[held], labels[held])

    def class_scores(self, query: Tensor, classes: int) -> Tensor:
        """Return the scores of the first classes, ``[B, classes]`` float64."""
        return self.classifier.scores(query, classes)

    def calibrate(self, context: TaskContext) -> None:
        """Do nothing: the temperature was fitted to the images held back."""


def lda(config: LdaConfig, context: BuildContext) -> ClosedFormRetrieval:
    """Build ``lda``: class means and one covariance."""
    classifier = Discriminant(context.backbone.width, context.num_classes, config.shrinkage)
    return ClosedFormRetrieval(classifier, context)


def mahalanobis(config: MahalanobisConfig, context: BuildContext) -> ClosedFormRetrieval:
    """Build ``mahalanobis``: class means, each class with its own covariance."""
    classifier = Mahalanobis(context.backbone.width, context.num_classes, config.diagonal)
    return ClosedFormRetrieval(classifier, context)


def ridge(config: RidgeConfig, context: BuildContext) -> ClosedFormRetrieval:
    """Build ``ridge``: regression of one-hot labels on random features."""
    seed = derive_seed(context.seed, "retrieval", "projection")
    classifier = Ridge(context.backbone.width, context.num_classes, config.features, seed)
    return ClosedFormRetrieval(classifier, context)
