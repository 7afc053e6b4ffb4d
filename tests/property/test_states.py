"""The pool and the checkpoint store under any sequence of calls, against the plainest model of each."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import attrs
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor, nn

from lw2g.disk.checkpoint import Checkpoint, CheckpointStore
from lw2g.errors import DataError
from lw2g.interfaces.pool import Pool

STEPS = 25
VALUES = st.integers(0, 5).map(float)


class PoolMachine(RuleBasedStateMachine):
    """Grows, reuses, trains and restores; the model is a list of weights and the map."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.weights, self.owners = Pool(), [], []
        self.cached: dict[int, tuple[int, float]] = {}

    def _empty(self) -> nn.Linear:
        return nn.Linear(1, 1, bias=False).requires_grad_(False)

    @rule(value=VALUES)
    def grow(self, value: float) -> None:
        made = self._empty()
        made.weight.fill_(value)
        assert self.pool.grow(made) == len(self.weights)
        self.owners.append(len(self.weights))
        self.weights.append(value)

    @precondition(lambda self: self.weights)
    @rule(data=st.data())
    def reuse(self, data: st.DataObject) -> None:
        named = data.draw(st.integers(0, len(self.weights) - 1))
        assert self.pool.reuse(named) == named
        self.owners.append(named)

    @precondition(lambda self: self.weights)
    @rule(data=st.data(), value=VALUES)
    def train(self, data: st.DataObject, value: float) -> None:
        named = data.draw(st.integers(0, len(self.weights) - 1))
        self.pool[named].weight.fill_(value)
        self.pool.touch(named)
        self.weights[named] = value

    @rule(named=st.integers(-3, 20))
    def misuse(self, named: int) -> None:
        if not 0 <= named < len(self.weights):
            for call, error in ((self.pool.reuse, KeyError), (self.pool.force, ValueError)):
                with pytest.raises(error):
                    call(named)

    @rule()
    def cache(self) -> None:
        self.cached = {named: (self.pool.version(named), value) for named, value in enumerate(self.weights)}

    @rule()
    def restore(self) -> None:
        state = {name: value.clone() for name, value in self.pool.state_dict().items()}
        self.pool = Pool()
        self.pool.restore(self.owners, state, self._empty)
        self.cached = {}

    @invariant()
    def is_the_model(self) -> None:
        assert self.pool.task_to_set == self.owners
        assert self.pool.ids == tuple(range(len(self.weights)))
        assert len(self.pool) == len(self.weights) <= len(self.owners) or not self.owners
        assert self.pool.size == len(self.weights)
        tasks = [task for named in self.pool.ids for task in self.pool.tasks_of(named)]
        assert sorted(tasks) == list(range(len(self.owners)))
        if self.owners:
            asked = torch.arange(len(self.owners))
            assert self.pool.sets_of(asked).tolist() == self.owners
            expected = [self.weights[owner] for owner in self.owners]
            for alone in (False, True):
                routing = self.pool.route(self.pool.sets_of(asked), alone=alone)
                assert routing.select(lambda one: one.weight).flatten().tolist() == expected

    @invariant()
    def what_is_cached_is_fresh_or_known_to_be_stale(self) -> None:
        for named, (version, value) in self.cached.items():
            assert self.weights[named] == value or self.pool.version(named) != version


