"""What every decision would have brought: at each task a run is forked for every live set and for a new one.

    python experiments/growth/forks.py --streams groups --baselines hide-prompt --seeds 0 1 2 \\
        --data DATA --weights WEIGHTS --out runs/growth [--jobs 2]

A *cluster* is a stream, a baseline and a seed. Its history is drawn at random (``streams.behaviour``), so
that no measure has made the sets on which it is judged; every measure is noted at each decision
(``growth.measures``). Then each decision is taken otherwise: same batches, same new rows of the head, another
set. What is found lies in ``forks.jsonl``, a line each; an interrupted cluster goes on where it stopped.
``table.py`` reads them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from streams import STREAMS, behaviour

import lw2g
from lw2g.disk.record import RunDirectory
from lw2g.lifecycle.runner import resume
from lw2g.registry.catalogue import load_catalogue

HERE = Path(__file__).resolve().parent
GROW = "grow"
ARMS: Mapping[str, tuple[list[str], dict[str, Any]]] = {
    "protected": (["orthogonal", "cpk"], {}),
    "free": ([], {}),
    "frozen": (["freeze"], {}),
    "orthogonal": (["orthogonal"], {}),
    "gradient": (
        ["orthogonal", "cpk"],
        {"constraints.orthogonal.on": "gradient", "constraints.cpk.on": "gradient"},
    ),
    "phi-0": (["orthogonal", "cpk"], {"constraints.cpk.phi": 0.0}),
}
"""Constraints under which a set is reused."""


@attrs.frozen(kw_only=True)
class Cluster:
    """One history and its forks.

    Attributes:
        stream: One of ``streams.STREAMS``.
        baseline: The baseline, and after ``+`` the head that it is given.
        seed: Of history, class order and training.
    """

    stream: str
    baseline: str
    seed: int

    @property
    def name(self) -> str:
        """Its directory."""
        return f"{self.stream}-{self.baseline}-{self.seed}"


@attrs.frozen(kw_only=True)
class Fork:
    """One decision taken otherwise.

    Attributes:
        task: The task that is decided, from 0.
        choice: A set, or ``grow``.
        arm: One of ``ARMS``.
        outcome: Which repetition: 0 has the history's own seed.
    """

    task: int
    choice: int | str
    arm: str
    outcome: int


def forks(history: tuple[int, ...], arms: list[str], outcomes: int, tasks: list[int]) -> Iterator[Fork]:
    """Yield the forks of a history in the order in which they are run; a new set is under no constraint."""
    for outcome in range(outcomes):
        for task in range(1, len(history)):
            if tasks and task not in tasks:
                continue
            yield Fork(task=task, choice=GROW, arm=arms[0], outcome=outcome)
            for choice in range(max(history[:task]) + 1):
                for arm in arms:
                    yield Fork(task=task, choice=choice, arm=arm, outcome=outcome)


def options(cluster: Cluster, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what a cluster's history is run with, beside ``base.toml``."""
    stream = STREAMS[cluster.stream](arguments.data, cluster.seed)
    baseline, _, head = cluster.baseline.partition("+")
    chosen = {
        "baseline": baseline,
        "seed": cluster.seed,
        "policy.map": list(behaviour(stream.tasks, cluster.seed)),
        "growth.measures": _measures() if arguments.measures is None else arguments.measures,
        **stream.options,
        **arguments.set,
    }
    if arguments.weights is not None:
        chosen["weights"] = str(arguments.weights)
    if head:
        chosen["baseline.head"] = head
    return chosen


