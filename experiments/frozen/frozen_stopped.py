"""Print what training that stops early gives, by the hypotheses of this folder's README.

python experiments/frozen/frozen_stopped.py
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
from frozen_results import (
    PLAN,
    ROOT,
    Difference,
    Run,
    Stream,
    Trained,
    apart,
    hits_by_order,
    store,
    streams,
    trained,
)

STREAMS = tomllib.loads((ROOT / "experiments" / "streams.toml").read_text(encoding="utf-8"))["stream"]
Streams = Mapping[str, Stream]
Found = Mapping[str, Difference]

FIRST, SECOND = "stopped-1", "stopped-2"
FAR, NEAR_NOTHING = "signs-first", "waste-first"
GAINING = ("signs-second", "cifar-second")
CLOSE = 2.0
"""Points within which adapting and training on the first task are taken to end."""


@attrs.frozen(kw_only=True)
class Judged:
    """A claim with its verdict.

    Attributes:
        key: Its name in the README.
        text: What it claims.
        verdict: Whether it holds.
        found: The differences that it rests on.
    """

    key: str
    text: str
    verdict: str
    found: Found


OF_THE_TABLE = ("s-iii", "s-v", "s-vi")
"""Claims on differences from `auto`, which the table of the page has; this script prints them."""


def lines(known: Streams, runs: Trained, tabled: Sequence[str] = ()) -> Iterator[str]:
    """Yield each claim with its verdict on order 0, for which it was written, and what all orders give.

    The differences of ``tabled`` claims are left out.
    """
    first = {key: {0: own[0]} for key, own in runs.items() if 0 in own}
    for written, whole in zip(judged(known, first), judged(known, runs), strict=True):
        verdict = f"**{whole.verdict}**"
        if whole.verdict != written.verdict:
            verdict += f" over all orders; on order 0, for which it was written: {written.verdict}"
        told = "; ".join(f"{name}: {own}, n={own.orders}" for name, own in whole.found.items())
        known_here = told and written.key not in tabled
        yield f"- **({written.key})** {written.text} {verdict}" + (f". {told}" if known_here else "")
    for name in (FAR, NEAR_NOTHING):
        for method in (FIRST, SECOND):
            if (name, method) in runs:
                shown = ", ".join(f"{share:.1f}" for share in by_task(runs[name, method][0], name))
                yield f"- {method} on {name}, order 0, in the end by the task of the images: {shown} %"


def judged(known: Streams, runs: Trained) -> Iterator[Judged]:
    """Yield each claim with its verdict."""
    found = differences(known, runs, FIRST, "ranpac-joined")
    yield Judged(
        key="s-i",
        text=f"Training on the first task ends within {CLOSE:.0f} points of adapting on it "
        "(`ranpac-joined`).",
        verdict=_all(found, lambda own: abs(own.mean) <= CLOSE),
        found=found,
    )
    found = differences(known, runs, SECOND, FIRST)
    yield Judged(
        key="s-ii",
        text="Far from ImageNet, on signs, the second task's training adds, with its interval.",
        verdict=_all({name: own for name, own in found.items() if name == FAR}, lambda own: own.low > 0),
        found=found,
    )
    found = differences(known, runs, SECOND, "auto")
    yield Judged(
        key="s-iii",
        text="Training on two tasks is above the frozen answer with its interval on signs alone, and below "
        "it on waste, by the mean.",
        verdict=_alone(found),
        found=found,
    )
    found = {}
    for method in (FIRST, SECOND):
        for name, own in differences(known, runs, method, "recommended-joined").items():
            found[f"{method} on {name}"] = own
    yield Judged(
        key="s-iv",
        text="Both are above training on all tasks (`recommended-joined`), by their means.",
        verdict=_all(found, lambda own: own.mean > 0),
        found=found,
    )
    found = differences(known, runs, FIRST, "auto", PLAN["development"] + PLAN["report"])
    below = [name for name, own in found.items() if own.high < 0]
    yield Judged(
        key="s-v",
        text="On no stream, development or report, is training on the first task below the frozen answer "
        "with its interval.",
        verdict=f"refuted on {', '.join(below)}" if below else "holds where both ran",
        found=found,
    )
    found = {name: found[name] for name in GAINING if name in found}
    yield Judged(
        key="s-vi",
        text="On report streams it is above the frozen answer with its interval on `signs-second` and on "
        "`cifar-second`.",
        verdict=_all(found, lambda own: own.low > 0) if len(found) == len(GAINING) else "open",
        found=found,
    )


def by_task(run: Run, stream: str) -> list[float]:
    """Return the share of right answers in percent on the test images of each task."""
    tasks = run.true // STREAMS[stream]["increment"]
    right = run.true == run.predicted
    return [100 * float(right[tasks == task].mean()) for task in range(STREAMS[stream]["tasks"])]


def differences(
    known: Streams, runs: Trained, left: str, right: str, asked: Sequence[str] = PLAN["development"]
) -> dict[str, Difference]:
    """Return a trained row less a head or another trained row, on those streams asked for that have both."""
    found = {}
    for name in asked:
        if name not in known or (name, left) not in runs:
            continue
        other = right
        if right not in PLAN["rows"]:
            if (name, right) not in runs:
                continue
            other = hits_by_order(known[name], runs[name, right])
        own = apart(known[name], hits_by_order(known[name], runs[name, left]), other)
        if own is not None:
            found[name] = own
    return found


def _all(found: Found, criterion: Callable[[Difference], bool]) -> str:
    """Return the verdict where each difference has to meet a criterion."""
    if not found:
        return "open"
    against = [name for name, own in found.items() if not criterion(own)]
    return f"refuted on {', '.join(against)}" if against else "holds where both ran"


def _alone(found: Found) -> str:
    """Return the verdict on (s-iii)."""
    if FAR not in found or NEAR_NOTHING not in found:
        return "open"
    above = [name for name, own in found.items() if own.low > 0]
    if above == [FAR] and found[NEAR_NOTHING].mean < 0:
        return "holds"
    return f"refuted (above on {', '.join(above) or 'none'})"


def main() -> None:
    """Print the verdicts."""
    print("\n".join(lines(streams(), trained(store()))))


if __name__ == "__main__":
    main()
