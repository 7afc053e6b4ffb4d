"""The frozen expert: posteriors that sum to one, their product, and a temperature that makes scores one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lw2g.blocks.expert import FrozenExpert, of_targets
from lw2g.errors import ConfigError
from lw2g.interfaces.context import TaskInfo
from lw2g.model.frozen_expert import add_expert

DIM, CLASSES = 4, 5


def learned(seed: int, order: tuple[int, ...] = tuple(range(CLASSES)), fitted: bool = False) -> FrozenExpert:
    """An expert that has seen unequal classes, numbered in some order."""
    generator = torch.Generator().manual_seed(seed)
    expert = FrozenExpert(DIM, CLASSES, fitted=fitted)
    for label, place in enumerate(order):
        rows = torch.randn(2 + label, DIM, generator=generator) + 3 * label
        expert.lda.learn(rows, torch.full((len(rows),), place), generator)
    return expert


def asked(seed: int) -> Tensor:
    return 6 * torch.randn(7, DIM, generator=torch.Generator().manual_seed(seed)) + 5


@given(seed=st.integers(0, 99))
def test_posteriors_sum_to_one_and_so_does_their_product(seed: int) -> None:
    """Whatever the head's logits are; the product is the one of probabilities, scaled to sum to one."""
    expert, logits = learned(seed), asked(seed + 1) @ torch.ones(DIM, CLASSES)
    said = expert.log_posterior(asked(seed), range(CLASSES))
    torch.testing.assert_close(said.exp().sum(1), torch.ones(7), rtol=1e-5, atol=1e-5)
    product = expert.product(logits, said).exp()
    torch.testing.assert_close(product.sum(1), torch.ones(7), rtol=1e-5, atol=1e-5)
    wanted = logits.double().softmax(1) * said.double().exp()
    torch.testing.assert_close(product.double(), wanted / wanted.sum(1, keepdim=True), rtol=1e-4, atol=1e-6)


@given(seed=st.integers(0, 99), order=st.permutations(range(CLASSES)))
def test_the_order_of_classes_does_not_matter(seed: int, order: list[int]) -> None:
    """Whichever class came first, each has the same probability."""
    first = learned(seed).log_posterior(asked(seed), range(CLASSES))
    other = learned(seed, tuple(order)).log_posterior(asked(seed), range(CLASSES))
    torch.testing.assert_close(other[:, order], first, rtol=1e-4, atol=1e-4)


def test_a_class_that_comes_again_counts_once() -> None:
    """Positions 0 and 3 are one target: three columns, which sum to one, as if the class had come at once."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(12, DIM, generator=generator) + torch.arange(12)[:, None] % 3
    again, once = FrozenExpert(DIM, 4, fitted=False), FrozenExpert(DIM, 3, fitted=False)
    names = ("a", "b", "c")
    tasks = (
        TaskInfo(index=0, classes=(0, 1, 2), class_names=names, seen=3, num_images=9, targets=(0, 1, 2)),
        TaskInfo(index=1, classes=(3,), class_names=("a",), seen=4, num_images=3, targets=(0,)),
    )
    for task in tasks:
        again.lda.begin_task(task)
    again.lda.learn(rows, torch.tensor([0, 1, 2, 0, 1, 2, 3, 1, 2, 3, 1, 2]), generator)
    once.lda.learn(rows, torch.arange(12) % 3, generator)
    found, wanted = again.log_posterior(rows, (0, 1, 2, 0)), once.log_posterior(rows, (0, 1, 2))
    assert found.shape == (12, 3)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert of_targets(torch.tensor([[1.0, 2.0, 1.0, 3.0]]), (0, 1, 0, 2)).tolist() == [[1, 2, 3]]


def test_a_temperature_makes_a_posterior_of_scores_that_are_none() -> None:
    """Log likelihoods told a hundred times too small are scaled back; beside `lda` nothing is scaled."""
    generator = torch.Generator().manual_seed(0)
    truth = 2 * torch.randn(4000, 3, generator=generator)
    labels = torch.multinomial(truth.softmax(1), 1, generator=generator)[:, 0]
    expert = learned(0, fitted=True)
    assert expert.warmth == 1
    expert.observe(truth[:2000] / 100, labels[:2000])
    expert.observe(truth[2000:] / 100, labels[2000:])
    assert expert.warmth == pytest.approx(0.01, rel=0.25)  # the grid has twelve steps a decade
    uninformed = torch.full((4000, 3), 1 / 3).log()
    torch.testing.assert_close(
        expert.product(truth / 100, uninformed), (truth / (100 * expert.warmth)).log_softmax(1)
    )
    plain = learned(0)
    plain.observe(truth, labels)
    assert plain.warmth == 1
    assert plain.state_dict().keys() == learned(1).state_dict().keys()


@pytest.mark.parametrize(
    ("likelihood", "mix", "held_back", "fitted"),
    [
        (True, 1, 20, False),
        (True, 1, 0, False),
        (True, 3, 20, False),
        (False, 3, 20, False),
        (False, "all", 0, False),
        (False, 1, 20, True),
        (False, 1, 0, None),
    ],
)
def test_scores_that_are_no_posterior_get_a_temperature(
    likelihood: bool, mix: int | str, held_back: int, fitted: bool | None
) -> None:
    """Of one set's head alone: log likelihoods are one, and so is a mix, which was fitted; None: refused."""
    baseline: Any = SimpleNamespace(likelihood=likelihood, frozen_expert=None)
    routing = SimpleNamespace(expert="frozen", mix=mix, held_back=held_back)
    config: Any = SimpleNamespace(routing=routing)
    backbone = SimpleNamespace(dim=DIM, width=DIM)
    context: Any = SimpleNamespace(backbone=backbone, num_classes=CLASSES, device=torch.device("cpu"))
    if fitted is None:
        with pytest.raises(ConfigError, match=r"routing.expert: .*held_back=0 leaves no images"):
            add_expert(baseline, config, context)
        return
    add_expert(baseline, config, context)
    assert (baseline.frozen_expert.temperature is not None) is fitted
    routing.expert = "none"
    baseline.frozen_expert = None
    add_expert(baseline, config, context)
    assert baseline.frozen_expert is None
