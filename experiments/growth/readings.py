"""The published rule side by side, from packs of the store: its readings, and the rows that span a space.

    python experiments/growth/readings.py --pack runs/readings  # put finished runs into the store
    python experiments/growth/readings.py --show runs/rows      # print the table of rows of finished runs
    python experiments/growth/readings.py --check               # exit code 1 where page and packs differ

The runs are those of readings.toml and readings_caltech.toml, and of space_rows.toml for the rows.
``scripts/tables.py`` writes the page that has the tables, and checks it as well.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import attrs

from lw2g.disk.contents import read_record
from lw2g.registry.catalogue import load_catalogue
from lw2g_store.layout import add_protocol, protocol_of
from lw2g_store.submit import submit

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "experiments" / "store"
PAGE = "docs/growth_archive.md"
END = "<!-- end of table -->"
READINGS = ("ours", "text", "algorithm", "release")
DATA = {"glyphs": "glyphs", "folder": "Caltech"}
TAPS = {
    "site": "queries",
    "queries": "queries",
    "block-input": "block input",
    "after-norm": "block input after its norm",
    "block-output": "block output",
    "last-queries": "queries of the last block",
}
TOKENS = {"all": "all tokens", "one": "one token an image", "class": "class token", "mean": "mean of tokens"}
LAST = 9
"""The task that grows in the paper's table 7."""
Cells = tuple[str, ...]
COLUMNS = ("hfc", "pre", "z", "ranks", "tasks")
"""What a row says of angles, as sentences ask for it."""
PAPER: Cells = ("13.9 to 42.5", "40.2 to 41.4", "-26.3 to +1.2", "", "SSSSSSSG")
"""Table 7, as printed."""
PAPER_LAST = "-28.0"
"""Its Z of the set that the tenth task, the last, shares."""
TOLD = {
    "who": "lw2g",
    "licence": "CC0-1.0",
    "tuned_on": "nothing",
    "runs": 1,
    "hardware": "one CPU core of a busy machine",
}


@attrs.frozen(kw_only=True)
class Angles:
    """What a run measured.

    Attributes:
        hfc: HFC of all candidates.
        z: Z of all candidates.
        by_rank: Z of random spaces of the same ranks, which the reading `release` decides by.
        sets: Number of sets.
        faa: Final average accuracy.
    """

    hfc: Sequence[float]
    z: Sequence[float]
    by_rank: Sequence[float]
    sets: int
    faa: float


def angles_of(record: dict[str, Any]) -> Angles:
    """Return the angles in a record."""
    measured = [
        one["measures"]["hindrance"]
        for decision in record["decisions"]
        for one in decision["candidates"]
        if one["measures"] and one["measures"]["hindrance"]["value"] is not None
    ]
    return Angles(
        hfc=[one["parts"]["hfc"] for one in measured],
        z=[one["value"] for one in measured],
        by_rank=[one["null"] for one in measured],
        sets=record["metrics"]["ssp"],
        faa=record["metrics"]["faa"],
    )


def records(store: Path) -> list[dict[str, Any]]:
    """Return the records of the packs that name a reading of `min` on these streams."""
    found = []
    for path in sorted(store.glob("runs/*/like-for-like/readings*/*/*/record.json")):
        found.append(json.loads(path.read_text(encoding="utf-8")))
    return found


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.0f} to {max(values):.0f}"


def _signed(values: Sequence[float]) -> str:
    return f"{min(values):+.1f} to {max(values):+.1f}"