def run_history(cluster: Cluster, directory: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the history, or what is left of it, and return its record."""
    if not (directory / "config.toml").exists():
        return lw2g.run(arguments.base, out=directory, progress=False, **options(cluster, arguments))
    return resume(directory, load_catalogue())


def run_fork(fork: Fork, history: tuple[int, ...], parent: Path, place: Path, horizon: int) -> dict[str, Any]:
    """Take one decision otherwise and return what came of it; later tasks of the horizon grow.

    Args:
        fork: The decision.
        history: The sets of the history's tasks.
        parent: The history's run.
        place: Where the fork runs; removed when it has been read.
        horizon: How many further tasks are learned.
    """
    shutil.rmtree(place, ignore_errors=True)
    before = history[: fork.task]
    new = max(before) + 1
    chosen = [*before, new if fork.choice == GROW else int(fork.choice)]
    last = min(fork.task + 1 + horizon, len(history))
    while len(chosen) < last:
        chosen.append(max(chosen) + 1)
    constraints, changes = ARMS[fork.arm]
    seed = {"run.seed": 1000 * fork.outcome + _seed(parent)} if fork.outcome else {}
    start = time.perf_counter()
    record = lw2g.fork(
        parent,
        fork.task,
        out=place,
        policy="fixed",
        constraints=constraints,
        tasks=last,
        progress=False,
        # what was measured is in the history's record
        **{"policy.map": chosen, "growth.measures": [], **changes, **seed},
    )
    row = {**attrs.asdict(fork), "horizon": last - fork.task - 1, **outcome(record, parent, place, fork.task)}
    shutil.rmtree(place)
    return row | {"seconds": round(time.perf_counter() - start, 1)}


def _seed(parent: Path) -> int:
    return int(RunDirectory(parent).read_record()["seed"])


def outcome(record: Mapping[str, Any], parent: Path, place: Path, task: int) -> dict[str, Any]:
    """Return the outcome of a fork, under each routing that one evaluation tells of.

    ``faa``: mean over the seen tasks; ``new``: accuracy of the decided task; ``old``: mean of the tasks
    before it; ``forgetting``: what those lost since before the decision. In percent.
    """
    last = len(record["accuracy_matrix"]) - 1
    now, before = (
        _by_routing(RunDirectory(run).read_predictions(after))
        for run, after in ((place, last), (parent, task - 1))
    )
    routings = {
        name: {
            "faa": float(np.mean(found)),
            "new": found[task],
            "old": float(np.mean(found[:task])),
            "forgetting": float(np.mean(before[name]) - np.mean(found[:task])),
        }
        for name, found in now.items()
    }
    metrics = record["metrics"]
    return {
        "routings": routings,
        "pra": metrics["pra"],
        "chance_pra": metrics["chance_pra"],
        "sets": metrics["ssp"],
    }


def _by_routing(predictions: Any) -> dict[str, list[float]]:
    return {"soft": predictions.accuracies(), **predictions.other_accuracies()}


def run_cluster(cluster: Cluster, arguments: argparse.Namespace) -> None:
    """Run what is left of a cluster."""
    directory = arguments.out / cluster.name
    record = run_history(cluster, directory / "run", arguments)
    history, log = tuple(record["task_to_set"]), directory / "forks.jsonl"
    groups = STREAMS[cluster.stream](arguments.data, cluster.seed).groups
    (directory / "cluster.json").write_text(json.dumps({**attrs.asdict(cluster), "groups": groups}))
    kept = read_forks(log)
    log.write_text("".join(json.dumps(row) + "\n" for row in kept))
    done = {json.dumps([row[field.name] for field in attrs.fields(Fork)]) for row in kept}
    wanted = [
        one
        for one in forks(history, arguments.arms, arguments.outcomes, arguments.tasks)
        if json.dumps(list(attrs.astuple(one))) not in done
    ]
    for number, one in enumerate(wanted):
        row = run_fork(one, history, directory / "run", directory / "fork", arguments.horizon)
        with log.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{cluster.name}: {number + 1}/{len(wanted)}, {row['seconds']} s", flush=True)


def read_forks(log: Path) -> list[dict[str, Any]]:
    """Return the forks that were run; a line that a kill has cut short is left out."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def main() -> None:
    """Run all clusters, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--baselines", nargs="+", default=["hide-prompt"], help="names, or NAME+HEAD")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help="folder with cifar100, pacs and caltech"
    )
    parser.add_argument("--weights", type=Path, help="the backbone's file, where base.toml names another")
    parser.add_argument("--out", type=Path, default=Path("runs/growth"))
    parser.add_argument("--base", type=Path, default=HERE / "base.toml")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["protected"])
    parser.add_argument(
        "--outcomes", type=int, default=1, help="repetitions of each fork, with seeds of their own"
    )
    parser.add_argument("--tasks", nargs="*", type=int, default=[], help="decided tasks from 0 (all)")
    parser.add_argument("--horizon", type=int, default=0, help="further tasks, each with a new set")
    parser.add_argument("--measures", nargs="*", help="measures to note (all but the dear trial)")
    parser.add_argument("--set", action="append", default=[], type=assigned, metavar="KEY=VALUE")
    parser.add_argument("--jobs", type=int, default=1, help="clusters at a time")
    parser.add_argument("--no-table", action="store_true")
    arguments = parser.parse_args()
    arguments.set = dict(arguments.set)
    clusters = [
        Cluster(stream=stream, baseline=baseline, seed=seed)
        for seed in arguments.seeds
        for stream in arguments.streams
        for baseline in arguments.baselines
    ]
    if len(clusters) == 1:
        run_cluster(clusters[0], arguments)
    else:
        _each_in_a_process(clusters, arguments.jobs)
    if not arguments.no_table:
        subprocess.run([sys.executable, str(HERE / "table.py"), str(arguments.out)], check=True)


def _measures() -> list[str]:
    return [one for one in load_catalogue().names("evidence") if one != "trial"]


def assigned(text: str) -> tuple[str, Any]:
    """Return key and value of ``KEY=VALUE``; a value that is none of TOML's is a string."""
    key, _, value = text.partition("=")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _each_in_a_process(clusters: list[Cluster], jobs: int) -> None:
    own = list(sys.argv)

    def run(cluster: Cluster) -> None:
        chosen = ["--streams", cluster.stream, "--baselines", cluster.baseline, "--seeds", str(cluster.seed)]
        subprocess.run([sys.executable, *own, *chosen, "--no-table"], check=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, clusters))


if __name__ == "__main__":
    main()
