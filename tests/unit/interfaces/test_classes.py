"""The map of classes: position, target, name, raw label and number."""

from __future__ import annotations

import pytest

from lw2g.interfaces.classes import ClassMap
from lw2g.interfaces.context import TaskInfo


def _task(index: int, first: int, names: str, targets: tuple[int, ...]) -> TaskInfo:
    classes = tuple(range(first, first + len(names)))
    return TaskInfo(
        index=index,
        classes=classes,
        class_names=tuple(names),
        seen=first + len(names),
        num_images=1,
        targets=targets,
    )


TASKS = [_task(0, 0, "ab", (0, 1)), _task(1, 2, "cb", (2, 1)), _task(2, 4, "a", (0,))]


def test_a_class_that_comes_again_has_one_target_and_a_position_in_each_of_its_tasks() -> None:
    """Positions count on over tasks; targets, names and numbers are those of the first meeting."""
    classes = ClassMap.of(TASKS, numbers=(5, 7, 9))
    assert [tuple(entry) for entry in classes] == [
        (0, 0, "a"),
        (1, 1, "b"),
        (2, 2, "c"),
        (3, 1, "b"),
        (4, 0, "a"),
    ]
    assert classes.target_names == ("a", "b", "c")
    assert dict(classes.by_name) == {"a": 0, "b": 1, "c": 2}
    assert [classes.positions_of(target) for target in range(4)] == [(0, 4), (1, 3), (2,), ()]
    assert classes.known == [0, 1, 2]
    assert [classes.number(target) for target in classes.known] == [5, 7, 9]


def test_the_classes_of_one_task_are_asked_by_their_positions_in_the_stream() -> None:
    """A map of a later task takes the labels of its images as they are."""
    own = TASKS[1].class_map
    assert own.first == 2
    assert own.target(3) == 1
    assert own.targets_at([[3, 2], [2, 2]]).tolist() == [[1, 2], [2, 2]]


def test_raw_labels_are_ranked_without_gaps() -> None:
    """Names follow raw labels, not the order of the stream, each once."""
    classes = ClassMap(targets=(0, 1, 0), names=("x", "y", "x"), raw_labels=(70, 3, 70))
    assert classes.names_by_raw_label == ["y", "x"]
    assert classes.raw_label_ranks.tolist() == [1, 0, 1]
    with pytest.raises(ValueError, match="expected raw labels"):
        _ = ClassMap.of(TASKS).names_by_raw_label


def test_a_map_has_a_name_for_each_position() -> None:
    """A name too few is refused, not passed over."""
    with pytest.raises(ValueError, match="expected 2 names but got 1"):
        ClassMap(targets=(0, 1), names=("a",))
