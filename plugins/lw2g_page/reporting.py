"""The function of lw2g that tabulates runs, and what it returns: tables, as text or as a page with figures.

Importing this module imports neither torch nor a component.
"""

from __future__ import annotations

import html
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lw2g.api.recorded import holds_model
from lw2g.api.tabular import Row, Tabular, html_table
from lw2g.disk.sealed import write_atomically
from lw2g.errors import ConfigError, DataError, as_word, counted, nearest, shown
from lw2g.ground.notes import tell_note
from lw2g.ground.spelling import expands_paths
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.results import MIXABLE
from lw2g.results.columns import Column, chosen_columns, further_columns
from lw2g.results.found_runs import (
    ReportedRun,
    cells_not_begun,
    cells_of_sweep,
    columns_of_sweep,
    find_runs,
)

if TYPE_CHECKING:
    from lw2g.results.table import Table

__all__ = ["MIXABLE", "Report", "report"]

_ENDINGS = (".html", ".htm", "")
"""How the name of a page may end."""
_NAMED = 3
"""The most cells or runs that are named."""


@expands_paths
def report(
    *runs: str | PathLike[str],
    columns: str | Sequence[str] | None = None,
    against: str | None = None,
    mix: str | Sequence[str] = (),
    unfinished: bool = False,
    store: str | Path | None = None,
) -> Report:
    """Tabulate the runs in and below the given directories, one table per benchmark.

    A row is a configuration, over all its seeds and class orders. Unfinished runs are listed but not counted.
    Damaged ones, also those with predictions that were edited or of which some are missing, are left out and
    named. Those that have none beside their records are counted and named.
    ``against`` takes a row's label, its method, or a part of either that is unique, and adds differences over
    pairs of equal seed and class order, with 95 % intervals.

    Args:
        *runs: The directories, or results of :func:`lw2g.run` and :func:`lw2g.sweep`.
        columns: Columns in their order, in a list or with commas; ``all`` for all of them; None for
            those that the grid of the sweep names in one directory, else the usual ones.
        against: Row that paired differences refer to.
        mix: What one table may mix, although such rows are not comparable: ``checkpoints``, ``splits``,
            ``protocols``; a list for several.
        unfinished: Whether unfinished runs get rows of their own, up to their last task.
        store: A checkout of a store: rows of others under the same protocol, with submitter and badges. What
            of it does not hold is left out and named.

    Raises:
        DataError: There is no run that can be read, or no store.
        ConfigError: A column or what to mix is unknown, or the runs of one table cannot be compared.
    """
    for place in runs:
        if os.fspath(place).lower().endswith((".html", ".htm")) and not os.path.isdir(place):
            raise ConfigError(
                f"{os.fspath(place)!r} is the name of a page and no run",
                "write a page: lw2g report RUNS --html page.html",
            )
    _require_names("columns", columns)
    _require_names("mix", mix)
    mixed = (mix,) if isinstance(mix, str) else tuple(mix or ())
    for kind in mixed:
        if kind not in MIXABLE:
            choices = ", ".join(map(repr, MIXABLE))
            raise ConfigError(f"mix: {kind!r} is not one of {choices}{nearest(str(kind), MIXABLE)}")
    # tables compute by numpy, which `lw2g report --help` does without
    from lw2g.results.right_answers import lacks_answers, require_whole_answers
    from lw2g.results.table import require_row, tables_of
    from lw2g_store.stored import beside, with_answers

    found = []
    damaged = []
    for run in find_runs([Path(run) for run in runs], damaged=True):
        if run.state == "damaged":
            damaged.append(run.problem)
            continue
        try:
            require_whole_answers(run)
        except DataError as error:
            damaged.append(str(error))
        else:
            found.append(run)
    if damaged and not found:
        raise DataError(damaged[0])
    if not found:
        where = "no directory was given"
        remedy = "give directories of runs"
        if runs:
            where = f"no run at or below {', '.join(repr(os.fspath(run)) for run in runs)}"
        if len(runs) == 1 and holds_model(Path(runs[0])):
            remedy = f"it is a model: lw2g show {as_word(os.fspath(runs[0]))}"
        raise DataError(where, remedy)
    catalogue = load_catalogue()
    found, not_whole = with_answers(found, catalogue)
    damaged += not_whole
    left_out = _beside_the_grid(runs, found)
    if without := [run.path for run in found if lacks_answers(run)]:
        which = repr(str(without[0]))
        if len(without) > 1:
            which = f"{len(without)} runs, first {which}"
        why = "only the record tells, without an interval over test images"
        left_out.append(f"predictions of {which} are missing: {why}")
    if store is not None:
        others, not_held = beside(Path(store), catalogue, found)
        found += others
        left_out += not_held
    where = "--columns"
    if columns is None and len(runs) == 1:
        columns = columns_of_sweep(Path(runs[0]))
        where = f"{str(runs[0])!r}: the columns of its grid, which --columns replaces"
    chosen = chosen_columns(columns, further_columns([run.record for run in found], catalogue), where)
    tables = tables_of(found, catalogue, mixed, so_far=unfinished)
    if against is not None:
        require_row(tables, against, catalogue)
        if not any(table.rows for table in tables):
            tell_note(f"--against {shown(against)} is compared with nothing: no run is finished")
    command = _command([os.fspath(run) for run in runs], columns, against, mixed, store)
    return Report(tables, chosen, against, catalogue, command, left_out, damaged)


