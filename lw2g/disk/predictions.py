"""The predictions of an evaluation, as the run directory keeps them: one row per test image."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from lw2g.maths.metrics import Integers, owning_sets, owning_tasks

__all__ = ["Predictions"]


@attrs.frozen(kw_only=True, eq=False)
class Predictions:
    """One row per test sample of the seen tasks.

    Attributes:
        sample: Position in the list of sample ids.
        true: True class (its target).
        predicted: Predicted class (its target).
        task: The sample's task: the first that brought its class in its domain.
        retrieved: Retrieved task; -1 where the baseline makes no hard choice.
        set: The set used, the first choice of several; -1 likewise.
        rank: Number of sets that retrieval scores above all that own the sample; -1 likewise.
        hard: Where several sets answered, the prediction of the first choice alone; else None.
        told: The class under the set of the newest task that owns the sample; None where not all sets
            answered.
        within: The same among the classes of that task alone.
        probability: Of the predicted class, in millionths; None unless
            ``run.probabilities`` asks for it.
    """

    sample: Integers
    true: Integers
    predicted: Integers
    task: Integers
    retrieved: Integers
    set: Integers
    rank: Integers
    hard: Integers | None = None
    told: Integers | None = None
    within: Integers | None = None
    probability: Integers | None = None

    def accuracies(self) -> list[float | None]:
        """Return the accuracy of every seen task in percent; None for one without test images."""
        return self._by_task(self.predicted == self.true)

    def other_accuracies(self) -> dict[str, list[float | None]]:
        """Return by name the accuracies of the other answers of the same sets, task by task in percent."""
        others = {"hard": self.hard, "told": self.told, "within": self.within}
        return {
            name: self._by_task(column == self.true) for name, column in others.items() if column is not None
        }

    def retrievals(
        self, task_to_set: Sequence[int], classes: Sequence[Sequence[int]], domains: Sequence[str]
    ) -> list[float | None] | None:
        """Return per task the percentage of samples whose set holds a task that owns them.

        Args:
            task_to_set: The set of each task.
            classes: The classes (targets) of each task.
            domains: Its domain.
        """
        if (self.set < 0).any():
            return None
        rows, tasks = owning_tasks(self.task, self.true, classes, domains)
        return self._by_task(owning_sets(tasks, task_to_set)[rows, self.set])

    def coverage(self, sets: int) -> list[float | None] | None:
        """Return per task the percentage of samples whose own set is among the first ``sets`` choices."""
        if (self.rank < 0).any():
            return None
        return self._by_task(self.rank < sets)

    def _by_task(self, right: npt.NDArray[np.bool_]) -> list[float | None]:
        samples = np.bincount(self.task)
        # a task without test images has no accuracy, and must not divide by zero
        shares = 100.0 * (np.bincount(self.task, right) / np.maximum(samples, 1))
        return [share if count else None for share, count in zip(shares.tolist(), samples, strict=True)]
