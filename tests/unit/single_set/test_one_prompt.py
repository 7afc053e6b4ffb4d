"""one-prompt: sizes, the one set that goes on, what a task's step reaches; OVOR: outliers and their loss."""

from __future__ import annotations

import copy
import math

import attrs
import pytest
import torch
from torch.nn import functional

from lw2g.errors import ConfigError
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.pool import Pool
from lw2g_single_set.one_prompt import (
    OnePrompt,
    around_origin,
    energy,
    near_boundary,
    neighbour_distance,
    outlier_loss,
)
from lw2g_single_set.options import OnePromptConfig

PAIRS = [(0, 1), (2, 3), (4, 5)]
QUICK = OnePromptConfig(epochs=5, lr=0.01)
OVOR = attrs.evolve(QUICK, outliers="paper", outlier_share=0.4)


def begun(stream, config=QUICK, tasks=1):
    """Return baseline, pool and the context of the last of some tasks, of which the others are learned."""
    baseline, pool = OnePrompt(config, stream.build), Pool()
    for index in range(tasks):
        context = stream.begin(baseline, pool, index)
        if index < tasks - 1:
            stream.learn(baseline, context)
    return baseline, pool, context


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def test_prefixes_are_drawn_from_zero_to_one(vit_b):
    """Keys and values are uniform on [0, 1), not centred."""
    for value in OnePrompt(OnePromptConfig(), vit_b()).new_set(None).state_dict().values():
        assert 0 <= float(value.min()) < 0.01
        assert 0.99 < float(value.max()) < 1
        assert float(value.mean()) == pytest.approx(0.5, abs=0.02)


def test_blocks_get_prefixes_of_their_length(stream_of):
    """Blocks 0 and 1 attend to 5 extra keys, 2 to 4 to 20, and no block gets more tokens."""
    stream = stream_of(PAIRS)
    baseline, pool, _ = begun(stream)
    sites = {site.name: site for site in baseline.sites(pool[0])}
    assert {name: tuple(site.view(site.parameter).shape) for name, site in sites.items()} == {
        f"blocks.{block}.prefix_key": (length, 32) for block, length in enumerate((5, 5, 20, 20, 20))
    }
    assert {(site.activation.tap.block, site.activation.tap.kind, site.owner) for site in sites.values()} == {
        (block, "query", "set") for block in range(5)
    }
    assert sites["blocks.3.prefix_key"].view(pool[0].deep.key).equal(pool[0].deep.key[1])
    counts = []
    handles = [
        block.register_forward_hook(lambda module, args, out: counts.append(out.shape[1]))
        for block in stream.backbone.model.blocks
    ]
    baseline.features(stream.batch((0, 1)), pool.force(0))
    for handle in handles:
        handle.remove()
    assert counts == [stream.backbone.num_tokens] * 6


def test_features_need_no_query_and_no_choice(stream_of):
    """One forward serves training and evaluation alike."""
    stream = stream_of(PAIRS)
    baseline, pool, _ = begun(stream)
    batch, calls = stream.batch((0, 1)), []
    handle = stream.backbone.model.norm.register_forward_hook(lambda *_: calls.append(1))
    forced = baseline.features(batch, pool.force(0))
    handle.remove()
    assert len(calls) == 1
    assert torch.equal(forced, baseline.features(batch, pool.route(None)))
    assert not torch.allclose(forced, batch.query, atol=1e-3)


def test_the_loss_is_cross_entropy_over_the_tasks_classes(stream_of):
    """Logits of earlier and later classes do not count, and there is no other term."""
    stream = stream_of(PAIRS)
    baseline, pool, context = begun(stream, tasks=2)
    batch = stream.batch((2, 3))
    (phase,) = baseline.phases(context)
    logits = baseline.logits(baseline.features(batch, pool.force(0)))[:, 2:4]
    expected = functional.cross_entropy(logits, batch.labels - 2)
    torch.testing.assert_close(phase.step(batch).loss, expected)


