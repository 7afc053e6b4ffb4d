"""HFC of every task's gradient on every task's space, its own among them, and what else rates a set.

    python experiments/growth_score/cross.py --data DATA --weights FILE --runs RUNS [--method NAME ...]

The tasks are those of ``DATA/kinds`` (lay_out.py, hypotheses.toml). A method trains a set on the neutral task
by ``lw2g run``; all gradients and old spaces are taken under this set. A task's gradient is of 24 images, its
space of the other 48. Written is ``cells/METHOD.npz``; a method that has its file is left out.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import lw2g
from lw2g.interfaces.site import Site
from lw2g.learning.evidence.evidence_sample import balanced, tap_heads, undisturbed
from lw2g.learning.evidence.gradients import group_gradients
from lw2g.learning.evidence.space_rows import Rows
from lw2g.lifecycle.run_opening import reopen
from lw2g.maths.hindrance import null_hfc, over_sites, site_angles
from lw2g.maths.moments import SecondMoment
from lw2g.maths.subspace import Subspace
from lw2g.registry.catalogue import load_catalogue
from lw2g.vit.taps import Tap

PLAN = tomllib.loads(Path(__file__).with_name("hypotheses.toml").read_text(encoding="utf-8"))["tables"]
CELLS = Path(__file__).with_name("cells")
USUAL = 0.95
"""The energy of every choice of rows; the others are for all tokens alone."""
BLOCKS = 5
"""Sites of the first blocks are measured, where s-prompt-plus-plus has its prefixes."""

Moments = dict[tuple[str, str], list[SecondMoment]]
"""Second moments by tap and rows, one a block."""


@attrs.frozen(kw_only=True, eq=False)
class Read:
    """What was read of a task.

    Attributes:
        gradients: Of each site, ``[draws, rows, dim]``.
        old: Activations under the trained set, of the images of the space.
        pre: The same, un-prompted.
        new: Un-prompted activations of the images of the gradient, all tokens.
        means: Class means of frozen features, ``[classes, dim]``: of the space's images, of the gradient's.
    """

    gradients: list[Tensor]
    old: Moments
    pre: Moments
    new: Moments
    means: tuple[Tensor, Tensor]


def trained(method: str, data: Path, weights: Path, run: Path) -> Any:
    """Return the session of a method that has learned the neutral task."""
    if not (run / "record.json").exists():
        lw2g.run(
            baseline=method,
            policy="always",
            benchmark="folder",
            out=run,
            tasks=1,
            progress=False,
            **{
                "baseline.epochs": 1,
                "benchmark.root": str(data / "kinds"),
                "benchmark.increment": PLAN["classes"],
                "benchmark.order": "natural",
                "benchmark.train_transform": "none",
                "benchmark.test_resize": "squash",
                "backbone.name": "timm",
                "backbone.model": "vit_tiny_patch16_224",
                "backbone.weights": str(weights),
                "backbone.mean": [0.5, 0.5, 0.5],
                "backbone.std": [0.5, 0.5, 0.5],
                "growth.images": PLAN["gradient_images"],
                "growth.draws": 2,
                "run.precision": "32-true",
                "run.seed": 0,
            },
        )
    return reopen(run, load_catalogue())


def sites_of(session: Any) -> list[Site]:
    """Return the measured sites of the set in the first blocks."""
    sites = session.parts.baseline.sites(session.parts.pool[0])
    return [site for site in sites if site.measured and site.activation.tap.block < BLOCKS]


def in_turn(labels: Tensor, positions: Sequence[int]) -> list[int]:
    """Return positions with the classes in turn, so that any first ones are balanced."""
    by_class: dict[int, list[int]] = {}
    for position in positions:
        by_class.setdefault(int(labels[position]), []).append(position)
    return [position for turn in zip(*by_class.values(), strict=True) for position in turn]


def moments_of(session: Any, batch: Any, taps: Sequence[Tap], rows: Sequence[str], prompted: bool) -> Moments:
    """Return the second moments of a batch at every tap of the study, for every choice of rows.

    Args:
        session: The run.
        batch: The images, classes in turn.
        taps: Of the sites' blocks, one a block.
        rows: ``all``, or ``one-N``: one drawn token of each of the first N images.
        prompted: Whether under the set.
    """
    parts = session.parts
    routing = parts.pool.force(0)

    def forward() -> object:
        return parts.baseline.features(batch, routing) if prompted else parts.backbone.features(batch.images)

    where = {name: [Rows(tap=name).read_at(tap, parts.backbone) for tap in taps] for name in PLAN["taps"]}
    seen = parts.backbone.read(list(dict.fromkeys(tap for own in where.values() for tap in own)), forward)
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(parts.backbone.num_tokens, (len(batch),), generator=generator)
    found: Moments = {}
    for name, own in where.items():
        for choice in rows:
            tokens, _, count = choice.partition("-")
            found[name, choice] = []
            for tap in own:
                chosen = Rows(tokens=tokens).chosen(seen[tap], places)
                if count:
                    chosen = chosen[: int(count)]
                moment = SecondMoment(chosen.shape[-1], tap_heads(tap, parts.backbone, parts.config.growth))
                moment.update(chosen)
                found[name, choice].append(moment)
    return found


def means_of(batch: Any) -> Tensor:
    """Return the mean of the frozen features of each class."""
    queries = batch.query.float()
    return torch.stack([queries[batch.labels == label].mean(dim=0) for label in batch.labels.unique()])


@torch.no_grad()
def read(session: Any, index: int, sites: Sequence[Site], taps: Sequence[Tap]) -> Read:
    """Return what the study needs of a task."""
    images = session.data.image_set([session.data.stream.tasks[index].train], train=False)
    sample = session.parts.evidence_sample(index, images)
    with undisturbed(session.parts.modules):
        gradients = group_gradients(sample, session.parts.baseline, session.parts.pool, {0: sites})[0]
        new = [*sample.positions]
        others = sorted(set(range(len(images))) - set(new))
        order = balanced(images.labels[others], len(others), sample.generator("space images"))
        old = in_turn(images.labels, [others[number] for number in order])
        (of_old,) = images.batches([old])
        (of_new,) = images.batches([new])
        return Read(
            gradients=[draws.sum(dim=1) for draws in gradients],
            old=moments_of(session, of_old, taps, PLAN["rows"], True),
            pre=moments_of(session, of_old, taps, PLAN["rows"], False),
            new=moments_of(session, of_new, taps, ["all"], False),
            means=(means_of(of_old), means_of(of_new)),
        )


def configurations() -> Iterator[tuple[str, str, float]]:
    """Yield taps, rows and energies."""
    for tap in PLAN["taps"]:
        for rows in PLAN["rows"]:
            for energy in PLAN["energies"] if rows == "all" else [USUAL]:
                yield tap, rows, energy


def angles(
    tasks: Sequence[Read], spaces: Sequence[Sequence[Subspace]], blocks: Sequence[int], reduce: str
) -> Tensor:
    """Return the angles of all gradients at all sites of spaces, ``[spaces, sites, draws, gradients]``.

    Args:
        tasks: Those whose gradients are meant.
        spaces: One a block, of each task whose spaces are meant.
        blocks: The place of each site's block.
        reduce: As in ``site_angles``.
    """
    weights = torch.eye(len(tasks), dtype=torch.float64)[None]
    gradients = [torch.stack([task.gradients[site] for task in tasks], dim=1) for site in range(len(blocks))]
    rows = []
    for own in spaces:
        of_sites = [
            site_angles(gradient, weights, own[block], reduce=reduce)[..., 0]
            for gradient, block in zip(gradients, blocks, strict=True)
        ]
        rows.append(torch.stack(of_sites))
    return torch.stack(rows)


def tables(tasks: Sequence[Read], blocks: Sequence[int]) -> dict[str, np.ndarray]:
    """Return all tables, ``[gradients, spaces]`` each, and what belongs to spaces or gradients alone."""
    found: dict[str, Tensor] = {}
    for tap, rows, energy in configurations():
        name = f"{tap}|{rows}|{energy}"
        old = [[Subspace.build(moment, energy) for moment in task.old[tap, rows]] for task in tasks]
        pre = [[Subspace.build(moment, energy) for moment in task.pre[tap, rows]] for task in tasks]
        together = over_sites(angles(tasks, old, blocks, "mean-cos").transpose(0, 1)).rad2deg()
        found[f"hfc|{name}"] = together.nanmean(dim=1).T
        # a gradient meets the pre-trained space of its own task alone
        own = [
            over_sites(angles([task], [space], blocks, "mean-cos")[0]).rad2deg().nanmean()
            for task, space in zip(tasks, pre, strict=True)
        ]
        found[f"pre|{name}"] = torch.stack(own)
        for kind, spaces in (("null", old), ("null_pre", pre)):
            nulls = [null_hfc([(task[block].rank, task[block].dim) for block in blocks]) for task in spaces]
            found[f"{kind}|{name}"] = torch.tensor(nulls)
        if rows == "all" and energy == USUAL:
            lengths = angles(tasks, old, blocks, "global").sin().nanmean(dim=(1, 2)).T
            chance = [
                sum((task[block].rank / task[block].dim) ** 0.5 for block in blocks) / len(blocks)
                for task in old
            ]
            found[f"length|{name}"] = lengths
            found[f"length_null|{name}"] = torch.tensor(chance)
            found[f"energy|{name}"] = outside(tasks, tap, energy)
        print(name, f"{float(found[f'hfc|{name}'].mean()):.1f}", flush=True)
    found["class-means"] = nearness(tasks)
    return {name: values.double().numpy().round(3).astype(np.float32) for name, values in found.items()}


def outside(tasks: Sequence[Read], tap: str, energy: float) -> Tensor:
    """Return the share of each task's energy outside the un-prompted space of each task, both centred."""
    spaces = [[Subspace.build(one.centred(), energy) for one in task.pre[tap, "all"]] for task in tasks]
    rows = []
    for task in tasks:
        moments = [moment.centred() for moment in task.new[tap, "all"]]
        shares = [
            np.mean([1 - space.captured(one) for space, one in zip(own, moments, strict=True)])
            for own in spaces
        ]
        rows.append(torch.tensor(np.array(shares)))
    return torch.stack(rows)


