"""What a task's context gives to phases: its images, still and augmented."""

from __future__ import annotations

import torch

from lw2g.blocks.statistics import collect_features


def context_of(session):
    """Return the context of the first task of a session."""
    session.parts.begin_task(0)
    session.parts.pool.grow(session.parts.new_set(None))
    images = session.data.image_set([session.data.stream.tasks[0].train], train=False)
    return session.task_context(0, images)


def pixels(batches):
    """Return images and labels of all batches."""
    listed = list(batches)
    return torch.cat([one.images for one in listed]), torch.cat([one.labels for one in listed])


def test_augmented_images_belong_to_their_purpose(session_of):
    """Drawn anew for each purpose, alike for the same in another session, in the order of the still ones."""
    contexts = [context_of(session_of({"benchmark.random_crops": True})) for _ in range(2)]
    images, labels = pixels(contexts[0].training_images(5, "one"))
    torch.randn(3)  # what others draw does not matter
    again, _ = pixels(contexts[1].training_images(7, "one"))
    other, _ = pixels(contexts[0].training_images(5, "two"))
    still, known = pixels(contexts[0].statistics(5))
    assert torch.equal(images, again)
    assert torch.equal(labels, known)
    assert not torch.equal(images, other)
    assert not torch.equal(images, still)
    columns = still.sort(dim=3).values  # the tiny transform shifts columns
    torch.testing.assert_close(images.sort(dim=3).values, columns)


def test_reading_augmented_images_draws_nothing_from_the_run(session_of):
    """The global generator stands where it stood."""
    context = context_of(session_of({"benchmark.random_crops": True}))
    before = torch.get_rng_state()
    pixels(context.training_images(4, "one"))
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_random_transform_the_images_are_the_still_ones(session_of):
    """Nothing is decoded or computed twice then."""
    context = context_of(session_of())
    assert context.augmented is None
    assert torch.equal(pixels(context.training_images(5, "one"))[0], pixels(context.statistics(5))[0])


def test_features_are_collected_from_either(session_of):
    """Statistics read still images, or augmented ones for a purpose; labels come in the same order."""
    context = context_of(session_of({"benchmark.random_crops": True}))

    def mean(batch):
        return batch.images.flatten(1)[:, :8]

    still, labels = collect_features(context, mean)
    moved, same = collect_features(context, mean, augmented="one")
    assert torch.equal(labels, same)
    assert torch.equal(still, pixels(context.statistics(9))[0].flatten(1)[:, :8])
    assert torch.equal(moved, pixels(context.training_images(9, "one"))[0].flatten(1)[:, :8])
    assert not torch.equal(still, moved)


def test_shuffled_images_are_the_same_in_another_order(session_of):
    """Each once, in an order that its purpose draws, whether or not the transform draws as well."""
    context = context_of(session_of())
    still, known = pixels(context.statistics(5))
    images, labels = pixels(context.training_images(5, "one", shuffled=True))
    places = [int((still - one).abs().flatten(1).sum(1).argmin()) for one in images]
    assert sorted(places) == list(range(len(still))) != places
    assert torch.equal(images, still[places])
    assert torch.equal(labels, known[places])
    assert torch.equal(images, pixels(context.training_images(3, "one", shuffled=True))[0])
    assert not torch.equal(images, pixels(context.training_images(5, "two", shuffled=True))[0])
