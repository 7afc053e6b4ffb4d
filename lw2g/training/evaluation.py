"""Evaluation on all seen classes, recomputing only what the last task touched.

A test sample's features stay valid as long as the set it gets, and whatever else they depend on, have not
changed. Batches have one size, filled up where samples are missing, so that recomputing a part gives the same
bits as recomputing everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from lw2g.training.features import Integers, VersionedRows
from lw2g.training.images import ImageSet
from lw2g.training.progress import Reporter

__all__ = ["Evaluator", "Predictions"]


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
        found: list[float] = (100.0 * (np.bincount(self.task, right) / np.bincount(self.task))).tolist()
        return found


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
        self._sizes = [int(size) for size in sizes]
        self._features = VersionedRows(len(images))
        self._task = np.repeat(np.arange(len(sizes)), sizes)
        self._pool_state: dict[str, Tensor] = {}
        self._pool_edition = 0

    @property
    def ids(self) -> tuple[str, ...]:
        """Stable ids of all test samples."""
        return self._images.ids

    def sizes(self, tasks: int) -> list[int]:
        """Return the number of test samples of each of the first tasks."""
        return self._sizes[:tasks]

    def features_of(self, count: int) -> Tensor:
        """Return the cached features of the first test samples, ``[count, F]``.

        Raises:
            ValueError: Nothing has been evaluated yet.
        """
        return self._features.rows[:count]

    def forget(self) -> None:
        """Drop all cached features, so that the next evaluation recomputes everything."""
        self._features.forget()

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

        Returns the predictions, and per earlier task the drift of its features since the last evaluation:
        the mean relative change over samples that kept their set, None without any.

        Args:
            baseline: The baseline, in the state after the last task.
            pool: The pool.
            retrieval: The retrieval strategy, None where the baseline makes no hard choice.
            history: The seen tasks.
            reporter: Told about the progress.
        """
        count = sum(self.sizes(len(history)))
        tasks = self._task[:count]
        retrieved, sets = self._retrieve(tasks, pool, retrieval, history)
        sources, versions = self._origins(baseline, pool, sets, len(history))
        known, kept = self._features.compare(sources, versions)
        pairs = np.flatnonzero(~known)
        # sorted by set: a batch then gathers few sets, and images of a task lie together
        pairs = pairs[np.argsort(sets[pairs], kind="stable")]
        changes = [
            self._features.replace(part, features)
            for part, features in self._forwards(pairs, sets[pairs], baseline, pool, reporter)
        ]
        self._features.note(sources, versions)
        change = np.zeros(count)
        if changes:
            change[pairs] = torch.cat(changes).cpu().numpy()
        samples, drifts = np.bincount(tasks[kept]), np.bincount(tasks[kept], change[kept])
        drift = [
            float(drifts[task] / samples[task]) if task < len(samples) and samples[task] else None
            for task in range(len(history) - 1)
        ]
        predictions = Predictions(
            sample=np.arange(count),
            true=self._images.labels[:count].numpy().astype(np.int64),
            predicted=self._classify(count, baseline, history),
            task=tasks,
            retrieved=retrieved,
            set=sets,
        )
        return predictions, drift

    def _retrieve(
        self,
        tasks: Integers,
        pool: Pool,
        retrieval: RetrievalStrategy | None,
        history: Sequence[TaskInfo],
    ) -> tuple[Integers, Integers]:
        """Return the retrieved task of each sample and the set that holds it, -1 where nothing is chosen."""
        if retrieval is None:
            nothing = np.full(len(tasks), -1, dtype=np.int64)
            return nothing, nothing
        if getattr(retrieval, "control", False):
            retrieved = tasks
        else:
            known = [info.index for info in history]
            table = torch.repeat_interleave(
                torch.tensor(known), torch.tensor([len(info.classes) for info in history])
            ).to(self._engine.device)
            positions = range(len(tasks))
            if not retrieval.learned_query:
                self._images.queries(positions)  # new ones of all tasks share forwards
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

    def _origins(
        self, baseline: Baseline, pool: Pool, sets: Integers, tasks: int
    ) -> tuple[Integers, Integers]:
        """Return what each sample's features come from and its version; if both are equal, so are they."""
        match baseline.feature_scope:
            case "backbone":
                return np.zeros_like(sets), np.zeros_like(sets)
            case "set" if not (sets < 0).any():
                table = np.zeros(1 + max(pool.ids), dtype=np.int64)
                table[list(pool.ids)] = [pool.version(one) for one in pool.ids]
                versions = table[sets]
            case "set":
                versions = np.full_like(sets, self._edition_of(pool))
            case _:
                versions = np.full_like(sets, tasks)
        return sets, versions

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

    def _forwards(
        self, images: Integers, sets: Integers, baseline: Baseline, pool: Pool, reporter: Reporter
    ) -> Iterator[tuple[Integers, Tensor]]:
        """Yield features of (image, set) pairs, batch by batch, with the positions of the images.

        Every forward has the same size, whatever it holds: images of several tasks and sets share batches,
        and only the last one is filled up, so that a pair has the same bits whatever it is computed with.

        Args:
            images: Positions of images, ``[P]``; one may stand there with several sets.
            sets: The set of each pair, ``[P]``; -1 where the baseline makes no hard choice.
            baseline: Makes the features.
            pool: Its sets.
            reporter: Told how many batches are done.
        """
        parts = chunks(range(len(images)), self._batch_size)
        padded = [_padded(part, self._batch_size) for part in parts]
        batches = self._images.batches([images[part].tolist() for part in padded])
        for number, (part, whole, batch) in enumerate(zip(parts, padded, batches, strict=True)):
            chosen = None if sets[whole[0]] < 0 else torch.from_numpy(sets[whole])
            # sets that no image gets are left out where they cannot matter: gathering them costs
            routing = pool.route(chosen, alone=baseline.feature_scope != "pool").to(self._engine.device)
            with self._engine.autocast():
                features = baseline.features(batch, routing)
            yield images[part], features[: len(part)].float()
            reporter.advance(number + 1, len(parts))

    def _classify(self, count: int, baseline: Baseline, history: Sequence[TaskInfo]) -> Integers:
        seen = range(history[-1].seen)
        found = []
        for part in chunks(range(count), 4 * self._batch_size):
            logits = baseline.logits(self._features.rows[_padded(part, 4 * self._batch_size)])[: len(part)]
            require_finite(logits[:, : len(seen)], [self.ids[position] for position in part], self._names[0])
            found.append(mask_logits(logits, seen).argmax(1))
        return torch.cat(found).cpu().numpy().astype(np.int64)


def _padded(part: list[int], size: int) -> list[int]:
    return part + [part[0]] * (size - len(part))
