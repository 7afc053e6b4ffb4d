"""The functions of lw2g from Python: the examples of the page, and the images that they take."""

from __future__ import annotations

import doctest
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

import lw2g
from coloured_images import QUICK, TASKS, TEST, TRAIN, TRAIN_AND_TEST, as_columns, images_of, task
from lw2g.api.arguments import as_plain
from lw2g.api.experiment import experiment_of
from lw2g.api.given_objects import Locals
from lw2g.errors import ComponentError, ConfigError, ContractError, DataError, Lw2gError
from lw2g.model.trained import TrainedModel
from lw2g.pixels.image_files import pixels_of
from lw2g_benchmarks.given import GivenBenchmark
from lw2g_benchmarks.options import GivenConfig

PAGE = Path(__file__).resolve().parents[3] / "docs" / "howto" / "python.md"


@pytest.mark.slow
@pytest.mark.skipif(not PAGE.exists(), reason="needs the source tree")
@pytest.mark.filterwarnings("ignore")
def test_every_example_of_the_page_runs(tmp_path, monkeypatch):
    """What docs/howto/python.md shows is what happens."""
    monkeypatch.chdir(tmp_path)
    tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried.failed == 0


# -- images in place of a benchmark ----------------------------------------------------------------------


def in_files(part, folder, name):
    """Write a split as files and return the list of (path, label)."""
    listed = []
    for place, (image, label) in enumerate(zip(*part, strict=True)):
        path = folder / f"{name}-{place}-{label}.png"
        Image.fromarray(image).save(path)
        listed.append((path, int(label)))
    return listed


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
    "unzipped": lambda part, folder, name: tuple(
        zip(*((image, np.array(label)) for image, label in zip(*part, strict=True)), strict=True)
    ),
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


@pytest.mark.parametrize(("baseline", "name"), [("simple-cil", ""), ("hide-prompt", "-always")])
def test_a_folder_that_nobody_named_has_the_policy_that_decides(tmp_path, monkeypatch, baseline, name):
    """A method without sets asks none, and its folder is named without it."""
    monkeypatch.chdir(tmp_path)
    options = {"baseline.name": baseline, "benchmark.name": "digits", "policy.name": "always"}
    with experiment_of(None, options).new_directory() as directory:
        assert directory.as_posix() == f"runs/digits-{baseline}{name}-1"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"baseline.name": "l2p", "baseline.epochs": 0}, True),
        ({"baseline.name": "l2p", "baseline.epochs": 1}, False),
        ({"baseline.name": "simple-cil"}, False),
    ],
)
def test_a_run_without_epochs_says_that_nothing_is_trained(options, told):
    """Before it runs, so that nobody takes what it ends at for what the method reaches."""
    announced = list(experiment_of(None, options).announcements())
    assert (
        "baseline.epochs=0: nothing is trained by gradient steps on the tasks' images" in announced
    ) == told


