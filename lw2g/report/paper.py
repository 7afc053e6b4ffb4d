"""What the LW2G paper prints for a configuration, and where ours is another one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import attrs

from lw2g.report.runs import Run

__all__ = ["Printed", "printed_for"]


@attrs.frozen(kw_only=True)
class Printed:
    """A value of the paper.

    Attributes:
        value: The value.
        std: Its standard deviation, None where none is printed.
        table: Number of the table.
        differs: In what our runs differ from the paper's, empty where nothing is known to.
    """

    value: float
    std: float | None
    table: int
    differs: tuple[str, ...]


@cache
def _facts() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((files("lw2g.report") / "paper.json").read_text(encoding="utf-8"))
    return found


def printed_for(run: Run) -> dict[str, Printed]:
    """Return what the paper prints for the configuration of a run, by columns; the first table counts.

    Baseline, policy, constraints, benchmark and increment have to agree. Values for the run's own checkpoint
    go before those for others.
    """
    config, options = run.config, run.options
    wanted = {
        "baseline": config["baseline"]["name"],
        "policy": config["policy"]["name"],
        "constraints": sorted(config["constraints"]),
        "benchmark": config["benchmark"]["name"],
        "increment": options.get("benchmark.increment"),
    }
    rows = [row for row in _facts()["rows"] if all(row[key] == value for key, value in wanted.items())]
    rows.sort(key=lambda row: row["checkpoint"] != config["backbone"]["name"])
    found: dict[str, Printed] = {}
    for row in rows:
        differs = tuple(_differences(row, run))
        for name, value in row["values"].items():
            std = row.get("std", {}).get(name)
            found.setdefault(name, Printed(value=value, std=std, table=row["table"], differs=differs))
    return found


def _differences(row: Mapping[str, Any], run: Run) -> Iterable[str]:
    checkpoint, options = run.config["backbone"]["name"], run.options
    if checkpoint != row["checkpoint"]:
        yield f"checkpoint {row['checkpoint']}, ours {checkpoint}"
    split = _facts()["splits"].get(row["benchmark"])
    ours = options.get("benchmark.split")
    if split is not None and ours != split:
        yield f"split {split}, ours {ours}"
    if run.record["protocol"] != "official":
        yield f"its authors' settings, ours {run.record['protocol']}"
    if run.record["class_order"] != sorted(run.record["class_order"]):
        yield "natural class order, ours another"
