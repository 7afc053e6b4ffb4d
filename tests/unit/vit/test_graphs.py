"""Graphs give what the forward gives, one batch after another, and stand back where they would not.

There is no GPU here: ``replaying`` stands in for a CUDA graph.
"""

from __future__ import annotations

import copy

import attrs
import pytest
import torch

from lw2g.errors import ContractError
from lw2g.vit import graphs
from lw2g.vit.adapter import AdapterInjection, Bottleneck
from lw2g.vit.graphs import Graphs
from lw2g.vit.lora import LayerInjection, LowRank
from lw2g.vit.parameters import ParameterInjection
from lw2g.vit.prefix import PrefixInjection
from lw2g.vit.tokens import TokenInjection
from replaying import replaying
from simulated_device import simulated_device


@pytest.fixture
def kept(backbone, monkeypatch):
    """Graphs of a backbone, captured at the third call."""
    monkeypatch.setattr(graphs, "CALLS", 3)
    backbone.graphs = Graphs(frozenset({3}), replaying)
    return backbone.graphs


def injected(seed):
    """Return injections of every kind that holds tensors, and what is trained in them."""
    generator = torch.Generator().manual_seed(seed)

    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    rows = [randn(3, 48).requires_grad_() for _ in range(4)]
    each = randn(3, 2, 48).requires_grad_()
    low = LowRank(down=randn(2, 48), up=randn(48, 2).requires_grad_())
    bias = randn(48).requires_grad_()
    branch = Bottleneck(down=randn(2, 48), down_bias=randn(2), up=rows[3].T[:, :2], up_bias=randn(48))
    injections = (
        PrefixInjection({0: (rows[0], rows[1]), 1: (each, each)}),
        TokenInjection({1: rows[2]}, keep=False),
        LayerInjection({1: {"proj": low}}, scale=0.5),
        ParameterInjection({"norm.bias": bias}),
        AdapterInjection({0: branch}),
    )
    return injections, [*rows, each, low.up, bias]


def step(backbone, images, seed):
    """Return features and gradients of a forward whose tensors are drawn anew."""
    injections, wanted = injected(seed)
    features = backbone.features(images + seed, injections)
    return features.detach(), *torch.autograd.grad(features.square().sum(), wanted)


def test_batch_after_batch_is_what_it_is_without(backbone, kept, images):
    """Features and gradients, of any injection that holds tensors; what came before is not overwritten."""
    plain = copy.deepcopy(backbone)
    plain.graphs = None
    found = [step(backbone, images, seed) for seed in range(8)]
    assert str(kept) == "1 forwards"
    for seed, values in enumerate(found):
        assert all(map(torch.equal, values, step(plain, images, seed)))


def test_gradients_add_up(backbone, kept, images, randn):
    """Two forwards in turn, each with its backward, add to a parameter's gradient."""
    key = randn(3, 48).requires_grad_()

    def slope(factor):
        features = backbone.features(factor * images, [PrefixInjection({0: (key, key)})])
        features.square().sum().backward()

    for _ in range(4):
        slope(1)
    assert str(kept) == "1 forwards"
    key.grad = None
    slope(1)
    slope(2)
    both, key.grad = key.grad, None
    backbone.graphs = None
    slope(1)
    slope(2)
    assert torch.equal(both, key.grad)


def test_a_forward_that_waits_for_its_gradient_is_not_overwritten(backbone, kept, images, randn):
    """Two forwards before the first backward; one that is dropped blocks nothing."""
    key = randn(3, 48).requires_grad_()
    injections = [PrefixInjection({0: (key, key)})]

    def loss(factor):
        return backbone.features(factor * images, injections).square().sum()

    def slopes():
        first, second = loss(1), loss(2)
        return [torch.autograd.grad(one, key)[0] for one in (first, second)]

    for _ in range(3):
        loss(1)
    graph = next(iter(kept._kept.values()))
    assert not graph.waits  # what the loop made is gone
    found = slopes()
    again = loss(1)
    assert graph.waits
    torch.autograd.grad(again, key, retain_graph=True)
    loss(2)
    with pytest.raises(ContractError, match=r"second time.*graph to off"):
        torch.autograd.grad(again, key)
    backbone.graphs = None
    assert all(map(torch.equal, found, slopes()))