def test_an_argument_that_is_none_is_told_with_the_one_that_is_meant(tmp_path):
    """Options have dotted keys; a single data set is no pair of training and test images."""
    images = np.zeros((4, 8, 8), np.uint8)
    told = [
        ({"trained": True}, "trained names the baseline; leave baseline out"),
        ({"trained": True, "recommended": True}, "recommended and trained name a method each; leave one out"),
        (
            {"recommended": True, "baseline": None, "baseline.name": "l2p"},
            "given twice: as baseline and as baseline.name; leave",
        ),
        ({"epoch": 3}, r"epoch: no such argument \(did you mean 'epochs'\?\); options have dotted keys"),
        ({"constraint": "cpk"}, r"constraint: no such argument \(did you mean 'constraints'\?\)"),
        ({"tracker": "cpk"}, r"tracker: no such argument \(did you mean 'trackers'\?\)"),
        ({"recomended": True}, r"recomended: no such argument \(did you mean 'recommended'\?\)"),
        ({"task": 1}, r"task: no such argument \(did you mean 'tasks'\?\)"),
        ({"lr": 1, "baseline": "dual-prompt"}, r'lr: no such argument; write \*\*{"baseline.lr": \.\.\.}$'),
        ({"lr": 0.1}, r'nothing that is chosen here has it; of others: \*\*{"baseline.lr": \.\.\.} or'),
        ({"lr": 1, "benchmark": [(images, [0])]}, "nothing that is chosen here has it; of others: "),
        ({"lr": 1, "baseline": Locals}, r'lr: no such argument; write \*\*{"baseline.lr": \.\.\.} or'),
        (
            {"phi": 1, "baseline": "dual-prompt", "constraints": "cpk"},
            r'phi: no such argument; write \*\*{"constraints.cpk.phi": \.\.\.}$',
        ),
        (
            {"baseline.epochs": 7, "epochs": 1},
            "epochs is given twice: as baseline.epochs and as epochs",
        ),
        (
            {"baseline.name": "ranpac"},
            "given twice: as baseline and as baseline.name; leave",
        ),
        ({"weights": "a", "backbone": {"name": "b", "weights": "c"}}, "backbone.weights is given twice"),
        ({"method": "l2p"}, "method: no such argument; the method is baseline=NAME"),
        ({"dataset": "digits"}, "dataset: no such argument; the data are benchmark=NAME"),
        ({"head": "lda"}, r"head: no such argument; write \*\*{'baseline.head': 'lda'}$"),
        ({"carry": "affine"}, r"carry: no such argument; write \*\*{'baseline.head_carry': 'affine'}$"),
        ({"constraints": "pgp"}, "'simple-cil' trains nothing to constrain; leave it out"),
        ({"benchmark": (images, [0, 0, 1, 1])}, r"or test_share=0\.2, which draws the test images"),
    ]
    for given, message in told:
        with pytest.raises(Lw2gError, match=message):
            lw2g.run(**{"baseline": "simple-cil", "benchmark": "digits", "out": tmp_path / "run", **given})
        assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="baseline: no such argument; a fork keeps its method"):
        lw2g.fork(tmp_path, 1, baseline="l2p")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ranpac", "'ranpac' is no file but a baseline; name it: baseline='ranpac'"),
        ("min", "'min' is no file but a policy; name it: policy='min'"),
        ("cpk", "'cpk' is no file but a constraint; name it: constraints='cpk'"),
        ("tensorboard", "'tensorboard' is no file but a tracker; name it: trackers='tensorboard'"),
        ("lda", "'lda' is no file but a head; name it: baseline.head=lda"),
        ("nobody's", '"nobody\'s" cannot be read: No such file or directory; give the path of a TOML file'),
    ],
)
def test_a_name_in_place_of_a_file_is_told_with_its_argument(tmp_path, monkeypatch, name, told):
    """Names are given by keyword; a file of that name is read all the same."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        lw2g.run(name)
    assert str(caught.value) == told
    Path(name).write_text("polcy = 'one'", encoding="utf-8")
    with pytest.raises(ConfigError, match="polcy"):
        lw2g.run(name)


def test_a_word_runs_the_method_that_it_stands_for(tmp_path):
    """As on the command line; an option beside it wins."""
    record = lw2g.run(benchmark="digits", recommended=True, tasks=1, device="cpu", out=tmp_path / "run")
    baseline = record["config"]["baseline"]
    assert (baseline["name"], baseline["head"]) == ("simple-cil", "auto")
    options = {"baseline.head": "lda"}
    record = lw2g.run(
        benchmark="digits", recommended=True, tasks=1, device="cpu", out=tmp_path / "other", **options
    )
    assert record["config"]["baseline"]["head"] == "lda"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"seed": np.array([0, 1])}, "seed: a call runs one"),
        ({"benchmark.class_order": np.arange(3), "baseline": "nope"}, "no baseline is called 'nope'"),
        ({"benchmark": {"train": (np.zeros((2, 8, 8)), [0, 1])}}, "the splits train and test but got train"),
        (
            {"benchmark": {"name": "digits", "train": (np.zeros((2, 8, 8)), [0, 1])}},
            r'a split train, .*; write benchmark=\{"train": .*\} for images, or \{"name": ',
        ),
        ({"benchmark": {"test": (np.zeros((2, 8, 8)), [0, 1])}}, "the splits train and test but got test"),
        ({"baseline": {"name": None}}, "has no name"),  # the default would run in place of what was meant
        ({"baseline": {"name": "dual-prompt", "epochs": np.int64(1)}, "policy": "nope"}, "^policy: "),
        ({"benchmark": {"images": np.zeros((99, 9))}}, r"benchmark: .*\.\.\. \(.* characters\) has no name"),
    ],
)
def test_arrays_as_options_are_taken_as_lists(options, told):
    """What is wrong is told in a line; splits by their names are images and no component."""
    with pytest.raises((ConfigError, DataError), match=told) as caught:
        lw2g.run(**options)
    assert "\n" not in str(caught.value)


def test_a_run_is_stopped_and_goes_on_by_numbers_of_numpy(tmp_path):
    """As they come out of an array, wherever a function takes a number."""
    run = tmp_path / "run"
    record = lw2g.run(**QUICK, benchmark=TASKS, out=run, tasks=np.int64(1), trackers=None)
    assert len(record["accuracy_matrix"]) == 1
    local = {"benchmark": TASKS}
    forked = lw2g.fork(
        run, np.int64(1), out=tmp_path / "fork", local=local, tasks=np.int64(2), progress=False
    )
    record = lw2g.continue_run(run, tasks=np.int64(2), local=local, progress=np.bool_(False))
    assert len(record["accuracy_matrix"]) == len(forked["accuracy_matrix"]) == 2
    for go_on in (lw2g.resume, lw2g.continue_run):
        with pytest.raises(ConfigError, match=r"^devices: expected at least 1 process but got 0"):
            go_on(run, local=local, devices=0)
    with pytest.raises(ConfigError, match=r"is a run and no TOML file; go on with it: lw2g\.resume"):
        lw2g.run(run)
    with pytest.raises(ConfigError, match="'cuda:7' cannot be used"):
        lw2g.fork(run, 1, out=tmp_path / "other", local=local, **{"run.device": 7})


def test_a_model_starts_by_numbers_of_numpy(tmp_path):
    """In its options, too."""
    settings = {"baseline.head_features": np.int64(0)}
    options = {"head": "ridge", "image_size": np.int64(16), "device": "cpu"}
    model, _ = lw2g.start(TRAIN, tmp_path / "model", settings=settings, **options)
    assert model.known


def test_odd_arguments_are_told_by_their_names(tmp_path):
    """What a list is for, what nests in itself, and an option by the argument that took it."""
    nested = {}
    nested["axes"] = nested
    (tmp_path / "a").mkdir()
    for call, told in (
        (lambda: lw2g.runs(tmp_path).where(seed=[0, 1]), r"^seed: expected one value but got \[0, 1\]"),
        (lambda: lw2g.sweep(nested, out=tmp_path / "sweep"), "^grid: nested too deeply"),
        (
            lambda: lw2g.sweep({"axes": {"seed": [1]}}, out=tmp_path / "sweep", settings={"x": 1}),
            "^settings: no such section 'x'",
        ),
        (lambda: lw2g.report(b"a"), "got b'a'; give the path of a file or a folder$"),
        (lambda: lw2g.report(np.array(["a", "b"])), "got array.*; give the path of a file or a folder$"),
    ):
        with pytest.raises(ConfigError, match=told):
            call()


@pytest.mark.parametrize("device", [0, np.int64(0), torch.device("cuda:0"), "cuda:0"])
def test_a_device_is_given_as_torch_takes_it(tmp_path, monkeypatch, device):
    """By its number, as an object, or by its name, of runs and of models alike."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = tmp_path / "model"
    lw2g.run(**QUICK, benchmark=TASKS, out=model)
    for call in (
        lambda: lw2g.run(benchmark="digits", device=device, out=tmp_path / "run"),
        lambda: lw2g.run(benchmark="digits", **{"run.device": device}, out=tmp_path / "run"),
        lambda: lw2g.load(model, device=device),
    ):
        with pytest.raises(ConfigError, match="'cuda:0' cannot be used"):
            call()
    with pytest.raises(ConfigError, match=r"'0' \(did you mean 'cuda:0'\?\)"):
        lw2g.run(benchmark="digits", device="0")


