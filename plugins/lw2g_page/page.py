"""The page: one self-contained file, built from numbers, drawings and a template."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import attrs

from lw2g import __version__
from lw2g.api.recorded import head_taken
from lw2g.config.directory import RECORD
from lw2g.disk.sealed import sha256_of
from lw2g.errors import ConfigError
from lw2g.registry.catalogue import Catalogue
from lw2g.results.cells import definitions_of, few_remarks_on, remarks_on, valued_columns
from lw2g.results.columns import COLUMNS, Column
from lw2g.results.difference_words import SAME, no_reference, over_of_rows, uncorrected, varying_pairs
from lw2g.results.found_runs import ReportedRun
from lw2g.results.paper import published_places
from lw2g.results.row_names import weights_name
from lw2g.results.run_draws import by_draw, drawn_in_words
from lw2g.results.table import ALL_ROWS, Row, Table
from lw2g.runtime.telling import duration
from lw2g_page.figures import FIGURES
from lw2g_page.gallery import (
    ConfusedPair,
    Gallery,
    TaskPictures,
    confused_most,
    gallery_of,
    task_pictures,
)
from lw2g_page.inside import Inside, look_inside
from lw2g_page.numbers import Numbers
from lw2g_page.page_head import (
    Answer,
    answer_of,
    conditions_above,
    question_of,
    reference_of,
    shown_of,
)
from lw2g_page.repeating import command_of
from lw2g_page.result_lines import Results, results_of
from lw2g_page.thumbnails import Allowance, Thumbnails

__all__ = ["MARK", "page_of"]

MARK = "<!doctype html>\n<!-- lw2g report -->"
"""The first lines of every report."""
_MACHINE = ("python", "torch", "torchvision", "timm", "platform", "device_name", "threads", "cores")
_UNKNOWN = "not noted"
_NO_DATA = {"of", "reading", "of_line", "of_controls", "of_joint"}
"""What the script is not given of a figure: a function, and words that stand in the page."""
_ALL_REMARKS = "all remarks below"
"""What leads to the list of all remarks."""
_NEAREST = "the run nearest its row's mean"
"""What is said of the run that is shown first, where its row has several."""
_TILES = {
    "ffm": ("forgotten", "points", "FFM: best minus last accuracy, mean of old tasks; below 0 they gained"),
    "pra": ("right set found", "%", "PRA: test images whose set holds their task"),
    "ssp": ("sets", "", "of parameters, each for one or more tasks"),
    "total_s": ("time", "", "of the whole run, in h:mm:ss"),
}
"""What stands beside the answer of a single run: title, unit, and what it is in words."""


@attrs.frozen
class _Tile:
    """A result of a single run: its title, its value as text, the unit, and what it means."""

    title: str
    value: str
    unit: str
    meaning: str


_KINDS = {"classes": "Class-incremental", "domains": "Domain-incremental"}
"""The kinds of learning that have a name, by what the tasks of a stream bring; others are continual."""


@attrs.frozen(kw_only=True)
class _Section:
    """A table of the page.

    Attributes:
        benchmark: The name of the data.
        kind: What kind of learning its stream asks for, in the field's words.
        title: That name and the size of tasks.
        apart: Why it and further tables of equal data and tasks are not one; empty but in the first.
        question: What the table answers.
        answer: The answer.
        conditions: What its runs have in common: of what, and what it is.
        results: The table of results.
        readings: How to read each figure, by its name.
        shown: What figures with a band, and those without, show of each row: one run or a mean.
        published: Whether there are published values.
        reference: The name of the row that differences refer to; empty without one.
        over: What the intervals of differences of final accuracy are over, and that nothing corrects them.
        remarks: The remarks on the table that matter most.
        all_remarks: All remarks on it.
        packed: The rows and the numbers that compare them, for the script.
        runs: Name, packed numbers and origin of each run.
        tiles: The results of a single run; else none.
        gallery: The gallery of a single run; else None.
        tasks: The tasks of the run that is shown first, with images of some classes.
        confused: The classes that it confuses most, with images of the user's own data.
        examined: The name of that run.
        chosen: Which of several runs of its row it is; empty of one.
    """

    benchmark: str
    kind: str
    title: str
    apart: str
    question: str
    answer: Answer
    conditions: Sequence[tuple[str, str]]
    results: Results
    readings: Mapping[str, str]
    shown: Mapping[bool, str]
    published: bool
    reference: str
    over: str
    remarks: Sequence[str]
    all_remarks: Sequence[str]
    packed: str
    runs: Sequence[Mapping[str, Any]]
    tiles: Sequence[_Tile]
    gallery: Gallery | None
    tasks: Sequence[TaskPictures]
    confused: Sequence[ConfusedPair]
    examined: str
    chosen: str


def page_of(
    tables: Sequence[Table],
    catalogue: Catalogue,
    columns: Sequence[Column],
    against: str | None,
    command: str,
    missing: Sequence[str] = (),
) -> str:
    """Return a report as HTML.

    Args:
        tables: Its tables, in which unfinished runs have their own rows.
        catalogue: Resolves commands and opens data sets.
        columns: The columns of the table of results.
        against: The row that differences first refer to; None for the best of those that train nothing, or
            the first, of the rows that have pairs.
        command: The command that repeats the report.
        missing: Which runs were left out, and why, a line each.

    Raises:
        ConfigError: A library for drawing is not installed, or the row ``against`` does not exist.
    """
    script = _script()
    num_runs = 0
    for table in tables:
        num_runs += sum(len(row.runs) for row in table.rows)
    single = num_runs == 1
    allowance = Allowance()
    sections = []
    for table in tables:
        sections.append(_section(table, catalogue, columns, against, allowance, single=single))
    valued = [column for table in tables for column in valued_columns(table, columns)]
    figures = [attrs.asdict(figure, filter=lambda field, _: field.name not in _NO_DATA) for figure in FIGURES]
    template = _environment().get_template("page.html.jinja")
    body: str = template.render(
        version=__version__,
        sections=sections,
        figures=FIGURES,
        defined=_packed(figures),
        all_remarks=_ALL_REMARKS,
        definitions=definitions_of([column for column in columns if column in valued]),
        command=command,
        missing=missing,
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
        raise ConfigError(
            f"a page needs {error.name!r}, which is not installed", "pip install 'lw2g[report]'"
        ) from error
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle


def _environment() -> Any:
    """Return the environment of the page's template, which escapes what it is given."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("lw2g_page", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["whole"] = _with_whole_options
    return environment


