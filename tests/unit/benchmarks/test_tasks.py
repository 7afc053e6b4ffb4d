"""The stream contracts and the cutting of labelled images into tasks."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lw2g.interfaces.stream import Task, TaskData, TaskStream
from lw2g_benchmarks.tasks import ArraySource, LabelledImages, build_stream


def images(labels, prefix="train", fill=0):
    """Return tiny images, all of one grey, with the given raw labels."""
    pixels = torch.full((len(labels), 3, 2, 2), fill, dtype=torch.uint8)
    source = ArraySource(pixels, [f"{prefix}/{i}" for i in range(len(labels))])
    return LabelledImages(source=source, labels=np.array(labels, dtype=np.int64))


def stream(
    train=(0, 1, 2, 3, 2), test=(3, 2, 1, 0), order=(2, 0, 3, 1), sizes=(2, 2), fill=0, prefix="train"
):
    """Return a small stream over classes a, b, c, d."""
    return build_stream(
        name="tiny",
        train=images(train, prefix, fill),
        test=images(test, "test"),
        class_names="abcd",
        order=order,
        sizes=sizes,
    )


def test_tasks_hold_their_classes():
    """Raw labels become positions and each task holds exactly the samples of its classes."""
    first, second = stream().tasks
    assert first.classes == (0, 1)
    assert first.class_names == ("c", "a")
    assert first.train.indices.tolist() == [0, 2, 4]
    assert first.train.labels.tolist() == [1, 0, 0]
    assert first.train.ids == ("train/0", "train/2", "train/4")
    assert second.test.indices.tolist() == [0, 2]
    assert second.test.labels.tolist() == [2, 3]


@given(st.permutations(range(6)), st.sampled_from([(6,), (1, 5), (2, 2, 2), (3, 3)]), st.data())
def test_tasks_partition_samples_and_remapping_is_a_bijection(order, sizes, data):
    """Every sample lands in one task, with the position whose raw label it has."""
    labels = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=20))
    made = build_stream(
        name="x", train=images(labels), test=images([0]), class_names="abcdef", order=order, sizes=sizes
    )
    seen = [
        (i, made.class_order[p])
        for t in made.tasks
        for i, p in zip(t.train.indices, t.train.labels, strict=True)
    ]
    assert sorted(seen) == list(enumerate(labels))
    assert "".join(made.class_names) == "".join("abcdef"[label] for label in order)


@pytest.mark.parametrize(
    "changes",
    [
        {"train": (0, 1, 2, 3, 3)},
        {"test": (2, 3, 1, 0)},
        {"order": (0, 2, 3, 1)},
        {"sizes": (1, 3)},
        {"fill": 1},
        {"prefix": "other"},
    ],
)
def test_fingerprint_sees_every_change(changes):
    """Labels, split, order, borders, pixels and ids all enter the fingerprint; nothing else does."""
    assert stream().fingerprint == stream().fingerprint
    assert len(stream().fingerprint) == 64
    assert stream(**changes).fingerprint != stream().fingerprint


def test_foreign_labels_and_wrong_sizes_are_refused():
    """A sample of a class outside the order, or sizes that do not add up, are errors."""
    with pytest.raises(ValueError, match="labels in the class order but got 1"):
        stream(order=(2, 0, 3), sizes=(3,))
    with pytest.raises(ValueError, match="add up to 4 but got 3"):
        stream(sizes=(2, 1))


def test_array_source_checks_its_input():
    """Only uint8 RGB with one id per image is taken."""
    with pytest.raises(ValueError, match="expected uint8"):
        ArraySource(torch.zeros(1, 3, 2, 2), ["a"])
    with pytest.raises(ValueError, match="expected 1 ids but got 2"):
        ArraySource(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), ["a", "b"])


def task_data(labels=(0, 1), indices=(0, 1)):
    """Return task data over a source of two images."""
    return TaskData(source=images((0, 1)).source, indices=indices, labels=labels)


def test_task_data_is_checked_and_read_only():
    """Lengths and bounds are checked and the arrays cannot be changed."""
    data = task_data()
    assert len(data) == 2
    assert data.labels.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        data.labels[0] = 5
    with pytest.raises(ValueError, match="expected as many labels"):
        task_data(labels=(0,))
    with pytest.raises(ValueError, match="indices below 2 but got up to 2"):
        task_data(indices=(0, 2))
    with pytest.raises(ValueError, match="expected a vector"):
        task_data(labels=((0, 1),))


def test_task_checks_classes_and_labels():
    """Classes must be contiguous and labels must be among them."""
    task = Task(index=0, classes=(0, 1), class_names=("a", "b"), train=task_data(), test=task_data())
    with pytest.raises(ValueError, match="contiguous"):
        attrs.evolve(task, classes=(0, 2))
    with pytest.raises(ValueError, match="expected 2 class names"):
        attrs.evolve(task, class_names=("a",))
    with pytest.raises(ValueError, match=r"test labels of task 0 in 0\.\.1 but got 2"):
        attrs.evolve(task, test=task_data(labels=(0, 2)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class_order": (0, 0, 1, 2)}, "distinct raw labels"),
        ({"class_names": ("a",)}, "expected 4 class names"),
        ({"tasks": ()}, "partition"),
        ({"planted_groups": (0,)}, "expected 2 planted_groups but got 1"),
    ],
)
def test_stream_checks_itself(changes, message):
    """A stream whose parts do not fit each other cannot be made."""
    with pytest.raises(ValueError, match=message):
        attrs.evolve(stream(), **changes)


def test_stream_needs_tasks_in_order():
    """Tasks out of order are refused."""
    made: TaskStream = stream()
    with pytest.raises(ValueError, match="task indices"):
        attrs.evolve(made, tasks=made.tasks[::-1])
