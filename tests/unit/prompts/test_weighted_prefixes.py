"""Weighted prefixes: weights, orthogonal starts, and what coda-prompt and os-prompt have in common."""

from __future__ import annotations

import attrs
import pytest
import torch
from torch.nn.functional import cosine_similarity, normalize

from lw2g.blocks.weighted_prefixes import (
    ComponentSet,
    component_weights,
    new_rows,
    visible,
    weighted_injection,
    weighted_prefixes,
)
from lw2g.errors import ConfigError
from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import build
from lw2g.interfaces.options import published_differences
from lw2g.interfaces.pool import Pool
from lw2g.training.phases import only_trainable
from lw2g.vit.injection import inject
from lw2g.vit.taps import Tap, capture
from lw2g_prompts.coda_prompt import CodaPrompt
from lw2g_prompts.options import CodaPromptConfig, OsPromptConfig
from lw2g_prompts.os_prompt import OsPrompt
from lw2g_prompts.plugin import CODA_PROMPT, OS_PROMPT

KINDS = [
    (CodaPrompt, CodaPromptConfig()),
    (OsPrompt, OsPromptConfig()),
    (OsPrompt, OsPromptConfig(variant="os++")),
]
both = pytest.mark.parametrize(("kind", "config"), KINDS, ids=["coda", "os", "os++"])


@pytest.fixture(autouse=True)
def seeded():
    """Every test draws the same numbers whatever ran before it."""
    torch.manual_seed(2)


def made(count, *, masked=True, components=5, dim=48):
    """Return some sets for two blocks, each orthogonal to the earlier ones."""
    sets: list[ComponentSet] = []
    for _ in range(count):
        new = ComponentSet(num_blocks=2, components=components, length=4, dim=dim, masked=masked)
        sets.append(new.start(sets))
    return sets


def grown(bench, kind, config, tasks=2):
    """Return a baseline and a pool after some tasks that grew, and the last one's context."""
    baseline, pool = kind(config, bench.build), Pool()
    for index in range(tasks):
        context = bench.begin(baseline, pool, index)
    return baseline, pool, context


def state(*modules):
    """Return copies of all tensors."""
    return [value.clone() for module in modules for value in module.state_dict().values()]


def same(first, second):
    """Whether two lists of tensors are equal to the bit."""
    return all(torch.equal(*pair) for pair in zip(first, second, strict=True))


# -- weights and sums --------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [True, False])
def test_a_weight_is_the_cosine_of_masked_query_and_key(masked):
    """The product form equals torch's cosine of explicit [B, M, dim] tensors."""
    query, key, mask = torch.randn(6, 16), torch.randn(9, 16), torch.randn(9, 16)
    weights = component_weights(query, key, mask if masked else None)
    wide = query[:, None] * (mask if masked else torch.ones_like(mask))
    torch.testing.assert_close(weights, cosine_similarity(wide, key[None], dim=-1))
    assert weights.shape == (6, 9)
    assert float(weights.abs().max()) <= 1 + 1e-6
    assert float(weights.min()) < 0


def test_weights_see_directions_alone():
    """Scaling a query, a key or a mask by a positive number changes no weight."""
    query, key, mask = torch.randn(6, 16), torch.randn(9, 16), torch.randn(9, 16)
    scale = torch.rand(9, 1) * 10 + 0.1
    weights = component_weights(query, key, mask)
    torch.testing.assert_close(component_weights(300 * query, scale * key, mask), weights)
    torch.testing.assert_close(component_weights(0.01 * query, key, scale * mask), weights)


def test_a_key_that_moves_off_the_queries_scales_its_weight():
    """A move orthogonal to old queries scales their weights by ||k|| / ||k + move||, the same for all."""
    query = torch.randn(8, 3).double() @ torch.randn(3, 16).double()
    key, move = torch.randn(4, 16).double(), torch.randn(4, 16).double()
    directions = torch.linalg.svd(query, full_matrices=False).Vh[:3]
    move = move - move @ directions.mT @ directions
    ratio = component_weights(query, key + move) / component_weights(query, key)
    expected = key.norm(dim=1) / (key + move).norm(dim=1)
    torch.testing.assert_close(ratio, expected.expand_as(ratio), rtol=1e-9, atol=0)


