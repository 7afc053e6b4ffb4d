"""Image sets: what is cached is exact, what is random is seeded per sample."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch

from lw2g.config.resolve import Resolved
from lw2g.errors import DataError
from lw2g.interfaces.context import derive_seed
from lw2g.interfaces.stream import ImageTransform, RandomTransform, StagedTransform, TaskData
from lw2g.learning.session import Session
from lw2g.lifecycle.runner import start
from lw2g.pixels.decoding import chunks, workers_of
from lw2g.pixels.image_set import ImageSet
from lw2g.pixels.pixels import Kept, Originals, Room
from lw2g.pixels.workers import Workers, shared_objects
from lw2g.registry.catalogue import Catalogue
from lw2g_benchmarks.options import TransformOptions
from lw2g_benchmarks.transforms import make_transforms
from lw2g_testing import tiny

CPU = torch.device("cpu")


def opened(
    session: Session,
    originals: Originals,
    transform: ImageTransform,
    *,
    deterministic: bool,
    workers: int = 0,
    fast: bool = False,
) -> ImageSet:
    """Return a set with the session's backbone, of images and a transform of the test's own."""
    others = Workers(workers, shared_objects(originals.parts, transform), CPU) if workers else None
    return ImageSet(
        originals,
        transform,
        deterministic=deterministic,
        fast=fast,
        backbone=session.parts.backbone,
        engine=session.parts.engine,
        batch_size=64,
        workers=others,
    )


def inputs(images: ImageSet, order: Sequence[Sequence[int]], seed: int | None = None) -> list[torch.Tensor]:
    return [batch.images for batch in images.batches(order, seed=seed)]


@pytest.fixture(scope="module")
def plain(session_of: Callable[..., Session]) -> Session:
    return session_of()


@pytest.fixture(scope="module", params=["exact", "fast"])
def random(session_of: Callable[..., Session], request: pytest.FixtureRequest) -> Session:
    return session_of({"benchmark.random_crops": True, "run.speed": request.param})


def images_of(session: Session, *, train: bool) -> ImageSet:
    return session.data.image_set([session.data.stream.tasks[0].train], train=train)


def test_queries_equal_features_of_the_images(plain: Session) -> None:
    """The cached un-prompted features are those of the test-transformed images."""
    images = images_of(plain, train=False)
    batch = next(iter(images.batches([[3, 1, 2]])))
    direct = plain.parts.backbone.features(batch.images)
    torch.testing.assert_close(batch.query, direct)
    torch.testing.assert_close(images.queries([1]), direct[1:2])


def test_a_query_does_not_depend_on_its_batch(plain: Session) -> None:
    """Computed alone or among others, in any order, a sample's feature has the same bits."""
    first, second = images_of(plain, train=False), images_of(plain, train=False)
    together = first.queries(list(range(len(first))))
    alone = torch.cat([second.queries([position]) for position in reversed(range(len(second)))])
    assert torch.equal(together, alone.flip(0))


def test_a_random_transform_depends_on_seed_and_position_alone(random: Session) -> None:
    """The same sample in another batch order gets the same crop; another seed gives another."""
    images = images_of(random, train=True)
    positions = list(range(12))
    straight = torch.cat([batch.images for batch in images.batches(chunks(positions, 5), seed=1)])
    reverse = torch.cat([batch.images for batch in images.batches(chunks(positions[::-1], 4), seed=1)])
    other = torch.cat([batch.images for batch in images.batches(chunks(positions, 5), seed=2)])
    assert torch.equal(straight, reverse.flip(0))
    assert not torch.equal(straight, other)


def test_loading_draws_nothing_from_the_global_generator(random: Session) -> None:
    """Augmentation leaves the training's generator where it was."""
    images = images_of(random, train=True)
    before = torch.get_rng_state()
    list(images.batches([[0, 1], [2]], seed=3))
    assert torch.equal(before, torch.get_rng_state())


def test_queries_of_random_images_are_those_of_the_batch(random: Session) -> None:
    """Under a random transform the query belongs to the crop, and there is none per sample."""
    images = images_of(random, train=True)
    batch = next(iter(images.batches([[0, 1]], seed=3)))
    torch.testing.assert_close(batch.query, random.parts.backbone.features(batch.images))
    with pytest.raises(ValueError, match="deterministic"):
        images.queries([0])


