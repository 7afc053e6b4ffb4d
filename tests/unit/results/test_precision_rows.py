"""Tests that a precision which ``auto`` settled on separates no rows, and is told below the table."""

from __future__ import annotations

import attrs
import pytest

from lw2g.config.settings import RunConfig
from lw2g.results.columns import COLUMNS
from lw2g.results.table import tables_of

AMD = "the CPU is AMD's and has avx512_bf16"
OTHER = "the CPU has neither amx_bf16 nor avx512_bf16"


def settled(used, asked="auto", **options):
    """Return the changes of a run's record that asked for a precision and computed in one."""
    reason = "as configured" if asked == used else AMD if used == "bf16-mixed" else OTHER
    noted = {"asked": asked, "used": used, "reason": reason}
    return {"run.precision": used, "record.precision": noted, **options}


MAX = {"policy.name": "max"}


@pytest.fixture
def table_of(write_run, installed):
    """Return the table of runs, from the changes of each."""

    def make(*changes):
        (table,) = tables_of([write_run(60.0 + at, **each) for at, each in enumerate(changes)], installed)
        return table

    return make


def shape(table):
    """Return the rows of a table by their labels, with the number of their runs."""
    return {row.label: len(row.runs) for row in table.rows}


def precision_notes(table):
    """Return the notes on precision."""
    return [note for note in table.notes if "precision" in note]


def test_runs_that_settled_alike_are_one_row(table_of):
    """The choice stands in no name, and below the table once."""
    table = table_of(settled("bf16-mixed"), settled("bf16-mixed", **{"run.seed": 1}))
    assert shape(table) == {"dual-prompt x always": 2}
    assert precision_notes(table) == ["run.precision auto: bf16-mixed"]


def test_what_settled_otherwise_is_a_footnote(table_of):
    """Seeds of one row on two machines are one row with a spread, which --against finds by its name."""
    table = table_of(
        settled("bf16-mixed"),
        settled("32-true", **{"run.seed": 1}),
        settled("bf16-mixed", **{"run.seed": 2}),
        settled("32-true", **MAX),
        settled("bf16-mixed", **{"policy.name": "one"}),
    )
    assert shape(table) == {
        "dual-prompt x always": 3,
        "dual-prompt x max, no constraints": 1,
        "dual-prompt x one, no constraints": 1,
    }
    assert precision_notes(table) == [
        "run.precision auto: bf16-mixed, but 32-true in dual-prompt x always (seed 1); "
        "dual-prompt x max, no constraints"
    ]
    assert table.row("dual-prompt x always").summary(COLUMNS["faa"]).n == 3


def test_a_named_precision_joins_the_row_that_settled_on_it(table_of):
    """Its numbers are those of the same arithmetic; another precision is another row."""
    table = table_of(
        settled("bf16-mixed"),
        settled("bf16-mixed", asked="bf16-mixed", **{"run.seed": 1}),
        settled("32-true", asked="32-true", **{"run.seed": 1}),
    )
    assert shape(table) == {"dual-prompt x always": 2, "dual-prompt x always, run[precision=32-true]": 1}
    assert precision_notes(table) == ["run.precision auto: bf16-mixed"]


def test_precisions_that_were_named_are_compared(table_of):
    """Runs that name them stay apart, beside runs that asked for auto on two machines, too."""
    named = [settled(used, asked=used, **{"run.seed": 5}) for used in ("bf16-mixed", "32-true")]
    rows = {f"dual-prompt x always, run[precision={used}]": 1 for used in ("bf16-mixed", "32-true")}
    assert shape(table_of(*named)) == rows
    both = [settled("bf16-mixed"), settled("32-true", **{"run.seed": 1})]
    assert shape(table_of(*both, *named)) == {"dual-prompt x always": 2, **rows}


def test_older_records_tell_what_they_computed_in(table_of):
    """A record from before the choice was noted counts as one that named its precision."""
    table = table_of({"run.precision": "32-true"}, {"run.precision": "32-true", "run.seed": 1})
    assert shape(table) == {"dual-prompt x always": 2}
    assert precision_notes(table) == ["all rows: run.precision 32-true"]


def test_options_of_the_machine_and_of_what_is_shown_separate_no_rows(table_of):
    """Runs that differ in one of them alone are one row: no other number depends on it."""
    of_run = attrs.fields_dict(RunConfig)
    names = [name for name, field in of_run.items() if field.metadata.get("role") in ("machine", "shown")]
    assert {"device", "workers", "next_domain"} <= set(names)
    for name in names:
        table = table_of({}, {f"run.{name}": "another", "run.seed": 1})
        assert shape(table) == {"dual-prompt x always": 2}, name
