"""The table of heads on stored features, from packs: a row a head, a column a data set.

    python experiments/heads/heads_table.py            # print it
    python experiments/heads/heads_table.py --packs    # the packs behind it, to be examined by `lw2g verify`

``scripts/tables.py`` writes it into docs/heads.md.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sets import HEADS, SETS

from lw2g.registry.catalogue import load_catalogue
from lw2g_store.packs import Pack
from lw2g_store.stored import Stored, stored_runs

STORE = Path(__file__).resolve().parents[1] / "store"
# the same pattern keeps these packs out of the leaderboard, whose rows are trained runs and their floors
OF_A_SET = re.compile(r"features/like-for-like/(?P<set>[a-z0-9-]+)\.(?P<order>\d+)@\d+")
COSTS = "tiny"
"""The data set whose seconds and numbers are told."""


def heads_of(stored: Stored) -> Iterator[str]:
    """Yield the lines in Markdown: FAA over orders in each data set that has packs, and costs."""
    found = _runs(stored, HEADS)
    columns = [name for name in SETS if any(name == one for _, one in found)]
    titles = [SETS[name][0] for name in columns]
    yield f"| head | {' | '.join(titles)} | seconds | numbers kept |"
    yield f"| --- |{' ---: |' * (len(columns) + 2)}"
    for head, facts in HEADS.items():
        cells = [_faa(found.get((head, name), [])) for name in columns]
        costs = [pack.record for pack in found.get((head, COSTS), [])]
        seconds, kept = "-", "-"
        if costs:
            seconds = f"{statistics.fmean(record['seconds']['total'] for record in costs):,.0f}"
            kept = f"{statistics.fmean(record['storage']['statistics'] for record in costs):,.0f}"
        yield f"| {facts['label']} | {' | '.join(cells)} | {seconds} | {kept} |"


def _faa(packs: Sequence[Pack]) -> str:
    """Return the mean final accuracy over orders, the worst order in brackets."""
    if not packs:
        return "-"
    values = [float(pack.record["metrics"]["faa"]) for pack in packs]
    return f"{statistics.fmean(values):.1f} ({min(values):.1f})"


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
    """Print the table, or where its packs lie."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packs", action="store_true", help="name the packs behind the table")
    stored = stored_runs(STORE, load_catalogue())
    if not parser.parse_args().packs:
        print("\n".join(heads_of(stored)))
        return
    for (head, name), packs in _runs(stored, HEADS).items():
        for pack in packs:
            faa = float(pack.record["metrics"]["faa"])
            print(f"{head}, {name}: FAA {faa:.2f}, {pack.path.relative_to(STORE.parents[1])}")


if __name__ == "__main__":
    main()
