"""One run on several devices, on paper: what a step sends, and the steps that links and devices allow.

What a step sends is measured: the parameters that the host phase trains on a ViT-B/16 of random weights, and
the seconds of that sum over two processes on this machine. The rest is arithmetic: a device computes
``--flops`` operations a second, and a flat sum over p processes sends each ``2 (p - 1) / p`` times its bytes
through the slowest link, in ``2 (p - 1)`` messages.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import attrs
import torch
from torch import nn
from torch.multiprocessing import get_context

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from gpu.components import LabPlugin
from gpu.lab import Lab

from lw2g.interfaces.phase import TrainingPhase
from lw2g.testing.tiny import tiny_catalogue
from lw2g.training.costs.flops import count_flops
from lw2g.training.phases import hosted
from lw2g.training.processes.assembling import joined
from lw2g.training.processes.place import Place
from lw2g.training.session import open_session

MESSAGE = 20e-6
"""Seconds that a message takes to set out, by link of a host and between hosts alike."""


@attrs.frozen(kw_only=True)
class Work:
    """What a training step of a method is made of."""

    trained: int
    flops: float
    batch: int

    @property
    def bytes(self) -> int:
        """What is summed over processes, in float32."""
        return 4 * self.trained

    def seconds(self, processes: int, rate: float, link: float) -> float:
        """Return what a step takes on so many devices, with links of so many bytes a second."""
        computing = -(-self.batch // processes) * self.flops / rate
        sending = 2 * (processes - 1) * (self.bytes / processes / link + MESSAGE)
        return computing + sending


def work_of(baseline: str, model: str) -> Work:
    """Return the work of the host phase of a first task of fifty, of two classes each."""
    lab = SimpleNamespace(catalogue=tiny_catalogue(LabPlugin()), device=torch.device("cpu"))
    options = {"backbone.model": model, "run.precision": "32-true", "benchmark.tasks": 50}
    resolved = Lab.resolve(lab, baseline, "always", options, benchmark="noise", backbone="random")
    session = open_session(resolved.config, lab.catalogue)
    session.begin_task(0)
    session.pool.grow(session.new_set(None))
    still = session.image_set([session.stream.tasks[0].train], train=False)
    context = session.task_context(0, still)
    if session.retrieval is not None:
        session.retrieval.begin_task(context)
    phases = [one for one in session.baseline.phases(context) if isinstance(one, TrainingPhase)]
    (host,) = [hosted(one, context, *session.labels) for one in phases if one.host]
    return Work(
        trained=sum(one.numel() for one in host.trained),
        flops=float(count_flops(session, context, host, still)["training_per_image"] or 0),
        batch=lab.catalogue.get("baseline", baseline).config().batch_size,
    )


def _member(rank: int, port: int, sizes: list[int], tell: Callable[[list[float]], None]) -> None:
    torch.set_num_threads(1)
    with joined(Place(rank, 2, rank, 2, "127.0.0.1", port), str) as team:
        found = []
        for size in sizes:
            parameter = nn.Parameter(torch.zeros(size))
            taken = []
            for _ in range(30):
                parameter.grad = torch.ones(size)
                began = time.perf_counter()
                team.average([parameter], {"loss": torch.zeros(())}, 0.5, stop=False)
                taken.append(time.perf_counter() - began)
            found.append(statistics.median(taken))
        if rank:
            team.broadcast(None)
        else:
            tell(found)


def measured(sizes: list[int]) -> list[float]:
    """Return the seconds of the sum of so many numbers over two processes of this machine."""
    spawn = get_context("spawn")
    queue = spawn.SimpleQueue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    members = [spawn.Process(target=_member, args=(rank, port, sizes, queue.put)) for rank in range(2)]
    for one in members:
        one.start()
    found: list[float] = queue.get()
    for one in members:
        one.join()
    return found


def main() -> None:
    """Print a line per method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="vit_base_patch16_224", help="timm architecture")
    parser.add_argument("--baselines", default="dual-prompt,hide-prompt,hide-lora")
    parser.add_argument("--flops", type=float, default=400e12, help="operations a second of a device")
    given = parser.parse_args()
    works = {name: work_of(name, given.model) for name in given.baselines.split(",")}
    sums = measured([work.trained for work in works.values()])
    settings = {
        "1 device": (1, 1.0),
        "8, 300 GB/s": (8, 300e9),
        "4 x 8, 12.5 GB/s": (32, 12.5e9),
        "4 x 8, 1.25 GB/s": (32, 1.25e9),
    }
    print(f"{given.model}, {given.flops / 1e12:.0f} TFLOP/s a device; steps a second on")
    print(f"{'':12s} batch  trained     kB  GFLOP/image  sum here ms  " + "  ".join(settings))
    for (name, work), seconds in zip(works.items(), sums, strict=True):
        steps = [1 / work.seconds(count, given.flops, link) for count, link in settings.values()]
        row = "  ".join(f"{value:{len(head)}.0f}" for head, value in zip(settings, steps, strict=True))
        print(
            f"{name:12s} {work.batch:5d} {work.trained:8d} {work.bytes / 1e3:6.0f} {work.flops / 1e9:12.1f} "
            f"{1e3 * seconds:12.2f}  {row}"
        )


if __name__ == "__main__":
    main()