def test_a_later_task_trains_the_same_prefixes_and_its_rows(stream_of):
    """The set goes on changing; rows of the head outside the task stay as they are, to the bit."""
    stream = stream_of(PAIRS)
    baseline, pool, context = begun(stream, tasks=2)
    head, prefixes = copy.deepcopy(baseline.head), copy.deepcopy(pool[0])
    stream.learn(baseline, context, epochs=1)
    others = [0, 1, 4, 5]
    assert torch.equal(baseline.head.weight[others], head.weight[others])
    assert torch.equal(baseline.head.bias[others], head.bias[others])
    assert (baseline.head.weight[2:4] != head.weight[2:4]).any(dim=1).all()
    for new, old in zip(pool[0].parameters(), prefixes.parameters(), strict=True):
        assert (new != old).flatten(1).any(dim=1).all()
    assert len(pool) == 1


def test_one_schedule_runs_over_both_phases(stream_of):
    """Learning rates fall by the official cosine over all epochs of a task."""
    stream = stream_of(PAIRS)
    for epochs, split in ((20, (16, 4)), (50, (40, 10))):
        config = OnePromptConfig(outliers="paper", epochs=epochs)
        phases = begun(stream, config)[0].phases(begun(stream)[2])
        assert [isinstance(phase, TrainingPhase) for phase in phases] == [True, False]
        assert (phases[0].epochs, config.head_epochs) == split
        first_of_the_head = phases[0].schedule(1.0, split[0], split[0])
        assert first_of_the_head == pytest.approx({20: 0.3364, 50: 0.3269}[epochs], abs=5e-5)
    assert OnePromptConfig(epochs=20, outliers="paper", outlier_share=1.0).head_epochs == 20


@pytest.mark.parametrize("outliers", ["paper", "shipped"])
def test_outliers_change_the_tasks_rows_of_the_head_alone(stream_of, outliers):
    """Prefixes and other rows stay, to the bit, and the ViT runs once per image and not per epoch."""
    stream = stream_of(PAIRS)
    baseline, pool, context = begun(stream, attrs.evolve(OVOR, outliers=outliers), tasks=2)
    head, prefixes = copy.deepcopy(baseline.head), copy.deepcopy(pool[0].state_dict())
    calls = []
    handle = stream.backbone.model.norm.register_forward_hook(lambda *_: calls.append(1))
    baseline.phases(context)[1].run(lambda done, total: None)
    handle.remove()
    assert len(calls) == len(list(context.statistics(64)))
    assert all(torch.equal(prefixes[key], value) for key, value in pool[0].state_dict().items())
    others = [0, 1, 4, 5]
    assert torch.equal(baseline.head.weight[others], head.weight[others])
    assert torch.equal(baseline.head.bias[others], head.bias[others])
    assert (baseline.head.weight[2:4] != head.weight[2:4]).any(dim=1).all()


@pytest.mark.parametrize("outliers", ["paper", "shipped"])
def test_every_epoch_of_the_head_sees_new_crops(stream_of, outliers):
    """Images are augmented anew per epoch, alike whenever the phase is repeated, and the ViT runs no more."""
    stream = stream_of(PAIRS)
    config = attrs.evolve(OVOR, outliers=outliers, epochs=10, outlier_share=0.3)
    seeds, heads, calls, batch = [], [], [], stream.batch((0, 1))
    handle = stream.backbone.model.norm.register_forward_hook(lambda *_: calls.append(1))
    for augments in (True, True, False):
        baseline, _, context = begun(stream_of(PAIRS), config)

        def augmented(size, seed):
            seeds.append(seed)
            images = batch.images + 0.5 * torch.randn(batch.images.shape, generator=seeded(seed))
            return [Batch(labels=batch.labels, samples=batch.samples, images=lambda: images, query=None)]

        context = attrs.evolve(context, augmented=augmented if augments else None)
        calls.clear()
        baseline.phases(context)[1].run(lambda done, total: None)
        heads.append(baseline.head.weight.detach().clone())
        assert len(calls) == (3 if augments else 1)
    handle.remove()
    assert seeds[:3] == seeds[3:]
    assert len(set(seeds)) == 3
    assert torch.equal(heads[0], heads[1])
    assert not torch.allclose(heads[0], heads[2], atol=1e-5)


