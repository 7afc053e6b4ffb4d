"""Weighted prefixes: weights, orthogonal starts, and what coda-prompt and os-prompt have in common."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cosine_similarity, normalize

from lw2g.blocks.weighted_prefixes import (
    Components,
    ComponentSet,
    Queries,
    new_rows,
    weighted_injection,
)
from lw2g.errors import ConfigError
from lw2g.vit.injection import inject
from lw2g.vit.taps import Tap, capture
from lw2g_prompts.coda_prompt import CodaPrompt
from lw2g_prompts.options import CodaPromptConfig, OsPromptConfig
from lw2g_prompts.os_prompt import OsPrompt

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


# -- weights and sums --------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [True, False])
def test_a_weight_is_the_cosine_of_masked_query_and_key(masked):
    """The product form equals torch's cosine of explicit [B, M, dim] tensors."""
    own = ComponentSet(num_blocks=2, components=9, length=4, dim=16, masked=masked)
    for parameter in own.parameters():
        torch.nn.init.normal_(parameter)
    query, key = torch.randn(6, 16), own.key[1]
    weights = Components.of([own]).weights(1, Queries.of(query)).detach()
    wide = query[:, None] * (own.mask[1] if masked else torch.ones_like(key))
    torch.testing.assert_close(weights, cosine_similarity(wide, key[None], dim=-1))
    assert weights.shape == (6, 9)
    assert float(weights.abs().max()) <= 1 + 1e-6
    assert float(weights.min()) < 0


@pytest.mark.parametrize("masked", [True, False])
def test_prefixes_are_the_sums_written_out(masked):
    """Keys and values of a block are the weighted sums of all components of all sets, sample by sample."""
    sets, queries = made(2, masked=masked), Queries.of(torch.randn(5, 48))
    components = Components.of(sets)
    for block in (0, 1):
        weights = components.weights(block, queries)
        assert weights.shape == (5, 10)
        found_halves = components.prefixes(block, queries)
        for found, half in zip(found_halves, ("prefix_key", "prefix_value"), strict=True):
            rows = torch.cat([getattr(item, half)[block] for item in sets])
            expected = [sum(weights[b, m] * rows[m] for m in range(10)) for b in range(5)]
            torch.testing.assert_close(found, torch.stack(expected))


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
    baseline, pool, context = bench.begun(CodaPrompt, CodaPromptConfig(lr=0.05))
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
    baseline, pool, _ = bench.begun(kind, config, 2)
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
    baseline, pool, context = bench.begun(kind, config, 2)
    batch = bench.batch(1)
    features = baseline.phases(context)[0].step(batch).features
    assert torch.equal(features, baseline.features(batch, pool.route(None)))
    assert torch.equal(features, baseline.features(batch, pool.force(0)))


@both
def test_one_backward_gives_the_gradients_of_all_sets(bench, kind, config):
    """Each live set is a candidate; freezing one takes its own gradient away and changes no other."""
    baseline, pool, _ = bench.begun(kind, config, 2)
    loss = bench.probe_loss(baseline, bench.batch(2), pool.route(None), 2)
    found = torch.autograd.grad(loss, [item.prefix_key for item in pool.sets])
    assert all((gradient.flatten(1).norm(dim=1) > 0).all() for gradient in found)
    pool[0].prefix_key.requires_grad_(False)
    loss = bench.probe_loss(baseline, bench.batch(2), pool.route(None), 2)
    assert torch.equal(torch.autograd.grad(loss, pool[1].prefix_key)[0], found[1])


@both
def test_sites_are_the_key_halves(bench, kind, config):
    """One site per block, against the block's queries, with a row for each prefix key of each component."""
    baseline, pool, _ = bench.begun(kind, config)
    sites = baseline.sites(pool[0])
    assert [(site.name, str(site.activation.tap)) for site in sites] == [
        (f"blocks.{block}.prefix_key", f"blocks.{block}.query") for block in range(5)
    ]
    assert {site.rows(site.parameter).shape for site in sites} == {(40, 48)}
    assert baseline.shared_sites() == ()


def test_one_stage_is_coda_with_another_query_and_no_mask(bench):
    """Given CODA's query, OS-Prompt's sets are CODA's with masks of ones."""
    one_stage, pool, _ = bench.begun(OsPrompt, OsPromptConfig(), 2)
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


def test_options_that_cannot_work_are_refused(bench):
    """More components than directions, and a length without halves, are named with a remedy or the value."""
    with pytest.raises(ConfigError, match=r"baseline.components: 49 keys of width 48 .*; use at most 48"):
        CodaPrompt(CodaPromptConfig(components=49), bench.build)
    with pytest.raises(ConfigError, match=r"baseline.blocks: block 6 is outside"):
        OsPrompt(OsPromptConfig(blocks=(6,)), bench.build)
    with pytest.raises(ValueError, match="'length' must be even: 5"):
        OsPromptConfig(length=5)
