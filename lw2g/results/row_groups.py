"""Which runs a row of a report has."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lw2g.disk.plugin_code import code_among, is_of_several
from lw2g.results.found_runs import ReportedRun
from lw2g.results.row_names import Settings
from lw2g.results.run_draws import draw_of

__all__ = ["runs_of_rows"]


def runs_of_rows(
    runs: Sequence[ReportedRun],
    settings: Mapping[int, Settings],
    names: Mapping[str, Callable[[ReportedRun], str]],
) -> list[list[ReportedRun]]:
    """Return the runs of each row; seed, class order and machine do not separate rows.

    Args:
        runs: The runs of a table.
        settings: The settings of each run, by its ``id``.
        names: What tells apart the runs of what a table may mix.
    """
    groups: dict[Any, list[ReportedRun]] = defaultdict(list)
    for run in runs:
        settings_of_run = settings[id(run)]
        values = json.dumps(settings_of_run.values, sort_keys=True)
        # what the table mixes separates rows, so that no mean is over two protocols
        mixable = tuple(name_of(run) for name_of in names.values())
        reached = None
        if run.state != "finished":
            reached = (run.done, run.tasks)
        groups[values, settings_of_run.began, mixable, reached, run.given, run.old].append(run)
    rows = []
    for group in groups.values():
        rows += _apart_by_code(group)
    return rows


def _apart_by_code(group: Sequence[ReportedRun]) -> list[list[ReportedRun]]:
    """Return the runs apart by their plugins' code if some were repeated with other code, else together."""
    is_repeated = len(set(map(draw_of, group))) < len(group)
    if not is_repeated or not any(map(is_of_several, code_among(run.path for run in group).values())):
        return [list(group)]
    by_code: dict[str, list[ReportedRun]] = defaultdict(list)
    for run in group:
        by_code[str(sorted(code_among([run.path]).items()))].append(run)
    return list(by_code.values())
