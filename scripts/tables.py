"""Write the tables of pages from the packs in experiments/store, and the page of the leaderboard.

    python scripts/tables.py                    # write all
    python scripts/tables.py --check            # exit code 1 where a page and the packs differ
    python scripts/tables.py --print headline   # one block, as packs and cells have it; or all of a page
    python scripts/tables.py --packs growth-224 # the packs behind a table, each difference with its interval
    python scripts/tables.py --packs frozen     # cells and packs of what training has over the frozen answer
    python scripts/tables.py --confirm docs/use.md  # after reading what changed in the text of a page

Which tables there are says tables.toml. The tables of docs/carries.md and of experiments/carries/README.md
come from the answers in experiments/carries/cells, those of docs/frozen.md and docs/frozen_tables.md from
experiments/frozen/cells as well, and those of docs/growth_archive.md from experiments/growth_score/cells as
well, which scripts of their own read.
A table with a fraction in it that stands on one of :data:`PAGES` outside all marks has nothing behind it, and
fails the check; so does a digit in a sentence of the pages that prose.toml names, and a word of a verdict.
So does any other change outside the marks, be it a negation, a name in code or another picture: confirmed.py
compares a hash of each page's text. ``--confirm`` alone renews it, after somebody has read the change.
At its end a page names the command that prints its blocks.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import confirmed
import prose
import write_leaderboard
from seed_tables import seeds_of
from sentences import sentence
from stream_tables import Line, StreamRun, lines_of, matrix, packs_behind, runs_of

from lw2g.registry.catalogue import load_catalogue
from lw2g_store.stored import Stored, stored_runs

ROOT = Path(__file__).resolve().parents[1]
FACTS = Path(__file__).with_name("tables.toml")
SENTENCES = f"scripts/{FACTS.name}"
STORE = ROOT / "experiments" / "store"
END = "<!-- end of table -->"
FROZEN = "frozen"
"""What ``--packs`` calls the tables of the frozen answer and of training on report streams."""
README, GROWTH, LEADERBOARD = "README.md", "docs/growth.md", "docs/leaderboard.md"
CARRIES, WORTH, GROWTH_ARCHIVE = "docs/carries.md", "docs/worth.md", "docs/growth_archive.md"
CARRIES_ARCHIVE = "experiments/carries/README.md"
CELLS = ROOT / "experiments" / "carries" / "cells"
PAGES = (
    README,
    "docs/start.md",
    "docs/use.md",
    GROWTH,
    "docs/heads.md",
    WORTH,
    CARRIES,
    "docs/frozen.md",
    "docs/frozen_tables.md",
    GROWTH_ARCHIVE,
    LEADERBOARD,
    "experiments/README.md",
    CARRIES_ARCHIVE,
)
"""The pages whose tables have numbers of packs alone."""
MARKED = re.compile(
    r"(?P<begin><!-- (?:(?:table|frozen): (?P<name>[\w-]+)|(?P<study>cells|gains)) -->)"
    r".*?(?P<end><!-- end of (?:table|frozen|cells|gains) -->)",
    re.DOTALL,
)
"""A block that a script fills."""
Fields = Callable[[str], tuple[Mapping[str, str], Mapping[str, str]]]
"""Methods by short names, and what stands for further fields, of the sentences of a study."""
FRACTION = re.compile(r"\d\.\d")
CODE = re.compile(r"`[^`]*`")


def facts() -> dict[str, dict[str, Any]]:
    """Return what is told of each table: its page, its packs and its columns."""
    return tomllib.loads(FACTS.read_text(encoding="utf-8"))


def read_pages() -> list[str]:
    """Return the pages with text by hand: all but the one that is written whole."""
    return sorted({*PAGES, *prose.pages()} - {LEADERBOARD})


def confirmed_files() -> list[str]:
    """Return what somebody has read: the pages, and the sentences that scripts fill."""
    return [*read_pages(), SENTENCES]


def streams_tables() -> list[str]:
    """Return the names of the tables whose rows are methods on streams."""
    return [name for name, table in facts().items() if table["form"] == "matrix"]


def table_lines(table: Mapping[str, Any], runs: Sequence[StreamRun]) -> list[Line]:
    """Return the lines of a table.

    Raises:
        SystemExit: No pack has numbers for it.
    """
    lines = lines_of(runs, table["role"], table["size"], table["methods"], table.get("streams"))
    if not lines:
        raise SystemExit(f"no pack of {table['role']} streams at {table['size']} px in {STORE}")
    return lines


def with_table(page: str, name: str, lines: Iterator[str]) -> str:
    """Return a page with a table between its marks.

    Raises:
        SystemExit: The page does not have the marks once each.
    """
    begin = f"<!-- table: {name} -->"
    head, found, rest = page.partition(begin)
    _, ended, tail = rest.partition(END)
    if not (found and ended) or begin in tail:
        raise SystemExit(f"a page must have {begin} and {END} around the place of the table, once")
    return "\n".join([head + begin, "", *lines, "", END]) + tail


def sentence_fields(of: str, stored: Stored) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return methods by short names, and what stands for further fields of sentences of a study."""
    names, fields = of_experiment("worth", "gains").told(stored)
    if of == "frozen":
        fields = of_experiment("frozen", "frozen_page").told(stored)
    if of == "growth":
        fields = of_experiment("growth_score", "growth_fields").told(stored)
        fields |= of_experiment("growth", "readings").told()
    return names, fields