def test_the_order_of_components_and_sets_does_not_matter():
    """A permutation of sets, and of the components of a set, leaves the prefix as it is."""
    sets, query = made(3), torch.randn(5, 48)
    before = weighted_prefixes(sets, 1, query)
    order = torch.randperm(5)
    with torch.no_grad():
        for parameter in sets[1].parameters():
            parameter.copy_(parameter[:, order])
    for old, new in zip(before, weighted_prefixes(sets[::-1], 1, query), strict=True):
        torch.testing.assert_close(new, old)


def test_prefixes_are_linear_in_the_components():
    """Halving all components halves keys and values, and each is the sum written out."""
    sets, query = made(2, masked=False), torch.randn(5, 48)
    key, value = weighted_prefixes(sets, 0, query)
    assert key.shape == value.shape == (5, 2, 48)
    weights = component_weights(query, visible(sets, "key", 0))
    assert weights.shape == (5, 10)
    by_hand = sum(weights[3, m] * visible(sets, "prefix_value", 0)[m] for m in range(10))
    torch.testing.assert_close(value[3], by_hand)
    with torch.no_grad():
        for item in sets:
            item.prefix_key.mul_(0.5)
    torch.testing.assert_close(weighted_prefixes(sets, 0, query)[0], 0.5 * key)


@pytest.mark.parametrize("heads", [1, 4])
def test_rows_that_move_outside_a_space_move_the_prefix_outside_it(heads):
    """Protection of rows carries over to every weighted sum of them, whatever the query."""
    moment = SecondMoment(48, heads)
    moment.update(torch.randn(9, 48))
    space = build(moment, 0.9)
    sets, query = made(2), torch.randn(5, 48)
    key, value = weighted_prefixes(sets, 0, query)
    with torch.no_grad():
        sets[0].prefix_key += space.off(torch.randn_like(sets[0].prefix_key))
    moved, kept = weighted_prefixes(sets, 0, query)
    change = (moved - key).detach()
    assert float(change.norm()) > 0.1
    assert float(space.on(change).norm()) < 1e-5 * float(change.norm())
    assert torch.equal(kept, value)


# -- starts ------------------------------------------------------------------------------------------------


def test_exact_rows_are_orthonormal_and_off_the_old_span():
    """Also where the old rows are no longer orthogonal, which the official routine does not manage."""
    old = new_rows(torch.empty(0, 64), 20) + 0.1 * torch.randn(20, 64)
    rows = new_rows(old, 10)
    torch.testing.assert_close(rows @ rows.mT, torch.eye(10), atol=1e-6, rtol=0)
    assert float((rows @ normalize(old).mT).abs().max()) < 1e-6
    official = new_rows(old, 10, "official")
    torch.testing.assert_close(official.norm(dim=1), torch.ones(10))
    assert float((official @ normalize(old).mT).abs().max()) > 0.02


def test_official_rows_are_orthonormal_beside_orthonormal_ones():
    """On untrained rows both routines keep their promise."""
    rows = new_rows(torch.empty(0, 64), 8, "official")
    rows = torch.cat([rows, new_rows(rows, 8, "official")])
    torch.testing.assert_close(rows @ rows.mT, torch.eye(16), atol=1e-5, rtol=0)


def test_a_full_space_gives_up_its_weakest_directions():
    """With no room left, new rows are orthonormal and avoid the strongest old directions."""
    old = torch.diag(torch.tensor([9.0, 8.0, 7.0, 3.0, 2.0, 1.0]))
    rows = new_rows(old, 2)
    torch.testing.assert_close(rows @ rows.mT, torch.eye(2), atol=1e-6, rtol=0)
    assert float(rows[:, :4].abs().max()) < 1e-6
    with pytest.raises(ValueError, match="expected at most 6 rows of that width but got 7"):
        new_rows(old, 7)


def test_every_new_set_is_orthogonal_to_all_live_ones(bench):
    """Components, keys and masks, at every block, also after the first set was trained."""
    baseline, pool, context = grown(bench, CodaPrompt, CodaPromptConfig(lr=0.05), tasks=1)
    bench.learn(baseline, context)
    bench.begin(baseline, pool, 1)
    assert float((pool[0].key.detach().norm(dim=-1) - 1).abs().max()) > 1e-3
    for position in range(5):
        for old, new in zip(pool[0].rows(position), pool[1].rows(position), strict=True):
            torch.testing.assert_close(new @ new.mT, torch.eye(10), atol=1e-5, rtol=0)
            assert float((new @ old.mT).detach().abs().max()) < 1e-5


# -- baselines ---------------------------------------------------------------------------------------------


