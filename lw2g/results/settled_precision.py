"""What ``run.precision = "auto"`` settled on: a row is what was asked for, and a footnote tells the rest."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import attrs

from lw2g.results.found_runs import ReportedRun
from lw2g.results.row_names import PRECISION, Settings

__all__ = ["as_asked", "settled_notes"]

_AUTO = "auto"


def as_asked(runs: Sequence[ReportedRun], settings: Mapping[int, Settings]) -> dict[int, Settings]:
    """Let runs that named what ``auto`` settled on stand in the row of those that asked for it.

    Where such runs settled differently, one that named a precision keeps its own row: the others' row is no
    comparison of precisions.

    Args:
        runs: The runs of a table.
        settings: Their settings, by the runs' ids.
    """
    settled: dict[str, set[str | None]] = defaultdict(set)
    for run in runs:
        if settings[id(run)].values.get(PRECISION) == _AUTO:
            settled[_otherwise(settings[id(run)])].add(run.precision)
    found = {}
    for run in runs:
        settings_of_run = settings[id(run)]
        if settled[_otherwise(settings_of_run)] == {settings_of_run.values.get(PRECISION)}:
            settings_of_run = _asking(settings_of_run)
        found[id(run)] = settings_of_run
    return found


def _otherwise(own: Settings) -> str:
    """Return all settings but the precision, as text."""
    values = dict(own.values)
    values.pop(PRECISION, None)
    return json.dumps([values, own.began], sort_keys=True)


def _asking(own: Settings) -> Settings:
    """Return the settings of a run as if it had asked for ``auto``."""
    changed = dict(own.changed)
    changed.pop(PRECISION, None)
    return attrs.evolve(own, values={**own.values, PRECISION: _AUTO}, changed=changed)


def settled_notes(rows: Sequence[tuple[str, Sequence[ReportedRun]]]) -> Iterator[str]:
    """Yield what ``auto`` settled on, and in which rows on something else than in most runs.

    Args:
        rows: The label and the runs of each row.
    """
    counts: Counter[str | None] = Counter()
    for _, runs in rows:
        counts.update(map(_settled, runs))
    counts.pop(None, None)  # those that named a precision
    if not counts:
        return
    (usual, _), *others = counts.most_common()
    parts = [f"{PRECISION} auto: {usual}"]
    for other, _ in others:
        places = []
        for label, runs in rows:
            exceptions = [run for run in runs if _settled(run) == other]
            if exceptions:
                places.append(_place(label, exceptions, runs))
        parts.append(f"but {other} in {'; '.join(places)}")
    yield ", ".join(parts)


def _settled(run: ReportedRun) -> str | None:
    """Return what ``auto`` settled on; None if the run named a precision, or does not tell."""
    if run.asked_precision != _AUTO:
        return None
    return run.precision


def _place(label: str, apart: Sequence[ReportedRun], runs: Sequence[ReportedRun]) -> str:
    """Return the name of a row, with the seeds of the runs that differ from its others."""
    if len(apart) == len(runs):
        return label
    seeds = sorted({run.record["seed"] for run in apart})
    return f"{label} (seed {', '.join(map(str, seeds))})"
