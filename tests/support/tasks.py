"""Tasks, their contexts and builds made by hand, for whatever is driven without a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lw2g.interfaces.context import BuildContext, Maker, TaskContext, TaskInfo
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.vit.anatomy import Rung, checked_blocks
from lw2g.vit.taps import Tap
from lw2g_carries.plugin import lw2g_carries
from lw2g_heads.plugin import lw2g_heads

__all__ = ["CPU", "Sizes", "build_of", "given_set", "retrieved", "task_context", "tasks_of"]

CPU = torch.device("cpu")


class Sizes:
    """The sizes of a backbone that has a place for everything."""

    def __init__(self, dim: int, depth: int = 6) -> None:
        self.dim = dim
        self.width = dim
        self.depth = depth

    def require(self, *asked: object) -> None:
        """Refuse nothing."""

    require_class_token = require

    def check_blocks(self, blocks: Sequence[int], path: str, rung: Rung | None = None) -> tuple[int, ...]:
        """Refuse blocks that are not there."""
        return checked_blocks(nn.Identity(), self.depth, blocks, path)

    require_one_layer = require

    def joining(self) -> AbstractContextManager[None]:
        """Features are of one layer."""
        return nullcontext()

    def key_tap(self, block: int) -> Tap:
        """Return the tap of the projected queries."""
        return Tap(block, "query")


def build_of(backbone: Any = None, *, num_tasks: int = 4, num_classes: int = 8, dim: int = 8) -> BuildContext:
    """Return what components are built from; without a backbone there are its sizes alone."""
    sizes = Sizes(dim) if backbone is None else backbone
    return BuildContext(
        backbone=sizes,
        num_tasks=num_tasks,
        num_classes=num_classes,
        device=CPU,
        seed=0,
        heads={head.name: Maker(build=partial(head.build, head.config())) for head in lw2g_heads()},
        carries={
            carry.name: Maker(build=partial(carry.build, carry.config()), wraps=carry.wraps)
            for carry in lw2g_carries()
        },
    )


def tasks_of(sizes: Iterable[int], *, images: int = 2, names: Sequence[str] = ()) -> tuple[TaskInfo, ...]:
    """Return tasks of so many classes each, numbered in turn, with so many images a class."""
    infos: list[TaskInfo] = []
    for index, size in enumerate(sizes):
        first = infos[-1].seen if infos else 0
        classes = tuple(range(first, first + size))
        infos.append(
            TaskInfo(
                index=index,
                classes=classes,
                class_names=tuple(names[label] if names else f"c{label}" for label in classes),
                seen=first + size,
                num_images=images * size,
            )
        )
    return tuple(infos)


def given_set(pool: Pool, reuse: int | None = None, new: nn.Module | None = None) -> int:
    """Give the next task a set, a new one where none is to be reused; return its id."""
    return pool.grow(new or nn.Module()) if reuse is None else pool.reuse(reuse)


def task_context(pool: Pool, history: tuple[TaskInfo, ...], **said: Any) -> TaskContext:
    """Return the context of the last of some tasks, which has its set in the pool already."""
    index = history[-1].index
    set_id = pool.task_to_set[index]
    defaults: dict[str, Any] = {
        "set_id": set_id,
        "grew": set_id not in pool.task_to_set[:index],
        "retrieval": None,
        "memory": None,
        "pretrained_space": None,
        "backbone": None,
        "statistics": lambda size: (),
    }
    return TaskContext(task=history[-1], history=history, pool=pool, device=CPU, seed=0, **(defaults | said))


def retrieved(strategy: RetrievalStrategy, query: Tensor, seen: Sequence[int], of_class: Tensor) -> Tensor:
    """Return the task that a strategy's scores retrieve for each query, ``[B]``."""
    return torch.tensor(list(seen))[strategy.scores(query, seen, of_class).argmax(dim=1)]
