"""Tables of the study on pages, and its packs.

    python experiments/growth_score/score_pages.py --pack RUNS   # put finished runs into the store
    python experiments/growth_score/score_pages.py --print       # print tables and verdicts, with all rows

``scripts/tables.py`` writes and checks the pages.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from score_results import (  # noqa: E402
    OPTIONS,
    SAME_CONSTRAINTS,
    Cross,
    Run,
    chosen,
    crosses,
    less,
    protocol_name,
    runs_of,
    z_of_second,
)
from score_verdicts import PACS, READING, judged  # noqa: E402
from stream_tables import with_interval  # noqa: E402

from lw2g.disk.contents import read_record  # noqa: E402
from lw2g.errors import ConfigError  # noqa: E402
from lw2g.registry.catalogue import load_catalogue  # noqa: E402
from lw2g.results.summaries import Difference  # noqa: E402
from lw2g_store.layout import add_protocol, protocol_of  # noqa: E402
from lw2g_store.stored import Stored, stored_runs  # noqa: E402
from lw2g_store.submit import submit  # noqa: E402

STORE = HERE.parent / "store"
PLAN = HERE / "hypotheses.toml"
CELLS = HERE / "cells"
ARCHIVE, GROWTH = "docs/growth_archive.md", "docs/growth.md"
END = "<!-- end of table -->"
SEEDS = [0, 1, 2, 3, 4]
TOLD = {
    "who": "lw2g",
    "licence": "CC0-1.0",
    "tuned_on": "nothing",
    "runs": 1,
    "hardware": "one CPU core of a busy machine",
}
TAPS = {"block-input": "block input", "after-norm": "after its norm", "queries": "queries by head"}
ROWS = {
    "all": "all",
    "one-12": "12",
    "one-24": "24",
    "one-48": "48",
}
SHOWN = ("all",)
"""The choice of rows that the page has; ``--print`` has the others."""
SCORES = {
    "least": "least HFC, so least Z",
    "greatest": "greatest HFC",
    "greatest-beyond-rank": "greatest HFC minus that of the ranks",
    "both-means-off": "greatest HFC minus means of rows and columns (exploratory)",
    "length": "greatest length inside (`projection`, TRGP)",
    "length-beyond-chance": "the same minus that of the ranks",
    "energy": "least energy outside",
    "class-means": "nearest class means of frozen features",
}
SHOWN_SCORES = ("least", "greatest-beyond-rank", "class-means")
"""The scores that the page has; ``--print`` has the others."""
SHORT = {
    "space": "block inputs: which task meets which space is below 2 % of the variance",
    "rank": "block inputs: the rank of the space is above 90 %",
    "own": "block inputs: a task's own space hinders it as others do, within half a degree",
    "kind": "queries by head: greatest HFC beyond ranks finds the kind in over 60 %",
    "least-z": "least Z finds it no oftener than chance",
    "means": "class means find it at least as often as HFC beyond ranks",
    "poorest": "`min` lets photographs join sketches, and not the other way round",
    "joins": "`affinity` puts a task with its domain at least as often as `min`",
    "accuracy": "the policies end within two points of each other",
    "keep-fewer": "`keep` makes at most 80 % of the sets of `always`",
    "keep-equal": "`keep` ends at most a point below `always`",
    "keep-buys": "`keep` ends above the better of `always` and `one`",
    "keep-order": "the sets of `keep` depend on the order more than those of `min`",
    "report-fewer": "keep-fewer on report streams",
    "report-equal": "keep-equal on report streams",
    "report-buys": "keep-buys on report streams",
}
"""The hypotheses in few words; claims and criteria stand in ``hypotheses.toml``."""
VALUES = {"sema": ("modules", "zero"), "ewc": ("plain", "reversed")}
"""Values of the options of ``OPTIONS``, the published one first."""
POLICIES = {
    "lda": "`lda` (the floor)",
    "always": "`always`, no constraints",
    SAME_CONSTRAINTS: "`always`, constrained",
    "one": "`one`",
    "min": "`min`",
    "affinity": "`affinity`, `scale=chance`",
    "trial": "`trial`",
    "keep": "`keep`",
    "keep, 5 epochs": "`keep`, 5 epochs too",
}


def table(heads: Sequence[str], rows: Iterator[Sequence[str]], words: int = 1) -> list[str]:
    """Return a table in Markdown whose first columns are words."""
    rule = " --- |" * words + " ---: |" * (len(heads) - words)
    return [f"| {' | '.join(heads)} |", f"|{rule}", *(f"| {' | '.join(row)} |" for row in rows)]


def variance(found: Sequence[Cross], shown: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of variances: methods, taps and choices of rows at energy 0.95.

    The page of growth has what a task's own space adds, of the rows of :data:`SHOWN`; here others have it.
    """
    for cross in found:
        for tap, words in TAPS.items():
            for rows in shown:
                reading = f"{tap}|{rows}|0.95"
                shares = cross.shares(reading)
                own = cross.own(reading)
                added = () if shown == SHOWN else (f"{own.mean:+.2f} ± {own.half:.2f}",)
                yield (
                    cross.words,
                    words if rows == "all" else f"{words}, {ROWS[rows]} tokens",
                    *(f"{shares[part]:.1f}" for part in ("interaction", "rank")),
                    *added,
                )


