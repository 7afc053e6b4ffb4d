"""The optional trackers: one place says what an event holds, and each hands it on to its service."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from lw2g.errors import ConfigError
from lw2g.interfaces.tracker import EpochEnded, RunEnded, RunStarted, Stepped, TaskDecided, TaskEvaluated
from lw2g.registry.catalogue import load_catalogue
from lw2g_testing.made_evidence import measured_set
from lw2g_trackers import plugin
from lw2g_trackers.content import Content, content_of
from lw2g_trackers.logged_pictures import heat_map
from lw2g_trackers.mlflow import MlflowTracker
from lw2g_trackers.options import MlflowConfig, TensorboardConfig, WandbConfig
from lw2g_trackers.tensorboard import TensorboardTracker
from lw2g_trackers.wandb import WandbTracker

CANDIDATE = measured_set(0, -1.0, parts={"hfc": 40.0, "hfc_pre": None}).as_mapping()
EVENTS = [
    RunStarted(name="r", config={"run": {"seed": 1, "device": None}, "constraints": {}}, resumed=False),
    TaskDecided(task=1, decision={"candidates": [CANDIDATE], "decision": "grow", "set": 1}),
    EpochEnded(task=1, phase="p", epoch=2, epochs=5, loss=0.5, lr=0.1, images_per_second=9.0),
    TaskEvaluated(task=1, accuracy=(50.0, 100.0), retrieval=(70.0, 60.0), metrics={"faa": 75.0, "bwt": None}),
    RunEnded(metrics={"faa": 75.0, "bwt": None}, seconds=1.5),
]
SCALARS = [
    ("evidence/hindrance/set-0", -1.0, 2),
    ("evidence/hindrance/hfc/set-0", 40.0, 2),
    ("p/loss", 0.5, 8),
    ("p/lr", 0.1, 8),
    ("p/images_per_second", 9.0, 8),
    ("metrics/faa", 75.0, 2),
    ("accuracy/task-1", 50.0, 2),
    ("accuracy/task-2", 100.0, 2),
    ("retrieval/task-1", 70.0, 2),
    ("retrieval/task-2", 60.0, 2),
]
DECISIONS = (
    "| set | measure | value | error | null | own |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
    "| #0 | hindrance | -1.00 | - | - | - |\n"
    "| #1 | grow | - | - | - | - |"
)
FINAL = "| metric | value |\n| --- | --- |\n| faa | 75.00 |\n| bwt | - |\n| seconds | 1.50 |"
TASKS = (
    "| task | decision | set | accuracy when learned | final accuracy | final retrieval |\n"
    "| --- | --- | --- | --- | --- | --- |\n"
    "| 1 | grow | #0 | 90.00 | 50.00 | 70.00 |\n"
    "| 2 | reuse | #0 | 100.00 | 100.00 | 60.00 |"
)
PICTURES = ["confusion/classes", "confusion/tasks", "retrieval"]
PACKAGES = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow", "wandb": "wandb"}


@pytest.fixture
def run(tmp_path):
    """A run's directory after two tasks: classes 3 and 1, then 0 and 2; class 3 is taken for class 0."""
    columns = {
        "true": [3, 1, 0, 2],
        "predicted": [0, 1, 0, 2],
        "task": [0, 0, 1, 1],
        "retrieved": [1, 0, 1, 1],
    }
    folder = tmp_path / "run"
    (folder / "predictions").mkdir(parents=True)
    save_file(
        {name: np.array(values, dtype=np.int32) for name, values in columns.items()},
        folder / "predictions" / "task-001.safetensors",
    )
    record = {
        "decisions": [{"decision": "grow", "set": 0}, {"decision": "reuse", "set": 0}],
        "accuracy_matrix": [[90.0, 50.0], [None, 100.0]],
        "retrieval_matrix": [[100.0, 70.0], [None, 60.0]],
    }
    (folder / "record.json").write_text(json.dumps(record))
    return folder


