"""Whoever decides by angles that follow from ranks alone is told so, once, in the run and afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lw2g.cli.main import main
from lw2g.config.resolve import Resolved
from lw2g.interfaces.growth import counts_directions
from lw2g.interfaces.tracker import Event, Tracker, Warned
from lw2g.lifecycle.runner import start
from lw2g.registry.catalogue import Catalogue

FEW_ROWS = {
    "growth.tap": "block-input",
    "growth.tokens": "one",
    "growth.tokens_pre": "all",
    "growth.space_images": 4,
}
SAID = "directions and compare"


class _Warnings(Tracker):
    """Keeps what a run warns of."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_event(self, event: Event) -> None:
        """Keep a warning."""
        if isinstance(event, Warned):
            self.said.append(event.message)


@pytest.mark.parametrize(("rows", "warned"), [(FEW_ROWS, True), ({}, False)], ids=["few rows", "defaults"])
def test_a_run_and_show_say_once_that_a_decision_counts_directions(
    rows: dict[str, Any],
    warned: bool,
    quick: Callable[..., Resolved],
    catalogue: Catalogue,
    tmp_path: Path,
) -> None:
    """Two decisions rest on four rows a task: one warning, one line; with all rows neither."""
    listener = _Warnings()
    resolved = quick({"baseline.epochs": 0} | rows, baseline="s-prompt-plus-plus", policy="min")
    record = start(resolved, catalogue, tmp_path / "run", [listener], tasks=3)
    by_rank = [entry["task"] for entry in record["decisions"] if counts_directions(entry)]
    assert by_rank == ([1, 2] if warned else [])
    said = [message for message in listener.said if SAID in message]
    assert len(said) == int(warned)
    shown = CliRunner().invoke(main, ["show", str(tmp_path / "run")]).output.splitlines()
    assert [line.split(" count")[0] for line in shown if SAID in line] == (
        ["the decisions for tasks 2, 3"] if warned else []
    )


def entry(decision: str, z: float, null: float | None, limit: float = 0.0, **parts: float) -> dict[str, Any]:
    """Return a record's entry with one measured set."""
    measured = {"value": z, "null": null, "parts": parts or {"null_hfc": 20.0}}
    candidates = [{"set": 0, "measures": {"hindrance": measured}}]
    return {"decision": decision, "set": 0, "candidates": candidates, "limits": {"hindrance": {0: limit}}}


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (entry("reuse", -21.2, -16.0), True),
        (entry("grow", 8.9, 7.0), True),
        (entry("reuse", -0.3, 0.1), False),
        (entry("grow", 8.9, -1.0), False),
        # less than by chance is what is compared: ranks decide nothing
        (entry("reuse", -21.2, -16.0, limit=-16.0), False),
        # nothing is known of random spaces, or the measure is no angle
        (entry("reuse", -21.2, None), False),
        (entry("reuse", -21.2, -20.0, share=0.5), False),
        ({"decision": "grow", "set": 0, "candidates": [], "limits": {}}, False),
    ],
)
def test_ranks_explain_a_decision_where_z_is_near_that_of_random_spaces(
    decision: dict[str, Any], expected: bool
) -> None:
    """By a third of its distance from the limit at most."""
    assert counts_directions(decision) is expected