def nearness(tasks: Sequence[Read]) -> Tensor:
    """Return the mean over a task's classes of the largest cosine with a class mean of each task."""
    common = torch.cat([task.means[0] for task in tasks]).mean(dim=0)
    olds = [functional.normalize(task.means[0] - common, dim=1) for task in tasks]
    news = [functional.normalize(task.means[1] - common, dim=1) for task in tasks]
    return torch.stack([torch.stack([(new @ old.T).amax(dim=1).mean() for old in olds]) for new in news])


def measure(method: str, arguments: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Return the tables of a method."""
    session = trained(method, arguments["data"], arguments["weights"], arguments["runs"] / f"cross-{method}")
    sites = sites_of(session)
    by_block = {site.activation.tap.block: site.activation.tap for site in sites}
    blocks = [list(by_block).index(site.activation.tap.block) for site in sites]
    tasks = []
    draws = PLAN["draws_of"].get(method, PLAN["draws"])
    for index in range(1, draws * len(PLAN["kinds"]) + 1):
        tasks.append(read(session, index, sites, list(by_block.values())))
        print(f"{method}: task {index} read", flush=True)
    return tables(tasks, blocks)


def main() -> None:
    """Measure the methods that have no file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the streams")
    parser.add_argument("--weights", type=Path, required=True, help="ViT-Tiny's")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--method", nargs="*", default=PLAN["methods"], help="some of the methods")
    arguments = parser.parse_args()
    CELLS.mkdir(exist_ok=True)
    for method in arguments.method:
        out = CELLS / f"{method}.npz"
        if not out.exists():
            np.savez_compressed(out, **measure(method, vars(arguments)))


if __name__ == "__main__":
    main()
