"""Checks of benchmarks: registered ones pass them, broken ones fail the one they break."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest
import torch
from PIL import Image

from broken_components import Broken, kept
from lw2g.errors import DataError
from lw2g.interfaces.component import BenchmarkComponent
from lw2g.interfaces.stream import RandomTransform, StagedTransform, TaskData
from lw2g_testing import ContractCase, ContractViolation, NotApplicable, contract_cases, tiny_catalogue

TINY = tiny_catalogue().get("benchmark", "tiny")


@attrs.frozen(kw_only=True)
class Options:
    """What ``tiny`` has, with a size of its own."""

    increment: int = 2


class Sane:
    """The tiny benchmark, resized as asked for: it keeps every promise."""

    held: ClassVar = {"benchmark.increment": 2}

    def __init__(self, config: Options) -> None:
        self.config = config
        self.tiny = TINY.build(TINY.config(increment=config.increment, train=5, test=3))

    def stream(self) -> Any:
        return self.tiny.stream()

    def transforms(self, image_size: int, mean: Any, std: Any) -> Any:
        def resize(image: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(image[None].float() / 255, (image_size, image_size))[0]

        return SimpleNamespace(train=resize, test=resize, train_is_deterministic=True)

    def with_tasks(self, tasks: Any) -> Any:
        """Return the stream with other tasks."""
        return attrs.evolve(self.tiny.stream(), tasks=tuple(tasks))


def benchmark(name: str, cls: type[Sane]) -> BenchmarkComponent:
    return BenchmarkComponent(
        name=name, family="tiny", config=Options, summary="for tests", build=cls, like_for_like=cls.held
    )


BROKEN = Broken(benchmark)
breaks = BROKEN.breaks


def evolved(made: Any, **changes: Any) -> Any:
    """Return the training transform replaced (or the like), the rest as it was."""
    return SimpleNamespace(**vars(made) | changes)


@breaks(
    "overrides_what_it_means",
    r"^transforms \(.*:\d+\) takes \(self, image_size\); let it take \(self, image_size, mean, std\)$",
)
class TakesTheSizeAlone(Sane):
    def transforms(self, image_size):
        return super().transforms(image_size, (), ())


@breaks("like_for_like_names_options", "benchmark.normalise")
class HoldsNothingItHas(Sane):
    held: ClassVar = {"benchmark.normalise": "native"}


@breaks("samples_belong_to_one_task_and_split", "tasks that partition range.7. in order")
class SharesClasses(Sane):
    def stream(self):
        tasks = self.tiny.stream().tasks
        return self.with_tasks([tasks[0], attrs.evolve(tasks[0], index=1), tasks[2]])


@breaks("samples_belong_to_one_task_and_split", "no train image of class 1; leave the class out")
class EmptyClass(Sane):
    def stream(self):
        first, *rest = self.tiny.stream().tasks
        kept = first.train.labels == 0
        train = TaskData(
            source=first.train.source, indices=first.train.indices[kept], labels=first.train.labels[kept]
        )
        return self.with_tasks([attrs.evolve(first, train=train), *rest])


@breaks("samples_belong_to_one_task_and_split", "task 1 tests class 0, which an earlier task brought")
class BringsAgain(Sane):
    def stream(self):
        first, second, _ = self.tiny.stream().tasks
        return attrs.evolve(
            self.tiny.stream(),
            tasks=(first, second),
            class_order=(0, 1, 0, 1, 2),
            class_names=tuple("abab?"),
            targets=(0, 1, 0, 1, 2),
        )


@breaks("samples_belong_to_one_task_and_split", "expected test labels of task 0 in 0..1 but got 2")
class LaterTasksInTest(Sane):
    def stream(self):
        first, second, third = self.tiny.stream().tasks
        both = TaskData(
            source=first.test.source,
            indices=np.concatenate([first.test.indices, second.test.indices]),
            labels=np.concatenate([first.test.labels, second.test.labels]),
        )
        return self.with_tasks([attrs.evolve(first, test=both), second, third])


@breaks("samples_belong_to_one_task_and_split", "'train/0' is in the train data of task 0 and in the test")
class TrainingDataInTest(Sane):
    def stream(self):
        return self.with_tasks([attrs.evolve(task, test=task.train) for task in self.tiny.stream().tasks])


@breaks("samples_belong_to_one_task_and_split", "give one id per image")
class TooFewIds(Sane):
    def stream(self):
        stream = self.tiny.stream()
        object.__setattr__(stream.tasks[0].train.source, "ids", ["only one"])
        return stream


class Shuffled(Sane):
    """The order of a task's samples is drawn from a generator that is given."""

    def shuffled(self, permutation: Any) -> Any:
        def mixed(data: TaskData) -> TaskData:
            order = permutation(len(data))
            return TaskData(source=data.source, indices=data.indices[order], labels=data.labels[order])

        return self.with_tasks(
            attrs.evolve(task, train=mixed(task.train)) for task in self.tiny.stream().tasks
        )


