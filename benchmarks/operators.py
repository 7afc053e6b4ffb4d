"""Operators of a training step beside bare timm's, counted on a CPU: what a small batch waits for on a GPU.

There each operator is a launch at least, and at the published batch of 24 a step takes as long as its
launches. Views are left out, because they launch nothing. Steps are those of lw2g's own loop, optimizer
included, in bf16, on random weights, with un-prompted queries known. ``--kinds`` lists what the operators
are. Attention, dropout and products are those of a GPU (fused, and torch's own); ``--cpu`` takes this
machine's.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from training import EVERY_TASK, Known

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from gpu.components import LabPlugin, random_backbone
from gpu.lab import Lab
from gpu.stage import staged

from lw2g.runtime.engine import BF16
from lw2g_testing.tiny import tiny_catalogue

BARE = "bare timm"
METHODS = ("dual-prompt", "hide-prompt", "coda-prompt", "ranpac", "every-task")
GOALS = {"dual-prompt": 525, "hide-prompt": 525, "coda-prompt": 525, "ranpac": 700, "every-task": 700}
BATCH = 4
"""Operators do not depend on it."""


class Counted(TorchDispatchMode):
    """Counts the operators that compute something, by name.

    Attributes:
        found: Number of calls by operator.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note an operator and call it."""
        if not _is_view(func):
            self.found[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def _is_view(func: Any) -> bool:
    """Whether an operator returns a view of an argument, which is aliased and not written to."""
    if func.overloadpacket is torch.ops.aten._unsafe_view:  # declares none, and is one
        return True
    aliased = [one.alias_info for one in func._schema.returns if one.alias_info is not None]
    return bool(aliased) and not any(one.is_write for one in aliased)


def of_bare_timm(model: str) -> Counter[str]:
    """Count timm's own forward and its backward to the tokens."""
    vit: Any = copy.deepcopy(random_backbone(model)).to_bf16().model
    size = vit.patch_embed.img_size[0]
    nothing = nn.Parameter(torch.zeros(()))
    images = torch.randn(BATCH, 3, size, size)
    with Counted() as counted:
        with torch.autocast("cpu", torch.bfloat16):
            loss = vit.forward_features(images + nothing)[:, 0].sum()
        torch.autograd.grad(loss, nothing)
    return counted.found


def of_step(lab: Any, model: str, baseline: str) -> Counter[str]:
    """Count the last of three steps of the host phase: the first one makes the optimizer's state."""
    options = {"backbone.model": model, "run.precision": BF16}
    if baseline == "every-task":
        options |= EVERY_TASK
        baseline = options.pop("baseline")
    names = {"benchmark": "noise", "backbone": "random"}
    stage = staged(lab, Lab.resolve(lab, baseline, "one", options, **names))
    images = Known(stage.session, stage.context.task.classes, 3 * BATCH, BATCH)
    seen: list[Counter[str]] = []
    with Counted() as counted:
        stage.train(images, BATCH, lambda *_: seen.append(counted.found.copy()))
    return seen[1] - seen[0]


def _dropout(x: torch.Tensor, p: float, training: bool, inplace: bool = False) -> torch.Tensor:
    """Dropout in one operator, as torch has it on a GPU; on a CPU it is written out."""
    return torch.native_dropout(x, p, True)[0] if training and p else x


def as_on_a_gpu() -> contextlib.ExitStack:
    """Return a context in which attention and products are those that a GPU computes."""
    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch("lw2g.vit.backbone.attention_now", return_value="timm's"))
    stack.enter_context(mock.patch("lw2g.model.parts.has_packed_products", return_value=False))
    stack.enter_context(mock.patch("torch.nn.functional.dropout", _dropout))
    return stack


def main() -> None:
    """Print a line per method, and what its operators are where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="vit_tiny_patch16_224", help="timm architecture, or toy")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--kinds", type=int, default=0, metavar="N", help="list the N most frequent ones")
    parser.add_argument("--cpu", action="store_true", help="count what this CPU computes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lab = SimpleNamespace(catalogue=tiny_catalogue(LabPlugin()), device=torch.device("cpu"))
    with contextlib.nullcontext() if given.cpu else as_on_a_gpu():
        counts = {BARE: of_bare_timm(given.model)}
        for name in given.methods.split(","):
            counts[name] = of_step(lab, given.model, name)
    bare = counts[BARE].total()
    print(f"{'':16s} operators  x {BARE}   goal")
    for name, found in counts.items():
        print(f"{name:16s} {found.total():9d} {found.total() / bare:12.2f} {GOALS.get(name, '-'):>6}")
        for kind, number in found.most_common(given.kinds):
            print(f"    {number:5d} {kind}")


if __name__ == "__main__":
    main()
