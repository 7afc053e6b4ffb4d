"""A head in closed form that classes are added to and taken from, with the rows that it has learned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.defaults import FEATURES_BENCHMARK, FROZEN_BASELINE
from lw2g.interfaces.head import ClosedForm, HeadContext
from lw2g.model.left_out import answers_without_each, left_out_places
from lw2g.model.parts import widened
from lw2g.model.rejection import moments_of, temperature_of
from lw2g.model.solved import Solved
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.runtime.boundary import build

__all__ = ["GrowingHead", "build_head"]


@cache
def _catalogue() -> Catalogue:
    return load_catalogue()


def build_head(
    num_classes: int, *, name: str, options: Mapping[str, Any], features: int, seed: int, dim: int
) -> ClosedForm:
    """Return a head that has learned nothing.

    Args:
        num_classes: For how many classes it has room.
        name: Its name.
        options: Its options by their names.
        features: Width of its random features; a head without some takes no notice of it.
        seed: Of what it draws.
        dim: Width of the rows.

    Raises:
        ConfigError: There is no such head or option, or its scores depend on how rows are cut into calls.
    """
    catalogue = _catalogue()
    component = catalogue.get("head", name)
    chosen_options = {**component.without_tasks, **options}
    overrides = {f"head.{component.name}.{option}": value for option, value in chosen_options.items()}
    overrides["baseline.head"] = component.name
    overrides["baseline.head_features"] = features
    config = resolve(
        catalogue, overrides=overrides, baseline=FROZEN_BASELINE, benchmark=FEATURES_BENCHMARK
    ).config
    (chosen,) = config.head
    context = HeadContext(dim=dim, num_classes=num_classes, seed=seed, features=features)
    head: ClosedForm = build(catalogue, "head", chosen, context)
    if not head.exact:
        raise ConfigError(
            f"head: the scores of {name!r} with these options depend on how images are cut into tasks, and "
            "fit must give what partial_fit gives",
            "take another, such as lda, ridge, cosine or mahalanobis",
        )
    return head


class GrowingHead:
    """A head, the rows of each class that it has learned, and the temperature that these give its scores.

    Classes have positions, in the order in which they come.

    Args:
        make_head: Returns a head that has learned nothing, by the number of classes for which it has room.

    Attributes:
        names: The name of each class.
        rows: The rows of each class, ``[n, dim]`` float32 or float64.
    """

    def __init__(self, make_head: Callable[[int], ClosedForm]) -> None:
        self._make_head = make_head
        self.names: tuple[str, ...] = ()
        self.rows: list[Tensor] = []
        self._head: ClosedForm | None = None
        self._temperature: float | None = None
        self._is_fitted = False

    @property
    def head(self) -> ClosedForm:
        """The head, which has learned at least one class."""
        assert self._head is not None
        return self._head

    def learn(self, rows: Tensor, positions: Tensor, new_names: Sequence[str]) -> None:
        """Add rows to the sums.

        Args:
            rows: ``[n, dim]`` float32 or float64.
            positions: The class of each, ``[n]``.
            new_names: Names of classes that come for the first time, each of which has a row.
        """
        if new_names:
            self._make_room(new_names)
            self.rows += [rows.new_empty(0, rows.shape[1]) for _ in new_names]
        self.head.update(rows, positions)
        for position in torch.unique(positions).tolist():
            own = rows[positions == position]  # a copy: the caller's array may change
            self.rows[position] = torch.cat([self.rows[position], own])
        self._is_fitted = False

    def _make_room(self, new_names: Sequence[str]) -> None:
        """Replace the head by a larger one with the same sums."""
        names = (*self.names, *new_names)
        larger = self._make_head(len(names))
        places = tuple(range(len(names)))
        # as one task: what a head takes from it are the names of its classes, not how many images there are
        task = TaskInfo(index=0, classes=places, class_names=names, seen=len(names), num_images=len(names))
        larger.begin_task(task)
        if self._head is not None:
            state = widened(self._head.state_dict(), larger.state_dict(), "the head")
            larger.load_state_dict(state)
        # what it reads of all classes, such as vectors of their names, goes into buffers: after the old state
        larger.expect(task)
        self._head = larger
        self.names = names

    def without(self, gone: Collection[int]) -> GrowingHead:
        """Return a head that has learned the rows of the other classes alone, at least those of one."""
        left = [position for position in range(len(self.names)) if position not in gone]
        fewer = GrowingHead(self._make_head)
        rows = [self.rows[position] for position in left]
        labels = torch.arange(len(left)).repeat_interleave(torch.tensor([len(own) for own in rows]))
        fewer.learn(torch.cat(rows), labels, [self.names[position] for position in left])
        return fewer

    def scores(self, rows: Tensor) -> Tensor:
        """Return the score of each class, ``[n, classes]`` float64; the largest wins."""
        return self.head.scores(rows, len(self.names))

    @property
    def temperature(self) -> float | None:
        """What divides scores before a softmax, of least log loss on rows that are left out of the sums.

        None where no row can be left out, or the head knows no way to do it.
        """
        if not self._is_fitted:
            self._temperature = self._fitted_temperature()
            self._is_fitted = True
        return self._temperature

    def _fitted_temperature(self) -> float | None:
        seen = len(self.names)
        if seen < 2:
            return None
        rows = torch.cat(self.rows)
        counts = torch.tensor([len(own) for own in self.rows])
        labels = torch.arange(seen).repeat_interleave(counts)
        chosen = left_out_places(len(rows), rows.shape[1])
        rows = rows[chosen].double()
        labels = labels[chosen]
        gaussians = moments_of(self.head, seen) if self.head.nearest_gaussian else None
        held = torch.ones(len(rows), dtype=torch.bool)
        answers = answers_without_each(Solved(head=self.head), gaussians, rows, labels, held, seen)
        if answers.scores is None or not len(answers.which):
            return None
        temperature, _ = temperature_of(answers.scores, labels[answers.which])
        return temperature
