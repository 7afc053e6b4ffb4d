"""Print the verdicts on ``hypotheses.toml`` from cells and packs.

python experiments/frozen/frozen_verdicts.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from frozen_results import (
    PLAN,
    Difference,
    Stream,
    Trained,
    apart,
    between,
    hits_by_order,
    store,
    streams,
    trained,
)

Streams = Mapping[str, Stream]


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


def of_method(known: Streams, runs: Trained, name: str, method: str, head: str) -> Difference | None:
    """Return the difference of a trained row from a head on a stream; None where either is missing."""
    if name not in known or (name, method) not in runs:
        return None
    stream = known[name]
    return apart(stream, hits_by_order(stream, runs[name, method]), head)


def no_lower(known: Streams, left: str) -> tuple[str, list[str]]:
    """Return the verdict on (i) and its lines."""
    margin = PLAN["i"]["margin"]
    below, beyond, lines = [], [], []
    for name in PLAN["report"]:
        if name not in known:
            continue
        right = best_single(known[name])
        own = between(known[name], left, right)
        lines.append(f"{name}: less {right} {own}")
        if own.mean < margin:
            below.append(name)
            if own.high < margin:
                beyond.append(name)
    verdict = "holds"
    if below:
        verdict = f"refuted on {', '.join(below)}"
        verdict += f"; beyond its interval on {', '.join(beyond)}" if beyond else "; within its interval"
    return _whole(verdict, len(lines), len(PLAN["report"])), lines


def far(known: Streams, runs: Trained, left: str) -> tuple[str, list[str]]:
    """Return the verdict on (i-far) and its lines."""
    plan = PLAN["i-far"]
    found = {name: of_method(known, runs, name, plan["method"], left) for name in plan["streams"]}
    # the trained row less the head: turned around
    turned = {name: own for name, own in found.items() if own is not None}
    lines = [
        f"{name}: {-own.mean:+.1f} ({-own.high:+.1f} to {-own.low:+.1f}; {_orders(own)})"
        for name, own in turned.items()
    ]
    verdict = "refuted"
    if all(own.mean < 0 for own in turned.values()):
        verdict = "holds, sure on " + (
            ", ".join(name for name, own in turned.items() if own.high < 0) or "none"
        )
    return _whole(verdict, len(turned), len(plan["streams"])), lines


def adapted(known: Streams, runs: Trained) -> tuple[str, list[str]]:
    """Return the verdict on (ii) and its lines."""
    plan = PLAN["ii"]
    found = {name: of_method(known, runs, name, plan["left"], plan["right"]) for name in PLAN["report"]}
    present = {name: own for name, own in found.items() if own is not None}
    lines = [f"{name}: {own} ({_orders(own)})" for name, own in present.items()]
    above = [name for name, own in present.items() if own.mean >= plan["margin"]]
    beyond = [name for name, own in present.items() if own.low >= plan["margin"]]
    verdict = "holds"
    if above:
        verdict = f"refuted on {', '.join(above)}"
        verdict += f"; sure on {', '.join(beyond)}" if beyond else "; within its interval"
    return _whole(verdict, len(present), len(PLAN["report"])), lines


def alone(known: Streams, runs: Trained) -> tuple[str, list[str]]:
    """Return the verdict on (iii) and its lines."""
    plan = PLAN["iii"]
    found = {name: of_method(known, runs, name, plan["left"], plan["right"]) for name in PLAN["report"]}
    present = {name: own for name, own in found.items() if own is not None}
    lines = [f"{name}: {own} ({_orders(own)})" for name, own in present.items()]
    above = [name for name, own in present.items() if own.low > 0]
    verdict = "holds" if set(above) == set(plan["alone"]) else "refuted"
    verdict += f": above on {', '.join(above) or 'none'}"
    return _whole(verdict, len(present), len(PLAN["report"])), lines


def sure(known: Streams, left: str) -> tuple[str, list[str]]:
    """Return the verdict on (iv-sure) and its lines."""
    plan = PLAN["iv-sure"]
    lines, above = [], []
    for name in PLAN["report"]:
        if name not in known:
            continue
        ours, theirs = known[name].ece(left), known[name].ece(plan["right"])
        lines.append(f"{name}: {ours:.1f} % for {theirs:.1f} %")
        if ours > plan["share"] * theirs:
            above.append(name)
    verdict = f"refuted on {', '.join(above)}" if above else "holds"
    return _whole(verdict, len(lines), len(PLAN["report"])), lines


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
    verdict = "holds" if len(twice) >= plan["streams"] else "refuted"
    verdict += f": on {len(twice)} of {len(lines)}"
    return _whole(verdict, len(lines), len(PLAN["report"])), lines


def _orders(own: Difference) -> str:
    return f"{own.orders} order{'s' * (own.orders > 1)}"


def _whole(verdict: str, found: int, wanted: int) -> str:
    """Return a verdict, or that it is open while streams are missing."""
    if found == wanted:
        return verdict
    return f"open ({found} of {wanted} streams)" + (f"; on these: {verdict}" if found else "")


def main() -> None:
    """Print all verdicts."""
    for name, verdict, lines in judged(streams(), trained(store())):
        print(f"({name}) {verdict}")
        for line in lines:
            print(f"    {line}")


if __name__ == "__main__":
    main()