def test_adam_goes_on_from_the_phase_before(stream_of):
    """The head's next step is the one that the optimizer of the prefixes' phase would have taken."""
    stream = stream_of(PAIRS)
    config = attrs.evolve(OVOR, outlier_share=0.2, outlier_weight=0.0)
    results = []
    for carried in (True, False):
        baseline, pool, context = begun(stream_of(PAIRS), config)
        prompts, doubt = baseline.phases(context)
        optimizer, batch = prompts.build_optimizer(), stream.batch((0, 1))
        for _ in range(prompts.epochs):
            optimizer.zero_grad()
            prompts.step(batch).loss.backward()
            optimizer.step()
        if carried:
            expected = copy.deepcopy(baseline.head)
            optimizer.zero_grad()
            with torch.no_grad():
                features = baseline.features(batch, pool.force(0))
            functional.cross_entropy(baseline.head(features)[:, :2], batch.labels).backward()
            before = copy.deepcopy(optimizer.state_dict())
            optimizer.param_groups[0]["lr"] = prompts.schedule(config.lr, 4, prompts.epochs)
            start_values = copy.deepcopy(baseline.head.state_dict())
            optimizer.step()
            expected.load_state_dict(baseline.head.state_dict())
            baseline.head.load_state_dict(start_values)
            optimizer.load_state_dict(before)
        else:
            prompts.built.clear()
        doubt.run(lambda done, total: None)
        results.append(baseline.head.weight.detach().clone())
    torch.testing.assert_close(results[0], expected.weight.detach(), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(results[1], results[0], atol=1e-4)


def test_the_head_learns_to_doubt(stream_of):
    """Energies of features fall, and those of outliers end up above them, while classes stay apart."""
    stream = stream_of(PAIRS, per_class=20)
    config = attrs.evolve(OVOR, epochs=40, lr=0.1, outlier_share=1.0, outlier_weight=10.0, batch_size=16)
    baseline, pool, context = begun(stream, attrs.evolve(config, known_energy=-8.0, outlier_energy=-2.0))
    batch = stream.batch((0, 1))
    with torch.no_grad():
        features = baseline.features(batch, pool.force(0))
    before = energy(baseline.logits(features)[:, :2]).mean()
    baseline.phases(context)[1].run(lambda done, total: None)
    with torch.no_grad():
        logits = baseline.logits(features)[:, :2]
        doubtful = baseline.logits(near_boundary(features, 80, seeded(5)))[:, :2]
    assert energy(logits).mean() < before - 1
    assert energy(doubtful).mean() > energy(logits).mean()
    assert (logits.argmax(1) == batch.labels).float().mean() > 0.9


def test_outliers_depend_on_the_task_alone(stream_of):
    """The phase draws from a generator of its own, so it gives the same head whatever happened before."""
    results = []
    for noise in (0, 7):
        stream = stream_of(PAIRS)
        baseline, _, context = begun(stream, OVOR)
        torch.manual_seed(noise)
        baseline.phases(context)[1].run(lambda done, total: None)
        results.append(baseline.head.weight.detach().clone())
    assert torch.equal(*results)


def test_batches_share_the_outliers(stream_of):
    """Every feature comes once; each batch has as many outliers, all distinct where there are enough."""
    baseline = begun(stream_of(PAIRS), attrs.evolve(OVOR, batch_size=128))[0]
    pairs = baseline._pairs(5000, 400, seeded())
    assert len(pairs) == 40
    assert sorted(torch.cat([rows for rows, _ in pairs]).tolist()) == list(range(5000))
    assert [len(others) for _, others in pairs] == [10] * 40
    assert sorted(torch.cat([others for _, others in pairs]).tolist()) == list(range(400))
    few = baseline._pairs(128 * 5, 3, seeded())
    assert [len(others) for _, others in few] == [1] * 5
    assert set(torch.cat([others for _, others in few]).tolist()) == {0, 1, 2}


def test_neighbour_distances_are_squared_and_sorted():
    """The k-th smallest squared distance, one pair at a time; a row's own zero distance counts."""
    points, index = torch.randn(9, 4, generator=seeded()), torch.randn(7, 4, generator=seeded(1))
    pairs = torch.tensor([[float((p - q).square().sum()) for q in index] for p in points])
    for k in (1, 3, 7):
        expected = pairs.sort(dim=1).values[:, k - 1]
        torch.testing.assert_close(neighbour_distance(points, index, k), expected, rtol=1e-4, atol=1e-5)
    assert float(neighbour_distance(index, index, 1).max()) < 1e-5


def test_paper_outliers_lie_around_isolated_features():
    """They are within the noise of features, and of those far from the others where there are such."""
    crowd = functional.normalize(torch.ones(1, 16) + 0.05 * torch.randn(200, 16, generator=seeded()))
    lonely = functional.normalize(torch.randn(50, 16, generator=seeded(1)))
    features = 6 * torch.cat([crowd, lonely])
    found = near_boundary(features, 80, seeded(2))
    assert found.shape == (80, 16)
    assert len(found.unique(dim=0)) == 80
    distance, nearest = torch.cdist(found, features).min(dim=1)
    assert float(distance.max()) < 0.1 * 2.5 * 16**0.5
    assert bool((nearest >= 200).all())


def test_shipped_outliers_are_few_and_around_the_origin():
    """The released code's m outliers hold at most m / 50 distinct rows, of the noise's own length."""
    features = 6 * torch.randn(200, 64, generator=seeded())
    for count, distinct in ((400, 8), (800, 16), (80, 2)):
        found = around_origin(features, count, seeded(1))
        assert found.shape == (count, 64)
        assert len(found.unique(dim=0)) == distinct == math.ceil(count / 50)
        assert float(found.norm(dim=1).max()) < 0.1 * 1.5 * 64**0.5


def test_a_task_with_few_images_has_outliers():
    """Fewer features than neighbours are no error."""
    features = torch.randn(3, 8, generator=seeded())
    assert near_boundary(features, 40, seeded()).shape == (40, 8)
    assert around_origin(features, 40, seeded()).shape == (40, 8)


def test_energies_and_their_loss():
    """A head that knows nothing has energy -ln C; Huber's loss of [0.5, 3] is 1.3125; no side, no cost."""
    torch.testing.assert_close(energy(torch.zeros(2, 20)), torch.full((2,), -math.log(20)))
    bounds = {"known_energy": -15.0, "outlier_energy": -3.0}
    # one class: the energy is minus the logit
    known, outliers = torch.tensor([[14.5], [12.0]]), torch.tensor([[3.5], [6.0]])
    good = (torch.tensor([[15.0], [40.0]]), torch.tensor([[3.0], [-9.0]]))
    assert float(outlier_loss(*good, **bounds)) == 0
    torch.testing.assert_close(outlier_loss(known, good[1], **bounds), torch.tensor(1.3125))
    torch.testing.assert_close(outlier_loss(good[0], outliers, **bounds), torch.tensor(1.3125))
    torch.testing.assert_close(outlier_loss(known, outliers, **bounds), torch.tensor(2.625))


def test_a_block_has_one_prefix(stream_of):
    """A block in both lists is refused; either list may be empty."""
    stream = stream_of(PAIRS)
    with pytest.raises(ConfigError, match=r"block 1 is in baseline\.shallow_blocks too"):
        OnePrompt(OnePromptConfig(deep_blocks=(1, 2)), stream.build)
    baseline, pool, _ = begun(stream, attrs.evolve(QUICK, shallow_blocks=()))
    assert [site.name for site in baseline.sites(pool[0])] == [f"blocks.{i}.prefix_key" for i in (2, 3, 4)]
