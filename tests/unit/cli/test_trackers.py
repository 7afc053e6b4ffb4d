"""The optional trackers turn events into scalars and say which extra they need."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from lw2g.errors import ConfigError
from lw2g.interfaces.tracker import EpochEnded, RunEnded, RunStarted, TaskDecided, TaskEvaluated
from lw2g.registry.catalogue import load_catalogue
from lw2g.testing.evidence import measured_set
from lw2g_trackers import plugin
from lw2g_trackers.mlflow import MlflowTracker
from lw2g_trackers.scalars import scalars
from lw2g_trackers.tensorboard import TensorboardTracker

MEASURED = measured_set(0, -1.0, parts={"hfc": 40.0, "hfc_pre": None})
EVENTS = [
    RunStarted(name="r", config={"run": {"seed": 1, "device": None}, "constraints": {}}, resumed=False),
    TaskDecided(
        task=1,
        decision={"candidates": [measured_set(0, -1.0, parts={"hfc": 40.0, "hfc_pre": None}).as_mapping()]},
    ),
    EpochEnded(task=1, phase="p", epoch=2, epochs=5, loss=0.5, lr=0.1, images_per_second=9.0),
    TaskEvaluated(task=1, accuracy=(80.0, 90.0), retrieval=(70.0, 60.0), metrics={"faa": 85.0, "bwt": None}),
    RunEnded(metrics={}, seconds=1.0),
]
SCALARS = [
    ("evidence/hindrance/set-0", -1.0, 1),
    ("evidence/hfc/set-0", 40.0, 1),
    ("p/loss", 0.5, 7),
    ("p/lr", 0.1, 7),
    ("p/images_per_second", 9.0, 7),
    ("accuracy/task-0", 80.0, 1),
    ("accuracy/task-1", 90.0, 1),
    ("retrieval/task-0", 70.0, 1),
    ("retrieval/task-1", 60.0, 1),
    ("metrics/faa", 85.0, 1),
]


def test_trackers_register_without_a_problem():
    """The catalogue takes both, though their packages may be missing."""
    catalogue = load_catalogue(plugins=[plugin], entry_points=False)
    assert (catalogue.names("tracker"), catalogue.problems) == (("mlflow", "tensorboard"), ())


def test_events_become_scalars_and_undefined_values_none():
    """Every drawable value has a name and a step that grows within a phase."""
    assert [scalar for event in EVENTS for scalar in scalars(event)] == SCALARS


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_package_is_told_with_its_extra(name, monkeypatch, tmp_path):
    """Without the package the remedy is one command."""
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    component = load_catalogue(plugins=[plugin], entry_points=False).get("tracker", name)
    with pytest.raises(
        ConfigError, match=rf"trackers\.{name}: .* is not installed; pip install 'lw2g\[track\]'"
    ):
        component.build(component.config(), tmp_path)


def test_tensorboard_writes_every_scalar_into_the_run(monkeypatch, tmp_path):
    """All scalars go to the writer, in the folder of the run."""
    written = []

    class SummaryWriter:
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, *scalar):
            written.append(scalar)

        def flush(self):
            written.append("flush")

        def close(self):
            written.append("close")

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    tracker = TensorboardTracker(tmp_path)
    for event in EVENTS:
        tracker.on_event(event)
    tracker.close()
    assert written == [str(tmp_path / "tensorboard"), *SCALARS, "flush", "close"]


class Client:
    """A stand-in for the MLflow client that keeps what it is told."""

    log: list[tuple] = []  # noqa: RUF012

    def __init__(self, tracking_uri):
        self.log.append(("uri", tracking_uri))

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return f"id of {name}"

    def create_run(self, experiment, run_name):
        self.log.append(("create", experiment, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id="run-77"))

    def update_run(self, run, status):
        self.log.append(("status", run, status))

    def log_param(self, run, name, value):
        self.log.append(("param", name, value))

    def log_metric(self, run, name, value, step):
        self.log.append((name, value, step))

    def set_terminated(self, run, status):
        self.log.append(("end", run, status))


def test_mlflow_logs_options_and_scalars_and_goes_on_with_its_run(monkeypatch, tmp_path):
    """A resumed run finds its MLflow run again; an unfinished one is marked as killed."""
    module = ModuleType("mlflow")
    module.MlflowClient = Client
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setattr(Client, "log", [])
    tracker = MlflowTracker(tmp_path, uri=None, experiment="mine")
    for event in EVENTS[:-1]:
        tracker.on_event(event)
    tracker.close()
    assert Client.log == [
        ("uri", None),
        ("create", "id of mine", tmp_path.name),
        ("status", "run-77", "RUNNING"),
        ("param", "run.seed", "1"),
        *SCALARS,
        ("end", "run-77", "KILLED"),
    ]
    Client.log.clear()
    tracker = MlflowTracker(tmp_path, uri="x", experiment="mine")
    tracker.on_event(EVENTS[-1])
    tracker.close()
    assert Client.log == [("uri", "x"), ("end", "run-77", "FINISHED")]