def test_labels_follow_the_positions(plain: Session) -> None:
    """A batch's labels are those of its samples."""
    images = images_of(plain, train=False)
    batch = next(iter(images.batches([[0, 13, 23]])))
    assert batch.labels.tolist() == [0, 1, 1]
    assert batch.samples.tolist() == [0, 13, 23]


class _Counting:
    """A source that notes which images were decoded."""

    def __init__(self, source: Any, *, copies: bool = False) -> None:
        self._source, self._copies, self.decoded = source, copies, []

    def __len__(self) -> int:
        return len(self._source)

    @property
    def ids(self) -> Any:
        return self._source.ids

    def image(self, index: int) -> torch.Tensor:
        self.decoded.append(index)
        image = self._source.image(index)
        return image.clone() if self._copies else image


@pytest.mark.parametrize("room", ["all", "one image", "nothing"])
def test_a_pass_makes_what_is_asked_for_once(plain: Session, room: str) -> None:
    """No image before one is asked for, padding never, and nothing twice that has room."""
    part = plain.data.stream.tasks[0].train
    source = _Counting(part.source)
    limit = {"all": 2**20, "one image": 3 * 16 * 16 * 4, "nothing": 0}[room]
    originals = Originals([attrs.evolve(part, source=source)], CPU, limit=limit, keep=False)
    images = opened(plain, originals, plain.data.transforms.test, deterministic=True)
    order = [[3, 4, 3], [1, 2], [0, 0, 0]]
    batches = list(images.batches(order))
    assert source.decoded == []
    found = [batch.images for batch in batches] + inputs(images, order)
    again = {"all": [], "one image": [4, 1, 2, 0], "nothing": [3, 4, 1, 2, 0]}[room]
    assert source.decoded == [3, 4, 1, 2, 0, *again]
    expected = [plain.data.transforms.test(part.source.image(int(number))) for number in part.indices[:5]]
    for made, positions in zip(found, order * 2, strict=True):
        assert torch.equal(made, torch.stack([expected[position] for position in positions]))


@pytest.mark.parametrize("workers", [0, 1])
def test_training_decodes_an_image_once_for_all_epochs_and_transforms(random: Session, workers: int) -> None:
    """Originals are kept and shared by both transforms; views of the source are not copied."""
    part, transforms = random.data.stream.tasks[0].train, random.data.transforms
    source = _Counting(part.source, copies=True)
    originals = Originals([attrs.evolve(part, source=source)], CPU, limit=2**20, keep=True)
    moving = opened(random, originals, transforms.train, deterministic=False, workers=workers)
    still = opened(random, originals, transforms.test, deterministic=True, workers=workers)
    for seed in (3, 4):
        assert [len(images) for images in inputs(moving, [[4, 2], [0, 1, 0]], seed)] == [2, 3]
    inputs(still, [[0, 1], [2, 4]])
    assert source.decoded == ([4, 2, 0, 1] if workers == 0 else [])  # a worker's list is its own
    fresh: dict[int, torch.Tensor] = {}
    for position in (0, 1, 2, 4):
        kept = originals.get(position, fresh)
        assert torch.equal(kept, part.source.image(int(part.indices[position])))
    assert sorted(fresh) == ([] if workers == 0 else [0, 1, 2, 4])  # and so are the originals that it keeps
    fresh.clear()
    views = Originals([part], CPU, limit=2**20, keep=True)
    views.get(0, fresh)
    assert not fresh


@pytest.mark.parametrize("speed", ["exact", "fast"])
def test_a_run_decodes_every_image_once(
    catalogue: Catalogue,
    quick: Callable[..., Resolved],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    speed: str,
) -> None:
    """Evidence, statistics, epochs, spaces, queries and evaluations share what was decoded."""
    decoded: Counter[tuple[str, int]] = Counter()
    view = tiny._Source.image

    def counted(source: tiny._Source, index: int) -> torch.Tensor:
        decoded[source.ids[0], index] += 1
        return view(source, index).clone()

    monkeypatch.setattr(tiny._Source, "image", counted)
    resolved = quick({"benchmark.random_crops": True, "run.speed": speed}, policy="min")
    record = start(resolved, catalogue, tmp_path / "run")
    assert len(record["task_to_set"]) == len(record["accuracy_matrix"])
    tasks = tiny.TinyBenchmark(resolved.config.benchmark.config).stream().tasks
    assert len(decoded) == sum(len(task.train) + len(task.test) for task in tasks)
    assert set(decoded.values()) == {1}


