"""cprompt: sizes, the three terms, who gets gradients, growth and reuse, protection under SGD."""

from __future__ import annotations

from contextlib import ExitStack

import attrs
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from lw2g.interfaces.batch import Batch
from lw2g.vit.taps import Tap
from lw2g.vit.tokens import TokenInjection
from lw2g_prompts.cprompt import CPrompt, smoothing_loss
from lw2g_prompts.options import CPromptConfig
from lw2g_retrieval.class_keys import ClassKeys
from lw2g_retrieval.options import ClassKeysConfig
from tasks import retrieved

QUICK = CPromptConfig(length=3, epochs=2, batch_size=4)
SEEDS = st.integers(0, 2**31 - 1)


def rows_after_blocks(backbone, forward):
    """Return the number of tokens after each block that ran, in order."""
    counts = []
    with ExitStack() as stack:
        for block in backbone.model.blocks:
            handle = block.register_forward_hook(lambda module, args, out: counts.append(out.shape[1]))
            stack.callback(handle.remove)
        forward()
    return counts


def begun(bench, config=QUICK, tasks=2, **others):
    """Return baseline, pool and the context of the last of some tasks that have begun."""
    return bench.begun(CPrompt, config, tasks, **others)


def test_start_values_are_the_official_ones(vit_b):
    """Prompts are uniform within 1/sqrt(d), classifiers within sqrt(3/d), biases zero."""
    baseline = CPrompt(CPromptConfig(), vit_b(1, 10))
    rows = baseline.new_set(None).rows.detach()
    assert 0.0360 < float(rows.abs().max()) <= 0.0361
    classifier = baseline._classifier(10)
    assert 0.0610 < float(classifier.weight.detach().abs().max()) <= 0.0625
    assert not classifier.bias.any()


def test_prompts_enter_before_their_blocks_and_stay(bench):
    """On 17 tokens, 3 rows before block 0 and 3 before block 5 make 20 and then 23."""
    baseline, pool, _ = begun(bench, tasks=1)
    counts = rows_after_blocks(bench.backbone, lambda: baseline.features(bench.batch(0), pool.force(0)))
    assert counts == [20] * 5 + [23]


def test_features_are_class_tokens_before_the_final_norm(bench):
    """The feature is the input of the final norm, which maps it to the usual one."""
    baseline, pool, _ = begun(bench, tasks=1)
    batch = bench.batch(0)
    features = baseline.features(batch, pool.force(0))
    rows = dict(zip((0, 5), pool[0].rows, strict=True))
    normed = bench.backbone.features(batch.images, (TokenInjection(rows, keep=True),))
    torch.testing.assert_close(bench.backbone.model.norm(features), normed)
    assert not torch.allclose(features, normed, atol=1e-2)


def test_training_takes_three_passes_and_prediction_two(bench):
    """Query, own set, random set in a step; query and retrieved set in a prediction."""
    baseline, pool, context = begun(bench)
    keys = ClassKeys(ClassKeysConfig(), bench.build)
    depth = bench.backbone.depth

    def step():
        batch = bench.batch(1)
        baseline.step(batch, context)
        keys.loss(batch, context)

    def predict():
        batch = bench.batch(1)
        tasks = retrieved(keys, batch.query, range(2), context.task_of_class())
        baseline.logits(baseline.features(batch, pool.route(pool.sets_of(tasks))))

    assert len(rows_after_blocks(bench.backbone, step)) == 3 * depth
    assert len(rows_after_blocks(bench.backbone, predict)) == 2 * depth


def old_logits(seed, *, batch=6, classes=4):
    """Return random logits of an old classifier, with gradient."""
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(batch, classes, generator=generator, dtype=torch.float64)).requires_grad_()


