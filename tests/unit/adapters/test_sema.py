"""SEMA: the mixture of a block, what is novel, and what a task may add and change."""

from __future__ import annotations

import attrs
import pytest
import torch

from lw2g.errors import ConfigError
from lw2g.interfaces.phase import TrainingPhase
from lw2g.interfaces.pool import Pool
from lw2g_adapters.options import SemaConfig
from lw2g_adapters.sema import Descriptor, Module, Sema, is_novel
from lw2g_testing import ContractCase, contract_cases

CONFIG = SemaConfig(bottleneck=4, latent=6, lr=0.2, descriptor_lr=0.05, batch_size=4)
ALWAYS, NEVER = (attrs.evolve(CONFIG, threshold=value) for value in (-1e9, 1e9))


def filled(baseline):
    """Give every parameter a random value, so that no adapter is without effect."""
    with torch.no_grad():
        for parameter in baseline.parameters():
            parameter.normal_(std=0.2)
    return baseline


def count(*modules):
    return sum(one.numel() for module in modules for one in module.parameters())


def test_counts_are_those_of_the_release():
    """Of one expansion of a ViT-B/16's block: 26,129 numbers that serve inference, and the descriptor."""
    made = Module(768, 16, 128)
    assert (count(made.adapter), count(made.router), count(made.descriptor)) == (25_360, 769, 197_504)
    assert count(made) == 223_633


def test_the_forward_is_that_of_the_formula(bench, tiny):
    """Shallow blocks add their adapter at full scale, growing ones a softmax over all tokens' mean."""
    baseline, pool = Sema(CONFIG, bench.build), Pool()
    pool.grow(baseline.new_set(None))
    baseline.grown.offer(5)
    baseline.grown.adopt(5)
    filled(baseline)
    batch, model = bench.batch(0), tiny.model
    h = model._pos_embed(model.patch_embed(batch.images))
    for index, block in enumerate(model.blocks):
        h1 = h + block.attn(block.norm1(h))
        modules = baseline.grown.of_block(index)
        assert len(modules) == [0, 0, 0, 1, 1, 2][index]
        adapters = [one.adapter for one in modules] or [baseline.shallow]
        place = 0 if modules else index
        outs = [
            torch.relu(h1 @ one.down[place].T + one.down_bias[place]) @ one.up[place].T + one.up_bias[place]
            for one in adapters
        ]
        weights = torch.ones(len(h1), 1)
        if modules:
            weights = torch.cat([one.router(h1.mean(1)) for one in modules], 1).softmax(1)
        mixed = sum(weights[:, k, None, None] * out for k, out in enumerate(outs))
        h = h1 + block.mlp(block.norm2(h1)) + mixed
    found = baseline.features(batch, pool.force(0))
    torch.testing.assert_close(found, model.norm(h)[:, 0], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found, batch.query, atol=0.1)


@pytest.mark.parametrize(("router", "learns"), [("modules", False), ("zero", True)])
def test_a_first_row_of_the_router_learns_against_a_zero(bench, router, learns):
    """Alone its weight is 1, whatever it is; beside a fixed zero it is a sigmoid, and has a gradient."""
    baseline, pool = Sema(attrs.evolve(CONFIG, router=router), bench.build), Pool()
    pool.grow(baseline.new_set(None))
    filled(baseline)
    (first,) = baseline.grown.of_block(5)
    before = baseline.features(bench.batch(0), pool.force(0))
    loss = before.square().sum()
    (gradient,) = torch.autograd.grad(loss, first.router.weight)
    assert bool(gradient.abs().max() > 1e-6) == learns
    with torch.no_grad():
        first.router.weight.zero_()
        first.router.bias.fill_(50.0)
    # certain of its module, the mixture is that of the module alone
    alone = Sema(attrs.evolve(CONFIG, router="modules"), bench.build)
    alone.load_state_dict(baseline.state_dict())
    for block in (3, 4):
        (module,) = baseline.grown.of_block(block)
        with torch.no_grad():
            module.router.weight.zero_()
            module.router.bias.fill_(50.0)
    torch.testing.assert_close(
        baseline.features(bench.batch(0), pool.force(0)), alone.features(bench.batch(0), pool.force(0))
    )


def test_a_descriptor_of_the_principal_components_rebuilds_what_they_span():
    """Its own errors have mean 0 and deviation 1; images outside what it spans lie far."""
    torch.manual_seed(0)
    made, rows = Descriptor(12, 3), torch.randn(40, 3) @ torch.randn(3, 12) + 5.0
    _, _, basis = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    with torch.no_grad():
        made.encode.weight.copy_(basis[:3])
        made.decode.weight.copy_(basis[:3].T)
        made.encode.bias.copy_(-basis[:3] @ rows.mean(0))
        made.decode.bias.copy_(rows.mean(0))
        assert float(made(rows).max()) < 1e-9
        noisy = rows + 0.1 * torch.randn_like(rows)
        made.settle(made(noisy))
        own = made.distance(made(noisy))
        assert float(own.mean()) == pytest.approx(0, abs=1e-5)
        assert float(own.std()) == pytest.approx(1, abs=1e-5)
        assert float(made.distance(made(torch.randn(40, 12))).min()) > 10
        made.settle(made(rows[:1]))
        assert made.distance(made(rows[:1])).isfinite().all()