class StoreMachine(RuleBasedStateMachine):
    """Saves within and at the end of tasks, stops and comes back, and loses files; the model keeps it all.

    The model: the state at the end of each finished task, and those within the task under way that are kept.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = CheckpointStore(self.folder)
        self.done: list[Checkpoint] = []
        self.steps: list[tuple[str, Checkpoint]] = []
        self.state = {"w": torch.zeros(3, 2)}
        self.ledger: dict[str, Any] = {"told": [], "count": 0}

    def teardown(self) -> None:
        self.store.wait()
        shutil.rmtree(self.folder)

    @initialize(rows=st.integers(1, 3))
    def begin(self, rows: int) -> None:
        self.state = {"w": torch.zeros(rows, 2), "kept": torch.ones(2)}

    @rule(row=st.integers(0, 5), value=VALUES)
    def train(self, row: int, value: float) -> None:
        if len(self.state["w"]):
            self.state["w"][row % len(self.state["w"])] = value

    @rule(name=st.sampled_from(["w", "head", "pool/1"]), value=VALUES)
    def widen(self, name: str, value: float) -> None:
        old = self.state.get(name, torch.zeros(0, 2))
        self.state[name] = torch.cat([old, torch.full((1, 2), value)])

    @rule(name=st.sampled_from(["head", "pool/1", "kept"]))
    def drop(self, name: str) -> None:
        self.state.pop(name, None)

    @rule(word=st.integers(0, 9))
    def tell(self, word: int) -> None:
        self.ledger["told"].append(word)
        self.ledger["count"] += 1

    @rule(finishes=st.booleans(), behind=st.booleans())
    def save(self, finishes: bool, behind: bool) -> None:
        saved = Checkpoint(
            tensors=self.state,
            progress={"number": len(self.steps)},
            ledger=self.ledger,
            task_done=len(self.done) if finishes else None,
        )
        path = self.store.save_behind(saved) if behind else self.store.save(saved)
        ledger = {
            name: value.copy() if isinstance(value, list) else value for name, value in self.ledger.items()
        }
        copy = attrs.evolve(saved, tensors={k: v.clone() for k, v in self.state.items()}, ledger=ledger)
        if finishes:
            self.done, self.steps = [*self.done, copy], []
        else:
            self.steps = [*self.steps, (path.name, copy)][-2:]

    @rule(row=st.integers(0, 5), value=VALUES, word=st.integers(0, 9), behind=st.booleans())
    def learn_a_task(self, row: int, value: float, word: int, behind: bool) -> None:
        self.tell(word)
        self.train(row, value)
        self.save(True, behind)

    @rule()
    def come_back(self) -> None:
        """What was saved last is there, and the run goes on from it."""
        self.store.wait()
        self.store = CheckpointStore(self.folder)
        found, complaints = self.store.newest()
        assert complaints == []
        self._go_on(found)

    @precondition(lambda self: self.steps)
    @rule()
    def lose_the_last_step(self) -> None:
        """The step before it is taken, else the end of the task before."""
        self.store.wait()
        name, _ = self.steps.pop()
        (self.folder / name).write_bytes(b"")
        found, complaints = self.store.newest()
        assert [name in line for line in complaints] == [True]
        (self.folder / name).unlink()
        self.store = CheckpointStore(self.folder)
        assert self.store.newest()[1] == []
        self._go_on(found)

    @precondition(lambda self: self.done)
    @rule(data=st.data())
    def lose_the_end_of_a_task(self, data: st.DataObject) -> None:
        """That task and all after it are learned anew."""
        self.store.wait()
        task = data.draw(st.integers(0, len(self.done) - 1))
        (self.folder / f"task-{task:03d}.safetensors").write_bytes(b"damaged")
        self.done, self.steps = self.done[:task], []
        found, complaints = self.store.newest()
        assert len(complaints) == 1
        self._go_on(found)
        with pytest.raises(DataError):
            CheckpointStore(self.folder).of_task(task)
        self.save(True, False)

    def _go_on(self, found: Checkpoint | None) -> None:
        expected = self.steps[-1][1] if self.steps else self.done[-1] if self.done else None
        if found is None or expected is None:
            assert found is expected
            self.state, self.ledger = {"w": torch.zeros(3, 2)}, {"told": [], "count": 0}
            return
        assert_same(found, expected)
        if self.steps:
            assert (found.base is None) == (not self.done)
            if found.base is not None:
                assert_same(found.base, self.done[-1])
        self.state, self.ledger = dict(found.tensors), dict(found.ledger)

    @invariant()
    def every_finished_task_can_be_restored(self) -> None:
        self.store.wait()
        reader = CheckpointStore(self.folder)
        assert reader.finished == list(range(len(self.done)))
        if self.done:
            for found, expected in zip(reader.up_to(), self.done, strict=True):
                assert_same(found, expected)
        assert all(complaint is None for _, _, complaint, _ in reader.examine())
        steps = {name for name, _ in self.steps}
        ends = {f"task-{task:03d}.safetensors" for task in range(len(self.done))}
        assert {path.name for path in self.folder.iterdir()} == steps | ends


def assert_same(found: Checkpoint, expected: Checkpoint) -> None:
    """Check all that a checkpoint holds."""
    assert (found.task_done, found.progress) == (expected.task_done, expected.progress)
    assert dict(found.ledger) == dict(expected.ledger)
    assert found.tensors.keys() == expected.tensors.keys()
    for name, value in found.tensors.items():
        assert same(value, expected.tensors[name]), name


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same bits."""
    return one.dtype == other.dtype and torch.equal(one, other)


for machine in (PoolMachine, StoreMachine):
    machine.TestCase.settings = settings(stateful_step_count=STEPS)
TestPool, TestStore = PoolMachine.TestCase, StoreMachine.TestCase
