"""What the framework relies on in a benchmark: disjoint tasks, the same on every call, and no look-ahead."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs
import torch
from torch import Tensor

from lw2g.blocks.augmentation import canvas_of, uniforms
from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.component import BenchmarkComponent
from lw2g.interfaces.stream import (
    BatchAugmentation,
    ImageTransform,
    RandomTransform,
    StagedTransform,
    Task,
    TaskData,
    TaskStream,
    Transforms,
)
from lw2g.testing.guards import available, available_once, bearing, seeded
from lw2g.testing.kit import ContractViolation, NotApplicable, Subject, check

__all__ = [
    "check_classes_are_disjoint",
    "check_every_class_has_images",
    "check_fingerprint_is_one_of_content",
    "check_images_are_rgb_bytes",
    "check_like_for_like_names_options",
    "check_no_look_ahead",
    "check_same_options_same_stream",
    "check_samples_belong_to_one_task_and_split",
    "check_test_transform_is_deterministic",
    "check_train_transform_draws_from_torch_alone",
    "check_transforms_give_network_input",
]

Split = Literal["train", "test"]
_SPLITS: tuple[Split, ...] = ("train", "test")
_SIZES = (32, 48)
_MEAN, _STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
_LOOKED_AT = 3
_ROUNDING = 0.05
"""Images of a task and split that are decoded."""


@check("benchmark")
def check_classes_are_disjoint(subject: Subject) -> None:
    """Tasks own disjoint classes, which follow each other from 0 on."""
    stream = _stream(subject)
    owned = [position for task in stream.tasks for position in task.classes]
    if not owned or owned != list(range(stream.num_classes)):
        raise ContractViolation(
            f"its tasks own the classes {owned[:20]} of {stream.num_classes}; give task after task the next "
            "contiguous range of positions in the class order (lw2g.interfaces.stream)"
        )
    if len(set(stream.class_order)) != len(stream.class_order):
        raise ContractViolation("class_order repeats a raw label; list every class once")


@check("benchmark")
def check_like_for_like_names_options(subject: Subject) -> None:
    """What it holds equal for all methods names options that exist, with values that they take."""
    component: BenchmarkComponent = subject.component
    if not component.like_for_like:
        raise NotApplicable("it holds nothing equal")
    try:
        resolve(subject.catalogue, benchmark=component.name, overrides={"run.protocol": "like-for-like"})
    except ConfigError as error:
        raise ContractViolation(f"correct like_for_like of {component.name!r}: {error}") from error


@check("benchmark")
def check_every_class_has_images(subject: Subject) -> None:
    """Every class of a task has training and test images, labelled with it."""
    for task, split, data in _parts(subject):
        labels = Counter(data.labels.tolist())
        empty = [position for position in task.classes if not labels[position]]
        foreign = sorted(labels.keys() - set(task.classes))
        if empty:
            raise ContractViolation(
                f"task {task.index} has no {split} image of class {empty[0]}; leave the class out or raise "
                "DataError for incomplete data"
            )
        if foreign:
            raise ContractViolation(
                f"task {task.index} has {split} images labelled {foreign[0]}, a class of another task; a "
                "task's data hold its own classes alone"
            )


@check("benchmark")
def check_samples_belong_to_one_task_and_split(subject: Subject) -> None:
    """No sample is in two tasks, or in training and test data, and every sample has an id of its own."""
    met: dict[str, str] = {}
    for task, split, data in _parts(subject):
        here = f"the {split} data of task {task.index}"
        if len(data.source.ids) != len(data.source):
            raise ContractViolation(
                f"the source of {here} has {len(data.source)} images and {len(data.source.ids)} ids; give "
                "one id per image"
            )
        for name in data.ids:
            if name in met:
                raise ContractViolation(
                    f"the id {name!r} is in {met[name]} and in {here}; give every sample one task and one "
                    "split, and an id that no other has (the split in front where both count alike)"
                )
            met[name] = here


@check("benchmark")
def check_same_options_same_stream(subject: Subject) -> None:
    """The same options give the same tasks, splits, ids, images and fingerprint, whatever the global seed."""
    first, remedy = _stream(subject), "draw from a generator of your own, seeded by an option, in stream()"
    with seeded(1234):
        again = available(lambda: subject.component.build(subject.config).stream())
    if (again.fingerprint, again.class_order) != (first.fingerprint, first.class_order):
        raise ContractViolation(f"two streams of the same options differ in fingerprint or order; {remedy}")
    for (task, split, data), (_, _, other) in zip(_parts(subject), _parts_of(again), strict=True):
        same = data.ids == other.ids and data.labels.tolist() == other.labels.tolist()
        if not same or not all(map(torch.equal, _images(data), _images(other))):
            raise ContractViolation(
                f"two streams of the same options differ in the {split} data of task {task.index}; {remedy}"
            )


@check("benchmark")
def check_fingerprint_is_one_of_content(subject: Subject) -> None:
    """Other data by another increment or seed, where it has such options, have another fingerprint."""
    stream = _stream(subject)
    if not isinstance(stream.fingerprint, str) or len(stream.fingerprint) < 8:
        raise ContractViolation(
            f"its fingerprint is {stream.fingerprint!r}; hash ids, images, labels, split and class order "
            "(SHA-256), since runs are compared by it"
        )
    for said, other in _variants(subject):
        if other.fingerprint == stream.fingerprint and _content(other) != _content(stream):
            raise ContractViolation(
                f"{said} gives other data and the same fingerprint; hash ids, images, labels, split and "
                "class order, since runs are compared by it"
            )


@check("benchmark")
def check_images_are_rgb_bytes(subject: Subject) -> None:
    """An image is uint8 [3, H, W], and the same whenever it is asked for."""
    for task, split, data in _parts(subject):
        for image, again in zip(_images(data), _images(data), strict=True):
            if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] != 3 or not image.numel():
                raise ContractViolation(
                    f"the {split} data of task {task.index} hold an image {image.dtype} {list(image.shape)}; "
                    "decode to RGB, uint8 [3, H, W]"
                )
            if not torch.equal(image, again):
                raise ContractViolation(
                    f"an image in the {split} data of task {task.index} differs when it is asked for again; "
                    "leave augmentation to the training transform"
                )


@check("benchmark")
def check_no_look_ahead(subject: Subject) -> None:
    """What a task's images become depends on nothing that later tasks hold."""
    stream = _stream(subject)
    early = _images(stream.tasks[0].train) + _images(stream.tasks[0].test)
    used, fresh = _transforms(subject), _transforms(subject, fresh=True)
    before = _transformed(used, early)
    for task in reversed(stream.tasks):  # a transform that learns from what it sees would have learned now
        _transformed(used, _images(task.train))
    if not all(map(torch.equal, before, _transformed(used, early))):
        raise ContractViolation(
            "an image of the first task is transformed otherwise once later tasks have been read; transforms "
            "must not learn from what they see"
        )
    if not all(map(torch.equal, before, _transformed(fresh, early))):
        raise ContractViolation(
            "transforms() differ once stream() has been read; take statistics from options or from the "
            "backbone, never from the data of the whole stream"
        )


