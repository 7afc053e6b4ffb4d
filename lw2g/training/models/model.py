"""A trained model: the run as it stood after a task, as a module that takes images and gives answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self, cast

import attrs
import torch
from torch import Tensor, nn

from lw2g.errors import DataError
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import task_of_class
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.training.evaluation.answers import require_finite, require_one_task_each, require_seen
from lw2g.training.evaluation.mixing import Mixer, log_prior, owned_classes
from lw2g.training.evaluation.pairs import rows_of_each
from lw2g.training.images.decoding import chunks
from lw2g.training.images.pictures import Picture, as_list, pixels_of
from lw2g.training.models.parts import ModelParts

__all__ = ["Answers", "TrainedModel"]


@attrs.frozen(kw_only=True, eq=False)
class Answers:
    """What a model says of some images.

    Attributes:
        logits: Of the seen classes, ``[B, C]`` float32; log probabilities where several sets answer.
        features: What the head was fed under the retrieved set, ``[B, F]`` float32; where each set answers,
            under all of them side by side.
        tasks: The retrieved task of each image, from 0, ``[B]`` int64; None where the baseline makes no hard
            choice of a set.
        sets: The set of that task, ``[B]`` int64; None likewise.
    """

    logits: Tensor
    features: Tensor
    tasks: Tensor | None
    sets: Tensor | None

    @property
    def probabilities(self) -> Tensor:
        """Softmax of the logits, ``[B, C]``; as calibrated as the baseline's logits are."""
        return self.logits.softmax(dim=1)

    @property
    def classes(self) -> Tensor:
        """The predicted class of each image, ``[B]`` int64."""
        return self.logits.argmax(dim=1)

    def top(self, k: int) -> tuple[Tensor, Tensor]:
        """Return probabilities and numbers of the ``k`` best classes, or of all if fewer, ``[B, k]``."""
        found = self.probabilities.topk(min(k, self.logits.shape[1]), dim=1)
        return found.values, found.indices


