"""Registers the trackers; their packages are imported when one is built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs

from lw2g.interfaces.component import TrackerComponent
from lw2g.interfaces.options import option
from lw2g.registry.markers import hookimpl

if TYPE_CHECKING:
    from lw2g.interfaces.tracker import Tracker

__all__ = ["MlflowConfig", "TensorboardConfig", "WandbConfig", "lw2g_trackers"]


@attrs.frozen(kw_only=True)
class TensorboardConfig:
    """TensorBoard has no options: its files lie in the folder ``tensorboard`` of the run."""


@attrs.frozen(kw_only=True)
class MlflowConfig:
    """Where MLflow keeps the run."""

    uri: str | None = option(None, "tracking server or folder; empty: what MLflow itself would use")
    experiment: str = option("lw2g", "name of the MLflow experiment", validator=attrs.validators.min_len(1))


@attrs.frozen(kw_only=True)
class WandbConfig:
    """Where Weights & Biases keeps the run."""

    project: str = option("lw2g", "name of the project", validator=attrs.validators.min_len(1))
    entity: str | None = option(None, "team or user; empty: the account's own")
    mode: Literal["offline", "online"] = option(
        "offline", "offline: nothing leaves the run directory until `wandb sync`; online: sent as it happens"
    )


def _tensorboard(config: TensorboardConfig, directory: Path) -> Tracker:
    from lw2g_trackers.tensorboard import TensorboardTracker

    return TensorboardTracker(directory)


def _mlflow(config: MlflowConfig, directory: Path) -> Tracker:
    from lw2g_trackers.mlflow import MlflowTracker

    return MlflowTracker(directory, uri=config.uri, experiment=config.experiment)


def _wandb(config: WandbConfig, directory: Path) -> Tracker:
    from lw2g_trackers.wandb import WandbTracker

    return WandbTracker(directory, project=config.project, entity=config.entity, mode=config.mode)


@hookimpl
def lw2g_trackers() -> list[TrackerComponent]:
    """Offer tensorboard, mlflow and wandb."""
    return [
        TrackerComponent(
            name="tensorboard",
            config=TensorboardConfig,
            summary="curves, decisions, confusion, options and results as TensorBoard files (extra `track`)",
            build=_tensorboard,
        ),
        TrackerComponent(
            name="mlflow",
            config=MlflowConfig,
            summary="the same in an MLflow experiment (extra `track`)",
            build=_mlflow,
        ),
        TrackerComponent(
            name="wandb",
            config=WandbConfig,
            summary="the same in Weights & Biases, offline until it is synchronised (extra `track`)",
            build=_wandb,
        ),
    ]
