"""Image sets: what is cached is exact, what is random is seeded per sample."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from lw2g.training.images import ImageSet, chunks
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
