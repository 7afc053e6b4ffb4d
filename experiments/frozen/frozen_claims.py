"""The shape of a claim: differences by stream or by name, a criterion for each, and a verdict with both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs
from frozen_results import PLAN, Difference, Stream, Trained, apart, between, hits_by_order
from stream_tables import side_of_zero

Streams = Mapping[str, Stream]
Found = Mapping[str, Difference]
Criterion = Callable[[Difference], bool]

ROLES = {"report": "On report streams", "development": "On development streams, where choices were made"}
"""The roles of streams, with what stands above their tables."""
OPEN, HOLDS, REFUTED = "open", "holds", "refuted"


@attrs.frozen(kw_only=True)
class Claim:
    """What was expected of one difference or of several, and what became of it.

    Attributes:
        key: Its name in the README.
        text: What it claims.
        verdict: Whether it holds.
        found: The differences that it rests on.
        beside: What stands behind the verdict, with the space before it.
    """

    key: str
    text: str
    verdict: str
    found: Found
    beside: str = ""

    def line(self, *, told: str = "") -> str:
        """Return it as a point of a list in Markdown, with what is told behind the verdict."""
        return f"- **({self.key})** {self.text} **{self.verdict}**{self.beside}" + (
            f". {told}" if told else ""
        )


def less(known: Streams, runs: Trained, stream: str, left: str, right: str) -> Difference | None:
    """Return a trained row less a head of the cells or another trained row; None where either is missing."""
    if stream not in known or (stream, left) not in runs:
        return None
    own = hits_by_order(known[stream], runs[stream, left])
    if right in PLAN["rows"]:
        return apart(known[stream], own, right)
    return apart(known[stream], own, hits_by_order(known[stream], runs.get((stream, right), {})))


UNITS = ("units-ridge", "units-ranpac")
"""Runs of a ridge regression on random units of the last class token; the cells have one more draw."""


def units(known: Streams, runs: Trained, stream: str) -> tuple[float, Difference]:
    """Return the right answers of random units in per cent, and what the frozen answer has more than they.

    Of the draw of the cells and of runs, each with draws and a choice of the penalty of its own, the one with
    the most right answers: a floor that is too high rather than too low.
    """
    found = [(known[stream].accuracy("units"), between(known[stream], "auto", "units"))]
    for name in UNITS:
        less_auto = less(known, runs, stream, name, "auto")
        if less_auto is not None:
            found.append((known[stream].accuracy("auto") + less_auto.mean, less_auto.turned()))
    return max(found, key=lambda each: each[0])


def less_floors(known: Streams, runs: Trained, stream: str) -> list[Difference]:
    """Return what the frozen answer has more than `lda` and than random units."""
    _, less_units = units(known, runs, stream)
    return [between(known[stream], "auto", "lda"), less_units]


def less_by_stream(known: Streams, runs: Trained, names: Iterable[str], left: str, right: str) -> Found:
    """Return a trained row less a head or another trained row, on those streams that have both."""
    every = {name: less(known, runs, name, left, right) for name in names}
    return {name: own for name, own in every.items() if own is not None}


def names_of(role: str) -> list[str]:
    """Return the streams of a role; report streams with the one whose claims stand apart."""
    return [*PLAN[role], *(PLAN["apart"] if role == "report" else [])]


def sides(known: Streams, runs: Trained, method: str, role: str) -> tuple[list[str], list[str]]:
    """Return the streams of a role on which a row ends above `auto` with its interval, and below it.

    As the ends of the interval are printed: one that rounds to zero has zero in it.
    """
    found = less_by_stream(known, runs, names_of(role), method, "auto")
    signs = {name: side_of_zero(own.low, own.high) for name, own in found.items()}
    above_it, below_it = ([name for name, side in signs.items() if side == asked] for asked in (1, -1))
    return above_it, below_it


def against(found: Found, criterion: Criterion) -> list[str]:
    """Return the names whose difference does not meet a criterion."""
    return [name for name, own in found.items() if not criterion(own)]


def on_each(found: Found, criterion: Criterion, held: str = HOLDS) -> str:
    """Return the verdict where each difference has to meet a criterion; open without any."""
    if not found:
        return OPEN
    failed = against(found, criterion)
    return f"{REFUTED} on {', '.join(failed)}" if failed else held


def while_missing(verdict: str, found: int, wanted: int, of: str) -> str:
    """Return a verdict, or that it is open while some of what it asks for is missing."""
    if found == wanted:
        return verdict
    return f"{OPEN} ({found} of {wanted} {of})" + (f"; on these: {verdict}" if found else "")


def above(own: Difference) -> bool:
    """Return whether a difference is above 0 with its interval."""
    return own.low > 0


def below(own: Difference) -> bool:
    """Return whether a difference is below 0 with its interval."""
    return own.high < 0


def with_orders(found: Found) -> str:
    """Return differences by name, each with its orders."""
    return "; ".join(f"{name}: {own}, n={own.orders}" for name, own in found.items())
