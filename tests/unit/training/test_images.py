"""Image sets: what is cached is exact, what is random is seeded per sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch

from lw2g.errors import DataError
from lw2g.training import decoding
from lw2g.training.decoding import Decoder, chunks
from lw2g.training.images import ImageSet
from lw2g.training.session import Session


@pytest.fixture(scope="module")
def plain(session_of: Callable[..., Session]) -> Session:
    return session_of()


@pytest.fixture(scope="module")
def random(session_of: Callable[..., Session]) -> Session:
    return session_of({"benchmark.random_crops": True})


def images_of(session: Session, *, train: bool) -> ImageSet:
    return session.image_set([session.stream.tasks[0].train], train=train)


def test_queries_equal_features_of_the_images(plain: Session) -> None:
    """The cached un-prompted features are those of the test-transformed images."""
    images = images_of(plain, train=False)
    batch = next(iter(images.batches([[3, 1, 2]])))
    direct = plain.backbone.features(batch.images)
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
    torch.testing.assert_close(batch.query, random.backbone.features(batch.images))
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

    def __init__(self, source: Any) -> None:
        self._source, self.decoded = source, []

    def __len__(self) -> int:
        return len(self._source)

    @property
    def ids(self) -> Any:
        return self._source.ids

    def image(self, index: int) -> torch.Tensor:
        self.decoded.append(index)
        return self._source.image(index)


@pytest.mark.parametrize("table", [True, False])
def test_a_pass_decodes_what_is_asked_for_once_and_opens_one_loader(
    plain: Session, monkeypatch: pytest.MonkeyPatch, table: bool
) -> None:
    """No image before one is asked for, padding never, and one loader however many batches there are."""
    loaders: list[Any] = []
    whole = decoding.DataLoader

    def counting(*arguments: Any, **options: Any) -> Any:
        loaders.append(options)
        return whole(*arguments, **options)

    monkeypatch.setattr(decoding, "DataLoader", counting)
    if not table:
        monkeypatch.setattr(decoding, "_TABLE_BYTES", 0)
    part = plain.stream.tasks[0].train
    source = _Counting(part.source)
    images = plain.image_set([attrs.evolve(part, source=source)], train=False)
    batches = list(images.batches([[3, 4, 3], [1, 2], [0, 0, 0]]))
    assert (source.decoded, loaders) == ([], [])
    first, last = batches[0].images, batches[2].images
    sample = 1  # the first image tells how large a table would be
    assert source.decoded[sample:] == [3, 4, 1, 2, 0]
    assert len(loaders) == 1
    assert torch.equal(first[0], first[2])
    assert torch.equal(first[1], plain.transforms.test(part.source.image(int(part.indices[4]))))
    assert torch.equal(last, last[:1].expand(3, -1, -1, -1))
    assert torch.equal(batches[1].images[0], plain.transforms.test(part.source.image(int(part.indices[1]))))


def test_workers_give_the_same_images(random: Session) -> None:
    """Decoding in another process changes no bit, and a later batch may be asked for first."""
    part, transforms = random.stream.tasks[0].train, random.transforms
    made = [
        Decoder([part], transforms.train, deterministic=False, device=torch.device("cpu"), workers=workers)
        for workers in (0, 1)
    ]
    order = [[0, 1], [2], [5, 4, 4]]
    here, there = (decoding.Pass(decoder, order, seed=3) for decoder in made)
    for number in (2, 0, 1):
        assert torch.equal(here.images(number), there.images(number))
    with pytest.raises(ValueError, match="a batch below 3 but got 3"):
        here.images(3)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_an_image_that_holds_no_numbers_is_told_by_its_id(plain: Session, value: float) -> None:
    """A transform that divides by nothing is found with the first image it spoils."""
    part = plain.stream.tasks[0].train

    def spoil(image: torch.Tensor) -> torch.Tensor:
        made = plain.transforms.test(image)
        made[0, 0, 0] = value
        return made

    for seed, deterministic in ((None, True), (3, False)):
        decoder = Decoder([part], spoil, deterministic=deterministic, device=torch.device("cpu"))
        with pytest.raises(
            DataError, match=f"image '{part.ids[1]}' holds NaN or infinity after the transform"
        ):
            decoding.Pass(decoder, [[1]], seed).images(0)
