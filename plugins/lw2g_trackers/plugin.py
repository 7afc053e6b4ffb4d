"""Registers the trackers; their packages are imported when one is built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from lw2g.interfaces.component import TrackerComponent
from lw2g.interfaces.options import option
from lw2g.registry.markers import hookimpl

if TYPE_CHECKING:
    from lw2g.interfaces.tracker import Tracker

__all__ = ["MlflowConfig", "TensorboardConfig", "lw2g_trackers"]


@attrs.frozen(kw_only=True)
class TensorboardConfig:
    """TensorBoard has no options: its files lie in the folder ``tensorboard`` of the run."""


@attrs.frozen(kw_only=True)
class MlflowConfig:
    """Where MLflow keeps the run."""

    uri: str | None = option(None, "tracking server or folder; empty: what MLflow itself would use")
    experiment: str = option("lw2g", "name of the MLflow experiment", validator=attrs.validators.min_len(1))


def _tensorboard(config: TensorboardConfig, directory: Path) -> Tracker:
    from lw2g_trackers.tensorboard import TensorboardTracker

    return TensorboardTracker(directory)


def _mlflow(config: MlflowConfig, directory: Path) -> Tracker:
    from lw2g_trackers.mlflow import MlflowTracker

    return MlflowTracker(directory, uri=config.uri, experiment=config.experiment)


@hookimpl
def lw2g_trackers() -> list[TrackerComponent]:
    """Offer tensorboard and mlflow."""
    return [
        TrackerComponent(
            name="tensorboard",
            config=TensorboardConfig,
            summary="scalars as TensorBoard event files in the run directory (extra `track`)",
            build=_tensorboard,
        ),
        TrackerComponent(
            name="mlflow",
            config=MlflowConfig,
            summary="options and metrics in an MLflow experiment (extra `track`)",
            build=_mlflow,
        ),
    ]
