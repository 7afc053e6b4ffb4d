"""Draws of the new classes' head rows; evidence is averaged over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from lw2g.config.settings import GrowthConfig
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.context import TaskInfo, derive_seed

__all__ = ["head_draws"]


@contextmanager
def head_draws(
    baseline: Baseline, task: TaskInfo, options: GrowthConfig, seed: int
) -> Iterator[list[Callable[[], None]]]:
    """Yield functions that put each draw of a task's head in place; restore the parameters bit for bit.

    The literal evidence uses only the head that training begins with. The caller keeps torch's
    global generator.

    Args:
        baseline: Whose head is drawn.
        task: The task that has arrived.
        options: Which evidence, and how many draws.
        seed: The run's seed.
    """
    if options.evidence == "literal":
        yield [lambda: None]  # one draw, which is in place
        return
    before = {parameter: parameter.detach().clone() for parameter in baseline.parameters()}
    draws: list[dict[nn.Parameter, Tensor]] = []
    try:
        for number in range(options.draws):
            _put(before)
            torch.manual_seed(derive_seed(seed, "task", task.index, "head", number))
            baseline.draw_head(task)
            # only what a draw touches is written later: the rest may be part of a forward's graph
            drawn: dict[nn.Parameter, Tensor] = {}
            for parameter, old in before.items():
                if not parameter.equal(old):
                    drawn[parameter] = parameter.detach().clone()
            draws.append(drawn)
        _put(before)
        yield [partial(_put, draw) for draw in draws]
    finally:
        _put(before)


@torch.no_grad()
def _put(values: Mapping[nn.Parameter, Tensor]) -> None:
    for parameter, value in values.items():
        parameter.copy_(value)
