"""Print what ``--trained`` must stand for, by the rule of ``trained.toml``.

python experiments/frozen/frozen_trained.py
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterator, Mapping

from frozen_results import HERE, Difference, Stream, Trained, apart, hits_by_order, store, streams, trained

RULE = tomllib.loads((HERE / "trained.toml").read_text(encoding="utf-8"))

Found = Mapping[str, Difference]


def differences(known: Mapping[str, Stream], runs: Trained) -> dict[str, Difference]:
    """Return the cheaper row less the held one on each development stream, over the rule's orders of both."""
    found = {}
    for name in RULE["development"]:
        if name not in known:
            continue
        sides = []
        for method in (RULE["cheaper"], RULE["held"]):
            own = {
                order: run for order, run in runs.get((name, method), {}).items() if order in RULE["orders"]
            }
            sides.append(hits_by_order(known[name], own))
        difference = apart(known[name], *sides)
        if difference is not None:
            found[name] = difference
    return found


def missing(found: Found) -> list[str]:
    """Return the streams that lack orders, each with how many it has."""
    wanted = len(RULE["orders"])
    counts = {name: found[name].orders if name in found else 0 for name in RULE["development"]}
    return [f"{name} has {count} of {wanted} orders" for name, count in counts.items() if count < wanted]


def holds(found: Found) -> bool:
    """Return whether the cheaper row loses nothing on these streams, by both halves of the rule."""
    nowhere_below = all(own.high >= 0 for own in found.values())
    return nowhere_below and mean(found) >= 0


def mean(found: Found) -> float:
    """Return the mean of the differences over streams, in points."""
    return statistics.fmean(own.mean for own in found.values())


def verdict(found: Found) -> str:
    """Return which row takes the name; open while something is missing."""
    if not found:
        return "open"
    name = RULE["cheaper"] if holds(found) else RULE["held"]
    lacking = missing(found)
    if lacking:
        return f"open ({'; '.join(lacking)}); on what ran: {name}"
    return name


def reasons(found: Found) -> str:
    """Return both halves of the rule with what was found."""
    below = [name for name, own in found.items() if own.high < 0]
    return (
        f"below 0 on {', '.join(below) or 'none'} of {len(found)} development streams, and "
        f"the mean over them is {mean(found):+.1f} points"
    )


def table(known: Mapping[str, Stream], runs: Trained) -> Iterator[str]:
    """Yield the differences as a table in Markdown, and what follows from them."""
    found = differences(known, runs)
    names = RULE["development"]
    cells = [f"{found[name]}, n={found[name].orders}" if name in found else "-" for name in names]
    yield f"| | {' | '.join(names)} |"
    yield f"| --- |{' ---: |' * len(names)}"
    yield f"| {RULE['cheaper']}, less {RULE['held']} | {' | '.join(cells)} |"
    yield ""
    if found:
        yield f"Its interval here is {reasons(found)}. So `--trained` is to be: **{verdict(found)}**."


def lines(known: Mapping[str, Stream], runs: Trained) -> Iterator[str]:
    """Yield the difference on each stream, and which row takes the name."""
    found = differences(known, runs)
    for name, own in found.items():
        yield f"{name}: {own} ({own.orders} order{'s' * (own.orders > 1)})"
    if found:
        yield f"{RULE['cheaper']} less {RULE['held']}: its interval is {reasons(found)}"
    yield f"trained: {verdict(found)}"


def main() -> None:
    """Print the verdict."""
    print("\n".join(lines(streams(), trained(store()))))


if __name__ == "__main__":
    main()