def test_bytes_between_two_steps_make_the_images_of_one(plain: Session) -> None:
    """A staged transform is kept as bytes and finished by the batch, to the bits of a call."""
    part = plain.data.stream.tasks[0].train
    pair = make_transforms(TransformOptions(), image_size=24, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.1))
    originals = Originals([part], CPU, limit=5 * 3 * 24 * 24, keep=False)
    images = opened(plain, originals, pair.test, deterministic=True)
    order = [[3, 1], [0, 0], [4, 2], [5, 6]]  # there is room for five
    expected = [pair.test(part.source.image(int(number))) for number in part.indices[:7]]
    for _ in range(2):
        for positions, made in zip(order, inputs(images, order), strict=True):
            assert torch.equal(made, torch.stack([expected[position] for position in positions]))


def test_what_is_kept_shares_a_room_and_gives_it_back() -> None:
    """The limit is one for all that is kept; what nobody holds any longer leaves its room to others."""
    room, image = Room(100), torch.zeros(3, 4, 5, dtype=torch.uint8)
    first, second = Kept(room), Kept(room)
    first.keep({7: image, 8: image})
    second.keep({7: image, 2: image[:1]})
    assert ([7 in first, 8 in first], [7 in second, 2 in second]) == ([True, False], [False, True])
    assert room.left == 100 - 60 - 20
    del first
    gc.collect()
    second.keep({7: image})
    assert (7 in second, room.left) == (True, 20)