@breaks(
    "fingerprint_is_one_of_content", "differ in the train data of task 0; draw from a generator of your own"
)
class GlobalShuffle(Shuffled):
    def stream(self):
        return self.shuffled(np.random.permutation)


@breaks("fingerprint_is_one_of_content", "differ in fingerprint or order")
class FingerprintOfTime(Sane):
    count = 0

    def stream(self):
        FingerprintOfTime.count += 1
        return attrs.evolve(self.tiny.stream(), fingerprint=f"fingerprint {FingerprintOfTime.count}")


@breaks("fingerprint_is_one_of_content", "increment = 1 gives other data and the same fingerprint")
class NamesItself(Sane):
    def stream(self):
        return attrs.evolve(self.tiny.stream(), fingerprint="my-benchmark")


@breaks("fingerprint_is_one_of_content", "its fingerprint is ''; hash ids")
class WithoutFingerprint(Sane):
    def stream(self):
        return attrs.evolve(self.tiny.stream(), fingerprint="")


@attrs.frozen(eq=False)
class DecodingSource:
    """Images of a source that pass through a function whenever they are asked for."""

    base: Any
    decode: Callable[[torch.Tensor], torch.Tensor]

    def __len__(self) -> int:
        return len(self.base)

    @property
    def ids(self) -> Any:
        return self.base.ids

    def image(self, index: int) -> torch.Tensor:
        return self.decode(self.base.image(index))


class Decoded(Sane):
    """Training images pass through a function when they are asked for."""

    def stream(self):
        stream = self.tiny.stream()
        for task in stream.tasks:
            object.__setattr__(task.train, "source", DecodingSource(task.train.source, self.decode))
        return stream

    def decode(self, image: torch.Tensor) -> torch.Tensor:
        return image


@breaks("images_become_network_input", r"an image torch.float32 \[3, 16, 16\]; decode to RGB, uint8")
class FloatImages(Decoded):
    def decode(self, image):
        return image / 255


@breaks("images_become_network_input", r"\[1, 16, 16\]; decode to RGB")
class GreyImages(Decoded):
    def decode(self, image):
        return image[:1]


@breaks("images_become_network_input", "differs when it is asked for again; leave augmentation")
class AugmentsEarly(Decoded):
    def decode(self, image):
        return torch.roll(image, int(torch.randint(1, 16, ())), dims=2)


@breaks("no_look_ahead", "transforms must not learn from what they see")
class RunningMean(Sane):
    def transforms(self, image_size, mean, std):
        made = super().transforms(image_size, mean, std)
        seen = []

        def centred(image):
            seen.append(float(image.float().mean()))
            return made.test(image) - float(np.mean(seen)) / 255

        return evolved(made, train=centred, test=centred)


@breaks("no_look_ahead", "never from the data of the whole stream")
class MeanOfTheStream(Sane):
    mean = 0.0

    def stream(self):
        stream = self.tiny.stream()
        images = [task.train.source.image(int(i)) for task in stream.tasks for i in task.train.indices]
        self.mean = float(torch.stack(images).float().mean()) / 255
        return stream

    def transforms(self, image_size, mean, std):
        made, shift = super().transforms(image_size, mean, std), self.mean
        return evolved(
            made, train=lambda image: made.test(image) - shift, test=lambda i: made.test(i) - shift
        )


@breaks("images_become_network_input", "writes into the image it is given; work on a copy")
class WritesImages(Sane):
    def transforms(self, image_size, mean, std):
        made = super().transforms(image_size, mean, std)

        def darkened(image):
            dark = made.test(image)
            image.fill_(0)
            return dark

        return evolved(made, test=darkened)