@both
def test_tokens_are_as_many_as_without_prefixes(bench, kind, config):
    """Prefixes add keys and values of half the length, no token, and leave the backbone as it was."""
    baseline, pool, _ = grown(bench, kind, config)
    batch = bench.batch(0)
    plain = bench.backbone.features(batch.images)
    injection = baseline.injection(batch, pool.sets)
    taps = [Tap(block=block, kind="block_in") for block in range(6)]
    model = bench.backbone.model
    with inject(model, [injection]), capture(model, taps) as seen, torch.no_grad():
        model.forward_features(batch.images)
    assert {tuple(tokens.shape) for tokens in seen.values()} == {(4, 17, 48)}
    assert sorted(injection.prefixes) == [0, 1, 2, 3, 4]
    key, value = injection.prefixes[2](seen[taps[2]])
    assert key.shape == value.shape == (4, 4, 48)
    assert torch.equal(plain, bench.backbone.features(batch.images))


@both
def test_training_and_evaluation_see_the_same_features(bench, kind, config):
    """The step's features are those of any routing, forced or not."""
    baseline, pool, context = grown(bench, kind, config)
    batch = bench.batch(1)
    features = baseline.phases(context)[0].step(batch).features
    assert torch.equal(features, baseline.features(batch, pool.route(None)))
    assert torch.equal(features, baseline.features(batch, pool.force(0)))


@both
def test_a_step_moves_what_the_task_owns_and_nothing_else(bench, kind, config):
    """Other sets and head rows of other classes are the same bits afterwards."""
    baseline, pool, context = grown(bench, kind, config)
    (phase,) = baseline.phases(context)
    before = state(pool[0]), baseline.head.weight.detach().clone(), state(pool[1])
    with only_trainable([baseline, *pool.sets], phase.trained):
        optimizer = phase.build_optimizer()
        phase.step(bench.batch(1)).loss.backward()
        optimizer.step()
    assert same(before[0], state(pool[0]))
    others = [0, 1, 4, 5]
    assert torch.equal(before[1][others], baseline.head.weight[others])
    assert not torch.equal(before[1][2:4], baseline.head.weight[2:4])
    assert not any(torch.equal(*pair) for pair in zip(before[2], state(pool[1]), strict=True))


@both
def test_one_backward_gives_the_gradients_of_all_sets(bench, kind, config):
    """Each live set is a candidate; freezing one takes its own gradient away and changes no other."""
    baseline, pool, _ = grown(bench, kind, config)
    loss = bench.probe_loss(baseline, bench.batch(2), pool.route(None), 2)
    found = torch.autograd.grad(loss, [item.prefix_key for item in pool.sets])
    assert all((gradient.flatten(1).norm(dim=1) > 0).all() for gradient in found)
    pool[0].prefix_key.requires_grad_(False)
    loss = bench.probe_loss(baseline, bench.batch(2), pool.route(None), 2)
    assert torch.equal(torch.autograd.grad(loss, pool[1].prefix_key)[0], found[1])


@both
def test_reuse_keeps_the_number_of_components(bench, kind, config):
    """Growing adds one set's worth of components to the sum, reuse none."""
    baseline, pool, _ = grown(bench, kind, config)
    assert len(visible(pool.sets, "key", 0)) == 20
    bench.begin(baseline, pool, 2, reuse=0)
    assert len(visible(pool.sets, "key", 0)) == 20
    assert pool.task_to_set == [0, 1, 0]


@pytest.mark.parametrize(
    ("keys", "values", "left_out"),
    [
        ("freeze", "free", {"key", "mask"}),
        ("free", "free", set()),
        ("freeze", "freeze", {"key", "mask", "prefix_value"}),
    ],
)
def test_options_for_reuse_say_what_is_trained(bench, keys, values, left_out):
    """A new set is trained whole; of a reused one the named parts are left out of the optimizer."""
    config = CodaPromptConfig(keys_on_reuse=keys, values_on_reuse=values)
    baseline, pool, context = grown(bench, CodaPrompt, config)
    assert len(baseline.phases(context)[0].trained) == 6
    (phase,) = baseline.phases(bench.begin(baseline, pool, 2, reuse=0))
    ids = {id(parameter) for parameter in phase.trained}
    assert {name for name, item in pool[0].named_parameters() if id(item) not in ids} == left_out
    assert not ids & {id(parameter) for parameter in pool[1].parameters()}


