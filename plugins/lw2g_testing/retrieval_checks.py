"""Checks of a retrieval strategy: it scores the seen tasks, and changes nothing but itself.

They use the baseline :data:`lw2g.interfaces.defaults.HOST`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch

from lw2g.interfaces.context import task_of_class
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g_testing.cases import ContractViolation, Subject, check
from lw2g_testing.changes import changed
from lw2g_testing.guards import seeded
from lw2g_testing.moved_session import moved_session
from lw2g_testing.small_run import HOST_PHASE, begin, learned, opened


@check("retrieval", applies=lambda subject: not subject.component.control)
def check_scores_each_seen_task(subject: Subject) -> None:
    """Each seen task gets a score, and keys are as wide as a query."""
    now = moved_session(subject)
    strategy = cast(RetrievalStrategy, now.session.parts.retrieval)
    size = now.images
    batch = now.batch(range(size))
    with torch.no_grad():
        query = strategy.query(batch).float()
    for tasks in range(1, len(now.session.parts.infos) + 1):
        table = task_of_class(now.session.parts.infos[:tasks], query.device)
        with torch.no_grad():
            scores = strategy.scores(query, range(tasks), table)
        if scores.shape != (size, tasks) or not scores.is_floating_point():
            raise ContractViolation(
                f"let scores return floating numbers [{size}, {tasks}] for {size} queries and {tasks} seen "
                f"tasks, not {scores.dtype} {list(scores.shape)}"
            )
    with seeded(0):
        fresh = opened(subject)
        keys = cast(RetrievalStrategy, fresh.parts.retrieval).keys(begin(fresh, 0))
    if keys is not None and (keys.ndim != 2 or keys.shape[1] != query.shape[1]):
        raise ContractViolation(
            f"let keys return [K, {query.shape[1]}], a row as wide as a query for each key, not "
            f"{list(keys.shape)}"
        )


@check("retrieval")
def check_phases_leave_sets_alone(subject: Subject) -> None:
    """begin_task and the strategy's phases change neither baseline nor sets."""
    run = learned(subject)
    for task in range(run.tasks):
        notes = [(phase, state) for index, phase, state in run.phases if index == task]
        names = [phase for phase, _ in notes]
        # from the decision until the host trains, the strategy alone is at work
        of_strategy = notes[names.index("decided") : names.index(HOST_PHASE) + 1]
        for (name, before), (_, after) in pairwise(of_strategy):
            for tensor in changed(before, after):
                if tensor.startswith("retrieval."):
                    continue
                what = "begin_task" if name == "decided" else f"phase {name!r}"
                raise ContractViolation(
                    f"{what} of task {task + 1} changes {tensor!r}; a retrieval strategy changes its own "
                    "parameters and buffers alone"
                )
