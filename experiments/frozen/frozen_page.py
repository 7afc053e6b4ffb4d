"""The tables, verdicts and picture of docs/frozen.md, frozen_tables.md and worth.md, from cells and packs.

``scripts/tables.py`` writes, prints and checks them.
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import frozen_candidates
import frozen_fewer
import frozen_gains
import frozen_images
import frozen_stopped
import frozen_trained
import frozen_whole
import frozen_words
import machines
from frozen_claims import ROLES, Streams, less, less_floors, names_of, units
from frozen_results import (
    CELLS,
    PLAN,
    Difference,
    Stream,
    Trained,
    apart,
    between,
    hits_by_order,
    streams,
    trained,
)
from frozen_trained import TRAINED
from frozen_verdicts import judged
from frozen_words import forwards_of, told
from interval_plot import Panel, Point, picture
from sentences import WIDTH

from lw2g_store.stored import Stored

__all__ = ["behind", "told", "written"]

README, PAGE, TABLES, PICTURE = "README.md", "docs/frozen.md", "docs/frozen_tables.md", "docs/frozen.svg"
WORTH = "docs/worth.md"
USE = "docs/use.md"
MARKS = {
    README: ("headline",),
    USE: ("choice",),
    PAGE: ("short", "report", "as_runs", "recommended", "strangers"),
    WORTH: ("worth_short", "same_classes", "same_words", "adds", "adds_words"),
    TABLES: (
        "answers",
        "whole",
        "fewer",
        "rule",
        "named",
        "adapted",
        "stopped",
        "again",
        "few",
        "sure",
        "quarters",
        "verdicts",
        "cropped",
        "squares",
        "shrinkage",
    ),
}
"""What stands on each page, as ``<!-- frozen: NAME -->`` before and ``<!-- end of frozen -->`` behind it."""
BESIDE = (frozen_candidates, frozen_images, frozen_words)
"""The modules that write blocks beside this one."""
END = "<!-- end of frozen -->"
SINGLE = {
    "lda": "`lda`",
    "units": "2,000 units",
    "ridge": "`ridge`",
    "ridge-6": "`ridge`, 6 layers",
    "ridge-12": "`ridge`, 12",
    "lda-12": "`lda`, 12",
    "product": "product",
}
"""The rows of the table of answers, with what stands above them."""


# -- tables ----------------------------------------------------------------------------------------------


SHOWN = {
    "turns": "photos, drawings",
    "pacs-art-sketch": "art, sketches",
    "cifar-second": "small photos",
    "tiny": "small photos",
    "signs-second": "traffic signs",
    "waste-second": "waste",
    "cifar-whole": "small photos",
}
"""What the images of report streams show, for who has not met the streams."""


def headline(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the table of the README: report streams, frozen answers, and what training adds."""
    yield "| | images | `lda` | frozen answer | training adds |"
    yield "| --- | --- |" + " ---: |" * 3
    for name in names_of("report"):
        if name in known:
            trained_less = less(known, runs, name, TRAINED, "auto")
            ends = [f"{known[name].accuracy(head):.1f}" for head in ("lda", "auto")]
            cells = [SHOWN[name], *ends, str(trained_less or "-")]
            # on a telephone a cell breaks before an interval, not within it
            whole = [cell.replace(" to ", "\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}") for cell in cells]
            yield f"| {name} | {' | '.join(whole)} |"


def _ends(known: Streams, runs: Trained, name: str) -> list[str]:
    """Return the accuracy of both heads of the last class token and of the frozen answer."""
    right, _ = units(known, runs, name)
    return [f"{each:.1f}" for each in (known[name].accuracy("lda"), right, known[name].accuracy("auto"))]


CHOICE = {
    TRAINED: "training",
    "recommended": "training on every task",
    "ranpac-joined": "adapters of the first task",
    "one-set": "one prompt set",
}
"""The trained rows of the page on what to use, with the headings of their sections."""


