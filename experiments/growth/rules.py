"""What rules of growth bring on whole streams: a grid for each stream, run by ``lw2g sweep``.

    python experiments/growth/rules.py --streams natural groups --baselines dual-prompt --seeds 0 1 2 \\
        --data DATA --weights WEIGHTS --out runs/rules [--jobs 2]
    lw2g report runs/rules/groups --against "always"

A stream's order of classes and the training are both drawn by the seed, so that intervals speak of streams
like this one. ``hand`` is the grouping that a person would choose, where the stream has one; ``oracle`` grows
always and is told the task. Interrupted, the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import tomli_w
from forks import HERE, assigned
from streams import STREAMS, Stream

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


def main() -> None:
    """Write the grids and run them, one after the other."""
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
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.streams:
        file = arguments.out / f"{name}.toml"
        file.write_text(tomli_w.dumps(grid(name, arguments)))
        command = ["sweep", str(file), "--out", str(arguments.out / name), "--jobs", str(arguments.jobs)]
        chosen = [part for one in arguments.set for part in ("--set", one)]
        subprocess.run([sys.executable, "-m", "lw2g", *command, *chosen], check=False)


if __name__ == "__main__":
    main()
