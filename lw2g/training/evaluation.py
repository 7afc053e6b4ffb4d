"""Evaluation on all seen classes, recomputing only what the last task touched.

A test sample's features stay valid as long as the set it gets, and whatever else they depend on, have not
changed. Batches are padded to a fixed size, so that recomputing a part gives the same bits as recomputing
everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lw2g.interfaces.baseline import Baseline, mask_logits
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.training.answers import require_finite, require_one_task_each, require_seen
from lw2g.training.decoding import chunks
from lw2g.training.devices import Engine
from lw2g.training.images import ImageSet
from lw2g.training.progress import Reporter

__all__ = ["Evaluator", "Predictions"]

Integers = npt.NDArray[np.int64]


@attrs.frozen(kw_only=True, eq=False)
class Predictions:
    """One row per test sample of the seen tasks.

    Attributes:
        sample: Position in the list of sample ids.
        true: True class.
        predicted: Predicted class.
        task: The sample's task.
        retrieved: Retrieved task; -1 where the baseline makes no hard choice.
        set: The set used; -1 likewise.
    """

    sample: Integers
    true: Integers
    predicted: Integers
    task: Integers
    retrieved: Integers
    set: Integers

    def accuracies(self) -> list[float]:
        """Return the accuracy of every seen task in percent."""
        return self._by_task(self.predicted == self.true)

    def retrievals(self, task_to_set: Sequence[int]) -> list[float] | None:
        """Return per task the percentage of samples that got the set their task is stored in."""
        if (self.set < 0).any():
            return None
        return self._by_task(self.set == np.asarray(task_to_set)[self.task])

    def _by_task(self, right: npt.NDArray[np.bool_]) -> list[float]:
        return [100.0 * float(right[self.task == task].mean()) for task in range(int(self.task.max()) + 1)]


class Evaluator:
    """Holds what can be reused between evaluations.

    Args:
        images: All test images of the stream, task after task.
        sizes: Number of test images of each task.
        engine: Device and precision.
        batch_size: Fixed size of every forward.
        names: Of baseline and retrieval strategy, for messages.
    """

    def __init__(
        self,
        images: ImageSet,
        sizes: Sequence[int],
        engine: Engine,
        batch_size: int,
        names: tuple[str, str],
    ) -> None:
        self._names = names
        self._images, self._engine, self._batch_size = images, engine, batch_size
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self._features: Tensor | None = None
        self._stamps: list[tuple[int, ...] | None] = [None] * len(images)
        self._sets = np.full(len(images), -2, dtype=np.int64)
        self._pool_state: dict[str, Tensor] = {}
        self._pool_edition = 0

    @property
    def ids(self) -> tuple[str, ...]:
        """Stable ids of all test samples."""
        return self._images.ids

    def sizes(self, tasks: int) -> list[int]:
        """Return the number of test samples of each of the first tasks."""
        return [int(size) for size in np.diff(self._starts[: tasks + 1])]

    def features_of(self, count: int) -> Tensor:
        """Return the cached features of the first test samples, ``[count, F]``.

        Raises:
            ValueError: Nothing has been evaluated yet.
        """
        if self._features is None:
            raise ValueError("expected an evaluation, but there was none yet")
        return self._features[:count]

    def forget(self) -> None:
        """Drop all cached features, so that the next evaluation recomputes everything."""
        self._stamps = [None] * len(self._images)

    @torch.no_grad()
    def evaluate(
        self,
        baseline: Baseline,
        pool: Pool,
        retrieval: RetrievalStrategy | None,
        history: Sequence[TaskInfo],
        reporter: Reporter,
    ) -> tuple[Predictions, list[float | None]]:
        """Predict every test sample of the seen tasks; unseen classes are masked.

        Returns the predictions, and per earlier task the drift of its features since the last evaluation.

        Args:
            baseline: The baseline, in the state after the last task.
            pool: The pool.
            retrieval: The retrieval strategy, None where the baseline makes no hard choice.
            history: The seen tasks.
            reporter: Told about the progress.
        """
        positions = list(range(int(self._starts[len(history)])))
        labels = self._images.labels[positions].numpy()
        tasks = np.repeat(np.arange(len(history)), self.sizes(len(history)))
        retrieved, sets = self._retrieve(positions, tasks, pool, retrieval, history)
        edition = self._edition_of(pool) if retrieval is None else 0
        stamps = [self._stamp(baseline, pool, int(chosen), len(history), edition) for chosen in sets]
        stale = [position for position in positions if stamps[position] != self._stamps[position]]
        before = None if self._features is None else self._features.clone()
        known = np.array([stamp is not None for stamp in self._stamps[: len(positions)]])
        self._recompute(stale, sets, baseline, pool, retrieval is not None, reporter)
        for position in stale:
            self._stamps[position] = stamps[position]
        kept = known & (self._sets[: len(positions)] == sets)
        self._sets[: len(positions)] = sets
        drift = [self._drift(before, kept & (tasks == task)) for task in range(len(history) - 1)]
        predicted = self._classify(positions, baseline, history)
        predictions = Predictions(
            sample=np.asarray(positions, dtype=np.int64),
            true=labels.astype(np.int64),
            predicted=predicted,
            task=tasks,
            retrieved=retrieved,
            set=sets,
        )
        return predictions, drift

    def _drift(self, before: Tensor | None, kept: npt.NDArray[np.bool_]) -> float | None:
        """Return the mean relative change of features of samples that kept their set, None without any."""
        if before is None or self._features is None or not kept.any():
            return None
        rows = torch.as_tensor(np.flatnonzero(kept), device=before.device)
        old, new = before[rows], self._features[rows]
        change = torch.linalg.vector_norm(new - old, dim=1) / torch.linalg.vector_norm(old, dim=1)
        return float(change.mean())

    def _retrieve(
        self,
        positions: Sequence[int],
        tasks: Integers,
        pool: Pool,
        retrieval: RetrievalStrategy | None,
        history: Sequence[TaskInfo],
    ) -> tuple[Integers, Integers]:
        if retrieval is None:
            nothing = np.full(len(positions), -1, dtype=np.int64)
            return nothing, nothing
        if getattr(retrieval, "control", False):
            retrieved = tasks.astype(np.int64)
        else:
            task_of_class = torch.cat([torch.full((len(info.classes),), info.index) for info in history])
            known = [info.index for info in history]
            table = task_of_class.to(self._engine.device)
            parts = chunks(positions, self._batch_size)
            padded = [_padded(part, self._batch_size) for part in parts]
            found = []
            for part, batch in zip(parts, self._images.batches(padded), strict=True):
                with self._engine.autocast():
                    query = retrieval.query(batch).float()
                answer = retrieval.retrieve(query, known, table)
                found.append(require_one_task_each(answer, self._batch_size, self._names[1])[: len(part)])
            chosen = torch.cat(found).cpu()
            require_seen(chosen, known, self._names[1])
            retrieved = chosen.numpy().astype(np.int64)
        return retrieved, np.asarray(pool.task_to_set, dtype=np.int64)[retrieved]

    def _edition_of(self, pool: Pool) -> int:
        """Return a number that is the same as long as no tensor of any set has changed.

        Versions count the tasks that had a set; a method that trains its one set in some tasks only (Aper)
        has features that outlive them.
        """
        old, new = self._pool_state, pool.state_dict()
        if old.keys() != new.keys() or any(not torch.equal(old[name], new[name]) for name in new):
            self._pool_state = {name: value.clone() for name, value in new.items()}
            self._pool_edition += 1
        return self._pool_edition

    @staticmethod
    def _stamp(baseline: Baseline, pool: Pool, set_id: int, tasks: int, edition: int) -> tuple[int, ...]:
        """Return what a sample's features came from; equal stamps mean equal features."""
        match baseline.feature_scope:
            case "backbone":
                return ()
            case "set" if set_id >= 0:
                return (set_id, pool.version(set_id))
            case "set":
                return (edition,)
            case _:
                return (tasks, set_id)

    def _recompute(
        self,
        stale: Sequence[int],
        sets: Integers,
        baseline: Baseline,
        pool: Pool,
        routed: bool,
        reporter: Reporter,
    ) -> None:
        # Sorted by set: a batch then gathers few sets, and images of a task lie together.
        ordered = sorted(stale, key=lambda position: (int(sets[position]), position))
        parts = chunks(ordered, self._batch_size)
        padded = [_padded(part, self._batch_size) for part in parts]
        where = {set_id: place for place, set_id in enumerate(pool.ids)}
        for number, (part, whole, batch) in enumerate(
            zip(parts, padded, self._images.batches(padded), strict=True)
        ):
            chosen = torch.tensor([where[int(sets[p])] for p in whole]) if routed else None
            routing = pool.route(None if chosen is None else chosen.to(self._engine.device))
            with self._engine.autocast():
                features = baseline.features(batch, routing)[: len(part)].float()
            if self._features is None:
                self._features = features.new_zeros(len(self._images), *features.shape[1:])
            self._features[part] = features
            reporter.advance(number + 1, len(parts))

    def _classify(
        self, positions: Sequence[int], baseline: Baseline, history: Sequence[TaskInfo]
    ) -> Integers:
        if self._features is None:
            return np.empty(0, dtype=np.int64)
        seen = range(history[-1].seen)
        found = []
        for part in chunks(positions, 4 * self._batch_size):
            logits = baseline.logits(self._features[_padded(part, 4 * self._batch_size)])[: len(part)]
            require_finite(logits[:, : len(seen)], [self.ids[position] for position in part], self._names[0])
            found.append(mask_logits(logits, seen).argmax(1))
        return torch.cat(found).cpu().numpy().astype(np.int64)


def _padded(part: list[int], size: int) -> list[int]:
    return part + [part[0]] * (size - len(part))