@check("benchmark")
def check_transforms_give_network_input(subject: Subject) -> None:
    """Both transforms turn an image, left as it was, into finite float32 [3, S, S], whatever S."""
    stream = _stream(subject)
    for size in _SIZES:
        transforms = _transforms(subject, size=size)
        for name, transform in _both(transforms):
            for image in _images(stream.tasks[0].train) + _images(stream.tasks[-1].test):
                with bearing(f"the {name} transform", "it takes uint8 [3, H, W]"), seeded(1):
                    kept, given = image.clone(), transform(image)
                if not torch.equal(image, kept):
                    raise ContractViolation(
                        f"the {name} transform writes into the image it is given; work on a copy"
                    )
                if given.dtype != torch.float32 or tuple(given.shape) != (3, size, size):
                    raise ContractViolation(
                        f"the {name} transform gives {given.dtype} {list(given.shape)} for a network input "
                        f"of {size} pixels; end with resizing to image_size and float32"
                    )
                if not bool(given.isfinite().all()):
                    raise ContractViolation(
                        f"the {name} transform gives values that are not finite; check std"
                    )


@check("benchmark")
def check_test_transform_is_deterministic(subject: Subject) -> None:
    """The test transform draws nothing, and neither does the training transform where it says so."""
    images = _images(_stream(subject).tasks[0].train)
    transforms = _transforms(subject)
    declared = bool(transforms.train_is_deterministic)
    for name, transform in _both(transforms) if declared else [("test", transforms.test)]:
        found = []
        for seed in (1, 2, 3):
            with seeded(seed):
                found.append([transform(image) for image in images])
        if not all(
            torch.equal(one, other) for draw in found[1:] for one, other in zip(found[0], draw, strict=True)
        ):
            raise ContractViolation(
                f"the {name} transform changes with the global seed; "
                + (
                    "leave randomness to training"
                    if name == "test"
                    else "declare train_is_deterministic = False"
                )
            )
    if declared and not all(
        map(torch.equal, *(map(one, images) for one in (transforms.train, transforms.test)))
    ):
        raise ContractViolation(
            "train_is_deterministic is True and the training transform is not the test transform; declare it "
            "False, else the features of one are used for the other"
        )


@check("benchmark")
def check_train_transform_draws_from_torch_alone(subject: Subject) -> None:
    """The training transform draws from torch's global CPU generator alone, which is seeded per sample."""
    images = _images(_stream(subject).tasks[0].train)
    transform = _transforms(subject).train
    found = []
    for others in (1, 2):
        with seeded(1, others=others) as generators:
            found.append([transform(image) for image in images])
            moved = [name for name in generators.moved() if name != "torch"]
        if moved:
            raise ContractViolation(
                f"the training transform draws from {' and '.join(moved)}; draw from torch's global generator"
            )
    if not all(map(torch.equal, *found)):
        raise ContractViolation(
            "the training transform gives two results for one torch seed; draw from torch's global generator "
            "alone, since a resumed run seeds nothing else"
        )


