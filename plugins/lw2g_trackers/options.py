"""Options of the trackers. Nothing here imports their packages, so that listing stays quick."""

from __future__ import annotations

from typing import Literal

import attrs

from lw2g.plugin import option

__all__ = ["MlflowConfig", "TensorboardConfig", "WandbConfig"]


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
