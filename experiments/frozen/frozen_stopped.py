"""Print what training that stops early gives, by the hypotheses of this folder's README.

python experiments/frozen/frozen_stopped.py
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import attrs
from frozen_claims import OPEN, Claim, Found, Streams, above, below, less_by_stream, on_each, with_orders
from frozen_results import PLAN, ROOT, Run, Trained, store, streams, trained

STREAMS = tomllib.loads((ROOT / "experiments" / "streams.toml").read_text(encoding="utf-8"))["stream"]

FIRST, SECOND = "stopped-1", "stopped-2"
FAR, NEAR_NOTHING = "signs-first", "waste-first"
GAINING = ("signs-second", "cifar-second")
CLOSE = 2.0
"""Points within which adapting and training on the first task are taken to end."""


RAN = "holds where both ran"


def verdicts(known: Streams, runs: Trained) -> Iterator[Claim]:
    """Yield each claim with the verdict of all orders beside that of order 0, for which it was written."""
    first = {key: {0: own[0]} for key, own in runs.items() if 0 in own}
    for written, whole in zip(judged(known, first), judged(known, runs), strict=True):
        beside = ""
        if whole.verdict != written.verdict:
            beside = f" over all orders; on order 0, for which it was written: {written.verdict}"
        yield attrs.evolve(whole, beside=beside)


def lines(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield each claim with its differences, and what two rows got right in the end by task."""
    for claim in verdicts(known, runs):
        yield claim.line(told=with_orders(claim.found))
    for name in (FAR, NEAR_NOTHING):
        for method in (FIRST, SECOND):
            if (name, method) in runs:
                shown = ", ".join(f"{share:.1f}" for share in by_task(runs[name, method][0], name))
                yield f"- {method} on {name}, order 0, in the end by the task of the images: {shown} %"


def judged(known: Streams, runs: Trained) -> Iterator[Claim]:
    """Yield each claim with its verdict."""

    def differences(left: str, right: str) -> Found:
        return less_by_stream(known, runs, PLAN["development"], left, right)

    found = differences(FIRST, "ranpac-joined")
    yield Claim(
        key="s-i",
        text=f"Training on the first task ends within {CLOSE:.0f} points of adapting on it "
        "(`ranpac-joined`).",
        verdict=on_each(found, lambda own: abs(own.mean) <= CLOSE, RAN),
        found=found,
    )
    found = differences(SECOND, FIRST)
    yield Claim(
        key="s-ii",
        text="Far from ImageNet, on signs, the second task's training adds, with its interval.",
        verdict=on_each({name: own for name, own in found.items() if name == FAR}, above, RAN),
        found=found,
    )
    found = differences(SECOND, "auto")
    yield Claim(
        key="s-iii",
        text="Training on two tasks is above the frozen answer with its interval on signs alone, and below "
        "it on waste, by the mean.",
        verdict=_alone(found),
        found=found,
    )
    found = {
        f"{method} on {name}": own
        for method in (FIRST, SECOND)
        for name, own in differences(method, "recommended-joined").items()
    }
    yield Claim(
        key="s-iv",
        text="Both are above training on all tasks (`recommended-joined`), by their means.",
        verdict=on_each(found, lambda own: own.mean > 0, RAN),
        found=found,
    )
    found = less_by_stream(known, runs, PLAN["development"] + PLAN["report"], FIRST, "auto")
    yield Claim(
        key="s-v",
        text="On no stream, development or report, is training on the first task below the frozen answer "
        "with its interval.",
        verdict=on_each(found, lambda own: not below(own), RAN),
        found=found,
    )
    found = {name: found[name] for name in GAINING if name in found}
    yield Claim(
        key="s-vi",
        text="On report streams it is above the frozen answer with its interval on `signs-second` and on "
        "`cifar-second`.",
        verdict=on_each(found, above, RAN) if len(found) == len(GAINING) else OPEN,
        found=found,
    )


def by_task(run: Run, stream: str) -> list[float]:
    """Return the share of right answers in percent on the test images of each task."""
    tasks = run.true // STREAMS[stream]["increment"]
    right = run.true == run.predicted
    return [100 * float(right[tasks == task].mean()) for task in range(STREAMS[stream]["tasks"])]


def _alone(found: Found) -> str:
    """Return the verdict on (s-iii)."""
    if FAR not in found or NEAR_NOTHING not in found:
        return OPEN
    sure = [name for name, own in found.items() if above(own)]
    if sure == [FAR] and found[NEAR_NOTHING].mean < 0:
        return "holds"
    return f"refuted (above on {', '.join(sure) or 'none'})"


def main() -> None:
    """Print the verdicts."""
    print("\n".join(lines(streams(), trained(store()))))


if __name__ == "__main__":
    main()
