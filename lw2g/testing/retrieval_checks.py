"""What a retrieval strategy promises: it names seen tasks, from images alone, and touches nothing but itself.

It is looked at under the baseline :data:`lw2g.testing.bench.HOST`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.testing.bench import (
    HOST_PHASE,
    SAMPLES,
    TASKS,
    Bench,
    built,
    changed,
)
from lw2g.testing.kit import ContractViolation, NotApplicable, Subject, check
from lw2g.testing.small_run import learned

__all__ = [
    "check_keys_are_rows",
    "check_phases_leave_sets_alone",
    "check_refuses_before_any_task",
    "check_retrieval_belongs_to_its_sample",
    "check_retrieval_sees_no_labels",
    "check_retrieves_seen_tasks",
    "check_scores_name_the_retrieved_task",
]


def _asked(subject: Subject) -> tuple[Bench, RetrievalStrategy]:
    """Return a bench and the strategy on it, which has learned from each task's images.

    Raises:
        NotApplicable: It is a control, which is told the task and never asked.
    """
    if subject.component.control:
        raise NotApplicable("it is a control: evaluation looks the task up in the label")
    bench = built(subject)
    return bench, _strategy(bench)


def _strategy(bench: Bench) -> RetrievalStrategy:
    if bench.retrieval is None:
        raise NotApplicable("it is no retrieval strategy")
    return bench.retrieval


@check("retrieval")
def check_retrieves_seen_tasks(subject: Subject) -> None:
    """One task per query is retrieved, int64 [B], and only among the seen ones."""
    bench, _ = _asked(subject)
    for tasks in range(1, TASKS + 1):
        found = bench.retrieve(bench.batch(torch.arange(SAMPLES)), tasks)
        if found.shape != (SAMPLES,) or found.dtype != torch.long:
            raise ContractViolation(
                f"let retrieve return int64 [{SAMPLES}] for {SAMPLES} queries, not {found.dtype} "
                f"{list(found.shape)}"
            )
        if not bool(((found >= 0) & (found < tasks)).all()):
            raise ContractViolation(
                f"task {int(found.max())} (from 0) is retrieved while only {tasks} of {TASKS} were seen; "
                "choose among the tasks in seen"
            )


@check("retrieval")
def check_scores_name_the_retrieved_task(subject: Subject) -> None:
    """Every seen task gets a score, the best is retrieved, and probabilities made of scores sum to 1."""
    bench, strategy = _asked(subject)
    batch = bench.batch(torch.arange(SAMPLES))
    query = strategy.query(batch).float().detach()
    of_class = torch.tensor([info.index for info in bench.history for _ in info.classes])
    scores = strategy.scores(query, range(TASKS), of_class)
    if scores.shape != (SAMPLES, TASKS) or not scores.is_floating_point():
        raise ContractViolation(
            f"let scores return floating numbers [{SAMPLES}, {TASKS}] for {SAMPLES} queries and {TASKS} seen "
            f"tasks, not {scores.dtype} {list(scores.shape)}"
        )
    best, found = scores.argmax(dim=1), bench.retrieve(batch)
    if not torch.equal(best, found):
        place = int((best != found).int().argmax())
        raise ContractViolation(
            f"retrieve retrieves task {int(found[place])} (from 0) where task {int(best[place])} scores "
            "best; leave retrieve to the base class"
        )
    total = strategy.log_posterior(query, range(TASKS), of_class).exp().sum(dim=1)
    if not torch.allclose(total, torch.ones(SAMPLES)):
        raise ContractViolation("let log_posterior be that of the base class: its rows must sum to 1")


@check("retrieval")
def check_retrieval_belongs_to_its_sample(subject: Subject) -> None:
    """A sample's task is the one it gets alone, in a batch of 64 and in a shuffled one."""
    bench, _ = _asked(subject)
    everyone = torch.arange(SAMPLES)
    tasks = bench.retrieve(bench.batch(everyone))
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(5))
    company: list[tuple[str, Tensor]] = [
        ("in a shuffled batch", order),
        ("in a smaller batch", everyone[3:20]),
    ]
    company += [("alone", everyone[position : position + 1]) for position in range(0, SAMPLES, 4)]
    for how, positions in company:
        if not torch.equal(bench.retrieve(bench.batch(positions)), tasks[positions]):
            raise ContractViolation(
                f"an image gets another task {how} than in a batch of {SAMPLES}; decide for every query by "
                "itself: no vote and no statistics over the batch, nothing drawn at test time"
            )


@check("retrieval")
def check_retrieval_sees_no_labels(subject: Subject) -> None:
    """With other labels on the same test images the same tasks are retrieved."""
    bench, _ = _asked(subject)
    everyone = torch.arange(SAMPLES)
    tasks = [bench.retrieve(bench.batch(everyone, info.classes)) for info in bench.history]
    if any(not torch.equal(tasks[0], other) for other in tasks[1:]):
        raise ContractViolation(
            "other labels on the same images give other tasks; let query read batch.query or batch.images "
            "alone (a strategy that must be told the task is a control: control=True in its component)"
        )


@check("retrieval")
def check_refuses_before_any_task(subject: Subject) -> None:
    """Asked before any task was seen, retrieve names none but raises an error."""
    bench, strategy = _asked(subject)
    query = strategy.query(bench.batch(torch.arange(4))).float().detach()
    try:
        found = strategy.retrieve(query, (), torch.empty(0, dtype=torch.long))
    # Whatever it raises, it names no task.
    except Exception:
        return
    raise ContractViolation(
        f"retrieve names tasks {found.tolist()} though none was seen; choose among the tasks in seen, and "
        "raise a ValueError where there are none"
    )


@check("retrieval")
def check_keys_are_rows(subject: Subject) -> None:
    """Keys, where there are any, are rows as wide as a query: [K, dim]."""
    bench, strategy = _asked(subject)
    keys = strategy.keys(bench.context(TASKS - 1))
    if keys is None:
        raise NotApplicable("it has no keys")
    query = strategy.query(bench.batch(torch.arange(4)))
    if keys.ndim != 2 or keys.shape[1] != query.shape[1]:
        raise ContractViolation(
            f"let keys return [K, {query.shape[1]}], a row as wide as a query for each key, not "
            f"{list(keys.shape)}"
        )


@check("retrieval")
def check_phases_leave_sets_alone(subject: Subject) -> None:
    """Beginning a task and the strategy's own phases change neither baseline nor sets."""
    run = learned(subject)
    for task in range(run.tasks):
        notes = [(phase, state) for index, phase, state in run.phases if index == task]
        number = next(place for place, (phase, _) in enumerate(notes) if phase == "decided")
        states = [state for _, state in notes[number:]]
        names = [phase for phase, _ in notes[number:]]
        for place in range(names.index(HOST_PHASE)):
            moved = changed(states[place], states[place + 1])
            if touched := [name for name in moved if not name.startswith("retrieval.")]:
                what = "begin_task" if place == 0 else f"phase {names[place]!r}"
                raise ContractViolation(
                    f"{what} of task {task + 1} changes {touched[0]!r}; a retrieval strategy changes its own "
                    "parameters and buffers alone"
                )
