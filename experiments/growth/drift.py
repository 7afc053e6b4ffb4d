"""What goes stale when tasks share a set, and how much of it can be carried along: heads in closed form.

    python experiments/growth/drift.py RUN [--features FILE] [--every 5]

RUN is finished and has one set (policy ``one``), with its checkpoints. A head in closed form keeps sums over
the features of each task as they were when the task ended; then the set moves on. Rows, each read by LDA and
by ridge regression on random features, on every N-th test image:

``stale``: sums as a stream has them. ``carried``: after each task the features of *its own* images before and
after it give an affine map, by which the sums of all older classes are moved (``baseline.head_carry`` does so
for LDA; here single features are moved, so that ridge can be asked, too). ``fresh``: all training images
under the last set, which no stream has: an upper bound. ``frozen``: all under that of the first task, which
never moves.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lw2g.blocks.carrying import CARRIES
from lw2g.blocks.closed_form import ClosedForm, Discriminant, Ridge
from lw2g.training.models.model import TrainedModel

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
    tasks = len(opened(run, task=0)._parts.stream.tasks)
    for after in range(tasks):
        whole = after in (0, tasks - 1)
        wanted = range(tasks) if whole else (after, after + 1)
        missing = [task for task in wanted if f"{task}@{after}" not in found]
        if not missing and not (whole and f"test@{after}" not in found):
            continue
        model = opened(run, task=after)
        session = model._parts
        if len(session.pool) != 1:
            raise SystemExit(f"{run} has {len(session.pool)} sets: give a run whose tasks share one")
        for task in missing:
            images = session.image_set([session.stream.tasks[task].train], train=False)
            found[f"{task}@{after}"] = _under_the_set(model, images, 1)
        if whole:
            images = session.image_set([one.test for one in session.stream.tasks], train=False)
            found[f"test@{after}"] = _under_the_set(model, images, every)
        if kept is not None:
            torch.save(found, kept)
    return found


@torch.no_grad()
def _under_the_set(model: TrainedModel, images: object, every: int) -> Rows:
    rows = np.arange(0, len(images), every)  # type: ignore[arg-type]
    answers = asked(model, images, rows, np.zeros((len(rows), 1), dtype=int), retrieve=False)
    return answers.features[:, 0].double(), answers.labels


def carried(found: Mapping[str, Rows], tasks: int) -> list[Rows]:
    """Return the features of each task, moved along with every task after it."""
    known: list[Rows] = []
    for task in range(tasks):
        own, labels = found[f"{task}@{task}"]
        if task:
            moves, _ = CARRIES["affine"].fit(found[f"{task}@{task - 1}"][0], own, labels)
            known = [(moves(rows), classes) for rows, classes in known]
        known.append((own, labels))
    return known


def accuracy(head: ClosedForm, known: Sequence[Rows], test: Rows) -> float:
    """Return FAA of a head that was shown features task by task, in percent."""
    for task, (rows, labels) in enumerate(known):
        head.learn(rows, labels, torch.Generator().manual_seed(task))
    rows, labels = test
    right = head.scores(rows, len(head.count)).argmax(1) == labels
    each = [right[torch.isin(labels, classes)].double().mean() for _, classes in known]
    return 100 * float(torch.stack(each).mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--features", type=Path, help="where features are kept, for another time")
    parser.add_argument("--every", type=int, default=5, help="every N-th test image (5)")
    arguments = parser.parse_args()
    found = features(arguments.run, arguments.every, arguments.features)
    tasks = max(int(name.partition("@")[2]) for name in found) + 1
    last = tasks - 1
    rows = {
        "stale": ([found[f"{task}@{task}"] for task in range(tasks)], last),
        "carried": (carried(found, tasks), last),
        "fresh": ([found[f"{task}@{last}"] for task in range(tasks)], last),
        "frozen": ([found[f"{task}@0"] for task in range(tasks)], 0),
    }
    print("| sums over features | lda | ridge |\n| --- | --- | --- |")
    for name, (known, after) in rows.items():
        dim, classes = known[0][0].shape[1], int(known[-1][1].max()) + 1
        heads = (Discriminant(dim, classes), Ridge(dim, classes, 2000, 0))
        told = [f"{accuracy(head, known, found[f'test@{after}']):.1f}" for head in heads]
        print(f"| {name} | {' | '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()
