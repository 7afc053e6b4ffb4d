"""Print what ``--recommended`` must stand for, by the rule of ``recommendation.toml``.

python experiments/frozen/frozen_rule.py
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterator

import attrs
from frozen_claims import Found, Streams, above, less
from frozen_results import HERE, Difference, Trained, store, streams, trained

RULE = tomllib.loads((HERE / "recommendation.toml").read_text(encoding="utf-8"))
CHOSEN_HEAD = "chosen"
"""The head that the candidate ``frozen`` is."""


@attrs.frozen(kw_only=True)
class Step:
    """A candidate against the one that is held.

    Attributes:
        name: The candidate.
        held: What is held before it.
        gains: Its difference on each development stream that both have.
        replaces: Whether it is held from then on.
    """

    name: str
    held: str
    gains: Found
    replaces: bool

    @property
    def positive(self) -> list[str]:
        """The streams on which its interval is above 0."""
        return [name for name, own in self.gains.items() if above(own)]


def steps(known: Streams, runs: Trained) -> list[Step]:
    """Return what becomes of each candidate from the second on, in the order of costs."""
    names = [candidate["name"] for candidate in RULE["candidate"]]
    held = names[0]
    found = []
    for name in names[1:]:
        gains = {}
        for stream in RULE["development"]:
            own = gain(known, runs, stream, name, held)
            if own is not None:
                gains[stream] = own
        step = Step(name=name, held=held, gains=gains, replaces=False)
        step = attrs.evolve(step, replaces=len(step.positive) >= RULE["streams"])
        if step.replaces:
            held = name
        found.append(step)
    return found


def gain(known: Streams, runs: Trained, stream: str, name: str, held: str) -> Difference | None:
    """Return the difference of a candidate from the one that is held; None where either is missing."""
    first = RULE["candidate"][0]["name"]
    return less(known, runs, stream, name, CHOSEN_HEAD if held == first else held)


def forwards(runs: Trained, name: str) -> float:
    """Return the forwards in training for each image, mean over the packs of development streams."""
    if name == RULE["candidate"][0]["name"]:
        return 1.0
    found = [
        run.told.forwards
        for stream in RULE["development"]
        for run in runs.get((stream, name), {}).values()
        if run.told.forwards
    ]
    return statistics.fmean(found) if found else float("nan")


def verdict(found: list[Step]) -> str:
    """Return what is recommended, and whether that may still change."""
    held = RULE["candidate"][0]["name"]
    unsure = []
    for step in found:
        missing = len(RULE["development"]) - len(step.gains)
        if not step.replaces and len(step.positive) + missing >= RULE["streams"]:
            unsure.append(f"{step.name} has {len(step.gains)} of {len(RULE['development'])} streams")
        if step.replaces:
            held = step.name
    if unsure:
        return f"open ({'; '.join(unsure)}); on these: {held}"
    return held


def settled(found: list[Step]) -> str:
    """Return that streams without a run cannot change the verdict, where that is so; else nothing."""
    whole = all(len(step.gains) == len(RULE["development"]) for step in found)
    if whole or verdict(found).startswith("open"):
        return ""
    return ", whatever the streams without a run would give"


def lines(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what becomes of each candidate, and what is recommended."""
    found = steps(known, runs)
    for step in found:
        what = "replaces it" if step.replaces else "passed over"
        shares = f"{len(step.positive)} of {len(step.gains)} streams"
        yield f"{step.name} against {step.held}: positive on {shares}, {what}"
        for stream, own in step.gains.items():
            yield f"    {stream}: {own} ({own.orders} order{'s' * (own.orders > 1)})"
    yield f"recommended: {verdict(found)}{settled(found)}"


def main() -> None:
    """Print the verdict."""
    print("\n".join(lines(streams(), trained(store()))))


if __name__ == "__main__":
    main()
