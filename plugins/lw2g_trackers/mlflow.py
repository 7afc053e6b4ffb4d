"""A tracker that keeps options and metrics of a run in an MLflow experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lw2g.errors import ConfigError
from lw2g.interfaces.tracker import Event, RunEnded, RunStarted
from lw2g_trackers.scalars import scalars

__all__ = ["MlflowTracker"]

_LONGEST_VALUE = 500


class MlflowTracker:
    """Logs to one MLflow run, whose id is kept in the run directory so that a resumed run goes on with it.

    Args:
        directory: The run directory.
        uri: Tracking server or folder; None leaves it to MLflow.
        experiment: Name of the experiment, made where there is none.

    Raises:
        ConfigError: MLflow is not installed.
    """

    def __init__(self, directory: Path, *, uri: str | None, experiment: str) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise ConfigError(
                "trackers.mlflow: MLflow is not installed; pip install 'lw2g[track]'"
            ) from error
        self._client: Any = MlflowClient(tracking_uri=uri)
        self._run = self._open(directory, experiment)
        self._ended = False

    def _open(self, directory: Path, experiment: str) -> str:
        kept = directory / "mlflow-run"
        if kept.exists():
            return kept.read_text(encoding="utf-8").strip()
        found = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment) if found is None else found.experiment_id
        run: str = self._client.create_run(number, run_name=directory.name).info.run_id
        directory.mkdir(parents=True, exist_ok=True)
        kept.write_text(run + "\n", encoding="utf-8")
        return run

    def on_event(self, event: Event) -> None:
        """Log the event's options or scalars."""
        if isinstance(event, RunStarted):
            self._client.update_run(self._run, status="RUNNING")
            self._client.set_terminated(self._run, "RUNNING") if event.resumed else None
            for name, value in _flat(event.config):
                self._client.log_param(self._run, name, str(value)[:_LONGEST_VALUE])
        for name, value, step in scalars(event):
            self._client.log_metric(self._run, name, value, step=step)
        self._ended = self._ended or isinstance(event, RunEnded)

    def close(self) -> None:
        """Say whether the run is finished or was interrupted."""
        self._client.set_terminated(self._run, "FINISHED" if self._ended else "KILLED")


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value
