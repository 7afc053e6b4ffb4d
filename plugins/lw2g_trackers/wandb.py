"""A tracker that keeps a run in Weights & Biases."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from lw2g.plugin import ConfigError, Event, RunEnded
from lw2g_trackers.content import content_of
from lw2g_trackers.kept import kept_id
from lw2g_trackers.options import WandbConfig

__all__ = ["WandbTracker"]


class WandbTracker:
    """Logs to one run of Weights & Biases; a resumed run continues under the same id.

    Args:
        directory: The run directory; what waits to be sent lies in its folder ``wandb``.
        project: Name of the project.
        entity: Team or user; None for the account's own.
        mode: ``"offline"`` sends nothing (``wandb sync`` does later), ``"online"`` sends as things happen.

    Raises:
        ConfigError: wandb is not installed, or the service refuses.
    """

    def __init__(self, config: WandbConfig, directory: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError(
                "trackers.wandb: wandb is not installed", "pip install 'lw2g[track]'"
            ) from error
        self._wandb: Any = wandb
        self._directory = directory
        options: dict[str, Any] = {}
        if config.mode == "online":  # without the service there is nothing to resume from
            options = {"resume": "allow"}
        try:
            self._run: Any = wandb.init(
                project=config.project,
                entity=config.entity,
                mode=config.mode,
                dir=str(directory),
                id=kept_id(directory / "wandb-run", lambda: uuid.uuid4().hex[:12]),
                name=directory.name,
                reinit="create_new",
                # what a run prints, its code and its repository are the user's to send
                settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False),
                **options,
            )
        except wandb.errors.Error as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"trackers.wandb: {reason}", "run `wandb login`, or set trackers.wandb.mode to 'offline'"
            ) from error
        # a step of our own: theirs may only rise, and epochs and tasks count apart
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self._ended = False
        self._closed = False

    def on_event(self, event: Event) -> None:
        """Log what the event holds, in one call; the final metrics are the run's summary."""
        content = content_of(event, self._directory)
        if content.parameters:
            self._run.config.update(dict(content.parameters), allow_val_change=True)
        logged: dict[str, Any] = dict(content.scalars)
        for table in content.tables:
            rows = [list(row) for row in table.rows]
            logged[table.name] = self._wandb.Table(columns=list(table.columns), data=rows)
        for picture in content.pictures:
            logged[picture.name] = self._wandb.Image(picture.pixels)
        if logged:
            self._run.log(logged | {"step": content.step})
        if isinstance(event, RunEnded):
            self._run.summary.update(dict(content.final))
            self._ended = True

    def close(self) -> None:
        """Say whether the run is finished or was interrupted."""
        if not self._closed:
            self._closed = True
            exit_code = 0 if self._ended else 1
            self._run.finish(exit_code=exit_code)
