"""The functions of lw2g from Python: what they take in place of names, and what they return."""

from __future__ import annotations

import doctest
import sys
from pathlib import Path
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

import lw2g
from lw2g.errors import ConfigError, DataError
from lw2g.inputs.image_files import pixels_of
from lw2g.interfaces.component import PolicyComponent
from lw2g.interfaces.growth import Grow, Reuse
from lw2g.interfaces.options import option
from lw2g_benchmarks.given import GivenBenchmark
from lw2g_benchmarks.options import GivenConfig
from lw2g_single_set.options import SimpleCILConfig
from lw2g_single_set.simple_cil import SimpleCIL
from runs import untimed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "python.md"
QUICK = {"baseline": "simple-cil", "progress": False, "precision": "32-true", "run.device": "cpu"}


def images_of(classes, count, seed):
    """Return images [N, 8, 8, 3] of a colour per class with a little noise, and labels."""
    draw = np.random.default_rng(seed)
    labels = np.repeat(classes, count)
    noise = draw.integers(0, 20, (len(labels), 8, 8, 3))
    return (noise + labels[:, None, None, None] * 30).astype(np.uint8), labels


def task(*classes):
    return images_of(classes, 4, 0), images_of(classes, 2, 1)


TASKS = [task(0, 1), task(2, 5)]
TRAIN_AND_TEST = task(0, 1)


class EverySecond:
    """Grows at every second task."""

    measures = ()
    default_constraints = ()

    def decide(self, evidence, rng):
        return Reuse(evidence.task // 2) if evidence.task % 2 else Grow()


class Halved(SimpleCIL):
    """Simple-CIL with an option of its own."""

    growth = "fixed"

    @attrs.frozen(kw_only=True)
    class Config(SimpleCILConfig):  # noqa: D106
        factor: float = option(0.5, "what logits are multiplied by")

    def __init__(self, config, context):
        super().__init__(config, context)
        self.factor = config.factor

    def logits(self, features):
        return super().logits(features) * self.factor


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree")
@pytest.mark.filterwarnings("ignore")
def test_every_example_of_the_page_runs(tmp_path, monkeypatch):
    """What docs/howto/python.md shows is what happens."""
    monkeypatch.chdir(tmp_path)
    assert doctest.testfile(str(PAGE), module_relative=False).failed == 0


# -- images in place of a benchmark ----------------------------------------------------------------------


def in_files(part, folder, name):
    """Write a split as files and return the list of (path, label)."""
    listed = []
    for place, (image, label) in enumerate(zip(*part, strict=True)):
        path = folder / f"{name}-{place}-{label}.png"
        Image.fromarray(image).save(path)
        listed.append((path, int(label)))
    return listed


def as_columns(part):
    """Return a split with the interface of a Hugging Face data set."""

    class Columns:
        features = {"picture": type("Image", (), {})(), "label": SimpleNamespace(names=list("abcdef"))}  # noqa: RUF012

        def __len__(self):
            return len(part[1])

        def __getitem__(self, key):
            if isinstance(key, str):
                return [int(label) for label in part[1]]
            return {"picture": Image.fromarray(part[0][key]), "label": int(part[1][key])}

    return Columns()


FORMS = {
    "pairs": lambda part, folder, name: [
        (Image.fromarray(image), int(label)) for image, label in zip(*part, strict=True)
    ],
    "files": in_files,
    "torch": lambda part, folder, name: TensorDataset(
        torch.from_numpy(part[0]).permute(0, 3, 1, 2), torch.from_numpy(part[1])
    ),
    "floats": lambda part, folder, name: (part[0] / 255, part[1].tolist()),
    "columns": lambda part, folder, name: as_columns(part),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_labelled_images_gives_the_same_stream(tmp_path, form):
    """Arrays, pairs, files, torch and Hugging Face data sets differ in nothing but ids."""
    given = [
        tuple(FORMS[form](part, tmp_path, f"{number}-{place}") for place, part in enumerate(pair))
        for number, pair in enumerate(TASKS)
    ]
    expected, stream = (GivenBenchmark(GivenConfig(), images).stream() for images in (TASKS, given))
    assert stream.class_order == expected.class_order == (0, 1, 2, 5)
    assert stream.class_names == (("a", "b", "c", "f") if form == "columns" else ("0", "1", "2", "5"))
    for ours, theirs in zip(stream.tasks, expected.tasks, strict=True):
        for part, other in ((ours.train, theirs.train), (ours.test, theirs.test)):
            assert part.labels.tolist() == other.labels.tolist()
            assert all(
                torch.equal(part.source.image(i), other.source.image(j))
                for i, j in zip(part.indices, other.indices, strict=True)
            )


def test_the_ids_of_files_do_not_depend_on_where_they_are(tmp_path):
    """A run goes on after its images have moved, and not with other images."""
    prints = []
    for number, shift in enumerate((0, 0, 1)):
        (folder := tmp_path / str(number)).mkdir()
        parts = [(images + np.uint8(shift), labels) for images, labels in TASKS[0]]
        given = [tuple(in_files(part, folder, name) for part, name in zip(parts, "ab", strict=True))]
        prints.append(GivenBenchmark(GivenConfig(), given).stream().fingerprint)
    assert prints[0] == prints[1] != prints[2]


def test_one_pair_is_cut_by_the_options():
    """Increment and order apply where the tasks are not given."""
    config = GivenConfig(increment=2, order="seeded", order_seed=1)
    stream = GivenBenchmark(config, task(0, 1, 2, 3)).stream()
    assert [part.class_names for part in stream.tasks] == [("3", "2"), ("0", "1")]


@pytest.mark.parametrize("form", FORMS)
def test_a_share_of_one_data_set_tests(tmp_path, form):
    """Of each class that share, the same in every form, and no image on both sides."""
    given = FORMS[form](images_of([0, 1, 2, 5], 5, 0), tmp_path, "x")
    stream = GivenBenchmark(GivenConfig(increment=2, test_share=0.4), given).stream()
    assert [part.class_names for part in stream.tasks] == [
        ("a", "b") if form == "columns" else ("0", "1"),
        ("c", "f") if form == "columns" else ("2", "5"),
    ]
    for part in stream.tasks:
        assert (len(part.train), len(part.test)) == (6, 4)
        assert not set(part.train.ids) & set(part.test.ids)
    assert any("share of 0.4" in text for text in stream.deviations)
    whole = images_of([0, 1, 2, 5], 5, 0)
    other = GivenBenchmark(GivenConfig(increment=2, test_share=0.4), whole).stream()
    for part, same in zip(stream.tasks, other.tasks, strict=True):
        pixels, expected = (
            [data.source.image(int(row)) for row in data.indices] for data in (part.test, same.test)
        )
        assert all(torch.equal(one, two) for one, two in zip(pixels, expected, strict=True))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ({"train": TRAIN_AND_TEST[0], "test": TRAIN_AND_TEST[1]}, "splits train, test, so there is nothing"),
        (images_of([0], 1, 0), "class 0 has one image, and test_share needs two"),
    ],
)
def test_what_cannot_be_drawn_is_told(images, message):
    """Splits that are there already, and a class of one image."""
    with pytest.raises(DataError, match=message):
        GivenBenchmark(GivenConfig(increment=1, test_share=0.5), images).stream()


