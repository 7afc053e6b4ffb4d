"""A tracker that writes TensorBoard event files into the run directory."""

from __future__ import annotations

from pathlib import Path

from lw2g.errors import ConfigError
from lw2g.interfaces.tracker import Event, TaskEvaluated
from lw2g_trackers.scalars import scalars

__all__ = ["TensorboardTracker"]


class TensorboardTracker:
    """Writes every scalar of a run; a resumed run goes on in the same folder.

    Args:
        directory: The run directory.

    Raises:
        ConfigError: TensorBoard is not installed.
    """

    def __init__(self, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "trackers.tensorboard: TensorBoard is not installed; pip install 'lw2g[track]'"
            ) from error
        self._writer = SummaryWriter(str(directory / "tensorboard"))

    def on_event(self, event: Event) -> None:
        """Write the event's scalars."""
        for name, value, step in scalars(event):
            self._writer.add_scalar(name, value, step)
        if isinstance(event, TaskEvaluated):
            self._writer.flush()

    def close(self) -> None:
        """Write what is still held back."""
        self._writer.close()
