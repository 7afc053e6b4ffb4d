"""Sentences of pages whose numbers come from packs: a template of tables.toml, filled.

A field is ``{METHOD/STREAM/WHAT}``, with the names of ``stream_tables``; METHOD may be a short one of
experiments/worth/hypotheses.toml. WHAT is one of :data:`WHAT`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from stream_tables import FLOOR, Line, StreamRun, with_interval

FIELD = re.compile(r"\{([\w.-]+)/([\w-]+)/([\w-]+)\}")
WIDTH = 125


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
}
"""What a field may ask of a method on a stream: its mean FAA and that of the worst order, the difference from
the floor (signed, as a number of points, with its interval), forwards for each training image, orders."""


def sentence(
    text: str, names: Mapping[str, str], size: int, runs: Sequence[StreamRun], further: Mapping[str, str]
) -> Iterator[str]:
    """Yield the lines of a paragraph.

    Args:
        text: The template.
        names: Methods by short names.
        size: Pixels of the runs.
        runs: All packs of streams.
        further: What stands for whole fields that no single method answers.

    Raises:
        SystemExit: A field has no packs.
    """

    def filled(field: re.Match[str]) -> str:
        if field[0] in further:
            return further[field[0]]
        method, stream, what = field.groups()
        at_size = [run for run in runs if run.size == size and run.stream == stream]
        own = [run for run in at_size if run.method == names.get(method, method)]
        if not own or what not in WHAT:
            raise SystemExit(f"{field[0]}: no pack of {method} on {stream}, or no such number")
        floor = [run for run in at_size if run.method == FLOOR]
        return WHAT[what](Line(stream=stream, method=own[0].method, runs=own, floor=floor))

    paragraph = FIELD.sub(filled, " ".join(text.split()))
    yield from textwrap.wrap(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False)