def test_a_grid_takes_what_options_take(tmp_path):
    """Arrays, ranges, and numbers, paths and devices as objects."""
    grid = {
        "base": {
            "benchmark.class_order": np.arange(10),
            "device": torch.device("cpu"),
            "benchmark.root": tmp_path,
            "policy": "nope",
            "benchmark": "folder",
        },
        "axes": {"seed": range(2), "baseline.lr": np.array([0.5, 1.0]), "baseline.epochs": (np.int64(1), 2)},
    }
    plain = as_plain(grid)
    assert plain == {
        "base": {
            "benchmark.class_order": list(range(10)),
            "device": "cpu",
            "benchmark.root": str(tmp_path),
            "policy": "nope",
            "benchmark": "folder",
        },
        "axes": {"seed": [0, 1], "baseline.lr": [0.5, 1.0], "baseline.epochs": [1, 2]},
    }
    with pytest.raises(ConfigError, match=r"no policy is called 'nope'[\s\S]* \(in 8 cells: "):
        lw2g.sweep(grid, out=tmp_path / "sweep")


def test_a_misspelt_argument_is_told_with_the_one_that_is_meant(tmp_path):
    """By every function, before an image is read."""
    photos = tmp_path / "photos"
    (photos / "cat").mkdir(parents=True)
    (photos / "cat" / "1.png").touch()
    for call, meant in (
        (lambda: lw2g.start(tmp_path, "model", devise="cpu"), r"devise: .* \(did you mean 'device'\?\)"),
        (
            lambda: lw2g.sweep({}, jbs=2),
            r"jbs: no such argument \(did you mean 'jobs'\?\); it takes grid, out",
        ),
        (lambda: lw2g.report(tmp_path, agains="a"), r"agains: .* \(did you mean 'against'\?\)"),
        (
            lambda: lw2g.start(photos, tmp_path / "model", head="ldaa"),
            r"'ldaa' \(did you mean 'lda'\?\)",
        ),
        (lambda: lw2g.load(tmp_path, tsk=1), r"tsk: .* \(did you mean 'task'\?\)"),
        (lambda: lw2g.report(tmp_path, html="a"), r"html: .*: lw2g\.report\(RUNS\)\.save\('page\.html'\)$"),
        (lambda: lw2g.report(tmp_path, "a.html"), r"'a.html' is the name of a page .*\.save\("),
        (lambda: lw2g.report(tmp_path, format="csv"), r"format: .*\.to_text\("),
    ):
        with pytest.raises(ConfigError, match=meant):
            call()


