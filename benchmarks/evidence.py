"""Evidence on one sample as the number of candidate sets grows: seconds, and their ratio to one set's."""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from lw2g.config.resolve import resolve
from lw2g.learning.evidence.collecting import collect_evidence
from lw2g.learning.evidence.spaces import absorb_task
from lw2g.learning.session import Session, open_session
from lw2g.registry.catalogue import load_catalogue

BASELINES = ("s-prompt-plus-plus", "dual-prompt", "hide-prompt", "hide-lora", "inflora")


def session_with(baseline: str, weights: Path | None, **growth: Any) -> Session:
    """Return a session of two glyph tasks; with weights, of a ViT-Tiny at 96 pixels."""
    catalogue = load_catalogue()
    tiny = {"backbone.model": "vit_tiny_patch16_224.augreg_in21k_ft_in1k"}
    chosen = {
        "benchmark.train_per_class": 30,
        "benchmark.test_per_class": 1,
        "run.device": "cpu",
        "run.precision": "32-true",
        **{f"growth.{name}": value for name, value in growth.items()},
        **({} if weights is None else {**tiny, "backbone.weights": str(weights), "backbone.image_size": 96}),
    }
    resolved = resolve(
        catalogue,
        baseline=baseline,
        policy="min",
        benchmark="glyphs",
        backbone="micro" if weights is None else "timm",
        overrides=chosen,
    )
    return open_session(resolved.config, catalogue)


def give_sets(session: Session, count: int) -> None:
    """Let the pool have ``count`` random sets that protect what the first task activates."""
    pool, memory = session.parts.pool, session.parts.memory
    if not len(pool):
        session.parts.begin_task(0)
        pool.grow(session.parts.new_set(None))
        images = session.data.image_set([session.data.stream.tasks[0].train], train=False)
        context, evidence_sample = session.task_context(0, images), session.parts.evidence_sample(0, images)
        _stir(pool[0])
        absorb_task(session.parts, context, evidence_sample)
        session.parts.begin_task(1)
    state = memory.state_dict()
    first = {key.removeprefix("0/"): value for key, value in state.items() if key.startswith("0/")}
    while len(pool) < count:
        new = pool.grow(session.parts.new_set(None))
        _stir(pool[new])
        state |= {f"{new}/{key}": value for key, value in first.items()}
    memory.load_state_dict(state, session.parts.engine.device)


@torch.no_grad()
def _stir(parameters: torch.nn.Module) -> None:
    for parameter in parameters.parameters():
        parameter.add_(0.02 * torch.randn_like(parameter))


def seconds(session: Session) -> float:
    """Collect the evidence on the second task, whose images nobody has read yet; return the CPU seconds."""
    images = session.data.image_set([session.data.stream.tasks[1].train], train=False)
    began = time.process_time()
    collect_evidence(session.parts, session.parts.evidence_sample(1, images))
    return time.process_time() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, help="of a ViT-Tiny, used at 96 pixels; left out: micro")
    parser.add_argument("--baselines", nargs="+", default=BASELINES)
    parser.add_argument("--sets", nargs="+", type=int, default=(1, 20))
    parser.add_argument("--screen", type=int, default=0, help="growth.screen: sets measured in full; 0: all")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("baseline             " + "".join(f"{count:5d} sets s  ratio" for count in arguments.sets))
    options = {"screen": arguments.screen} if arguments.screen else {}
    for baseline in arguments.baselines:
        session = session_with(baseline, arguments.weights, **options)
        figures = []
        for count in sorted(arguments.sets):
            give_sets(session, count)
            figures.append(statistics.median(seconds(session) for _ in range(arguments.repeat)))
        row = "".join(f"{one:12.2f}  {one / figures[0]:5.2f}" for one in figures)
        print(f"{baseline:21s}{row}", flush=True)
