"""Compiled blocks give what plain ones give, and one compilation serves all tasks and sets."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch._dynamo.utils import counters

from lw2g.ground.notes import tell_note_once
from lw2g.vit.adapter import AdapterInjection
from lw2g.vit.backbone import Backbone
from lw2g.vit.low_rank import LowRankInjection
from lw2g.vit.prefix import PrefixInjection
from lw2g.vit.taps import Tap
from lw2g.vit.tokens import TokenInjection

pytestmark = [
    # a remark of torch on early releases of Python 3.13
    pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning"),
    # torch asks every tensor for its gradient while it compiles, and hides what it is told
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


@pytest.fixture
def compilations():
    """Count compiled graphs from nothing on, and forget them afterwards."""
    torch._dynamo.reset()
    counters.clear()
    yield lambda: counters["stats"]["unique_graphs"]
    torch._dynamo.reset()


def notes(caplog):
    """Return the notes so far, and forget them."""
    told = [record.getMessage() for record in caplog.records if record.name == "lw2g.progress"]
    tell_note_once.cache_clear()
    caplog.clear()
    return told


def gradients(backbone, images, parameters, *others):
    """Return features under fresh prefixes at blocks 1 and 2, and their gradients."""
    key, value = parameters
    prefix = PrefixInjection({block: (key[block], value[block]) for block in (1, 2)})
    features = backbone.features(images, [prefix, *others])
    return [features.detach(), *torch.autograd.grad(features.square().sum(), parameters)]


def sets(randn, count):
    """Return parameters of several sets of prefixes."""
    return [[randn(4, 2, 48).requires_grad_() for _ in range(2)] for _ in range(count)]


def test_one_compilation_serves_all_sets(make_vit, images, randn, compilations):
    """Three graphs of blocks do for every set, task and injection; other batch sizes compile nothing."""
    plain = Backbone.wrap(make_vit(), name="tiny")
    backbone = Backbone.wrap(make_vit(), name="tiny").compile_blocks([3], backend="eager")
    found = []
    for parameters in sets(randn, 12):
        torch.testing.assert_close(
            gradients(backbone, images, parameters), gradients(plain, images, parameters), rtol=0, atol=0
        )
        found.append(compilations())
    # without and with a prefix before gradients begin, with one after that; the last block is hooked
    assert found == [3] * 12
    gradients(backbone, images[:2], parameters)
    assert compilations() == 3
    assert "forward" not in vars(backbone.model.blocks[0])


def test_hooked_blocks_run_as_they_are(make_vit, images, randn, compilations, caplog):
    """Taps, low-rank updates, adapters and tokens give the same beside compiled blocks; a note tells."""
    tell_note_once.cache_clear()
    plain = Backbone.wrap(make_vit(), name="tiny")
    backbone = Backbone.wrap(make_vit(), name="tiny").compile_blocks([3], backend="eager")
    weight, rows = randn(48, 48), randn(2, 48)
    others = [
        LowRankInjection({1: {"q": weight}}),
        AdapterInjection({2: lambda x: torch.tanh(x @ weight)}),
        TokenInjection({0: rows, 2: rows}, keep=False),
    ]
    (parameters,) = sets(randn, 1)
    torch.testing.assert_close(
        gradients(backbone, images, parameters, *others), gradients(plain, images, parameters, *others)
    )
    taps = [Tap(1, "query"), Tap(2, "attn_in"), Tap(2, "block_in")]
    read, expected = (one.activations(images, taps, others) for one in (backbone, plain))
    torch.testing.assert_close(read, expected)
    assert compilations()
    (told,) = notes(caplog)
    assert told.startswith("note: run.compile: blocks whose layers are updated (low-rank updates, adapters)")
    # with an update in each block nothing is compiled; prefixes alone have no note
    torch._dynamo.reset()
    counters.clear()
    updates = LowRankInjection({block: {"q": weight.clone().requires_grad_()} for block in range(4)})
    backbone.features(images, [updates]).sum().backward()
    assert (compilations(), notes(caplog)) == (0, [told])
    gradients(backbone, images, parameters)
    assert notes(caplog) == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor_agrees(make_vit, images, randn, compilations):
    """What inductor makes of the blocks agrees with timm up to rounding, gradients included."""
    plain = Backbone.wrap(make_vit(), name="tiny")
    backbone = Backbone.wrap(make_vit(), name="tiny").compile_blocks([3])
    # gradients of images, too, and prefixes in all blocks: then one graph does, and C++ is compiled once
    images = images.clone().requires_grad_()
    for key, value in sets(randn, 2):
        prefix = PrefixInjection({block: (key[block], value[block]) for block in range(4)})

        def features_and_slopes(one, prefix=prefix, wanted=(images, key, value)):
            features = one.features(images, [prefix])
            return [features.detach(), *torch.autograd.grad(features.square().sum(), wanted)]

        found, expected = (features_and_slopes(one) for one in (backbone, plain))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(features_and_slopes(backbone), found, rtol=0, atol=0)
    assert compilations() == 1
