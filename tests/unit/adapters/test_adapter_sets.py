"""Sets of adapters: what they start as, what a reused one may change, and what protecting it keeps."""

from __future__ import annotations

import pytest
import torch

from lw2g.blocks.adapters import AdapterSet, as_buffers
from lw2g.interfaces.pool import Pool
from lw2g.testing import ContractCase, contract_cases
from lw2g_adapters.ease import Ease
from lw2g_adapters.options import EaseConfig, TunaConfig
from lw2g_adapters.tuna import Tuna

KINDS = {"ease": (Ease, EaseConfig), "tuna": (Tuna, TunaConfig)}
every = pytest.mark.parametrize("name", KINDS)


@pytest.mark.parametrize(("bottleneck", "count"), [(64, 1_189_632), (16, 304_320)])
def test_counts_are_those_of_the_release(bottleneck, count):
    """Twelve blocks of a ViT-B/16 have the official numbers of parameters."""
    made = AdapterSet(12, 768, bottleneck)
    assert sum(one.numel() for one in made.parameters()) == count
    assert float(made.down.detach().abs().max()) == pytest.approx(768**-0.5, rel=1e-3)
    assert not any(one.any() for one in (made.down_bias, made.up, made.up_bias))


@every
def test_a_fresh_set_changes_nothing_and_learns_up_first(name, bench):
    """With up = 0 features are the plain ViT's bit for bit; the first gradient misses the down-projection."""
    kind, config = KINDS[name]
    baseline, pool = kind(config(), bench.build), Pool()
    context = bench.begin(baseline, pool, 0)
    batch = bench.batch(0)
    assert torch.equal(baseline.features(batch, pool.force(0)), batch.query)
    baseline.requires_grad_(True)
    baseline.phases(context)[0].step(batch).loss.backward()
    assert not pool[0].down.grad.any()
    assert pool[0].up.grad.any()


@pytest.mark.parametrize(
    ("up", "names"),
    [
        ("freeze", {"down"}),
        ("project", {"down", "up"}),
        ("free", {"down", "down_bias", "up", "up_bias"}),
    ],
)
def test_a_reused_set_trains_what_can_be_protected(bench, up, names):
    """Biases multiply 1, which no space leaves out: they are frozen, unless old outputs may move."""
    baseline, pool = Ease(EaseConfig(up_on_reuse=up), bench.build), Pool()
    for reuse in (None, 0):
        context = bench.begin(baseline, pool, int(reuse is not None), reuse=reuse)
        found = baseline.trained(context)
        by_id = {id(one): name for name, one in pool[0].named_parameters()}
        expected = names if reuse is not None else {"down", "down_bias", "up", "up_bias"}
        assert {by_id[id(one)] for one in found} == expected


@pytest.mark.parametrize("up", ["freeze", "project"])
def test_what_is_protected_keeps_old_outputs(bench, tiny, up):
    """Down moved outside the old inputs, up outside the old inner activations: branches stay as they were."""
    baseline, pool = Ease(EaseConfig(up_on_reuse=up, bottleneck=24), bench.build), Pool()
    bench.begin(baseline, pool, 0)
    own, batch = pool[0], bench.batch(0)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.normal_(std=0.3)
        sites = list(baseline.sites(own))
        assert len(sites) == (12 if up == "project" else 6)
        before = baseline.features(batch, pool.force(0))
        taps = list(dict.fromkeys(site.activation.tap for site in sites))
        read = tiny.read(taps, lambda: baseline.features(batch, pool.force(0)))
        for site in sites:
            rows = read[site.activation.tap].flatten(0, 1)
            _, values, basis = torch.linalg.svd(rows, full_matrices=False)
            basis = basis[values > 1e-5 * values.max()]
            step = torch.randn_like(site.view(site.parameter))
            moved = step - step @ basis.T @ basis
            site.view(site.parameter).add_(moved)
            assert bool(moved.any())
        after = baseline.features(batch, pool.force(0))
        other = baseline.features(bench.batch(1), pool.force(0))
    torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-4)
    own.down.data.add_(0.3)
    assert not torch.allclose(baseline.features(bench.batch(1), pool.force(0)), other, atol=1e-2)


def test_a_copy_that_answers_is_no_parameter():
    """What answers beside the sets holds buffers, zero ones for adapters that change nothing."""
    made = AdapterSet(2, 8, 3)
    kept, nothing = as_buffers(made), as_buffers(made, zero=True)
    assert torch.equal(kept.down, made.down)
    assert not any(value.any() for value in nothing.buffers())
    assert [*kept.parameters(), *nothing.parameters()] == []
    assert nothing.state_dict() == {}


PROTECTED = [
    case
    for case in contract_cases("tuna", options={"up_on_reuse": "project", "margin": 0.3})
    if case.check.name in ("protection_holds", "taps_read_what_is_multiplied", "sites_fit_their_activations")
]


@pytest.mark.parametrize("case", PROTECTED, ids=str)
def test_projected_up_keeps_the_contract(case: ContractCase) -> None:
    """Sites behind the non-linearity read what is multiplied there, and protection holds at them."""
    case.run()
