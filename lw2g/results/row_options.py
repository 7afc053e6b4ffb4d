"""Which options of rows stand in columns of their own, and what rows are called beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

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
        short: The shortest name of each row that no other has: its method, and the options that tell it
            from the rows of the same method.
        values: The value of each row and option, as text; empty where a row has no such option.
    """

    keys: Sequence[str] = ()
    same: Mapping[str, str] = attrs.field(factory=dict)
    names: Sequence[str] = ()
    short: Sequence[str] = ()
    values: Sequence[Sequence[str]] = ()

    @property
    def titles(self) -> list[str]:
        """The last words of each key, as few as no other key ends with."""
        return [_shortest_end(key, self.keys) for key in self.keys]


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
    short = _short_names(runs, settings, labels, catalogue)
    if len(set(zip(names, cells, strict=True))) < len(labels):
        return OptionColumns(names=labels, short=short, values=[()] * len(labels))
    return OptionColumns(keys=keys, same=same, names=names, short=short, values=cells)


def _shortest_end(key: str, keys: Collection[str]) -> str:
    """Return the last words of a dotted key, as few as no other key ends with."""
    words = key.split(".")
    for number in range(1, len(words)):
        end = ".".join(words[-number:])
        if sum(f".{other}".endswith(f".{end}") for other in keys) == 1:
            return end
    return key


def _short_names(
    runs: Sequence[ReportedRun], settings: Sequence[Settings], labels: Sequence[str], catalogue: Catalogue
) -> list[str]:
    """Return a short name for each row; the complete one where another row would have the same."""
    methods = []
    for run, options, label in zip(runs, settings, labels, strict=True):
        given_by_grid = label == run.label
        methods.append(label if given_by_grid else composed_name(run, options, options.changed, catalogue))
    names = []
    for place, method in enumerate(methods):
        rivals = [
            options.values
            for other, options in enumerate(settings)
            if other != place and methods[other] == method
        ]
        changed = dict.fromkeys(
            key
            for other, options in enumerate(settings)
            if methods[other] == method
            for key in options.changed
        )
        names.append(method + _told_apart(settings[place].values, rivals, list(changed)))
    counts = Counter(names)
    return [name if counts[name] == 1 else label for name, label in zip(names, labels, strict=True)]


def _told_apart(own: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    """Return the fewest options by which a row differs from its rivals, in brackets; empty where none do."""
    differing = [key for key in keys if key in own and any(rival.get(key) != own[key] for rival in rivals)]
    for chosen in _smallest_first(differing[:_MOST]):
        if all(any(rival.get(key) != own[key] for key in chosen) for rival in rivals):
            told = [f"{_shortest_end(key, differing)}={plain(own[key])}" for key in chosen]
            return f"[{','.join(told)}]" if told else ""
    return ""


def _smallest_first(keys: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield every choice of keys, those of few keys first."""
    for number in range(len(keys) + 1):
        yield from combinations(keys, number)
