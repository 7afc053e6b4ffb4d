"""A head of class names in text, alone or combined with a head in closed form.

Alone it is CLIP's zero-shot classifier (Radford et al., ICML 2021), in a stream Continual-CLIP (Thengane et
al., 2022): a task adds rows and changes none. Combined with a head in closed form, scores are added with a
weight, as Wang et al. (ICLR 2024) add Gaussian discriminant analysis; theirs is chosen on validation images,
ours on training images that are held back.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from lw2g.plugin import ClosedForm, ConfigError, TaskInfo, TextVectors, held_back, read_text_vectors

__all__ = ["WEIGHTS", "TextHead"]

WEIGHTS = (0.0, *(10.0 ** (quarter / 4) for quarter in range(-12, 13)))
"""Candidates for the weight of the head in closed form, where that of the text is 1."""


class TextHead(ClosedForm):
    """Cosines of image and class name in the space of a CLIP model, alone or with a head in closed form.

    The score of class c is ``s cos(u, t_c) + w r_c``: u is the image's feature after the model's projection,
    t_c the unit vector of the class (:meth:`~lw2g.pixels.text_vectors.TextVectors.of_class`), s the model's
    logit scale, and r the score of the other head, which sees u at length 1. Text alone is exact, and so is a
    given weight if the other head is. A fitted weight has the least log loss on every fifth image of each
    class, summed over tasks: each task is scored among the classes until then, so that it depends on the cut
    into tasks.

    A name brings knowledge of its class that no image gave: such scores are no match for heads of images
    alone.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        width: Width P of text vectors.
        file: File of text vectors. It is read when classes are learned, and never again: the state holds what
            was read.
        option: The option that names the file, for messages.
        head: The head that the text is combined with, for features of the width of text; None for none.
        weight: Its weight; None to fit it.

    Attributes:
        text: Unit vectors of classes, ``[num_classes, P]`` float64.
        projection: ``[dim, P]`` float64; the identity where the file has none.
        scale: The logit scale; 100 where the file does not say.
        losses: Log loss of each candidate weight, summed over images that were held back.
    """

    text: Tensor
    projection: Tensor
    scale: Tensor
    losses: Tensor
    head: ClosedForm | None

    def __init__(
        self,
        dim: int,
        num_classes: int,
        width: int,
        file: Path | None,
        option: str,
        head: ClosedForm | None = None,
        weight: float | None = None,
    ) -> None:
        super().__init__(num_classes)
        self.dim = dim
        self.weight = weight
        self._file = file
        self._option = option
        self._vectors: TextVectors | None = None
        self._names = list(map(str, range(num_classes)))
        self.register_module("head", head)
        self.register_buffer("text", torch.zeros(num_classes, width, dtype=torch.float64))
        self.register_buffer("projection", torch.eye(dim, width, dtype=torch.float64))
        # CLIP's own, until a file says what its model has learned
        self.register_buffer("scale", torch.tensor(100.0, dtype=torch.float64))
        self.register_buffer("losses", torch.zeros(len(WEIGHTS), dtype=torch.float64))

    def begin_task(self, task: TaskInfo) -> None:
        """Note the names of a task's classes."""
        super().begin_task(task)
        if self.head is not None:
            self.head.begin_task(task)
        for entry in task.class_map:
            self._names[entry.position] = entry.name

    def require(self, task: TaskInfo) -> None:
        """Look up the text of a task's classes.

        Raises:
            ConfigError: There is no file, or its vectors do not fit the features.
            DataError: The file is none of text vectors, or lacks a class.
        """
        vectors = self._opened()
        for name in task.class_names:
            vectors.of_class(name)

    def expect(self, task: TaskInfo) -> None:
        """Read the text of a task's classes, before any image is looked at.

        Raises:
            ConfigError: There is no file, or its vectors do not fit the features.
            DataError: The file is none of text vectors, or lacks a class.
        """
        for position in task.classes:
            self._read_class(position)

    @property
    def fitted_weight(self) -> float:
        """The weight of the other head: the one given, else the candidate of least loss; 0 without a head."""
        if self.head is None:
            return 0.0
        if self.weight is not None:
            return self.weight
        return WEIGHTS[int(self.losses.argmin())] if bool(self.losses.any()) else 1.0

    def lifted(self, features: Tensor) -> Tensor:
        """Return features in the space of text, at length 1, ``[n, P]``."""
        return functional.normalize(features @ self.projection, dim=-1)

    def learn(self, features: Tensor, labels: Tensor, generator: torch.Generator, owner: int = 0) -> None:
        """Add all features of a task; where the weight is fitted, by those that are held back first."""
        if self.head is None:
            self.update(features, labels, owner)
            return
        with torch.no_grad():
            self._read_classes(labels)
            rows = self.lifted(features.double())
            # a weight that is given needs no images that the head has not seen
            unseen = torch.zeros_like(labels, dtype=torch.bool)
            if self.weight is None:
                unseen = held_back(labels)
            self.head.learn(rows[~unseen], labels[~unseen], generator)
            if bool(unseen.any()):
                self._observe(rows[unseen], labels[unseen])
                # taken in afterwards: the head is that of all images
                self.head.update(rows[unseen], labels[unseen])
            self.count += torch.bincount(labels, minlength=len(self.count))
            self._solved = None

    def _observe(self, rows: Tensor, labels: Tensor) -> None:
        """Add the log losses of images that the other head has not seen, for each weight that may be chosen.

        Args:
            rows: Features in the space of text, ``[n, width]``.
            labels: Their classes, ``[n]``.
        """
        assert self.head is not None  # without another head there is no weight to choose
        shown = int((self.head.count > 0).sum())  # classes that the head has images of
        targets = self._targets[:shown]
        # classes of one target have one score: each target is to count once
        firsts = [targets.index(target) for target in range(len(set(targets)))]
        other_scores = self.head.scores(rows, shown)[:, firsts]
        cosines = self.scale * rows @ self._pooled_text(shown).T
        wanted = torch.tensor([targets[label] for label in labels.tolist()], device=labels.device)
        for number, weight in enumerate(WEIGHTS):
            self.losses[number] += functional.cross_entropy(
                cosines + weight * other_scores, wanted, reduction="sum"
            )

    def _pooled_text(self, seen: int) -> Tensor:
        return functional.normalize(self.pooled(self.text[:seen]), dim=-1)

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Read the text of new classes, and add features to the other head."""
        self._read_classes(labels)
        if self.head is not None:
            self.head.update(self.lifted(features), labels)

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return scaled text vectors of targets, ``[targets, width]``, then what the other head needs."""
        text = self.scale * self._pooled_text(seen)
        return (text,) if self.head is None else (text, *self.head.solve(seen))

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return scaled cosines of targets, plus the weighted scores of the other head."""
        text = solution[0]
        other_solution = solution[1:]
        rows = self.lifted(features)
        scores = rows @ text.T
        if self.head is not None:
            scores = scores + self.fitted_weight * self.head.score(rows, *other_solution)
        return scores

    def _read_classes(self, labels: Tensor) -> None:
        for position in torch.unique(labels).tolist():
            self._read_class(position)

    def _read_class(self, position: int) -> None:
        """Put the vector of a class into the state, unless it is there."""
        # an export holds the vectors and needs no file: a class whose row is there is not read again
        if bool(self.text[position].any()):
            return
        vectors = self._opened()
        if vectors.projection is not None:
            self.projection.copy_(vectors.projection)
        if vectors.logit_scale is not None:
            self.scale.fill_(vectors.logit_scale)
        self.text[position] = vectors.of_class(self._names[position]).to(self.text)

    def _opened(self) -> TextVectors:
        """Return what the file holds, read once, if it fits the features."""
        if self._vectors is None:
            self._vectors = self._read()
        return self._vectors

    def _read(self) -> TextVectors:
        """Return the vectors of the file, whose projection leads from features to their width."""
        if self._file is None:
            raise ConfigError(
                f"{self._option}: the head 'text' has no file of text vectors",
                "write one with python -m lw2g_constraints.export, and name it here",
            )
        read = read_text_vectors(self._file, self._option)
        dim, width = self.projection.shape
        if read.dim != width:
            raise ConfigError(
                f"{self._option}: {str(self._file)!r} has text vectors of width {read.dim}, not {width}",
                f"set head.text.width={read.dim}",
            )
        # without a projection, features of the width of text are text's own
        fits = dim == width
        if read.projection is not None:
            fits = len(read.projection) == dim
        if not fits:
            raise ConfigError(
                f"{self._option}: {str(self._file)!r} does not map features of width {dim} to text of width "
                f"{width}",
                f"give a file whose 'projection' is [{dim}, {width}], the model's own",
            )
        return read
