"""What papers print for a configuration, and where ours is another one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import attrs

from lw2g.config.describe import plain
from lw2g.config.protocols import AUTO
from lw2g.registry.catalogue import Catalogue
from lw2g.report.names import AVERAGED, settings_of
from lw2g.report.runs import Run

__all__ = ["Printed", "differences_of", "printed_for"]

_OF_THE_SOURCE = {*AVERAGED, "benchmark.split", "backbone.name"}
"""Options that a source tells of itself, whatever the preset says."""


@attrs.frozen(kw_only=True)
class Printed:
    """A published value.

    Attributes:
        value: The value.
        std: Its standard deviation, None where none is printed.
        source: The paper, with the number of the table where it is known.
        note: What a reader should know of the source.
        checkpoint: The backbone's weights.
        split: Of the benchmark; None where there is one only, or the source does not tell.
        seeds: Runs that were averaged; None where the source does not tell.
        second_hand: Whether somebody else than the method's authors measured it, or copied it.
        differs: In what our runs are known to differ from those.
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
    def told(self) -> str:
        """All of it but the numbers, in one line."""
        split = "" if self.split is None else f", split {self.split}"
        seeds = f"{self.seeds} seed{'s'[: self.seeds - 1]}" if self.seeds else "seeds not told"
        return f"{self.source}, {self.checkpoint}{split}, {seeds} ({self.note})"


@cache
def _sources() -> tuple[Mapping[str, Any], ...]:
    return tuple(json.loads((files("lw2g.report") / "paper.json").read_text(encoding="utf-8"))["sources"])


def differences_of(run: Run, catalogue: Catalogue) -> dict[str, str]:
    """Return in what the method of a run differs from the published one: texts, each with its option.

    These are the options that have neither the authors' value nor the one that they declare as published, and
    the record's ``deviations``, which hold what no option changes as well.
    """
    recorded = run.record.get("deviations", ())
    authors = settings_of(run, catalogue, AUTO)
    found = {
        f"{key} {plain(authors.preset[key])}, ours {plain(value)}": key
        for key, value in authors.changed.items()
        if key.partition(".")[0] not in ("run", "backbone")
        and key not in authors.ours
        and value != authors.published.get(key)
        and key not in {one["option"] for one in recorded}
    }
    for one in recorded:
        if one["published"] is None:
            text = f"{one['option']} {plain(one['value'])}: {one['note']}"
        else:
            text = f"{one['option']} {plain(one['published'])}, ours {plain(one['value'])}"
        found[text] = one["option"]
    return found


def printed_for(run: Run, differs: Mapping[str, str]) -> dict[str, Printed]:
    """Return what papers print for the configuration of a run, by columns; the first source counts.

    Baseline, policy, constraints, benchmark and increment have to agree. Values for the run's own checkpoint
    go before those for others.

    Args:
        run: The run.
        differs: What :func:`differences_of` says of it.
    """
    config, options = run.config, run.options
    wanted = {
        "baseline": config["baseline"]["name"],
        "policy": config["policy"]["name"],
        "constraints": sorted(config["constraints"]),
        "benchmark": config["benchmark"]["name"],
        "increment": options.get("benchmark.increment"),
    }
    rows = [
        (source, row)
        for source in _sources()
        for row in source["rows"]
        if all(row[key] == value for key, value in wanted.items())
    ]
    rows.sort(key=lambda pair: pair[1]["checkpoint"] != config["backbone"]["name"])
    method = [text for text, option in differs.items() if option not in _OF_THE_SOURCE]
    found: dict[str, Printed] = {}
    for source, row in rows:
        for name, value in row["values"].items():
            known = _printed(source, row, run, value, row.get("std", {}).get(name))
            found.setdefault(name, attrs.evolve(known, differs=(*known.differs, *method)))
    return found


def _printed(
    source: Mapping[str, Any], row: Mapping[str, Any], run: Run, value: float, std: float | None
) -> Printed:
    table = row.get("table")
    return Printed(
        value=value,
        std=std,
        source=source["name"] if table is None else f"{source['name']}, table {table}",
        note=source["note"],
        checkpoint=row["checkpoint"],
        split=source["splits"].get(row["benchmark"]),
        seeds=source["seeds"],
        second_hand=source["second_hand"],
        differs=tuple(_differences(source, row, run)),
    )


def _differences(source: Mapping[str, Any], row: Mapping[str, Any], run: Run) -> Iterable[str]:
    checkpoint, options = run.config["backbone"]["name"], run.options
    if checkpoint != row["checkpoint"]:
        yield f"checkpoint {row['checkpoint']}, ours {checkpoint}"
    split = source["splits"].get(row["benchmark"])
    ours = options.get("benchmark.split")
    if split is not None and ours != split:
        yield f"split {split}, ours {ours}"
    if run.record["protocol"] != "official":
        yield f"its authors' settings, ours {run.record['protocol']}"
    if source["order"] is not None and not _has_order(source["order"], run):
        yield f"class order {source['order']}, ours another"


def _has_order(order: str, run: Run) -> bool:
    """Whether a run has the class order of that name: a seed's, or the natural one."""
    if order == "natural":
        return bool(run.record["class_order"] == sorted(run.record["class_order"]))
    options = run.options
    return (options.get("benchmark.order"), str(options.get("benchmark.order_seed"))) == ("seeded", order)