_OPTION = re.compile(r"\(?--[a-z][a-z-]*\)?")


def _with_whole_options(text: str) -> Any:
    """Return HTML of a text in which no line breaks inside the name of an option."""
    from markupsafe import Markup, escape

    return Markup(_OPTION.sub(r'<span class="whole">\g<0></span>', str(escape(text))))


def _read(name: str) -> str:
    return (files("lw2g_page") / name).read_text(encoding="utf-8")


def _packed(content: Any) -> str:
    """Return JSON, compressed and base64-encoded for the page."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


# -- sections --------------------------------------------------------------------------------------------


def _section(
    table: Table,
    catalogue: Catalogue,
    columns: Sequence[Column],
    against: str | None,
    allowance: Allowance,
    *,
    single: bool,
) -> _Section:
    """Return the section of a page about one table: the table, its figures and its runs.

    Args:
        table: The table.
        catalogue: Resolves commands and opens data sets.
        columns: What may be shown.
        against: Label of the row that differences refer to, or a unique part of it; None for none.
        allowance: What images may take of the page.
        single: Whether this is all of the page and of one run, so that there is room for its mistakes.
    """
    shown = valued_columns(table, columns)
    opened = list(_opened(table, catalogue))
    examined, chosen = _typical(opened)
    tiles: Sequence[_Tile] = ()
    gallery = None
    tasks: Sequence[TaskPictures] = ()
    confused: Sequence[ConfusedPair] = ()
    if examined is not None:
        thumbnails = Thumbnails(examined.run, catalogue, allowance)
        tasks = task_pictures(examined, thumbnails)
        confused = confused_most(examined, thumbnails)
        if single:  # the page of one run has what tables of several have no room for
            tiles = _tiles(examined.run)
            gallery = gallery_of(examined, thumbnails)
    # what all rows share and what is not finished stands above the table
    own_notes = tuple(note for note in table.notes if not note.startswith(ALL_ROWS))
    without = no_reference(table, against)
    unlike = (f"differences: {without}", *table.unlike) if without else table.unlike
    remarked = attrs.evolve(table, unlike=unlike, notes=own_notes, unfinished=())
    reference = reference_of(table, against)
    return _Section(
        benchmark=table.benchmark,
        kind=_kind_of(table),
        title=table.title,
        apart=table.apart,
        question=question_of(table, reference, named=against is not None),
        answer=answer_of(table, reference),
        conditions=conditions_above(table),
        results=results_of(table, columns, shown, reference),
        readings={figure.name: figure.reading_of(table) for figure in FIGURES},
        shown={band: shown_of(table, band=band) for band in (True, False)},
        published=any(row.paper for row in table.rows),
        reference="" if reference is None else reference.label,
        over=_over(table, reference),
        # no row to differ from: the page explains differences where they stand
        remarks=few_remarks_on(remarked, shown, against=None, others=_ALL_REMARKS, listed=False),
        all_remarks=remarks_on(remarked, shown, against=None),
        packed=_packed(_compared(table, reference)),
        runs=[_run(inside, catalogue, selected=inside is examined) for _, inside in opened],
        tiles=tiles,
        gallery=gallery,
        tasks=tasks,
        confused=confused,
        examined="" if examined is None else examined.label,
        chosen=chosen,
    )


def _kind_of(table: Table) -> str:
    """Return what kind of learning the stream of a table asks for."""
    streams = {run.options.get("benchmark.stream", "classes") for row in table.rows for run in row.runs}
    return _KINDS.get(" ".join(streams), "Continual")


def _opened(table: Table, catalogue: Catalogue) -> Iterator[tuple[Row, Inside]]:
    """Yield all runs of a table with their rows."""
    for label, row, run in _runs(table):
        grows = catalogue.grows(run.config["baseline"]["name"])
        yield row, attrs.evolve(look_inside(run, label), grows=grows)


def _typical(opened: Sequence[tuple[Row, Inside]]) -> tuple[Inside | None, str]:
    """Return the run that is shown first, and which of the runs of its row it is; None without a run.

    It is of the row that ends highest, a finished one before others and a method before a control. Of its
    runs it is no lucky one, but that nearest their mean.
    """
    if not opened:
        return None, ""
    leading = max((row for row, _ in opened), key=_rank)
    own = [inside for row, inside in opened if row is leading]
    middle = _faa_of(leading)
    # rounded: of two that are as far from the mean the first, on every machine
    nearest = min(own, key=lambda inside: round(abs((inside.run.metric("faa") or 0.0) - middle), 6))
    return nearest, _NEAREST if len(own) > 1 else ""


def _rank(row: Row) -> tuple[bool, bool, float]:
    return row.finished, not row.control, _faa_of(row)


def _faa_of(row: Row) -> float:
    """Return the final accuracy of a row; 0 where a run has none."""
    return row.summary(COLUMNS["faa"]).mean or 0.0


def _over(table: Table, reference: Row | None) -> str:
    """Return what intervals of differences from a row are over, and that nothing corrects them."""
    if reference is None:
        return ""
    gaps = table.differences(reference, COLUMNS["faa"])
    compared = [row for row in table.rows if gaps.get(row.label) is not None]
    over = over_of_rows(varying_pairs(row, reference) for row in compared)
    has_p = any(gap is not None and gap.p is not None for gap in gaps.values())
    corrected = "; p is corrected (Holm)" if has_p and len(compared) > 1 else ""
    same = f"; {SAME}" if any(gap is not None and gap.is_none for gap in gaps.values()) else ""
    return f"{over}{uncorrected(len(compared))}{corrected}{same}"


def _compared(table: Table, reference: Row | None) -> dict[str, Any]:
    """Return the rows of a table and the numbers that compare them, for the script."""
    numbers = {}
    for figure in FIGURES:
        if figure.scope == "rows":
            shown = figure.rows_of(table)
            of_rows = figure.of(shown) if shown else Numbers(why="no run is finished")
            numbers[figure.name] = _for_script(of_rows)
    picked = {}
    if reference is not None:
        picked["against"] = reference.label
    rows = []
    for row in table.rows:
        rows.append({"label": row.label, "control": row.control})
    return {"rows": rows, "numbers": numbers, "picked": picked}


def _runs(table: Table) -> Iterator[tuple[str, Row, ReportedRun]]:
    """Yield all runs of a table with their rows, under unique names."""
    for row in table.rows:
        drawn = {id(run): drawn_in_words(run, row.runs) for run in row.runs}
        counts = Counter(drawn.values())
        for run in sorted(row.runs, key=by_draw):
            name = f"{row.label}, {drawn[id(run)]}"
            if counts[drawn[id(run)]] > 1:  # their class orders were given
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


def _run(inside: Inside, catalogue: Catalogue, *, selected: bool) -> dict[str, Any]:
    """Return what the script shows of a run."""
    is_of_published = published_places(inside.run, catalogue)
    numbers = {}
    for figure in FIGURES:
        if figure.scope == "run":
            numbers[figure.name] = _for_script(figure.of(inside))
    return {
        "label": inside.label,
        "selected": selected,
        "packed": _packed(numbers),
        "command": command_of(inside.run, catalogue),
        "origin": _origin(inside.run, catalogue),
        "deviations": [
            entry for entry in inside.record.get("deviations", []) if is_of_published(entry["option"])
        ],
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
    if record["backbone"].get("layers", 1) > 1:
        origin["features"] = f"{record['backbone']['layers']} layers, {record['backbone']['pool']} pooling"
    if head := head_taken(record):
        origin["head"] = head.removeprefix("head: ")
    for name, fingerprint in record["fingerprints"].items():
        origin[f"{name} fingerprint"] = fingerprint
    origin["record SHA-256"] = sha256_of(run.path / RECORD) or _UNKNOWN
    origin["record hash, all but the clocks"] = record.get("record_hash") or _UNKNOWN
    return origin


def _tiles(run: ReportedRun) -> list[_Tile]:
    """Return the results of a run that it has."""
    tiles = []
    for name, (title, unit, meaning) in _TILES.items():
        column = COLUMNS[name]
        value = column.of(run.record)
        if value is None:
            continue
        if name == "total_s":
            shown = duration(value)
        else:
            shown = f"{value:z,.{0 if value.is_integer() else 1}f}"
        tiles.append(_Tile(title, shown, unit, meaning))
    return tiles
