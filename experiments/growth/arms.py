"""What protecting a reused set costs and saves: the forks of each arm, against a new set and against none.

    python experiments/growth/arms.py runs/growth [--routing hard] [--only groups-hide-prompt]

``forks.py --arms protected free frozen ...`` has run the same decision under several constraints: same
images, same order, same new rows of the head. Per arm, over all live sets of all decisions: accuracy of the
decided task less that under a new set (plasticity, and transfer where it is above 0), what old tasks lost
beyond what they lose under a new set, and FAA less that of growing and of reuse without constraint. Means
within a cluster and then over clusters, with 95 % intervals by Student's t over clusters; in points.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from forks import GROW, read_forks
from table import Figure, over_clusters

FREE = "free"
COLUMNS = ("new - grow", "old lost - grow", "FAA - grow", f"FAA - {FREE}")


def compared(forks: Iterable[Mapping[str, Any]], routing: str) -> dict[str, dict[str, float]]:
    """Return the means of one cluster by arm and column; forks whose rival was not run are left out."""
    found = {
        (one["task"], one["outcome"], one["choice"], one["arm"]): one["routings"][routing] for one in forks
    }
    grown = {key[:2]: told for key, told in found.items() if key[2] == GROW}
    points: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (task, outcome, choice, arm), told in found.items():
        new = grown.get((task, outcome))
        if choice == GROW or new is None:
            continue
        row = points[arm]
        row["new - grow"].append(told["new"] - new["new"])
        row["old lost - grow"].append(told["forgetting"] - new["forgetting"])
        row["FAA - grow"].append(told["faa"] - new["faa"])
        free = found.get((task, outcome, choice, FREE))
        if free is not None and arm != FREE:
            row[f"FAA - {FREE}"].append(told["faa"] - free["faa"])
    return {
        arm: {column: float(np.mean(values)) for column, values in row.items()} for arm, row in points.items()
    }


def figures(clusters: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, Figure]]:
    """Return mean and interval over clusters by arm and column."""
    arms = list(dict.fromkeys(arm for cluster in clusters for arm in cluster))
    return {
        arm: {
            column: over_clusters(cluster.get(arm, {}).get(column) for cluster in clusters)
            for column in COLUMNS
        }
        for arm in arms
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--routing", choices=("soft", "hard", "told", "within"), default="hard")
    parser.add_argument("--only", default="", help="clusters whose names begin so")
    arguments = parser.parse_args()
    logs = sorted(arguments.directory.glob(f"{arguments.only}*/forks.jsonl"))
    print(f"| reused sets ({len(logs)} clusters) | {' | '.join(COLUMNS)} |")
    print("| --- |" + " ---: |" * len(COLUMNS))
    for arm, row in figures([compared(read_forks(log), arguments.routing) for log in logs]).items():
        print(f"| {arm} | {' | '.join(str(row[column]) for column in COLUMNS)} |")


if __name__ == "__main__":
    main()
