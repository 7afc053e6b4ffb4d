"""Sentences of pages whose numbers come from packs: a template of tables.toml, filled.

A field is ``{METHOD/STREAM/WHAT}``, with the names of ``stream_tables``; METHOD may be a short one of
experiments/worth/hypotheses.toml. WHAT is one of :data:`WHAT`; where STREAM is ``report``, which stands for
all report streams that have the method and stand apart from none, one of :data:`ACROSS`.
``{seconds/NAME/WHAT}`` is what a command of seconds.toml took.
"""

from __future__ import annotations

import math
import re
import statistics
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from stream_tables import FLOOR, Line, StreamRun, is_apart, lines_of, side_of_zero, with_interval

FIELD = re.compile(r"\{([\w.-]+)/([\w-]+)/([\w-]+)\}")
PARTS = re.compile(r"\n\s*\n|\n(?=- )")
"""What stands between paragraphs, and between points."""
WIDTH = 125
SECONDS = Path(__file__).with_name("seconds.toml")


def _less(line: Line) -> Any:
    apart = line.less_the_floor
    if apart is None:
        raise SystemExit(f"{line.method} on {line.stream} has no order of the floor")
    return apart


WHAT: Mapping[str, Callable[[Line], str]] = {
    "faa": lambda line: f"{line.faa:.1f}",
    "worst": lambda line: f"{min(run.faa for run in line.runs):.1f}",
    "less": lambda line: f"{_less(line).mean:+z.1f}",
    "points": lambda line: f"{abs(_less(line).mean):.1f}",
    "interval": lambda line: with_interval(_less(line)),
    "forwards": lambda line: f"{sum(run.forwards for run in line.runs) / len(line.runs):.1f}",
    "orders": lambda line: str(len(line.runs)),
    "kept": lambda line: f"{sum(run.kept for run in line.runs) / len(line.runs):,.0f}",
}
"""What a field may ask of a method on a stream: its mean FAA and that of the worst order, the difference from
the floor (signed, as a number of points, with its interval), forwards for each training image, orders, and
numbers kept."""


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _forwards(lines: Sequence[Line]) -> str:
    every = [float(WHAT["forwards"](line)) for line in lines]
    return _span(f"{min(every):.1f}", f"{max(every):.1f}")


def _times(lines: Sequence[Line]) -> str:
    return f"{statistics.fmean(float(WHAT['forwards'](line)) for line in lines):.0f}"


def _extreme(choose: Callable[..., Line], lines: Sequence[Line]) -> str:
    line = choose(lines, key=lambda each: _less(each).mean)
    return f"{_less(line).mean:+z.1f} (`{line.stream}`)"


def _orders(lines: Sequence[Line]) -> str:
    counts = sorted({len(line.runs) for line in lines})
    return _span(str(counts[0]), str(counts[-1]))


def _named(lines: Iterable[Line]) -> str:
    return ", ".join(f"`{line.stream}`" for line in lines) or "none"


def _on_side(side: int, lines: Sequence[Line]) -> str:
    return _named(line for line in lines if side_of_zero(_less(line).low, _less(line).high) == side)


def unsure(lines: Iterable[Line]) -> str:
    """Return the streams whose interval excludes 0 where a t interval over orders alone has it."""
    sided = [line for line in lines if side_of_zero(_less(line).low, _less(line).high)]
    by_orders = [(line, line.less_by_orders()) for line in sided]
    return _named(
        line
        for line, apart in by_orders
        if apart is None or apart.low is None or not side_of_zero(apart.low, apart.high)
    )


ACROSS: Mapping[str, Callable[[Sequence[Line]], str]] = {
    "forwards": _forwards,
    "times": _times,
    "least": partial(_extreme, min),
    "most": partial(_extreme, max),
    "orders": _orders,
    "streams": lambda lines: str(len(lines)),
    "above": partial(_on_side, 1),
    "below": partial(_on_side, -1),
    "undecided": partial(_on_side, 0),
    "unsure": unsure,
}
"""What a field may ask of a method over report streams: the least and the greatest forwards for each training
image, their mean as a whole number, the least and the greatest difference from the floor, the orders, how
many streams there are, on which the interval of the difference is above 0, below it, or holds it, and where
orders alone do not exclude it."""