def test_without_gradients(backbone, kept, images):
    """Queries and evaluation have a graph of their own; other batch sizes have none."""
    for _ in range(4):
        with torch.no_grad():
            backbone.features(images)
            backbone.features(images[:1])
    assert [key[3][0][0] for key in kept._kept] == [3]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda forward: lambda *tensors: forward(*tensors) + 1e-3, "other values"),
        (lambda forward: lambda *tensors: forward(*tensors) * float("nan"), "other values"),
        (None, "operation not permitted"),
    ],
)
def test_what_is_no_better_is_refused(backbone, kept, images, change, why):
    """A capture that fails or computes something else leaves the forward as it is, and is told."""

    def capture(forward, samples):
        if change is None:
            raise RuntimeError("operation not permitted\nwhen the stream is capturing")
        return change(forward)

    backbone.graphs = Graphs(frozenset({3}), capture)
    with torch.no_grad():
        rows = [backbone.features(images) for _ in range(5)]
    assert all(torch.equal(row, rows[0]) for row in rows)
    assert str(backbone.graphs) == f"0 forwards, 1 not: {why}"


@pytest.mark.parametrize(
    ("factor", "reserved", "told"),
    [
        (lambda images: images.sum().item(), 0, "0 forwards, 1 not: called a synchronizing CUDA operation"),
        (lambda images: images.sum(), 2**34, "0 forwards, 1 not: half of the memory is in use"),
        (lambda images: images.sum(), 2**32, "1 forwards"),
    ],
    ids=["waits", "crowded", "captured"],
)
def test_what_would_harm_the_device_is_refused(monkeypatch, factor, reserved, told):
    """Waiting would end a capture midway and leave the generator unusable; a graph keeps its activations."""
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved)
    with simulated_device():
        kept, images = Graphs(frozenset({3})), torch.ones(3, 2, device="cuda")
        for _ in range(graphs.CALLS + 1):
            rows = kept(lambda images, injections: images * factor(images), images, ())
        assert rows.tolist() == [[6.0, 6.0]] * 3
    assert str(kept).removesuffix(" (simulated device)") == told


def test_no_clock_decides(backbone, kept, images):
    """A graph that takes thirty times as long is replayed too: a busy machine would refuse others."""

    def slower(forward, samples):
        return lambda *inputs: [forward(*inputs) for _ in range(30)][-1]

    backbone.graphs = Graphs(frozenset({3}), slower)
    with torch.no_grad():
        for _ in range(5):
            backbone.features(images)
    assert str(backbone.graphs) == "1 forwards"


def test_what_is_computed_within_the_forward_runs_as_it_is(backbone, kept, images, randn):
    """A prefix that is a function, dropout, which is tried without touching a generator."""
    key = randn(3, 48)
    computed = PrefixInjection({0: lambda stream: (key, key)})
    branch = Bottleneck(
        down=randn(2, 48), down_bias=randn(2), up=randn(48, 2), up_bias=randn(48), dropout=0.5
    )
    for _ in range(4):
        backbone.features(images, [computed])
        backbone.features(images, [AdapterInjection({0: attrs.evolve(branch, dropout=0.0)})])

    def drawn():
        with torch.random.fork_rng():
            for _ in range(4):
                backbone.features(images, [AdapterInjection({0: branch})])
            return torch.rand(1)

    found = drawn()
    assert str(kept) == "1 forwards, 1 not: it draws numbers"
    backbone.graphs = None
    assert found == drawn()


@pytest.mark.parametrize(("most", "kept_forwards"), [(1, 1), (2, 2), (8, 3)])
def test_each_kind_of_forward_is_captured_once_and_only_so_many(
    backbone, images, monkeypatch, most, kept_forwards
):
    """At its third call, never again, and no more than the limit: each keeps the memory of a forward."""
    captured = []

    def capture(forward, samples):
        captured.append(number)
        return replaying(forward, samples)

    monkeypatch.setattr(graphs, "CALLS", 3)
    monkeypatch.setattr(graphs, "_MOST", most)
    backbone.graphs = Graphs(frozenset({3}), capture)
    prefix = PrefixInjection({0: (torch.ones(2, 48), torch.ones(2, 48))})
    norm = ParameterInjection({"norm.bias": torch.ones(48)})
    for call in range(1, 6):
        number = call
        for injections in ((), (prefix,), (norm,)):
            with torch.no_grad():
                backbone.features(images, injections)
    assert captured == [3] * kept_forwards