def test_trackers_register_without_a_problem():
    """The catalogue takes all, though their packages may be missing."""
    catalogue = load_catalogue(plugins=[plugin], entry_points=False)
    assert (catalogue.names("tracker"), catalogue.problems) == (("mlflow", "tensorboard", "wandb"), ())


# -- what an event holds -------------------------------------------------------------------------------------


def test_events_hold_curves_and_undefined_values_none(run):
    """Every number has a name and a step; what is undefined has none."""
    found = [content_of(event, run) for event in EVENTS]
    assert [(name, value, one.step) for one in found for name, value in one.scalars.items()] == SCALARS
    assert found[0].parameters == {"run.seed": 1}
    assert found[4].final == {"faa": 75.0}
    step = Stepped(task=0, tasks=2, phase="p", done=1, total=2, loss=0.5)
    assert content_of(step, run) == Content()


def test_decisions_and_results_are_tables(run):
    """A decision has a row per candidate, the end a row per metric and one per task."""
    assert [table.markdown() for table in content_of(EVENTS[1], run).tables] == [DECISIONS]
    assert [table.markdown() for table in content_of(EVENTS[4], run).tables] == [FINAL, TASKS]


def test_confusion_is_drawn_from_the_predictions(run):
    """Shares of each row, classes in the order of their tasks; without predictions there is no picture."""
    classes, tasks, retrieval = content_of(EVENTS[3], run).pictures
    assert [one.name for one in (classes, tasks, retrieval)] == PICTURES
    # classes in their order: 1 and 3 of the first task, 0 and 2 of the second
    assert classes.shares.tolist() == [[100, 0, 0, 0], [0, 0, 100, 0], [0, 0, 100, 0], [0, 0, 0, 100]]
    assert tasks.shares.tolist() == retrieval.shares.tolist() == [[50, 50], [0, 100]]
    assert content_of(EVENTS[3], run.parent).pictures == ()


def test_a_heat_map_is_darker_where_there_is_more():
    """A full cell has the darkest colour, an empty one the palest; borders are drawn."""
    pixels = heat_map("a", [(0, 0), (1, 1)], size=2, axes=("x", "y"), borders=(1,)).pixels
    assert (pixels.dtype, pixels.shape[2]) == (np.uint8, 3)
    full, empty = pixels[40, 40].tolist(), pixels[40, -10].tolist()
    assert sum(full) < sum(empty)
    middle = (30 + pixels.shape[0]) // 2
    assert pixels[middle, 40].tolist() == [200, 90, 20]


# -- the services, with stand-ins ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_is_told_with_its_extra(name, monkeypatch, tmp_path):
    """Without the package the remedy is one command."""
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    component = load_catalogue(plugins=[plugin], entry_points=False).get("tracker", name)
    with pytest.raises(
        ConfigError, match=rf"trackers\.{name}: .* is not installed; pip install 'lw2g\[track\]'"
    ):
        component.build(component.config(), tmp_path)


@pytest.fixture
def log(monkeypatch):
    """Put stand-ins in place of all services; the list of what they are told."""
    told = []

    def teller(name, result=None):
        def tell(*arguments, **named):
            told.append((name, *arguments, *named.items()))
            return result

        return tell

    class SummaryWriter:
        def __init__(self, folder):
            told.append(("folder", folder))

        def add_image(self, name, pixels, step, dataformats):
            told.append(("image", name, step, dataformats))

        add_scalar, add_text, add_hparams, flush, close = (
            staticmethod(teller(name)) for name in ("scalar", "text", "hparams", "flush", "close")
        )

    def client(tracking_uri):
        told.append(("uri", tracking_uri))
        return SimpleNamespace(
            get_experiment_by_name=lambda name: None,
            create_experiment=lambda name, artifact_location="": f"id of {name}",
            create_run=teller("create", SimpleNamespace(info=SimpleNamespace(run_id="run-77"))),
            update_run=teller("status"),
            log_param=teller("param"),
            log_metric=lambda run, name, value, step: told.append(("scalar", name, value, step)),
            log_text=teller("text"),
            log_image=lambda run, pixels, key, step: told.append(("image", key, step)),
            set_terminated=teller("end"),
        )

    for name, members in {
        "torch.utils.tensorboard": {"SummaryWriter": SummaryWriter},
        "mlflow": {"MlflowClient": client},
    }.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    return told


