"""The page: one self-contained file, built from numbers, drawings and a template."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import attrs

from lw2g import __version__
from lw2g.config.directory import RECORD
from lw2g.disk.sealed import sha256_of
from lw2g.errors import ConfigError
from lw2g.registry.catalogue import Catalogue
from lw2g.results.cells import Cell, mean_cells, remarks_on, shown_columns
from lw2g.results.columns import COLUMNS, Column
from lw2g.results.found_runs import ReportedRun
from lw2g.results.row_names import weights_name
from lw2g.results.table import Row, Table
from lw2g_page.figures import FIGURES
from lw2g_page.gallery import ConfusedPair, Gallery, confused_most, gallery_of
from lw2g_page.inside import Inside, look_inside
from lw2g_page.numbers import Numbers
from lw2g_page.repeating import command_of

__all__ = ["MARK", "page_of"]

MARK = "<!doctype html>\n<!-- lw2g report -->"
"""The first lines of every report."""
_UNITS = ("s", "ms", "mflop")
"""Units at the end of columns' titles."""
_MACHINE = ("python", "torch", "torchvision", "timm", "platform", "device_name", "threads", "cores")
_UNKNOWN = "not noted"
_TILES = {"faa": "FAA", "ffm": "FFM", "pra": "PRA", "ssp": "sets", "total_s": "seconds"}
"""The columns above the page of a single run, and their titles there."""


@attrs.frozen
class _ResultCell:
    """A cell of the table of results: the title of its column, its content, and the published value."""

    title: str
    content: Cell | str
    published: str


@attrs.frozen
class _Line:
    """A line of the table of results: a row's label, whether the row is a control, and its cells."""

    label: str
    control: bool
    cells: Sequence[_ResultCell]


@attrs.frozen
class _Tile:
    """A result of a single run: its title, its value as text, and what it means."""

    title: str
    value: str
    meaning: str


@attrs.frozen(kw_only=True)
class _Section:
    """A table of the page.

    Attributes:
        benchmark: The name of the data.
        title: That name and the size of tasks.
        conditions: What else its runs have in common.
        head: The head of the table of results.
        lines: The lines of that table.
        published: Whether there are published values.
        remarks: Remarks on the table.
        packed: The rows and the numbers that compare them, for the script.
        runs: Name, packed numbers and origin of each run.
        tiles: The results of a single run; else none.
        gallery: The gallery of a single run; else None.
        confused: The classes that the best run confuses most, with images of the user's own data.
        examined: The name of that run.
    """

    benchmark: str
    title: str
    conditions: Sequence[str]
    head: Sequence[str]
    lines: Sequence[_Line]
    published: bool
    remarks: Sequence[str]
    packed: str
    runs: Sequence[Mapping[str, Any]]
    tiles: Sequence[_Tile]
    gallery: Gallery | None
    confused: Sequence[ConfusedPair]
    examined: str


def page_of(
    tables: Sequence[Table],
    catalogue: Catalogue,
    columns: Sequence[Column],
    against: str | None,
    command: str,
) -> str:
    """Return a report as HTML.

    Args:
        tables: Its tables, in which unfinished runs have their own rows.
        catalogue: Resolves commands and opens data sets.
        columns: The columns of the table of results.
        against: The row that differences first refer to; None for the first row.
        command: The command that repeats the report.

    Raises:
        ConfigError: A library for drawing is not installed, or the row ``against`` does not exist.
    """
    script = _script()
    num_runs = 0
    for table in tables:
        num_runs += sum(len(row.runs) for row in table.rows)
    single = num_runs == 1
    sections = [_section(table, catalogue, columns, against, single=single) for table in tables]
    figures = [attrs.asdict(figure, filter=lambda field, _: field.name != "of") for figure in FIGURES]
    template = _environment().get_template("page.html.jinja")
    body: str = template.render(
        version=__version__,
        sections=sections,
        figures=FIGURES,
        defined=_packed(figures),
        command=command,
        # as text: a browser would take it for the end of the page's own script
        script=script.replace("</script", "<\\/script"),
        own_script=_read("page.js"),
        style=_read("page.css"),
    )
    return f"{MARK}\n{body}"


