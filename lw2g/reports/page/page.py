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
from lw2g.errors import ConfigError
from lw2g.files.sealed import sha256_of
from lw2g.registry.catalogue import Catalogue
from lw2g.reports.columns import COLUMNS, Column
from lw2g.reports.names import weights_name
from lw2g.reports.page.commands import command_of
from lw2g.reports.page.figures import FIGURES
from lw2g.reports.page.gallery import ConfusedPair, Gallery, confused_most, gallery_of
from lw2g.reports.page.inside import Inside, look_inside
from lw2g.reports.page.numbers import Numbers
from lw2g.reports.render import Cell, mean_cells, remarks_on, shown_columns
from lw2g.reports.runs import ReportedRun
from lw2g.reports.table import Table

__all__ = ["MARK", "page_of"]

MARK = "<!doctype html>\n<!-- lw2g report -->"
"""The first lines of every report."""
_UNITS = ("s", "ms", "mflop")
"""Units at the end of columns' titles."""
_TILES = ("faa", "ffm", "pra", "ssp", "total_s")


@attrs.frozen(kw_only=True)
class _Section:
    """A table of the page.

    Attributes:
        benchmark: The name of the data.
        title: That name and the size of tasks.
        conditions: What else its runs have in common.
        head: The head of the table of results.
        lines: The lines of that table: a row's label, whether it is a control, and its cells, each with its
            title and the published value.
        published: Whether there are published values.
        remarks: Remarks on the table.
        packed: The rows and the numbers that compare them, for the script.
        runs: Name, packed numbers and origin of each run.
        tiles: The results of a single run: title, value, meaning.
        gallery: The gallery of a single run; else None.
        confused: The classes that the best run confuses most, with images of the user's own data.
        examined: The name of that run.
    """

    benchmark: str
    title: str
    conditions: Sequence[str]
    head: Sequence[str]
    lines: Sequence[tuple[str, bool, Sequence[tuple[str, Cell | str, str]]]]
    published: bool
    remarks: Sequence[str]
    packed: str
    runs: Sequence[Mapping[str, Any]]
    tiles: Sequence[tuple[str, str, str]]
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
    single = sum(len(row.runs) for table in tables for row in table.rows) == 1
    sections = [_section(table, catalogue, columns, against, single=single) for table in tables]
    figures = [attrs.asdict(figure, filter=lambda field, _: field.name != "of") for figure in FIGURES]
    template = _environment().get_template("page.html.jinja")
    body: str = template.render(
        version=__version__,
        sections=sections,
        figures=FIGURES,
        defined=_packed(figures),
        command=command,
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
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("lw2g.reports.page", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _read(name: str) -> str:
    return (files("lw2g.reports.page") / name).read_text(encoding="utf-8")


def _packed(content: Any) -> str:
    """Return JSON, compressed and base64-encoded for the page."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


# -- sections --------------------------------------------------------------------------------------------


def _section(
    table: Table, catalogue: Catalogue, columns: Sequence[Column], against: str | None, *, single: bool
) -> _Section:
    shown = shown_columns(table, columns)
    head, *cells = (_with_published(line, cells[0]) for cells in [mean_cells(table, shown)] for line in cells)
    finished = [row for row in table.rows if row.finished]
    compared = {
        figure.name: _plain(figure.of(finished if figure.finished else table.rows))
        for figure in FIGURES
        if figure.scope == "rows"
    }
    content = {
        "rows": [{"label": row.label, "control": row.control} for row in table.rows],
        "numbers": compared,
        "picked": {} if against is None else {"against": table.row(against).label},
    }
    opened = [look_inside(run, label) for label, run in _named(table)]
    controls = {run.path for row in table.rows if row.control for run in row.runs}

    def rank(inside: Inside) -> tuple[bool, bool, float]:
        run = inside.run
        return run.state == "finished", run.path not in controls, run.metric("faa") or 0.0

    best = max(opened, key=rank, default=None)
    return _Section(
        benchmark=table.benchmark,
        title=table.title,
        conditions=table.conditions,
        head=[_with_its_unit(title) for title, _, _ in head],
        published=any(row.paper for row in table.rows),
        lines=[(row.label, row.control, line) for row, line in zip(table.rows, cells, strict=True)],
        remarks=remarks_on(table, shown, None),
        packed=_packed(content),
        runs=[_run(inside, catalogue, best=inside is best) for inside in opened],
        tiles=_tiles(opened[0].run) if single and opened else (),
        gallery=gallery_of(opened[0], catalogue) if single and opened else None,
        confused=() if best is None else confused_most(best, catalogue),
        examined="" if best is None else best.label,
    )


def _with_its_unit(title: str) -> str:
    """Return the title of a column whose unit, its last word, stays on the line of the word before."""
    name, _, unit = title.rpartition(" ")
    return f"{name}\N{NO-BREAK SPACE}{unit}" if name and unit in _UNITS else title


def _with_published(
    line: Sequence[Cell | str], head: Sequence[Cell | str]
) -> list[tuple[str, Cell | str, str]]:
    """Return the cells of a line after its label, each with its title and the published value beside it."""
    cells = []
    for title, cell, beside, other in zip(head[1:], line[1:], [*head[2:], ""], [*line[2:], ""], strict=True):
        if not str(title).startswith(("paper ", "minus paper")):
            known = isinstance(other, Cell) and beside == f"paper {title}" and other.value != "-"
            cells.append((str(title), cell, str(other) if known else ""))
    return cells


def _named(table: Table) -> Iterator[tuple[str, ReportedRun]]:
    """Yield all runs of a table under unique names."""
    for row in table.rows:
        seeds = Counter(run.record["seed"] for run in row.runs)
        for run in row.runs:
            order = f", {run.path.name}" if seeds[run.record["seed"]] > 1 else ""
            yield f"{row.label}, seed {run.record['seed']}{order}", run


def _plain(numbers: Numbers) -> dict[str, Any]:
    """Return numbers for the script, rounded to four decimals."""

    def short(value: Any) -> Any:
        return round(value, 4) if isinstance(value, float) else value

    return {
        "rows": [[short(value) for value in row] for row in numbers.rows],
        "facts": list(numbers.facts),
        "why": numbers.why,
        "extra": {
            name: [{key: short(value) for key, value in mapping.items()} for mapping in mappings]
            for name, mappings in numbers.extra.items()
        },
    }


def _run(inside: Inside, catalogue: Catalogue, *, best: bool) -> dict[str, Any]:
    numbers = {figure.name: _plain(figure.of(inside)) for figure in FIGURES if figure.scope == "run"}
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
    environment = record.get("environment", {})
    machine = ("python", "torch", "torchvision", "timm", "platform", "device_name", "threads", "cores")
    reason = record.get("precision", {}).get("reason")
    asked = "asked for auto" if run.asked_precision == "auto" else None
    return {
        "directory": str(run.path),
        "state": run.state,
        "lw2g": str(record.get("lw2g_version", "not noted")),
        "protocol": str(record["protocol"]),
        "seed": str(record["seed"]),
        "precision": ", ".join(filter(None, (run.precision, asked, reason))) or "not noted",
        **{name: str(environment[name]) for name in machine if name in environment},
        "checkpoint": f"{weights_name(record, catalogue)}, SHA-256 {record['backbone']['sha256']}",
        **{f"{name} fingerprint": value for name, value in record["fingerprints"].items()},
        "record SHA-256": sha256_of(run.path / RECORD) or "not noted",
        "record hash, all but the clocks": record.get("record_hash") or "not noted",
    }


def _tiles(run: ReportedRun) -> list[tuple[str, str, str]]:
    tiles = []
    for name in _TILES:
        column = COLUMNS[name]
        value = column.of(run.record)
        if value is not None:
            title = {"total_s": "seconds", "ssp": "sets"}.get(name, name.upper())
            digits = 0 if value.is_integer() else column.digits
            tiles.append((title, f"{value:z,.{digits}f}", column.meaning))
    return tiles
