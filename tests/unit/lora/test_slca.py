"""slca-plus-plus: what is trained how fast, what its losses are, and what alignment is for."""

from __future__ import annotations

import copy
import math

import attrs
import pytest
import torch
from torch.nn import functional

from lw2g.errors import ConfigError
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.pool import Pool
from lw2g.vit.loading import load_backbone
from lw2g.vit.taps import Tap
from lw2g_lora.options import SlcaConfig
from lw2g_lora.slca import SlcaPlusPlus, TaskHeads, logit_norm_loss, symmetric_loss
from lw2g_lora.slow_set import SlowSet, leading_rows

QUICK = {"align_samples": 8, "align_epochs": 2, "rank": 3}


def begun(bench, tasks=1, learn=True, **options):
    """Return a baseline, a pool and the context of the last of some tasks, the others learned."""
    baseline, pool = SlcaPlusPlus(SlcaConfig(**{**QUICK, **options}), bench.build), Pool()
    for index in range(tasks):
        context = bench.begin(baseline, pool, index, reuse=0 if index else None)
        if learn or index + 1 < tasks:
            bench.learn(baseline, context)
    return baseline, pool, context


def phase_of(baseline, context, name):
    return next(phase for phase in baseline.phases(context) if phase.name == name)


def test_counts_are_those_of_the_paper():
    """Updates, norms, biases and class token of ViT-B/16 have 516,096, 38,400, 83,712 and 768 numbers."""
    name = "vit_tiny_patch16_224"  # of the same depth, and all widths a quarter
    own = SlowSet(load_backbone(name, random_seed=0), 4, fresh_norm=True)
    dim = 192
    assert sum(one.numel() for one in own.factors) == 12 * 4 * (dim + 3 * dim + 2 * (dim + 4 * dim))
    norms = {name for name in own.values if "norm" in name}
    biases = {name for name in own.values if name.endswith("bias")} - norms
    assert (len(norms), len(biases), set(own.values) - norms - biases) == (48, 49, {"cls_token"})
    counted = [sum(own.values[name].numel() for name in names) for names in (norms, biases, ["cls_token"])]
    assert counted == [48 * dim, 12 * (3 + 1 + 4 + 1) * dim + dim, dim]
    at_768 = 4 * (12 * 4 * 14 * dim) + 4 * (50 * dim) + 4 * (109 * dim) + 4 * dim
    assert at_768 == 516_096 + 38_400 + 83_712 + 768 == 638_976


@pytest.mark.parametrize("final_norm", ["pretrained", "fresh"])
def test_at_first_nothing_changes_but_a_fresh_norm(bench, final_norm):
    """Up factors are zero, and all other values the backbone's; a fresh final norm has torch's epsilon."""
    baseline, pool, context = begun(bench, learn=False, final_norm=final_norm)
    phase_of(baseline, context, "lora-design").run(lambda done, total: None)
    batch = bench.batch(0)
    found = baseline.features(batch, pool.route(None))
    if final_norm == "pretrained":
        torch.testing.assert_close(found, bench.backbone.features(batch.images))
    else:
        rows = bench.backbone.features(batch.images, norm=False)
        torch.testing.assert_close(found, functional.layer_norm(rows, (32,), eps=1e-5))


def test_down_factors_are_leading_input_directions(bench):
    """Rows are orthonormal and capture as much of the weight as its largest singular values."""
    for shape in ((7, 5), (5, 7)):
        weight = torch.randn(*shape)
        rows = leading_rows(weight, 3)
        torch.testing.assert_close(rows @ rows.T, torch.eye(3), atol=1e-5, rtol=0)
        largest = torch.linalg.svdvals(weight)[:3]
        torch.testing.assert_close((weight @ rows.T).norm(dim=0), largest, atol=1e-5, rtol=1e-5)
    baseline, pool, context = begun(bench, learn=False)
    phase_of(baseline, context, "lora-design").run(lambda done, total: None)
    weight = bench.backbone.model.blocks[2].mlp.fc2.weight
    torch.testing.assert_close(pool[0].down["fc2"][2], leading_rows(weight, 3))
    context = bench.begin(baseline, pool, 1, reuse=0)
    assert "lora-design" not in {phase.name for phase in baseline.phases(context)}


