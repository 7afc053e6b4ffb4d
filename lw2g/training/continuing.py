"""Going on with a run that was meant to stop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lw2g.interfaces.tracker import Tracker
from lw2g.registry.catalogue import Catalogue
from lw2g.training.opening import build_trackers
from lw2g.training.runner import taken_up

__all__ = ["proceed"]


def proceed(
    directory: Path, catalogue: Catalogue, listeners: Sequence[Tracker] = (), *, tasks: int | None = None
) -> dict[str, Any]:
    """Go on with a run that was meant to stop early, as if it had never stopped, and return its record.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        listeners: Receive the run's events.
        tasks: After how many tasks, counted from the run's first, to stop; None for those of the whole
            stream.

    Raises:
        ConfigError: It has finished that many tasks, or its stream has fewer.
        DataError: As :func:`lw2g.training.runner.resume`.
        Interrupted: The run was stopped on request and can be resumed.
    """
    with taken_up(directory, catalogue) as run:
        run.aim(tasks)
        return run.go_on([*build_trackers(run.resolved, catalogue, directory), *listeners])