def test_a_run_reads_as_people_write_it(tmp_path, monkeypatch):
    """A folder by its path or name, and options of benchmark and baseline without their section."""
    monkeypatch.chdir(tmp_path)
    images, labels = images_of([0, 1, 2, 3], 5, 0)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = tmp_path / "photos" / "abcd"[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
    prints = set()
    for number, folder in enumerate(("photos", "./photos", tmp_path / "photos")):
        options = {"test_share": 0.2, "increment": 2, "out": f"run-{number}"}
        record = lw2g.run(
            **{**QUICK, "baseline": {"name": "simple-cil", "head": "lda"}}, benchmark=folder, **options
        )
        config = record["config"]
        assert (config["benchmark"]["name"], config["benchmark"]["test_share"]) == ("folder", 0.2)
        assert config["baseline"]["head"] == "lda"
        prints.add(record["fingerprints"]["benchmark"])
    assert len(prints) == 1
    given = lw2g.run(**QUICK, benchmark=(images, labels), test_share=0.2, increment=2, out="given")
    assert given["config"]["benchmark"]["name"] == "given"
    assert len(given["accuracy_matrix"]) == 2


def test_a_misspelt_folder_is_told_as_one(tmp_path, monkeypatch):
    """A path, or a name below a folder that is here: which folder is missing, and which one is like it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "dogs").mkdir(parents=True)
    told = {
        "photos/dgs": r"benchmark: no folder 'photos/dgs' \(did you mean 'photos/dogs'\?\); give a folder of",
        "./phots/dogs": r"no folder './phots/dogs' \(did you mean 'photos'\?\)",
        "phots": r"no benchmark is called 'phots'; .*no folder 'phots' \(did you mean 'photos'\?\)",
        "somebody/photos": r"benchmark.hub: .*somebody/photos",
        "digit": r"no benchmark is called 'digit' \(did you mean 'digits'\?\); run `lw2g plugins`",
        "x" * 300: "no benchmark is called",
        "a/" + "x" * 300: "no folder|benchmark.hub",
    }
    for name, message in told.items():
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(ConfigError, match=message):
            lw2g.run(benchmark=name, baseline="simple-cil", out=tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_a_model_shows_itself_in_a_notebook(tmp_path):
    """Method, backbone and classes stand in a table, with the names of classes as text."""
    lw2g.run(**QUICK, benchmark=TASKS, out=tmp_path / "run")
    shown = lw2g.load(tmp_path / "run")._repr_html_()
    assert "<th>method</th><td>simple-cil</td>" in shown
    assert "<th>classes</th><td>4: 0, 1, 2, 5</td>" in shown


def test_classes_may_come_again():
    """Test images go to the first task with their class, or stay where each task is a domain."""
    again = [task(3, 1), (images_of([1, 2], 3, 2), images_of([2], 2, 3)), task(1)]
    stream = GivenBenchmark(GivenConfig(), again).stream()
    assert (stream.class_order, stream.targets) == ((1, 3, 1, 2, 1), (0, 1, 0, 2, 0))
    assert [len(part.train) for part in stream.tasks] == [8, 6, 4]
    assert [part.test.labels.tolist() for part in stream.tasks] == [[1, 1, 0, 0, 0, 0], [3, 3], []]
    assert stream.tasks[2].train.ids[0] == "task-3/train/0"
    domains = GivenBenchmark(GivenConfig(stream="domains"), [task(0, 1), task(1, 2)]).stream()
    assert [(part.domain, len(part.test)) for part in domains.tasks] == [("domain-1", 4), ("domain-2", 4)]
    with pytest.raises(ConfigError, match="could lose all images of one"):
        GivenBenchmark(GivenConfig(imbalance=4.0), again).stream()
    cut = GivenBenchmark(GivenConfig(increment=1, stream="repetition", tasks=4), task(0, 1)).stream()
    assert len(cut.tasks) == 4


class Unstable(Dataset):
    """A data set that gives another image every time, or loses images."""

    def __init__(self, lengths=(4,), random=False):
        self.lengths, self.random = list(lengths), random
        self.targets = [0, 0, 1, 1]

    def __len__(self):
        return self.lengths.pop(0) if len(self.lengths) > 1 else self.lengths[0]

    def __getitem__(self, index):
        return torch.rand(3, 8, 8) if self.random else torch.zeros(3, 8, 8), self.targets[index]


TRAIN, TEST = task(0, 1)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([(TRAIN, TEST), (images_of([0], 2, 7), TEST)], "tasks 1 and 2 have the same images"),
        ([(images_of([0, 1], 2, 0), images_of([0], 2, 0))], "class 1 of task-1 is in train and not in test"),
        ([(images_of([0], 2, 0), images_of([0, 1], 2, 0))], "class 1 of task-1 is in test and not in train"),
        ([((TRAIN[0], TRAIN[1] / 1.0), TEST)], "label 0 of task-1/train is 0.0, and no class number"),
        ([((TRAIN[0], ["cat"] * 8), TEST)], "label 0 of task-1/train is 'cat', and no class number"),
        ([((TRAIN[0], TRAIN[1][:3]), TEST)], "task-1/train has 8 images and 3 labels"),
        ([((TRAIN[0] * 2.0, TRAIN[1]), TEST)], "image 0: pixels of float64 from .* have no known range"),
        ([(TRAIN, (TEST[0][:0], TEST[1][:0]))], "task-1/test holds no image"),
        ([(TRAIN, 7)], "task-1/test is a int, and no data set"),
        ([TRAIN[0]], r"expected \(train, test\) for task-1 but got a ndarray"),
        ([{"train": TRAIN}], "expected the splits train and test but got train"),
        ([], "no task was given"),
        (None, "benchmark 'given' has no images"),
        (TRAIN, r"train\[0\] is a ndarray, and no pair"),
        ([([("a.png", 0)], [("a.png", 0)])], "a.png' is twice in the lists of images"),
        ([(Unstable(random=True), Unstable())], "task-1/train, image 0 differs each time it is read"),
        ([(Unstable((4, 4, 4, 4, 3)), Unstable())], "had 4 images and now has 3"),
    ],
)
def test_images_that_cannot_be_used_are_told_in_a_line(images, message):
    """Every mistake has its line, with where it is."""
    config = GivenConfig() if isinstance(images, list) else GivenConfig(increment=1)
    with pytest.raises((ConfigError, DataError), match=message) as caught:
        GivenBenchmark(config, images).stream()
    assert "\n" not in str(caught.value)


def test_an_image_has_the_same_pixels_in_every_form():
    """Channels last or first, grey, floats and PIL images become the same RGB bytes."""
    array = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    first = torch.from_numpy(array).permute(2, 0, 1)
    for image in (array, first, first.numpy(), array / 255, first / 255, Image.fromarray(array)):
        assert torch.equal(pixels_of(image), first)
    grey = array[..., 0]
    assert torch.equal(pixels_of(grey), torch.from_numpy(grey).expand(3, -1, -1))
    for image in (array[None], array[..., :2], array.astype(np.int64), np.full((5, 7), np.nan), "gone.png"):
        with pytest.raises(DataError):
            pixels_of(image)


# -- components in place of names ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run of local images, baseline and policy, and the events of its tracker."""
    out, events = tmp_path_factory.mktemp("api") / "whole", []
    local = {"baseline": Halved, "benchmark": TASKS}
    record = lw2g.run(**{**QUICK, **local}, trackers=events.append, out=out, **{"baseline.factor": 0.25})
    return record, events, local


def test_objects_are_marked_in_the_record_and_a_run_goes_on_with_them(whole, tmp_path):
    """A stopped run asks for the objects again and then ends as if it had not stopped."""
    record, events, local = whole
    chosen = record["config"]["baseline"]
    assert (chosen["name"], chosen["factor"]) == ("local-halved", 0.25)
    assert record["config"]["benchmark"]["name"] == "given"
    assert type(events[-1]).__name__ == "RunEnded"
    out = tmp_path / "part"
    lw2g.run(**{**QUICK, **local}, tasks=1, out=out, **{"baseline.factor": 0.25})
    with pytest.raises(ConfigError, match=r"local=\{'baseline': \.\.\.\}"):
        lw2g.continue_run(out, progress=False)
    with pytest.raises(ConfigError, match=r"local=\{'benchmark': \.\.\.\}"):
        lw2g.continue_run(out, progress=False, local={"baseline": Halved})
    other = {**local, "benchmark": [task(0, 1), task(2, 4)]}
    with pytest.raises(DataError, match="benchmark"):
        lw2g.continue_run(out, progress=False, local=other)
    assert untimed(lw2g.continue_run(out, progress=False, local=local)) == untimed(record)
    assert lw2g.resume(out, progress=False, local=local).path == out


def test_a_run_of_objects_is_shown_verified_and_used(whole):
    """Reports and checks need no object; a model needs its baseline, and takes arrays and folders."""
    record = whole[0]
    assert lw2g.verify(record.path)
    assert "local-halved x always" in str(lw2g.report(record.path))
    with pytest.raises(DataError, match="baseline 'local-halved' cannot be used here"):
        lw2g.load(record.path)
    model = lw2g.load(record.path, local={"baseline": Halved})
    images = TASKS[1][1][0]
    answers = model.predict(images)
    assert answers == model.predict([Image.fromarray(image) for image in images])
    assert {answer["class"] for answer in answers} <= {"0", "1", "2", "5"}


def test_a_folder_is_its_images(whole, tmp_path):
    """predict takes the image files in and below a folder, sorted, and nothing else of it."""
    record, _, _ = whole
    (tmp_path / "below").mkdir()
    (tmp_path / "notes.txt").write_text("no image")
    for name in ("b.png", "below/a.JPG", ".hidden.png"):
        Image.fromarray(TRAIN[0][0]).save(tmp_path / name)
    model = lw2g.load(record.path, local={"baseline": Halved})
    paths = [answer["path"] for answer in model.predict(tmp_path)]
    assert paths == [str(tmp_path / "b.png"), str(tmp_path / "below" / "a.JPG")]


def policy_function(evidence):
    """Grow."""
    return Grow()


RECORD = PolicyComponent(
    name="mine",
    config=attrs.make_class("NoOptions", [], frozen=True),
    summary="s",
    build=lambda config: SimpleNamespace(margin=0.0, burden=None, decide=EverySecond().decide),
    measures=(),
    default_constraints=(),
)
policy_function.measures = policy_function.default_constraints = ()


@pytest.mark.parametrize(
    ("policy", "name", "sets"),
    [
        (EverySecond, "local-every-second", [0, 0]),
        (EverySecond(), "local-every-second", [0, 0]),
        (policy_function, "local-policy-function", [0, 1]),
        (RECORD, "local-mine", [0, 0]),
    ],
    ids=["class", "object", "function", "record"],
)
def test_a_policy_is_a_class_an_object_a_function_or_a_record(tmp_path, policy, name, sets):
    """Each decides as it says; margin and burden may be left out."""
    options = {"baseline.epochs": 1, "run.device": "cpu", "benchmark.train_transform": "none"}
    record = lw2g.run(
        baseline="dual-prompt",
        benchmark=TASKS,
        policy=policy,
        out=tmp_path / "run",
        progress=False,
        **options,
    )
    assert (record["config"]["policy"]["name"], record["task_to_set"]) == (name, sets)


def test_a_benchmark_is_an_object_with_a_stream(tmp_path):
    """An object with stream and transforms is a benchmark, and not images."""
    record = lw2g.run(**QUICK, benchmark=GivenBenchmark(GivenConfig(), TASKS), out=tmp_path / "run")
    assert (record["config"]["benchmark"]["name"], record["tasks"]) == ("local-given-benchmark", 2)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"devices": 2, "benchmark": TASKS}, "objects of this program exist in one process only"),
        ({"baseline": torch.nn.Linear(1, 1)}, "'Linear' is no class of a baseline; give the class"),
        ({"baseline": torch.nn.Linear}, "'local-linear'"),
        ({"seeds": [0, 1]}, "seeds: a call runs one seed"),
        ({"trackers": 7}, "trackers: 'int' receives no events"),
        ({"constraints": "cpkk"}, "no constraint is called 'cpkk'"),
        ({"benchmark": TASKS, "benchmark.stream": "repetition"}, "cuts tasks, and the tasks are given"),
        ({"benchmark": TASKS, "benchmark.increment": 2}, "the tasks are given; leave it out"),
        ({"benchmark": TASKS[0]}, "benchmark.increment: how many classes has a task"),
    ],
)
def test_objects_that_cannot_be_used_are_told_in_a_line(tmp_path, choices, message):
    """Every mistake has its line, before anything is learned."""
    with pytest.raises(lw2g.errors.Lw2gError, match=message) as caught:
        lw2g.run(**{**QUICK, **choices}, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_images_must_be_pickled_where_processes_are_spawned(tmp_path, monkeypatch):
    """Workers that do not inherit the program's memory are refused in a line."""
    monkeypatch.setattr("multiprocessing.get_start_method", lambda: "spawn")
    images = [(as_columns(TRAIN), as_columns(TEST))]
    with pytest.raises(ConfigError, match=r"run\.workers: the images cannot be pickled"):
        lw2g.run(**{**QUICK, "benchmark": images, "run.workers": 1}, out=tmp_path / "run")


def test_a_failing_callback_stops_nothing(tmp_path):
    """A tracker needs no close, and its error is a warning."""
    kept = []

    class Broken:
        def on_event(self, event):
            raise ValueError("no")

    record = lw2g.run(**QUICK, benchmark=TASKS, trackers=[Broken(), kept.append], out=tmp_path / "run")
    assert len(record["accuracy_matrix"]) == 2
    assert any("tracker 'Broken'" in getattr(event, "message", "") for event in kept)


# -- results ---------------------------------------------------------------------------------------------


def test_results_are_tables_with_or_without_pandas(whole, monkeypatch):
    """Every result shows itself in a notebook and gives its rows to pandas, which need not be there."""
    record, _, _ = whole
    results = [record, lw2g.verify(record.path), lw2g.runs(record.path), lw2g.report(record.path)]
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    for result in results:
        assert "<table>" in result._repr_html_()
        assert result.to_dataframe() == list(result.rows()) != []
        assert len(repr(result)) < 300
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="to_dataframe needs pandas; pip install pandas"):
        record.to_dataframe()
    last = {row["task"]: row["accuracy"] for row in record.rows() if row["after_task"] == 2}
    assert sum(last.values()) / 2 == record.metrics["faa"]


def test_a_component_and_its_options_are_one_dictionary(tmp_path):
    """As people write it; a dotted option wins, and one without a name is told."""
    record = lw2g.run(
        **{**QUICK, "baseline": {"name": "simple-cil", "head": "lda"}},
        benchmark={"name": "digits", "increment": 5},
        out=tmp_path / "run",
    )
    config = record["config"]
    assert (config["baseline"]["head"], config["benchmark"]["increment"]) == ("lda", 5)
    with pytest.raises(ConfigError, match=r"benchmark: .* has no name"):
        lw2g.run(**QUICK, benchmark={"increment": 2})
    with pytest.raises(ConfigError, match=r"baseline\.heads"):
        lw2g.run(**{**QUICK, "baseline": {"name": "simple-cil", "heads": "lda"}}, benchmark="digits")
