"""Tasks of one class, over which a loss is 0, are refused before a run begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from lw2g.errors import ConfigError
from lw2g.interfaces.tracker import Event
from lw2g.learning.session import open_session
from lw2g.lifecycle.runner import start
from lw2g.registry.catalogue import Catalogue
from lw2g_testing.tiny import tiny_catalogue
from runs import shortest

BASELINES = tiny_catalogue().names("baseline")
TAKE_ONE = {"simple-cil", "joint", "joint-lora"}
"""The first one takes means, and the others learn all tasks as one."""


class Heard:
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("baseline", BASELINES)
def test_it_is_refused_before_anything_is_told_or_written(
    baseline: str, catalogue: Catalogue, tmp_path: Path
) -> None:
    """Method and increment are looked at together: no event, and no directory."""
    resolved = shortest(catalogue, baseline, {"benchmark.increment": 1, "benchmark.tasks": 2})
    heard = Heard()
    if baseline in TAKE_ONE:
        assert start(resolved, catalogue, tmp_path / "run", [heard], tasks=1)["metrics"]["faa"] is not None
        return
    with pytest.raises(ConfigError, match="task 1 has one class"):
        start(resolved, catalogue, tmp_path / "run", [heard], tasks=1)
    assert heard.events == []
    assert not (tmp_path / "run").exists()


def test_a_method_that_adapts_nothing_takes_one_class(catalogue: Catalogue) -> None:
    """The options decide where they decide what is trained."""
    for adapt, several in (("none", False), ("adapter", True)):
        resolved = shortest(catalogue, "ranpac", {"baseline.adapt": adapt})
        session = open_session(resolved.config, catalogue)
        assert session.parts.baseline.several_classes is several