@cache
def _script() -> str:
    """Return Vega with Vega-Lite, as one script.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import jinja2  # noqa: F401
        import vl_convert
    except ImportError as error:
        raise ConfigError(f"--html: {error.name!r} is not installed", "pip install lw2g[report]") from error
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle


def _environment() -> Any:
    """Return the environment of the page's template, which escapes what it is given."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("lw2g_page", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _read(name: str) -> str:
    return (files("lw2g_page") / name).read_text(encoding="utf-8")


def _packed(content: Any) -> str:
    """Return JSON, compressed and base64-encoded for the page."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


# -- sections --------------------------------------------------------------------------------------------


def _section(
    table: Table, catalogue: Catalogue, columns: Sequence[Column], against: str | None, *, single: bool
) -> _Section:
    """Return the section of a page about one table: the table, its figures and its runs.

    Args:
        table: The table.
        catalogue: Resolves commands and opens data sets.
        columns: What may be shown.
        against: Label of the row that differences refer to, or a unique part of it.
        single: Whether this is all of the page and of one run, so that there is room for its images.
    """
    shown = shown_columns(table, columns)
    cells = mean_cells(table, shown)
    head, *rows = (_with_published(line, cells[0]) for line in cells)
    lines = []
    for row, cells_of_row in zip(table.rows, rows, strict=True):
        lines.append(_Line(row.label, row.control, cells_of_row))
    opened, best = _opened(table)
    tiles: Sequence[_Tile] = ()
    gallery = None
    if single and opened:  # the page of one run has what tables of several have no room for
        tiles = _tiles(opened[0].run)
        gallery = gallery_of(opened[0], catalogue)
    return _Section(
        benchmark=table.benchmark,
        title=table.title,
        conditions=table.conditions,
        head=[_with_its_unit(cell.title) for cell in head],
        published=any(row.paper for row in table.rows),
        lines=lines,
        # no row to differ from: the script shows differences, in a figure that explains them
        remarks=remarks_on(table, shown, against=None),
        packed=_packed(_compared(table, against)),
        runs=[_run(inside, catalogue, best=inside is best) for inside in opened],
        tiles=tiles,
        gallery=gallery,
        confused=() if best is None else confused_most(best, catalogue),
        examined="" if best is None else best.label,
    )


def _opened(table: Table) -> tuple[list[Inside], Inside | None]:
    """Return all runs of a table, and the best of them, whose confusions are shown; None without a run.

    A finished run is before an unfinished one, a method before a control, then more accurate runs.
    """
    opened = []
    best = None
    best_rank = (False, False, 0.0)
    for label, row, run in _runs(table):
        inside = look_inside(run, label)
        opened.append(inside)
        rank = (run.state == "finished", not row.control, run.metric("faa") or 0.0)
        if best is None or rank > best_rank:
            best = inside
            best_rank = rank
    return opened, best


def _compared(table: Table, against: str | None) -> dict[str, Any]:
    """Return the rows of a table and the numbers that compare them, for the script."""
    finished = [row for row in table.rows if row.finished]
    numbers = {}
    for figure in FIGURES:
        if figure.scope == "rows":
            numbers[figure.name] = _for_script(figure.of(finished if figure.finished else table.rows))
    picked = {}
    reference = table.reference(against)
    if reference is not None:
        picked["against"] = reference.label
    rows = [{"label": row.label, "control": row.control} for row in table.rows]
    return {"rows": rows, "numbers": numbers, "picked": picked}


def _with_its_unit(title: str) -> str:
    """Return the title of a column whose unit, its last word, stays on the line of the word before."""
    name, _, unit = title.rpartition(" ")
    if not name or unit not in _UNITS:
        return title
    return f"{name}\N{NO-BREAK SPACE}{unit}"


def _with_published(line: Sequence[Cell | str], head: Sequence[Cell | str]) -> list[_ResultCell]:
    """Return the cells of a line after its label, with published values beside the results that they are of.

    On a terminal the published value of the column ``x`` has a column of its own, ``paper x``.
    """
    titles = list(map(str, head))
    published = {}
    for title, cell in zip(titles, line, strict=True):
        if title.startswith("paper ") and str(cell) != "-":
            published[title.removeprefix("paper ")] = str(cell)
    cells = []
    for title, cell in zip(titles[1:], line[1:], strict=True):
        if not title.startswith(("paper ", "minus paper")):
            cells.append(_ResultCell(title, cell, published.get(title, "")))
    return cells


def _runs(table: Table) -> Iterator[tuple[str, Row, ReportedRun]]:
    """Yield all runs of a table with their rows, under unique names."""
    for row in table.rows:
        seeds = Counter(run.record["seed"] for run in row.runs)
        for run in row.runs:
            seed = run.record["seed"]
            name = f"{row.label}, seed {seed}"
            if seeds[seed] > 1:  # they differ in the class order
                name += f", {run.path.name}"
            yield name, row, run


def _for_script(numbers: Numbers) -> dict[str, Any]:
    """Return numbers for the script, rounded to four decimals."""

    def short(value: Any) -> Any:
        """Return a value with four decimals if it is a number that has any."""
        if isinstance(value, float):
            return round(value, 4)
        return value

    extra: dict[str, list[dict[str, Any]]] = {}
    for name, mappings in numbers.extra.items():
        extra[name] = []
        for mapping in mappings:
            extra[name].append({key: short(value) for key, value in mapping.items()})
    return {
        "rows": [list(map(short, row)) for row in numbers.rows],
        "facts": list(numbers.facts),
        "why": numbers.why,
        "extra": extra,
    }


def _run(inside: Inside, catalogue: Catalogue, *, best: bool) -> dict[str, Any]:
    """Return what the script shows of a run."""
    numbers = {}
    for figure in FIGURES:
        if figure.scope == "run":
            numbers[figure.name] = _for_script(figure.of(inside))
    return {
        "label": inside.label,
        "best": best,
        "packed": _packed(numbers),
        "command": command_of(inside.run, catalogue),
        "origin": _origin(inside.run, catalogue),
        "deviations": inside.record.get("deviations", []),
        "changes": inside.record.get("protocol_changes", []),
    }


def _origin(run: ReportedRun, catalogue: Catalogue) -> dict[str, str]:
    """Return the origin of a run: its directory, settings, machine and checksums."""
    record = run.record
    precision = [run.precision, record.get("precision", {}).get("reason")]
    if run.asked_precision == "auto":
        precision.insert(1, "asked for auto")
    origin = {
        "directory": str(run.path),
        "state": run.state,
        "lw2g": str(record.get("lw2g_version", _UNKNOWN)),
        "protocol": str(record["protocol"]),
        "seed": str(record["seed"]),
        "precision": ", ".join(filter(None, precision)) or _UNKNOWN,
    }
    environment = record.get("environment", {})
    for name in _MACHINE:
        if name in environment:
            origin[name] = str(environment[name])
    origin["checkpoint"] = f"{weights_name(record, catalogue)}, SHA-256 {record['backbone']['sha256']}"
    for name, fingerprint in record["fingerprints"].items():
        origin[f"{name} fingerprint"] = fingerprint
    origin["record SHA-256"] = sha256_of(run.path / RECORD) or _UNKNOWN
    origin["record hash, all but the clocks"] = record.get("record_hash") or _UNKNOWN
    return origin


def _tiles(run: ReportedRun) -> list[_Tile]:
    """Return the results of a run that it has."""
    tiles = []
    for name, title in _TILES.items():
        column = COLUMNS[name]
        value = column.of(run.record)
        if value is None:
            continue
        digits = column.digits
        if value.is_integer():
            digits = 0
        tiles.append(_Tile(title, f"{value:z,.{digits}f}", column.meaning))
    return tiles
