"""What rules of growth bring on whole streams: a grid for each stream, run by ``lw2g sweep``.

    python experiments/growth/rules.py --streams natural groups --baselines dual-prompt --seeds 0 1 2 \\
        --data DATA --weights WEIGHTS --out runs/rules [--jobs 2]

Training is drawn by the seed, and so are classes and order, but not on the natural stream, whose intervals
speak of one order; rows are compared seed by seed (``lw2g report`` refuses to average over other classes).
``hand`` is the grouping that a person would choose, where the stream has one; ``oracle`` grows always and is
told the task. Interrupted, the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from forks import HERE, assigned
from streams import STREAMS, Stream
from table import over_clusters

from lw2g.config.toml import flat
from lw2g.results.found_runs import read_run

PUBLISHED, SOFT = "published", "soft"
CONTROLS = ("hand", "oracle")


def rows(stream: Stream, seed: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of one order of a stream; those that it has no grouping for are left out."""
    found = []
    for baseline in arguments.baselines:
        name, _, head = baseline.partition("+")
        shared = {"baseline": {"name": name, "epochs": arguments.epochs}, "seed": seed, **stream.options}
        if head:
            shared["baseline"]["head"] = head
        for policy in arguments.policies:
            if policy == "hand" and stream.groups:
                found.append({**shared, "policy": {"name": "fixed", "map": list(stream.groups)}})
            elif policy == "oracle":
                found.append({**shared, "policy": "always", "retrieval": "oracle"})
            elif policy not in CONTROLS:
                found.append({**shared, "policy": _policy(policy)})
    return found


def _policy(text: str) -> dict[str, Any]:
    """Return a policy from its name and options: ``threshold:measure=confusion,scale=chance``."""
    name, _, options = text.partition(":")
    return {"name": name, **dict(assigned(one) for one in options.split(",") if one)}


def grid(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the grid of a stream: ``base.toml`` with the published routing, or with its own."""
    base = tomllib.loads((HERE / "base.toml").read_text())
    del base["policy"], base["baseline"]
    if arguments.routing == PUBLISHED:
        del base["retrieval"], base["routing"]
    if arguments.weights is not None:
        base["backbone"]["weights"] = str(arguments.weights)
    found = [
        row for seed in arguments.seeds for row in rows(STREAMS[name](arguments.data, seed), seed, arguments)
    ]
    return {"base": base, "rows": found}


def name_of(cell: Mapping[str, Any]) -> tuple[str, str]:
    """Return baseline (with its head) and policy (with its options) of a cell's settings."""
    baseline, head = cell["baseline.name"], cell.get("baseline.head")
    policy = cell["policy.name"]
    told = [
        f"{key.removeprefix('policy.')}={value}"
        for key, value in cell.items()
        if key.startswith("policy.") and key not in ("policy.name", "policy.map")
    ]
    if cell.get("retrieval.name") == "oracle":
        policy = "oracle"
    elif policy == "fixed":
        policy = "hand"
    return f"{baseline}+{head}" if head else baseline, ":".join([policy, *filter(None, [",".join(told)])])


def table(directory: Path) -> str:
    """Return what the finished runs of a stream say, each row against ``always`` seed by seed."""
    found: dict[str, dict[str, dict[int, Mapping[str, Any]]]] = {}
    for file in sorted((directory / "cells").iterdir()):
        run, settings = read_run(directory / file.stem), flat(tomllib.loads(file.read_text()))
        if run is not None and run.state == "finished":
            baseline, policy = name_of(settings)
            told = {**run.record["metrics"], **_prices(run.record)}
            found.setdefault(baseline, {}).setdefault(policy, {})[settings["run.seed"]] = told
    head = ["baseline", "policy", "seeds", "FAA", "- always", "sets", "PRA (chance)", "FFM"]
    head += ["prompts + bases, vectors", "evidence, %"]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for baseline, policies in found.items():
        for policy, runs in policies.items():
            lines.append(
                f"| {baseline} | {policy} | {len(runs)} | {_cells(runs, policies.get('always', {}))} |"
            )
    return "\n".join(lines)


def _prices(record: Mapping[str, Any]) -> dict[str, float]:
    """Return what a run keeps, in vectors, and the percentage of its time that went into evidence."""
    seconds, storage = record["seconds"], record["storage"]
    return {
        "prompts": storage["prompt_vectors"],
        "bases": storage["basis_vectors"],
        "evidence": 100 * seconds["evidence"] / seconds["total"],
    }


def _cells(runs: Mapping[int, Mapping[str, Any]], always: Mapping[int, Mapping[str, Any]]) -> str:
    def mean(name: str, digits: int = 1) -> str:
        known = [one[name] for one in runs.values() if one[name] is not None]
        return f"{np.mean(known):.{digits}f}" if known else "-"

    paired = over_clusters(one["faa"] - always[seed]["faa"] for seed, one in runs.items() if seed in always)
    return " | ".join(
        [
            mean("faa"),
            str(paired),
            mean("ssp"),
            f"{mean('pra')} ({mean('chance_pra')})",
            mean("ffm"),
            f"{mean('prompts', 0)} + {mean('bases', 0)}",
            mean("evidence"),
        ]
    )


def run(name: str, arguments: argparse.Namespace) -> None:
    """Write the grid of a stream, and run what is left of it."""
    file = arguments.out / f"{name}.toml"
    file.write_text(tomli_w.dumps(grid(name, arguments)))
    command = ["sweep", str(file), "--out", str(arguments.out / name), "--jobs", str(arguments.jobs)]
    chosen = [part for one in arguments.set for part in ("--set", one)]
    subprocess.run([sys.executable, "-m", "lw2g", *command, *chosen], check=False)


def main() -> None:
    """Write the grids, run them one after the other, and print a table of each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--baselines", nargs="+", default=["dual-prompt"], help="names, or NAME+HEAD")
    parser.add_argument(
        "--policies",
        nargs="+",
        default=["always", "one", "min", *CONTROLS],
        help="names with options (NAME:KEY=VALUE,...), hand, oracle",
    )
    parser.add_argument("--routing", choices=(PUBLISHED, SOFT), default=PUBLISHED)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with cifar100, pacs, caltech")
    parser.add_argument("--weights", type=Path, help="the backbone's file, where base.toml names another")
    parser.add_argument("--out", type=Path, default=Path("runs/rules"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of every cell")
    parser.add_argument("--table", action="store_true", help="print the tables alone")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.streams:
        if not arguments.table:
            run(name, arguments)
        print(f"\n{name}\n\n{table(arguments.out / name)}")


if __name__ == "__main__":
    main()