def test_a_missing_argument_is_told_like_a_misspelt_one():
    """By every function that needs one."""
    for call in (lw2g.load, lw2g.sweep, lw2g.continue_run, lw2g.export):
        with pytest.raises(ConfigError, match=r"^\w+: the argument is missing; give \w+=\.\.\.$"):
            call()


def test_an_argument_by_position_that_has_to_be_named_is_told_like_a_misspelt_one():
    """By every function that takes the most by name."""
    methods = (TrainedModel.learn, TrainedModel.unlearn, TrainedModel.test, TrainedModel.predict)
    of_a_model = [partial(method, None) for method in methods]
    for call in (lw2g.load, lw2g.start, lw2g.learn, lw2g.unlearn, lw2g.export, *of_a_model):
        told = (
            r"^got 4 arguments by position, of which it takes \d \([\w, ]+\); name the others: (\w+=(, )?)*$"
        )
        with pytest.raises(ConfigError, match=told):
            call("a", "b", "c", "d")


@pytest.fixture
def decided_by(tmp_path):
    """Return what runs one small experiment under a policy."""
    return partial(
        lw2g.run, baseline="dual-prompt", benchmark="digits", device="cpu", out=tmp_path / "run", epochs=1
    )


def test_a_function_that_returns_no_decision_is_told_by_its_line(decided_by):
    """Where no set lives yet, what is left to return is a new one."""

    def decide(evidence):
        return "grow"

    place = rf"\(.*{Path(__file__).name}:{decide.__code__.co_firstlineno}\)"
    told = (
        rf"^this program: policy 'local-decide', decide: returned 'grow' {place}; there is no set .*Grow\(\)$"
    )
    with pytest.raises(ContractError, match=told):
        decided_by(policy=decide)


