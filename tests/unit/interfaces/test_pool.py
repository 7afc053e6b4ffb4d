"""The pool: which tasks share a set, what a routing gives each sample, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lw2g.interfaces.pool import Pool, Routing


@pytest.fixture
def pool() -> Pool:
    """Tasks 0 and 2 in set 0, task 1 in set 1."""
    made = Pool()
    for value in (1.0, 2.0):
        made.grow(nn.Linear(1, 1, bias=False).requires_grad_(False))
        made[made.ids[-1]].weight.fill_(value)
    made.reuse(0)
    return made


def test_a_routing_selects_by_batch_or_by_sample(pool: Pool) -> None:
    """One forced set serves the batch; chosen sets give each sample its own."""
    read = lambda one: one.weight  # noqa: E731
    assert pool.force(1).select(read).item() == 2.0
    assert pool.force(1).only() is pool[1]
    assert pool.route(torch.tensor([1, 0, 1])).select(read).flatten().tolist() == [2.0, 1.0, 2.0]


def test_the_newest_set_is_that_of_the_last_task(pool: Pool) -> None:
    """It is the set trained last, not the one added last; a pool without tasks has none."""
    assert pool.newest is pool[0]
    assert Pool().newest is None


def test_a_pool_iterates_over_its_ids(pool: Pool) -> None:
    """As a mapping from ids to sets does."""
    assert list(pool) == [0, 1]
    assert [pool[set_id] for set_id in pool] == list(pool.sets)
    assert 1 in pool
    assert 2 not in pool


def test_a_restored_set_that_has_changed_has_another_version(pool: Pool) -> None:
    """Features cached under it are stale, and those of other sets are not; a new set begins at 0."""
    state = {name: value.clone() for name, value in pool.state_dict().items()}
    pool.touch(0)
    before = [pool.version(0), pool.version(1)]
    state["1.weight"] += 1
    pool.restore([0, 1, 0, 2], state | {"2.weight": state["1.weight"]}, lambda: nn.Linear(1, 1, bias=False))
    assert [pool.version(0), pool.version(1), pool.version(2)] == [before[0], before[1] + 1, 0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda pool: pool.reuse(7), KeyError, r"no set 7 in the pool; it has \[0, 1\]"),
        (lambda pool: pool.force(7), ValueError, r"^expected one of the live sets \[0, 1\] but got 7$"),
        (
            lambda pool: Pool().route(None),
            ValueError,
            r"^expected a pool with a set but got an empty one; learn a task \(or call grow\) first$",
        ),
        (
            lambda pool: Routing(sets=pool.sets).select(lambda one: one.weight),
            ValueError,
            "^expected a routing with a chosen set, but got one without$",
        ),
        (
            lambda pool: pool.route(torch.tensor([0, 1])).only(),
            ValueError,
            r"^expected a routing that forces one set, but got tensor\(\[0, 1\]\)$",
        ),
    ],
)
def test_misuse_is_refused_in_one_line(pool: Pool, call: object, error: type, message: str) -> None:
    """The message names what is there and what was asked for."""
    with pytest.raises(error, match=message):
        call(pool)
