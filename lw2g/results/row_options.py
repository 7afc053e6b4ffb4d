"""Which options of rows stand in columns of their own, and what rows are called beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import attrs

from lw2g.config.describe import plain
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import ReportedRun
from lw2g.results.row_names import Settings, composed_name

__all__ = ["OptionColumns", "option_columns"]

_MOST = 6
"""The largest number of columns: more would hide the results."""


@attrs.frozen(kw_only=True)
class OptionColumns:
    """The options in which rows differ.

    Attributes:
        keys: The options by dotted keys, in the order of the columns.
        same: The changed options that are the same in all rows that have them, where not all do.
        names: The name of each row without these options; two rows may have the same.
        values: The value of each row and option, as text; empty where a row has no such option.
    """

    keys: Sequence[str] = ()
    same: Mapping[str, str] = attrs.field(factory=dict)
    names: Sequence[str] = ()
    values: Sequence[Sequence[str]] = ()

    @property
    def titles(self) -> list[str]:
        """The last word of each key, or all of it where two keys end alike."""
        ends = Counter(key.rpartition(".")[2] for key in self.keys)
        titles = []
        for key in self.keys:
            end = key.rpartition(".")[2]
            titles.append(end if ends[end] == 1 else key)
        return titles


def option_columns(
    runs: Sequence[ReportedRun],
    settings: Sequence[Settings],
    labels: Sequence[str],
    shared: Collection[str],
    catalogue: Catalogue,
) -> OptionColumns:
    """Return the columns of the options that some row changed and in which rows differ.

    Of many those stay that most rows have; the others remain in the names. There are none where rows could
    not be told apart by their names and these columns.

    Args:
        runs: The first run of each row.
        settings: The settings of these runs.
        labels: The complete names of the rows, which tell these options too.
        shared: The options that all rows changed alike.
        catalogue: Knows what a name leaves out.
    """
    values_of: dict[str, list[str]] = {}
    for key in dict.fromkeys(key for options in settings for key in options.changed):
        if key not in shared:
            values_of[key] = [plain(options.values[key]) for options in settings if key in options.values]
    same = {}
    differing = []
    for key, values in values_of.items():
        if len(values) == 1:  # of one row alone it compares nothing, and stays in the name
            continue
        if len(set(values)) == 1:
            same[key] = values[0]
        else:
            differing.append(key)
    kept = set(sorted(differing, key=lambda key: -len(values_of[key]))[:_MOST])
    keys = [key for key in differing if key in kept]
    left_out = {*shared, *same, *keys}

    names = []
    cells = []
    for run, options, label in zip(runs, settings, labels, strict=True):
        given_by_grid = label == run.label
        names.append(label if given_by_grid else composed_name(run, options, left_out, catalogue))
        cells.append(tuple(plain(options.values[key]) if key in options.values else "" for key in keys))
    if len(set(zip(names, cells, strict=True))) < len(labels):
        return OptionColumns(names=labels, values=[()] * len(labels))
    return OptionColumns(keys=keys, same=same, names=names, values=cells)
