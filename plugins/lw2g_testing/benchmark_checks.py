"""Checks of a benchmark: its tasks are disjoint and the same on every call, and nothing looks ahead."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError, DataError
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
from lw2g.pixels.augmentation import canvas_of, uniforms
from lw2g.registry.catalogue import Catalogue
from lw2g_testing.cases import ContractViolation, Subject, check
from lw2g_testing.guards import available, available_once, bearing, seeded

_SIZES = (32, 48)
_MEAN = (0.4, 0.5, 0.6)
_STD = (0.2, 0.25, 0.3)
_LOOKED_AT = 3
"""Number of images that checks decode per task and split."""
_ROUNDING = 0.05


@check("benchmark")
def check_samples_belong_to_one_task_and_split(subject: Subject) -> None:
    """Each class has training and test images; each sample has one task, one split and a unique id.

    Test images of a class that comes again in its domain are those of the first of its tasks.
    """
    stream = _stream(subject)
    target_of = stream.class_map.target
    met: dict[str, str] = {}  # id of a sample -> where it was met
    tested: set[tuple[str, int]] = set()
    for task, split, data in _parts(stream):
        labels = set(data.labels.tolist())
        for position in task.classes:
            target = target_of(position)
            if split == "test" and (task.domain, target) in tested:
                # an earlier task of the domain has the class, and all its test images
                if position in labels:
                    raise ContractViolation(
                        f"task {task.index} tests class {target}, which an earlier task brought; give "
                        "all its test images of the domain to the first"
                    )
            elif position not in labels:
                raise ContractViolation(
                    f"task {task.index} has no {split} image of class {position}; leave the class out or "
                    "raise DataError for incomplete data"
                )
        if split == "test":
            tested |= {(task.domain, target_of(position)) for position in task.classes}
        where = f"the {split} data of task {task.index}"
        if len(data.source.ids) != len(data.source):
            raise ContractViolation(
                f"the source of {where} has {len(data.source)} images and {len(data.source.ids)} ids; give "
                "one id per image"
            )
        for name in data.ids:
            if name in met:
                raise ContractViolation(
                    f"the id {name!r} is in {met[name]} and in {where}; give every sample one task and one "
                    "split, and an id that no other has (the split in front where both count alike)"
                )
            met[name] = where


@check("benchmark")
def check_fingerprint_is_one_of_content(subject: Subject) -> None:
    """The same options give the same data and fingerprint under any seed; other data have another one."""
    first = _stream(subject)
    remedy = "draw from a generator of your own, seeded by an option, in stream()"
    # a text of few letters is no hash of anything
    if not isinstance(first.fingerprint, str) or len(first.fingerprint) < 8:
        raise ContractViolation(
            f"its fingerprint is {first.fingerprint!r}; hash ids, images, labels, split and class order "
            "(SHA-256), since runs are compared by it"
        )
    with seeded(1234):
        again = available(lambda: subject.component.build(subject.config).stream())
    if (again.fingerprint, again.class_order) != (first.fingerprint, first.class_order):
        raise ContractViolation(f"two streams of the same options differ in fingerprint or order; {remedy}")
    for (task, split, data), (_, _, other) in zip(_parts(first), _parts(again), strict=True):
        if _content(data) != _content(other):
            raise ContractViolation(
                f"two streams of the same options differ in the {split} data of task {task.index}; {remedy}"
            )
    for change, variant in _variants(subject):
        if variant.fingerprint != first.fingerprint:
            continue
        # another value of an option may change nothing, such as a seed of a stream that draws nothing
        same = variant.class_order == first.class_order and len(variant.tasks) == len(first.tasks)
        if not same or _content(variant.tasks[0].train) != _content(first.tasks[0].train):
            raise ContractViolation(
                f"{change} gives other data and the same fingerprint; hash ids, images, labels, split and "
                "class order, since runs are compared by it"
            )


@check("benchmark")
def check_no_look_ahead(subject: Subject) -> None:
    """The transforms of a task's images do not depend on the data of later tasks."""
    stream = _stream(subject)
    early = _images(stream.tasks[0].train) + _images(stream.tasks[0].test)
    used = _transforms(subject)
    fresh = _transforms(subject, fresh=True)
    before = _transformed(used, early)
    for task in reversed(stream.tasks):  # a transform that learns from its inputs would change here
        _transformed(used, _images(task.train))
    if not _agree(before, _transformed(used, early)):
        raise ContractViolation(
            "an image of the first task is transformed otherwise once later tasks have been read; transforms "
            "must not learn from what they see"
        )
    if not _agree(before, _transformed(fresh, early)):
        raise ContractViolation(
            "transforms() differ once stream() has been read; take statistics from options or from the "
            "backbone, never from the data of the whole stream"
        )


