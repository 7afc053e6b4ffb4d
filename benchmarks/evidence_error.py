"""Is the claimed error of Z, and of the difference between the Z of two sets, its error? Brute force.

Some tasks are learned, a set each; then the evidence on the next one is collected again and again, each time
with another evidence sample and other draws of the new classes' head. The spread over them is what an error
claims; both are root mean squares over sets, or over pairs of sets. Draws of a head are compared with heads
fitted to held-out queries, by variance times seconds: what a fixed time buys.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor
from torch.nn import functional

from lw2g.config.resolve import resolve
from lw2g.disk.checkpoint import CheckpointStore
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.growth import error_of_difference
from lw2g.interfaces.tracker import Event, TaskDecided
from lw2g.learning.evidence.collecting import collect_evidence
from lw2g.learning.evidence.evidence_sample import EvidenceSample
from lw2g.learning.session import Session, open_session
from lw2g.learning.state import restore
from lw2g.lifecycle.runner import start
from lw2g.pixels.image_set import ImageSet
from lw2g.registry.catalogue import load_catalogue

_HELD_OUT = 128
_GLYPHS = {
    "benchmark": {"name": "glyphs", "train_per_class": 150, "test_per_class": 2},
    "backbone": {"name": "micro"},
    "baseline": {"name": "s-prompt-plus-plus", "epochs": 3},
    "run": {"device": "cpu"},
}


class _Arrived(Exception):
    """The task to be measured has arrived."""


@attrs.frozen
class _StopAt:
    task: int

    def on_event(self, event: Event) -> None:
        if isinstance(event, TaskDecided) and event.task == self.task:
            raise _Arrived

    def close(self) -> None:
        """Nothing to close."""


def session_before(task: int, config: Path | None) -> Session:
    """Return a run that has learned all tasks before ``task``, each with a set of its own."""
    catalogue = load_catalogue()
    resolved = resolve(
        catalogue,
        file=config or _GLYPHS,
        overrides={"growth.measures": ["hindrance"]},
        policy="always",
    )
    session = open_session(resolved.config, catalogue)
    with tempfile.TemporaryDirectory() as folder:
        with suppress(_Arrived):
            start(resolved, catalogue, Path(folder) / "run", [_StopAt(task)])
        restore(session, CheckpointStore(Path(folder) / "run" / "checkpoints").of_task(task - 1))
    session.parts.begin_task(task)
    return session


@contextmanager
def fitted_heads(session: Session, images: ImageSet) -> Iterator[None]:
    """Let ``draw_head`` fit the rows to the un-prompted queries of a random sample, not draw them."""
    baseline = session.parts.baseline
    head: Any = baseline.head

    def fit(task: TaskInfo) -> None:
        chosen = torch.randperm(len(images))[:_HELD_OUT].tolist()
        with torch.enable_grad():
            queries, labels = images.queries(chosen), images.labels[chosen] - task.classes[0]
            weight = torch.zeros(len(task.classes), queries.shape[1], requires_grad=True)
            solver = torch.optim.LBFGS([weight], max_iter=50)

            def loss() -> Any:
                solver.zero_grad()
                value = functional.cross_entropy(queries @ weight.T, labels) + 0.01 * weight.square().sum()
                value.backward()  # type: ignore[no-untyped-call]
                return value

            solver.step(loss)
        head.weight.data[list(task.classes)] = weight.detach()

    baseline.draw_head = fit  # type: ignore[method-assign]
    try:
        yield
    finally:
        del baseline.draw_head


def spread(
    session: Session, pictures: ImageSet, task: int, repeats: int, **options: Any
) -> dict[str, tuple[float, float, float, float]]:
    """Return of Z and of differences: mean, spread over independent samples and heads, claimed, seconds."""
    growth = attrs.evolve(session.parts.config.growth, **options)
    own = session.parts.baseline.state_dict()
    own = {name: value.clone() for name, value in own.items()}
    z, replicates, began = [], [], time.process_time()
    for repeat in range(repeats):
        if growth.evidence == "literal":  # it takes the head as it is
            torch.manual_seed(repeat)
            session.parts.baseline.load_state_dict(own)
            session.parts.baseline.draw_head(session.parts.infos[task])
        evidence_sample = EvidenceSample(
            session.parts.infos[task],
            pictures,
            session.parts.backbone,
            session.parts.engine,
            growth,
            1000 + repeat,
        )
        evidence = collect_evidence(session.parts, evidence_sample)
        found = [candidate.measures["hindrance"] for candidate in evidence.candidates]
        z.append([one.value for one in found])
        replicates.append([one.replicates for one in found])
    session.parts.baseline.load_state_dict(own)
    seconds, sets = (time.process_time() - began) / repeats, len(z[0])
    compared = {
        "Z": [(one, None) for one in range(sets)],
        "difference": itertools.combinations(range(sets), 2),
    }
    return {
        name: (*_figures(torch.tensor(z), replicates, list(pairs)), seconds)
        for name, pairs in compared.items()
    }


def _figures(
    z: Tensor, replicates: list[list[tuple[float, ...]]], pairs: list[tuple[int, int | None]]
) -> tuple[float, float, float]:
    """Return mean, spread and claim of the Z of sets, or of their differences, ``[repeats, sets]``."""
    values = torch.stack([z[:, a] - (0 if b is None else z[:, b]) for a, b in pairs])
    claims = [
        error_of_difference(of[a], [0.0] * len(of[a]) if b is None else of[b])
        for of in replicates
        for a, b in pairs
    ]
    claimed = torch.tensor(claims).square().mean().sqrt()
    return float(values.mean()), float(values.var(dim=1).mean().sqrt()), float(claimed)


def main() -> None:
    """Print the table."""
    heads: dict[str, dict[str, Any]] = {
        "literal": {"evidence": "literal"},
        **{str(draws): {"draws": draws} for draws in (2, 4, 8)},
        "fitted": {"draws": 2},
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, help="an experiment of its own in place of glyphs")
    parser.add_argument("--task", type=int, default=2, help="the one that is measured, from 0")
    parser.add_argument("--images", type=int, nargs="+", default=[128])
    parser.add_argument("--heads", nargs="+", default=list(heads), choices=heads)
    parser.add_argument("--repeats", type=int, default=32)
    arguments = parser.parse_args()
    session = session_before(arguments.task, arguments.config)
    pictures = session.data.image_set([session.data.stream.tasks[arguments.task].train], train=False)
    print(
        "| images | heads | of | mean | spread | claimed | claimed / spread | seconds | variance x seconds |"
    )
    print("| --- " * 9 + "|")
    for size, name in itertools.product(arguments.images, arguments.heads):
        with fitted_heads(session, pictures) if name == "fitted" else nullcontext():
            found = spread(session, pictures, arguments.task, arguments.repeats, images=size, **heads[name])
        for of, (mean, true, claimed, seconds) in found.items():
            numbers = (mean, true, claimed, claimed / true, seconds, true**2 * seconds)
            print(f"| {size} | {name} | {of} |", *(f"{one:.3g} |" for one in numbers), flush=True)


if __name__ == "__main__":
    main()