def table(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the table: a row for each reading and energy, over seeds."""
    by_row: dict[tuple[str, int, float, bool], list[Angles]] = defaultdict(list)
    for record in found:
        config = record["config"]
        reading, growth = config["policy"]["reading"], config["growth"]
        key = (config["benchmark"]["name"], READINGS.index(reading), growth["energy"], growth["centre"])
        by_row[key].append(angles_of(record))
    heads = ("data", "reading", "energy", "n", "HFC", "Z", "Z by ranks alone")
    heads += ("sets", "FAA")
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    order = sorted(by_row, key=lambda key: (-list(DATA).index(key[0]), *key[1:3], key[3]), reverse=False)
    for key in order:
        runs = by_row[key]
        name, reading, energy, centred = key
        whole = {part: [value for run in runs for value in getattr(run, part)] for part in ("hfc", "z")}
        row = (
            DATA[name],
            READINGS[reading] + (", centred" if centred else ""),
            f"{energy:g}",
            str(len(runs)),
            _range(whole["hfc"]),
            _signed(whole["z"]),
            _signed([value for run in runs for value in run.by_rank]),
            f"{mean(run.sets for run in runs):.1f}",
            f"{mean(run.faa for run in runs):.1f}",
        )
        lines.append(f"| {' | '.join(row)} |")
    return lines


def space_of(growth: dict[str, Any], ending: str = "") -> str:
    """Return what spans the spaces of finished tasks, or with the ending ``_pre`` the pre-trained ones."""
    tap = growth[f"tap{ending}"] or growth["tap"]
    words = TAPS[tap]
    if "queries" in words:
        words += " by head" if growth["heads"] == "per-head" else ", full width"
    tokens = TOKENS[growth[f"tokens{ending}"] or growth["tokens"]]
    if growth["space_images"] is not None and not ending:
        tokens += f", {growth['space_images']} images"
    centred = ", centred" if growth["centre" if ending else "centre_old"] else ""
    energy = growth[f"energy{ending}"] or growth["energy"]
    return f"{words}: {tokens}{centred}" + (f", {energy:g}" if energy != 0.95 else "")


def row_of(record: dict[str, Any]) -> Cells:
    """Return what a run says of angles: HFC, HFC_pre, Z, Z by ranks alone, and what the rule would do."""
    angles = angles_of(record)
    z = angles.z[: LAST - 1]
    pre = [hfc - one for hfc, one in zip(angles.hfc, angles.z, strict=True)]
    return (
        f"{angles.hfc[0]:.1f} to {angles.hfc[LAST - 2]:.1f}",
        f"{pre[0]:.1f} to {pre[LAST - 2]:.1f}",
        f"{z[0]:+z.1f} to {z[-1]:+z.1f}",
        f"{angles.by_rank[0]:+z.1f} to {angles.by_rank[LAST - 2]:+z.1f}",
        decisions(z),
    )


def decisions(z: Sequence[float]) -> str:
    """Return what the rule would do with each task: S, which shares, or G, which grows."""
    return "".join("S" if one <= 0 else "G" for one in z)


def rows_table(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the table of rows: a line for each kind of space, the largest angles first."""
    heads = ("old space", "pre-trained space", "HFC, task 2 to 9", "HFC_pre", "Z", "Z by ranks alone")
    lines = [f"| {' | '.join((*heads, 'tasks 2 to 9'))} |", f"|{' --- |' * (len(heads) + 1)}"]
    lines.append(f"| **the paper**, ViT-B/16 | | {' | '.join(PAPER)} |")
    for record in sorted(found, key=lambda record: -angles_of(record).hfc[0]):
        growth = record["config"]["growth"]
        old, before = space_of(growth), space_of(growth, "_pre")
        lines.append(f"| {' | '.join((old, 'the same' if before == old else before, *row_of(record)))} |")
    return lines


def told() -> dict[str, str]:
    """Return what stands for the fields of sentences, such as ``{one-12/rows/hfc}``; ``paper`` as printed."""
    named = {"paper": PAPER}
    further = {"{paper/tenth/z}": PAPER_LAST}
    for record in of_policy("one"):
        growth = record["config"]["growth"]
        count = growth["space_images"]
        name = growth["tokens"] + (f"-{count}" if count else "")
        if name == "all":
            name = f"{growth['tap']}-{growth['heads']}"
        named[name] = row_of(record)
        further[f"{{{name}/rows/tasks-by-ranks}}"] = decisions(angles_of(record).by_rank[: LAST - 1])
    return further | {
        f"{{{name}/rows/{what}}}": cell
        for name, cells in named.items()
        for what, cell in zip(COLUMNS, cells, strict=True)
    }


def of_policy(name: str) -> list[dict[str, Any]]:
    """Return the records of one policy: of `min` those of readings, of `one` those of rows."""
    return [record for record in records(STORE) if record["config"]["policy"]["name"] == name]


def written(text: str) -> str:
    """Return the page with both tables."""
    return page_with(
        page_with(text, "readings", table(of_policy("min"))), "rows", rows_table(of_policy("one"))
    )


def page_with(page: str, name: str, lines: Sequence[str]) -> str:
    """Return a page with a table between its marks.

    Raises:
        SystemExit: The page does not have the marks.
    """
    begin = f"<!-- table: {name} -->"
    head, found, rest = page.partition(begin)
    _, ended, tail = rest.partition(END)
    if not (found and ended):
        raise SystemExit(f"{PAGE} must have {begin} and {END} around the place of the table")
    return "\n".join([head + begin, "", *lines, "", END]) + tail


def pack(runs: Path, name: str) -> None:
    """Put the finished runs of a sweep into the store, under a protocol of this name."""
    catalogue = load_catalogue()
    for path in sorted(runs.glob("*/record.json")):
        record = read_record(path.parent)
        if len(record["accuracy_matrix"]) < record["tasks"]:
            continue
        if protocol_of(STORE, record, required=False) is None:
            add_protocol(STORE, record, [0, 1, 2], name)
        print(submit(path.parent, catalogue, STORE, TOLD).path.relative_to(STORE))


def main() -> None:
    """Pack runs, or print the table of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pack", type=Path, metavar="RUNS", help="put the finished runs into the store")
    parser.add_argument("--name", default="readings", help="of their protocol")
    parser.add_argument("--show", type=Path, metavar="RUNS", help="print the table of rows of finished runs")
    parser.add_argument("--check", action="store_true", help="compare the page with the packs")
    arguments = parser.parse_args()
    if arguments.pack is not None:
        pack(arguments.pack, arguments.name)
    if arguments.show is not None:
        finished = [read_record(path.parent) for path in sorted(arguments.show.glob("*/record.json"))]
        print(*rows_table([one for one in finished if len(one["decisions"]) >= LAST]), sep="\n")
    if arguments.check:
        page = (ROOT / PAGE).read_text(encoding="utf-8")
        sys.exit(0 if written(page) == page else f"{PAGE} differs from the packs; run scripts/tables.py")


if __name__ == "__main__":
    main()
