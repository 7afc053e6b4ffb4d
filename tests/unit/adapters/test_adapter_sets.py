"""Sets of adapters: what they start as, what a reused one may change, and what protecting it keeps."""

from __future__ import annotations

import pytest
import torch

from lw2g.blocks.adapters import AdapterSet
from lw2g_adapters.ease import Ease
from lw2g_adapters.options import EaseConfig, TunaConfig
from lw2g_adapters.tuna import Tuna
from lw2g_testing import ContractCase, contract_cases

KINDS = {"ease": (Ease, EaseConfig), "tuna": (Tuna, TunaConfig)}
every = pytest.mark.parametrize("name", KINDS)


def test_a_set_starts_as_released():
    """Of an adapter only the down weight is not zero."""
    made = AdapterSet(12, 768, 64)
    assert float(made.down.detach().abs().max()) == pytest.approx(768**-0.5, rel=1e-3)
    assert not any(one.any() for one in (made.down_bias, made.up, made.up_bias))


@every
def test_a_fresh_set_changes_nothing_and_learns_up_first(name, bench):
    """With up = 0 features are the plain ViT's bit for bit; the first gradient misses the down-projection."""
    kind, config = KINDS[name]
    baseline, pool, context = bench.begun(kind, config())
    batch = bench.batch(0)
    assert torch.equal(baseline.features(batch, pool.force(0)), batch.query)
    baseline.requires_grad_(True)
    baseline.phases(context)[0].step(batch).loss.backward()
    assert not pool[0].down.grad.any()
    assert pool[0].up.grad.any()


def test_a_copy_that_answers_is_no_parameter():
    """What answers beside the sets holds buffers, zero ones for adapters that change nothing."""
    made = AdapterSet(2, 8, 3)
    kept, nothing = made.as_buffers(), made.as_buffers(zero=True)
    assert torch.equal(kept.down, made.down)
    assert not any(value.any() for value in nothing.buffers())
    assert [*kept.parameters(), *nothing.parameters()] == []
    assert nothing.state_dict() == {}


PROTECTED = [
    case
    for case in contract_cases("tuna", options={"up_on_reuse": "project", "margin": 0.3})
    if case.check.name in ("protection_holds", "taps_read_what_is_multiplied", "sites_are_what_they_say")
]


@pytest.mark.parametrize("case", PROTECTED, ids=str)
def test_projected_up_keeps_the_contract(case: ContractCase) -> None:
    """Sites behind the non-linearity read what is multiplied there, and protection holds at them."""
    case.run()