def _require_names(argument: str, given: Any) -> None:
    """Refuse what is neither a text nor a list of texts; None is left to the function.

    Raises:
        ConfigError: It is neither.
    """
    names = given if isinstance(given, Iterable) else [given]
    if given is not None and not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"{argument}: expected names but got {shown(given)}", "give a text, or a list of them"
        )


def _beside_the_grid(places: Sequence[str | PathLike[str]], found: Sequence[ReportedRun]) -> list[str]:
    """Return which cells of sweeps in and below some places have no run yet, and which runs are no cells."""
    asked = {Path(place) for place in places}
    lines = []
    for sweep in dict.fromkeys(run.path.parent for run in found):
        if not asked & {sweep, *sweep.parents}:  # its other cells are not asked for
            continue
        if cells := cells_not_begun(sweep):
            lines.append(f"cells of {str(sweep)!r} that have not begun: {_few_of(cells)}")
        listed = cells_of_sweep(sweep)
        # a seed that was taken out of the grid leaves its runs
        others = [run.path.name for run in found if run.path.parent == sweep and run.path.name not in listed]
        if listed and others:
            told = "that are no cells of its grid, and count"
            lines.append(f"runs in {str(sweep)!r} {told}: {_few_of(others)}")
    return lines


def _few_of(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(map(repr, names[:_NAMED]))}{more}"


def _command(
    runs: Sequence[str],
    columns: str | Sequence[str] | None,
    against: str | None,
    mix: Sequence[str],
    store: str | Path | None,
) -> str:
    """Return the command of a report with these arguments of :func:`report`.

    ``unfinished`` has no option: with ``--html`` unfinished runs always get rows of their own.
    """
    command = ["lw2g", "report", *runs]
    if columns is not None:
        command += ["--columns", columns if isinstance(columns, str) else ",".join(columns)]
    if against is not None:
        command += ["--against", against]
    for kind in mix:
        command += ["--mix", kind]
    if store is not None:
        command += ["--with", str(store)]
    return shlex.join(command)