def test_tensorboard_writes_all_of_it_into_the_run(log, run):
    """Curves, tables as text, pictures, and options beside the final metrics, in the folder of the run."""
    tracker = TensorboardTracker(TensorboardConfig(), run)
    for event in EVENTS:
        tracker.on_event(event)
    tracker.close()
    assert (log[0], log[-1]) == (("folder", str(run / "tensorboard")), ("close",))
    assert [one[1:] for one in log if one[0] == "scalar"] == SCALARS
    assert [one[1:] for one in log if one[0] == "text"] == [
        ("decisions", DECISIONS, 2),
        ("final", FINAL, 0),
        ("tasks", TASKS, 0),
    ]
    assert [one[1:] for one in log if one[0] == "image"] == [(name, 2, "HWC") for name in PICTURES]
    hparams = ("hparams", {"run.seed": 1}, {"final/faa": 75.0}, ("run_name", "."))
    assert [one for one in log if one[0] == "hparams"] == [hparams]


def test_mlflow_keeps_all_of_it_and_goes_on_with_its_run(log, run):
    """A resumed run finds its MLflow run again; an unfinished one is marked as killed."""
    tracker = MlflowTracker(MlflowConfig(uri=None, experiment="mine"), run)
    for event in EVENTS[:-1]:
        tracker.on_event(event)
    tracker.close()
    assert log == [
        ("uri", None),
        ("create", "id of mine", ("run_name", "run")),
        ("status", "run-77", ("status", "RUNNING")),
        ("param", "run-77", "run.seed", "1"),
        *(("scalar", *one) for one in SCALARS[:2]),
        ("text", "run-77", DECISIONS, "decisions/002.md"),
        *(("scalar", *one) for one in SCALARS[2:]),
        *(("image", name, 2) for name in PICTURES),
        ("end", "run-77", "KILLED"),
    ]
    log.clear()
    tracker = MlflowTracker(MlflowConfig(uri="http://x", experiment="mine"), run)
    tracker.on_event(EVENTS[-1])
    tracker.close()
    texts = [("text", "run-77", FINAL, "final.md"), ("text", "run-77", TASKS, "tasks.md")]
    assert log == [("uri", "http://x"), *texts, ("end", "run-77", "FINISHED")]


def test_mlflow_keeps_a_database_in_a_folder(log, tmp_path):
    """MLflow 3 refuses a store of files: a folder holds a database, and artifacts beside it."""
    MlflowTracker(MlflowConfig(uri=str(tmp_path / "kept"), experiment="mine"), tmp_path)
    assert log[0] == ("uri", f"sqlite:///{tmp_path}/kept/mlflow.db")
    assert log[1] == ("create", "id of mine", ("run_name", tmp_path.name))
    assert (tmp_path / "kept").is_dir()


class Service:
    """A stand-in for wandb that keeps what it is told, or refuses."""

    errors = SimpleNamespace(Error=type("Error", (Exception,), {}))

    def __init__(self, refuses=None):
        self.told, self.refuses = [], refuses
        self.summary, self.config = {}, SimpleNamespace(update=lambda new, **how: self.told.append(new))

    def init(self, **options):
        if self.refuses:
            raise self.refuses
        self.told.append({key: options[key] for key in ("project", "mode", "id", "name", "dir")})
        return self

    def Settings(self, **options):
        assert options["console"] == "off"

    def Table(self, columns, data):
        return ("table", columns, len(data))

    def Image(self, pixels):
        return ("image", pixels.ndim)

    def define_metric(self, name, **how):
        self.told.append((name, how))

    def log(self, values):
        self.told.append(values)

    def finish(self, exit_code):
        self.told.append(("finish", exit_code))


