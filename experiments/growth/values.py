"""What the value half of prefixes would be protected against, and how that hinders a new task.

    python experiments/growth/values.py RUN [--task 10] [--images 256]

RUN is finished, with prefix sets. The prefix keys of a block meet its queries, d / heads numbers a head; the
prefix values meet the attention that tokens pay to the prefix, as many numbers a head as the prefix is long.
Each old set is asked as it is: the space that its first task spans in either (``growth.energy``), how many of
the directions that takes, how much of the new task's energy lies inside, and the angle (HFC) between the new
task's gradient and its part outside. There is no Z for values: without a prefix no attention is paid to one,
so that pre-trained knowledge has no space to compare with.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lw2g.blocks.prefixes import PrefixSet
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.pool import Routing
from lw2g.learning.evidence.draws import head_draws
from lw2g.lifecycle.run_opening import reopen
from lw2g.maths.hindrance import hfc
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace
from lw2g.registry import catalogue as registry
from lw2g.vit.taps import Tap


def batches(session: Any, task: int, count: int, size: int = 64) -> Sequence[Batch]:
    """Return training images of a task in batches."""
    images = session.data.image_set([session.data.stream.tasks[task].train], train=False)
    rows = list(range(0, len(images), max(len(images) // count, 1)))[:count]
    return list(images.batches([rows[at : at + size] for at in range(0, len(rows), size)], seed=0))


def heads_of(rows: Tensor, heads: int) -> Tensor:
    """Return ``[heads, n, width]`` of rows ``[n, heads * width]``."""
    return rows.reshape(len(rows), heads, -1).transpose(0, 1)


@torch.no_grad()
def met(session: Any, batch: Batch, parameters: Any, block: int, place: int) -> tuple[Tensor, Tensor]:
    """Return what keys and values of a set meet at a block: ``[heads, n, width]`` and ``[heads, n, L]``."""
    backbone, baseline = session.parts.backbone, session.parts.baseline
    tap = Tap(block=block, kind="attn_in")
    routing = Routing(sets=(parameters,), chosen=0)
    attention, heads, images = backbone.model.blocks[block].attn, backbone.heads, len(batch.labels)
    with session.parts.engine.autocast():
        inputs = backbone.read([tap], lambda: baseline.features(batch, routing))[tap]
        query, key, _ = attention.qkv(inputs).float().chunk(3, dim=-1)
    extra = parameters.key[place].expand(images, -1, -1)

    def split(rows: Tensor) -> Tensor:
        return rows.reshape(images, -1, heads, rows.shape[-1] // heads).transpose(1, 2)

    keys = torch.cat([split(extra), split(key)], dim=2)
    logits = split(query) @ keys.mT * attention.scale
    paid = logits.softmax(dim=-1)[..., : extra.shape[1]]
    return tuple(part.transpose(0, 1).flatten(1, 2) for part in (split(query), paid))  # type: ignore[return-value]


def gradients(session: Any, own: Sequence[Batch], parameters: Any, task: Any) -> list[tuple[Tensor, Tensor]]:
    """Return the gradients at keys and values of a set, ``[blocks, L, dim]`` each, by draw of the head."""
    baseline, found = session.parts.baseline, []
    routing = Routing(sets=(parameters,), chosen=0)
    for parameter in parameters.parameters():
        parameter.requires_grad_(True)
    with head_draws(baseline, task, session.parts.config.growth, session.parts.config.run.seed) as draws:
        for put in draws:
            put()
            loss = torch.zeros(())
            for batch in own:
                with session.parts.engine.autocast():
                    features = baseline.features(batch, routing)
                loss = loss + len(batch.labels) * baseline.probe_loss(features, batch, task)
            found.append(torch.autograd.grad(loss, (parameters.key, parameters.value)))
    return found


def moments(rows: Sequence[Tensor]) -> list[SecondMoment]:
    """Return the second moment of each head."""
    found = []
    for head in torch.cat(list(rows), dim=1):
        moment = SecondMoment(head.shape[1])
        moment.update(head.double())
        found.append(moment)
    return found


def main() -> None:
    """Ask every old set, block by block, and print a row a block: means over sets and heads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--task", type=int, help="the new task, from 1; the last one by default")
    parser.add_argument("--images", type=int, default=256)
    asked = parser.parse_args()
    session: Any = reopen(asked.run, registry.load_catalogue())
    new = (asked.task or len(session.parts.infos)) - 1
    own, energy = batches(session, new, asked.images), session.parts.config.growth.energy
    blocks, heads = session.parts.baseline.prefixes.blocks, session.parts.backbone.heads
    pool = session.parts.pool
    if not all(isinstance(pool[number], PrefixSet) for number in pool.ids):
        parser.error(f"{asked.run}: no prefixes in it; take a run of hide-prompt or s-prompt-plus-plus")
    found: dict[tuple[int, str], list[tuple[float, float, float]]] = {}
    for number in pool.ids:
        first = pool.tasks_of(number)[0]
        if first >= new:
            continue
        parameters = pool[number]
        old = batches(session, first, asked.images)
        slopes = gradients(session, own, parameters, session.parts.infos[new])
        for place, block in enumerate(blocks):
            before, now = (
                [met(session, batch, parameters, block, place) for batch in part] for part in (old, own)
            )
            for half, name in enumerate(("keys", "values")):
                spaces = [Subspace.build(one, energy) for one in moments([pair[half] for pair in before])]
                inside = [
                    space.captured(moment)
                    for space, moment in zip(spaces, moments([pair[half] for pair in now]), strict=True)
                ]
                angles = []
                for draw in slopes:
                    rows = heads_of(draw[half][place].double(), heads)
                    angle = hfc([*(rows if half == 0 else rows.mT)], spaces).degrees
                    angles.append(float("nan") if angle is None else angle)
                share = sum(space.rank / space.dim for space in spaces) / heads
                found.setdefault((block, name), []).append(
                    (100 * share, 100 * sum(inside) / heads, sum(angles) / len(angles))
                )
    print("| block | half | directions taken, % | energy inside, % | HFC, degrees |")
    print("| --- | --- | --- | --- | --- |")
    for (block, name), rows in found.items():
        share, inside, angle = (sum(column) / len(rows) for column in zip(*rows, strict=True))
        print(f"| {block} | {name} | {share:.0f} | {inside:.0f} | {angle:.1f} |")


if __name__ == "__main__":
    main()
