"""The table of kinds of runs and of what is done with a run: every kind keeps every promise.

Faults lie between two things that are each tested well, such as a sparse evaluation and a kill. A fault that
is found there gets a cell: a kind in ``KINDS`` or a deed in ``DEEDS``. All run on the tiny backbone, or on
vectors, with the defaults of everything that no kind names.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pytest
import torch
from click.testing import CliRunner

from installed import load_instead
from lw2g.cli.main import main
from lw2g.config.resolve import resolve
from lw2g.disk.predictions import Predictions
from lw2g.disk.record import RunDirectory
from lw2g.disk.sealed import unseal_json
from lw2g.errors import ConfigError
from lw2g.interfaces.tracker import Event, Stepped
from lw2g.lifecycle.continuing import proceed
from lw2g.lifecycle.forking import fork, resolve_fork
from lw2g.lifecycle.run_opening import reopen
from lw2g.lifecycle.runner import resume, start
from lw2g.model.exporting import export_run
from lw2g.model.learnable_export import export_learnable
from lw2g.model.saved import open_model
from lw2g.model.trained import TrainedModel
from lw2g.registry.catalogue import Catalogue
from lw2g.results.verification import verify
from lw2g_photos.updating import learn
from runs import short_options, untimed
from written_images import write_images

# -- kinds of runs -------------------------------------------------------------------------------------------

FOLDER = {
    "benchmark.root": "{world}/images/art",
    "benchmark.increment": 2,
    "benchmark.train_transform": "none",
}
CROPS = {"benchmark.train_transform": "rrc"}
TWO_TASKS = {"benchmark.increment": 3}
VECTORS = {"benchmark.file": "{world}/vectors.npz", "benchmark.increment": 2}
LDA = {"baseline": "simple-cil", "baseline.head": "lda"}
TRAINED = {"baseline": "dual-prompt", "policy": "one"}
SETS = {"baseline": "dual-prompt", "policy": "min"}
DOMAINS = {"benchmark.stream": "domains"}
VERSATILE = {"benchmark.stream": "versatile", "benchmark.increment": 3}
AGAIN = {"benchmark.stream": "repetition", "benchmark.tasks": 3, "benchmark.increment": 3}
EXPERT = {"baseline.head_carry": "gated", "routing.expert": "frozen"}
TEXT = {"baseline.head": "text", "head.text.file": "{world}/text.npz", "head.text.width": 8}

KINDS: dict[str, dict[str, Any]] = {
    "images": FOLDER | CROPS | SETS,
    "keep": FOLDER | CROPS | {"baseline": "dual-prompt", "policy": "keep"},
    "keep, LoRA": FOLDER | TWO_TASKS | {"baseline": "sd-lora", "policy": "keep"},
    "keep, adapters": FOLDER | TWO_TASKS | {"baseline": "mos", "policy": "keep"},
    "stored features": VECTORS | LDA,
    "domains": FOLDER | LDA | DOMAINS | {"benchmark.root": "{world}/images"},
    "domains, trained": FOLDER | SETS | DOMAINS | {"benchmark.root": "{world}/images"},
    "versatile": FOLDER | LDA | {"benchmark.root": "{world}/images"} | VERSATILE,
    "repetition": VECTORS | LDA | AGAIN,
    "repetition, trained": FOLDER | SETS | AGAIN,
    "every second task evaluated": FOLDER | LDA | {"run.evaluate": 2},
    "the last task evaluated": FOLDER | TRAINED | {"run.evaluate": "last"},
    "mixed precision": FOLDER | TRAINED | TWO_TASKS | {"run.precision": "bf16-mixed"},
    "expert": FOLDER | LDA | EXPERT | {"baseline": "slca-plus-plus", "baseline.trained_tasks": 2},
    "text": VECTORS | LDA | TEXT | {"head.text.mix": "lda"},
    "merges": FOLDER | LDA | {"baseline": "hide-prompt", "policy": "one", "growth.merge": 0.5},
    "two workers": FOLDER | CROPS | TRAINED | TWO_TASKS | {"run.workers": 2},
}
"""Components and options by name; ``{world}`` is the folder of the files."""

CLASSES, OLD, DIM = 7, 6, 8
"""Classes of the world, of which a run learns the first six; the width of the vectors."""


@attrs.frozen(kw_only=True)
class Small:
    """The runs that are done: small ones, with the files of a folder.

    Attributes:
        world: The folder.
        catalogue: Has the tiny backbone.
    """

    world: Path
    catalogue: Catalogue

    def start(
        self, kind: str, directory: Path, listeners: Any = (), tasks: int | None = None
    ) -> dict[str, Any]:
        """Run a kind and return the record."""
        chosen = {
            key: value.format(world=self.world) if isinstance(value, str) else value
            for key, value in KINDS[kind].items()
        }
        vectors = "benchmark.file" in chosen
        names = {"benchmark": "features"} if vectors else {"benchmark": "folder", "backbone": "tiny"}
        names |= {section: chosen.pop(section) for section in ("baseline", "policy") if section in chosen}
        options = {"run.device": "cpu", "run.evaluation_batch": 12, "growth.images": 16, "growth.draws": 2}
        options |= short_options(self.catalogue, names["baseline"]) | chosen
        resolved = resolve(self.catalogue, overrides=options, **names)
        return start(resolved, self.catalogue, directory, listeners, tasks=tasks)


def painted(
    folder: Path, patterns: Mapping[str, npt.NDArray[Any]], count: int, rng: np.random.Generator
) -> None:
    """Write images of classes, a pattern under much noise each."""
    for name, pattern in patterns.items():
        write_images(folder / name, (pattern + rng.normal(0, 75, pattern.shape) for _ in range(count)))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, catalogue: Catalogue) -> Small:
    """Images of three domains, vectors, and text of the classes; and images and vectors of one class more."""
    world = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    names = [f"class {number}" for number in range(CLASSES)]
    coarse = rng.integers(0, 256, (CLASSES, 4, 4, 3))
    patterns = dict(zip(names, coarse.repeat(4, axis=1).repeat(4, axis=2), strict=True))
    new = {names[-1]: patterns.pop(names[-1])}
    for split, count in (("train", 6), ("test", 4)):
        for number, domain in enumerate(("art", "photo", "sketch")):
            shaded = {name: pattern * (1 - 0.2 * number) for name, pattern in patterns.items()}
            painted(world / "images" / domain / split, shaded, count, rng)
        painted(world / "new" / split, new, 2 * count, rng)
    centres = 1.5 * rng.normal(size=(CLASSES, DIM))
    for file, labels in (("vectors.npz", range(OLD)), ("new.npz", [OLD])):
        arrays: dict[str, Any] = {"class_names": [names[label] for label in labels]}
        for split, count in (("train", 12), ("test", 6)):
            rows = np.repeat(centres[labels], count, axis=0)
            arrays[f"{split}_x"] = (rows + rng.normal(size=rows.shape)).astype(np.float32)
            arrays[f"{split}_y"] = np.repeat(np.arange(len(labels)), count)
        np.savez(world / file, **arrays)
    projection = rng.normal(size=(DIM, DIM))
    text = {"vectors": centres @ projection, "projection": projection, "logit_scale": np.array(20)}
    text = {name: value.astype(np.float32) for name, value in text.items()}
    np.savez(world / "text.npz", sentences=names, classes=names, **text)
    return Small(world=world, catalogue=catalogue)


class Runs:
    """The runs of the kinds that nothing happened to, each made once."""

    def __init__(self, small: Small, place: Path) -> None:
        self.small, self._place, self._made = small, place, dict[str, Path]()

    def of(self, kind: str) -> Path:
        """Return the directory of a kind's run."""
        if kind not in self._made:
            self._made[kind] = self._place / kind.replace(" ", "-")
            self.small.start(kind, self._made[kind])
        return self._made[kind]


