"""Print the verdicts on ``hypotheses.toml`` from cells and packs.

python experiments/frozen/frozen_verdicts.py
"""

from __future__ import annotations

from collections.abc import Iterator

from frozen_claims import HOLDS, REFUTED, Found, Streams, above, less_by_stream, while_missing
from frozen_results import PLAN, Difference, Stream, Trained, between, store, streams, trained
from sentences import at_least


def judged(known: Streams, runs: Trained) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the name of each hypothesis with its verdict and its lines."""
    for left in PLAN["i"]["left"]:
        yield (f"i, {left}", *no_lower(known, left))
    for left in PLAN["i-far"]["left"]:
        yield (f"i-far, {left}", *far(known, runs, left))
    yield ("ii", *adapted(known, runs))
    yield ("iii", *alone(known, runs))
    for left in PLAN["iv-sure"]["left"]:
        yield (f"iv-sure, {left}", *sure(known, left))
    for left in PLAN["iv-strangers"]["left"]:
        yield (f"iv-strangers, {left}", *strangers(known, left))


def best_single(stream: Stream) -> str:
    """Return the single head with most right answers on the test images."""
    return max(PLAN["i"]["right"], key=stream.accuracy)


def no_lower(known: Streams, left: str) -> tuple[str, list[str]]:
    """Return the verdict on (i) and its lines."""
    best = {name: best_single(known[name]) for name in PLAN["report"] if name in known}
    found = {name: between(known[name], left, right) for name, right in best.items()}
    lines = [f"{name}: less {best[name]} {own}" for name, own in found.items()]
    verdict = at_least(found, PLAN["i"]["margin"])
    return while_missing(verdict, len(found), len(PLAN["report"]), "streams"), lines


def far(known: Streams, runs: Trained, left: str) -> tuple[str, list[str]]:
    """Return the verdict on (i-far) and its lines."""
    plan = PLAN["i-far"]
    trained_less = less_by_stream(known, runs, plan["streams"], plan["method"], left)
    found = {name: own.turned() for name, own in trained_less.items()}
    return while_missing(at_least(found, 0.0), len(found), len(plan["streams"]), "streams"), _by_stream(found)


def adapted(known: Streams, runs: Trained) -> tuple[str, list[str]]:
    """Return the verdict on (ii) and its lines."""
    plan = PLAN["ii"]
    present = less_by_stream(known, runs, PLAN["report"], plan["left"], plan["right"])
    # at most a margin: the other way round at least its negative
    verdict = at_least({name: own.turned() for name, own in present.items()}, -plan["margin"])
    return while_missing(verdict, len(present), len(PLAN["report"]), "streams"), _by_stream(present)


def alone(known: Streams, runs: Trained) -> tuple[str, list[str]]:
    """Return the verdict on (iii) and its lines."""
    plan = PLAN["iii"]
    present = less_by_stream(known, runs, PLAN["report"], plan["left"], plan["right"])
    sure_above = [name for name, own in present.items() if above(own)]
    word = HOLDS if set(sure_above) == set(plan["alone"]) else REFUTED
    verdict = f"{word}: above on {', '.join(sure_above) or 'none'}"
    return while_missing(verdict, len(present), len(PLAN["report"]), "streams"), _by_stream(present)


def sure(known: Streams, left: str) -> tuple[str, list[str]]:
    """Return the verdict on (iv-sure) and its lines."""
    plan = PLAN["iv-sure"]
    lines, over = [], []
    for name in PLAN["report"]:
        if name not in known:
            continue
        ours, theirs = known[name].ece(left), known[name].ece(plan["right"])
        lines.append(f"{name}: {ours:.1f} % for {theirs:.1f} %")
        if ours > plan["share"] * theirs:
            over.append(name)
    verdict = f"{REFUTED} on {', '.join(over)} (no interval was foreseen)" if over else HOLDS
    return while_missing(verdict, len(lines), len(PLAN["report"]), "streams"), lines


def strangers(known: Streams, left: str) -> tuple[str, list[str]]:
    """Return the verdict on (iv-strangers) and its lines."""
    plan = PLAN["iv-strangers"]
    lines, twice = [], []
    for name in PLAN["report"]:
        seen = known[name].refused(left) if name in known else None
        if seen is None:
            continue
        by_probability, by_distance = seen
        lines.append(f"{name}: {by_distance:.0f} % for {by_probability:.0f} %")
        if by_distance >= plan["factor"] * by_probability:
            twice.append(name)
    verdict = f"{HOLDS if len(twice) >= plan['streams'] else REFUTED}: on {len(twice)} of {len(lines)}"
    return while_missing(verdict, len(lines), len(PLAN["report"]), "streams"), lines


def _by_stream(found: Found) -> list[str]:
    return [f"{name}: {own} ({_orders(own)})" for name, own in found.items()]


def _orders(own: Difference) -> str:
    return f"{own.orders} order{'s' * (own.orders > 1)}"


def main() -> None:
    """Print all verdicts."""
    for name, verdict, lines in judged(streams(), trained(store())):
        print(f"({name}) {verdict}")
        for line in lines:
            print(f"    {line}")


if __name__ == "__main__":
    main()
