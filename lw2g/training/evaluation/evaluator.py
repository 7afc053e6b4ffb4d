"""Evaluation on all seen classes, recomputing only what the last task touched.

A test sample's features under a set stay valid as long as that set, and whatever else they depend on, have
not changed. Batches have one size, filled up where samples are missing, so that recomputing a part gives the
same bits as recomputing everything.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import cast

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lw2g.interfaces.baseline import Baseline, mask_logits
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.calibration import best_of
from lw2g.interfaces.context import TaskInfo, task_of_class
from lw2g.interfaces.pool import BESIDE, Pool
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.training.devices.engine import Engine
from lw2g.training.evaluation.answers import (
    require_finite,
    require_one_task_each,
    require_scores,
    require_seen,
)
from lw2g.training.evaluation.mixing import Mixer, log_prior, owned_classes
from lw2g.training.evaluation.pairs import padded, pair_features
from lw2g.training.images.decoding import chunks
from lw2g.training.images.features import Integers, VersionedRows
from lw2g.training.images.image_set import ImageSet
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
        set: The set used, of several the first choice; -1 likewise.
        rank: How many sets suit the sample better than the one its task is stored in, by retrieval's scores;
            -1 likewise.
        hard: Where several sets answered, the class that the first choice alone names; else None.
        told: The class under the set of the sample's own task; None where not all sets answered.
        within: The same among the classes of that task alone.
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

    def accuracies(self) -> list[float]:
        """Return the accuracy of every seen task in percent."""
        return self._by_task(self.predicted == self.true)

    def other_accuracies(self) -> dict[str, list[float]]:
        """Return by name what other answers of the same sets would have reached, task by task in percent."""
        others = {"hard": self.hard, "told": self.told, "within": self.within}
        return {
            name: self._by_task(column == self.true) for name, column in others.items() if column is not None
        }

    def retrievals(self, task_to_set: Sequence[int]) -> list[float] | None:
        """Return per task the percentage of samples that got the set their task is stored in."""
        if (self.set < 0).any():
            return None
        return self._by_task(self.set == np.asarray(task_to_set)[self.task])

    def coverage(self, sets: int) -> list[float] | None:
        """Return per task the percentage of samples whose own set is among so many first choices."""
        return None if (self.rank < 0).any() else self._by_task(self.rank < sets)

    def task_accuracies(self) -> list[float]:
        """Return per task the percentage of samples whose predicted class is one of their own task.

        A task's classes begin with the first of which there is a test sample.
        """
        first = np.full(int(self.task.max()) + 1, self.true.max())
        np.minimum.at(first, self.task, self.true)
        return self._by_task(np.searchsorted(first, self.predicted, side="right") - 1 == self.task)

    def _by_task(self, right: npt.NDArray[np.bool_]) -> list[float]:
        found: list[float] = (100.0 * (np.bincount(self.task, right) / np.bincount(self.task))).tolist()
        return found


@attrs.frozen(kw_only=True, eq=False)
class _Routed:
    """What retrieval says of test samples.

    Attributes:
        retrieved: The task of each, ``[N]``; -1 where nothing is chosen.
        rank: As in :class:`Predictions`, ``[N]``.
        sets: The sets that answer, ``[N, k]``, ascending where there are several; -1 where none is chosen.
        first: The set of the retrieved task, ``[N]``.
        soft: Where several answer: the sets' log probabilities ``[N, k]``, and retrieval's own of each seen
            class ``[N, C]``.
    """

    retrieved: Integers
    rank: Integers
    sets: Integers
    first: Integers
    soft: tuple[Tensor, ...] = ()


class Evaluator:
    """Holds what can be reused between evaluations.

    Features are kept per sample and *slot*, as many slots as sets answer for a sample: its memory is that of
    ``N x k`` rows, however many sets there are.

    Args:
        images: All test images of the stream, task after task.
        sizes: Number of test images of each task.
        engine: Device and precision.
        batch_size: Fixed size of every forward.
        names: Of baseline and retrieval strategy, for messages.
        mixer: Makes one answer of those of several sets; None where one set answers.

    Attributes:
        seconds_per_image: Wall time of the last evaluation's forwards per image, all its sets together.
        moved: Of each task seen in the evaluation before, whether its features under its own set may have
            changed since: what statistics of its classes were taken from.
    """

    def __init__(
        self,
        images: ImageSet,
        sizes: Sequence[int],
        engine: Engine,
        batch_size: int,
        names: tuple[str, str],
        mixer: Mixer | None = None,
    ) -> None:
        self._names, self._mixer = names, mixer
        self._images, self._engine, self._batch_size = images, engine, batch_size
        self._sizes = [int(size) for size in sizes]
        self._features = VersionedRows(len(images))
        self._task = np.repeat(np.arange(len(sizes)), sizes)
        self.seconds_per_image = 0.0
        self.moved: list[bool] = []
        self._own: Integers = np.zeros(0, dtype=np.int64)
        self._editions: dict[str, tuple[int, dict[str, Tensor]]] = {}
        self._shown: tuple[int, ...] = (0,)

    @property
    def images(self) -> ImageSet:
        """All test images of the stream, task after task."""
        return self._images

    @property
    def ids(self) -> tuple[str, ...]:
        """Stable ids of all test samples."""
        return self._images.ids

    def sizes(self, tasks: int) -> list[int]:
        """Return the number of test samples of each of the first tasks."""
        return self._sizes[:tasks]

    def features_of(self, count: int) -> Tensor:
        """Return the cached features of the first test samples, ``[count, F]``.

        Those in the first slot, or side by side in all slots where all sets answer.

        Raises:
            ValueError: Nothing has been evaluated yet.
        """
        return self._side_by_side(range(count)).flatten(1)

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
        the mean relative change over samples (and sets) that kept their set, None without any.

        Args:
            baseline: The baseline, in the state after the last task.
            pool: The pool.
            retrieval: The retrieval strategy, None where the baseline makes no hard choice.
            history: The seen tasks.
            reporter: Told about the progress.
        """
        count = sum(self.sizes(len(history)))
        tasks = self._task[:count]
        each = baseline.feature_scope == "each"
        routed = (
            _unchosen(count, baseline, pool)
            if retrieval is None
            else self._retrieve(tasks, pool, retrieval, history)
        )
        every = each or routed.sets.shape[1] == len(pool)
        placed = self._features.place(routed.sets, all_of_them=every)
        beside = len(baseline.beside()) if each else 0
        self._shown = (*range(beside, placed.shape[1]), *range(beside)) if every else (0,)
        self._compare_own(baseline, pool, retrieval, len(history))
        sources, versions = self._origins(baseline, pool, placed, len(history))
        known, kept = self._features.compare(sources, versions)
        images, slots = np.nonzero(~known)
        # sorted by set: a batch then gathers few sets, and images of a task lie together
        order = np.argsort(placed[images, slots], kind="stable")
        images, slots = images[order], slots[order]
        begin = time.perf_counter()
        changes = [
            self._features.replace(images[part], slots[part], features)
            for part, features in pair_features(
                self._images,
                images,
                placed[images, slots],
                (baseline, pool, self._engine),
                self._batch_size,
                reporter.advance,
            )
        ]
        if len(images):
            self.seconds_per_image = (time.perf_counter() - begin) / len(images) * placed.shape[1]
        self._features.note(sources, versions)
        change = np.zeros(placed.shape)
        if changes:
            change[images, slots] = torch.cat(changes).cpu().numpy()
        of_task = np.broadcast_to(tasks[:, None], placed.shape)[kept]
        samples, drifts = np.bincount(of_task), np.bincount(of_task, change[kept])
        drift = [
            float(drifts[task] / samples[task]) if task < len(samples) and samples[task] else None
            for task in range(len(history) - 1)
        ]
        named = self._classify(count, placed, routed, baseline, pool, history)
        if each and (chosen := self._chosen_by(baseline, tasks, pool)) is not None:
            routed = chosen
        predictions = Predictions(
            sample=np.arange(count),
            true=self._images.labels[:count].numpy().astype(np.int64),
            task=tasks,
            retrieved=routed.retrieved,
            set=routed.first,
            rank=routed.rank,
            **named,
        )
        return predictions, drift

    def _retrieve(
        self,
        tasks: Integers,
        pool: Pool,
        retrieval: RetrievalStrategy,
        history: Sequence[TaskInfo],
    ) -> _Routed:
        """Return what retrieval says of the samples."""
        owner = np.asarray(pool.task_to_set, dtype=np.int64)
        if getattr(retrieval, "control", False):
            first = owner[tasks]
            return _Routed(retrieved=tasks, rank=np.zeros_like(tasks), first=first, sets=first[:, None])
        positions = range(len(tasks))
        if not retrieval.learned_query:
            self._images.queries(positions)  # new ones of all tasks share forwards
        table = task_of_class(history, self._engine.device)
        parts = chunks(positions, self._batch_size)
        filled = [padded(part, self._batch_size) for part in parts]
        answers = (
            self._ask(retrieval, batch, pool, table, tasks[batch.samples.numpy()])
            for batch in self._images.batches(filled)
        )
        asked = [
            [answer[: len(part)] for answer in found] for part, found in zip(parts, answers, strict=True)
        ]
        found, rank, sound, *soft = (torch.cat(column).cpu() for column in zip(*asked, strict=True))
        require_scores(sound, self.ids, self._names[1])
        require_seen(found, [info.index for info in history], self._names[1])
        retrieved = found.numpy().astype(np.int64)
        first = owner[retrieved]
        sets = soft[0].numpy() if soft else first[:, None]
        return _Routed(retrieved=retrieved, rank=rank.numpy(), first=first, sets=sets, soft=tuple(soft[1:]))

    def _ask(
        self, retrieval: RetrievalStrategy, batch: Batch, pool: Pool, table: Tensor, tasks: Integers
    ) -> list[Tensor]:
        """Return of a batch the retrieved task, the rank of its own set, and whether the scores are sound.

        For a mix, what that needs follows.
        """
        known = range(int(table[-1]) + 1)
        with self._engine.autocast():
            query = retrieval.query(batch).float()
        found = require_one_task_each(retrieval.retrieve(query, known, table), len(batch), self._names[1])
        owner = torch.tensor(pool.task_to_set, device=query.device)[: len(known)]
        raw = retrieval.scores(query, known, table)
        sound, scores = raw.amax(dim=1).isfinite(), best_of(raw, owner, len(pool))
        own = owner[torch.from_numpy(tasks).to(owner.device)]
        rank = (scores > scores.gather(1, own[:, None])).sum(dim=1)
        if self._mixer is None:
            return [found, rank, sound]
        log_tasks = retrieval.log_posterior(query, known, table)
        prior = log_prior(retrieval, query, table, log_tasks)
        return [found, rank, sound, *self._mixer.choose(log_tasks, owner, len(pool)), prior.float()]

    def _origins(
        self, baseline: Baseline, pool: Pool, sets: Integers, tasks: int
    ) -> tuple[Integers, Integers]:
        """Return what each sample's features come from and its version; if both are equal, so are they."""
        match baseline.feature_scope:
            case "backbone":
                return np.zeros_like(sets), np.zeros_like(sets)
            case "each":
                beside = [
                    self._edition_of(f"beside {number}", one.state_dict())
                    for number, one in enumerate(baseline.beside())
                ]
                column = np.asarray([*(pool.version(one) for one in pool.ids), *beside], dtype=np.int64)
                versions = column[np.where(sets < 0, len(pool) + BESIDE - sets, sets)]
            case "set" if not (sets < 0).any():
                table = np.zeros(1 + max(pool.ids), dtype=np.int64)
                table[list(pool.ids)] = [pool.version(one) for one in pool.ids]
                versions = table[sets]
            case "set":
                versions = np.full_like(sets, self._edition_of("pool", pool.state_dict()))
            case _:
                versions = np.full_like(sets, tasks)
        return sets, versions

    def _compare_own(
        self, baseline: Baseline, pool: Pool, retrieval: RetrievalStrategy | None, tasks: int
    ) -> None:
        """Note for which tasks the features of their own images may have changed."""
        owner = np.asarray(pool.task_to_set[:tasks], dtype=np.int64)
        chosen = retrieval is not None or baseline.feature_scope == "each"
        own = owner if chosen else np.full_like(owner, -1)
        _, versions = self._origins(baseline, pool, own, tasks)
        before, self._own = self._own, versions
        self.moved = (before != versions[: len(before)]).tolist()

    def _edition_of(self, name: str, state: Mapping[str, Tensor]) -> int:
        """Return a number that is the same as long as no tensor of a state has changed.

        Versions of the pool count the tasks that had a set; a method that trains its one set in some tasks
        only (Aper) has features that outlive them.
        """
        edition, old = self._editions.get(name, (0, {}))
        if old.keys() != state.keys() or any(not torch.equal(old[key], state[key]) for key in state):
            edition += 1
            self._editions[name] = edition, {key: value.clone() for key, value in state.items()}
        return edition

    def _classify(
        self,
        count: int,
        placed: Integers,
        routed: _Routed,
        baseline: Baseline,
        pool: Pool,
        history: Sequence[TaskInfo],
    ) -> dict[str, Integers]:
        """Return the columns of :class:`Predictions` that name classes."""
        seen = history[-1].seen
        size = self._batch_size if routed.soft else 4 * self._batch_size
        found: dict[str, list[Tensor]] = {}
        for part in chunks(range(count), size):
            whole = padded(part, size)
            if routed.soft:
                answers = self._mixed(whole, placed[whole], routed, baseline, pool, history)
            elif baseline.feature_scope == "each":
                answers = self._of_each(whole, baseline, pool, history)
            else:
                logits = baseline.logits(self._features.rows()[whole])
                answers = {"predicted": mask_logits(logits, range(seen))}
            names = [self.ids[position] for position in part]
            require_finite(answers["predicted"][: len(part), :seen], names, self._names[0])
            for name, answer in answers.items():
                found.setdefault(name, []).append(answer[: len(part)].argmax(1))
        return {name: torch.cat(parts).cpu().numpy().astype(np.int64) for name, parts in found.items()}

    def _of_each(
        self, whole: list[int], baseline: Baseline, pool: Pool, history: Sequence[TaskInfo]
    ) -> dict[str, Tensor]:
        """Return what a baseline says by all its sets, and where it chooses one, what that says alone."""
        rows, seen = self._side_by_side(whole), range(history[-1].seen)
        scores = {"predicted": mask_logits(baseline.logits(rows), seen)}
        suited = baseline.set_scores(rows)
        if suited is not None:
            task = torch.from_numpy(self._task[whole]).to(rows.device)
            owner = torch.tensor(pool.task_to_set, device=rows.device)
            every = torch.arange(len(rows), device=rows.device)
            for name, place in (("hard", suited.argmax(dim=1)), ("told", owner[task])):
                alone = rows[every, place][:, None].expand_as(rows)  # as if all said what this one says
                scores[name] = mask_logits(baseline.logits(alone), seen)
            others = task_of_class(history, rows.device) != task[:, None]
            scores["within"] = scores["told"][:, : len(seen)].masked_fill(others, float("-inf"))
        return scores

    def _side_by_side(self, positions: Sequence[int]) -> Tensor:
        """Return the features of some samples in the slots that mean the same for all, ``[n, K, F]``."""
        rows = list(positions)
        return torch.stack([self._features.rows(slot)[rows] for slot in self._shown], dim=1)

    def _chosen_by(self, baseline: Baseline, tasks: Integers, pool: Pool) -> _Routed | None:
        """Return which set the answers of all sets chose, None where the method chooses none."""
        found = []
        for part in chunks(range(len(tasks)), self._batch_size):
            scores = baseline.set_scores(self._side_by_side(padded(part, self._batch_size)))
            if scores is None:
                return None
            found.append(scores[: len(part)].cpu())
        scores = torch.cat(found)
        own = torch.as_tensor(pool.task_to_set)[torch.from_numpy(tasks)]
        first = scores.argmax(dim=1).numpy().astype(np.int64)
        # of the tasks that share a set, the first stands for it
        retrieved = np.asarray([pool.tasks_of(one)[0] for one in pool.ids], dtype=np.int64)[first]
        rank = (scores > scores.gather(1, own[:, None])).sum(dim=1).numpy()
        return _Routed(retrieved=retrieved, rank=rank, first=first, sets=first[:, None])

    def _mixed(
        self,
        whole: list[int],
        placed: Integers,
        routed: _Routed,
        baseline: Baseline,
        pool: Pool,
        history: Sequence[TaskInfo],
    ) -> dict[str, Tensor]:
        """Return scores of the seen classes of some samples, ``[B, C]``, by the column they decide."""
        order = torch.from_numpy(np.argsort(placed, axis=1))
        rows = torch.stack([self._features.rows(slot)[whole] for slot in range(placed.shape[1])], dim=1)
        rows = rows[torch.arange(len(whole))[:, None], order]  # as the sets ascend, whatever their slots
        device = rows.device
        log_sets, prior = (tensor[whole].to(device) for tensor in routed.soft)
        logits = baseline.logits(rows.flatten(0, 1))[:, : history[-1].seen]
        logits = logits.reshape(*placed.shape, -1)
        sets = torch.from_numpy(np.sort(placed, axis=1)).to(device)
        owner = torch.tensor(pool.task_to_set, device=device)
        of_class = task_of_class(history, device)
        owned = owned_classes(sets, owner, of_class)
        mixed = cast(Mixer, self._mixer).combine(logits, log_sets, owned, prior)
        first = torch.from_numpy(routed.first[whole]).to(device)
        scores = {"predicted": mixed, "hard": _under(first, sets, logits)}
        if placed.shape[1] == len(pool):
            task = torch.from_numpy(self._task[whole]).to(device)
            told = _under(owner[task], sets, logits)
            others = of_class != task[:, None]
            scores |= {"told": told, "within": told.masked_fill(others, float("-inf"))}
        return scores


def _under(wanted: Tensor, sets: Tensor, logits: Tensor) -> Tensor:
    """Return the logits ``[B, C]`` under one set ``[B]`` each, out of those under ``sets`` ``[B, k]``."""
    place = (sets == wanted[:, None]).int().argmax(dim=1)
    return logits[torch.arange(len(logits), device=logits.device), place]


def _unchosen(count: int, baseline: Baseline, pool: Pool) -> _Routed:
    """Return that nothing is chosen: the sets as they are answer, or each of them and what is beside them."""
    nothing = np.full(count, -1, dtype=np.int64)
    column = [-1]
    if baseline.feature_scope == "each":
        # what is beside the sets comes first, so that a slot keeps what it holds when there are more of them
        column = [*(BESIDE - number for number in range(len(baseline.beside()))), *pool.ids]
    sets = np.tile(np.asarray(column, dtype=np.int64), (count, 1))
    return _Routed(retrieved=nothing, rank=nothing, first=nothing, sets=sets)
