"""Prefix sets: per-sample injection, sites, and options shared by prefix methods."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lw2g.blocks.prefixes import (
    PrefixSet,
    chosen_prefixes,
    inject_prefixes,
    reshaped,
)
from lw2g.errors import ConfigError
from lw2g.interfaces.pool import Routing
from tasks import Sizes

BLOCKS = (1, 2)


@pytest.fixture
def sets() -> tuple[PrefixSet, ...]:
    """Three random sets."""
    torch.manual_seed(1)
    return tuple(PrefixSet(len(BLOCKS), 4, 48) for _ in range(3))


def test_keys_and_values_reach_their_block(sets):
    """Block i of a mixed batch gets exactly key and value i of each sample's set: nothing is transposed."""
    chosen = torch.tensor([2, 0, 1, 1])
    injection = inject_prefixes(BLOCKS, *chosen_prefixes(Routing(sets=sets, chosen=chosen)))
    for position, block in enumerate(BLOCKS):
        key, value = injection.prefixes[block]
        for sample, owner in enumerate(chosen.tolist()):
            assert torch.equal(key[sample], sets[owner].key[position])
            assert torch.equal(value[sample], sets[owner].value[position])


def test_a_forced_set_is_not_copied_per_sample(sets):
    """One set for the whole batch gives prefixes without a batch axis."""
    injection = inject_prefixes(BLOCKS, *chosen_prefixes(Routing(sets=sets, chosen=1)))
    assert {block: pair[0].shape for block, pair in injection.prefixes.items()} == {1: (4, 48), 2: (4, 48)}


def test_sites_are_views_of_the_key_half():
    """Writing through a site changes that block's keys and nothing else."""
    prefixes = PrefixSet(2, 4, 6)
    before = prefixes.key.detach().clone()
    second = prefixes.sites((3, 5), "shared")[1]
    assert (second.name, second.owner, str(second.activation.tap)) == (
        "blocks.5.prefix_key",
        "shared",
        "blocks.5.query",
    )
    second.view(prefixes.key.data).copy_(torch.zeros(4, 6))
    assert torch.equal(prefixes.key[0], before[0])
    assert torch.equal(prefixes.key[1], torch.zeros(4, 6))


def test_initial_values_are_uniform_and_copies_are_exact():
    """Fresh values fill (-1, 1); a copy equals its source and shares no memory with it."""
    torch.manual_seed(0)
    source = PrefixSet(5, 20, 64)
    for half in (source.key, source.value):
        assert -1 <= float(half.detach().min()) < -0.99
        assert 0.99 < float(half.detach().max()) <= 1
        assert float(half.detach().var()) == pytest.approx(1 / 3, rel=0.05)
    copy = PrefixSet(5, 20, 64).copy_from(source)
    assert torch.equal(copy.key, source.key)
    nn.init.zeros_(copy.key)
    assert float(source.key.detach().abs().sum()) > 0


@given(depth=st.integers(1, 24), blocks=st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_blocks_are_accepted_exactly_where_they_fit(depth, blocks):
    """Distinct blocks below the depth pass unchanged, everything else is refused."""
    backbone = Sizes(8, depth)
    if len(set(blocks)) == len(blocks) and max(blocks) < depth:
        assert backbone.check_blocks(blocks, "baseline.blocks") == tuple(blocks)
    else:
        with pytest.raises(ConfigError, match=r"^baseline\.blocks: block"):
            backbone.check_blocks(blocks, "baseline.blocks")


def test_the_released_reshape_mixes_samples_and_halves() -> None:
    """Sample b gets entries 2b and 2b + 1 of all keys followed by all values; one sample keeps its own."""
    key = torch.arange(4.0).reshape(4, 1, 1, 1)
    value = key + 10
    found_key, found_value = reshaped(key, value, 4)
    assert found_key.flatten().tolist() == [0.0, 2.0, 10.0, 12.0]
    assert found_value.flatten().tolist() == [1.0, 3.0, 11.0, 13.0]
    alone = reshaped(key[0], value[0], 1)
    assert (float(alone[0].flatten()[0]), float(alone[1].flatten()[0])) == (0.0, 10.0)
