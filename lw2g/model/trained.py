"""A trained model: the run as it stood after a task, as a module that takes images and gives answers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

import attrs
import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError, DataError
from lw2g.ground.spelling import expands_paths, is_web_address
from lw2g.interfaces.classes import ClassMap
from lw2g.model.answers import Answers, Columns
from lw2g.model.entries import Asked, entries_of, named, reject_below, without_answer
from lw2g.model.home import Home, opened_again, refuse_elsewhere
from lw2g.model.kept_precision import KeepsPrecision
from lw2g.model.known_facts import facts_of, facts_table, in_a_line, in_three_lines
from lw2g.model.parts import ModelParts
from lw2g.model.predictor import Predictor, joined
from lw2g.model.rejection import Gaussians, moments_of, no_scores, threshold_of
from lw2g.model.unlabelled import unlabelled
from lw2g.pixels.decoding import chunks
from lw2g.pixels.image_files import Crop, CropReader, examine_images, pixels_of
from lw2g.pixels.image_vectors import as_vectors, named_vectors
from lw2g.pixels.pictures import ImageLike, Labelled, as_list, require_transformed
from lw2g.pixels.small_drawings import tell_photo
from lw2g.pixels.unusable_images import refusal
from lw2g.runtime.telling import Telling
from lw2g.runtime.threads import suited_threads
from lw2g.runtime.turn import Turn

__all__ = ["TrainedModel"]


class TrainedModel(KeepsPrecision):
    """A run as it stood after a task, for use: images in, logits of the seen classes out.

    Images are paths, PIL images, the bytes of a file or an open file (as a web server receives it), arrays
    ``[H, W, 3]`` (uint8, or floats from 0 to 1) or tensors, alone or several; one array ``[B, H, W, 3]`` or
    tensor ``[B, 3, H, W]``; or a folder, whose image files are taken.
    *uint8* tensors are raw pixels of any size and go through the run's test transform; *floating* tensors are
    taken as they are, ``[3, S, S]``, transformed and normalised as :meth:`transform` does. From 0 to 1 they
    are pixels that were not normalised, and are refused.

    A model on stored features takes vectors instead: an array or tensor ``[B, dim]`` of floating numbers, or
    a file of them, as they come from the backbone that made what it has learned.

    Forwards run in batches of at most ``batch_size`` images; the last one is as large as what is left. A size
    that :func:`lw2g.load` was given is kept and filled up, so that an answer has the same bits whatever else
    was asked; the run's (``run.evaluation_batch``) repeats its predictions.

    The model moves with ``model.to(device)``, stays in evaluation mode, and its parameters take no gradient;
    floating images may require one.

    Threads may share a model: a lock lets one batch be computed at a time, as a forward puts the sets of its
    images into the backbone. A pickle of a model holds where it lies, and opens it from there.

    Args:
        parts: What it answers with: a restored session, or what an export holds.
        task: The last task it has learned, counted from 1.
        guard: What components are called within, so that their errors name them.

    Attributes:
        parts: The same.
        task: The same.
        batch_size: Images per forward, at most.
        fills_up: Whether smaller batches are filled up to it.
        home: Where it lies; None of one that was not opened from a folder.
        classes: The columns of the logits, by ``class_index``; ``(forgotten)`` is a class that was unlearned.
        known: Names of the classes that it can name.
        forgotten: Names of those that it has forgotten.
        calibration: What tells unknown images, and the temperature of the logits
            (:mod:`lw2g.model.rejection`); empty of most models.
    """

    def __init__(
        self, parts: ModelParts, task: int, guard: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        super().__init__()
        self._guard = guard
        self._turn = Turn()
        self.parts = parts
        self.task = task
        self.batch_size = parts.config.run.evaluation_batch
        self.fills_up = parts.config.run.compile  # each size would be compiled
        self.home: Home | None = None
        # attributes of their own: a module moves those that it holds
        self.backbone = parts.backbone
        self.baseline = parts.baseline
        self.sets = nn.ModuleList(parts.pool.sets)
        self.retrieval = parts.retrieval
        self._history = parts.infos[:task]
        names = ClassMap.of(self._history).target_names
        self.number(names, range(len(names)))
        self.calibration: Mapping[str, Tensor] = {}
        self._moments: tuple[int, Gaussians | None] | None = None
        self.eval()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Compute with the components within the block: in turn, on as many threads as suit the backbone.

        Raises:
            ComponentError: A component raised an error.
        """
        with self._turn, suited_threads(self.parts.backbone, self.parts.engine.device), self._guard():
            yield

    def number(self, names: Sequence[str], numbers: Sequence[int]) -> None:
        """Give the classes numbers of their own, those that the model had when it was made by others.

        Args:
            names: The class of each number, forgotten ones too: their logits are minus infinity.
            numbers: The number of each class that the model knows.
        """
        columns = Columns(names=names, numbers=numbers)
        self.classes = columns.shown
        self.known: Sequence[str] = columns.known
        self.forgotten = columns.forgotten
        self._columns = columns

    @expands_paths
    def learn(
        self,
        folder: str | Path | Labelled,
        out: str | Path | None = None,
        *,
        test: str | Path | Labelled | None = None,
        max_loss: float | None = None,
        **options: Any,
    ) -> tuple[TrainedModel, dict[str, Any]]:
        """Learn ``folder``/CLASS or ``(images, labels)``; return a new model in a new folder, and the report.

        The arguments are those of :func:`lw2g.learn`; ``options`` are ``boxes``, ``margin``, ``min_side`` and
        ``square``. This model stays as it is.

        Raises:
            DataError: The model cannot learn, or as :func:`lw2g.learn`.
        """
        return self._at_home().learn(folder, out=out, test=test, max_loss=max_loss, **options)

    @expands_paths
    def unlearn(
        self, name: Any = None, out: str | Path | None = None, *, last: bool = False, **options: Any
    ) -> tuple[TrainedModel, dict[str, Any]]:
        """Take the class ``name`` back, or with ``last=True`` the last step; return new model and report.

        The arguments are those of :func:`lw2g.unlearn`; this model stays as it is.

        Raises:
            DataError: There is no such class or step, or as :func:`lw2g.unlearn`.
        """
        return self._at_home().unlearn(name, last=last, out=out, **options)

    @expands_paths
    def test(
        self, folder: str | Path | Labelled, *, strangers: Any = None, reject: float = 0.05, **options: Any
    ) -> dict[str, Any]:
        """Classify ``folder``/CLASS or ``(images, labels)``, and count the right answers, of each class too.

        The arguments are those of :func:`lw2g.test`, and so is what it returns; ``options`` are ``boxes``,
        ``margin``, ``min_side`` and ``square``.

        Raises:
            DataError: As :func:`lw2g.test`.
        """
        return self._at_home().test(self, folder, strangers=strangers, reject=reject, **options)

    def _at_home(self) -> Home:
        """Return where the model lies.

        Raises:
            DataError: It lies nowhere.
        """
        if self.home is None:
            raise DataError("this model lies in no folder", "open one: lw2g.load(MODEL)")
        return self.home

    def __repr__(self) -> str:
        """Return in one line what the model is, and where it is from."""
        return in_a_line(self, self.known)

    def __str__(self) -> str:
        """Return in three lines what the model is, what it knows, and where it is from."""
        return in_three_lines(self, self.known)

    def _repr_html_(self) -> str:
        """Show a notebook the same."""
        return facts_table(facts_of(self, self.known))

    def __getattr__(self, name: str) -> Tensor | nn.Module:
        """Say of a method that a model might have what does it."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            refuse_elsewhere(name, self.__dict__.get("home"))
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a model as the place where it lies: another process opens it from there.

        Raises:
            TypeError: It lies nowhere.
        """
        if self.home is None:
            raise TypeError("this model lies in no folder from which another process could open it")
        size = self.batch_size if self.fills_up else None
        return opened_again, (self.home.open, self.home.source, self.task, str(self.device), size)

    def __deepcopy__(self, memo: dict[int, Any]) -> TrainedModel:
        """Return a copy in memory, with a turn of its own."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__ = copy.deepcopy(self.__dict__, memo)
        return copied

    @property
    def task_to_set(self) -> tuple[int, ...]:
        """The set that each task is stored in."""
        return tuple(self.parts.pool.task_to_set)

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.backbone.device

    @property
    def temperature(self) -> float | None:
        """What divides logits before a softmax; None where nothing was fitted to images set apart."""
        fitted = self.calibration.get("temperature")
        if fitted is None:
            return Predictor.of(self.parts, self.task - 1).temperature
        return float(fitted)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: a trained model is used, not trained on."""
        return super().train(False)

    def transform(self, image: ImageLike) -> Tensor:
        """Return an image as the network takes it, ``[3, S, S]`` float32: resized, cropped, normalised.

        A vector is returned as it is, ``[dim]``.

        Raises:
            DataError: It cannot be read, has another shape, or holds values that are no numbers.
        """
        if self.backbone.takes_vectors:
            return as_vectors(image, self.backbone.width)[0]
        pixels = image if isinstance(image, Tensor) else pixels_of(image)
        if pixels.ndim != 3 or pixels.shape[0] != 3:
            raise DataError(f"expected a tensor [3, H, W] but got {list(pixels.shape)}", "put channels first")
        if pixels.dtype == torch.uint8:
            tell_photo((pixels.shape[2], pixels.shape[1]), self.parts.config.backbone.name)
            with self.computing():
                return self.parts.still(pixels.cpu())
        require_transformed(pixels, self.backbone.image_size, self.backbone.fingerprint.mean)
        return pixels.float()

    def forward(self, images: ImageLike | Iterable[ImageLike]) -> Tensor:
        """Return logits of the seen classes, ``[B, C]``, without asking for tasks where there is one set."""
        return self._answers(self._listed(images), tasks=False).logits

    def answer(self, images: ImageLike | Iterable[ImageLike]) -> Answers:
        """Return the model's answers for some images.

        Raises:
            DataError: Something is no image, or the run's retrieval must be told the task.
            ComponentError: A component raised an error.
        """
        return self._answers(self._listed(images), tasks=True)

    def _answers(
        self, asked: Sequence[Asked], *, tasks: bool, bad: dict[int, DataError] | None = None
    ) -> Answers:
        """Return the answers for images one by one.

        Args:
            asked: The images.
            tasks: Whether tasks must be named where there is one set.
            bad: Takes the errors of images that cannot be used, by number: these get no answer. None where
                the first one is raised.
        """
        self._require_own_retrieval()
        predictor = Predictor.of(self.parts, self.task - 1)
        answers = []
        with Telling("predicting", len(asked)) as tell:
            for part in chunks(range(len(asked)), self.batch_size):
                # a turn for each batch: who asks for one image does not wait for thousands of somebody else's
                with self.computing():
                    batch = self._transformed(asked, part, bad)
                    if len(batch):
                        answers.append(self._answer(predictor, batch, tasks=tasks))
                tell(len(part))
        if not answers and bad:
            raise refusal({asked[n].path or asked[n].name: named(asked[n], bad[n]) for n in bad})
        return attrs.evolve(joined(answers), temperature=self.temperature)

    def _require_own_retrieval(self) -> None:
        """Refuse a model whose sets are named by the true task, which nobody knows of a new image.

        Raises:
            DataError: It is one.
        """
        if self.retrieval is not None and self.retrieval.control:
            raise DataError("retrieval of this run is told the task", "it can only be evaluated, not used")

    @torch.no_grad()
    def features(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        queries: bool = False,
        progress: Callable[[int], None] = lambda count: None,
    ) -> Tensor:
        """Return what the head is fed, ``[B, F]`` float32; batches are not filled up.

        It costs one forward an image, and a bare one more where the set of an image is retrieved.

        Args:
            images: The images.
            queries: Whether un-prompted features stand to the right, ``[B, F + width]``, by a forward more
                where the head is fed others.
            progress: Called after each batch with its number of images.

        Raises:
            DataError: As :meth:`answer`.
        """
        asked = self._listed(images)
        self._require_own_retrieval()
        predictor = Predictor.of(self.parts, self.task - 1)
        rows = []
        for part in chunks(range(len(asked)), self.batch_size):
            with self.computing():
                rows.append(self._features(predictor, self._transformed(asked, part), queries=queries))
            progress(len(part))
        return torch.cat(rows)

    def _features(self, predictor: Predictor, images: Tensor, *, queries: bool) -> Tensor:
        """Return what the head is fed for a batch of transformed images, as :meth:`features` says."""
        batch = unlabelled(images, self.backbone, self.retrieval)
        names = [str(row) for row in range(len(images))]
        chosen = predictor.sets_of(batch, names, tasks=False)
        rows = predictor.rows(batch, chosen).flatten(1)
        if not queries:
            return rows
        with predictor.autocast():
            return torch.cat([rows, batch.query], dim=1)

    @expands_paths
    def predict(
        self,
        images: ImageLike | Iterable[ImageLike],
        top_k: int = 1,
        reject: float | None = None,
        *,
        partial: bool = False,
        on_features: Callable[[Tensor], None] | None = None,
    ) -> list[dict[str, Any]]:
        """Return what ``lw2g predict --json`` prints: one JSON-able entry per image.

        An entry has ``name`` (of the file or upload, else ``image 1`` and so on), ``path`` (None for what is
        no file; of a row of a file of vectors its id), ``class``, ``class_index`` and ``probability`` (0 to
        1) of the best class, ``top`` with these of the ``top_k`` best ones, and ``task`` and ``set``, from 0,
        that retrieval chose (None where the baseline makes no hard choice). Probabilities are at the
        :attr:`temperature` where ``calibrated`` says so: then about that share of such answers is right.
        Without one they are as sure as the logits.

        Args:
            images: The images.
            top_k: How many classes to name.
            reject: About the share of known images that are called unknown. Then an entry has ``score``,
                ``threshold``, ``rejected`` and ``best`` too; ``class`` and ``class_index`` are None where it
                is rejected.
            partial: Whether to answer for the other images where some cannot be used. The entry of such has
                ``error`` and no answer: None, and an empty ``top``.
            on_features: Called with what the head was fed of the images that have an answer, ``[n, F]``.

        Raises:
            DataError: As :meth:`answer`; in part, where no image can be used.
            ConfigError: The model cannot reject at this rate, or ``top_k`` is below 1.
        """
        if top_k < 1:
            raise ConfigError(f"top_k names at least one class, not {top_k!r}", "give 1 or more")
        asked = self._listed(images)
        threshold = None if reject is None else self.threshold(reject)
        files = [one.image for one in asked if isinstance(one.image, Path)]
        bad: dict[int, DataError] | None = {} if partial else None
        # before the first forward: a bad file among thousands would lose the answers for the others
        if len(files) > 1 and not partial:
            examine_images(files)
        with torch.no_grad():
            answers = self._answers(asked, tasks=True, bad=bad)
        if on_features is not None:
            on_features(answers.features)
        answered = [image for number, image in enumerate(asked) if number not in (bad or ())]
        rows = entries_of(answers, answered, self.classes, min(top_k, len(self.known)))
        if threshold is not None:
            reject_below(threshold, self._scores(answers.features), rows)
        for number, error in sorted((bad or {}).items()):
            rows.insert(number, without_answer(asked[number], error))
        return rows

    @expands_paths
    def threshold(self, reject: float) -> float:
        """Return the score below which an image is unknown.

        It is a quantile of the scores of known images by the model without each of them.

        Args:
            reject: About the share of known images that are called unknown.

        Raises:
            ConfigError: The model cannot reject at this rate.
        """
        return threshold_of(self._known_scores(), reject)

    def _known_scores(self) -> Tensor:
        """Return the scores of images set apart, ascending.

        Raises:
            ConfigError: There are none that tell.
        """
        known = self.calibration.get("known")
        if known is None or len(self.known) == 1:
            why = self.parts.unsolved
            raise no_scores(why, None if why else self._gaussians(), num_classes=len(self.known))
        return known

    def _gaussians(self) -> Gaussians | None:
        """Return the Gaussians in the sums of the head, factored once; None where it keeps none."""
        head = self.baseline.closed_form
        if head is None:
            return None
        address = head.count.data_ptr()  # a model that has moved to another device has others
        if self._moments is None or self._moments[0] != address:
            self._moments = (address, moments_of(head, self._history[-1].seen))
        return self._moments[1]

    def _scores(self, features: Tensor) -> list[float]:
        """Return how known images with these features are."""
        with self.computing():
            head = self.baseline.closed_form
            gaussians = self._gaussians()
            assert head is not None
            assert gaussians is not None  # images were scored when the model was made
            scores: list[float] = gaussians.scores(head.lifted(features.double())).tolist()
        return scores

    def _listed(self, images: ImageLike | Iterable[ImageLike]) -> list[Asked]:
        """Return images, or vectors where the backbone takes these, one by one with what they are called."""
        if self.backbone.takes_vectors:
            rows, ids = named_vectors(images, self.backbone.fingerprint)
            named_rows = enumerate(zip(rows, ids, strict=True), 1)
            return [Asked(name=at or f"vector {n}", path=at, image=row) for n, (row, at) in named_rows]
        listed = []
        for image, name in zip(*as_list(images), strict=True):
            path = str(image) if isinstance(image, Path | Crop) or is_web_address(image) else None
            listed.append(Asked(name=name, path=path, image=image))
        return listed

    def _transformed(
        self, asked: Sequence[Asked], positions: Sequence[int], bad: dict[int, DataError] | None = None
    ) -> Tensor:
        """Return some of the images as the network takes them, on the device, ``[B, ...]``.

        Args:
            asked: The images.
            positions: Which of them.
            bad: As in :meth:`_answers`.
        """
        rows = []
        cut = CropReader()
        for position in positions:
            image = asked[position].image
            try:
                if isinstance(image, Crop):
                    image = cut(image)
                rows.append(self.transform(image).to(self.device))
            except DataError as error:
                if bad is None:
                    raise named(asked[position], error) from error
                bad[position] = error
        return torch.stack(rows) if rows else torch.empty(0)

    def _answer(self, predictor: Predictor, images: Tensor, *, tasks: bool) -> Answers:
        """Return the model's answers to images, transformed, ``[B, 3, S, S]``, a batch at most."""
        names = [str(row) for row in range(len(images))]
        if self.fills_up:
            # by copies of the first image: one size of a forward has one way to add up, and so its bits
            copies = images[:1].expand(self.batch_size - len(images), *images.shape[1:])
            images = torch.cat([images, copies])
        batch = unlabelled(images, self.backbone, self.retrieval)
        answers = predictor(batch, names, tasks=tasks)
        logits = self._columns.of(answers.logits.float())
        return attrs.evolve(answers, logits=logits, suits=None, by_set=None)