@breaks("images_become_network_input", r"test transform gives torch.float32 \[3, 16, 16\].*of 32 pixels")
class FixedSize(Sane):
    def transforms(self, image_size, mean, std):
        made = super().transforms(16, mean, std)
        return evolved(super().transforms(image_size, mean, std), test=made.test)


@breaks("images_become_network_input", "train transform gives values that are not finite; check std")
class DividesByZero(Sane):
    def transforms(self, image_size, mean, std):
        made = super().transforms(image_size, mean, std)
        return evolved(made, train=lambda image: made.test(image) / torch.zeros(3, 1, 1))


@breaks("images_become_network_input", "the train transform raises")
class WantsFloats(Sane):
    def transforms(self, image_size, mean, std):
        return evolved(super().transforms(image_size, mean, std), train=lambda image: image.mean())


@breaks("transforms_draw_as_declared", "test transform changes with the global seed; leave randomness")
class RandomTest(Sane):
    def transforms(self, image_size, mean, std):
        made = super().transforms(image_size, mean, std)
        return evolved(made, test=lambda image: made.train(image) + torch.rand(()))


@breaks("transforms_draw_as_declared", "declare train_is_deterministic = False")
class RandomTraining(Sane):
    def transforms(self, image_size, mean, std):
        made = super().transforms(image_size, mean, std)
        return evolved(made, train=lambda image: made.test(image) + torch.rand(()))


@breaks("transforms_draw_as_declared", "the training transform is not the test transform")
class FlipsAlways(Sane):
    def transforms(self, image_size, mean, std):
        made = super().transforms(image_size, mean, std)
        return evolved(made, train=lambda image: made.test(image).flip(-1))


@breaks(
    "transforms_draw_as_declared",
    "the global generator of numpy.random; draw from torch's",
)
class DrawsFromNumpy(Sane):
    def transforms(self, image_size, mean, std):
        made = super().transforms(image_size, mean, std)
        train = lambda image: made.test(image) * float(np.random.rand())  # noqa: E731
        return evolved(made, train=train, train_is_deterministic=False)


@breaks("transforms_draw_as_declared", "two results for one torch seed")
class OwnGenerator(Sane):
    def transforms(self, image_size, mean, std):
        made, generator = super().transforms(image_size, mean, std), torch.Generator().manual_seed(1)
        train = lambda image: made.test(image) * torch.rand((), generator=generator)  # noqa: E731
        return evolved(made, train=train, train_is_deterministic=False)


AGREE = "transforms_by_the_batch_agree_with_those_of_one_image"


@breaks(AGREE, "pixels are no bytes; scale in finish")
class KeepsFloats(Sane):
    def transforms(self, image_size, mean, std):
        made = super().transforms(image_size, mean, std)
        staged = StagedTransform(pixels=made.test, finish=lambda images: images)
        return evolved(made, train=staged, test=staged)


@breaks(AGREE, "finishes a batch otherwise than its images")
class CentresBatches(Sane):
    def transforms(self, image_size, mean, std):
        made = super().transforms(image_size, mean, std)
        staged = StagedTransform(
            pixels=lambda image: made.test(image).mul(255).byte(),
            finish=lambda images: images / 255 - images.float().mean() / 255,
        )
        return evolved(made, train=staged, test=staged)


class _Batches:
    draws = 1

    def __init__(self, make):
        self.make = make

    def pixels(self, image):
        return image.permute(1, 2, 0)

    def __call__(self, images, shapes, draws):
        return self.make(images.permute(0, 3, 1, 2).float() / 255)


def by_the_batch(made, make):
    train = RandomTransform(image=lambda image: made.test(image) * torch.rand(()), batch=_Batches(make))
    return evolved(made, train=train, train_is_deterministic=False)


@breaks(AGREE, r"by the batch gives torch.float32 \[3, 3, 16, 16\]")
class OfAnotherSize(Sane):
    def transforms(self, image_size, mean, std):
        return by_the_batch(super().transforms(image_size, mean, std), lambda images: images)


