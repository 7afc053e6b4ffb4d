"""oracle: a control that refuses to pretend; and what the plugin registers."""

from __future__ import annotations

import pytest
import torch

from lw2g.errors import ContractError
from lw2g_retrieval.options import OracleConfig
from lw2g_retrieval.oracle import Oracle
from lw2g_retrieval.plugin import lw2g_retrievals


def test_the_oracle_is_marked_and_cannot_be_asked(world):
    """It says that it is a control, trains nothing, and refuses to retrieve from queries."""
    strategy = Oracle(OracleConfig(), world.build)
    context = world.begin(strategy)
    assert strategy.control is True
    assert list(strategy.parameters()) == []
    assert strategy.phases(context) == ()
    with pytest.raises(ContractError, match="cannot retrieve from queries; take the true task ids"):
        strategy.scores(torch.randn(2, 8), [0], torch.zeros(2, dtype=torch.long))


def test_the_strategies_are_offered():
    """Only the oracle is a control."""
    assert {component.name: component.control for component in lw2g_retrievals()} == {
        "centroids": False,
        "class-keys": False,
        "classifier": False,
        "key-cosine": False,
        "lda": False,
        "lora-classifier": False,
        "mahalanobis": False,
        "oracle": True,
        "ridge": False,
    }