def measured() -> dict[str, str]:
    """Return the fields of commands that were timed: whole seconds, rounded up, and numbers of images."""
    return {
        f"{{seconds/{name}/{what}}}": str(math.ceil(min(value)) if isinstance(value, list) else value)
        for name, timed in tomllib.loads(SECONDS.read_text(encoding="utf-8")).items()
        for what, value in timed.items()
    }


def sentence(
    text: str, names: Mapping[str, str], size: int, runs: Sequence[StreamRun], further: Mapping[str, str]
) -> Iterator[str]:
    """Yield the lines of paragraphs and of the points of a list.

    Args:
        text: The template; an empty line begins a paragraph, a line that begins with a dash a point.
        names: Methods by short names.
        size: Pixels of the runs.
        runs: All packs of streams.
        further: What stands for whole fields that no single method answers.

    Raises:
        SystemExit: A field has no packs.
    """

    further = {**measured(), **further}

    def filled(field: re.Match[str]) -> str:
        if field[0] in further:
            return further[field[0]]
        method, stream, what = field.groups()
        if stream == "report":
            every = lines_of(runs, stream, size, [names.get(method, method)])
            every = [line for line in every if not is_apart(line.stream)]
            lines = [line for line in every if line.less_the_floor is not None]
            if not lines or what not in ACROSS:
                raise SystemExit(f"{field[0]}: no pack of {method} on report streams, or no such number")
            return ACROSS[what](lines)
        at_size = [run for run in runs if run.size == size and run.stream == stream]
        own = [run for run in at_size if run.method == names.get(method, method)]
        if not own or what not in WHAT:
            raise SystemExit(f"{field[0]}: no pack of {method} on {stream}, or no such number")
        floor = [run for run in at_size if run.method == FLOOR]
        return WHAT[what](Line(stream=stream, method=own[0].method, runs=own, floor=floor))

    before = ""
    for part in PARTS.split(text.strip()):
        point = part.startswith("- ")
        if before and not (point and before.startswith("- ")):
            yield ""
        before = part
        if part.startswith("|"):
            # a table keeps its lines
            yield from FIELD.sub(filled, part).splitlines()
            continue
        indent = "  " if point else ""
        filled_part = FIELD.sub(filled, " ".join(part.split()))
        # a line that began with "%" would be a remark on the site
        whole = filled_part.replace(" %", "\N{NO-BREAK SPACE}%")
        for line in textwrap.wrap(
            whole, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ):
            yield line.replace("\N{NO-BREAK SPACE}%", " %")


class Measured(Protocol):
    """A difference with the ends of its interval: None where pairs are alike."""

    @property
    def mean(self) -> float:
        """The mean."""

    @property
    def low(self) -> float | None:
        """The lower end."""

    @property
    def high(self) -> float | None:
        """The upper end."""


def at_least(found: Mapping[str, Measured], least: float) -> str:
    """Return whether no difference falls below a margin: "holds", or "refuted" on some streams.

    Means decide, as the committed criteria of all studies say. "By the mean alone": the interval has the
    margin in it.

    Args:
        found: The differences, by stream.
        least: The margin.
    """
    lows = {name: own.mean if own.low is None else own.low for name, own in found.items()}
    highs = {name: own.mean if own.high is None else own.high for name, own in found.items()}
    missed = [name for name, own in found.items() if own.mean < least]
    if not missed:
        by_mean = [name for name, low in lows.items() if low < least]
        if not by_mean:
            return "holds"
        if len(by_mean) == len(found):
            return "holds by the mean alone"
        return f"holds; met by the mean alone on {', '.join(by_mean)}"
    surely = [name for name in missed if highs[name] < least]
    by_mean = [name for name in missed if name not in surely]
    parts = [f"refuted on {', '.join(surely)}"] if surely else []
    parts += [f"refuted by the mean alone on {', '.join(by_mean)}"] if by_mean else []
    met = [name for name, low in lows.items() if name not in missed and low < least]
    parts += [f"met by the mean alone on {', '.join(met)}"] if met else []
    return "; ".join(parts)