def test_a_step_is_the_authors_formula(bench):
    """Loss and gradients of a step equal those of dense weights, to a few 1e-6 of the largest."""
    baseline, _, context = begun(bench, tasks=2, learn=False, final_norm="fresh")
    own = context.parameters
    for parameter in own.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    train, batch = phase_of(baseline, context, "lora"), bench.batch(1)
    for parameter in train.trained:
        parameter.requires_grad_(True)
    loss = train.step(batch).loss
    ours = torch.autograd.grad(loss, train.trained)
    model = bench.backbone.model
    values = {name.replace("-", "."): value for name, value in own.values.items()}
    for place, block in enumerate(model.blocks):
        for name in ("attn.qkv", "mlp.fc1", "mlp.fc2"):
            short, weight = name.partition(".")[2], block.get_submodule(name).weight.detach()
            values[f"blocks.{place}.{name}.weight"] = (
                weight + 0.8 * own.up[short][place] @ own.down[short][place]
            )
    rows = []
    handle = model.norm.register_forward_pre_hook(lambda module, args: rows.append(args[0][:, 0]))
    torch.func.functional_call(model, values, (batch.images,))
    handle.remove()
    features = functional.layer_norm(rows[0], (32,), own.norm.weight, own.norm.bias, 1e-5)
    logits = functional.linear(features, *baseline.head.tasks[1].parameters())
    labels = batch.labels - 2
    likely = logits.softmax(1).clamp(min=1e-7)
    wanted = functional.one_hot(labels, 2).float().clamp(min=1e-4)
    expected = functional.cross_entropy(logits, labels) - 0.1 * (likely * wanted.log()).sum(1).mean()
    torch.testing.assert_close(loss, expected, atol=1e-6, rtol=1e-6)
    for mine, their in zip(ours, torch.autograd.grad(expected, train.trained), strict=True):
        assert (mine - their).abs().max() <= 5e-6 * their.abs().max().clamp(min=0.01)


def test_sites_are_the_factors_of_all_layers(bench):
    """Down at the input of its layer, up behind it; nothing else of the set has one."""
    baseline, pool, _ = begun(bench, learn=False)
    sites = {site.name: site for site in baseline.sites(pool[0])}
    assert len(sites) == 6 * 3 * 2
    for layer, kind in (("qkv", "attn_in"), ("fc1", "mlp_in"), ("fc2", "mlp_hidden")):
        down, up = sites[f"blocks.2.{layer}_down"], sites[f"blocks.2.{layer}_up"]
        assert {site.activation.tap for site in (down, up)} == {Tap(2, kind)}
        assert torch.equal(up.activation.map(), pool[0].down[layer][2])
        assert (down.measured, up.measured) == (True, False)
    owned = {id(site.parameter) for site in sites.values()}
    assert owned == {id(parameter) for parameter in pool[0].factors}


@pytest.mark.parametrize("bits", [torch.float32, torch.bfloat16])
def test_values_are_kept_in_float32(bench, bits):
    """What is trained is float32 also where the backbone is stored in half as many bits."""
    backbone = copy.deepcopy(bench.backbone)
    if bits is torch.bfloat16:
        backbone.to_bf16()
    build = attrs.evolve(bench.build, backbone=backbone)
    own = SlcaPlusPlus(SlcaConfig(rank=2), build).new_set(None)
    own.design(backbone)
    assert {parameter.dtype for parameter in own.parameters()} == {torch.float32}
    with torch.no_grad():
        found = own.norm(backbone.features(bench.batch(0).images, own.injections(), norm=False))
        plain = backbone.features(bench.batch(0).images)
    torch.testing.assert_close(found, plain, atol=1e-5 if bits is torch.float32 else 0.05, rtol=0)


def test_rates_are_the_published_ones(bench):
    """The classifier at 0.01, norms at a tenth, updates at half in the first task; one floor for all."""
    baseline, _, first = begun(bench)
    later = begun(bench, tasks=2, learn=False)
    for owner, context, factor in ((baseline, first, 0.5), (later[0], later[2], 0.1)):
        phase = phase_of(owner, context, "lora")
        assert isinstance(phase, TrainingPhase)
        assert (phase.optimizer, phase.momentum, phase.batch_size, phase.epochs) == ("sgd", 0.9, 128, 20)
        assert [group.lr for group in phase.groups] == pytest.approx([0.01, 0.001, 0.01 * factor])
        assert {group.weight_decay for group in phase.groups} == {5e-4}
        for group in phase.groups:
            rates = [phase.schedule(group.lr, epoch, 20) for epoch in (0, 10, 19)]
            span = group.lr - 1e-4
            assert rates == pytest.approx(
                [group.lr, 1e-4 + span / 2, 1e-4 + span * (1 + math.cos(math.pi * 0.95)) / 2]
            )
        assert phase.groups[0].parameters == tuple(owner.head.tasks[context.task.index].parameters())