@both
def test_sites_are_the_key_halves(bench, kind, config):
    """One site per block, against the block's queries, with a row for each prefix key of each component."""
    baseline, pool, _ = grown(bench, kind, config, tasks=1)
    sites = baseline.sites(pool[0])
    assert [(site.name, str(site.activation.tap)) for site in sites] == [
        (f"blocks.{block}.prefix_key", f"blocks.{block}.query") for block in range(5)
    ]
    assert {site.rows(site.parameter).shape for site in sites} == {(40, 48)}
    assert baseline.shared_sites() == ()


@both
def test_the_phase_is_the_official_recipe(bench, kind, config):
    """Adam at 1e-3 without clipping, decay or a partial last batch; the cosine one epoch late, or exact."""
    baseline, _, context = grown(bench, kind, config, tasks=1)
    (phase,) = baseline.phases(context)
    assert (phase.host, phase.drop_last, phase.clip_norm, phase.optimizer) == (True, True, None, "adam")
    assert [(group.lr, group.weight_decay) for group in phase.groups] == [(0.001, 0.0)]
    assert (phase.epochs, phase.batch_size, phase.betas) == (20, 128, (0.9, 0.999))
    factors = [phase.schedule(1.0, epoch, 20) for epoch in (0, 1, 2, 10, 18, 19)]
    assert factors == pytest.approx([1.0, 1.0, 0.9967, 0.7407, 0.1784, 0.0974], abs=5e-5)
    baseline, _, context = grown(bench, kind, attrs.evolve(config, stepping="exact"), tasks=1)
    exact = baseline.phases(context)[0].schedule
    assert [exact(1.0, epoch, 20) for epoch in (10, 19)] == pytest.approx([0.6833, 0.0157], abs=5e-5)


@both
def test_training_lowers_the_loss(bench, kind, config):
    """Some steps at a high learning rate fit four images."""
    config = attrs.evolve(config, lr=0.02)
    baseline, _, context = grown(bench, kind, config, tasks=1)
    step = baseline.phases(context)[0].step
    before = step(bench.batch(0)).loss.item()
    bench.learn(baseline, context, epochs=15)
    assert step(bench.batch(0)).loss.item() < 0.5 * before


def test_one_stage_is_coda_with_another_query_and_no_mask(bench):
    """Given CODA's query, OS-Prompt's sets are CODA's with masks of ones."""
    one_stage, pool, _ = grown(bench, OsPrompt, OsPromptConfig())
    coda, batch = CodaPrompt(CodaPromptConfig(), bench.build), bench.batch(0)
    masked = []
    for item in pool.sets:
        twin = coda.new_set(None)
        twin.load_state_dict({**item.state_dict(), "mask": torch.ones_like(item.key)})
        masked.append(twin)
    injection = weighted_injection(one_stage.blocks, pool.sets, batch.query)
    switched = bench.backbone.features(batch.images, [injection])
    by_coda = bench.backbone.features(batch.images, [coda.injection(batch, masked)])
    torch.testing.assert_close(switched, by_coda, atol=1e-6, rtol=1e-6)
    assert not torch.allclose(switched, one_stage.features(batch, pool.route(None)), atol=1e-3)


@both
def test_a_default_run_differs_in_the_repaired_start_alone(kind, config):
    """It is the one deviation of the defaults, and the released start is one."""
    for init, published in (("exact", "official"), ("official", None)):
        (found,) = published_differences(attrs.evolve(config, init=init), "baseline")
        assert (found["option"], found["value"], found["published"]) == ("baseline.init", init, published)


def test_options_that_cannot_work_are_refused(bench):
    """More components than directions, and a length without halves, are named with a remedy or the value."""
    with pytest.raises(ConfigError, match=r"baseline.components: 49 keys of width 48 .*; use at most 48"):
        CodaPrompt(CodaPromptConfig(components=49), bench.build)
    with pytest.raises(ConfigError, match=r"baseline.blocks: block 6 is outside"):
        OsPrompt(OsPromptConfig(blocks=(6,)), bench.build)
    with pytest.raises(ValueError, match="'length' must be even: 5"):
        OsPromptConfig(length=5)


@pytest.mark.parametrize("component", [CODA_PROMPT, OS_PROMPT], ids=lambda component: component.name)
def test_components_make_no_hard_choice_and_train_the_released_epochs(component):
    """Without retrieval PRA is null; epochs are those of the release."""
    assert component.retrieval is None
    assert component.build.load().feature_scope == "pool"
    epochs = {family: preset["baseline.epochs"] for family, preset in component.presets.items()}
    assert epochs == {"cifar100": 20, "imagenet-r": 50, "domainnet": 5}
