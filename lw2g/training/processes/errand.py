"""What the first process of a run tells the others, so that all of them run the same."""

from __future__ import annotations

import attrs

from lw2g.config.resolve import Resolved
from lw2g.config.sources import dump_source
from lw2g.config.toml import dump_resolved
from lw2g.errors import ConfigError
from lw2g.training.files.checkpoint import Checkpoint
from lw2g.training.files.state import fingerprints
from lw2g.training.processes.team import Team
from lw2g.training.session import Session

__all__ = ["Errand", "call", "require_ready"]


@attrs.frozen(kw_only=True, eq=False)
class Errand:
    """A run, for those that take part in it.

    Attributes:
        config: Its configuration as TOML, with the precision that the first process has settled.
        sources: Its later benchmarks, likewise.
        fingerprints: What identifies its data and weights.
        checkpoint: Where it goes on from; None: from the beginning.
        goal: After how many tasks it stops.
    """

    config: str
    sources: tuple[str, ...]
    fingerprints: dict[str, str]
    checkpoint: Checkpoint | None
    goal: int

    def differences(self, session: Session) -> str:
        """Return what is not the same where a further process has opened the run; empty if all is."""
        apart = [what for what, now in fingerprints(session).items() if self.fingerprints[what] != now]
        return f"the {' and the '.join(apart)} there are not those of process 1" if apart else ""


def call(resolved: Resolved, session: Session, checkpoint: Checkpoint | None, goal: int) -> None:
    """Tell the other processes what is run, and wait until all are ready for it.

    Raises:
        ConfigError: One of them cannot run it.
    """
    team = session.engine.team
    if team.writes and team.size > 1:
        team.broadcast(
            Errand(
                config=dump_resolved(resolved),
                sources=tuple(dump_source(source.benchmark) for source in session.sources[1:]),
                fingerprints=fingerprints(session),
                checkpoint=checkpoint,
                goal=goal,
            )
        )
    require_ready(team, "")


def require_ready(team: Team, complaint: str) -> None:
    """Let no process begin before all can.

    Args:
        team: The processes.
        complaint: Why this one cannot; empty where it can.

    Raises:
        ConfigError: One cannot.
    """
    for number, why in enumerate(team.gather(complaint), start=1):
        if why:
            raise ConfigError(f"process {number} of {team.size}: {why}")
