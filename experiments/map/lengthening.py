"""One prompt set that grows longer: a share of its tokens joins with each task, old ones trained or frozen.

    python experiments/map/lengthening.py DATA/map RUNS FILE --orders 0 1 2

It runs `dual-prompt` of 50 tokens as `map.toml` does, but a task sees only the tokens that have joined by
then (5 at first), and writes RUNS/lengthening-ORDER beside the sweeps, so that `table.py` shows its rows.
Finished runs are kept.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

import attrs
import torch

import lw2g
from lw2g.blocks.prefixes import chosen_prefixes, inject_prefixes
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.phase import Phase
from lw2g.interfaces.pool import Routing
from lw2g.registry.catalogue import load_catalogue
from lw2g.vit.prefix import PrefixInjection
from lw2g_prompts.dual_prompt import DualPrompt
from lw2g_prompts.options import DualPromptConfig

LENGTH = 50
STREAMS = {"caltech": 5, "cifar-unlike": 5, "turns-unlike": 5, "pacs-unlike": 3}


class Lengthening(DualPrompt):
    """A set of which only the tokens count that have joined by the newest task."""

    frozen = False

    def __init__(self, config: DualPromptConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.register_buffer("joined", torch.zeros(2, dtype=torch.int64))  # before the newest task, and now

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Let the task's tokens join."""
        tasks, task = self.context.num_tasks, context.task.index
        ends = [LENGTH * index // tasks for index in (task, task + 1)]
        self.joined.copy_(torch.tensor(ends))
        return super().phases(context)

    def injections(self, routing: Routing, size: int) -> Sequence[PrefixInjection]:
        """Return the tokens that have joined, and the G-prompt."""
        old, now = self.joined.tolist()
        halves = [half[..., :now, :] for half in chosen_prefixes(routing)]
        if self.frozen:
            halves = [torch.cat([half[..., :old, :].detach(), half[..., old:, :]], dim=-2) for half in halves]
        shared = inject_prefixes(self.shared_blocks, self.shared_prompt.key, self.shared_prompt.value)
        return (inject_prefixes(self.prefixes.blocks, halves[0], halves[1]), shared)


class Frozen(Lengthening):
    """The same, with old tokens frozen."""

    frozen = True


ROWS = {"one set that grows to length 50": Lengthening, "the same, old tokens frozen": Frozen}


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("streams", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--orders", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    streams, runs, weights = (path.resolve() for path in vars(arguments).values() if isinstance(path, Path))
    known = load_catalogue().get("baseline", "dual-prompt")
    options = {
        "baseline.length": LENGTH,
        "baseline.epochs": 5,
        "baseline.head": "lda",
        "baseline.head_carry": "affine",
        "benchmark.train_per_class": 20,
        "benchmark.test_per_class": 20,
        "benchmark.train_transform": "none",
        "benchmark.test_resize": "squash",
        "backbone.model": "vit_tiny_patch16_224",
        "backbone.image_size": 64,
        "backbone.mean": [0.5] * 3,
        "backbone.std": [0.5] * 3,
    }
    for order in arguments.orders:
        os.chdir(streams / str(order))
        folder, cells = runs / f"lengthening-{order}", []
        folder.mkdir(parents=True, exist_ok=True)
        for label, method in ROWS.items():
            for root, increment in STREAMS.items():
                name = f"{method.__name__.lower()}-{root}"
                cells.append({"name": name, "label": label, "settings": {"benchmark.root": root}})
                (folder / "sweep.json").write_text(json.dumps({"cells": cells}))
                if (folder / name / "record.json").exists():
                    continue
                record = lw2g.run(
                    baseline=attrs.evolve(known, name=f"local-{method.__name__.lower()}", build=method),
                    policy="one",
                    constraints="none",
                    benchmark="folder",
                    backbone="timm",
                    weights=weights,
                    precision="bf16-mixed",
                    out=folder / name,
                    **{**options, "benchmark.root": root, "benchmark.increment": increment},
                )
                print(order, root, label, record.metrics["faa"], flush=True)


if __name__ == "__main__":
    main()
