"""A tracker that keeps a run in an MLflow experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lw2g.plugin import ConfigError, Event, RunEnded, RunStarted
from lw2g_trackers.content import content_of
from lw2g_trackers.kept import kept_id
from lw2g_trackers.options import MlflowConfig

__all__ = ["MlflowTracker"]

_LONGEST_VALUE = 500  # older servers refuse a longer value of an option


class MlflowTracker:
    """Logs to one MLflow run, whose id is kept in the run directory, so that a resumed run continues it.

    Args:
        directory: The run directory.
        uri: Tracking server, or a folder, in which a database is made (MLflow 3 refuses to write a store
            of files); None leaves it to MLflow.
        experiment: Name of the experiment, made where there is none.

    Raises:
        ConfigError: MLflow is not installed.
    """

    def __init__(self, config: MlflowConfig, directory: Path) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise ConfigError(
                "trackers.mlflow: MLflow is not installed", "pip install 'lw2g[track]'"
            ) from error
        self._artifacts: dict[str, str] = {}
        uri = config.uri
        if uri is not None and ":" not in uri and uri != "databricks":
            folder = Path(uri).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{folder / 'mlflow.db'}"
            # a database does not say where artifacts go: without this they land in the working directory
            self._artifacts = {"artifact_location": folder.as_uri()}
        self._client: Any = MlflowClient(tracking_uri=uri)
        self._directory = directory
        self._run = kept_id(directory / "mlflow-run", lambda: self._new_run(config.experiment))
        self._ended = False

    def _new_run(self, experiment: str) -> str:
        """Return the id of a new run in an experiment, which is made if there is none of its name."""
        known = self._client.get_experiment_by_name(experiment)
        if known is None:
            number = self._client.create_experiment(experiment, **self._artifacts)
        else:
            number = known.experiment_id
        run: str = self._client.create_run(number, run_name=self._directory.name).info.run_id
        return run

    def on_event(self, event: Event) -> None:
        """Log what the event holds; tables are artifacts, one file a step."""
        content = content_of(event, self._directory)
        if isinstance(event, RunStarted):
            # a resumed run was marked as killed
            self._client.update_run(self._run, status="RUNNING")
            if not event.resumed:  # MLflow refuses an option that is logged twice with two values
                for key, option in content.parameters.items():
                    self._client.log_param(self._run, key, str(option)[:_LONGEST_VALUE])
        for name, value in content.scalars.items():
            self._client.log_metric(self._run, name, value, step=content.step)
        for table in content.tables:
            file = f"{table.name}/{content.step:03d}.md"
            if isinstance(event, RunEnded):
                file = f"{table.name}.md"
            self._client.log_text(self._run, table.markdown(), file)
        for picture in content.pictures:
            self._client.log_image(self._run, picture.pixels, key=picture.name, step=content.step)
        self._ended = self._ended or isinstance(event, RunEnded)

    def close(self) -> None:
        """Say whether the run is finished or was interrupted."""
        status = "FINISHED" if self._ended else "KILLED"
        self._client.set_terminated(self._run, status)