@pytest.fixture(scope="module")
def runs(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The quiet run of every kind."""
    return Runs(small, tmp_path_factory.mktemp("runs"))


@attrs.frozen(kw_only=True, slots=False)
class Cell:
    """A kind of runs, and what a deed needs.

    Attributes:
        kind: Its name.
        small: Does runs.
        whole: The run of the kind that nothing happened to; it is not to be written to.
        place: An empty folder.
    """

    kind: str
    small: Small
    whole: Path
    place: Path

    @property
    def catalogue(self) -> Catalogue:
        """Has the tiny backbone."""
        return self.small.catalogue

    @cached_property
    def record(self) -> dict[str, Any]:
        """That of the run."""
        return unseal_json(self.whole / "record.json")

    @cached_property
    def predictions(self) -> Predictions:
        """Those of the last evaluation."""
        return RunDirectory(self.whole).read_predictions(len(self.record["accuracy_matrix"]) - 1)

    @property
    def has_vectors(self) -> bool:
        """Whether the run is of stored features."""
        return "benchmark.file" in KINDS[self.kind]

    def tests(self) -> list[torch.Tensor]:
        """Return the test images or vectors in the order of the predictions."""
        by_id = {}
        for task in reopen(self.whole, self.catalogue).data.stream.tasks:
            for row in task.test.indices.tolist():
                by_id[task.test.source.ids[row]] = task.test.source.image(row)
        ids = json.loads((self.whole / "samples.json").read_text())
        return [by_id[ids[sample]] for sample in self.predictions.sample]


def answers(model: TrainedModel, cell: Cell) -> npt.NDArray[Any]:
    """Return the number of the class that a model takes each test sample of a cell for."""
    samples = cell.tests()
    return model(torch.stack(samples) if cell.has_vectors else samples).argmax(dim=1).numpy()


# -- what two equal runs have in common ----------------------------------------------------------------------


def place_of(event: dict[str, Any]) -> str:
    """Return which event of a run it is; a run that is resumed sends some again."""
    return json.dumps([event.get(key) for key in ("event", "task", "phase", "epoch")])


def told(run: Path) -> list[dict[str, Any]]:
    """Return the events of a run without its clocks and its name, and without how often it was opened."""
    of_opening = ("name", "notes", "details", "resumed", "tasks", "done", "goal")
    left_out = ("seconds", "images_per_second", *of_opening)
    events = []
    for line in (run / "events.jsonl").read_text().splitlines():
        event = {key: value for key, value in json.loads(line).items() if key not in left_out}
        if event["event"] == "Warned" and event["message"].startswith("the run was left by process"):
            continue
        if event not in events:
            events.append(event)
    return events


def predicted(run: Path) -> dict[str, bytes]:
    """Return the files of predictions by name."""
    return {path.name: path.read_bytes() for path in (run / "predictions").iterdir()}


def broken(run: Path) -> list[str]:
    """Return what does not hold."""
    return [one.what for one in verify(run) if one.holds is False]


def require_same(run: Path, cell: Cell) -> None:
    """Assert that a run has become the one that nothing happened to."""
    record = unseal_json(run / "record.json")
    assert untimed(record, "record_hash") == untimed(cell.record, "record_hash")
    assert record["record_hash"] == cell.record["record_hash"]
    assert predicted(run) == predicted(cell.whole)
    assert broken(run) == []


# -- what is done with a run ---------------------------------------------------------------------------------


class Kill:
    """Ends this process, as a power cut does, at the first event at which it did not do so before.

    Args:
        before: A file with the places of the events at which it has.
    """

    def __init__(self, before: Path) -> None:
        self._file = before
        self._before = before.read_text().splitlines() if before.exists() else []

    def on_event(self, event: Event) -> None:
        """End; not at a step, for how often a run tells of its steps depends on the clock."""
        place = place_of({"event": type(event).__name__, **attrs.asdict(event)})
        if isinstance(event, Stepped) or place in self._before:
            return
        with self._file.open("a") as file:
            file.write(place + "\n")
        os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        """Nothing to close."""


def in_a_process(act: Callable[[], object]) -> int:
    """Do something in a process of its own; return how that ended, as ``subprocess`` says it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, such as pytest-xdist's
        child = os.fork()
    if not child:
        signal.alarm(300)  # no test waits for ever
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_after_each_event_and_resumed(cell: Cell) -> None:
    """Killed at one event after the other and resumed each time, a run ends as the quiet one."""
    run, before = cell.place / "run", cell.place / "killed"
    ended = in_a_process(lambda: cell.small.start(cell.kind, run, [Kill(before)]))
    for _ in range(len(told(cell.whole)) + 1):  # of a resumed run a warning is one more
        if ended == -signal.SIGKILL:
            ended = in_a_process(lambda: resume(run, cell.catalogue, [Kill(before)]))
    assert ended == 0
    assert {place_of(event) for event in told(cell.whole)} <= set(before.read_text().splitlines())
    require_same(run, cell)
    assert sorted(map(json.dumps, told(run))) == sorted(map(json.dumps, told(cell.whole)))


def killed_after_one_event_and_resumed(cell: Cell) -> None:
    """The same of a run for each event, so that no second resume mends what a first one spoils."""
    before = cell.place / "killed"
    for number in range(len({place_of(event) for event in told(cell.whole)})):
        run = cell.place / str(number)
        ended = in_a_process(partial(cell.small.start, cell.kind, run, [Kill(before)]))
        assert ended == -signal.SIGKILL
        resume(run, cell.catalogue)
        require_same(run, cell)


def stopped_and_continued(cell: Cell) -> None:
    """Stopped by ``--tasks`` after every task and continued, a run ends as one without a stop."""
    run = cell.place / "run"
    cell.small.start(cell.kind, run, tasks=1)
    for tasks in range(2, len(cell.record["task_classes"])):
        assert len(proceed(run, cell.catalogue, tasks=tasks)["accuracy_matrix"]) == tasks
    proceed(run, cell.catalogue)
    require_same(run, cell)
    now = told(run)
    assert [event for event in told(cell.whole) if event not in now] == []


def forked(cell: Cell) -> None:
    """A fork at a task has the past of the run, and without a change its future, too."""
    matrix = np.array(cell.record["accuracy_matrix"], dtype=float)
    evaluated = np.flatnonzero(~np.isnan(matrix[0])).tolist()
    resolved = resolve_fork(cell.whole, cell.catalogue)
    for task in [task for task in evaluated if task + 1 < len(matrix)]:  # after the last nothing is left
        run = cell.place / str(task)
        past = fork(cell.whole, task, resolved, cell.catalogue, run, tasks=task + 1)
        now = np.array(past["accuracy_matrix"], dtype=float)
        np.testing.assert_array_equal(now, matrix[: task + 1, : task + 1])
        assert past["origin"]["same_predictions"] == 1
        record = proceed(run, cell.catalogue)
        own = ("origin", "record_hash")
        assert untimed(record, *own) == untimed(cell.record, *own)
        assert predicted(run) == predicted(cell.whole)
        assert broken(run) == []


def verified(cell: Cell) -> None:
    """All that a run says holds, and does not where it has predicted otherwise."""
    held = [one.what for one in verify(cell.whole) if one.holds]
    names = [f"predictions/{name}" for name in sorted(predicted(cell.whole))]
    assert {*names, "record.json: accuracy_matrix", "record.json: metrics.faa"} <= set(held)
    assert broken(cell.whole) == []
    run = Path(shutil.copytree(cell.whole, cell.place / "run"))
    other = attrs.evolve(cell.predictions, predicted=(cell.predictions.predicted + 1) % OLD)
    RunDirectory(run).write_predictions(len(cell.record["accuracy_matrix"]) - 1, other)
    assert names[-1] in broken(run)


def reported(cell: Cell) -> None:
    """Every form of report has the accuracy, and the page what was taken for what."""
    faa = cell.record["metrics"]["faa"]
    for form, written in (
        ("md", f" {faa:.2f} "),
        ("latex", f"${faa:.2f}$"),
        ("csv", f",{faa},"),
        ("json", f" {faa},"),
    ):
        assert written in command(cell, "report", cell.whole, "--format", form)
    assert f"{faa:.2f}" in command(cell, "report", cell.whole, "--columns", "all")
    for digits, more in ((1, []), (2, ["--all"]), (2, ["--all", "--explain"])):
        assert f"{faa:.{digits}f}" in command(cell, "show", cell.whole, *more), more
    assert json.loads(command(cell, "show", cell.whole, "--json"))["metrics"]["faa"] == faa
    assert f"{faa:.2f}" in command(cell, "runs", cell.whole)
    assert "everything holds" in command(cell, "verify", cell.whole)
    command(cell, "report", cell.whole, "--html", cell.place / "page.html")
    page = (cell.place / "page.html").read_text()
    packed = re.findall(r'id="s0-[a-z0-9]+">(H4sI[^<]+)<', page)
    numbers = "".join(gzip.decompress(base64.b64decode(part)).decode() for part in packed)
    assert f"{faa:.6g}" in numbers  # as JSON has it there
    wrong = np.flatnonzero(cell.predictions.predicted != cell.predictions.true)
    names = cell.record["class_names"]
    ids = json.loads((cell.whole / "samples.json").read_text())
    pictures = []
    for row in wrong.tolist():
        own, other = int(cell.predictions.true[row]), int(cell.predictions.predicted[row])
        assert f'{own},"{names[own]}",{other},"{names[other]}","wrong' in numbers
        sample = ids[cell.predictions.sample[row]]
        pictures.append(f'alt="{names[own]}, taken for {names[other]}" title="{sample}"' in page)
    assert any(pictures) != cell.has_vectors
    assert ("of which there are no pictures" in page) == cell.has_vectors


def command(cell: Cell, *words: object) -> str:
    """Return what a command prints where the tiny components are installed."""
    with pytest.MonkeyPatch.context() as patch:
        load_instead(patch, lambda **_: cell.catalogue)
        patch.setattr("lw2g_page.page._script", lambda: "")  # it takes seconds to put together
        done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def exported_and_loaded(cell: Cell) -> None:
    """The model alone predicts what the run has predicted."""
    export_run(cell.whole, cell.catalogue, cell.place / "model")
    model = open_model(cell.place / "model", cell.catalogue)
    assert answers(model, cell).tolist() == cell.predictions.predicted.tolist()


def learned_on(cell: Cell) -> None:
    """A model that learns a class knows it, and keeps the old ones."""
    world, old = cell.small.world, cell.place / "model"
    export_learnable(cell.whole, cell.catalogue, old)
    new = world / "new.npz" if cell.has_vectors else world / "new" / "train"
    model, _ = learn(old, new, cell.catalogue, out=cell.place / "grown")
    assert model.classes == (*open_model(old, cell.catalogue).classes, f"class {OLD}")
    tests = new if cell.has_vectors else sorted((world / "new" / "test").rglob("*.png"))
    found = [entry["class"] for entry in model.predict(tests)]
    true = cell.predictions.true
    right = np.mean(answers(model, cell) == true)
    assert found.count(f"class {OLD}") / len(found) > 0.5
    assert right > np.mean(cell.predictions.predicted == true) - 0.1


DEEDS = (
    killed_after_each_event_and_resumed,
    killed_after_one_event_and_resumed,
    stopped_and_continued,
    forked,
    verified,
    reported,
    exported_and_loaded,
    learned_on,
)


# -- the table -----------------------------------------------------------------------------------------------


def left_out(kind: str, deed: Callable[[Cell], None]) -> str:
    """Return why a deed makes no sense for a kind; empty where it does."""
    trained = KINDS[kind]["baseline"] != "simple-cil"
    if kind in ("keep, LoRA", "keep, adapters") and deed not in (killed_after_each_event_and_resumed, forked):
        return "differs from `keep` in what a set is, which a kill and a fork have to bring back"
    if deed is killed_after_one_event_and_resumed and trained:
        return (
            "as many runs that train as it has events: the deed above kills it at the same ones, in one run"
        )
    if deed is killed_after_one_event_and_resumed and kind == "versatile":
        return "has the most events: `domains` is killed at single ones, and the deed above kills it at each"
    if deed is learned_on and trained and kind != "expert":
        return "new classes cannot be added to sums: the head is trained, or sets are chosen"
    return ""


KILLED_QUICKLY = ("every second task evaluated", "text")
"""Kinds that the quick tests kill; the others have other deeds there."""


def is_slow(kind: str, deed: Callable[[Cell], None]) -> bool:
    """Return whether a cell of the table takes more than a few seconds."""
    if deed is killed_after_each_event_and_resumed and kind not in KILLED_QUICKLY:
        return True
    return KINDS[kind]["baseline"] != "simple-cil" or deed is killed_after_one_event_and_resumed


CELLS = []
for _kind in KINDS:
    for _deed in DEEDS:
        if not left_out(_kind, _deed):
            _marks = [pytest.mark.slow] if is_slow(_kind, _deed) else []
            CELLS.append(
                pytest.param(_kind, _deed, marks=_marks, id=f"{_kind} {_deed.__name__}".replace("_", " "))
            )


@pytest.mark.parametrize(("kind", "deed"), CELLS)
def test_every_kind_of_run_keeps_every_promise(
    kind: str, deed: Callable[[Cell], None], runs: Runs, tmp_path: Path
) -> None:
    """What is promised of a deed holds for each kind of runs."""
    whole = runs.of(kind)
    deed(Cell(kind=kind, small=runs.small, whole=whole, place=tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if left_out(kind, learned_on).startswith("new")])
def test_what_cannot_learn_on_says_so(kind: str, runs: Runs, tmp_path: Path) -> None:
    """The reason in the table is that of lw2g, in one line."""
    with pytest.raises(ConfigError, match="so that new classes cannot be added to sums; use"):
        export_learnable(runs.of(kind), runs.small.catalogue, tmp_path / "model")
    assert not (tmp_path / "model").exists()
