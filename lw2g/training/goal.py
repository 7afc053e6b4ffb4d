"""After how many tasks a run stops."""

from __future__ import annotations

from lw2g.errors import ConfigError
from lw2g.interfaces.growth import Planned
from lw2g.training.session import Session

__all__ = ["require_goal"]


def require_goal(session: Session, done: int, tasks: int | None) -> int:
    """Return after how many tasks a run stops.

    Args:
        session: What it is run with.
        done: How many it has finished.
        tasks: How many are asked for; None: those of the whole stream.

    Raises:
        ConfigError: There are fewer, more are finished already, or the policy cannot decide for them.
    """
    whole, least = len(session.stream.tasks), max(done, 1)
    if tasks is not None and not least <= tasks <= whole:
        known = f"has finished {done} of {whole}" if done else f"has {whole}"
        raise ConfigError(
            f"cannot stop after task {tasks}: the stream {known}; name one of {least} to {whole}"
        )
    goal = whole if tasks is None else tasks
    if isinstance(session.policy, Planned):
        session.policy.require_tasks(goal)
    return goal