class Report(Tabular):
    """Tables of runs, a row per configuration, with published values beside ours.

    ``str(report)`` is Markdown.

    Attributes:
        tables: The tables.
        left_out: Which cells of sweeps have not begun, which runs are no cells of their sweep's grid, what of
            a store does not hold and is not in the tables, and which runs in them are without their
            predictions, one line each.
        damaged: What is wrong with runs that are damaged and are not in the tables, one line each.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        columns: Sequence[Column],
        against: str | None,
        catalogue: Catalogue,
        command: str,
        left_out: Sequence[str] = (),
        damaged: Sequence[str] = (),
    ) -> None:
        self.left_out = tuple(left_out)
        self.damaged = tuple(damaged)
        self.tables = tuple(tables)
        self._columns = columns
        self._against = against
        self._catalogue = catalogue
        self._command = command

    @property
    def _missing(self) -> list[str]:
        """What the tables lack, a line each: a reader of a file does not see what the command warned of."""
        return [*(f"left out: {problem}" for problem in self.damaged), *self.left_out]

    def to_text(
        self, form: Literal["md", "latex", "csv", "json"] = "md", *, every_remark: bool = False
    ) -> str:
        """Return the tables as text.

        Args:
            form: Markdown (the default), LaTeX (booktabs), a line per row and metric, or JSON.
            every_remark: Write all remarks below a table, and a definition of each column; otherwise those
                that matter most. The other forms always have all.

        Raises:
            ConfigError: There is no such form, or no row is called as ``against`` says.
        """
        from lw2g.results import render

        forms: dict[str, Callable[..., str]] = {
            "md": partial(render.as_markdown, others="" if every_remark else "--all"),
            "latex": render.as_latex,
            "csv": render.as_csv,
            "json": render.as_json,
        }
        if form not in tuple(forms):  # a list, too, which a dict cannot look up
            raise ConfigError(f"no such form {form!r}", f"choose one of {', '.join(forms)}")
        return forms[form](self.tables, self._columns, self._against, self._missing)

    def to_html(self) -> str:
        """Return a page with figures, which needs no other file and no network."""
        from lw2g_page.page import page_of

        command = f"{self._command} --html OUT.html"
        return page_of(self.tables, self._catalogue, self._columns, self._against, command, self._missing)

    @expands_paths
    def save(self, out: str | Path) -> Path:
        """Write the page of :meth:`to_html`.

        Args:
            out: Write a page with figures, one file that needs no network, instead of text.

        Raises:
            ConfigError: The name ends as that of no page, the file is no report, or it cannot be written.
        """
        from lw2g_page.page import MARK

        out = Path(out)
        if out.is_dir():
            raise ConfigError(f"{str(out)!r} is a folder", "name a file in it, such as page.html")
        # only a report is written over: --html may name a file of the user's by mistake
        if out.exists() and not out.read_bytes().startswith(MARK.encode()):
            raise ConfigError(
                f"--html: {str(out)!r} exists and is not a report", "choose another name, or remove it"
            )
        if out.suffix.lower() not in _ENDINGS:
            raise ConfigError(
                f"--html: {str(out)!r} would be a page and no {out.suffix}",
                "end its name in .html or .htm; a browser prints that as PDF",
            )
        content = self.to_html().encode()
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(out, content)
        except OSError as error:
            raise ConfigError(
                f"--html: {str(out)!r} cannot be written: {error.strerror}", "choose another"
            ) from error
        return out

    def rows(self) -> list[Row]:
        """Return a row per table, row and metric: mean, deviation, n, published value, difference, giver.

        What a store tells is ``given_who``, ``given_badges``, ``given_protocol``, ``given_plugin``,
        ``given_tuned_on`` and ``given_runs``; they are None for runs of one's own. A key that is None in all
        rows is left out.
        """
        entries: list[dict[str, Any]] = json.loads(self.to_text("json"))["entries"]
        told = {key for entry in entries for key, value in entry.items() if value is not None}
        return [{key: value for key, value in entry.items() if key in told} for entry in entries]

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        number = 0
        unfinished = 0
        for table in self.tables:
            number += sum(len(row.runs) for row in table.rows)
            unfinished += len(table.unfinished)
        if unfinished:
            return f"<report of {counted(number, 'finished run')}; {unfinished} unfinished>"
        return f"<report of {counted(number, 'run')}>"

    def _repr_html_(self) -> str:
        from lw2g.results.cells import mean_cells, shown_columns

        return "".join(self._blocks(mean_cells, shown_columns))

    def _blocks(self, cells: Any, shown: Any) -> Iterator[str]:
        for table in self.tables:
            yield f"<p>{html.escape(table.title)}</p>"
            if table.rows:
                head, *lines = cells(table, shown(table, self._columns))
                yield html_table(dict(zip(head, line, strict=True)) for line in lines)
            for giver in table.givers:
                yield f"<p>{html.escape(giver)}</p>"