@check("benchmark")
def check_transforms_by_the_batch_agree_with_those_of_one_image(subject: Subject) -> None:
    """What transforms declare for speed gives bytes or network input, and the same in any batch."""
    transforms, size = _transforms(subject), _SIZES[0]
    images = _images(_stream(subject).tasks[0].train)
    test, train = transforms.test, transforms.train
    if isinstance(test, StagedTransform):
        pixels = [test.pixels(image) for image in images]
        if any(one.dtype != torch.uint8 for one in pixels):
            raise ContractViolation("the test transform's pixels are no bytes; scale in finish")
        if not torch.equal(test.finish(torch.stack(pixels)), torch.stack([test(image) for image in images])):
            raise ContractViolation(
                "the test transform finishes a batch otherwise than its images; let finish look at one value"
            )
    if isinstance(train, RandomTransform):
        made = _by_the_batch(train.batch, images)
        if made.dtype != torch.float32 or made.shape[1:] != (3, size, size) or not made.isfinite().all():
            raise ContractViolation(
                f"the training transform by the batch gives {made.dtype} {list(made.shape)}, or values that "
                "are not finite; end with resizing to image_size and float32"
            )
        alone = [_by_the_batch(train.batch, images, number) for number in range(len(images))]
        if not torch.allclose(made, torch.cat(alone), atol=_ROUNDING):
            raise ContractViolation(
                "the training transform by the batch depends on the other images of the batch; look at one "
                "image, its shape and its draws"
            )


def _by_the_batch(
    augmentation: BatchAugmentation, images: Sequence[Tensor], only: int | None = None
) -> Tensor:
    """Return a few images, or one of them alone, augmented as in a run with ``run.speed = "fast"``."""
    chosen = range(len(images)) if only is None else [only]
    made = [augmentation.pixels(images[number]) for number in chosen]
    shapes = torch.tensor(
        [[*one.shape[:2], *images[number].shape[1:]] for one, number in zip(made, chosen, strict=True)]
    )
    draws = uniforms(1, torch.tensor(list(chosen)), augmentation.draws)
    return augmentation(canvas_of(made), shapes, draws)


# -- reading ------------------------------------------------------------------------------------------------


def _stream(subject: Subject) -> TaskStream:
    def read() -> TaskStream:
        stream: TaskStream = _benchmark(subject).stream()
        return stream

    return available_once(subject, "stream", read)


def _benchmark(subject: Subject) -> Any:
    return available_once(subject, "benchmark", lambda: subject.component.build(subject.config))


def _transforms(subject: Subject, *, size: int = _SIZES[0], fresh: bool = False) -> Transforms:
    """Return the transforms of the benchmark whose stream was read, or of one that has read nothing."""
    remedy = "transforms() takes size, mean and std and needs no stream"
    with bearing("transforms()", remedy):
        benchmark = subject.component.build(subject.config) if fresh else _benchmark(subject)
        made: Transforms = benchmark.transforms(size, _MEAN, _STD)
    return made


def _both(transforms: Transforms) -> list[tuple[str, ImageTransform]]:
    return [("train", transforms.train), ("test", transforms.test)]


def _transformed(transforms: Transforms, images: Sequence[Tensor]) -> list[Tensor]:
    """Return all images under both transforms, drawing alike on every call."""
    with seeded(7):
        return [transform(image.clone()).clone() for _, transform in _both(transforms) for image in images]


def _parts(subject: Subject) -> Iterator[tuple[Task, Split, TaskData]]:
    return _parts_of(_stream(subject))


def _parts_of(stream: TaskStream) -> Iterator[tuple[Task, Split, TaskData]]:
    for task in stream.tasks:
        for split in _SPLITS:
            yield task, split, task.train if split == "train" else task.test


def _images(data: TaskData) -> list[Tensor]:
    """Return copies of a few images, first and last among them."""
    step = max(1, math.ceil((len(data) - 1) / (_LOOKED_AT - 1)))
    chosen = sorted({*range(0, len(data), step), len(data) - 1}) if len(data) else []
    return [data.source.image(int(data.indices[position])).clone() for position in chosen]


def _content(stream: TaskStream) -> tuple[Any, ...]:
    first = stream.tasks[0].train
    return (
        stream.class_order,
        len(stream.tasks),
        first.ids,
        [one.numpy().tobytes() for one in _images(first)],
    )


def _variants(subject: Subject) -> Iterator[tuple[str, TaskStream]]:
    """Yield streams of other options that most benchmarks have, with what was changed."""
    names = {field.name for field in attrs.fields(subject.component.config)}
    for name, value in (("increment", 1), ("seed", 987)):
        if name in names:
            try:
                options = attrs.evolve(subject.config, **{name: value})
                yield f"{name} = {value}", subject.component.build(options).stream()
            except (ConfigError, DataError, TypeError, ValueError):
                continue  # not a value that this benchmark takes
