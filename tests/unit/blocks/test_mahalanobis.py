"""FeCAM's head: each class is solved once, memory comes with the classes, and old states are read."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from lw2g.blocks import mahalanobis
from lw2g.blocks.carrying import Motion
from lw2g.blocks.mahalanobis import Mahalanobis
from lw2g.config.resolve import Resolved, resolve
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.tracker import RunStarted
from lw2g.learning.session import open_session
from lw2g.lifecycle.continuing import proceed
from lw2g.lifecycle.estimate import estimate
from lw2g.lifecycle.runner import start
from lw2g.registry.catalogue import Catalogue

DIM, TASKS, PER_TASK = 4, 6, 2
CLASSES = TASKS * PER_TASK
DOUBLE = Motion(rows=lambda rows: 2 * rows, linear=2 * torch.eye(DIM, dtype=torch.float64))


def images(labels: list[int], seed: int = 0, each: int = 5) -> tuple[Tensor, Tensor]:
    """Features of some classes, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.tensor(labels).repeat_interleave(each)
    means = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(99))
    return means[rows] + 0.2 * torch.randn(len(rows), DIM, generator=generator), rows


def task(index: int) -> list[int]:
    return list(range(PER_TASK * index, PER_TASK * (index + 1)))


def small(catalogue: Catalogue) -> Resolved:
    """An experiment with this head on frozen features."""
    names = {"baseline": "simple-cil", "benchmark": "tiny", "backbone": "tiny"}
    return resolve(catalogue, overrides={"baseline.head": "mahalanobis", "run.device": "cpu"}, **names)


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of matrices of each factorisation."""
    counts: list[int] = []
    plain = mahalanobis.factor

    def counted(matrix: Tensor) -> Tensor:
        counts.append(1 if matrix.ndim == 2 else len(matrix))
        return plain(matrix)

    monkeypatch.setattr(mahalanobis, "factor", counted)
    return counts


def test_a_class_is_solved_once(solved: list[int]) -> None:
    """A stream solves as many matrices as it has classes, however often it is asked."""
    head, (queries, _) = Mahalanobis(DIM, CLASSES), images(task(0), 1)
    for index in range(TASKS):
        head.update(*images(task(index)))
        for _ in range(2):
            head.scores(queries, PER_TASK * (index + 1))
    assert sum(solved) == CLASSES


def test_more_images_and_a_carry_solve_their_classes_alone(solved: list[int]) -> None:
    """And the scores are those of a head that is asked for the first time, bit for bit."""
    head, (queries, _) = Mahalanobis(DIM, CLASSES), images(task(0), 1)
    head.update(*images([*task(0), *task(1)]))
    head.scores(queries, 4)
    for change in (lambda: head.update(*images([3], 2)), lambda: head.carry(DOUBLE, [3])):
        solved.clear()
        change()
        found = head.scores(queries, 4)
        assert sum(solved) == 1
        fresh = Mahalanobis(DIM, CLASSES)
        fresh.load_state_dict(head.state_dict())
        assert torch.equal(fresh.scores(queries, 4), found)


def test_a_class_that_comes_again_is_solved_again(solved: list[int]) -> None:
    """From the images of both tasks; asked for the first task alone, the later images do not count."""
    head, (queries, _) = Mahalanobis(DIM, CLASSES), images(task(0), 1)
    head.update(*images(task(0)))
    first = head.scores(queries, 2)
    head.begin_task(
        TaskInfo(index=1, classes=(2, 3), class_names=("1", "2"), seen=4, num_images=10, targets=(1, 2))
    )
    features, _ = images([1, 2], 3)
    head.update(features, torch.tensor([2, 3]).repeat_interleave(5))
    solved.clear()
    both = head.scores(queries, 4)
    assert sum(solved) == 2
    assert torch.equal(both[:, 1], both[:, 2])
    assert torch.equal(both[:, 0], first[:, 0])
    assert not torch.allclose(both[:, 1], first[:, 1])
    assert torch.equal(head.scores(queries, 2), first)
    whole = Mahalanobis(DIM, CLASSES)
    whole.update(*images(task(0)))
    whole.update(features, torch.tensor([1, 2]).repeat_interleave(5))
    torch.testing.assert_close(both[:, [0, 1, 3]], whole.scores(queries, 3), rtol=1e-10, atol=1e-10)


def test_sums_and_what_is_solved_come_with_the_classes() -> None:
    """There is a scatter for each class so far, and as many bytes as the head has said."""
    head = Mahalanobis(DIM, CLASSES)
    assert head.scatter.shape == (0, DIM, DIM)
    for index in range(TASKS):
        seen = PER_TASK * (index + 1)
        head.update(*images(task(index)))
        assert head.scatter.shape == (seen, DIM, DIM)
        assert head.bytes_of(seen) == 2 * head.scatter.nbytes


def test_a_state_with_room_for_all_classes_goes_on(solved: list[int]) -> None:
    """Earlier versions wrote one; it scores alike and learns on, and a copy does not touch the original."""
    (queries, _), ours = images(task(0), 1), Mahalanobis(DIM, CLASSES)
    ours.update(*images([*task(0), *task(1)]))
    state = ours.state_dict()
    state["scatter"] = torch.cat([state["scatter"], torch.zeros(CLASSES - 4, DIM, DIM).double()])
    old = Mahalanobis(DIM, CLASSES)
    old.load_state_dict(state)
    assert torch.equal(old.scores(queries, 4), ours.scores(queries, 4))
    other = copy.deepcopy(old)
    for head in (ours, old):
        head.update(*images(task(2)))
    assert torch.equal(old.scores(queries, 6), ours.scores(queries, 6))
    assert torch.equal(other.scores(queries, 4), ours.scores(queries, 6)[:, :4])


def test_a_head_that_moves_solves_again(solved: list[int]) -> None:
    """What was solved on the old device is of no use on the new one."""
    head, (queries, _) = Mahalanobis(DIM, CLASSES), images(task(0), 1)
    head.update(*images(task(0)))
    before = head.scores(queries, 2)
    solved.clear()
    head.to("cpu")
    head.begin_task(TaskInfo(index=0, classes=(0, 1), class_names=("0", "1"), seen=2, num_images=10))
    assert torch.equal(head.scores(queries, 2), before)
    assert sum(solved) == 2


def test_a_run_that_is_resumed_has_the_scores_of_one_that_was_not(catalogue, tmp_path) -> None:
    """Checkpoints hold the scatters of the classes so far, and each next one those of its task."""
    whole = start(small(catalogue), catalogue, tmp_path / "whole")
    start(small(catalogue), catalogue, tmp_path / "parts", tasks=1)
    for tasks in (2, None):
        parts = proceed(tmp_path / "parts", catalogue, tasks=tasks)
    assert parts["metrics"] == whole["metrics"]
    for name in ("task-000.safetensors", "task-002.safetensors"):
        one, other = (tmp_path / run / "predictions" / name for run in ("whole", "parts"))
        assert one.read_bytes() == other.read_bytes()


def test_the_memory_is_said_before_the_run(catalogue, tmp_path, monkeypatch) -> None:
    """By a line at its beginning, and in the memory of the dry run, for the classes of all its tasks."""
    resolved = small(catalogue)
    told: list[tuple[str, ...]] = []

    class Listener:
        def on_event(self, event: object) -> None:
            if isinstance(event, RunStarted):
                told.append(event.notes)

        def close(self) -> None:
            """Nothing to close."""

    start(resolved, catalogue, tmp_path / "small", [Listener()])
    monkeypatch.setattr(Mahalanobis, "bytes_of", lambda self, classes: classes * 2**40)
    start(resolved, catalogue, tmp_path / "large", [Listener()], tasks=2)
    line = "statistics of 5 classes will take 5,242,880 MiB of memory at the end"
    assert [line in notes for notes in told] == [False, True]
    cost = estimate(resolved.config, catalogue)
    seen = [task.classes[-1] + 1 for task in open_session(resolved.config, catalogue).data.stream.tasks]
    assert (seen[-1] - seen[1]) * 2**40 < cost.memory < (seen[-1] - seen[1] + 1) * 2**40
