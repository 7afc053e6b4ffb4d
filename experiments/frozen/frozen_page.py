"""The tables, verdicts and picture of docs/frozen.md, frozen_tables.md and worth.md, from cells and packs.

    python experiments/frozen/frozen_page.py            # write them
    python experiments/frozen/frozen_page.py --print    # print what the page shows

``scripts/tables.py`` writes them, too, and checks that the page says nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import frozen_gains
import frozen_rule
import frozen_stopped
import frozen_trained
import frozen_whole
import machines
import numpy as np
import shoot_pages
from frozen_results import (
    HERE,
    PLAN,
    ROOT,
    Difference,
    Stream,
    Trained,
    apart,
    between,
    hits_by_order,
    interval,
    store,
    streams,
    trained,
)
from frozen_verdicts import judged
from interval_plot import Panel, Point, picture
from stream_tables import side_of_zero

README, PAGE, TABLES, PICTURE = "README.md", "docs/frozen.md", "docs/frozen_tables.md", "docs/frozen.svg"
WORTH = "docs/worth.md"
USE = "docs/use.md"
MARKS = {
    README: ("headline",),
    USE: ("choice",),
    PAGE: ("short", "report", "recommended"),
    WORTH: ("adds", "adds_every", "slopes"),
    TABLES: (
        "answers",
        "whole",
        "rule",
        "named",
        "adapted",
        "stopped",
        "again",
        "few",
        "sure",
        "quarters",
        "verdicts",
        "squares",
        "shrinkage",
    ),
}
"""What stands on each page, as ``<!-- frozen: NAME -->`` before and ``<!-- end of frozen -->`` behind it."""
END = "<!-- end of frozen -->"
ROLES = {"report": "On report streams", "development": "On development streams, where choices were made"}
APART = frozen_whole.WHOLE
"""A report stream apart from the others: it has claims of its own, as its figures were known."""

TRAINED = frozen_trained.RULE["cheaper"]
"""The row that `--trained` stands for."""

Streams = Mapping[str, Stream]

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


def short(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what the tables of report streams come to, in three lines."""
    names = [name for name in PLAN["report"] if name in known]
    gains = {name: between(known[name], "auto", "lda").mean for name in names}
    low, high = (choose(gains, key=lambda name: gains[name]) for choose in (min, max))
    yield (
        f"- The frozen answer has {gains[low]:+.1f} ({low}) to {gains[high]:+.1f} points ({high}) more than "
        "`lda` on the last class token."
    )
    above, below = _sides(known, runs, TRAINED, "report")
    ran = [name for name in _names("report") if (name, TRAINED) in runs]
    undecided = [name for name in ran if name not in (*above, *below)]
    yield (
        f"- Training ends above it on {', '.join(above) or 'none'}, below it on "
        f"{', '.join(below) or 'none'}; on {', '.join(undecided) or 'none'} the interval has 0 in it."
    )
    rows = ("auto", "lda at temperature 1", "lda")
    errors = {row: [known[name].ece(row) for name in names] for row in rows}
    shown = [f"{min(own):.1f} to {max(own):.1f}" for own in errors.values()]
    yield (
        f"- Its probabilities are {shown[0]} points off on average (calibration error); those of `lda` were "
        f"{shown[1]} off before it had a temperature, and are {shown[2]} off with one."
    )


