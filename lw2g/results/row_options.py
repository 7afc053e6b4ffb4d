"""Which options of rows stand in columns of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import attrs

from lw2g.config.describe import plain
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import ReportedRun
from lw2g.results.row_names import Settings

__all__ = ["OptionColumns", "option_columns"]

_MOST = 6
"""The largest number of columns: more would hide the results."""
_OF_TRAINING = ("baseline.epochs", "baseline.batch_size", "baseline.lr", "baseline.weight_decay")
"""Options that a run without training does not use."""


@attrs.frozen(kw_only=True)
class OptionColumns:
    """The options in which rows differ.

    Attributes:
        keys: The options by dotted keys, in the order of the columns.
        values: The value of each row and option, as text; empty where a row has no such option or uses none.
    """

    keys: Sequence[str] = ()
    values: Sequence[Sequence[str]] = ()


def option_columns(
    runs: Sequence[ReportedRun],
    settings: Sequence[Settings],
    shared: Collection[str],
    catalogue: Catalogue,
) -> OptionColumns:
    """Return the columns of the options that some row changed and in which rows differ.

    Of many those stay that most rows have.

    Args:
        runs: The first run of each row.
        settings: The settings of each row.
        shared: The options that all rows changed alike.
        catalogue: Knows which baselines grow.
    """
    values_of: dict[str, list[Any]] = {}
    for key in dict.fromkeys(key for options in settings for key in options.changed):
        if key not in shared:
            values_of[key] = [options.values[key] for options in settings if key in options.values]
    differing = [key for key, values in values_of.items() if _differs(values, len(runs))]
    kept = set(sorted(differing, key=lambda key: -len(values_of[key]))[:_MOST])
    keys = [key for key in differing if key in kept]
    cells = []
    for run, options in zip(runs, settings, strict=True):
        used = set(options.values)
        if _trained_nothing(run):
            used -= set(_OF_TRAINING)
        if not _grows(run, catalogue):
            used = {key for key in used if not key.startswith("growth.")}
        cells.append(tuple(plain(options.values[key]) if key in used else "" for key in keys))
    return OptionColumns(keys=keys, values=cells)


def _differs(values: Sequence[Any], rows: int) -> bool:
    """Whether so many rows differ in an option; ``values``: those of the rows that have it."""
    if len(set(map(plain, values))) > 1:
        return True
    if len(values) == rows:
        return False
    # A choice tells which method a row is, beside rows without the option. A number that several rows share
    # compares none of them.
    return len(values) == 1 or type(values[0]) not in (int, float)


def _grows(run: ReportedRun, catalogue: Catalogue) -> bool:
    """Whether a run uses options of growth: by its policy, or by a constraint, whose space is growth's."""
    return catalogue.grows(run.config["baseline"]["name"]) or bool(run.config["constraints"])


def _trained_nothing(run: ReportedRun) -> bool:
    """Whether a run took no step of training, as its record tells; its method may, with other options."""
    flops = run.record.get("flops") or {}
    spent = (run.record.get("images_per_second", 0.0), flops.get("training_per_image"))
    return spent == (None, None)