def choice(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what `lda` and each kind of training have more than the frozen answer, and forwards."""
    links = [f"[{heading}](#{heading.replace(' ', '-')})" for heading in CHOICE.values()]
    yield f"| | [frozen answer](#the-frozen-answer) | `lda` | {' | '.join(links)} |"
    yield f"| --- |{' ---: |' * (2 + len(CHOICE))}"
    for name in names_of("report"):
        if name in known:
            floor, _ = less_floors(known, runs, name)
            cells = [f"{floor.turned()}{_orders_of(known[name], floor)}"]
            cells += [_gain(known, runs, name, method) for method in CHOICE]
            yield f"| {name} | {known[name].accuracy('auto'):.1f} | {' | '.join(cells)} |"
    spent = [forwards_of(runs, method, names_of("report")) for method in CHOICE]
    yield f"| forwards a training image | 1 | 1 | {' | '.join(spent)} |"


def report(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the table of the page that explains the frozen answer, with the orders of each difference."""
    yield (
        "| | `lda` | random units | frozen answer | frozen minus `lda` | frozen minus random units "
        "| training minus `start` |"
    )
    yield "| --- |" + " ---: |" * 6
    for name in names_of("report"):
        if name in known:
            floors = [f"{own}{_orders_of(known[name], own)}" for own in less_floors(known, runs, name)]
            cells = [*_ends(known, runs, name), *floors, _gain(known, runs, name, TRAINED)]
            yield f"| {name} | {' | '.join(cells)} |"


def _orders_of(stream: Stream, own: Difference) -> str:
    """Return over how many orders a head is compared: those of its runs, or where cells have orders."""
    return f", n={own.orders}" if own.orders else _drawn_orders(stream)


def _drawn_orders(stream: Stream) -> str:
    """Return over how many orders two heads are compared, where each order has classes of its own."""
    return f", n={len(stream.every)}" if len(stream.every) > 1 else ""


def again(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what another machine changes under the same seed."""
    yield from machines.table(runs)


def adds(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what both kinds of training have more than `--recommended`, by images a class."""
    yield from frozen_gains.table(known, runs)


def adds_words(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what these rows come to, in sentences."""
    yield from textwrap.wrap(" ".join(frozen_gains.words(known, runs)), WIDTH, break_on_hyphens=False)


def few(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield frozen heads by images a class, and the verdicts on what training adds."""
    yield from frozen_gains.frozen_table()
    yield ""
    yield from frozen_gains.verdicts(runs)


def answers(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the tables of right answers, one a role."""
    for role, title in ROLES.items():
        # the differences on report streams stand on the page that explains the frozen answer
        elsewhere = role == "report"
        yield f"**{title}**" + (f" ([differences]({Path(PAGE).name}#how-good-it-is))" if elsewhere else "")
        yield ""
        differences = "" if elsewhere else " minus `lda` | trained minus `auto` |"
        yield f"| | {' | '.join(SINGLE.values())} | `auto` | takes |{differences}"
        yield f"| --- |{' ---: |' * len(SINGLE)} ---: | --- |{'' if elsewhere else ' ---: | ---: |'}"
        for name in names_of(role):
            if name in known:
                cells = _answers(known[name])
                cells += [] if elsewhere else _answers_apart(known, runs, known[name])
                yield f"| {name} | {' | '.join(cells)} |"
        yield ""


def _answers(stream: Stream) -> list[str]:
    """Return the right answers of each head on a stream, and the head that the frozen answer takes."""
    own = [f"{stream.accuracy(row):.1f}" for row in SINGLE]
    taken = Counter(cell.facts["stands"]["auto"] for cell in stream.every)
    takes = ", ".join(head + (f" ({count})" if len(taken) > 1 else "") for head, count in taken.most_common())
    return [*own, f"**{stream.accuracy('auto'):.1f}**", takes]


def _answers_apart(known: Streams, runs: Trained, stream: Stream) -> list[str]:
    """Return what the frozen answer has more than `lda` on a stream, and training more than it."""
    less = between(stream, "auto", "lda")
    return [f"{less}{_drawn_orders(stream)}", _gain(known, runs, stream.name, TRAINED)]


def _gain(known: Streams, runs: Trained, stream: str, method: str) -> str:
    """Return what a trained row has more than `auto`, with its orders; a dash without one."""
    own = less(known, runs, stream, method, "auto")
    return "-" if own is None else f"{own}, n={own.orders}"


def sure(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the table of probabilities and of strangers on report streams."""
    yield (
        "| | log loss: `lda` as it was | with a temperature | `auto` | ECE: `lda` as it was "
        "| with a temperature | `auto` | strangers refused: by per cent, `lda` | by distance "
        "| by per cent, `auto` | by distance |"
    )
    yield "| --- |" + " ---: |" * 10
    for name in names_of("report"):
        if name in known:
            yield _sure_line(known[name])


def _sure_line(stream: Stream) -> str:
    rows = ("lda at temperature 1", "lda", "auto")
    cells = [f"{stream.loss(row):.2f}" for row in rows]
    cells += [f"{stream.ece(row):.1f}" for row in rows]
    for row in ("lda", "auto"):
        seen = stream.refused(row)
        cells += ["-", "-"] if seen is None else [f"{share:.0f}" for share in seen]
    return f"| {stream.name} | {' | '.join(cells)} |"


def verdicts(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the claims, each with its verdicts."""
    by_claim: dict[str, dict[str, list[str]]] = {}
    for name, verdict, _ in judged(known, runs):
        key, _, which = name.partition(", ")
        by_claim.setdefault(key, {}).setdefault(verdict, []).append(f"`{which}`" if which else "")
    for key, verdicts_of in by_claim.items():
        yield f"- **({key})** {PLAN[key]['claim']}"
        for verdict, heads in verdicts_of.items():
            named = ", ".join(filter(None, heads))
            yield f"    - {named}{': ' if named else ''}**{verdict}**"


def adapted(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what rows have more than `auto` on development streams, where no other table says it."""
    methods = {
        "ranpac-joined": "adapters of the first task, ridge on 12 layers",
        "recommended-joined": "trained on every task, head and expert (`lda`) on 12 layers",
        "stopped-2": "trained on the first two tasks, then `auto`",
    }
    names = [
        name
        for name in PLAN["development"]
        if name in known and any((name, method) in runs for method in methods)
    ]
    yield f"| minus `auto` | {' | '.join(names)} |"
    yield f"| --- |{' ---: |' * len(names)}"
    for method, shown in methods.items():
        yield f"| {shown} | {' | '.join(_gain(known, runs, name, method) for name in names)} |"


def stopped(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the verdicts on training that stops early."""
    yield from (claim.line() for claim in frozen_stopped.verdicts(known, runs))


def named(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the differences behind what `--trained` stands for, and the verdict."""
    yield from frozen_trained.table(known, runs)


def whole(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the rows on all of CIFAR-100, and what became of what was expected."""
    yield from frozen_whole.table(known, runs)
    yield from frozen_whole.lines(known, runs)


def worth_short(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the answer of the page on training in a few sentences."""
    yield from textwrap.wrap(" ".join(frozen_words.worth(known, runs)), WIDTH, break_on_hyphens=False)


def same_classes(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what training adds with fewer images of the same classes."""
    yield from frozen_fewer.table(known, runs)


def same_words(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what these rows come to, in sentences."""
    yield from textwrap.wrap(" ".join(frozen_fewer.words(known, runs)), WIDTH, break_on_hyphens=False)


def fewer(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the verdicts on fewer images of the same classes."""
    yield from frozen_fewer.lines(known, runs)


# -- picture ---------------------------------------------------------------------------------------------

SERIES = ("the frozen answer", "ridge on 2,000 units", "training")


def drawn(known: Streams, runs: Trained) -> str:
    """Return the picture as SVG: points above `lda` on each stream, from near to far."""
    found = points(known, runs)
    rows = {name: found[name] for name in sorted(found, key=lambda name: -known[name].accuracy("lda"))}
    panel = Panel("points above lda on the last layer", rows)
    return picture(SERIES, [panel], "Right answers above lda on the last layer, by stream and method")


def points(known: Streams, runs: Trained) -> dict[str, dict[str, Point]]:
    """Return what each row of the picture has more than `lda`, by stream."""
    found: dict[str, dict[str, Point]] = {}
    for name, stream in known.items():
        own = {
            SERIES[0]: _point(between(stream, "auto", "lda")),
            SERIES[1]: _point(between(stream, "units", "lda")),
        }
        if (name, TRAINED) in runs:
            above = apart(stream, hits_by_order(stream, runs[name, TRAINED]), "lda")
            if above is not None:
                own[SERIES[2]] = _point(above)
        found[name] = own
    return found


def _point(own: Difference) -> Point:
    return Point(own.mean, own.low, own.high)


def block(name: str) -> Callable[[Streams, Trained], Iterator[str]]:
    """Return what writes the block of a name."""
    found = (getattr(module, name, None) for module in (sys.modules[__name__], *BESIDE))
    writer: Callable[[Streams, Trained], Iterator[str]] = next(own for own in found if own is not None)
    return writer


# -- page ------------------------------------------------------------------------------------------------


def page_with(text: str, name: str, lines: Sequence[str]) -> str:
    """Return a page with lines between its marks of a name.

    Raises:
        SystemExit: The page does not have them once.
    """
    begin = f"<!-- frozen: {name} -->"
    head, found, rest = text.partition(begin)
    _, ended, tail = rest.partition(END)
    if not (found and ended) or begin in tail:
        raise SystemExit(f"a page must have {begin} and {END} around the place of the table, once")
    return "\n".join([head + begin, "", *lines, "", END]) + tail


def written(stored: Any, root: Path, before: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the pages and the picture as cells and packs would have them.

    Args:
        stored: The packs.
        root: Where the pages are as they stand.
        before: Pages of which other parts have been written already, by their paths.
    """
    known, runs = streams(), trained(stored)
    found = {PICTURE: drawn(known, runs), frozen_gains.FILE: frozen_gains.written(known, runs)}
    for page, names in MARKS.items():
        text = (before or {}).get(page) or (root / page).read_text(encoding="utf-8")
        for name in names:
            lines = list(block(name)(known, runs))
            while lines and not lines[-1]:
                lines.pop()
            text = page_with(text, name, lines)
        found[page] = text
    return found


def behind(stored: Stored, root: Path) -> Iterator[str]:
    """Yield the cells and packs behind the table of trained rows on report streams, and each difference."""
    known, runs = streams(), trained(stored)
    for name in names_of("report"):
        if name not in known:
            continue
        for order in known[name].cells:
            file = CELLS / (f"{name}.npz" if order is None else f"{name}.{order}.npz")
            yield f"{name}, heads that train nothing (frozen answer: `auto`): {file.relative_to(root)}"
        for method, words in CHOICE.items():
            by_order = runs.get((name, method), {})
            for order, run in sorted(by_order.items()):
                right = 100 * float(run.hits(known[name].cell(order)).mean())
                path = run.told.path.relative_to(root)
                yield f"{name}, {words}, order {order}: {right:.2f} % right, {path}"
            if by_order:
                yield f"{name}, {words} minus the frozen answer: {_gain(known, runs, name, method)}"