def test_wandb_gets_all_of_it_and_goes_on_under_its_id(monkeypatch, run):
    """One call an event with its own step; the id lies in the run, and the summary has the final metrics."""
    service = Service()
    monkeypatch.setitem(sys.modules, "wandb", service)
    tracker = WandbTracker(WandbConfig(project="p", entity=None, mode="offline"), run)
    for event in EVENTS:
        tracker.on_event(event)
    tracker.close()
    tracker.close()
    kept = (run / "wandb-run").read_text().strip()
    opened, hidden, all_others, options, decided, epoch, evaluated, ended, finish = service.told
    assert opened == {"project": "p", "mode": "offline", "id": kept, "name": "run", "dir": str(run)}
    assert (hidden, all_others) == (("step", {"hidden": True}), ("*", {"step_metric": "step"}))
    assert options == {"run.seed": 1}
    points = [
        (name, value, one["step"]) for one in (decided, epoch, evaluated) for name, value in one.items()
    ]
    assert [one for one in points if isinstance(one[1], float)] == SCALARS
    columns = ["set", "measure", "value", "error", "null", "own"]
    assert decided["decisions"] == ("table", columns, 2)
    assert [evaluated[name] for name in PICTURES] == [("image", 3)] * 3
    assert (ended["final"][2], ended["tasks"][2]) == (3, 2)
    assert (service.summary, finish) == ({"faa": 75.0}, ("finish", 0))
    WandbTracker(WandbConfig(project="p", entity=None, mode="offline"), run).close()
    assert service.told[9]["id"] == kept
    assert service.told[-1] == ("finish", 1)


def test_a_service_that_refuses_is_told_with_what_to_do(monkeypatch, tmp_path):
    """No key, no login: one line, and the way to do without."""
    refusal = Service.errors.Error("api_key not\nconfigured")
    monkeypatch.setitem(sys.modules, "wandb", Service(refuses=refusal))
    with pytest.raises(
        ConfigError, match=r"trackers\.wandb: api_key not configured; run `wandb login`, or set"
    ):
        WandbTracker(WandbConfig(project="p", entity=None, mode="online"), tmp_path)


# -- the services themselves, where they are installed -------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_wandb_offline_keeps_a_run_on_disk(run, monkeypatch):
    """The package itself, without network: a file to synchronise holds curves, options and the summary."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = WandbTracker(WandbConfig(project="p", entity=None, mode="offline"), run)
    for event in EVENTS:
        tracker.on_event(event)
    tracker.close()
    kept = (run / "wandb-run").read_text().strip()
    (file,) = run.glob(f"wandb/offline-run-*/run-{kept}.wandb")
    written = file.read_bytes()
    for name in (
        b"evidence/hindrance/hfc/set-0",
        b"accuracy/task-1",
        b"run.seed",
        b"confusion/classes",
        b"faa",
    ):
        assert name in written, name
    pictures = {path.name.partition("_")[0] for path in file.parent.rglob("*.png")}
    assert {"classes", "tasks", "retrieval"} == pictures


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_tensorboard_reads_back_what_was_written(run):
    """The package itself: curves, pictures and tables of the run's folder, by their names."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tracker = TensorboardTracker(TensorboardConfig(), run)
    for event in EVENTS:
        tracker.on_event(event)
    tracker.close()
    found = reader.EventAccumulator(str(run / "tensorboard")).Reload()
    tags = found.Tags()
    assert {name for name, _, _ in SCALARS} <= set(tags["scalars"])
    assert set(PICTURES) == set(tags["images"])
    assert [point.step for point in found.Scalars("p/loss")] == [8]