@given(SEEDS, st.floats(1.05, 3.0))
def test_smoothing_flattens_where_the_margin_is_violated(seed, temperature):
    """The gradient is (softmax(l) - softmax(l / tau)) / B there, and a step against it raises the entropy."""
    logits = old_logits(seed)
    smoothing_loss(logits, torch.full((6,), -99.0), temperature, 0.0).backward()
    plain, flat = logits.detach().softmax(1), (logits.detach() / temperature).softmax(1)
    torch.testing.assert_close(logits.grad, (plain - flat) / 6)

    def entropy(p):
        return -(p * p.log()).sum(1)

    assert (entropy(flat) > entropy(plain)).all()
    assert (entropy((logits.detach() - 0.1 * logits.grad).softmax(1)) > entropy(plain)).all()


@given(SEEDS)
def test_smoothing_leaves_surer_samples_alone(seed):
    """Where the new classifier is surer by the margin the gradient is zero and the value is the entropy."""
    logits = old_logits(seed)
    top = logits.detach().amax(1)
    confidence = torch.where(torch.arange(6) < 3, top + 0.5, top - 0.5)
    loss = smoothing_loss(logits, confidence, 1.5, 0.25)
    loss.backward()
    assert logits.grad[:3].abs().max() < 1e-7
    assert (logits.grad[3:].abs().amax(1) > 1e-6).all()
    p = logits.detach().softmax(1)
    calm = smoothing_loss(logits, top + 99, 1.5, 0.25)
    torch.testing.assert_close(calm.detach(), -(p * p.log()).sum(1).mean())


def test_the_loss_is_the_sum_of_its_terms(bench):
    """The step equals both cross-entropies and the mean of the old classifiers' terms, by hand."""
    baseline, pool, context = begun(bench, tasks=3, config=attrs.evolve(QUICK, init_from="random"))
    batch = bench.batch(2)
    labels = batch.labels - 4
    own = baseline.features(batch, pool.force(2))
    torch.manual_seed(11)
    drawn = torch.randint(3, (4,))
    random = baseline.features(batch, pool.route(drawn))
    confidence = baseline.classifiers[2](own).amax(1)
    terms = [smoothing_loss(baseline.classifiers[i](own), confidence, 1.2, 0.0) for i in (0, 1)]
    expected = functional.cross_entropy(baseline.auxiliary(own), labels) + sum(terms) / 2
    expected = expected + functional.cross_entropy(baseline.classifiers[2](random), labels)
    torch.manual_seed(11)
    output = baseline.step(batch, context)
    torch.testing.assert_close(output.loss, expected)
    torch.testing.assert_close(output.features, own)
    assert len(set(drawn.tolist())) > 1


def test_the_first_task_has_no_old_classifiers(bench):
    """The weight of the consistency term changes nothing there, and something from the second task on."""
    for tasks, equal in ((1, True), (2, False)):
        losses = []
        for weight in (0.0, 1.0):
            torch.manual_seed(5)
            baseline, _, context = begun(bench, attrs.evolve(QUICK, smoothing=weight), tasks)
            losses.append(baseline.step(bench.batch(tasks - 1), context).loss)
        assert torch.equal(*losses) == equal


def test_sets_are_drawn_per_image_over_the_whole_pool(bench):
    """Every set comes up, the current one too, and images of a batch differ."""
    baseline, pool, context = begun(bench, tasks=3, config=attrs.evolve(QUICK, init_from="random"))
    none = torch.zeros(300, dtype=torch.long)
    rows = baseline.random_rows(context, Batch(labels=none, samples=none, images=None, query=None))
    counts = [int((rows == item.rows).flatten(1).all(1).sum()) for item in pool.sets]
    assert sum(counts) == 300
    assert min(counts) > 60


def test_gradients_stay_with_the_task(bench):
    """Other sets and old classifiers get none; the own set, the new classifier and the auxiliary one do."""
    baseline, pool, context = begun(bench)
    baseline.step(bench.batch(1), context).loss.backward()
    assert pool[0].rows.grad is None
    assert [p.grad for p in baseline.classifiers[0].parameters()] == [None, None]
    for module in (pool[1], baseline.classifiers[1], baseline.auxiliary):
        assert all(float(p.grad.norm()) > 0 for p in module.parameters())


