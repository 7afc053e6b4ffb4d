"""The predictor: from a batch of images to scores of the seen classes, the retrieved task and its set.

An evaluation keeps features between its steps, a loaded model runs them one after the other. There is no
other way from an image to an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import attrs
import torch
from torch import Tensor

from lw2g.blocks.expert import FrozenExpert
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.calibration import best_of
from lw2g.interfaces.classes import ClassMap
from lw2g.interfaces.context import TaskInfo, class_domain_ids, task_of_class
from lw2g.interfaces.pool import UNCHOSEN, Pool
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.model.answers import Answers
from lw2g.model.frozen_expert import expert_of
from lw2g.model.mixing import Mixer, log_prior, owned_classes
from lw2g.model.parts import ModelParts
from lw2g.pixels.decoding import chunks
from lw2g.pixels.feature_rows import Integers
from lw2g.pixels.image_set import ImageSet
from lw2g.runtime.engine import BF16
from lw2g.runtime.returned import require_a_score_each, require_finite, require_sound

__all__ = ["Predictor", "SetChoice", "joined", "padded"]

Record = TypeVar("Record", "Answers", "SetChoice")


@attrs.frozen(kw_only=True, eq=False)
class SetChoice:
    """Which sets answer for some images.

    Attributes:
        sets: Ids of what answers, in the order in which the answer wants their features, ``[B, k]`` int64.
        tasks: The retrieved task of each image, ``[B]``; None where none is retrieved.
        first: The set of that task, ``[B]``; None likewise.
        log_sets: Log probabilities of the sets, ``[B, k]``, where their answers are mixed; else None.
        prior: Retrieval's own log probabilities of the seen classes, ``[B, C]``; None likewise.
        expert: A frozen expert's log probabilities of the seen targets, ``[B, T]``; None without one.
    """

    sets: Tensor
    tasks: Tensor | None = None
    first: Tensor | None = None
    log_sets: Tensor | None = None
    prior: Tensor | None = None
    expert: Tensor | None = None

    def __getitem__(self, rows: slice | list[int]) -> SetChoice:
        return _mapped(self, lambda value: value[rows])

    def to(self, device: torch.device) -> SetChoice:
        """Return the choice on a device."""
        return _mapped(self, lambda value: value.to(device))


@attrs.frozen(kw_only=True, eq=False)
class Predictor:
    """Predicts for images after some tasks.

    Attributes:
        baseline: The method.
        pool: Its sets.
        retrieval: None where the baseline makes no hard choice of a set.
        history: The seen tasks.
        mixer: Combines the answers where several sets answer for an image; else None.
        expert: Its answer, from un-prompted features, is combined with the head's; None without one.
        names: Of baseline and retrieval strategy, for messages.
        head: That of the head that predicts, for messages; empty if it is the baseline's.
        reduced: Whether forwards run in bfloat16.
    """

    baseline: Baseline
    pool: Pool
    retrieval: RetrievalStrategy | None
    history: Sequence[TaskInfo]
    mixer: Mixer | None = None
    expert: FrozenExpert | None = None
    names: tuple[str, str] = ("baseline", "retrieval")
    head: str = ""
    reduced: bool = False

    @classmethod
    def of(cls, parts: ModelParts, task: int) -> Predictor:
        """Return the predictor of a model's parts, for the tasks up to one (from 0)."""
        return cls(
            baseline=parts.baseline,
            pool=parts.pool,
            retrieval=parts.retrieval,
            history=parts.infos[: task + 1],
            mixer=parts.mixer,
            expert=expert_of(parts.baseline),
            names=parts.names,
            head=parts.named_head,
            reduced=parts.engine.precision == BF16,
        )

    @property
    def seen(self) -> int:
        """Number of seen classes."""
        return self.history[-1].seen

    @property
    def temperature(self) -> float | None:
        """What divides logits before a softmax; None where nothing was fitted while the run learned.

        A mix and a product are probabilities of several answers, to which that of the head says nothing.
        """
        head = self.baseline.closed_form
        if head is None or self.mixer is not None or self.expert is not None:
            return None
        fitted = head.temperature
        if fitted is None or not bool(fitted.loss.any()):  # sums of losses: 0 where nothing was observed
            return None
        return fitted.value

    @property
    def device(self) -> torch.device:
        """Where forwards run."""
        return self.baseline.context.backbone.device

    def autocast(self) -> torch.autocast:
        """Return the context that gives forwards their precision."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.reduced)

    @cached_property
    def owner(self) -> Tensor:
        """The set of each seen task, ``[T]`` int64."""
        return torch.tensor(self.pool.task_to_set[: len(self.history)], device=self.device)

    @cached_property
    def task_of_class(self) -> Tensor:
        """The task of each seen class, ``[C]`` int64."""
        return task_of_class(self.history, self.device)

    @cached_property
    def targets(self) -> Tensor:
        """The target of each seen class, ``[C]`` int64."""
        return torch.tensor(ClassMap.of(self.history).targets, dtype=torch.long, device=self.device)

    @cached_property
    def newest(self) -> Tensor:
        """The newest task that has each seen class in the same domain, ``[C]`` int64."""
        kinds = class_domain_ids(self.history, self.device)
        tasks = self.task_of_class
        return tasks.new_zeros(len(kinds)).scatter_reduce_(0, kinds, tasks, "amax")[kinds]

    @cached_property
    def owning(self) -> Tensor:
        """Whether a set holds a task that has the class in the same domain, ``[C, sets]`` bool."""
        kinds = class_domain_ids(self.history, self.device)
        owning = torch.zeros(len(kinds), len(self.pool), dtype=torch.bool, device=self.device)
        owning[kinds, self.owner[self.task_of_class]] = True
        return owning[kinds]

    def __call__(self, batch: Batch, names: Sequence[str], *, tasks: bool = True) -> Answers:
        """Return the answers for a batch.

        Args:
            batch: The images; those behind the last name only fill it up.
            names: Of the images, for messages.
            tasks: Whether tasks have to be named where there is but one set.

        Raises:
            ContractError: A component answers something else than it promises.
        """
        choice = self.sets_of(batch, names, tasks=tasks)
        if self.expert is not None:
            with self.autocast():
                query = batch.query.float()
            choice = attrs.evolve(choice, expert=self.opinion(query))
        return self.answer(self.rows(batch, choice), choice, names)

    # -- which sets answer -------------------------------------------------------------------------------

    def sets_of(self, batch: Batch, names: Sequence[str], *, tasks: bool = True) -> SetChoice:
        """Return the sets under which the images of a batch are answered.

        Args:
            batch: The images; those behind the last name only fill it up.
            names: Of the images, for messages.
            tasks: Whether tasks have to be named where there is but one set.

        Raises:
            ContractError: A retrieval strategy gives a score that is no number.
        """
        if self.retrieval is None:
            return self.all_members(len(batch))
        if not tasks and len(self.pool) == 1 and self.mixer is None:
            # one set answers for all: nothing has to be retrieved, and no forward is spent on a query
            only = torch.full((len(batch),), self.pool.ids[0], device=self.device)
            return SetChoice(sets=only[:, None], first=only)
        choice, suits = self.choose(batch)
        require_sound(suits[: len(names)], names, self.names[1])
        return choice

    def all_members(self, count: int) -> SetChoice:
        """Return the choice where nothing is retrieved: the sets as they are, or each of them."""
        members = torch.tensor(self.baseline.scope.members(self.pool, self.baseline.beside()))
        return SetChoice(sets=members.expand(count, -1))

    def of_tasks(self, tasks: Tensor) -> SetChoice:
        """Return the choice where each image's task is known, ``[B]``."""
        first = self.owner.to(tasks.device)[tasks]
        return SetChoice(sets=first[:, None], tasks=tasks, first=first)

    @torch.no_grad()
    def choose(self, batch: Batch) -> tuple[SetChoice, Tensor]:
        """Return the sets that retrieval chooses, and how well each set suits each image, ``[B, sets]``.

        It does not wait for the device: a score may be no number, and :func:`require_sound` looks at them.
        """
        retrieval = cast(RetrievalStrategy, self.retrieval)
        with self.autocast():
            query = retrieval.query(batch).float()
        answer = retrieval.scores(query, range(len(self.history)), self.task_of_class)
        scores = require_a_score_each(answer, (len(batch), len(self.history)), self.names[1])
        # a set suits an image as well as the best of its tasks
        suits = best_of(scores, self.owner, len(self.pool))
        tasks = scores.argmax(dim=1)
        first = self.owner[tasks]
        if self.mixer is None:
            return SetChoice(sets=first[:, None], tasks=tasks, first=first), suits
        log_tasks = retrieval.temperature.log_posterior(scores)
        prior = log_prior(retrieval, query, self.task_of_class, log_tasks)
        sets, log_sets = self.mixer.choose(log_tasks, self.owner, len(self.pool))
        return SetChoice(sets=sets, tasks=tasks, first=first, log_sets=log_sets, prior=prior), suits

    def opinion(self, queries: Tensor) -> Tensor:
        """Return the frozen expert's log probabilities of the seen targets, ``[B, T]``.

        Args:
            queries: Un-prompted features, ``[B, dim]``.
        """
        return cast(FrozenExpert, self.expert).log_posterior(queries, self.targets.tolist())

    # -- what they are fed -------------------------------------------------------------------------------

    def features(self, batch: Batch, sets: Tensor) -> Tensor:
        """Return the features of a batch under a set each, ``[B, F]`` float32.

        Args:
            batch: The images.
            sets: The set of each, ``[B]``; where the sets answer as they are, ``UNCHOSEN`` for all.
        """
        chosen = None if int(sets[0]) == UNCHOSEN else sets
        routing = self.baseline.scope.route(self.pool, chosen, self.baseline.beside()).to(self.device)
        with self.autocast():
            return self.baseline.head_features(batch, routing).float()

    def rows(self, batch: Batch, choice: SetChoice) -> Tensor:
        """Return the features of a batch under each of the chosen sets, ``[B, k, F]``."""
        return torch.stack([self.features(batch, column) for column in choice.sets.T], dim=1)

    def pair_features(
        self,
        images: ImageSet,
        positions: Integers,
        sets: Integers,
        size: int,
        advance: Callable[[int, int], None],
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Yield features of (image, set) pairs, batch by batch, with the positions of the pairs.

        Every forward has the same size, whatever it holds: images of several tasks and sets share batches,
        and only the last one is filled up, so that a pair has the same bits whatever it is computed with.

        Args:
            images: Where the images are.
            positions: The image of each pair, ``[P]``; one may stand there with several sets.
            sets: The set of each pair, ``[P]``.
            size: Pairs per forward.
            advance: Told how many pairs are done, and of how many.
        """
        parts = chunks(range(len(positions)), size)
        filled = [padded(part, size) for part in parts]
        batches = images.batches([positions[whole].tolist() for whole in filled])
        done = 0
        for part, whole, batch in zip(parts, filled, batches, strict=True):
            yield part, self.features(batch, torch.from_numpy(sets[whole]))[: len(part)]
            done += len(part)
            advance(done, len(positions))

    # -- the answer --------------------------------------------------------------------------------------

    def answer(self, rows: Tensor, choice: SetChoice, names: Sequence[str]) -> Answers:
        """Return the answers that follow from features.

        Args:
            rows: Features under each of the chosen sets, ``[B, k, F]``.
            choice: The sets.
            names: Of the images, for messages; rows behind the last one only fill up.

        Raises:
            ContractError: A logit of a seen class is no finite number.
        """
        suits = by_set = None
        tasks = choice.tasks
        sets = choice.first
        features = rows.flatten(1)  # of several sets side by side, [B, k F]
        if choice.log_sets is None:
            logits = self.baseline.scope.score(self.baseline.logits, rows)[:, : self.seen]
        else:
            by_set = self.baseline.logits(rows.flatten(0, 1))[:, : self.seen]
            by_set = by_set.reshape(*choice.sets.shape, -1)
            logits = self._mixed(by_set, choice)
            features = _of_one(rows, _place(cast(Tensor, sets), choice.sets))
        if sets is None:
            suits = self.baseline.set_scores(rows)
        if suits is not None:
            # nothing was chosen, and yet the method can say which set suits an image best
            pool = self.pool
            sets = torch.tensor(pool.ids, device=rows.device)[suits.argmax(dim=1)]
            # of the tasks that share a set, the first stands for it
            first_tasks = [pool.tasks_of(set_id)[0] for set_id in pool.ids]
            tasks = torch.tensor(first_tasks, device=rows.device)[sets]
        # rows that only fill up the batch may hold anything
        count = len(names)
        require_finite(logits[:count], rows[:count], names, self.names[0], self.head)
        logits = self._of_targets(logits, summed=by_set is not None)
        if choice.expert is not None:
            logits = cast(FrozenExpert, self.expert).product(logits, choice.expert)
        answers = Answers(
            logits=logits, features=features, tasks=tasks, sets=sets, suits=suits, by_set=by_set
        )
        if count < len(rows):
            answers = _mapped(answers, lambda value: value[:count])
        return answers

    def predicted_targets(self, logits: Tensor) -> Tensor:
        """Return the target of the best class, ``[B]``, given logits of the seen classes ``[B, C]``."""
        return self.targets[logits.argmax(dim=1)]

    def _of_targets(self, logits: Tensor, *, summed: bool) -> Tensor:
        """Return the logits of targets: the best of their classes, or log probabilities added up."""
        targets = self.targets
        last = int(targets.max())
        if last + 1 == len(targets):
            return logits
        where = targets.expand_as(logits)
        best = logits.new_full((len(logits), last + 1), float("-inf"))
        best.scatter_reduce_(1, where, logits, "amax")
        if not summed:
            return best
        # probabilities add up; relative to the best one, so that no exponential overflows
        shares = (logits - best.gather(1, where)).exp()
        return best + torch.zeros_like(best).scatter_add_(1, where, shares).log()

    def alone(self, rows: Tensor, choice: SetChoice, answers: Answers, sets: Tensor) -> Tensor:
        """Return the logits of the seen classes that one set alone gives, ``[B, C]``.

        Args:
            rows: As for :meth:`answer`, without what fills up; of several sets.
            choice: Likewise.
            answers: What :meth:`answer` returned.
            sets: The set of each image, one of its choice, ``[B]``.
        """
        place = _place(sets, choice.sets)
        if answers.by_set is not None:
            logits = _of_one(answers.by_set, place)
            if choice.expert is None:
                return logits
            return self._combined(
                logits, choice.expert, cast(Mixer, self.mixer).named_constants()["temperature"]
            )
        repeated = _of_one(rows, place)[:, None].expand_as(rows)  # as if every set gave these features
        logits = self.baseline.scope.score(self.baseline.logits, repeated)[:, : self.seen]
        if choice.expert is None:
            return logits
        return self._combined(logits, choice.expert, cast(FrozenExpert, self.expert).warmth)

    def _combined(self, logits: Tensor, opinion: Tensor, warmth: float) -> Tensor:
        """Return logits of the seen classes by one set and the expert, given the temperature of the set's."""
        return (logits / warmth).log_softmax(dim=1) + opinion[:, self.targets]

    def _mixed(self, by_set: Tensor, choice: SetChoice) -> Tensor:
        owned = owned_classes(choice.sets, self.owner, self.task_of_class)
        log_sets = cast(Tensor, choice.log_sets)
        prior = cast(Tensor, choice.prior)
        return cast(Mixer, self.mixer).combine(by_set, log_sets, owned, prior.float())


def padded(part: list[int], size: int) -> list[int]:
    """Return positions filled up to a batch of one size, with the first of them."""
    return part + [part[0]] * (size - len(part))


def joined(parts: Sequence[Record]) -> Record:
    """Return the choices or answers for several batches as one."""
    kind = type(parts[0])
    whole: dict[str, Any] = {}
    for field in attrs.fields(kind):
        values = [getattr(part, field.name) for part in parts]
        if values[0] is not None:  # what one batch has, all of them have
            whole[field.name] = torch.cat(values)
    return kind(**whole)


def _mapped(record: Record, change: Callable[[Tensor], Tensor]) -> Record:
    """Return a record with each of its tensors changed."""
    changed: dict[str, Any] = {}
    for field in attrs.fields(type(record)):
        value = getattr(record, field.name)
        if value is not None:
            changed[field.name] = change(value)
    return type(record)(**changed)


def _place(wanted: Tensor, sets: Tensor) -> Tensor:
    """Return where the wanted set ``[B]`` of each row stands among its sets ``[B, k]``."""
    return (sets == wanted[:, None]).int().argmax(dim=1)


def _of_one(values: Tensor, place: Tensor) -> Tensor:
    """Return the values ``[B, ...]`` of one set each, out of those of all, ``[B, k, ...]``."""
    return values[torch.arange(len(values), device=values.device), place]
