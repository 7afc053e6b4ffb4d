"""What goes stale when tasks share a set, and how much of it each carry mends under each head in closed form.

    python experiments/growth/drift.py RUN [--features FILE] [--every 5] [--beside]

RUN is finished and has one set (policy ``one``, or a method that never grows), with its checkpoints. A head
in closed form keeps sums over the features of each task as they were when the task ended; then the set
moves on. Each row is a carry (``baseline.head_carry``), fitted after each task to the features of *its own*
images before and after it; ``residual`` adds what ``auto`` leaves unexplained (``baseline.head_residual``).
``fresh``: all training images under the last set, which no stream has: an upper bound. ``frozen``: all
under that of the first task, which never moves. FAA on every N-th test image. ``--beside`` puts the
features under the set of the first task, which no carry has to follow, beside those under the newest.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lw2g.blocks.carrying import CARRIES
from lw2g.blocks.closed_form import ClosedForm, Cosine
from lw2g.blocks.discriminants import Discriminant, KernelDiscriminant
from lw2g.blocks.mahalanobis import Mahalanobis
from lw2g.blocks.ridge import Ridge
from lw2g.model.trained import TrainedModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "routing"))
from compare import asked, opened

Rows = tuple[Tensor, Tensor]
"""Features ``[n, dim]`` and labels ``[n]``."""


def features(run: Path, every: int, kept: Path | None) -> dict[str, Rows]:
    """Return features of tasks' images under the set as some task has left it, by ``task@after``.

    Of every task before and after it was learned, of all under the first set and the last, and of test
    images (``test@after``) under these. What was found is kept in a file as it comes.
    """
    found: dict[str, Rows] = torch.load(kept) if kept is not None and kept.exists() else {}
    tasks = len(opened(run, task=0).session.data.stream.tasks)
    for after in range(tasks):
        whole = after in (0, tasks - 1)
        wanted = range(tasks) if whole else (after, after + 1)
        missing = [task for task in wanted if f"{task}@{after}" not in found]
        if not missing and not (whole and f"test@{after}" not in found):
            continue
        model = opened(run, task=after)
        session = model.session
        if len(session.parts.pool) != 1:
            raise SystemExit(f"{run} has {len(session.parts.pool)} sets: give a run whose tasks share one")
        for task in missing:
            images = session.data.image_set([session.data.stream.tasks[task].train], train=False)
            found[f"{task}@{after}"] = _under_the_set(model, images, 1)
        if whole:
            images = session.data.image_set([one.test for one in session.data.stream.tasks], train=False)
            found[f"test@{after}"] = _under_the_set(model, images, every)
        if kept is not None:
            torch.save(found, kept)
    return found


@torch.no_grad()
def _under_the_set(model: TrainedModel, images: object, every: int) -> Rows:
    rows = np.arange(0, len(images), every)  # type: ignore[arg-type]
    answers = asked(model, images, rows, np.zeros((len(rows), 1), dtype=int), retrieve=False)
    return answers.features[:, 0].double(), answers.labels


def accuracy(
    head: ClosedForm, found: Mapping[str, Rows], tasks: int, carry: str, at: int | None = None
) -> float:
    """Return the FAA in percent of a head that learned task by task.

    Args:
        head: The head.
        found: Features by ``task@after``.
        tasks: Number of tasks.
        carry: What moves its sums after each task.
        at: The task after which all features were taken; None for each task's own end, as in a stream.
    """
    member, residual = CARRIES[carry.removesuffix(" + residual")], carry.endswith("residual")
    learned: list[int] = []
    for task in range(tasks):
        rows, labels = found[f"{task}@{task if at is None else at}"]
        if task and at is None:
            motion, _ = member.fit(found[f"{task}@{task - 1}"][0], rows, labels, residual=residual)
            head.carry(motion, learned)
        head.learn(rows, labels, torch.Generator().manual_seed(task))
        learned += labels.unique().tolist()
    rows, labels = found[f"test@{tasks - 1 if at is None else at}"]
    right = head.scores(rows, len(head.count)).argmax(1) == labels
    each = [right[torch.isin(labels, found[f"{task}@{task}"][1])] for task in range(tasks)]
    return 100 * float(torch.stack([own.double().mean() for own in each]).mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--features", type=Path, help="where features are kept, for another time")
    parser.add_argument("--every", type=int, default=5, help="every N-th test image (5)")
    parser.add_argument("--beside", action="store_true", help="with the features of the first task's set")
    arguments = parser.parse_args()
    found = features(arguments.run, arguments.every, arguments.features)
    if arguments.beside:
        still = {name: found[f"{name.partition('@')[0]}@0"][0] for name in found}
        found = {name: (torch.cat([rows, still[name]], 1), labels) for name, (rows, labels) in found.items()}
    tasks = max(int(name.partition("@")[2]) for name in found) + 1
    last = tasks - 1
    dim, classes = found["0@0"][0].shape[1], int(found[f"{last}@{last}"][1].max()) + 1
    heads: dict[str, Callable[[], ClosedForm]] = {
        "cosine": lambda: Cosine(dim, classes),
        "lda": lambda: Discriminant(dim, classes),
        "mahalanobis": lambda: Mahalanobis(dim, classes),
        "ridge": lambda: Ridge(dim, classes, 0, 0),
        "ridge, 2000": lambda: Ridge(dim, classes, 2000, 0, carried=True),
        "klda, 2000": lambda: KernelDiscriminant(dim, classes, 2000, 0, carried=True),
    }
    rows = {carry: (carry, None) for carry in (*CARRIES, "auto + residual")}
    rows |= {"fresh": ("none", last), "frozen": ("none", 0)}
    print(f"| carry | {' | '.join(heads)} |\n| --- |{' ---: |' * len(heads)}")
    for name, (carry, at) in rows.items():
        figures = [f"{accuracy(make(), found, tasks, carry, at):.1f}" for make in heads.values()]
        print(f"| {name} | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