def finders(found: Sequence[Cross], shown: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of scores: how often each finds the kind, by method and tap, all tokens."""
    for name in shown:
        cells = []
        for cross in found:
            for tap in TAPS:
                one = cross.found(name, f"{tap}|{READING}")
                # no interval where every draw ends alike
                cells.append(f"{one.mean:.0f} ± {one.half:.0f}" if one.half >= 0.5 else f"{one.mean:.0f}")
        yield SCORES[name], *cells


def turns(plan: Mapping[str, Any], runs: Sequence[Run]) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of sketches and photographs."""
    for stream in PACS:
        always = chosen(runs, stream, "always")
        for row in ("lda", *plan["policies"]):
            own = chosen(runs, stream, row)
            if not own:
                continue
            faa = statistics.fmean(run.faa for run in own.values())
            apart = None if row == "always" else less(own, always)
            cells = [stream.replace("-", " "), POLICIES[row], str(len(own)), f"{faa:.1f}", _apart(apart)]
            if row == "lda":
                yield *cells, "-", "-"
                continue
            sets = ["".join(map(str, run.record["task_to_set"])) for run in own.values()]
            measured = [pair for run in own.values() if (pair := z_of_second(run)) is not None]
            z = "-"
            if measured and row == "min":
                z = f"{_span([one for one, _ in measured])}, by ranks {_span([one for _, one in measured])}"
            yield (
                *cells,
                " ".join(sets[:1] if len(set(sets)) == 1 else sets),
                z,
            )


def _span(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:+.1f}"
    return f"{min(values):+.1f} to {max(values):+.1f}"


def _apart(difference: Difference | None) -> str:
    if difference is None:
        return "-"
    if difference.low == difference.high == 0:
        return "the same"
    return with_interval(difference)


def by_policy(plan: Mapping[str, Any], runs: Sequence[Run]) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of policies: on each stream sets in per cent, and what is lost or won.

    All are compared with a set for each task under the same constraints, whose FAA is the first row.
    """
    streams = [*plan["keep"]["streams"], *plan["report"]["streams"]]
    constrained = {stream: chosen(runs, stream, SAME_CONSTRAINTS) for stream in streams}
    yield POLICIES[SAME_CONSTRAINTS], *(_faa(own) for own in constrained.values())
    for row, words in POLICIES.items():
        if row == SAME_CONSTRAINTS:
            continue
        cells = []
        for stream in streams:
            own = chosen(runs, stream, row)
            apart = less(own, constrained[stream])
            if apart is None:
                cells.append("-")
                continue
            tasks = sum(len(run.record["task_to_set"]) for run in own.values())
            share = f"{100 * sum(run.sets for run in own.values()) / tasks:.0f} %, " if row != "lda" else ""
            cells.append(f"{share}{_apart(apart)}")
        if set(cells) != {"-"}:
            yield words, *cells


def _faa(own: Mapping[int, Run]) -> str:
    return f"FAA {statistics.fmean(run.faa for run in own.values()):.1f}" if own else "-"


def with_orders(streams: Sequence[str], runs: Sequence[Run]) -> Iterator[str]:
    """Yield the columns of streams with the number of orders that every row there has.

    Raises:
        SystemExit: A row has others.
    """
    for stream in streams:
        name = stream.removesuffix(" (report)")
        every = {frozenset(own) for row in POLICIES if (own := chosen(runs, name, row))}
        if len(every) > 1:
            raise SystemExit(f"rows of {name!r} have different orders; give each its own number")
        n = len(every.pop()) if every else 0
        yield f"{stream}, {n} order{'s' * (n != 1)}"


def options(runs: Sequence[Run]) -> Iterator[Sequence[str]]:
    """Yield the rows of options.toml: each value of an option, and its difference from the first one."""
    for name, values in VALUES.items():
        usual = chosen(runs, "glyphs", f"{name}, {values[0]}")
        for value in values:
            own = chosen(runs, "glyphs", f"{name}, {value}")
            if own:
                apart = None if value == values[0] else less(own, usual)
                faa = statistics.fmean(run.faa for run in own.values())
                yield f"`{name}`, `{OPTIONS[name]}={value}`", str(len(own)), f"{faa:.1f}", _apart(apart)


def verdict_rows(
    plan: Mapping[str, Any], found: Sequence[Cross], runs: Sequence[Run]
) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of verdicts."""
    before = None
    for one in judged(plan, found, runs):
        told = "as above" if one.found and one.found == before else one.found or "-"
        yield one.name, SHORT[one.name], f"**{one.verdict}**", told
        before = one.found


def tables_of(
    stored: Stored, rows: Sequence[str] = SHOWN, scores: Sequence[str] = SHOWN_SCORES
) -> dict[str, dict[str, list[str]]]:
    """Return the tables of each page by name, with these choices of rows and these scores."""
    plan = tomllib.loads(PLAN.read_text(encoding="utf-8"))
    found, runs = crosses(CELLS, plan["tables"]), runs_of(stored)
    shares = ("both together, %", "rank, %")
    added = () if rows == SHOWN else ("own minus others",)
    columns = [f"{cross.words}: {words}" for cross in found for words in TAPS.values()]
    streams = [*plan["keep"]["streams"], *(f"{name} (report)" for name in plan["report"]["streams"])]
    return {
        ARCHIVE: {
            "score-variance": table(
                ("method", "space", *shares, *added),
                variance(found, rows),
                2,
            ),
            "score-finders": table(("the set taken", *columns), finders(found, scores)),
            "score-turns": table(
                (
                    "order",
                    "policy",
                    "seeds",
                    "FAA",
                    "minus `always`",
                    "set of each task",
                    "Z of task 2",
                ),
                turns(plan["pacs"], runs),
                2,
            ),
            "score-verdicts": table(
                ("", "hypothesis", "verdict", "found; development streams, unless it says report"),
                verdict_rows(plan, found, runs),
                4,
            ),
        },
        GROWTH: {
            "growth-policies": table(("policy", *with_orders(streams, runs)), by_policy(plan, runs)),
        },
    }


def written(stored: Stored, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the pages with the study's tables between their marks.

    Args:
        stored: The packs.
        texts: The pages.

    Raises:
        SystemExit: A page does not have the marks of a table.
    """
    pages = dict(texts)
    for page, tables in tables_of(stored).items():
        for name, lines in tables.items():
            begin = f"<!-- table: {name} -->"
            head, found, rest = pages[page].partition(begin)
            _, ended, tail = rest.partition(END)
            if not (found and ended):
                raise SystemExit(f"{page} must have {begin} and {END} around the place of the table")
            pages[page] = "\n".join([head + begin, "", *lines, "", END]) + tail
    return pages


def pack(runs: Path) -> None:
    """Put the finished runs of a sweep into the store, each once."""
    catalogue = load_catalogue()
    for path in sorted(runs.glob("*/record.json")):
        record = read_record(path.parent)
        if len(record["accuracy_matrix"]) < record["tasks"]:
            continue
        if protocol_of(STORE, record, required=False) is None:
            add_protocol(STORE, record, SEEDS, protocol_name(record))
        try:
            print(submit(path.parent, catalogue, STORE, TOLD).path.relative_to(STORE))
        except ConfigError:  # the store has it already
            continue


def main() -> None:
    """Pack runs, or print tables and verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pack", type=Path, nargs="+", metavar="RUNS", default=[], help="folders of sweeps")
    parser.add_argument("--print", action="store_true", help="print tables and verdicts")
    arguments = parser.parse_args()
    for runs in arguments.pack:
        pack(runs)
    if arguments.print:
        stored = stored_runs(STORE, load_catalogue())
        for tables in tables_of(stored, list(ROWS), list(SCORES)).values():
            for lines in tables.values():
                print(*lines, "", sep="\n")
        print(
            *table(("option", "orders", "FAA", "minus the published one"), options(runs_of(stored))), sep="\n"
        )


if __name__ == "__main__":
    main()
