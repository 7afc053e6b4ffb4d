"""The page itself: one file that asks for nothing, put together from numbers, drawings and a template."""

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
from lw2g.registry.catalogue import Catalogue
from lw2g.report.columns import COLUMNS, Column
from lw2g.report.page.commands import command_of
from lw2g.report.page.figures import FIGURES
from lw2g.report.page.gallery import Gallery, gallery_of
from lw2g.report.page.inside import Inside, look_inside
from lw2g.report.page.numbers import Numbers
from lw2g.report.render import mean_cells, remarks_on, shown_columns
from lw2g.report.runs import Run
from lw2g.report.table import Table
from lw2g.training.files.sealed import sha256_of

__all__ = ["MARK", "page_of"]

MARK = "<!doctype html>\n<!-- lw2g report -->"
"""What every report begins with."""
_TILES = ("faa", "ffm", "pra", "ssp", "total_s")


@attrs.frozen(kw_only=True)
class _Section:
    """A table of the page.

    Attributes:
        title: What its runs have in common.
        head: Of the table of results.
        lines: Its lines: a row's label, whether it is a control, and the cells.
        remarks: What a reader should know.
        packed: The rows and what compares them, for the script.
        runs: Name, packed numbers and origin of each run.
        tiles: For a single run what it reached: title, value, meaning.
        gallery: For a single run; else None.
    """

    title: str
    head: Sequence[str]
    lines: Sequence[tuple[str, bool, Sequence[str]]]
    remarks: Sequence[str]
    packed: str
    runs: Sequence[Mapping[str, Any]]
    tiles: Sequence[tuple[str, str, str]]
    gallery: Gallery | None


def page_of(
    tables: Sequence[Table],
    catalogue: Catalogue,
    columns: Sequence[Column],
    against: str | None,
    command: str,
) -> str:
    """Return a report as HTML.

    Args:
        tables: What it is of; unfinished runs have rows of their own.
        catalogue: Tells commands and opens data sets.
        columns: Of the table of results.
        against: The row that differences are drawn against at first; None for the first one.
        command: What makes the report again.

    Raises:
        ConfigError: What draws is not installed, or no row is called as said.
    """
    script = _script()
    single = sum(len(row.runs) for table in tables for row in table.rows) == 1
    sections = [_section(table, catalogue, columns, against, single=single) for table in tables]
    figures = [attrs.asdict(one, filter=lambda field, _: field.name != "of") for one in FIGURES]
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
        raise ConfigError(f"--html: {error.name!r} is not installed; pip install lw2g[report]") from error
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle


def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("lw2g.report.page", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _read(name: str) -> str:
    return (files("lw2g.report.page") / name).read_text(encoding="utf-8")


def _packed(content: Any) -> str:
    """Return JSON as it lies in the page: compressed, in letters."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


# -- sections --------------------------------------------------------------------------------------------


def _section(
    table: Table, catalogue: Catalogue, columns: Sequence[Column], against: str | None, *, single: bool
) -> _Section:
    shown = shown_columns(table, columns)
    head, *cells = mean_cells(table, shown)
    finished = [row for row in table.rows if row.finished]
    compared = {
        one.name: _plain(one.of(finished if one.finished else table.rows))
        for one in FIGURES
        if one.scope == "rows"
    }
    content = {
        "rows": [{"label": row.label, "control": row.control} for row in table.rows],
        "numbers": compared,
        "picked": {} if against is None else {"against": table.row(against).label},
    }
    opened = [look_inside(run, label) for label, run in _named(table)]
    controls = {run.path for row in table.rows if row.control for run in row.runs}
    best = max(opened, key=lambda one: _rank(one.run, control=one.run.path in controls), default=None)
    return _Section(
        title=table.title,
        head=head[1:],
        lines=[(row.label, row.control, line[1:]) for row, line in zip(table.rows, cells, strict=True)],
        remarks=remarks_on(table, shown, None),
        packed=_packed(content),
        runs=[_run(one, catalogue, best=one is best) for one in opened],
        tiles=_tiles(opened[0].run) if single and opened else (),
        gallery=gallery_of(opened[0], catalogue) if single and opened else None,
    )


def _rank(run: Run, *, control: bool) -> tuple[bool, bool, float]:
    """Return what the run is chosen by that a reader looks into first."""
    return run.state == "finished", not control, run.metric("faa") or 0.0


def _named(table: Table) -> Iterator[tuple[str, Run]]:
    """Yield all runs of a table under names that tell them apart."""
    for row in table.rows:
        seeds = Counter(run.record["seed"] for run in row.runs)
        for run in row.runs:
            order = f", {run.path.name}" if seeds[run.record["seed"]] > 1 else ""
            yield f"{row.label}, seed {run.record['seed']}{order}", run


def _plain(numbers: Numbers) -> dict[str, Any]:
    """Return numbers as the script reads them, without decimals that nobody sees."""

    def short(value: Any) -> Any:
        return round(value, 4) if isinstance(value, float) else value

    return {
        "rows": [[short(value) for value in row] for row in numbers.rows],
        "facts": list(numbers.facts),
        "why": numbers.why,
        "extra": {
            name: [{key: short(value) for key, value in one.items()} for one in found]
            for name, found in numbers.extra.items()
        },
    }


def _run(one: Inside, catalogue: Catalogue, *, best: bool) -> dict[str, Any]:
    numbers = {figure.name: _plain(figure.of(one)) for figure in FIGURES if figure.scope == "run"}
    return {
        "label": one.label,
        "best": best,
        "packed": _packed(numbers),
        "command": command_of(one.run, catalogue),
        "origin": _origin(one.run),
        "deviations": one.record.get("deviations", []),
        "changes": one.record.get("protocol_changes", []),
    }


def _origin(run: Run) -> dict[str, str]:
    """Return where a run comes from, by what it is called."""
    record = run.record
    environment = record.get("environment", {})
    machine = ("python", "torch", "torchvision", "timm", "platform", "device_name", "threads", "cores")
    precision = record.get("precision", {})
    return {
        "directory": str(run.path),
        "state": run.state,
        "lw2g": str(record.get("lw2g_version", "not noted")),
        "protocol": str(record["protocol"]),
        "seed": str(record["seed"]),
        "precision": " ".join(filter(None, (precision.get("used"), precision.get("reason")))) or "not noted",
        **{name: str(environment[name]) for name in machine if name in environment},
        "checkpoint": f"{record['backbone']['timm_name']}, SHA-256 {record['backbone']['sha256']}",
        **{f"{name} fingerprint": value for name, value in record["fingerprints"].items()},
        "record SHA-256": sha256_of(run.path / RECORD) or "not noted",
    }


def _tiles(run: Run) -> list[tuple[str, str, str]]:
    found = []
    for name in _TILES:
        column = COLUMNS[name]
        value = column.of(run.record)
        if value is not None:
            title = {"total_s": "seconds", "ssp": "sets"}.get(name, name.upper())
            digits = 0 if value.is_integer() else column.digits
            found.append((title, f"{value:,.{digits}f}", column.meaning))
    return found
