"""Write the page of the leaderboard from a store of results.

python scripts/write_leaderboard.py docs/leaderboard.md     # from experiments/store
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from lw2g.registry.catalogue import load_catalogue
from lw2g.reports.columns import COLUMNS
from lw2g.reports.render import literal_markdown, mean_cells
from lw2g.reports.table import Row, Table, tables_of
from lw2g.store.stored import stored_runs

STORE = Path(__file__).resolve().parents[1] / "experiments" / "store"
HEAD = """\
# Leaderboard

Written by `scripts/write_leaderboard.py` from the runs in `experiments/store`, also those that are bad for
us. Every number is recomputed from stored predictions; [what each badge does not say](howto/store.md#badges).

Mean ± sample standard deviation over n seeds. *Paper*: what is published for the configuration, where
something is, and ours minus that; it fills no gap and ranks no row. *Passes*: forwards through a set per test
image. *Statistics*: numbers kept beside the parameters. Controls are for comparison only.
"""
SHOWN = [COLUMNS[name] for name in ("faa", "ffm", "passes", "parameters", "statistics")]


def page(store: Path = STORE) -> str:
    """Return the page: a table per protocol, the rows by FAA."""
    catalogue = load_catalogue()
    stored = stored_runs(store, catalogue)
    for line in stored.left_out:
        print(line, file=sys.stderr)
    runs = [run for _, run in stored.runs]
    return "\n".join([HEAD, *(line for table in tables_of(runs, catalogue) for line in block(table))])


def block(table: Table) -> Iterator[str]:
    """Yield the lines of a table."""
    rows = sorted(table.rows, key=lambda row: -(row.summary(SHOWN[0]).mean or 0.0))
    head, *lines = mean_cells(attrs.evolve(table, rows=tuple(rows)), SHOWN)
    yield from (f"## {table.title}", "", f"{', '.join(table.conditions)}", "")
    cells: list[list[object]] = [[*head, "badges", "tuned on"], ["---"] * (len(head) + 2)]
    cells += [[method(row), *line[1:], *told(row)] for row, line in zip(rows, lines, strict=True)]
    for line in cells:
        yield f"| {' | '.join(map(str, line))} |"
    if not any(row.paper for row in rows):
        yield from ("", "No paper reports these configurations.")
    yield ""


def method(row: Row) -> str:
    """Return the label of a row without what the next columns tell."""
    label = row.label.partition(", given by")[0]
    return literal_markdown(label) + (" (control)" if row.control else "")


def told(row: Row) -> tuple[str, str]:
    """Return the badges of a row, and what was tuned."""
    given = row.runs[0].given
    assert given is not None, "a run of a store"
    return ", ".join(given.badges), literal_markdown(given.tuned_on)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, help="is written anew")
    parser.parse_args().page.write_text(page(), encoding="utf-8")
