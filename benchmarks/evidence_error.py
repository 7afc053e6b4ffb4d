"""Is the claimed error of Z its error? Brute force over samples and heads, with s-prompt-plus-plus on glyphs.

Some tasks are learned; then the evidence on the next one is collected again and again, each time with another
D_sub and other draws of the new classes' head. The spread of Z is what is claimed. Draws of a
head are compared with heads fitted to held-out queries, by variance times seconds: what a fixed time buys.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import attrs
import torch
from torch.nn import functional

from lw2g.config.resolve import resolve
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.tracker import Event, TaskDecided
from lw2g.registry.catalogue import load_catalogue
from lw2g.training.evidence.collecting import collect_evidence
from lw2g.training.evidence.probe import Probe
from lw2g.training.files.checkpoint import CheckpointStore
from lw2g.training.files.state import restore
from lw2g.training.images.image_set import ImageSet
from lw2g.training.runner import start
from lw2g.training.session import Session, open_session

_HELD_OUT = 128


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


def session_before(task: int, per_class: int, epochs: int) -> Session:
    """Return a run that has learned all tasks before ``task``, under the policy ``min``."""
    catalogue = load_catalogue()
    few = {
        "benchmark.train_per_class": per_class,
        "benchmark.test_per_class": 2,
        "baseline.epochs": epochs,
        "run.device": "cpu",
    }
    names = {"benchmark": "glyphs", "backbone": "micro", "baseline": "s-prompt-plus-plus", "policy": "min"}
    resolved = resolve(catalogue, overrides=few, **names)
    with tempfile.TemporaryDirectory() as folder:
        try:
            start(resolved, catalogue, Path(folder) / "run", [_StopAt(task)])
        except _Arrived:
            checkpoint, _ = CheckpointStore(Path(folder) / "run" / "checkpoints").newest_of_task(task - 1)
        session = open_session(resolved.config, catalogue)
        assert checkpoint is not None
        restore(session, checkpoint)
    session.begin_task(task)
    return session


@contextmanager
def fitted_heads(session: Session, images: ImageSet) -> Iterator[None]:
    """Let ``draw_head`` fit the rows to the un-prompted queries of a random sample, not draw them."""
    baseline = session.baseline
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


def spread(session: Session, pictures: ImageSet, task: int, repeats: int, **options: Any) -> dict[str, float]:
    """Return the spread of Z over ``repeats`` independent samples and heads, beside what is claimed."""
    growth = attrs.evolve(session.config.growth, **options)
    own = session.baseline.state_dict()
    own = {name: value.clone() for name, value in own.items()}
    values, errors, began = [], [], time.process_time()
    for repeat in range(repeats):
        if growth.evidence == "literal":  # it takes the head as it is
            torch.manual_seed(repeat)
            session.baseline.load_state_dict(own)
            session.baseline.draw_head(session.info(task))
        probe = Probe(session.info(task), pictures, session.backbone, session.engine, growth, 1000 + repeat)
        found = collect_evidence(session, probe).candidates[0].measures["hindrance"]
        values.append(found.value or float("nan"))
        errors.append(found.error or float("nan"))
    session.baseline.load_state_dict(own)
    z, claimed = torch.tensor(values), torch.tensor(errors)
    return {
        "mean": float(z.mean()),
        "spread": float(z.std()),
        "claimed": float(claimed.square().mean().sqrt()),
        "seconds": (time.process_time() - began) / repeats,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", type=int, default=2)
    parser.add_argument("--per-class", type=int, default=150)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int, nargs="+", default=[128])
    parser.add_argument("--repeats", type=int, default=32)
    arguments = parser.parse_args()
    session = session_before(arguments.task, arguments.per_class, arguments.epochs)
    pictures = session.image_set([session.stream.tasks[arguments.task].train], train=False)
    rows: list[tuple[str, dict[str, Any]]] = [
        ("one draw, literal", {"evidence": "literal"}),
        *((f"{draws} draws", {"draws": draws}) for draws in (2, 4, 8)),
        ("2 fitted heads", {"draws": 2}),
    ]
    print("images  head               mean Z  spread  claimed  claimed/spread  seconds  variance x seconds")
    for size in arguments.images:
        for name, options in rows:
            with fitted_heads(session, pictures) if "fitted" in name else nullcontext():
                found = spread(session, pictures, arguments.task, arguments.repeats, images=size, **options)
            ratio, bought = found["claimed"] / found["spread"], found["spread"] ** 2 * found["seconds"]
            print(
                f"{size:6d}  {name:17s}  {found['mean']:6.2f}  {found['spread']:6.2f}"
                f"  {found['claimed']:7.2f}  {ratio:14.2f}  {found['seconds']:7.2f}  {bought:18.3f}",
                flush=True,
            )
