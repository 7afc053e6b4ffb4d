"""Taps name a place; capture reads it and leaves no trace."""

from __future__ import annotations

import pytest
import torch

from lw2g.errors import ConfigError, ContractError, error_text
from lw2g.vit.injection import inject
from lw2g.vit.low_rank import LowRank, LowRankInjection
from lw2g.vit.prefix import PrefixInjection
from lw2g.vit.taps import Tap, capture
from lw2g.vit.tokens import TokenInjection


def test_taps_are_values(backbone):
    """Taps compare by value, print as a path, and know their width."""
    assert str(Tap(2, "query")) == "blocks.2.query"
    assert str(Tap(-1, "feature")) == "feature"
    assert {Tap(2, "query"): 1}[Tap(2, "query")] == 1
    assert Tap(2, "query") != Tap(2, "attn_in")


@pytest.mark.parametrize(("block", "kind"), [(0, "feature"), (-1, "query"), (0, "key")])
def test_impossible_taps(block, kind):
    """A feature belongs to no block, everything else to one; other kinds do not exist."""
    with pytest.raises(ValueError, match=r"expected|must be in") as refused:
        Tap(block, kind)
    if kind == "key":  # attrs adds the field with its validator, which is left out of what a user reads
        told = error_text(refused.value)
        assert told.startswith("ValueError: kind 'key' is none of its values: query, ")
        assert "Attribute" not in told


def test_taps_of_the_inner_layers_read_their_inputs(backbone, images):
    """``attn_out`` and ``mlp_hidden`` are what projection and second layer multiply; together, the block."""
    kinds = ("block_in", "attn_out", "block_mid", "mlp_hidden")
    start, out, middle, hidden = backbone.activations(images, [Tap(1, kind) for kind in kinds]).values()
    block = backbone.model.blocks[1]
    torch.testing.assert_close(middle, start + block.attn.proj(out))
    torch.testing.assert_close(middle + block.mlp.fc2(hidden), block(start))
    assert hidden.shape[-1] == block.mlp.fc2.in_features > start.shape[-1]


def test_capture_leaves_no_hook(backbone, images, snapshot):
    """Hooks are gone after the context, also when the forward or the installation failed."""
    model = backbone.model
    before = snapshot(model)
    taps = [Tap(0, "query"), Tap(1, "attn_in"), Tap(2, "block_in"), Tap(1, "query_used")]
    with capture(model, taps) as seen:
        model.forward_features(images)
    assert seen.keys() == set(taps)
    assert snapshot(model) == before
    with pytest.raises(RuntimeError, match="stop"), capture(model, taps):
        raise RuntimeError("stop")
    assert snapshot(model) == before
    with pytest.raises(ConfigError, match="block 9"), capture(model, [*taps, Tap(9, "query")]):
        pass
    assert snapshot(model) == before


def test_a_feature_is_not_captured(backbone):
    """It is pooled by the backbone, which a hook on the model would not see."""
    tap = Tap(-1, "feature")
    with (
        pytest.raises(ContractError, match=r"read its tap with Backbone\.act"),
        capture(backbone.model, [tap]),
    ):
        pass


def test_capture_holds_the_latest_forward_with_its_graph(backbone, images, randn):
    """Each forward overwrites the last one, and gradients flow through what was captured."""
    key, value = (randn(2, 48).requires_grad_() for _ in range(2))
    tap = Tap(1, "query")
    with inject(backbone.model, [PrefixInjection({0: (key, value)})]), capture(backbone.model, [tap]) as seen:
        backbone.model.forward_features(images)
        first = seen[tap]
        backbone.model.forward_features(images[:1])
    torch.testing.assert_close(seen[tap], first[:1])
    first.sum().backward()
    assert key.grad.norm() > 0


def test_query_tap_includes_low_rank_updates(backbone, images, randn):
    """The query tap reads what attention uses: updates of the q rows show, updates of the k rows do not."""
    tap, update = Tap(1, "query"), LowRank(down=randn(2, 48), up=randn(48, 2))
    plain = backbone.activations(images, [tap, Tap(1, "attn_in")])
    on_q = backbone.activations(images, [tap], [LowRankInjection({1: {"q": update}})])
    on_k = backbone.activations(images, [tap], [LowRankInjection({1: {"k": update}})])
    torch.testing.assert_close(on_q[tap], plain[tap] + plain[Tap(1, "attn_in")] @ (update.up @ update.down).T)
    assert torch.equal(on_k[tap], plain[tap])


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("position", ["after-cls", "before-cls"])
def test_added_rows_are_left_out(backbone, images, randn, position, keep):
    """Taps read the model's own tokens in their order whatever rows were added."""
    injection = TokenInjection({0: randn(3, 48), 2: randn(2, 48)}, position=position, keep=keep)
    taps = [Tap(i, kind) for i in range(4) for kind in ("query", "attn_in", "block_in")] + [
        Tap(-1, "feature")
    ]
    plain = backbone.activations(images, taps)
    read = backbone.activations(images, taps, [injection])
    assert all(read[tap].shape == plain[tap].shape for tap in taps)
    assert all(
        torch.equal(read[Tap(0, kind)], plain[Tap(0, kind)]) for kind in ("query", "attn_in", "block_in")
    )
    assert not torch.allclose(read[Tap(1, "block_in")], plain[Tap(1, "block_in")])
    torch.testing.assert_close(read[Tap(-1, "feature")], backbone.features(images, [injection]))


def test_prefix_does_not_hide_the_taps(backbone, images, randn):
    """At the first prefixed block all taps equal the plain ones; the next block's input differs."""
    prefix = PrefixInjection({1: (randn(3, 48), randn(3, 48))})
    taps = [Tap(1, "query"), Tap(1, "attn_in"), Tap(1, "block_in"), Tap(2, "block_in")]
    plain, read = backbone.activations(images, taps), backbone.activations(images, taps, [prefix])
    assert [torch.equal(plain[tap], read[tap]) for tap in taps] == [True, True, True, False]


def test_capture_around_a_prefix(backbone, images, randn):
    """Taps placed before a prefix is put in see the same as taps placed inside its context."""
    prefix = PrefixInjection({1: (randn(3, 48), randn(3, 48))})
    taps = [Tap(1, "query"), Tap(1, "attn_in"), Tap(2, "attn_in"), Tap(2, "query_used")]
    with capture(backbone.model, taps) as seen:
        backbone.features(images, [prefix])
    expected = backbone.activations(images, taps, [prefix])
    assert seen.keys() == expected.keys()
    # not bit for bit: of the last MLP features compute one row
    torch.testing.assert_close(seen, expected)