def test_each_classifier_learns_from_one_pass_only(bench):
    """The auxiliary one sees the own set alone, the task's one the drawn set alone."""
    baseline, pool, context = begun(bench, config=attrs.evolve(QUICK, init_from="random"))
    batch = bench.batch(1)
    baseline.random_rows = lambda context, batch: pool[0].rows.detach()
    baseline.step(batch, context).loss.backward()
    for classifier, set_id in ((baseline.auxiliary, 1), (baseline.classifiers[1], 0)):
        logits = classifier(baseline.features(batch, pool.force(set_id)))
        alone = functional.cross_entropy(logits, batch.labels - 2)
        expected = torch.autograd.grad(alone, list(classifier.parameters()))
        for parameter, gradient in zip(classifier.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)


def test_consistency_reaches_the_own_prompts(bench):
    """An old classifier that is surer than the new one bends the task's prompts, and is not bent itself."""
    baseline, pool, _ = begun(bench)
    with torch.no_grad():
        baseline.classifiers[0].bias += torch.tensor([50.0, 49.0])
    baseline.consistency(baseline.features(bench.batch(1), pool.force(1)), 1).backward()
    assert float(pool[1].rows.grad.norm()) > 0
    assert baseline.classifiers[0].bias.grad is None
    assert baseline.classifiers[1].bias.grad is None


def test_logits_are_the_classifiers_side_by_side(bench):
    """Width is the number of classes of the stream, order is task order, the rest is minus infinity."""
    baseline, pool, _ = begun(bench)
    features = baseline.features(bench.batch(0), pool.force(0))
    logits = baseline.logits(features)
    assert logits.shape == (4, 6)
    torch.testing.assert_close(logits[:, 2:4], baseline.classifiers[1](features))
    assert (logits[:, 4:] == float("-inf")).all()
    assert logits[:, :4].isfinite().all()


def test_evidence_is_both_cross_entropies_in_one_pass(bench):
    """The candidate plays both roles, old classifiers have no say, and nothing is drawn."""
    baseline, pool, _ = begun(bench)
    batch, before = bench.batch(1), torch.get_rng_state()
    loss = bench.probe_loss(baseline, batch, pool.force(0), 1)
    assert torch.equal(before, torch.get_rng_state())
    features = baseline.features(batch, pool.force(0))
    heads = (baseline.auxiliary, baseline.classifiers[1])
    by_hand = [-head(features).log_softmax(1)[torch.arange(4), batch.labels - 2].mean() for head in heads]
    torch.testing.assert_close(loss, sum(by_hand))
    (gradient,) = torch.autograd.grad(loss, [pool[0].rows])
    assert gradient.abs().sum(dim=(1, 2)).min() > 0


def test_sites_are_the_prompts_against_the_tokens_they_join(bench):
    """Each prompt is projected along its width, with the block inputs that lie beside it."""
    baseline, pool, _ = begun(bench, tasks=1)
    sites = baseline.sites(pool[0])
    assert [site.name for site in sites] == ["blocks.0.tokens", "blocks.5.tokens"]
    assert [site.activation.tap for site in sites] == [Tap(0, "block_in"), Tap(5, "block_in")]
    assert all(site.parameter is pool[0].rows for site in sites)
    assert [site.rows(site.parameter).shape for site in sites] == [(3, 48)] * 2
    images = bench.batch(0).images
    seen = bench.backbone.read(
        [site.activation.tap for site in sites], lambda: baseline.features(bench.batch(0), pool.force(0))
    )
    plain = bench.backbone.activations(images, [site.activation.tap for site in sites])
    assert torch.equal(seen[sites[0].activation.tap], plain[sites[0].activation.tap])
    assert seen[sites[1].activation.tap].shape == plain[sites[1].activation.tap].shape
    assert not torch.allclose(seen[sites[1].activation.tap], plain[sites[1].activation.tap])