class TrainedModel(nn.Module):
    """A run as it stood after a task, for use: images in, logits of the seen classes out.

    Images are paths, PIL images or tensors, alone or in a list, or one tensor ``[B, 3, H, W]``. *uint8*
    tensors are raw pixels of any size and go through the run's test transform; *floating* ones are taken as
    they are, ``[3, S, S]``, transformed and normalised as :meth:`transform` does.

    Forwards run in batches of one fixed size, filled up where images are missing, so that an answer has the
    same bits whatever else was asked. A smaller ``batch_size`` answers few images sooner; the run's own
    (``run.evaluation_batch``) repeats its stored predictions.

    The model moves with ``model.to(device)``, stays in evaluation mode, and its parameters take no gradient;
    floating images may require one.

    Args:
        parts: What it answers with: a restored session, or what an export holds.
        task: The last task it has learned, from 0.
        guard: What components are called within, so that their errors name them.

    Attributes:
        task: The same.
        batch_size: Images per forward.
    """

    def __init__(
        self, parts: ModelParts, task: int, guard: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        super().__init__()
        self._guard = guard
        self._parts, self.task = parts, task
        self.batch_size = parts.config.run.evaluation_batch
        self.backbone, self.baseline = parts.backbone, parts.baseline
        self.sets = nn.ModuleList(parts.pool.sets)
        self.retrieval = parts.retrieval
        self._history = parts.infos[: task + 1]
        self._classes = tuple(name for info in self._history for name in info.class_names)
        self.eval()

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the seen classes: the columns of the logits."""
        return self._classes

    @property
    def task_to_set(self) -> tuple[int, ...]:
        """The set that each task is stored in."""
        return tuple(self._parts.pool.task_to_set)

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.backbone.device

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: a trained model is used, not trained on."""
        return super().train(False)

    def transform(self, image: Picture) -> Tensor:
        """Return an image as the network takes it, ``[3, S, S]`` float32: resized, cropped, normalised.

        Raises:
            DataError: It cannot be read, has another shape, or holds values that are no numbers.
        """
        pixels = image if isinstance(image, Tensor) else pixels_of(image)
        if pixels.ndim != 3 or pixels.shape[0] != 3:
            raise DataError(f"expected a tensor [3, H, W] but got {list(pixels.shape)}; put channels first")
        if pixels.dtype == torch.uint8:
            with self._guard():
                return self._parts.still(pixels.cpu())
        size = self.backbone.image_size
        if not pixels.is_floating_point() or pixels.shape[1:] != (size, size):
            raise DataError(
                f"expected uint8 pixels, or transformed images [3, {size}, {size}] of floating numbers, but "
                f"got {pixels.dtype} {list(pixels.shape)}; model.transform(image) makes them"
            )
        if not bool(pixels.isfinite().all()):
            raise DataError("an image holds values that are no finite numbers; look at how it was made")
        return pixels.float()

    def forward(self, images: Picture | Sequence[Picture]) -> Tensor:
        """Return logits of the seen classes, ``[B, C]``, without asking for tasks where there is one set."""
        return self._answers(images, told=False).logits

    def answer(self, images: Picture | Sequence[Picture]) -> Answers:
        """Return all that the model says of some images.

        Raises:
            DataError: Something is no image, or the run's retrieval must be told the task.
            ComponentError: A component raised an error.
        """
        return self._answers(images, told=True)

    def _answers(self, images: Picture | Sequence[Picture], *, told: bool) -> Answers:
        """Return the answers; tasks are named if they are to be ``told``, or if a set is chosen by them."""
        if getattr(self.retrieval, "control", False):
            raise DataError("retrieval of this run is told the task; it can only be evaluated, not used")
        told = told or len(self._parts.pool) > 1 or self._parts.mixer is not None
        with self._guard():
            found = [self._answer(batch, told=told) for batch in self._batches(images)]

        def joined(name: str) -> Any:
            columns = [getattr(part, name) for part in found]
            return None if columns[0] is None else torch.cat(columns)

        return Answers(**{field.name: joined(field.name) for field in attrs.fields(Answers)})

    def predict(self, images: Picture | Sequence[Picture], top_k: int = 1) -> list[dict[str, Any]]:
        """Return what ``lw2g predict --json`` prints: one JSON-able entry per image.

        An entry has ``path`` (None for what is no file), ``class``, ``class_index`` and ``probability`` of
        the best class, ``top`` with the same three of the ``top_k`` best ones, and ``task`` and ``set``, from
        0, that retrieval chose (None where the baseline makes no hard choice).

        Raises:
            DataError: As :meth:`answer`.
        """
        listed = as_list(images)
        with torch.no_grad():
            answers = self.answer(listed)
        probabilities, classes = (tensor.tolist() for tensor in answers.top(top_k))
        tasks, sets = (
            [None] * len(listed) if chosen is None else chosen.tolist()
            for chosen in (answers.tasks, answers.sets)
        )
        found = []
        for row, image in enumerate(listed):
            top = [
                {"class": self.classes[index], "class_index": index, "probability": probability}
                for index, probability in zip(classes[row], probabilities[row], strict=True)
            ]
            path = str(image) if isinstance(image, str | Path) else None
            found.append({"path": path, **top[0], "top": top, "task": tasks[row], "set": sets[row]})
        return found

    def _batches(self, images: Picture | Sequence[Picture]) -> Iterator[Tensor]:
        """Yield transformed images on the device, at most ``batch_size`` together."""
        listed = as_list(images)
        for positions in chunks(range(len(listed)), self.batch_size):
            rows = [self.transform(listed[position]).to(self.device) for position in positions]
            yield torch.stack(rows)

    def _answer(self, images: Tensor, *, told: bool) -> Answers:
        count = len(images)
        batch = self._batch(torch.cat([images, images[:1].expand(self.batch_size - count, -1, -1, -1)]))
        parts = self._parts
        if parts.baseline.feature_scope == "each":
            return self._answer_of_each(batch, count)
        tasks = sets = query = None
        with self._autocast(), torch.no_grad():
            if parts.retrieval is not None and not told:
                sets = torch.full((self.batch_size,), parts.pool.ids[0], device=self.device)
            elif parts.retrieval is not None:
                query = parts.retrieval.query(batch).float()
                tasks = self._retrieved(parts.retrieval, query)
                sets = parts.pool.sets_of(tasks)
        if parts.mixer is None or query is None or sets is None:
            features = self._features(batch, sets)
            logits = parts.baseline.logits(features)[:, : len(self.classes)].float()
        else:
            logits, features = self._mixed(parts.mixer, batch, query, sets)
        require_finite(logits[:count], [str(row) for row in range(count)], parts.names[0])
        return Answers(
            logits=logits[:count],
            features=features[:count],
            tasks=None if tasks is None else tasks[:count],
            sets=None if sets is None else sets[:count],
        )

    def _answer_of_each(self, batch: Batch, count: int) -> Answers:
        """Return the answer that the baseline makes of those under all its sets."""
        parts = self._parts
        rows = rows_of_each(parts.baseline, parts.pool, batch, self._autocast)
        logits = parts.baseline.logits(rows)[:, : len(self.classes)].float()
        scores = parts.baseline.set_scores(rows)
        require_finite(logits[:count], [str(row) for row in range(count)], parts.names[0])
        sets = None if scores is None else scores.argmax(dim=1)
        first = torch.tensor([parts.pool.tasks_of(one)[0] for one in parts.pool.ids], device=rows.device)
        return Answers(
            logits=logits[:count],
            features=rows[:count].flatten(1),
            tasks=None if sets is None else first[sets][:count],
            sets=None if sets is None else sets[:count],
        )

    def _autocast(self) -> torch.autocast:
        reduced = self._parts.engine.precision == "bf16-mixed"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=reduced)

    def _features(self, batch: Batch, sets: Tensor | None) -> Tensor:
        baseline = self._parts.baseline
        routing = self._parts.pool.route(sets, alone=baseline.feature_scope != "pool")
        with self._autocast():
            return baseline.features(batch, routing).float()

    def _retrieved(self, retrieval: RetrievalStrategy, query: Tensor) -> Tensor:
        known, whose = range(len(self._history)), self._parts.names[1]
        answer = retrieval.retrieve(query, known, task_of_class(self._history, self.device))
        tasks = require_one_task_each(answer, self.batch_size, whose)
        require_seen(tasks, known, whose)
        return tasks

    def _mixed(self, mixer: Mixer, batch: Batch, query: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
        """Return log probabilities of the seen classes, and the features under the first choice."""
        parts, table = self._parts, task_of_class(self._history, self.device)
        retrieval = cast(RetrievalStrategy, parts.retrieval)
        owner = torch.tensor(parts.pool.task_to_set, device=self.device)
        with torch.no_grad():
            log_tasks = retrieval.log_posterior(query, range(len(self._history)), table)
            prior = log_prior(retrieval, query, table, log_tasks).float()
            sets, log_sets = mixer.choose(log_tasks, owner, len(parts.pool))
        rows = torch.stack([self._features(batch, column) for column in sets.T], dim=1)
        logits = parts.baseline.logits(rows.flatten(0, 1))[:, : len(self.classes)]
        owned = owned_classes(sets, owner, table)
        answer = mixer.combine(logits.reshape(*sets.shape, -1), log_sets, owned, prior)
        place = (sets == first[:, None]).int().argmax(dim=1)
        return answer.float(), rows[torch.arange(len(rows), device=self.device), place]

    def _batch(self, images: Tensor) -> Batch:
        norm = self._parts.retrieval is None or self._parts.retrieval.query_norm

        @torch.no_grad()
        def query() -> Tensor:
            return self.backbone.features(images, norm=norm).float()

        return Batch(
            labels=torch.zeros(len(images), dtype=torch.int64, device=self.device),
            samples=torch.arange(len(images)),
            images=lambda: images,
            query=query,
        )
