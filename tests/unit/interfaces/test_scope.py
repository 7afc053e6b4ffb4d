"""Scopes: what each says when it is asked, and that a string in their place is refused at once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.pool import BESIDE, UNCHOSEN, Pool
from lw2g.interfaces.scope import BACKBONE, EACH, POOL, SET, SET_SHARED, Scope


@pytest.mark.parametrize(
    ("scope", "alone", "passes", "version", "moves"),
    [
        (BACKBONE, True, 1, 0, (False, False)),
        (SET, True, 2, 7, (True, False)),
        (SET_SHARED, True, 2, 4, (True, True)),
        (EACH, True, 2, 7, (True, False)),
        (POOL, False, 1, 4, (True, True)),
    ],
    ids=str,
)
def test_what_a_scope_says(
    scope: Scope, alone: bool, passes: int, version: int, moves: tuple[bool, bool]
) -> None:
    """Which sets a batch gathers, which candidates share a forward, and when features become stale."""
    pool = Pool()
    for _ in range(3):
        pool.grow(nn.Linear(1, 1))
    assert len(scope.route(pool, torch.tensor([0, 0, 2])).sets) == (2 if alone else 3)
    assert len(scope.passes([0, 2])) == passes
    assert scope.version(1, 4, lambda set_id: 6 + set_id) == version
    assert (scope.moves(1, 1), scope.moves(1, 0)) == moves
    members = (0, 1, 2, BESIDE) if scope.each else (UNCHOSEN,)
    assert scope.members(pool, (nn.Linear(1, 1),)) == members


def test_what_is_not_read_is_refused() -> None:
    """What plugins said before is refused where the class is defined, with what to say in its place."""
    with pytest.raises(
        TypeError, match=r"Old: feature_scope = 'each' is not read; .* scope = POOL, from lw2g\.plugin"
    ):
        type("Old", (Baseline,), {"feature_scope": "each"})
    with pytest.raises(TypeError, match=r"first_task_alone = True is not read; .* trained_tasks = 1"):
        type("Older", (Baseline,), {"first_task_alone": True})
    with pytest.raises(TypeError, match=r"Odd: scope = 'each' is no scope; take BACKBONE"):
        type("Odd", (Baseline,), {"scope": "each"})
