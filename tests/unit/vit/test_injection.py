"""Whatever is injected, the model is the plain timm model again afterwards."""

from __future__ import annotations

import pytest
import torch

from lw2g.errors import ConfigError
from lw2g.vit.adapter import AdapterInjection
from lw2g.vit.injection import attention_of, inject, num_tokens, real_tokens
from lw2g.vit.lora import LowRank, LowRankInjection
from lw2g.vit.prefix import PrefixInjection
from lw2g.vit.tokens import TokenInjection


def _fails(x):
    raise RuntimeError("stop")


def _injections(block):
    factor = torch.ones(1, 48)
    return {
        "prefix": PrefixInjection({0: (factor, factor), block: (factor, factor)}),
        "computed prefix": PrefixInjection({0: lambda x: (x[:, :1], x[:, :1]), block: (factor, factor)}),
        "tokens": TokenInjection({0: factor, block: factor}, keep=True),
        "tokens for a block": TokenInjection({0: factor, block: factor}, keep=False),
        "low rank": LowRankInjection({i: {"k": LowRank(down=factor, up=factor.T)} for i in (0, block)}),
        "adapter": AdapterInjection({0: torch.relu, block: torch.relu}),
    }


KINDS = list(_injections(1))


@pytest.mark.parametrize("kind", KINDS)
def test_model_is_plain_again(backbone, images, snapshot, kind):
    """After a call: same module objects, same keys, no hook, same bits; inside it: other features."""
    before, plain = snapshot(backbone.model), backbone.tokens(images)
    injected = backbone.features(images, [_injections(1)[kind]])
    assert not torch.allclose(injected, plain[:, 0], atol=1e-3)
    assert snapshot(backbone.model) == before
    assert torch.equal(backbone.tokens(images), plain)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_again_after_a_failed_installation(backbone, images, snapshot, kind):
    """An injection that names a missing block takes back what it had installed, and so do those before it."""
    before = snapshot(backbone.model)
    fine = PrefixInjection({1: (torch.ones(1, 48), torch.ones(1, 48))})
    with pytest.raises(ConfigError, match="block 7 does not exist; this backbone has blocks 0 to 3"):
        backbone.features(images, [fine, _injections(7)[kind]])
    assert snapshot(backbone.model) == before


@pytest.mark.parametrize(
    "failing",
    [
        PrefixInjection({2: _fails}),
        TokenInjection({2: _fails}, keep=False),
        AdapterInjection({2: _fails}),
    ],
)
def test_plain_again_after_a_failed_forward(backbone, images, snapshot, failing):
    """An exception in the middle of a forward leaves nothing behind, whatever else was injected."""
    before = snapshot(backbone.model)
    others = [_injections(1)[kind] for kind in ("prefix", "low rank", "adapter")]
    with pytest.raises(RuntimeError, match="stop"):
        backbone.features(images, [*others, failing])
    assert snapshot(backbone.model) == before


def test_state_dict_keys_inside_a_hook_injection(backbone):
    """Hook-based injections leave the state-dict keys alone even inside their context."""
    keys = list(backbone.model.state_dict())
    with inject(backbone.model, [_injections(1)[kind] for kind in ("tokens", "low rank", "adapter")]):
        assert list(backbone.model.state_dict()) == keys


def test_real_tokens():
    """The class token and the last rows are the model's own; a plain stream is passed through."""
    x = torch.arange(7.0).reshape(1, 7, 1)
    assert real_tokens(x, 7, 0) is x
    assert real_tokens(x, 4, 0).flatten().tolist() == [0, 4, 5, 6]
    assert real_tokens(x, 4, 3).flatten().tolist() == [3, 4, 5, 6]


def test_num_tokens_counts_registers(make_vit):
    """Class token, registers and patches."""
    assert num_tokens(make_vit()) == 17
    assert num_tokens(make_vit(reg_tokens=2)) == 19


def test_other_attention_is_refused():
    """Only timm's plain attention has the qkv that the injections are written for."""
    with pytest.raises(ConfigError, match="'NoneType' is not supported"):
        attention_of(torch.nn.Identity())