@check("benchmark")
def check_images_become_network_input(subject: Subject) -> None:
    """An image is uint8 [3, H, W], the same at each read; transforms give finite float32 [3, S, S]."""
    stream = _stream(subject)
    for task, split, data in _parts(stream):
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
    images = _images(stream.tasks[0].train) + _images(stream.tasks[-1].test)
    for size in _SIZES:
        for name, transform in _both(_transforms(subject, size=size)):
            for image in images:
                _must_be_input(name, transform, image.clone(), size)


def _must_be_input(name: str, transform: ImageTransform, image: Tensor, size: int) -> None:
    """Refuse a transform that does not make a network's input of an image, or changes the image."""
    kept = image.clone()
    with bearing(f"the {name} transform", "it takes uint8 [3, H, W]"), seeded(1):
        given = transform(image)
    if not torch.equal(image, kept):
        raise ContractViolation(f"the {name} transform writes into the image it is given; work on a copy")
    if given.dtype != torch.float32 or tuple(given.shape) != (3, size, size):
        raise ContractViolation(
            f"the {name} transform gives {given.dtype} {list(given.shape)} for a network input of {size} "
            "pixels; end with resizing to image_size and float32"
        )
    if not bool(given.isfinite().all()):
        raise ContractViolation(f"the {name} transform gives values that are not finite; check std")


@check("benchmark")
def check_transforms_draw_as_declared(subject: Subject) -> None:
    """The test transform is deterministic; the training transform draws from torch alone, if declared."""
    images = _images(_stream(subject).tasks[0].train)
    transforms = _transforms(subject)
    if transforms.train_is_deterministic:
        _require_deterministic("train", transforms.train, images, "declare train_is_deterministic = False")
    _require_deterministic("test", transforms.test, images, "leave randomness to training")
    if transforms.train_is_deterministic:
        if not _agree(_transformed_by(transforms.train, images), _transformed_by(transforms.test, images)):
            raise ContractViolation(
                "train_is_deterministic is True and the training transform is not the test transform; "
                "declare it False, else the features of one are used for the other"
            )
        return
    results = []
    for others in (1, 2):
        with seeded(1, others=others) as generators:
            results.append(_transformed_by(transforms.train, images))
            generators.refuse_draws("the training transform", "; draw from torch's global generator", "torch")
    if not _agree(*results):
        raise ContractViolation(
            "the training transform gives two results for one torch seed; draw from torch's global generator "
            "alone, since a resumed run seeds nothing else"
        )


def _require_deterministic(
    name: str, transform: ImageTransform, images: Sequence[Tensor], remedy: str
) -> None:
    """Refuse a transform whose results for some images follow the global seed."""
    results = []
    for seed in (1, 2, 3):
        with seeded(seed):
            results.append(_transformed_by(transform, images))
    for other in results[1:]:
        if not _agree(results[0], other):
            raise ContractViolation(f"the {name} transform changes with the global seed; {remedy}")


def _transformed_by(transform: ImageTransform, images: Sequence[Tensor]) -> list[Tensor]:
    return [transform(image) for image in images]