def table_text(
    table: Mapping[str, Any],
    runs: Sequence[StreamRun],
    stored: Stored,
    fields: Fields,
) -> Iterator[str]:
    """Return the lines of a table in Markdown, in the form that its facts name.

    ``fields`` is :func:`sentence_fields` of a study.
    """
    form = table["form"]
    if form == "heads":
        lines: Iterator[str] = of_experiment("heads", "heads_table").heads_of(stored)
        return lines
    if form == "sentence":
        names, further = fields(table.get("study", "worth"))
        return sentence(table["text"], names, table["size"], runs, further)
    if form == "seeds":
        return seeds_of(stored, table["protocol"], table["rows"], table["against"])
    return matrix(table_lines(table, runs), table["methods"])


def fields_of(stored: Stored) -> Fields:
    """Return :func:`sentence_fields` of each study, looked up once."""
    return functools.cache(functools.partial(sentence_fields, stored=stored))


def pages(stored: Stored, root: Path = ROOT, fields: Fields | None = None) -> dict[str, str]:
    """Return all pages that have numbers of packs, as the packs would have them.

    ``fields`` is what :func:`fields_of` returns, where it was looked up before.

    Raises:
        SystemExit: A page lacks the marks of a block, has them twice, or has marks that no script fills.
    """
    runs = runs_of(STORE, stored)
    # without what stands between marks, so that a mark which no script fills is seen below
    written = {
        page: confirmed.emptied((root / page).read_text(encoding="utf-8"), MARKED) for page in read_pages()
    }
    fields = fields or fields_of(stored)
    for name, table in facts().items():
        page = table["page"]
        written[page] = with_table(written[page], name, table_text(table, runs, stored, fields))
    written |= carries_pages(written)
    written |= of_experiment("worth", "gains").written(stored, written[WORTH])
    written |= of_experiment("frozen", "frozen_page").written(stored, root, written)
    archive = of_experiment("growth", "readings").written(written[GROWTH_ARCHIVE])
    grown = {GROWTH: written[GROWTH], GROWTH_ARCHIVE: archive}
    written |= of_experiment("growth_score", "score_pages").written(stored, grown)
    unfilled = [
        f"{page}: no script fills {found['begin']} here; remove the block with its marks"
        for page in read_pages()
        for found in MARKED.finditer(written[page])
        if found[0] == found["begin"] + found["end"]
    ]
    if unfilled:
        raise SystemExit("\n".join(unfilled))
    written[LEADERBOARD] = write_leaderboard.page(STORE, stored)
    written[write_leaderboard.PICTURE] = write_leaderboard.picture_of(runs)
    written |= of_experiment("carries", "carries_picture").written(CELLS)
    written |= of_experiment("growth_score", "score_picture").written()
    return written


def blocks(written: Mapping[str, str], asked: str) -> Iterator[str]:
    """Yield the blocks of a name, or all of a page, as scripts write them.

    Args:
        written: What :func:`pages` returns.
        asked: The name in the mark of a block, or a page.
    """
    for page, text in written.items():
        for found in MARKED.finditer(text):
            if asked in (page, name_of(found)):
                yield f"## {name_of(found)}\n\n" + found[0].partition("-->")[2].rpartition("<!--")[0].strip()


def name_of(block: re.Match[str]) -> str:
    """Return the name in the mark of a block, one of :data:`MARKED`."""
    return block["name"] or block["study"]