def test_novel_is_what_lies_beyond_every_descriptor():
    """By hand: one batch that no descriptor knows is enough."""
    near, far = torch.tensor([[1.9, 9.0]]), torch.tensor([[2.1, 9.0]])
    assert not is_novel(near, 2.0)
    assert is_novel(far, 2.0)
    assert is_novel(torch.cat([near, far]), 2.0)


@pytest.mark.parametrize(("config", "modules"), [(NEVER, 1), (ALWAYS, 2)])
def test_a_task_moves_nothing_old_but_the_head(bench, config, modules):
    """Where nothing is novel the head alone is trained; else each block adds a module, and old ones stay."""
    baseline, pool = Sema(config, bench.build), Pool()
    bench.learn(baseline, bench.begin(baseline, pool, 0))
    before = {name: value.clone() for name, value in baseline.state_dict().items()}
    context = bench.begin(baseline, pool, 1, reuse=0)
    names = [phase.name for phase in baseline.phases(context)]
    bench.learn(baseline, context)
    after = baseline.state_dict()
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert moved == {"head.weight", "head.bias"}
    assert baseline.findings() == {"modules": {"3": modules, "4": modules, "5": modules}}
    new = {name.split(".")[1] for name in after.keys() - before.keys()}
    assert new == ({"3-1", "4-1", "5-1"} if modules == 2 else set())
    assert [name for name in names if name.startswith("scan")] == ["scan-3", "scan-4", "scan-5"]
    for name in new:
        made = baseline.grown[name]
        assert made.adapter.up.any()
        assert float(made.descriptor.mean) > 0


def test_phases_wait_for_what_the_scan_finds(bench):
    """Before it nothing of a block is trained; the head alone is, if no block has grown."""
    baseline, pool = Sema(ALWAYS, bench.build), Pool()
    bench.learn(baseline, bench.begin(baseline, pool, 0))
    context = bench.begin(baseline, pool, 1, reuse=0)
    phases = {phase.name: phase for phase in baseline.phases(context)}
    training = {name: one.wanted() for name, one in phases.items() if isinstance(one, TrainingPhase)}
    assert [name for name, wanted in training.items() if wanted] == ["head-alone"]
    phases["scan-4"].run(lambda done, total: None)
    wanted = [name for name in training if phases[name].wanted()]
    assert wanted == ["adapter-4", "descriptor-4"]


@pytest.mark.parametrize("unit", ["task", "batch"])
def test_a_scan_changes_nothing_and_asks_whole_tasks(bench, unit):
    """No tensor moves; with whole tasks neither batches nor the order of images decide."""
    baseline, pool = Sema(attrs.evolve(CONFIG, unit=unit), bench.build), Pool()
    bench.learn(baseline, bench.begin(baseline, pool, 0))
    context = bench.begin(baseline, pool, 1, reuse=0)
    before = {name: value.clone() for name, value in baseline.state_dict().items()}
    whole = bench.batch(1)
    answers = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        parts = [whole.part(slice(one, one + 1)) for one in order]
        scattered = attrs.evolve(context, statistics=lambda size, parts=parts: parts)
        found = [baseline.is_novel(block, one) for one in (context, scattered) for block in (3, 4, 5)]
        answers.append(found)
    assert answers[0] == answers[1]
    assert all(torch.equal(before[name], value) for name, value in baseline.state_dict().items())


def test_other_images_are_novel_and_its_own_are_not(bench):
    """The threshold is in deviations of a descriptor's own errors, which its own images meet on average."""
    config = attrs.evolve(CONFIG, threshold=0.5, descriptor_lr=0.2)
    baseline, _, context = bench.begun(Sema, config)
    bench.learn(baseline, context, epochs=20)
    assert not any(baseline.is_novel(block, context) for block in baseline.growing)
    far = bench.batch(0)
    far._make_images, far._images = lambda: 5 * bench.batch(2).images - 9, None
    assert baseline.is_novel(5, attrs.evolve(context, statistics=lambda size: [far]))


def test_more_growing_blocks_than_there_are_is_refused(bench):
    """In one line."""
    with pytest.raises(ConfigError, match="7 blocks cannot grow in a backbone of 6"):
        Sema(attrs.evolve(CONFIG, growing=7), bench.build)


GROWN = [
    case
    for case in contract_cases("sema", options={"threshold": -1e9, "latent": 6, "growing": 1})
    if case.check.name in ("resumes_to_the_same_bits", "checkpoint_predicts_the_same")
]


@pytest.mark.parametrize("case", GROWN, ids=str)
def test_what_has_grown_is_kept(case: ContractCase) -> None:
    """State, resume and checkpoints hold modules that a run has added."""
    case.run()
