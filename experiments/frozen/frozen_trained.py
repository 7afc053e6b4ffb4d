"""Print what ``--trained`` must stand for, by the rule of ``trained.toml``.

python experiments/frozen/frozen_trained.py
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterator

from frozen_claims import Found, Streams, against, below, less_by_stream
from frozen_results import HERE, Trained, store, streams, trained

RULE = tomllib.loads((HERE / "trained.toml").read_text(encoding="utf-8"))
TRAINED = RULE["cheaper"]
"""The row that `--trained` stands for."""


def differences(known: Streams, runs: Trained) -> Found:
    """Return the cheaper row less the held one on each development stream, over the rule's orders of both."""
    asked = {
        key: {order: run for order, run in own.items() if order in RULE["orders"]}
        for key, own in runs.items()
    }
    return less_by_stream(known, asked, RULE["development"], RULE["cheaper"], RULE["held"])


def missing(found: Found) -> list[str]:
    """Return the streams that lack orders, each with how many it has."""
    wanted = len(RULE["orders"])
    counts = {name: found[name].orders if name in found else 0 for name in RULE["development"]}
    return [f"{name} has {count} of {wanted} orders" for name, count in counts.items() if count < wanted]


def holds(found: Found) -> bool:
    """Return whether the cheaper row loses nothing on these streams, by both halves of the rule."""
    return not surely_below(found) and mean(found) >= 0


def surely_below(found: Found) -> list[str]:
    """Return the streams on which the interval is below 0."""
    return against(found, lambda own: not below(own))


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
    return (
        f"below 0 on {', '.join(surely_below(found)) or 'none'} of {len(found)} development streams, and "
        f"the mean over them is {mean(found):+.1f} points"
    )


def table(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the differences as a table in Markdown, and what follows from them."""
    found = differences(known, runs)
    names = RULE["development"]
    cells = [f"{found[name]}, n={found[name].orders}" if name in found else "-" for name in names]
    yield f"| | {' | '.join(names)} |"
    yield f"| --- |{' ---: |' * len(names)}"
    yield f"| `{RULE['cheaper']}` minus training on every task | {' | '.join(cells)} |"
    yield ""
    if found:
        yield f"Its interval here is {reasons(found)}. So `--trained` is to be: **{verdict(found)}**."


def lines(known: Streams, runs: Trained) -> Iterator[str]:
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
