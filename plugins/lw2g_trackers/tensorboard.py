"""A tracker that writes TensorBoard event files into the run directory."""

from __future__ import annotations

from pathlib import Path

from lw2g.plugin import ConfigError, Event
from lw2g_trackers.content import content_of
from lw2g_trackers.options import TensorboardConfig

__all__ = ["TensorboardTracker"]


class TensorboardTracker:
    """Writes curves, decisions, confusion, options and results; a resumed run continues in the same folder.

    Args:
        directory: The run directory.

    Raises:
        ConfigError: TensorBoard is not installed.
    """

    def __init__(self, config: TensorboardConfig, directory: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "trackers.tensorboard: TensorBoard is not installed", "pip install 'lw2g[track]'"
            ) from error
        self._directory = directory
        self._writer = SummaryWriter(str(directory / "tensorboard"))
        self._parameters: dict[str, bool | str | float] = {}

    def on_event(self, event: Event) -> None:
        """Write what the event holds; the options stand beside the final metrics under HPARAMS."""
        content = content_of(event, self._directory)
        for key, option in content.parameters.items():
            if not isinstance(option, bool | int | float):  # HPARAMS take nothing else but text
                option = str(option)
            self._parameters[key] = option
        for name, value in content.scalars.items():
            self._writer.add_scalar(name, value, content.step)
        for table in content.tables:
            self._writer.add_text(table.name, table.markdown(), content.step)
        for picture in content.pictures:
            self._writer.add_image(picture.name, picture.pixels, content.step, dataformats="HWC")
        if content.final:
            # run_name: by default TensorBoard would make a folder by the time of day for this one point
            metrics = {f"final/{name}": value for name, value in content.final.items()}
            self._writer.add_hparams(self._parameters, metrics, run_name=".")
        if content.pictures or content.scalars or content.final:
            self._writer.flush()

    def close(self) -> None:
        """Write what is still buffered."""
        self._writer.close()