def test_the_symmetric_loss_is_its_formula():
    """Reverse cross-entropy is 9.2103 (1 - p_y) within the clamp; without it there is cross-entropy alone."""
    logits, labels = torch.randn(6, 4, requires_grad=True), torch.tensor([0, 1, 2, 3, 0, 1])
    likely = logits.softmax(1)[torch.arange(6), labels]
    reverse = symmetric_loss(logits, labels, 0.0, 1.0)
    torch.testing.assert_close(reverse, (-math.log(1e-4) * (1 - likely)).mean())
    plain = functional.cross_entropy(logits, labels)
    torch.testing.assert_close(symmetric_loss(logits, labels, 1.0, 0.0), plain)
    both = symmetric_loss(logits, labels, 1.0, 0.1)
    (found,) = torch.autograd.grad(both, logits)
    (expected,) = torch.autograd.grad(plain + 0.1 * 9.210340371976182 * (1 - likely).mean(), logits)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def test_the_norm_of_logits_is_the_mean_over_tasks():
    """Scaling all logits changes nothing; for one task it is CE(z / (|z| tau)); tasks weigh alike."""
    logits, labels = torch.randn(5, 6, requires_grad=True), torch.tensor([0, 5, 2, 3, 1])
    uneven = torch.tensor([0, 0, 0, 0, 1, 1])
    found = logit_norm_loss(logits, labels, uneven, 2, 0.1)
    torch.testing.assert_close(logit_norm_loss(7 * logits, labels, uneven, 2, 0.1), found)
    norm = (logits[:, :4].norm(dim=1) + logits[:, 4:].norm(dim=1)) / 2 + 1e-7
    expected = functional.cross_entropy(logits / (0.1 * norm[:, None]), labels)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(one, logits)[0] for one in (found, expected)]
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-6)
    alone = logit_norm_loss(logits, labels, torch.zeros(6, dtype=torch.long), 1, 0.5)
    torch.testing.assert_close(
        alone, functional.cross_entropy(logits / (logits.norm(dim=1, keepdim=True) * 0.5), labels)
    )
    assert torch.isfinite(
        torch.autograd.grad(logit_norm_loss(0 * logits, labels, uneven, 2, 0.1), logits)[0]
    ).all()


def test_alignment_is_for_prediction_alone(bench):
    """It starts from the trained classifiers, which it leaves alone; again it gives the same bits."""
    baseline, pool, context = begun(bench, tasks=2)
    trained, network = copy.deepcopy(baseline.head.state_dict()), copy.deepcopy(pool[0].state_dict())
    first = copy.deepcopy(baseline.aligned.state_dict())
    assert any(not torch.equal(first[name], value) for name, value in trained.items())
    phase_of(baseline, context, "alignment").run(lambda done, total: None)
    for name, value in trained.items():
        assert torch.equal(baseline.head.state_dict()[name], value)
        assert torch.equal(baseline.aligned.state_dict()[name], first[name])
    assert all(torch.equal(value, pool[0].state_dict()[name]) for name, value in network.items())