def test_seeding_a_sample_seeds_no_other_generator(random: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample's seed reaches the CPU's generator alone; seeding all devices is slow, and changes them."""

    def refused(seed: int) -> None:
        raise AssertionError(f"every device seeded with {seed}")

    part, train = random.data.stream.tasks[0].train, random.data.transforms.train
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(3, 5))
        expected = train(part.source.image(int(part.indices[5])))
    images = opened(random, Originals([part], CPU, limit=0, keep=False), train, deterministic=False)
    monkeypatch.setattr(torch, "manual_seed", refused)
    assert torch.equal(inputs(images, [[5]], 3)[0][0], expected)


class _Sizes:
    """A source of images of several sizes, all decoded anew."""

    ids = tuple("abcdefgh")

    def __init__(self) -> None:
        self.decoded: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    def image(self, index: int) -> torch.Tensor:
        self.decoded.append(index)
        size = (3, 20 + 5 * (index % 3), 30 - 4 * (index % 2))
        return torch.arange(size[0] * size[1] * size[2]).mul(index + 3).byte().view(size)


@pytest.mark.parametrize(("limit", "workers"), [(2**20, 0), (9000, 0), (0, 0), (2**20, 1)])
def test_fast_images_depend_on_seed_and_position_alone(plain: Session, limit: int, workers: int) -> None:
    """Whatever has room, from whichever pass and process: the bits of a batch are the same."""
    pair = make_transforms(TransformOptions(), image_size=24, mean=(0.5,) * 3, std=(0.2,) * 3)
    assert isinstance(pair.train, RandomTransform)

    def of_sizes(limit: int, workers: int = 0) -> tuple[ImageSet, _Sizes]:
        source = _Sizes()
        part = TaskData(source=source, indices=range(8), labels=[0] * 8)
        originals = Originals([part], CPU, limit=limit, keep=False)
        return opened(plain, originals, pair.train, deterministic=False, fast=True, workers=workers), source

    order = [[5, 1, 3], [0, 2, 2], [7, 6]]
    reference = inputs(of_sizes(2**20)[0], order, 9)
    images, source = of_sizes(limit, workers)
    for asked in (order[1:], order, order[::-1]):  # as a resumed pass, as a whole one, from what is kept
        for positions, made in zip(asked, inputs(images, asked, 9), strict=True):
            assert torch.equal(made, reference[order.index(positions)])
    if workers == 0:
        times = [source.decoded.count(position) for position in (0, 1, 2, 3, 5, 6, 7)]
        assert times == {2**20: [1] * 7, 0: [3, 2, 3, 2, 2, 3, 3]}.get(limit, times)
        assert sum(times) == {2**20: 7, 0: 18}.get(limit, sum(times))
    assert not torch.equal(inputs(images, order, 8)[0], reference[0])


def test_transforms_that_know_no_batches_are_told(random: Session, plain: Session) -> None:
    """Where fast was asked for and cannot be had, the run says so and works image by image."""
    alone = attrs.evolve(random.data.transforms, train=lambda image: random.data.transforms.train(image))
    without = attrs.evolve(random, data=attrs.evolve(random.data, transforms=alone))
    fast = random.parts.config.run.speed == "fast"
    told = "run.speed 'fast': benchmark 'tiny' cannot augment by the batch; exact instead"
    assert without.data.notes == ([told] if fast else [])
    assert random.data.notes == plain.data.notes == []
    images = without.data.image_set([without.data.stream.tasks[0].train], train=True)
    exact = random.data.image_set([random.data.stream.tasks[0].train], train=True)
    both = [next(iter(one.batches([[4, 2, 7]], seed=3))).images for one in (images, exact)]
    assert torch.equal(*both) == (not fast)


def test_workers_give_the_same_images(random: Session) -> None:
    """Decoding in another process changes no bit, and a later batch may be asked for first."""
    part, transforms = random.data.stream.tasks[0].train, random.data.transforms
    originals = Originals([part], CPU, limit=2**20, keep=True)
    order = [[0, 1], [2], [5, 4, 4]]
    here, there = (
        list(
            opened(random, originals, transforms.train, deterministic=False, workers=workers).batches(
                order, seed=3
            )
        )
        for workers in (0, 1)
    )
    for number in (2, 0, 1):
        assert torch.equal(here[number].images, there[number].images)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_an_image_that_holds_no_numbers_is_told_by_its_id(plain: Session, value: float) -> None:
    """A transform that divides by nothing is found with the first image it spoils, or before."""
    part = plain.data.stream.tasks[0].train
    originals = Originals([part], CPU, limit=2**20, keep=False)

    def spoil(image: torch.Tensor) -> torch.Tensor:
        made = plain.data.transforms.test(image)
        made[..., 0, 0, 0] = value
        return made

    for seed, deterministic in ((None, True), (3, False)):
        images = opened(plain, originals, spoil, deterministic=deterministic)
        with pytest.raises(
            DataError, match=f"image '{part.ids[1]}' holds NaN or infinity after the transform"
        ):
            inputs(images, [[1]], seed)
    staged = StagedTransform(pixels=lambda image: image, finish=spoil)
    with pytest.raises(
        DataError, match="the transform makes NaN or infinity of pixels; look at mean and std"
    ):
        opened(plain, originals, staged, deterministic=True)


def test_still_queries_are_those_of_the_test_transform(session_of: Callable[..., Session]) -> None:
    """With `run.queries = still` a crop's query is that of the image under the test transform."""
    session = session_of({"benchmark.random_crops": True, "run.queries": "still"})
    still = images_of(session, train=False)
    first, second = images_of(session, train=True).batches([[0, 1], [1]], seed=3)
    assert torch.equal(first.query, still.queries([0, 1]))
    assert torch.equal(second.query, still.queries([1]))
    assert not torch.equal(first.images, next(still.batches([[0, 1]])).images)


def test_a_gpu_is_fed_by_workers_and_a_cpu_is_not(monkeypatch):
    """Auto takes up to four processes beside a GPU and leaves a core; a number is taken as it is."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr("multiprocessing.get_start_method", lambda: "fork")
    cuda, cpu = torch.device("cuda", 0), torch.device("cpu")
    assert [workers_of("auto", device) for device in (cuda, cpu)] == [4, 0]
    assert [workers_of(2, device) for device in (cuda, cpu)] == [2, 2]
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    assert workers_of("auto", cuda) == 1
    monkeypatch.setattr("multiprocessing.get_start_method", lambda: "forkserver")
    assert workers_of("auto", cuda) == 0