@breaks(AGREE, "depends on the other images of the batch")
class MixesImages(Sane):
    def transforms(self, image_size, mean, std):
        def mixed(images):
            wide = torch.nn.functional.interpolate(images, (image_size, image_size))
            return wide - wide[:1]

        return by_the_batch(super().transforms(image_size, mean, std), mixed)


BENCHMARKS = kept("benchmark")
HERE = [case for case in BENCHMARKS if case.subject.component.embedded]


@pytest.mark.parametrize("case", HERE, ids=str)
def test_embedded_benchmarks_keep_their_promises(case: ContractCase) -> None:
    """Every benchmark that ships with a plugin passes every check."""
    case.run()


def test_other_benchmarks_keep_their_promises_or_are_not_here() -> None:
    """A benchmark whose data are on this machine passes every check, another one says what is missing."""
    results = [case.result() for case in BENCHMARKS if case not in HERE]
    assert [result.message for result in results if result.status == "failed"] == []


test_broken_ones_fail, test_every_check_is_broken, test_sane_ones_pass = BROKEN.tests("benchmark", Sane)


def test_the_folder_benchmark_keeps_its_promises_with_images(tmp_path: Path) -> None:
    """Files on disk, random crops and flips: what needs data passes once there are some."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for label in ("ant", "bee", "cat"):
            folder = tmp_path / split / label
            folder.mkdir(parents=True)
            for number in range(2):
                pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    options = {"root": str(tmp_path), "increment": 3}
    results = [case.result() for case in contract_cases("folder", options=options)]
    assert {result.check: result.message for result in results if result.status != "passed"} == {}


def test_streams_with_targets_keep_the_promises() -> None:
    """A class that comes again needs test images in its first task alone."""
    options = {"stream": "repetition", "increment": 3, "tasks": 6}
    results = [case.result() for case in contract_cases("digits", options=options)]
    assert {result.check: result.message for result in results if result.status != "passed"} == {}


def test_random_training_transforms_are_legal() -> None:
    """A training transform that draws from torch and says so passes."""

    class Flips(Sane):
        def transforms(self, image_size: int, mean: Any, std: Any) -> Any:
            made = super().transforms(image_size, mean, std)
            train = lambda image: made.test(image).flip(-1) if torch.rand(()) < 0.5 else made.test(image)  # noqa: E731
            return evolved(made, train=train, train_is_deterministic=False)

    assert {case.result().status for case in contract_cases(benchmark("flips", Flips))} == {"passed"}


def test_data_that_are_missing_skip_the_checks_once() -> None:
    """A benchmark that says what data it needs is asked once, and not judged without them."""
    asked = []

    class Absent(Sane):
        def stream(self) -> Any:
            asked.append("stream")
            raise DataError("no images in 'x'", "put some there")

    results = {case.check.name: case.result() for case in contract_cases(benchmark("absent", Absent))}
    judged = {name for name, result in results.items() if result.status != "skipped"}
    assert judged <= {"like_for_like_names_options", "overrides_what_it_means"}  # of record and class alone
    assert all(
        "cannot be had here: no images in 'x'" in results[name].message for name in results.keys() - judged
    )
    assert asked == ["stream"]


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (FileNotFoundError("images.bin"), "raise DataError"),
        (ModuleNotFoundError("decoder"), "raise ConfigError"),
    ],
    ids=["file", "package"],
)
def test_what_is_missing_must_be_said(error: Exception, remedy: str) -> None:
    """Missing data or packages that end in a traceback are the author's to tell."""

    class Silent(Sane):
        def stream(self) -> Any:
            raise error

    _, case, *_ = contract_cases(benchmark("silent", Silent))  # the first asks nothing of it
    with pytest.raises(ContractViolation, match=f"it raises {type(error).__name__} .*; {remedy}"):
        case.run()


def test_checks_reach_no_network() -> None:
    """A benchmark that would fetch its data is told that it cannot, without a wait."""

    class Fetches(Sane):
        def stream(self) -> Any:
            try:
                urllib.request.urlopen("http://192.0.2.1/images")
            except OSError as error:
                raise DataError(f"cannot fetch ({error})", "bring the file") from error

    _, case, *_ = contract_cases(benchmark("fetches", Fetches))  # the first asks nothing of it
    with pytest.raises(NotApplicable, match="Connection refused"):
        case.run()
