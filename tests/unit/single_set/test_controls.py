"""simple-cil, no-prompt and joint: what they learn, what they leave alone, and how they fit the stream."""

from __future__ import annotations

import attrs
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch.nn import functional

from lw2g.blocks.prefixes import PrefixSet, chosen_prefixes, inject_prefixes
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext
from lw2g.interfaces.phase import ComputePhase
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.scope import BACKBONE
from lw2g.vit.backbone import Backbone
from lw2g_single_set.joint import Joint
from lw2g_single_set.no_prompt import NoPrompt
from lw2g_single_set.options import JointConfig, NoPromptConfig, SimpleCILConfig
from lw2g_single_set.simple_cil import SimpleCIL
from tasks import build_of, given_set, task_context, tasks_of

DIM, CLASSES, PER_CLASS = 16, 6, 5


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    """A random ViT of six blocks and width 16."""
    torch.manual_seed(0)
    size = {"img_size": 16, "patch_size": 8, "embed_dim": DIM, "depth": 6, "num_heads": 4, "num_classes": 0}
    return Backbone.wrap(VisionTransformer(**size), name="tiny random ViT")


@pytest.fixture
def build(backbone) -> BuildContext:
    """Six classes in up to six tasks."""
    torch.manual_seed(1)
    return build_of(backbone, num_tasks=3, num_classes=CLASSES)


def queries(classes):
    """Return features and labels of some classes, far from normalised."""
    rows = torch.randn(CLASSES, PER_CLASS, DIM, generator=torch.Generator().manual_seed(2))
    rows = rows + 4 * torch.randn(CLASSES, 1, DIM, generator=torch.Generator().manual_seed(3))
    index = list(classes)
    return rows[index].flatten(0, 1), torch.tensor(index).repeat_interleave(PER_CLASS)


def batch_of(query, labels):
    """Return a batch without images."""

    def no_images():
        raise AssertionError("images must not be read")

    return Batch(labels=labels, samples=torch.arange(len(labels)), images=no_images, query=lambda: query)


def context_of(build, pool, groups, size=None):
    """Give the next task its set; ``groups`` are the classes of all tasks so far."""
    history = tasks_of(map(len, groups))
    query, labels = queries(history[-1].classes)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(4))
    parts = torch.split(order, size or len(order))
    given_set(pool, 0 if len(pool) else None)
    return task_context(
        pool,
        history,
        backbone=build.backbone,
        statistics=lambda _: [batch_of(query[part], labels[part]) for part in parts],
    )


def learned(build, groups, size=None, head="cosine"):
    """Return ``simple-cil`` after tasks with these classes."""
    baseline, pool = SimpleCIL(SimpleCILConfig(head=head), build), Pool()
    for count in range(1, len(groups) + 1):
        (phase,) = baseline.phases(context_of(build, pool, groups[:count], size))
        phase.run(lambda done, total: None)
    return baseline


PAIRS = [range(0, 2), range(2, 4), range(4, 6)]


def test_prediction_is_the_nearest_mean_by_cosine(build):
    """Logits are cosines; features and means are compared without regard to length."""
    baseline = learned(build, PAIRS)
    features = queries(range(CLASSES))[0]
    expected = functional.cosine_similarity(
        features[:, None], baseline.closed_form.total.float()[None], dim=-1
    )
    torch.testing.assert_close(baseline.logits(features), expected)
    torch.testing.assert_close(baseline.logits(7 * features), expected)
    assert (expected.argmax(1) == queries(range(CLASSES))[1]).float().mean() > 0.9


@pytest.mark.parametrize("head", ["cosine", "lda", "mahalanobis"])
def test_the_result_does_not_depend_on_tasks(build, head):
    """One task, three pairs or six tasks of one class give the same scores."""
    results = [
        learned(build, groups, head=head).logits(queries(range(6))[0])
        for groups in ([range(6)], PAIRS, [range(i, i + 1) for i in range(6)])
    ]
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(results[0], results[2], rtol=1e-6, atol=1e-7)


def test_simple_cil_has_nothing_to_train(build):
    """No parameter, no image, no optimizer: one computation on cached features."""
    baseline, pool = SimpleCIL(SimpleCILConfig(), build), Pool()
    context = context_of(build, pool, PAIRS[:1])
    assert list(baseline.parameters()) == list(baseline.new_set(None).parameters()) == []
    assert [type(phase) for phase in baseline.phases(context)] == [ComputePhase]
    query, labels = queries(range(2))
    assert baseline.features(batch_of(query, labels), pool.force(0)) is query
    assert baseline.scope is BACKBONE


def test_no_prompt_trains_rows_of_the_tasks_classes(build):
    """The loss is cross-entropy over the task's classes of a linear head, and reaches their rows alone."""
    baseline, pool = NoPrompt(NoPromptConfig(), build), Pool()
    context_of(build, pool, PAIRS[:1])
    context = context_of(build, pool, PAIRS[:2])
    (phase,) = baseline.phases(context)
    query, labels = queries(range(2, 4))
    loss = phase.step(batch_of(query, labels)).loss
    logits = (query @ baseline.head.weight.T + baseline.head.bias).detach()[:, 2:4]
    torch.testing.assert_close(loss, -logits.log_softmax(1)[torch.arange(10), labels - 2].mean())
    loss.backward()
    norms = baseline.head.weight.grad.norm(dim=1)
    assert norms[[0, 1, 4, 5]].tolist() == [0] * 4
    assert (norms[2:4] > 0).all()


def test_joint_uses_its_one_set_with_and_without_a_choice(build):
    """Training forces the set and evaluation chooses none: the features are those of its prefixes."""
    baseline, pool = Joint(JointConfig(), build), Pool()
    pool.grow(baseline.new_set(None))
    images = torch.randn(3, 3, 16, 16)
    batch = Batch(
        labels=torch.arange(3), samples=torch.arange(3), images=lambda: images, query=lambda: images
    )
    expected = build.backbone.features(images, (inject_prefixes(range(5), *chosen_prefixes(pool.force(0))),))
    assert torch.equal(baseline.features(batch, pool.force(0)), expected)
    assert torch.equal(baseline.features(batch, pool.route(None)), expected)
    assert isinstance(pool[0], PrefixSet)
    assert baseline.prefixes.blocks == (0, 1, 2, 3, 4)


def test_joint_masks_nothing(build):
    """With all classes in one task the loss is plain cross-entropy over all of them."""
    baseline, pool = Joint(JointConfig(), build), Pool()
    context = context_of(build, Pool(), [range(CLASSES)])
    pool.grow(baseline.new_set(None))
    context = attrs.evolve(context, pool=pool)
    images = torch.randn(CLASSES, 3, 16, 16)
    labels = torch.arange(CLASSES)
    batch = Batch(labels=labels, samples=labels, images=lambda: images, query=lambda: images)
    (phase,) = baseline.phases(context)
    logits = baseline.logits(baseline.features(batch, pool.force(0)))
    torch.testing.assert_close(phase.step(batch).loss, functional.cross_entropy(logits, labels))