def test_an_error_in_a_function_of_a_program_is_told_by_its_own_line(decided_by):
    """Not by the line of lw2g that calls it."""

    def decide(evidence):
        return evidence.tsk  # what is misspelt

    code = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(code, 1) if text.endswith("  # what is misspelt"))
    place = rf"'tsk'; it has 'task' \(.*{Path(__file__).name}:{line}\)$"
    with pytest.raises(ComponentError, match=place):
        decided_by(policy=decide)


def test_a_tracker_that_fails_is_told_without_progress_too(tmp_path, caplog):
    """Once, as a warning; the run goes on."""

    def receive(event):
        raise ValueError("a bug")

    caplog.set_level("INFO", logger="lw2g.progress")
    options = {"benchmark": "digits", "tasks": 1, "device": "cpu", "out": tmp_path / "run"}
    lw2g.run(baseline="simple-cil", trackers=receive, progress=False, **options)
    told = [record.getMessage() for record in caplog.records]
    assert (
        "warning: tracker 'receive', on_event (RunStarted): ValueError: a bug; the run goes on without"
        in told
    )


def test_a_misspelt_folder_is_told_as_one(tmp_path, monkeypatch):
    """A path, or a name below a folder that is here: which folder is missing, and which one is like it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "dogs").mkdir(parents=True)
    told = {
        "photos/dgs": r"benchmark: no folder 'photos/dgs' \(did you mean 'photos/dogs'\?\); give a folder of",
        "./phots/dogs": r"no folder './phots/dogs' \(did you mean 'photos'\?\)",
        "phots": r"no benchmark is called 'phots'; .*no folder 'phots' \(did you mean 'photos'\?\)",
        "somebody/photos": r"benchmark.hub: .*somebody/photos",
        "digit": r"no benchmark is called 'digit' \(did you mean 'digits'\?\); `lw2g plugins benchmark`",
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
    assert "<th>method</th><td>simple-cil with head cosine</td>" in shown
    assert "<th>knows</th><td>4 classes: 0, 1, 2, 5</td>" in shown


def test_classes_may_come_again():
    """Test images go to the first task with their class, or stay where each task is a domain."""
    again = [task(3, 1), (images_of([1, 2], 3, 2), images_of([2], 2, 3)), task(1)]
    stream = GivenBenchmark(GivenConfig(), again).stream()
    assert (stream.class_order, stream.targets) == ((1, 3, 1, 2, 1), (0, 1, 0, 2, 0))
    assert [len(part.train) for part in stream.tasks] == [8, 6, 4]
    assert [part.test.labels.tolist() for part in stream.tasks] == [[1, 1, 0, 0, 0, 0], [3, 3], []]
    assert stream.tasks[2].train.ids[0] == "task-3/train/0"
    (note,) = stream.notes
    assert note.startswith("no new class in task-3: ")
    assert note.endswith('if each task is a domain: **{"benchmark.stream": "domains"}')
    domains = GivenBenchmark(GivenConfig(stream="domains"), [task(0, 1), task(1, 2)]).stream()
    assert domains.notes == GivenBenchmark(GivenConfig(), [task(0, 1), task(1, 2)]).stream().notes == ()
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


@pytest.mark.parametrize("share", [None, 0.25])
def test_labels_may_be_names(tmp_path, capsys, share):
    """They are the classes, numbered in alphabetical order whichever task or split has them first."""
    names = {"dog": 200, "ant": 60, "cat": 120}
    listed = []
    for name, grey in names.items():
        for number in range(4):
            Image.new("RGB", (8, 8), (grey, number, 0)).save(tmp_path / f"{name}{number}.png")
            listed.append((tmp_path / f"{name}{number}.png", name))
    given = listed if share else (listed[::2], listed[1::2])
    made = GivenBenchmark(GivenConfig(increment=1, test_share=share), given).stream()
    assert made.class_names == ("ant", "cat", "dog")
    pixels = [int(part.train.source.image(int(part.train.indices[0]))[0, 0, 0]) for part in made.tasks]
    assert pixels == [60, 120, 200]
    if share is None:
        lines = capsys.readouterr().err.splitlines()
        assert [line.partition(":")[0] for line in lines] == [
            "training images of train",
            "test images of test",
        ]


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([(TRAIN, TEST), (images_of([0], 2, 7), TEST)], "tasks 1 and 2 have the same images"),
        ([(images_of([0, 1], 2, 0), images_of([0], 2, 0))], "class 1 of task-1 is in train and not in test"),
        ([(images_of([0], 2, 0), images_of([0, 1], 2, 0))], "class 1 of task-1 is in test and not in train"),
        ([((TRAIN[0], TRAIN[1] / 1.0), TEST)], "label 0 of task-1/train is 0.0, and no class; give the name"),
        ([((TRAIN[0], [" "] * 8), TEST)], "label 0 of task-1/train is ' ', and no class; give the name"),
        ([((TRAIN[0], ["cat", 0] * 4), TEST)], "some labels of task-1/train are names, and some are numbers"),
        ([((TRAIN[0], ["cat"] * 8), TEST)], "class '?0'? of task-1 is in test and not in train"),
        (
            [("a.png", "cat"), ("b.png", "dog")],
            r"list of \(path, label\), and no .* give two .* test_share=0.2",
        ),
        ([((TRAIN[0], TRAIN[1][:3]), TEST)], "task-1/train has 8 images and 3 labels"),
        ([((TRAIN[0] * 2.0, TRAIN[1]), TEST)], "image 0: pixels of float64 from .* have no known range"),
        (
            [((TRAIN[0].astype("int64"), TRAIN[1]), TEST)],
            r"int64 from .* no known range; give uint8 \(of 0 to 255: \.astype\(\"uint8\"\)\)",
        ),
        (
            [((TRAIN[0] * np.nan, TRAIN[1]), TEST)],
            "float64 that are not finite have no known range",
        ),
        ([(TRAIN, (TEST[0][:0], TEST[1][:0]))], "task-1/test holds no image"),
        ([(TRAIN, 7)], "task-1/test is a int, and no data set"),
        ([((TRAIN[0], None), TEST)], r"task-1/train has a NoneType in \(images, labels\); give"),
        ([TRAIN[0]], r"expected \(train, test\) for task-1 but got a ndarray"),
        ([{"train": TRAIN}], "expected the splits train and test but got train"),
        ([], "no task was given"),
        (None, "benchmark 'given' has no images"),
        (TRAIN, r"expected \(train, test\) for the data set but got \(images, labels\); give two such pairs"),
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


@pytest.mark.parametrize(
    "pair",
    [(TRAIN, TEST), ([("a.png", "cat")], [("b.png", "cat")]), (Unstable(), Unstable())],
    ids=["arrays", "files", "data sets"],
)
def test_two_splits_leave_nothing_to_draw(pair):
    """The second is not read as labels of the first."""
    with pytest.raises(DataError, match=r"two splits, .*, and test_share, .*; leave one of both out"):
        GivenBenchmark(GivenConfig(increment=1, test_share=0.2), pair).stream()


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