def _agree(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Return whether two lists of images are equal to the bit."""
    return all(map(torch.equal, one, other))


@check("benchmark")
def check_transforms_by_the_batch_agree_with_those_of_one_image(subject: Subject) -> None:
    """Transforms by the batch give valid input, the same for an image in any batch."""
    transforms = _transforms(subject)
    images = _images(_stream(subject).tasks[0].train)
    if isinstance(transforms.test, StagedTransform):
        _require_the_same_in_stages(transforms.test, images)
    if isinstance(transforms.train, RandomTransform):
        _require_the_same_by_the_batch(transforms.train.batch, images, _SIZES[0])


def _require_the_same_in_stages(transform: StagedTransform, images: Sequence[Tensor]) -> None:
    """Refuse a transform whose two stages together give other pixels than the whole."""
    pixels = [transform.pixels(image) for image in images]
    if any(image.dtype != torch.uint8 for image in pixels):
        raise ContractViolation("the test transform's pixels are no bytes; scale in finish")
    finished = transform.finish(torch.stack(pixels))
    if not torch.equal(finished, torch.stack([transform(image) for image in images])):
        raise ContractViolation(
            "the test transform finishes a batch otherwise than its images; let finish look at one value"
        )


def _require_the_same_by_the_batch(
    augmentation: BatchAugmentation, images: Sequence[Tensor], size: int
) -> None:
    """Refuse an augmentation of whole batches that gives no network's input, or mixes images."""
    made = _by_the_batch(augmentation, images, range(len(images)))
    if made.dtype != torch.float32 or made.shape[1:] != (3, size, size) or not made.isfinite().all():
        raise ContractViolation(
            f"the training transform by the batch gives {made.dtype} {list(made.shape)}, or values that "
            "are not finite; end with resizing to image_size and float32"
        )
    alone = [_by_the_batch(augmentation, images, [number]) for number in range(len(images))]
    if not torch.allclose(made, torch.cat(alone), atol=_ROUNDING):
        raise ContractViolation(
            "the training transform by the batch depends on the other images of the batch; look at one "
            "image, its shape and its draws"
        )


def _by_the_batch(augmentation: BatchAugmentation, images: Sequence[Tensor], chosen: Sequence[int]) -> Tensor:
    """Return some images augmented together, as in a run with ``run.speed = "fast"``."""
    pixels = []
    shapes = []
    for number in chosen:
        part = augmentation.pixels(images[number])
        pixels.append(part)
        # height and width of the pixels, then those of the image that they come from
        shapes.append([*part.shape[:2], *images[number].shape[1:]])
    draws = uniforms(1, torch.tensor(list(chosen)), augmentation.draws)
    return augmentation(canvas_of(pixels), torch.tensor(shapes), draws)


@check("benchmark", applies=lambda subject: bool(subject.component.like_for_like))
def check_like_for_like_names_options(subject: Subject) -> None:
    """like_for_like names options that exist, with values that they take."""
    name = subject.component.name
    baseline = None
    if subject.component.vectors:
        # stored features go with a method that needs no images: the first one that never does
        baseline = _first_without_images(subject.catalogue)
    try:
        resolve(
            subject.catalogue, baseline=baseline, benchmark=name, overrides={"run.protocol": "like-for-like"}
        )
    except ConfigError as error:
        raise ContractViolation(f"correct like_for_like of {name!r}: {error}") from error


def _first_without_images(catalogue: Catalogue) -> str | None:
    """Return a method that never needs images, whatever its options; None if there is none."""
    for name in catalogue.names("baseline"):
        wanted = catalogue.get("baseline", name).without_images
        if wanted is not None and not wanted:
            return name
    return None


# -- reading ------------------------------------------------------------------------------------------------


def _stream(subject: Subject) -> TaskStream:
    def read() -> TaskStream:
        stream: TaskStream = _benchmark(subject).stream()
        return stream

    return available_once(subject, "stream", read)


def _benchmark(subject: Subject) -> Any:
    return available_once(subject, "benchmark", lambda: subject.component.build(subject.config))


def _transforms(subject: Subject, *, size: int = _SIZES[0], fresh: bool = False) -> Transforms:
    """Return the transforms of the benchmark that has read its stream, or of a fresh one."""
    with bearing("transforms()", "transforms() takes size, mean and std and needs no stream"):
        if fresh:
            benchmark = subject.component.build(subject.config)
        else:
            benchmark = _benchmark(subject)
        transforms: Transforms = benchmark.transforms(size, _MEAN, _STD)
    return transforms


def _both(transforms: Transforms) -> list[tuple[str, ImageTransform]]:
    return [("train", transforms.train), ("test", transforms.test)]


def _transformed(transforms: Transforms, images: Sequence[Tensor]) -> list[Tensor]:
    """Return all images under both transforms, with the same random draws on every call."""
    made = []
    with seeded(7):
        for _, transform in _both(transforms):
            # copies: a transform may write into its image, or give a view of it
            made += [transform(image.clone()).clone() for image in images]
    return made


def _parts(stream: TaskStream) -> Iterator[tuple[Task, str, TaskData]]:
    for task in stream.tasks:
        yield task, "train", task.train
        yield task, "test", task.test


def _images(data: TaskData) -> list[Tensor]:
    """Return copies of a few images, first and last among them."""
    if not len(data):
        return []
    step = max(1, math.ceil((len(data) - 1) / (_LOOKED_AT - 1)))
    chosen = sorted({*range(0, len(data), step), len(data) - 1})
    return [data.source.image(int(data.indices[position])).clone() for position in chosen]


def _content(data: TaskData) -> tuple[Any, ...]:
    return data.ids, data.labels.tolist(), [image.numpy().tobytes() for image in _images(data)]


def _variants(subject: Subject) -> Iterator[tuple[str, TaskStream]]:
    """Yield streams under other values of options that most benchmarks have, with the change in words."""
    names = {field.name for field in attrs.fields(subject.component.config)}
    for name, value in (("increment", 1), ("seed", 987)):
        if name in names:
            try:
                options = attrs.evolve(subject.config, **{name: value})
                yield f"{name} = {value}", subject.component.build(options).stream()
            except (ConfigError, DataError, TypeError, ValueError):
                continue  # not a value that this benchmark takes
