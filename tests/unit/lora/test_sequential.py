"""finetune, lwf, ewc, replay: what each adds to the plain loss, and what it keeps from task to task."""

from __future__ import annotations

import attrs
import pytest
import torch
from torch.nn import functional

from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.pool import Pool
from lw2g_lora.ewc import Ewc
from lw2g_lora.options import EwcConfig, FinetuneConfig, LwfConfig, ReplayConfig
from lw2g_lora.replaying import Replay, from_bytes, to_bytes
from lw2g_lora.sequential import Finetune, Lwf

SMALL = {"rank": 4, "lr": 0.01}


def begun(bench, kind, config, tasks=2):
    """Return a baseline, its pool and the context of the last of some tasks, the others learned."""
    baseline, pool = kind(config, bench.build), Pool()
    for index in range(tasks):
        context = bench.begin(baseline, pool, index, reuse=0 if index else None)
        if index + 1 < tasks:
            bench.learn(baseline, context)
    return baseline, pool, context


def run(phases):
    """Run what comes before the training, and return the training."""
    first = [isinstance(phase, TrainingPhase) for phase in phases].index(True)
    for phase in phases[:first]:
        phase.run(lambda done, total: None)
    return phases[first]


def gradients(loss, baseline, pool):
    """Return the gradients of a loss with respect to LoRA and head, zero where it depends on neither."""
    trained = [pool[0].down, pool[0].up, *baseline.head.parameters()]
    for parameter in trained:
        parameter.requires_grad_(True)
    return torch.autograd.grad(loss(), trained, allow_unused=True, materialize_grads=True)


def test_finetune_leaves_old_rows_of_the_head(bench):
    """The loss is over the task's own classes; features of old ones drift, as nothing keeps them."""
    baseline, pool, context = begun(bench, Finetune, FinetuneConfig(**SMALL))
    rows, old = baseline.head.weight.clone(), bench.batch(0)
    before = baseline.features(old, pool.force(0))
    bench.learn(baseline, context)
    changed = (baseline.head.weight != rows).any(dim=1).tolist()
    assert changed == [False, False, True, True, *[False] * (len(changed) - 4)]
    assert not torch.allclose(before, baseline.features(old, pool.force(0)))


