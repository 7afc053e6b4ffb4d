"""What in a run differs from the published method: options, presets, the stream, and control rows."""

from __future__ import annotations

from typing import Any

from lw2g.config.resolve import Resolved
from lw2g.config.structure import unstructure
from lw2g.interfaces.options import published_differences
from lw2g.training.session import Session

__all__ = ["list_deviations"]


def list_deviations(resolved: Resolved, session: Session) -> list[dict[str, Any]]:
    """Return one mapping ``{option, value, published, note}`` per difference.

    Where the baseline has the authors' values for the benchmark, those count; elsewhere what each option
    declares as published.
    """
    config = session.config
    found = list(resolved.preset_differences)
    official = {entry["option"] for entry in found}
    records = [("baseline", config.baseline.config), ("policy", config.policy.config)]
    if config.retrieval is not None:
        records.append(("retrieval", config.retrieval.config))
    records += [(f"constraints.{one.name}", one.config) for one in config.constraints]
    if session.builds_spaces:
        records.append(("growth", config.growth))
    for path, record in records:
        found += [
            {**entry, "value": unstructure(entry["value"]), "published": unstructure(entry["published"])}
            for entry in published_differences(record, path)
            if entry["option"] not in official and entry["option"] not in resolved.preset_values
        ]
    notes = [("benchmark", config.benchmark.name, note) for note in session.stream.deviations]
    if config.retrieval is not None and getattr(session.retrieval, "control", False):
        notes.append(("retrieval", config.retrieval.name, "control row: retrieval is told the task"))
    return found + [
        {"option": option, "value": value, "published": None, "note": note} for option, value, note in notes
    ]
