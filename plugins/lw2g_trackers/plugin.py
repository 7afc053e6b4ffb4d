"""Registers the trackers; their packages are imported when one is built."""

from __future__ import annotations

from lw2g.plugin import TrackerComponent, hookimpl, lazy
from lw2g_trackers import options

__all__ = ["lw2g_trackers"]

_INSTALL = "pip install 'lw2g[track]'"


@hookimpl
def lw2g_trackers() -> list[TrackerComponent]:
    """Offer tensorboard, mlflow and wandb."""
    return [
        TrackerComponent(
            name="tensorboard",
            config=options.TensorboardConfig,
            summary="curves, decisions, confusion, options and results as TensorBoard files (extra `track`)",
            build=lazy("lw2g_trackers.tensorboard:TensorboardTracker"),
            package="tensorboard",
            install=_INSTALL,
        ),
        TrackerComponent(
            name="mlflow",
            config=options.MlflowConfig,
            summary="the same in an MLflow experiment (extra `track`)",
            build=lazy("lw2g_trackers.mlflow:MlflowTracker"),
            package="mlflow",
            install=_INSTALL,
        ),
        TrackerComponent(
            name="wandb",
            config=options.WandbConfig,
            summary="the same in Weights & Biases, offline until it is synchronised (extra `track`)",
            build=lazy("lw2g_trackers.wandb:WandbTracker"),
            package="wandb",
            install=_INSTALL,
        ),
    ]