def test_distillation_begins_at_zero_and_pulls_back(bench, moved):
    """At a task's first step its gradient is zero; later it is of the softened old logits alone."""
    baseline, pool, context = begun(bench, Lwf, LwfConfig(**SMALL))
    train, batch = run(baseline.phases(context)), bench.batch(1)

    def both():
        plain = Finetune.step(baseline, batch, context).loss
        return plain, train.step(batch).loss

    for one, other in zip(*(gradients(lambda k=k: both()[k], baseline, pool) for k in (0, 1)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    then = baseline.head(baseline.features(batch, pool.force(0)))[:, :2]
    moved(pool[0])
    now = baseline.head(baseline.features(batch, pool.force(0)))[:, :2]
    soft = (then / 2).softmax(1)
    expected = (soft * (soft.log() - (now / 2).log_softmax(1))).sum(1).mean()
    plain, whole = both()
    torch.testing.assert_close(whole - plain, expected)
    assert expected > 1e-3


def test_the_penalty_weighs_the_squared_update(bench, moved):
    """It is lambda / 2 sum Omega (B A)^2: without gradient as a task begins, and zero where Omega is."""
    baseline, pool, context = begun(bench, Ewc, EwcConfig(**SMALL, penalty=6.0))
    train, batch = run(baseline.phases(context)), bench.batch(1)
    assert baseline.importance.any()
    plain = gradients(lambda: Finetune.step(baseline, batch, context).loss, baseline, pool)
    for one, other in zip(gradients(lambda: train.step(batch).loss, baseline, pool), plain, strict=True):
        assert torch.equal(one, other)
    moved(pool[0])
    added = train.step(batch).loss - Finetune.step(baseline, batch, context).loss
    update = pool[0].up @ pool[0].down
    torch.testing.assert_close(added, 3 * (baseline.importance * update**2).sum(), rtol=1e-4, atol=1e-6)
    baseline.importance.zero_()
    assert torch.equal(train.step(batch).loss, Finetune.step(baseline, batch, context).loss)


@pytest.mark.parametrize(("boundary", "kept"), [("dense", True), ("release", False)])
def test_a_new_task_begins_with_the_last_ones_function(bench, boundary, kept):
    """The released sums of factors are another product, once there are two of them."""
    baseline, pool, context = begun(bench, Ewc, EwcConfig(**SMALL, boundary=boundary))
    found = []
    for _ in range(2):
        with torch.no_grad():
            pool[0].up.normal_(std=0.2)
        before = baseline.features(bench.batch(0), pool.force(0))
        run(baseline.phases(context))
        after = baseline.features(bench.batch(0), pool.force(0))
        assert not pool[0].up.any()
        found.append(torch.allclose(before, after, atol=1e-4))
    assert found == [True, kept]
    assert not torch.allclose(after, bench.backbone.features(bench.batch(0).images), atol=1e-2)


def test_importance_adds_up_squared_gradients_of_batches(bench, moved):
    """Each batch has its share of images as weight; entries never fall, and ``retain`` fades old ones."""
    baseline, pool, context = begun(bench, Ewc, EwcConfig(**SMALL, retain=0.5))
    moved(pool[0])
    whole, old = bench.batch(1), baseline.importance.clone()
    parts = [whole.part(slice(0, 3)), whole.part(slice(3, 4))]
    context = attrs.evolve(context, shuffled=lambda size, seed: parts)
    baseline.measure(context, lambda done, total: None)
    expected = old / 2
    for part in parts:
        pool[0].dense.requires_grad_(True)
        loss = Finetune.step(baseline, part, context).loss
        expected = expected + torch.autograd.grad(loss, pool[0].dense)[0] ** 2 * len(part) / 4
    torch.testing.assert_close(baseline.importance, expected)
    assert (expected > old / 2).any()
    assert (baseline.importance >= old / 2).all()


def test_a_reversed_fisher_keeps_what_is_learned_well(bench, moved):
    """Where every image is right for certain the gradient vanishes; of negated logits it is largest there."""
    totals = {}
    for fisher in ("plain", "reversed"):
        baseline, pool, context = begun(bench, Ewc, EwcConfig(**SMALL, fisher=fisher, loss="task"), tasks=1)
        moved(pool[0])
        batch = bench.batch(0)
        features = baseline.features(batch, pool.force(0)).detach()
        wanted = torch.nn.functional.one_hot(batch.labels, len(baseline.head.weight)) * 40.0
        with torch.no_grad():  # exact: there are fewer images than features
            baseline.head.weight.copy_(torch.linalg.lstsq(features, wanted).solution.T)
            baseline.head.bias.zero_()
        shuffled = attrs.evolve(context, shuffled=lambda size, seed, batch=batch: [batch])
        baseline.measure(shuffled, lambda done, total: None)
        losses = baseline.class_loss(features, batch, context.task)
        assert float(losses.detach()) < 1e-6
        totals[fisher] = float(baseline.importance.sum())
    assert totals["reversed"] > 1e3 * totals["plain"]


def test_bytes_give_images_back():
    """To within half a level, whatever the normalisation; a channel of one value exactly."""
    images = 3 * torch.randn(2, 3, 8, 8) - 1
    images[0, 0] = 7.0
    pixels, scales = to_bytes(images)
    assert pixels.dtype == torch.uint8
    spread = images.amax(dim=(-2, -1)) - images.amin(dim=(-2, -1))
    error = (from_bytes(pixels, scales) - images).abs().amax(dim=(-2, -1))
    assert (error <= spread / 255 * 0.501).all()


def test_replay_keeps_images_of_each_class_and_learns_from_them(bench):
    """A class of two images fills three places; a step is over all seen classes, of as many old images."""
    baseline, pool, context = begun(bench, Replay, ReplayConfig(**SMALL, exemplars=3))
    images, labels = bench.batch(0).images, bench.batch(0).labels
    kept = from_bytes(baseline.pixels, baseline.scales)[: baseline.old(context.task)]
    found = [(images - one).abs().amax(dim=(1, 2, 3)) for one in kept]
    assert {int(one.argmin()) for one in found} == {0, 1, 2, 3}
    assert max(float(one.min()) for one in found) < 0.02
    assert [int(labels[one.argmin()]) for one in found] == baseline.owners[:6].tolist()
    size = bench.backbone.fingerprint.image_size
    assert baseline.findings() == {"exemplars": 12, "exemplar_bytes": 12 * 3 * size**2}
    torch.manual_seed(0)
    found = baseline.step(bench.batch(1), context).loss
    torch.manual_seed(0)
    drawn = torch.randint(6, (4,))
    features = [
        bench.backbone.features(part, (baseline.injection(pool.force(0)),))
        for part in (bench.batch(1).images, kept[drawn])
    ]
    wanted = torch.cat([bench.batch(1).labels, baseline.owners[drawn]])
    logits = baseline.head(torch.cat(features))[:, :4]
    torch.testing.assert_close(found, functional.cross_entropy(logits, wanted))


@pytest.mark.parametrize(("kind", "config"), [(Finetune, FinetuneConfig), (Lwf, LwfConfig), (Ewc, EwcConfig)])
def test_the_loss_over_seen_classes_pushes_old_rows(bench, kind, config):
    """It is the cross-entropy over all classes so far: those of later tasks get no gradient, old ones do."""
    baseline, pool, context = begun(bench, kind, config(**SMALL, loss="seen"))
    run(baseline.phases(context))
    batch = bench.batch(1)
    logits = baseline.head(baseline.features(batch, pool.force(0)))
    expected = functional.cross_entropy(logits[:, :4], batch.labels)
    torch.testing.assert_close(Finetune.step(baseline, batch, context).loss, expected)
    weight = gradients(lambda: Finetune.step(baseline, batch, context).loss, baseline, pool)[2]
    assert weight.any(dim=1).tolist()[:4] == [True] * 4
    assert not weight[4:].any()


def test_a_warm_up_trains_the_head_of_later_tasks_alone(bench):
    """By the plain loss, after the old model was copied; without the option there is none."""
    names = []
    for epochs in (0, 3):
        config = LwfConfig(**SMALL, warmup_epochs=epochs)
        for tasks in (1, 2):
            baseline, _, context = begun(bench, Lwf, config, tasks)
            names.append([phase.name for phase in baseline.phases(context)])
    plain = ["teacher", "lora"]
    assert names == [plain, plain, plain, ["teacher", "warm-up", "lora"]]
    warmup, train = baseline.phases(context)[1:]
    assert (warmup.epochs, train.epochs) == (3, baseline.config.epochs)
    assert set(warmup.trained) == set(baseline.head.parameters())
    assert warmup.groups[0].lr == train.groups[-1].lr
    batch = bench.batch(1)
    torch.testing.assert_close(warmup.step(batch).loss, Finetune.step(baseline, batch, context).loss)
