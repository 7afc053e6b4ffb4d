"""The table of heads on stored features, from packs: a row a head, a column a data set.

    python experiments/heads/heads_table.py            # print it
    python experiments/heads/heads_table.py --packs    # the packs behind it, to be examined by `lw2g verify`

``scripts/tables.py`` writes it into docs/heads.md.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sets import HEADS, SETS

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from stream_tables import side_of_zero, with_interval

from lw2g.registry.catalogue import load_catalogue
from lw2g.results.bootstrap import over_orders_and_images
from lw2g.results.right_answers import RightAnswers, right_answers
from lw2g_store.packs import Pack
from lw2g_store.stored import Stored, stored_runs

STORE = Path(__file__).resolve().parents[1] / "store"
# the same pattern keeps these packs out of the leaderboard, whose rows are trained runs and their floors
OF_A_SET = re.compile(r"features/like-for-like/(?P<set>[a-z0-9-]+)\.(?P<order>\d+)@\d+")
COSTS = "tiny"
"""The data set whose seconds and numbers are told."""
DOMAINS_OF = "pacs"
"""The data set of which each task brings another domain of all classes."""


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
    yield ""
    yield from words_of(found)


def words_of(found: Mapping[tuple[str, str], Sequence[Pack]]) -> Iterator[str]:
    """Yield what the table comes to: how three heads end beside `lda`."""
    means = {place: statistics.fmean(_values(packs)) for place, packs in found.items()}
    sides: dict[int, list[str]] = {1: [], 0: [], -1: []}
    for name in SETS:
        apart = over_orders_and_images(*(_answers(found[head, name]) for head in ("anacp", "lda")))
        assert apart is not None, "the same orders"
        assert apart.low is not None
        assert apart.high is not None
        shown = f"{SETS[name][0]} {with_interval(apart)}"
        sides[side_of_zero(apart.low, apart.high)].append(shown)
    told = ", ".join(sides[1]) or "no set"
    told += "".join(f", undecided on {', '.join(own)}" for own in (sides[0],) if own)
    told += "".join(f", below it on {', '.join(own)}" for own in (sides[-1],) if own)
    dear = [
        statistics.fmean(_cost(pack, cost) for pack in found["anacp", COSTS])
        / statistics.fmean(_cost(pack, cost) for pack in found["lda", COSTS])
        for cost in (("seconds", "total"), ("storage", "statistics"))
    ]
    times = " and ".join(
        f"{more:.0f} times the {what}" for more, what in zip(dear, ("time", "numbers"), strict=True)
    )
    yield f"- `anacp` is above `lda` on {told} (95 % intervals), for {times}."
    apart = means["klda", DOMAINS_OF] - min(_values(found["klda", DOMAINS_OF]))
    yield f"- `klda` depends on its first task: its worst order of PACS is {apart:.1f} points below its mean."
    ridges = {head: facts["set"] for head, facts in HEADS.items() if facts["set"]["baseline.head"] == "ridge"}
    lifted = [head for head, options in ridges.items() if options.get("baseline.head_features") != 0]
    here = [means[head, DOMAINS_OF] - means["lda", DOMAINS_OF] for head in lifted]
    there = [means[head, name] - means["lda", name] for head in lifted for name in SETS if name != DOMAINS_OF]
    yield (
        f"- `ridge` over random features is {min(there):+.1f} to {max(there):+.1f} points from `lda` where "
        f"classes come, {min(here):+.1f} to {max(here):+.1f} where domains come, by its penalty and map."
    )


def _answers(packs: Sequence[Pack]) -> dict[tuple[str, ...], RightAnswers]:
    """Return the last answers by what orders differ in: the classes or domains as tasks bring them."""
    found = {}
    for pack in packs:
        record, last = pack.record, pack.evaluations[-1]
        domains = record.get("domains") or ()
        order = (*map(str, record["class_order"]), *domains)
        tasks = last["task"].astype(np.int64)
        found[order] = right_answers(last, record["class_order"], tasks, domains)
    return found


def _cost(pack: Pack, place: tuple[str, str]) -> float:
    return float(pack.record[place[0]][place[1]])


def _values(packs: Sequence[Pack]) -> list[float]:
    return [float(pack.record["metrics"]["faa"]) for pack in packs]


def _faa(packs: Sequence[Pack]) -> str:
    """Return the mean final accuracy over orders, the worst order in brackets."""
    if not packs:
        return "-"
    values = _values(packs)
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
    arguments = parser.parse_args()
    stored = stored_runs(STORE, load_catalogue())
    if not arguments.packs:
        print("\n".join(heads_of(stored)))
        return
    for (head, name), packs in _runs(stored, HEADS).items():
        for pack in packs:
            faa = float(pack.record["metrics"]["faa"])
            print(f"{head}, {name}: FAA {faa:.2f}, {pack.path.relative_to(STORE.parents[1])}")


if __name__ == "__main__":
    main()
