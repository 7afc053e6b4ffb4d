"""Whatever is injected, the model is the plain timm model again afterwards."""

from __future__ import annotations

import pytest
import torch

from lw2g.errors import ConfigError
from lw2g.vit.adapter import AdapterInjection, Bottleneck
from lw2g.vit.injection import attention_of, inject, num_tokens, real_tokens
from lw2g.vit.low_rank import LowRank, LowRankInjection
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


def _bottleneck(down, down_bias, up, up_bias):
    return Bottleneck(scale=0.1, down=down, down_bias=down_bias, up=up, up_bias=up_bias)


SHAPES = {
    "prefix": ((4, 48), (4, 48)),
    "tokens": ((4, 48),),
    "low rank": ((3, 48), (48, 3)),
    "adapter": ((5, 48), (5,), (48, 5), (48,)),
}
MADE = {
    "prefix": lambda key, value: (key, value),
    "tokens": lambda rows: rows,
    "low rank": lambda down, up: LowRank(down=down / 7, up=up / 2),
    "adapter": _bottleneck,
}
INJECTED = {
    "prefix": lambda pair: PrefixInjection({1: pair}),
    "tokens": lambda rows: TokenInjection({1: rows}, keep=True),
    "low rank": lambda update: LowRankInjection({1: {"v": update}}),
    "adapter": lambda branch: AdapterInjection({1: branch}),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_samples_do_not_mix(backbone, images, randn, kind):
    """With a batch axis in front every sample meets what is its own, and that alone."""
    drawn = [randn(3, *shape) for shape in SHAPES[kind]]
    together = backbone.features(images, [INJECTED[kind](MADE[kind](*drawn))])
    for sample, image in enumerate(images):
        own = INJECTED[kind](MADE[kind](*(part[sample] for part in drawn)))
        alone = backbone.features(image[None], [own])
        torch.testing.assert_close(together[[sample]], alone, atol=1e-4, rtol=1e-5)
    assert not torch.allclose(together, backbone.features(images), atol=1e-3)


JOINED = {
    "prefix": lambda one, other: tuple(torch.cat(pair) for pair in zip(one, other, strict=True)),
    "low rank": lambda one, other: (one, other),
    "adapter": lambda one, other: lambda h: one(h) + other(h),
}


@pytest.mark.parametrize("kind", JOINED)
def test_two_injections_at_one_block_add_up(backbone, images, randn, snapshot, kind):
    """They equal one that has both."""
    before, injected = snapshot(backbone.model), INJECTED[kind]
    one, other = (MADE[kind](*(randn(*shape) for shape in SHAPES[kind])) for _ in range(2))
    separate = backbone.features(images, [injected(one), injected(other)])
    together = backbone.features(images, [injected(JOINED[kind](one, other))])
    torch.testing.assert_close(separate, together, atol=1e-5, rtol=1e-5)
    assert snapshot(backbone.model) == before


NOTHING = {
    "prefixes without rows": PrefixInjection({i: (torch.zeros(0, 48), torch.zeros(0, 48)) for i in range(4)}),
    **{
        f"no tokens, {position}, {keep=}": TokenInjection(
            {0: torch.zeros(0, 48), 3: torch.zeros(3, 0, 48)}, position=position, keep=keep
        )
        for position in ("after-cls", "before-cls")
        for keep in (True, False)
    },
    "a fresh set and empty updates": LowRankInjection(
        {
            0: {"k": LowRank(down=torch.ones(3, 48), up=torch.zeros(48, 3)), "v": torch.zeros(48, 48)},
            1: {"q": ()},
            2: {},
        }
    ),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_nothing_injected_is_plain_timm(backbone, images, kind):
    """All tokens are those of the bare ViT, bit for bit."""
    assert torch.equal(backbone.tokens(images, [NOTHING[kind]]), backbone.model.forward_features(images))
