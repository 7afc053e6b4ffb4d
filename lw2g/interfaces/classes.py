"""The classes of tasks: raw label, position, target, name and number of each, mapped to each other.

A *raw label* is the class number of the original data set. A *position* is a class of a task: task ``t`` owns
a contiguous range of them, and the ranges follow each other. A *target* is what is predicted. Where every
class belongs to one task, position and target are the same number; a class that comes again has a position in
each of its tasks and one target. A *number* is what a model that goes on learning calls a target; it is never
given twice. Methods see positions; metrics, targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import attrs
import numpy as np
import numpy.typing as npt

from lw2g.ground.spelling import composed_names

__all__ = ["ClassEntry", "ClassMap", "OwnsClasses"]


class OwnsClasses(Protocol):
    """What a task says of its classes (:class:`lw2g.interfaces.context.TaskInfo`), one entry each."""

    @property
    def classes(self) -> tuple[int, ...]:
        """Their positions."""
        ...

    @property
    def class_names(self) -> tuple[str, ...]:
        """Their names."""
        ...

    @property
    def targets(self) -> tuple[int, ...]:
        """Their targets."""
        ...


class ClassEntry(NamedTuple):
    """A class of a task."""

    position: int
    target: int
    name: str


def _one_per_position(
    classes: ClassMap, field: attrs.Attribute[Any], values: tuple[object, ...] | None
) -> None:
    if values is not None and len(values) != len(classes.targets):
        raise ValueError(f"expected {len(classes.targets)} {field.name} but got {len(values)}")


@attrs.frozen(kw_only=True, eq=False)
class ClassMap:
    """Classes of one task or of several that follow each other, in the order of their positions.

    Attributes:
        targets: The target of each position.
        names: The name of each position; composed, as names are compared (:mod:`lw2g.ground.spelling`).
        first: The first position.
        raw_labels: The raw label of each position; None where nobody knows the data set.
        numbers: The number of each target; None where targets are not numbered.

    >>> again = ClassMap(targets=(0, 1, 0), names=("cat", "dog", "cat"))
    >>> again.target_names, again.positions_of(0), again.targets_at([2, 1]).tolist()
    (('cat', 'dog'), (0, 2), [0, 1])
    """

    targets: tuple[int, ...]
    names: tuple[str, ...] = attrs.field(validator=_one_per_position, converter=composed_names)
    first: int = 0
    raw_labels: tuple[int, ...] | None = attrs.field(default=None, validator=_one_per_position)
    numbers: tuple[int, ...] | None = None

    @classmethod
    def of(cls, tasks: Iterable[OwnsClasses], numbers: tuple[int, ...] | None = None) -> ClassMap:
        """Return the classes of tasks that follow each other.

        Args:
            tasks: The tasks.
            numbers: The number of each target, where they have one.
        """
        targets: list[int] = []
        names: list[str] = []
        first = 0
        for task in tasks:
            if not targets:
                first = task.classes[0]
            targets += task.targets
            names += task.class_names
        return cls(targets=tuple(targets), names=tuple(names), first=first, numbers=numbers)

    def __len__(self) -> int:
        return len(self.targets)

    def __iter__(self) -> Iterator[ClassEntry]:
        for number, target in enumerate(self.targets):
            yield ClassEntry(position=self.first + number, target=target, name=self.names[number])

    def target(self, position: int) -> int:
        """Return the target of a position."""
        return self.targets[position - self.first]

    def targets_at(self, positions: Any) -> npt.NDArray[np.int64]:
        """Return the targets of many positions, such as the labels of images; of their shape."""
        targets: npt.NDArray[np.int64] = self._table[np.asarray(positions) - self.first]
        return targets

    @cached_property
    def _table(self) -> npt.NDArray[np.int64]:
        return np.asarray(self.targets, dtype=np.int64)

    @cached_property
    def _positions(self) -> dict[int, list[int]]:
        positions: dict[int, list[int]] = {}
        for entry in self:
            positions.setdefault(entry.target, []).append(entry.position)
        return positions

    def positions_of(self, target: int) -> tuple[int, ...]:
        """Return the positions of a target in order; none if no task has it."""
        return tuple(self._positions.get(target, ()))

    @property
    def known(self) -> list[int]:
        """The targets, each once, in ascending order."""
        return sorted(self._positions)

    @cached_property
    def _names_by_target(self) -> dict[int, str]:
        return {entry.target: entry.name for entry in self}

    @property
    def target_names(self) -> tuple[str, ...]:
        """The name of each target, in the order of targets."""
        return tuple(self._names_by_target[target] for target in self.known)

    @cached_property
    def by_name(self) -> dict[str, int]:
        """The target of each name, in the order of targets."""
        return {self._names_by_target[target]: target for target in self.known}

    @property
    def names_by_raw_label(self) -> list[str]:
        """The names in the order of raw labels, each once."""
        names = self._raw_names
        return [names[label] for label in sorted(names)]

    @property
    def raw_label_ranks(self) -> npt.NDArray[np.int64]:
        """The rank of each position's raw label among those that there are."""
        labels = np.asarray(self.raw_labels, dtype=np.int64)
        return np.searchsorted(np.unique(labels), labels)

    @cached_property
    def _raw_names(self) -> dict[int, str]:
        if self.raw_labels is None:
            raise ValueError("expected raw labels but got none; a stream has them")
        return {label: self.names[place] for place, label in enumerate(self.raw_labels)}

    def number(self, target: int) -> int:
        """Return the number of a target: the target itself where they are not numbered."""
        return target if self.numbers is None else self.numbers[target]