def carries_pages(written: Mapping[str, str]) -> dict[str, str]:
    """Return the page of the study of carries and its archive with what their own scripts have for them."""
    study, judge = of_experiment("carries", "table"), of_experiment("carries", "verdicts")
    cells = study.load(CELLS)
    page = study.page_with(written[CARRIES], study.study_lines(CELLS))
    for name, lines in judge.page_parts(cells).items():
        page = with_table(page, name, lines)
    title, *rest = study.study_lines(CELLS, small=True)
    archive = with_table(written[CARRIES_ARCHIVE], "carries-small", iter([title.lstrip(), *rest]))
    for name, lines in judge.archive_parts(cells).items():
        archive = with_table(archive, name, lines)
    return {CARRIES: page, CARRIES_ARCHIVE: archive}


def of_experiment(folder: str, module: str) -> Any:
    """Return a module of a folder of experiments."""
    sys.path.insert(0, str(ROOT / "experiments" / folder))
    try:
        return importlib.import_module(module)
    finally:
        sys.path.pop(0)


def without_packs(root: Path = ROOT) -> Iterator[str]:
    """Yield rows of tables that have a fraction outside all marks, and what nothing bears in sentences."""
    for page in PAGES:
        if page == LEADERBOARD:  # is written whole
            continue
        text = (root / page).read_text(encoding="utf-8")
        # the lines of what is cut out stay, so that those that follow keep their numbers
        rest = MARKED.sub(lambda found: "\n" * found[0].count("\n"), text)
        for at, line in enumerate(rest.splitlines(), start=1):
            told = CODE.sub("", line)  # the value of an option is no result
            if FRACTION.search(told) and line.startswith("|"):
                yield f"{page}:{at}: no pack bears the numbers of this line"
    for page in prose.pages():
        yield from prose.faults((root / page).read_text(encoding="utf-8"), MARKED, page)


def differing(stored: Stored, root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong: packs that do not hold, rows without packs, pages that differ from the packs."""
    yield from stored.left_out
    yield from without_packs(root)
    yield from confirmed.faults(root, confirmed_files(), MARKED)
    fields = fields_of(stored)
    yield from prose.no_longer_so(lambda study: fields(study)[1])
    for page, text in pages(stored, root, fields).items():
        before = (root / page).read_text(encoding="utf-8")
        for at, (old, new) in enumerate(zip(before.splitlines(), text.splitlines(), strict=False), start=1):
            if old != new:
                yield f"{page}:{at}: the page has {old!r}, the packs {new!r}"
                break
        else:
            if before != text:
                yield f"{page}: the page and what the packs say end differently"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check all tables; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--check", action="store_true", help="write nothing; 1 where page and packs differ")
    way.add_argument(
        "--print",
        metavar="WHAT",
        help="print a block by the name in its mark, or all blocks of a page (docs/worth.md); write nothing",
    )
    way.add_argument(
        "--packs",
        metavar="TABLE",
        choices=[*streams_tables(), "leaderboard", FROZEN],
        help="name the packs behind a table, and print each difference with its interval",
    )
    way.add_argument(
        "--confirm",
        metavar="PAGE",
        nargs="+",
        choices=confirmed_files(),
        help="what changed in the text of these pages was read against its source; write their hashes alone",
    )
    given = parser.parse_args(arguments)
    if given.confirm:
        confirmed.confirm(ROOT, given.confirm, MARKED)
        return 0
    print("reading all packs, which takes a minute or more", file=sys.stderr)
    stored = stored_runs(STORE, load_catalogue())
    if given.packs == FROZEN:
        print("\n".join(of_experiment("frozen", "frozen_page").behind(stored, ROOT)))
        return 0
    if given.packs:
        runs = runs_of(STORE, stored)
        table = facts().get(given.packs)
        for line in write_leaderboard.every_line(runs) if table is None else table_lines(table, runs):
            print("\n".join(packs_behind(line, ROOT)))
        return 0
    if given.print:
        found = list(blocks(pages(stored), given.print))
        if not found:
            parser.error(f"no page has a block {given.print!r}; pages are {', '.join(PAGES)}")
        print("\n\n".join(found))
        return 0
    if given.check:
        wrong = list(differing(stored))
        for line in wrong:
            print(line, file=sys.stderr)
        if wrong:
            print("what scripts write, they write anew: python scripts/tables.py", file=sys.stderr)
        return int(bool(wrong))
    for page, text in pages(stored).items():
        (ROOT / page).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