def test_what_nobody_asks_is_not_aligned(bench):
    """Under a head in closed form there are no covariances and no alignment, and training is the same."""
    torch.manual_seed(0)
    plain, pool, _ = begun(bench)
    torch.manual_seed(0)
    baseline, other, context = begun(bench, head="lda")
    assert baseline.statistics is None
    assert [phase.name for phase in baseline.phases(context)] == ["lora-design", "lora", "head"]
    assert not any(name.startswith("statistics") for name in baseline.state_dict())
    for name, value in pool[0].state_dict().items():
        torch.testing.assert_close(value, other[0].state_dict()[name], atol=1e-5, rtol=1e-4)
    for name, value in plain.head.state_dict().items():
        torch.testing.assert_close(value, baseline.head.state_dict()[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("trained", [1, 2])
def test_after_the_last_task_that_trains_the_head_is_exact(bench, trained):
    """Then the head alone learns: its sums are those of features of the end, and old ones are not carried."""
    baseline, pool, _ = begun(bench, tasks=trained, head="lda", head_carry="gated", trained_tasks=trained)
    network = copy.deepcopy(pool[0].state_dict())
    old = baseline.closed_form.centres(torch.arange(2 * trained))
    carried = baseline.findings()
    for index in range(trained, 3):
        context = bench.begin(baseline, pool, index, reuse=0)
        assert [phase.name for phase in baseline.phases(context)] == ["head"]
        bench.learn(baseline, context)
        batch = bench.batch(index)
        features = baseline.features(batch, pool.route(None)).double()
        for label in context.task.classes:
            found = baseline.closed_form.centres(torch.tensor([label]))[0]
            torch.testing.assert_close(found, features[batch.labels == label].mean(0), atol=1e-5, rtol=0)
    assert all(torch.equal(value, pool[0].state_dict()[name]) for name, value in network.items())
    assert torch.equal(baseline.closed_form.centres(torch.arange(2 * trained)), old)
    assert baseline.findings() == carried
    assert (carried["carry_forwards"] > 0) == (trained > 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trained_tasks": 4, "head": "lda"}, "4 exceeds the stream's 3 tasks; name fewer"),
        ({"trained_tasks": 1}, "1 leaves later tasks without training, .*; set baseline.head to"),
    ],
)
def test_an_end_of_training_that_cannot_be_is_refused(bench, options, said):
    """More tasks than there are, and a head that would have to be trained."""
    with pytest.raises(ConfigError, match=rf"baseline\.trained_tasks: {said}"):
        SlcaPlusPlus(SlcaConfig(**options), bench.build)


def test_the_first_task_is_not_aligned(bench):
    """What predicts then is the trained classifier, at scale 1."""
    baseline, pool, _ = begun(bench)
    features = baseline.features(bench.batch(0), pool.route(None))
    assert torch.equal(baseline.logits(features), baseline.head(features))
    assert baseline.scales.tolist() == [1, 1, 1]
    assert not baseline.logits(features)[:, 2:].any()


def test_alignment_makes_a_step_per_seen_class_on_shrunken_samples(bench, monkeypatch):
    """Every class is drawn as often as there are samples in a step; those of older tasks are divided."""
    baseline, _, context = begun(bench, tasks=3, learn=False)
    bench.learn(baseline, context)
    drawn, inputs = [], []
    sample = baseline.statistics.sample

    def counting(*arguments, **options):
        drawn.append(sample(*arguments, **options))
        return drawn[-1]

    monkeypatch.setattr(baseline.statistics, "sample", counting)
    baseline.aligned.register_forward_pre_hook(lambda module, args: inputs.append(args[0].detach()))
    phase_of(baseline, context, "alignment").run(lambda done, total: None)
    assert [len(rows) for rows in inputs] == [8] * (2 * 6)
    for epoch, (features, labels) in enumerate(drawn):
        assert torch.bincount(labels).tolist() == [8] * 6
        factors = (torch.cat(inputs[6 * epoch : 6 * epoch + 6]) / features).mean(1)
        age = 2 - labels // 2
        assert torch.equal(factors[age == 0], torch.ones(16))
        assert ((factors >= 1 / (1 + 0.03 * age) - 1e-5) & (factors <= 1 / (1 + 0.01 * age) + 1e-5)).all()
        assert factors[age == 2].std() > 1e-4
    torch.testing.assert_close(baseline.scales, torch.tensor([1.04, 1.02, 1.0]))


def test_statistics_and_classifiers_of_old_tasks_keep_their_bits(bench):
    """A later task trains the network and its own classifier; weight decay does not reach the others."""
    baseline, pool, _ = begun(bench)
    old = copy.deepcopy(baseline.head.tasks[0].state_dict())
    mean, spread = baseline.statistics.mean[:2].clone(), baseline.statistics.spread[:2].clone()
    network = copy.deepcopy(pool[0].state_dict())
    bench.learn(baseline, bench.begin(baseline, pool, 1, reuse=0))
    assert all(torch.equal(old[name], value) for name, value in baseline.head.tasks[0].state_dict().items())
    assert torch.equal(baseline.statistics.mean[:2], mean)
    assert torch.equal(baseline.statistics.spread[:2], spread)
    moved = {name for name, value in pool[0].state_dict().items() if not torch.equal(value, network[name])}
    assert {name.partition(".")[0] for name in moved} == {"down", "up", "values", "norm"}


def test_uneven_tasks_and_scales():
    """Scales meet the features of their own task's classifier, whatever the tasks' sizes."""
    heads = TaskHeads(4, 7)
    for classes in (1, 4):
        heads.grow(classes)
    features, scales = torch.randn(3, 4), torch.tensor([1.5, 1.0, 1.0])
    found = heads(features, scales)
    torch.testing.assert_close(found[:, :1], heads.tasks[0](1.5 * features))
    torch.testing.assert_close(found[:, 1:5], heads.tasks[1](features))
    assert not found[:, 5:].any()


def test_rank_0_trains_norms_and_biases_alone(bench):
    """Nothing low-rank is designed or protected, and features still move."""
    method = SlcaPlusPlus(SlcaConfig(rank=0), bench.build)
    own = method.new_set(None)
    own.design(bench.build.backbone)
    assert sum(factor.numel() for factor in own.factors) == 0
    assert method.sites(own) == ()
    images = torch.randn(2, 3, 16, 16)
    plain = bench.build.backbone.features(images, own.injections(), norm=False)
    with torch.no_grad():
        own.values["blocks-0-mlp-fc1-bias"] += 1.0
    assert not torch.equal(plain, bench.build.backbone.features(images, own.injections(), norm=False))


def test_a_rank_that_does_not_fit_is_refused(bench):
    """A rank beyond the width."""
    with pytest.raises(ConfigError, match=r"baseline\.rank: 33 exceeds .* 32"):
        SlcaPlusPlus(SlcaConfig(rank=33), bench.build)