def headline(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the table of the README: report streams, frozen answers, and what training adds."""
    yield "| | `lda` | frozen answer | less `lda` | training, less frozen |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name in _names("report"):
        if name in known:
            trained_less = _apart_from_auto(known[name], runs, TRAINED) or "-"
            yield f"| {name} | {' | '.join(_answered(known[name]))} | {trained_less} |"


def _answered(stream: Stream) -> list[str]:
    """Return the accuracy of `lda` and of the frozen answer, and their difference."""
    ends = [f"{stream.accuracy(row):.1f}" for row in ("lda", "auto")]
    return [*ends, str(between(stream, "auto", "lda"))]


CHOICE = {
    TRAINED: "training",
    "recommended": "training on every task",
    "ranpac-adapted": "adapters of the first task",
    "one-set": "one prompt set",
}
"""The trained rows of the page on what to use, with what stands above them."""


def choice(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what each kind of training has more than the frozen answer, where that is sure, and forwards."""
    yield f"| | frozen answer | {' | '.join(CHOICE.values())} |"
    yield f"| --- | ---: |{' ---: |' * len(CHOICE)}"
    for name in _names("report"):
        if name in known:
            cells = [_gain(known[name], runs, method) for method in CHOICE]
            yield f"| {name} | {known[name].accuracy('auto'):.1f} | {' | '.join(cells)} |"
    spent = [_forwards(runs, method, _names("report")) for method in CHOICE]
    yield f"| forwards a training image | 1 | {' | '.join(spent)} |"
    yield ""
    for method, shown in CHOICE.items():
        above, below = (", ".join(names) or "none" for names in _sides(known, runs, method, "report"))
        line = f"- {shown[:1].upper()}{shown[1:]}: its interval is above 0 on {above}, below 0 on {below}"
        if any(_sides(known, runs, method, "development")):
            sides = (", ".join(names) or "none" for names in _sides(known, runs, method, "development"))
            line += "; of development streams above 0 on {}, below 0 on {}".format(*sides)
        yield f"{line}."


def _forwards(runs: Trained, method: str, names: Sequence[str]) -> str:
    """Return the least and the greatest forwards of a row for each training image, over streams."""
    every = [
        np.mean([run.told.forwards for run in runs[name, method].values()])
        for name in names
        if (name, method) in runs
    ]
    return f"{min(every):.1f} to {max(every):.1f}"


def _as_runs(known: Streams, runs: Trained, role: str) -> str:
    """Return where `--recommended`, which chooses after each task, ended on the streams that have its run.

    Without it such a stream has the number of `start`, which chooses with all classes there.
    """
    ended = []
    for name in _names(role):
        for order, run in runs.get((name, "frozen-answer"), {}).items():
            right = 100 * run.hits(known[name].cell(order)).mean()
            ended.append(f"{right:.1f} on `{name}` (`start` {known[name].accuracy('auto'):.1f})")
    return ", ".join(ended)


def report(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the table of the README with the orders of each row, for the page that explains it."""
    for line in headline(known, runs):
        name = line.split(" ")[1]
        orders = f", n={len(runs[name, TRAINED])} |" if (name, TRAINED) in runs else " |"
        yield line.removesuffix(" |") + orders


def told(stored: Any) -> dict[str, str]:
    """Return what stands for fields of sentences that no single row answers.

    On which streams training ends above and below the frozen answer, what it costs on all of them, where
    `--recommended` ended, what the streams are, and what the picture of the README shows.
    """
    known, runs = streams(), trained(stored)
    fields = {
        f"{{trained/{role}/{side}-frozen}}": ", ".join(f"`{name}`" for name in names) or "none"
        for role in ROLES
        for side, names in zip(("above", "below"), _sides(known, runs, TRAINED, role), strict=True)
    }
    fields |= {f"{{frozen/{role}/as-runs}}": _as_runs(known, runs, role) for role in ROLES}
    fields["{trained/every/forwards}"] = _forwards(runs, TRAINED, [*known])
    counts = [frozen_gains.FACTS[name]["train_per_class"] for name in PLAN["report"]]
    fields["{streams/report/images}"] = f"{min(counts)} to {max(counts)}"
    orders = [len(runs[name, TRAINED]) for name in _names("report") if (name, TRAINED) in runs]
    fields["{trained/report/orders}"] = f"{min(orders)} to {max(orders)}"
    fields["{streams/apart/images}"] = str(frozen_gains.FACTS[APART]["train_per_class"])
    return fields | _of_the_picture(runs)


def _of_the_picture(runs: Trained) -> dict[str, str]:
    """Return where training ends in the first order, which the README's report shows, and in the others.

    Raises:
        SystemExit: The report is not of the first order, so that somebody chose it.
    """
    stream, order, _ = shoot_pages.PACKS.name.split(".")
    own = runs[stream, TRAINED]
    if order != "0" or own[0].told.path != shoot_pages.PACKS / shoot_pages.ROWS[shoot_pages.TRAINED]:
        raise SystemExit("scripts/shoot_pages.py: its packs are not those of the stream's first order")
    others = [run.told.faa for number, run in own.items() if number]
    return {
        "{picture/trained/here}": f"{own[0].told.faa:.1f}",
        "{picture/trained/others}": f"{min(others):.1f} to {max(others):.1f}",
        "{picture/trained/orders}": str(len(own)),
    }


def _sides(known: Streams, runs: Trained, method: str, role: str) -> tuple[list[str], list[str]]:
    """Return the streams of a role on which a row ends above `auto` with its interval, and below it."""
    there = [name for name in _names(role) if name in known]
    gained = {name: own for name in there if (own := _apart_from_auto(known[name], runs, method))}
    sides = {name: side_of_zero(own.low, own.high) for name, own in gained.items()}
    above, below = ([name for name, side in sides.items() if side == asked] for asked in (1, -1))
    return above, below


def again(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what another machine changes under the same seed."""
    yield from machines.table(runs)


def adds(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what training adds by images a class and by how near the images are."""
    yield from frozen_gains.table(known, runs, frozen_gains.METHOD)


def adds_every(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the same of training on every task."""
    yield from frozen_gains.table(known, runs, frozen_gains.EVERY_TASK)


def slopes(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what each doubling of the images a class changes in that."""
    yield from frozen_gains.regression(runs)


def few(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield frozen heads by images a class, and the verdicts on what training adds."""
    yield from frozen_gains.frozen_table()
    yield ""
    yield from frozen_gains.verdicts(runs)


def answers(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the tables of right answers, one a role."""
    for role, title in ROLES.items():
        yield f"**{title}**"
        yield ""
        yield f"| | {' | '.join(SINGLE.values())} | `auto` | takes | less `lda` | trained less `auto` |"
        yield f"| --- |{' ---: |' * len(SINGLE)} ---: | --- | ---: | ---: |"
        for name in _names(role):
            if name in known:
                yield _answers_line(known[name], runs)
        yield ""


def _names(role: str) -> list[str]:
    """Return the streams of a role."""
    return [*PLAN[role], *([APART] if role == "report" else [])]


def _answers_line(stream: Stream, runs: Trained) -> str:
    own = [f"{stream.accuracy(row):.1f}" for row in SINGLE]
    taken = Counter(cell.facts["stands"]["auto"] for cell in stream.every)
    takes = ", ".join(head + (f" ({count})" if len(taken) > 1 else "") for head, count in taken.most_common())
    less = between(stream, "auto", "lda")
    cells = [*own, f"**{stream.accuracy('auto'):.1f}**", takes, str(less), _gain(stream, runs, TRAINED)]
    return f"| {stream.name} | {' | '.join(cells)} |"


def _gain(stream: Stream, runs: Trained, method: str) -> str:
    """Return what a trained row has more than `auto`, with its orders; a dash without one."""
    own = _apart_from_auto(stream, runs, method)
    return "-" if own is None else f"{own}, n={own.orders}"


def _apart_from_auto(stream: Stream, runs: Trained, method: str) -> Difference | None:
    """Return what a trained row has more than `auto`; None without one."""
    if (stream.name, method) not in runs:
        return None
    return apart(stream, hits_by_order(stream, runs[stream.name, method]), "auto")


def sure(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the tables of probabilities and of strangers, one a role."""
    for role, title in ROLES.items():
        yield f"**{title}**"
        yield ""
        yield (
            "| | log loss: `lda` as it was | with a temperature | `auto` | ECE: `lda` as it was "
            "| with a temperature | `auto` | strangers refused: by per cent, `lda` | by distance "
            "| by per cent, `auto` | by distance |"
        )
        yield "| --- |" + " ---: |" * 10
        for name in _names(role):
            if name in known:
                yield _sure_line(known[name])
        yield ""


QUARTERS = {
    "lda, probability": "`lda`, per cent",
    "lda, distance": "distance",
    "ridge-12, probability": "`ridge`, 12, per cent",
    "lda-12, probability": "`lda`, 12, per cent",
    "lda-12, distance": "distance, 12 layers",
    "tokens, distance": "distance, 6 class tokens",
}
"""The measures of ``quarters.json``, with what stands above them."""


def quarters(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the table of strangers with each quarter of the classes kept out in turn."""
    found = json.loads((HERE / "quarters.json").read_text(encoding="utf-8"))
    yield f"| strangers refused | {' | '.join(QUARTERS.values())} |"
    yield f"| --- |{' ---: |' * len(QUARTERS)}"
    for role in ROLES:
        for name in PLAN[role]:
            if name in found:
                yield f"| {name} ({role}) | {' | '.join(f'{found[name][key]:.0f}' for key in QUARTERS)} |"


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
    told = ""
    for name, verdict, lines in judged(known, runs):
        key, _, which = name.partition(", ")
        if key != told:
            yield f"- **({key})** {PLAN[key]['claim']}"
            told = key
        shown = f"`{which}`: " if which else ""
        # a rule that nothing takes, and what a table of the page has, is told by the script alone
        told_here = lines and which != "chosen" and not key.startswith("iv")
        told_by_stream = f". {'; '.join(lines)}" if told_here else ""
        yield f"    - {shown}**{verdict}**{told_by_stream}"


def adapted(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what each trained row under joined features has more than `auto`, on streams that have one."""
    methods = {
        "ranpac-joined": "adapters of the first task, ridge on 12 layers",
        "recommended-joined": "trained on every task, head and expert (`lda`) on 12 layers",
        "recommended-beside": "the same, head on 12 layers beside the frozen answer",
        "stopped-1": "`--trained`: on the first task, then `auto`",
        "stopped-2": "the same on the first two",
    }
    there = {name: shown for name, shown in methods.items() if any(method == name for _, method in runs)}
    yield f"| less `auto` | {' | '.join(there.values())} |"
    yield f"| --- |{' ---: |' * len(there)}"
    for role in ROLES:
        for name in PLAN[role]:
            cells = [_gain(known[name], runs, method) for method in there] if name in known else []
            if set(cells) - {"-"}:
                yield f"| {name} ({role}) | {' | '.join(cells)} |"


def stopped(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the verdicts on training that stops early."""
    yield from frozen_stopped.lines(known, runs, frozen_stopped.OF_THE_TABLE)


CANDIDATES = {
    "frozen": "`chosen`",
    "ranpac-joined": "Adapters of the first task, read on all layers (`ranpac-joined`)",
    "recommended": "Training on every task (`recommended`)",
    "recommended-joined": "Training on every task, read on all layers (`recommended-joined`)",
}
"""What the page calls the candidates of the rule."""
CALLED = {"frozen": "`chosen`", "recommended": "training on every task"}
"""What the table of the rule calls them, where that is not their name."""


def recommended(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what became of each candidate of the rule, and what it recommends."""
    found = list(frozen_rule.steps(known, runs))
    for step in found:
        what = "taken" if step.replaces else "passed over"
        yield (
            f"- {CANDIDATES[step.name]}: above {CANDIDATES[step.held]} on {len(step.positive)} of the "
            f"{len(step.gains)} streams on which it ran, {_above_auto(known, runs, step.name)}; {what}."
        )
    settled = " Streams on which a candidate did not run cannot change that." * bool(
        frozen_rule.settled(found)
    )
    verdict = frozen_rule.verdict(found)
    if verdict == frozen_rule.RULE["candidate"][0]["name"]:
        verdict = "the frozen answer"
    yield f"- So `--recommended` stands for **{verdict}**.{settled}"
    yield (
        "- Training on the first task, what `--trained` stands for, was built after the rule and is no "
        f"candidate: {_above_auto(known, runs, TRAINED)}."
    )


def _above_auto(known: Streams, runs: Trained, method: str) -> str:
    """Return on how many development streams a row is above what `start` takes, with its interval."""
    ran = [name for name in _names("development") if (name, method) in runs]
    above, _ = _sides(known, runs, method, "development")
    return f"above `auto` on {len(above)} of {len(ran)}"


def rule(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the candidates and what the rule recommends."""
    names = [candidate["name"] for candidate in frozen_rule.RULE["candidate"]]
    steps = {step.name: step for step in frozen_rule.steps(known, runs)}
    yield f"| | forwards | {' | '.join(frozen_rule.RULE['development'])} |"
    yield f"| --- | ---: |{' ---: |' * len(frozen_rule.RULE['development'])}"
    for name in names:
        spent = frozen_rule.forwards(runs, name)
        cells = []
        for stream in frozen_rule.RULE["development"]:
            if name in steps:
                own = steps[name].gains.get(stream)
                cells.append("-" if own is None else f"{own}, n={own.orders}")
            else:
                cells.append(f"{known[stream].accuracy(frozen_rule.FROZEN):.1f}" if stream in known else "-")
        held = ""
        if name in steps:
            held = f", less {CALLED.get(steps[name].held, steps[name].held)}"
        forwards = "-" if spent != spent else f"{spent:.1f}"
        yield f"| {CALLED.get(name, name)}{held} | {forwards} | {' | '.join(cells)} |"


def named(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the differences behind what `--trained` stands for, and the verdict."""
    yield from frozen_trained.table(known, runs)


def whole(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield the rows on all of CIFAR-100, and what became of what was expected."""
    yield from frozen_whole.table(known, runs)
    yield from frozen_whole.lines(known, runs)


def squares(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what `lda` on the last class token has by how an image becomes a square."""
    found = json.loads((HERE / "resize.json").read_text(encoding="utf-8"))
    yield "| images | shape | squash | crop | crop less squash |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for key in (key for key in found if key.endswith(" squash")):
        stream, shape, _ = key.split()
        if f"{stream} {shape} crop" not in found:
            continue
        right = {way: _bits(found[f"{stream} {shape} {way}"]) for way in ("squash", "crop")}
        apart = right["crop"] - right["squash"]
        low, high = interval([apart])
        shown = f"{100 * apart.mean():+.1f} ({low:+.1f} to {high:+.1f})"
        means = [f"{100 * own.mean():.1f}" for own in right.values()]
        yield f"| {stream} | {shape} | {' | '.join(means)} | {shown} |"


def shrinkage(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what `lda` on the last class token has by its shrinkage."""
    found = json.loads((HERE / "shrinkage.json").read_text(encoding="utf-8"))
    shares = list(next(iter(found.values())))
    yield f"| order 0, `head.lda.shrinkage` | {' | '.join(shares)} | the last less the first |"
    yield f"| --- |{' ---: |' * (len(shares) + 1)}"
    for stream, own in found.items():
        right = {share: _bits(own[share]) for share in shares}
        apart = right[shares[-1]] - right[shares[0]]
        low, high = interval([apart])
        shown = f"{100 * apart.mean():+.1f} ({low:+.1f} to {high:+.1f})"
        yield f"| {stream} | {' | '.join(f'{100 * right[share].mean():.1f}' for share in shares)} | {shown} |"


def _bits(text: str) -> Any:
    return np.array([float(bit) for bit in text])


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
            lines = list(getattr(sys.modules[__name__], name)(known, runs))
            while lines and not lines[-1]:
                lines.pop()
            text = page_with(text, name, lines)
        found[page] = text
    return found


def main() -> None:
    """Write pages and picture, or print what they say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", help="print, write nothing")
    if parser.parse_args().print:
        known, runs = streams(), trained(store())
        for name in (name for names in MARKS.values() for name in names):
            print("\n".join([f"\n## {name}\n", *getattr(sys.modules[__name__], name)(known, runs)]))
        return
    for name, content in written(store(), ROOT).items():
        (ROOT / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
