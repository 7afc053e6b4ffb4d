"""Print the table of heads on stored features, from packs: a row a head, a column a data set.

python experiments/heads/table.py
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sets import HEADS, SETS

from lw2g.registry.catalogue import load_catalogue
from lw2g.store.packs import Pack
from lw2g.store.stored import Stored, stored_runs

STORE = Path(__file__).resolve().parents[1] / "store"
OF_A_SET = re.compile(r"features/like-for-like/(?P<set>[a-z0-9-]+)\.(?P<order>\d+)@\d+")
COSTS = "tiny"
"""The data set whose seconds and numbers are told."""


def heads_of(stored: Stored) -> Iterator[str]:
    """Yield the lines in Markdown: FAA over orders in each data set that has packs, exact or not, costs."""
    found = _runs(stored, HEADS)
    columns = [name for name in SETS if any(name == one for _, one in found)]
    titles = [SETS[name][0] for name in columns]
    yield f"| head | {' | '.join(titles)} | seconds | numbers kept | exact |"
    yield f"| --- |{' ---: |' * (len(columns) + 2)} --- |"
    for head, facts in HEADS.items():
        cells = [_faa(found.get((head, name), [])) for name in columns]
        costs = [pack.record for pack in found.get((head, COSTS), [])]
        seconds, kept = "-", "-"
        if costs:
            seconds = f"{statistics.fmean(record['seconds']['total'] for record in costs):,.0f}"
            kept = f"{statistics.fmean(record['storage']['statistics'] for record in costs):,.0f}"
        yield f"| {facts['label']} | {' | '.join(cells)} | {seconds} | {kept} | {facts['exact']} |"


def _faa(packs: Sequence[Pack]) -> str:
    """Return mean and range of the final accuracy over orders."""
    if not packs:
        return "-"
    values = [float(pack.record["metrics"]["faa"]) for pack in packs]
    apart = (max(values) - min(values)) / 2
    return f"{statistics.fmean(values):.1f} ± {apart:.1f}"


def _runs(stored: Stored, heads: Mapping[str, Any]) -> dict[tuple[str, str], list[Pack]]:
    """Return the packs by head and data set."""
    found: dict[tuple[str, str], list[Pack]] = {}
    for pack, run in stored.runs:
        named = OF_A_SET.fullmatch(run.given.protocol) if run.given is not None else None
        if named is None:
            continue
        for head, facts in heads.items():
            if _fits(pack.record["config"], facts["set"]):
                found.setdefault((head, named["set"]), []).append(pack)
                break
    return found


def _fits(config: Mapping[str, Any], chosen: Mapping[str, Any]) -> bool:
    """Return whether a configuration has all options of a row."""
    for key, value in chosen.items():
        place: Any = config
        for part in key.split("."):
            place = place.get(part) if isinstance(place, Mapping) else None
        if place != value:
            return False
    return True


def main() -> None:
    """Print the table."""
    print("\n".join(heads_of(stored_runs(STORE, load_catalogue()))))


if __name__ == "__main__":
    main()
