"""Evaluation on all seen classes, recomputing only what the last task touched.

The evaluator is a cache around the predictor. A test sample's features under a set stay valid as long as that
set, and whatever else they depend on, have not changed. Batches have one size, filled up where samples are
missing, so that recomputing a part gives the same bits as recomputing everything.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

import attrs
import numpy as np
import torch
from torch import Tensor

from lw2g.disk.predictions import Predictions
from lw2g.interfaces.pool import BESIDE, UNCHOSEN
from lw2g.model.answers import Answers
from lw2g.model.predictor import Predictor, SetChoice, joined, padded
from lw2g.pixels.decoding import chunks
from lw2g.pixels.feature_rows import Integers, VersionedRows
from lw2g.pixels.image_set import ImageSet
from lw2g.runtime.progress import Reporter
from lw2g.runtime.returned import require_sound

__all__ = ["Evaluator"]

_ROWS = 1024
"""Rows of known features whose scores or logits are computed at once."""


class Evaluator:
    """Evaluates, and keeps the features that the next evaluation can reuse.

    Features are kept per sample and *slot*, as many slots as sets answer for a sample: the memory is
    ``N x k`` rows, for any number of sets.

    Args:
        images: All test images of the stream, task after task.
        sizes: Number of test images of each task.
        batch_size: Fixed size of every forward.
        probabilities: Whether predictions come with their probabilities.

    Attributes:
        seconds_per_image: Wall time of the last evaluation's forwards per image, all its sets together.
        moved: For each task of the previous evaluation, whether the features of its images under its own
            set, which its class statistics describe, may have changed since.
    """

    def __init__(
        self, images: ImageSet, sizes: Sequence[int], batch_size: int, *, probabilities: bool = False
    ) -> None:
        self._images = images
        self._probabilities = probabilities
        self._batch_size = batch_size
        self._sizes = [int(size) for size in sizes]
        self._features = VersionedRows(len(images))
        self._task = np.repeat(np.arange(len(sizes)), sizes)
        self.seconds_per_image = 0.0
        self.moved: list[bool] = []
        # of each task, the version of its images' features under its own set
        self._own: Integers = np.zeros(0, dtype=np.int64)
        # of sets that the pool does not count: how often they have changed, and their last state
        self._editions: dict[int, tuple[int, dict[str, Tensor]]] = {}
        # of each sample, the slot of its features under each of its sets, [n, k]
        self._slots: Integers = np.zeros((0, 1), dtype=np.int64)

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
        """Return the cached features of the first test samples, ``[count, F]``; of several sets side by side.

        Raises:
            ValueError: Nothing has been evaluated yet.
        """
        return self._rows(range(count)).flatten(1)

    def forget(self) -> None:
        """Drop all cached features, so that the next evaluation recomputes everything."""
        self._features.forget()

    def pass_over(self, predictor: Predictor) -> None:
        """Note which features a task has moved, without an evaluation.

        Args:
            predictor: The model after that task.
        """
        chosen = predictor.retrieval is not None
        if not chosen:  # one sample speaks for all: without retrieval the same sets answer for each
            chosen = bool((predictor.all_members(1).sets != UNCHOSEN).any())
        self._compare_own(predictor, chosen=chosen)

    @torch.no_grad()
    def evaluate(self, predictor: Predictor, reporter: Reporter) -> tuple[Predictions, list[float | None]]:
        """Predict every test sample of the seen tasks; unseen classes are never predicted.

        Returns the predictions, and per earlier task the drift of its features since the last evaluation:
        the mean relative change over samples (and sets) that kept their set, None without any.

        Args:
            predictor: The model after the last task.
            reporter: Told about the progress.
        """
        tasks = self._task[: sum(self.sizes(len(predictor.history)))]
        labels = self._images.labels[: len(tasks)]
        choice, rank = self._choose(predictor, labels)
        drift = self._renew(predictor, choice.sets.numpy(), tasks, reporter)
        # -1 where nothing is chosen
        columns = dict.fromkeys(("retrieved", "set", "rank"), np.full(len(tasks), -1, dtype=np.int64))
        if rank is not None:
            columns["rank"] = rank
        predictions = Predictions(
            sample=np.arange(len(tasks)),
            true=predictor.targets.cpu()[labels].numpy().astype(np.int64),
            task=tasks,
            **(columns | self._answer(predictor, choice, labels)),
        )
        return predictions, drift

    # -- which sets answer -------------------------------------------------------------------------------

    def _choose(self, predictor: Predictor, labels: Tensor) -> tuple[SetChoice, Integers | None]:
        """Return the sets that answer for each sample, and the rank of the best that owns it."""
        retrieval = predictor.retrieval
        count = len(labels)
        if retrieval is None:
            return self._heard(predictor, predictor.all_members(count)), None
        if retrieval.control:
            # the control row is told the task: the right set ranks first for all samples
            choice = predictor.of_tasks(predictor.newest.cpu()[labels])
            return self._heard(predictor, choice), np.zeros(count, dtype=np.int64)
        size = self._batch_size
        if not retrieval.learned_query:
            self._images.queries(range(count))  # new queries of all tasks share forwards
            if not retrieval.votes:
                # nothing but scores of known queries is left, each for itself
                size = self._rows_at_once(count)
        filled = [padded(part, size) for part in chunks(range(count), size)]
        parts = []
        for batch in self._images.batches(filled):
            choice, suits = predictor.choose(batch)
            if choice.prior is not None:
                # the mix reads float32, and rows of all test images are kept until it does
                choice = attrs.evolve(choice, prior=choice.prior.float())
            rank = _rank(suits, predictor.owning[labels[batch.samples].to(suits.device)])
            parts.append((choice, rank, suits.amax(dim=1, keepdim=True)))
        choices, ranks, best = zip(*parts, strict=True)
        # only the last batch was filled up
        choice = joined(choices)[:count].to(torch.device("cpu"))
        require_sound(torch.cat(best)[:count].cpu(), self.ids, predictor.names[1])
        return self._heard(predictor, choice), torch.cat(ranks)[:count].cpu().numpy()

    def _heard(self, predictor: Predictor, choice: SetChoice) -> SetChoice:
        """Return the choice with what a frozen expert says of its images; the run keeps their queries."""
        count = len(choice.sets)
        if predictor.expert is None:
            return choice
        self._images.queries(range(count))  # new queries of all tasks share forwards
        size = self._rows_at_once(count)
        opinions = []
        for part in chunks(range(count), size):
            said = predictor.opinion(self._images.queries(padded(part, size)))
            opinions.append(said[: len(part)].cpu())  # without the rows that fill up the last part
        return attrs.evolve(choice, expert=torch.cat(opinions))

    # -- features that are kept --------------------------------------------------------------------------

    def _renew(
        self, predictor: Predictor, sets: Integers, tasks: Integers, reporter: Reporter
    ) -> list[float | None]:
        """Compute the features that are stale, and return the drift of each earlier task.

        Args:
            predictor: What computes them.
            sets: The sets that answer for each sample, ``[n, k]``.
            tasks: The task of each sample, ``[n]``.
            reporter: Told about the progress.
        """
        every = sets.shape[1] >= len(predictor.pool)
        # the same sets, in the order of the slots that hold their features, [n, k]
        placed = self._features.place(np.sort(sets, axis=1), all_of_them=every)
        # the slot of each set, by their ranks; where all answer, the same for all samples
        first = slice(1) if every else slice(None)
        ranks = sets[first].argsort(axis=1).argsort(axis=1)
        slots = np.take_along_axis(placed[first].argsort(axis=1), ranks, axis=1)
        self._slots = np.broadcast_to(slots, sets.shape)
        self._compare_own(predictor, chosen=bool((sets[:1] != UNCHOSEN).any()))
        sources, versions = self._origins(predictor, placed)
        # whether rows are valid as they are, and whether they are of the same set as before
        known, kept = self._features.compare(sources, versions)
        images, slots = np.nonzero(~known)
        # sorted by set: a batch then gathers few sets, and images of a task lie together
        order = np.argsort(placed[images, slots], kind="stable")
        images = images[order]
        slots = slots[order]
        # a count of fewer images than those seen says that the others' features stay
        unit = "images" if len(images) == sets.size else "images anew"
        begin = time.perf_counter()
        stale = predictor.pair_features(
            self._images,
            images,
            placed[images, slots],
            self._batch_size,
            partial(reporter.advance, unit=unit),
        )
        changes = []
        for part, features in stale:
            changes.append(self._features.replace(images[part], slots[part], features))
        if len(images):
            # ``images`` has a row for each set of a sample, and a sample has ``k`` sets
            self.seconds_per_image = (time.perf_counter() - begin) / len(images) * placed.shape[1]
        self._features.note(sources, versions)
        change = np.zeros(placed.shape)  # what was not computed anew has not changed
        if changes:
            change[images, slots] = torch.cat(changes).cpu().numpy()
        of_task = np.broadcast_to(tasks[:, None], placed.shape)[kept]
        num_old = len(predictor.history) - 1
        samples = np.bincount(of_task, minlength=num_old)
        changed = np.bincount(of_task, change[kept], minlength=num_old)
        drifts: list[float | None] = []
        for task in range(num_old):
            # none of its samples kept a set
            drifts.append(float(changed[task] / samples[task]) if samples[task] else None)
        return drifts

    def _origins(self, predictor: Predictor, sets: Integers) -> tuple[Integers, Integers]:
        """Return source and version of the features under each set; equal ones mean equal features.

        Args:
            predictor: The model.
            sets: Ids of sets, of any shape, which both results have; below 0 where no set of the pool is
                meant.
        """
        pool = predictor.pool
        scope = predictor.baseline.scope
        # modules that the baseline has beside the pool: their ids count down from BESIDE
        beside = predictor.baseline.beside()

        def of_set(set_id: int) -> int:
            """Return the version of a set; of one outside the pool, the edition of its tensors."""
            if set_id >= 0:
                return pool.version(set_id)
            if set_id == UNCHOSEN:  # the sets as they are
                return self._edition_of(set_id, pool.state_dict())
            return self._edition_of(set_id, beside[BESIDE - set_id].state_dict())

        # each id that occurs is asked once: a column for it, counted from the lowest
        lowest = int(sets.min(initial=0))
        table = np.zeros((2, 1 + int(sets.max(initial=0)) - lowest), dtype=np.int64)
        for place in np.flatnonzero(np.bincount((sets - lowest).ravel())):
            set_id = int(place) + lowest
            table[0, place] = scope.source(set_id)
            table[1, place] = scope.version(set_id, len(predictor.history), of_set)
        sources, versions = table[:, sets - lowest]
        return sources, versions

    def _edition_of(self, set_id: int, state: Mapping[str, Tensor]) -> int:
        """Return a number that changes whenever a tensor of a state has changed.

        The pool's versions count the tasks of a set; a method that trains its one set in some tasks only
        (Aper) keeps its features in the others.
        """
        edition, old = self._editions.get(set_id, (0, {}))
        if old.keys() != state.keys() or any(not torch.equal(old[key], state[key]) for key in state):
            edition += 1
            self._editions[set_id] = edition, {key: value.clone() for key, value in state.items()}
        return edition

    def _compare_own(self, predictor: Predictor, *, chosen: bool) -> None:
        """Note for which tasks the features of their own images may have changed."""
        owner = np.asarray(predictor.pool.task_to_set[: len(predictor.history)], dtype=np.int64)
        if not chosen:  # features under the sets as they are
            owner = np.full_like(owner, UNCHOSEN)
        _, versions = self._origins(predictor, owner)
        before = self._own
        self._own = versions
        self.moved = (before != versions[: len(before)]).tolist()

    def _rows(self, positions: Sequence[int]) -> Tensor:
        """Return the features of some samples under the sets that answer for them, ``[n, k, F]``."""
        rows = list(positions)
        slots = self._slots[rows]  # of each sample, the slot that holds the features under each set
        by_slot = torch.stack([self._features.rows(slot)[rows] for slot in range(slots.shape[1])], dim=1)
        if slots.shape[1] == 1:
            return by_slot
        return by_slot[torch.arange(len(rows))[:, None], torch.from_numpy(slots)]

    def _rows_at_once(self, count: int) -> int:
        """Return how many rows without a forward are computed at once: a few batches, or up to so many."""
        few = 4 * self._batch_size
        return few * min(max(1, _ROWS // few), -(-count // few))

    # -- answers -----------------------------------------------------------------------------------------

    def _answer(self, predictor: Predictor, choice: SetChoice, labels: Tensor) -> dict[str, Integers]:
        """Return the columns of :class:`Predictions` that hold answers."""
        ids = self.ids
        count = len(labels)
        size = self._rows_at_once(count)
        if choice.log_sets is not None:  # a mix has logits of many sets
            size = self._batch_size
        collected: dict[str, list[Tensor]] = {}
        for part in chunks(range(count), size):
            whole = padded(part, size)
            rows = self._rows(whole)
            chosen = choice[whole].to(rows.device)
            answers = predictor.answer(rows, chosen, [ids[position] for position in part])
            columns = {"predicted": answers.classes, "retrieved": answers.tasks, "set": answers.sets}
            if self._probabilities:
                columns["probability"] = _millionths(answers.logits, predictor.temperature)
            cut = slice(len(part))
            columns |= self._others(predictor, rows[cut], chosen[cut], answers, labels[part])
            for name, column in columns.items():
                if column is not None:
                    collected.setdefault(name, []).append(column)
        answered: dict[str, Integers] = {}
        for name, parts in collected.items():
            answered[name] = torch.cat(parts).cpu().numpy().astype(np.int64)
        return answered

    def _others(
        self, predictor: Predictor, rows: Tensor, choice: SetChoice, answers: Answers, labels: Tensor
    ) -> dict[str, Tensor]:
        """Return the answers of single sets where several have answered, and the rank of the own set.

        Args:
            predictor: The model.
            rows: Features of the samples under the sets that answer for them, ``[B, k, F]``.
            choice: These sets.
            answers: What they answered.
            labels: Positions of the true classes, ``[B]``.

        Returns:
            Predicted targets ``[B]``: ``hard`` by the set that retrieval ranks first, ``told`` by that of the
            true task, ``within`` by that set among the task's classes; and ``rank``. Empty where one set
            alone answers.
        """
        if answers.sets is None or (answers.suits is None and answers.by_set is None):
            return {}
        columns = {"hard": predictor.predicted_targets(predictor.alone(rows, choice, answers, answers.sets))}
        targets = labels.to(rows.device)
        if answers.suits is not None:
            columns["rank"] = _rank(answers.suits, predictor.owning[targets])
        if rows.shape[1] >= len(predictor.pool):  # all sets answered, and so did that of the true task
            task = predictor.newest[targets]
            logits = predictor.alone(rows, choice, answers, predictor.owner[task])
            within = logits.masked_fill(predictor.task_of_class != task[:, None], float("-inf"))
            columns |= {
                "told": predictor.predicted_targets(logits),
                "within": predictor.predicted_targets(within),
            }
        return columns


def _millionths(logits: Tensor, temperature: float | None) -> Tensor:
    """Return the probability of each best class in millionths: columns of predictions are whole numbers."""
    best = (logits.double() / (temperature or 1.0)).softmax(1).amax(1)
    return (1e6 * best).round().long()


def _rank(suits: Tensor, owning: Tensor) -> Tensor:
    """Return how many sets ``[B, sets]`` suit an image better than all that own it, ``[B, sets]`` bool."""
    best = suits.masked_fill(~owning, float("-inf")).amax(dim=1, keepdim=True)
    return (suits > best).sum(dim=1)
