"""The published values for a configuration, and the differences from ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import attrs

from lw2g.config.describe import plain
from lw2g.config.protocols import AUTO
from lw2g.config.roles import role_of_key
from lw2g.registry.catalogue import Catalogue
from lw2g.results.found_runs import ReportedRun
from lw2g.results.row_names import components_of, has_known_weights, settings_of, weights_name

__all__ = ["Printed", "differences_of", "of_published", "printed_for", "published_places"]

_STATED = ("benchmark.split", "backbone.name")
"""Options that :func:`_differences` compares with what the source itself states."""


@attrs.frozen(kw_only=True)
class Printed:
    """A published value.

    Attributes:
        value: The value.
        std: Its standard deviation; None if none is printed.
        source: The paper, with the number of the table if known.
        note: A remark on the source.
        checkpoint: The backbone's weights.
        split: The benchmark's split; None if there is only one, or the source does not say.
        seeds: Number of averaged runs; None if the source does not say.
        second_hand: Whether the value was not measured by the method's authors, or was copied.
        differs: The known differences from our runs.
    """

    value: float
    std: float | None
    source: str
    note: str
    checkpoint: str
    split: str | None
    seeds: int | None
    second_hand: bool
    differs: tuple[str, ...]

    @property
    def citation(self) -> str:
        """Everything but the numbers, in one line."""
        parts = [self.source, self.checkpoint]
        if self.split is not None:
            parts.append(f"split {self.split}")
        if not self.seeds:
            parts.append("seeds not told")
        elif self.seeds == 1:
            parts.append("1 seed")
        else:
            parts.append(f"{self.seeds} seeds")
        return f"{', '.join(parts)} ({self.note})"


@cache
def _sources() -> tuple[Mapping[str, Any], ...]:
    return tuple(json.loads((files("lw2g.results") / "paper.json").read_text(encoding="utf-8"))["sources"])


def differences_of(run: ReportedRun, catalogue: Catalogue) -> dict[str, str]:
    """Return the differences of a run's method from the published one: texts, each with its option.

    These are options with neither the authors' value nor the declared published one, and the record's
    ``deviations``, which include differences that no option changes.
    """
    recorded = run.record.get("deviations", ())
    has_its_own_note = {deviation["option"] for deviation in recorded}
    authors = settings_of(run, catalogue, AUTO)
    differences = {}
    for key, value in authors.changed.items():
        if key.partition(".")[0] in ("run", "backbone"):  # no part of the method
            continue
        if key in authors.ours or key in has_its_own_note:
            continue
        if value != authors.published.get(key):
            text = f"{key}: published {plain(authors.preset[key])}; here {plain(value)}"
            differences[text] = key
    for deviation in recorded:
        if deviation["published"] is None:
            text = f"{deviation['option']} {plain(deviation['value'])}: {deviation['note']}"
        else:
            published, here = plain(deviation["published"]), plain(deviation["value"])
            text = f"{deviation['option']}: published {published}; here {here}"
        differences[text] = deviation["option"]
    return differences


def of_published(run: ReportedRun, differs: Mapping[str, str], catalogue: Catalogue) -> list[str]:
    """Return the differences that are from something published: a user's own method or images were not.

    Args:
        run: The run.
        differs: The result of :func:`differences_of` for it.
        catalogue: Says which components were published.
    """
    published = published_places(run, catalogue)
    return [text for text, option in differs.items() if published(option)]


def published_places(run: ReportedRun, catalogue: Catalogue) -> Callable[[str], bool]:
    """Return what tells of an option of a run whether it is of something that was published."""
    cited = {place: bool(component.citation) for place, component in components_of(run, catalogue).items()}

    def is_of_published(option: str) -> bool:
        """Whether the component of an option was published; data and retrieval of the method count, too."""
        place = option.rpartition(".")[0] or option
        own = cited.get(place, True)
        if place == "retrieval":
            return cited.get("baseline", True)
        return own and (place != "benchmark" or cited.get("baseline", True))

    return is_of_published


def printed_for(run: ReportedRun, differs: Mapping[str, str], catalogue: Catalogue) -> dict[str, Printed]:
    """Return the published values for the configuration of a run, by columns; the first source counts.

    Baseline, policy, constraints, benchmark and increment must agree. Values for the run's checkpoint come
    first.

    Args:
        run: The run.
        differs: The result of :func:`differences_of` for it.
        catalogue: Knows the files of published checkpoints.
    """
    ours = run.config["backbone"]["name"]
    if not has_known_weights(run.record, catalogue):  # the name says nothing about a stranger's file
        ours = weights_name(run.record, catalogue)
    of_method = []
    for text, option in differs.items():
        is_drawn = role_of_key(option, run.config, catalogue) == "draw"  # the source states its class order
        if not is_drawn and option not in _STATED:
            of_method.append(text)
    by_column: dict[str, Printed] = {}
    for source, row in _published_rows(run):
        for name, value in row["values"].items():
            if name in by_column:  # an earlier row has it
                continue
            printed = _printed(source, row, run, value, row.get("std", {}).get(name), ours)
            by_column[name] = attrs.evolve(printed, differs=(*printed.differs, *of_method))
    return by_column


def _published_rows(run: ReportedRun) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return the published rows for the configuration of a run, each with its source, in their order."""
    config = run.config
    wanted = {
        "baseline": config["baseline"]["name"],
        "policy": config["policy"]["name"],
        "constraints": sorted(config["constraints"]),
        "benchmark": config["benchmark"]["name"],
        "increment": run.options.get("benchmark.increment"),
    }
    of_checkpoint = []
    of_others = []
    for source in _sources():
        for row in source["rows"]:
            if any(row[key] != value for key, value in wanted.items()):
                continue
            if row["checkpoint"] == config["backbone"]["name"]:
                of_checkpoint.append((source, row))
            else:
                of_others.append((source, row))
    return of_checkpoint + of_others


def _printed(
    source: Mapping[str, Any],
    row: Mapping[str, Any],
    run: ReportedRun,
    value: float,
    std: float | None,
    checkpoint: str,
) -> Printed:
    """Return a published value with what a reader has to know of it."""
    name = source["name"]
    if row.get("table") is not None:
        name += f", table {row['table']}"
    return Printed(
        value=value,
        std=std,
        source=name,
        note=source["note"],
        checkpoint=row["checkpoint"],
        split=source["splits"].get(row["benchmark"]),
        seeds=source["seeds"],
        second_hand=source["second_hand"],
        differs=tuple(_differences(source, row, run, checkpoint)),
    )


def _differences(
    source: Mapping[str, Any], row: Mapping[str, Any], run: ReportedRun, checkpoint: str
) -> Iterable[str]:
    """Yield in which conditions the published runs are known to differ from a run."""
    options = run.options
    if checkpoint != row["checkpoint"]:  # the name of the weights, or of an unknown file
        yield f"checkpoint {row['checkpoint']}, ours {checkpoint}"
    split = source["splits"].get(row["benchmark"])
    ours = options.get("benchmark.split")
    if split is not None and ours != split:
        yield f"split {split}, ours {ours}"
    if run.record["protocol"] != "official":
        yield f"its authors' settings, ours {run.record['protocol']}"
    if source["order"] is not None and not _has_order(source["order"], run):
        yield f"class order {source['order']}, ours another"


def _has_order(order: str, run: ReportedRun) -> bool:
    """Whether a run has this class order: a seed's, or the natural one."""
    if order == "natural":
        return bool(run.record["class_order"] == sorted(run.record["class_order"]))
    is_seeded = run.options.get("benchmark.order") == "seeded"
    return is_seeded and str(run.options.get("benchmark.order_seed")) == order
