"""Learning from new images alone: equal to the stream, taken back to the bit, checked, refused in a line."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import lw2g
from lw2g.cli.main import main
from lw2g.errors import ConfigError, DataError
from lw2g.ground.notes import tell_note_once
from lw2g.interfaces.head import ClosedForm, HeadContext
from lw2g.maths.few_rows import rows_in
from lw2g.model import exported, places
from lw2g.registry.catalogue import load_catalogue
from lw2g_photos import step_taking as learning

NAMES = ("ant", "bee", "cat", "dog")
SMALL: dict[str, Any] = {
    "benchmark": "glyphs",
    "benchmark.classes_per_family": 1,
    "benchmark.increment": 5,
    "benchmark.train_per_class": 6,
    "benchmark.test_per_class": 2,
    "device": "cpu",
    "precision": "32-true",
    "progress": False,
}


@pytest.fixture(scope="module")
def glyphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Glyphs as files: `first` with two classes, `bee2`, `cat` and `dog` with one each."""
    root = tmp_path_factory.mktemp("glyphs")
    stream = load_catalogue().get("benchmark", "glyphs")
    tasks = stream.build(stream.config(train_per_class=24, test_per_class=6)).stream().tasks
    for number, name in enumerate(NAMES):
        task = tasks[number]
        for split, data in (("train", task.train), ("test", task.test)):
            rows = data.indices[data.labels == task.classes[0]]
            for place, row in enumerate(rows.tolist()):
                pixels = data.source.image(row).permute(1, 2, 0).numpy()
                folders = {"ant": ["first"], "bee": ["first", "bee"]}.get(name, [name])
                if split == "test":
                    folder = root / "test" / name
                else:
                    folder = root / folders[-1 if place >= 12 else 0] / name
                folder.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(folder / f"{place:02d}.png")
    return root


@pytest.fixture(scope="module")
def models(glyphs: Path) -> dict[str, Path]:
    """A model of ant and bee; then cat; then dog; then more bees."""
    root = glyphs / "models"
    made = {name: root / name for name in ("first", "cat", "dog", "bee")}
    lw2g.start(glyphs / "first", made["first"], device="cpu")
    before = "first"
    for name in ("cat", "dog", "bee"):
        lw2g.learn(made[before], glyphs / name, out=made[name], device="cpu")
        before = name
    return made


def png_without_pixels() -> bytes:
    """Return a PNG of 32 x 32 pixels whose chunks are sound and hold none."""
    content = b"\x89PNG\r\n\x1a\n"
    size = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    for kind, data in ((b"IHDR", size), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")):
        content += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return content


RUNNING = "head.ridge.penalty=running"
"""With it the scores depend on the cut into tasks."""


def command(*words: object) -> Any:
    return CliRunner().invoke(main, [*map(str, words)])


def sums(model: Path) -> dict[str, torch.Tensor]:
    return exported.read_export(model).tensors


def same(one: Path, other: Path) -> bool:
    first, second = sums(one), sums(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("head", ["lda", "lda and expert", "cosine", "mahalanobis", "ridge", "anacp"])
def test_learning_equals_the_stream(head: str, glyphs: Path, tmp_path: Path) -> None:
    """A run over two classes, exported, that learns the others has the scores of the run over all of them."""
    data = tmp_path / "data"
    for name in NAMES:
        for split, folder in (("train", "first" if name in ("ant", "bee") else name), ("test", "test")):
            shutil.copytree(glyphs / folder / name, data / split / name)
    head, _, expert = head.partition(" and ")
    shared = {"benchmark.root": str(data), "benchmark.increment": 1, "baseline.head": head}
    if expert:
        shared["routing.expert"] = "frozen"
    if head in ("ridge", "anacp"):
        shared["baseline.head_features"] = 40
    options: dict[str, Any] = {
        "baseline": "simple-cil",
        "benchmark": "folder",
        "device": "cpu",
        "precision": "32-true",  # what `auto` measures may differ between the two runs
        "progress": False,
    }
    for out, tasks in (("whole", 4), ("part", 2)):
        lw2g.run(out=tmp_path / out, tasks=tasks, **options, **shared, **{"benchmark.order": "natural"})
    lw2g.export(tmp_path / "part", tmp_path / "model", learnable=head == "lda")
    for number, name in enumerate(("cat", "dog")):
        lw2g.learn(tmp_path / ("model" if not number else "model-2"), glyphs / name, device="cpu")
    images = sorted((glyphs / "test").rglob("*.png"))
    expected, found = (lw2g.load(tmp_path / name, device="cpu") for name in ("whole", "model-3"))
    assert found.classes == expected.classes == NAMES
    one, other = expected.baseline.closed_form, found.baseline.closed_form
    rows = expected.features(images).double()
    torch.testing.assert_close(other.scores(rows, 4), one.scores(rows, 4), rtol=1e-10, atol=1e-10)
    if expert:
        one, other = expected.baseline.frozen_expert, found.baseline.frozen_expert
        said = one.log_posterior(rows, range(4))
        torch.testing.assert_close(other.log_posterior(rows, range(4)), said, rtol=1e-6, atol=1e-6)
        assert not torch.equal(expected.answer(images).logits, one.product(said, torch.zeros_like(said)))
    assert [row["class"] for row in found.predict(images)] == [
        row["class"] for row in expected.predict(images)
    ]


def test_a_step_taken_back_leaves_the_bits_of_before(models: dict[str, Path], tmp_path: Path) -> None:
    """`unlearn --last` gives the model of before, one step after the other."""
    for now, before in (("bee", "dog"), ("dog", "cat"), ("cat", "first")):
        done = command("unlearn", models[now], "--last", "--out", tmp_path / now, "--device", "cpu")
        assert done.exit_code == 0, done.output
        assert same(tmp_path / now, models[before])
        _, report = lw2g.unlearn(models[now], last=True, out=tmp_path / f"{now}-again", device="cpu")
        assert report["classes"] == list(lw2g.load(models[before]).classes)


def test_a_forgotten_class_was_never_learned(models: dict[str, Path], glyphs: Path, tmp_path: Path) -> None:
    """Forgetting the middle one leaves the sums of a model without it; other classes keep their numbers."""
    lw2g.learn(models["first"], glyphs / "dog", out=tmp_path / "never", device="cpu")
    lw2g.unlearn(models["dog"], "cat", out=tmp_path / "without", device="cpu")
    assert same(tmp_path / "never", tmp_path / "without")
    model = lw2g.load(tmp_path / "without", device="cpu")
    image = next((glyphs / "test/dog").iterdir())
    # its column stays without a name, so that no other class takes its number
    columns = [name if name != "cat" else "(forgotten)" for name in NAMES]
    assert (model.classes, model.forgotten) == (tuple(columns), ("cat",))
    assert "cat" not in model.known
    assert model.predict(image, top_k=9)[0]["class_index"] == 3
    assert len(model.predict(image, top_k=9)[0]["top"]) == 3
    assert model(image)[0, 2] == -torch.inf
    # the number is not given again, and taking a step back does not bring it back either
    again, report = lw2g.learn(tmp_path / "without", glyphs / "cat", out=tmp_path / "again", device="cpu")
    assert (again.classes, again.known[-1]) == ((*columns, "cat"), "cat")
    assert "a class of this name was forgotten" in " ".join(report["warnings"])
    lw2g.unlearn(tmp_path / "again", last=True, out=tmp_path / "undone", device="cpu")
    assert same(tmp_path / "undone", tmp_path / "without")


@pytest.mark.parametrize("head", ["lda", "ridge"])
def test_no_file_of_a_model_of_few_images_tells_of_a_forgotten_class(
    head: str, glyphs: Path, tmp_path: Path
) -> None:
    """Rows, class rows, counts and calibration have the bytes of one that never met it; its name stays."""
    shutil.copytree(glyphs / "first", tmp_path / "two")
    shutil.copytree(glyphs / "cat/cat", tmp_path / "two/cat")
    # wider than images are many, so that each stands as its row of features
    wide = {"backbone.layers": 6, "baseline.head_features": 0}
    for folder, name in ((tmp_path / "two", "with"), (glyphs / "first", "never")):
        lw2g.start(folder, tmp_path / name, head=head, settings=wide, device="cpu")
    done = command("unlearn", tmp_path / "with", "cat", "--out", tmp_path / "without")
    assert f"{tmp_path / 'with'} stays as it is, and still knows it" in done.stderr
    one, other = (exported.read_export(tmp_path / name).manifest for name in ("without", "never"))
    assert rows_in(exported.read_export(tmp_path / "without").tensors) == sum(one.history.steps[0].images)
    assert one.files == other.files  # of both files the bytes
    assert one.tasks == other.tasks
    history, step = one.history, one.history.steps[0]
    assert (history.names, history.numbers, list(history.forgotten)) == (["ant", "bee", "cat"], [0, 1], ["2"])
    # the checksum over all images would tell whether one is among them
    assert step.digest == ""
    assert (step.classes, step.images) == (other.history.steps[0].classes, other.history.steps[0].images)
    assert "cat" not in json.dumps(attrs.asdict(step))
    assert step.checks["interval"] == other.history.steps[0].checks["interval"]


def test_more_images_of_a_known_class_are_one_class(
    models: dict[str, Path], glyphs: Path, tmp_path: Path
) -> None:
    """Bees in two steps are the bees of one step, up to rounding, and can be forgotten from both."""
    whole = tmp_path / "whole"
    shutil.copytree(glyphs / "first", whole)
    shutil.copytree(glyphs / "bee/bee", whole / "bee", dirs_exist_ok=True)
    lw2g.start(whole, tmp_path / "one", device="cpu")
    two, report = lw2g.learn(models["first"], glyphs / "bee", out=tmp_path / "two", device="cpu")
    assert [entry["new"] for entry in report["classes"]] == [False]
    images = sorted((glyphs / "test").rglob("*.png"))
    torch.testing.assert_close(
        two(images), lw2g.load(tmp_path / "one", device="cpu")(images), rtol=1e-5, atol=1e-4
    )
    left, _ = lw2g.unlearn(models["bee"], "bee", out=tmp_path / "left", device="cpu")
    assert {row["class"] for row in left.predict(images)} <= set(NAMES) - {"bee"}
    assert "bee" not in str(left).splitlines()[1]


def test_a_step_costs_the_same_seeds_whatever_came_before(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torch.manual_seed` formats a stack for devices that are not open, and one kind of them keeps it."""
    counts = []
    seed = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda value: counts.append(value) or seed(value))
    asked = []
    for name in ("first", "bee"):
        counts.clear()
        lw2g.load(models[name], device="cpu")
        asked.append(len(counts))
    assert asked[0] == asked[1] < 4


def test_what_a_base_cannot_forget_it_says(
    glyphs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a run, cosine and mahalanobis forget a class exactly; lda has added it to sums that all share."""
    shutil.copytree(glyphs / "test/cat", tmp_path / "new/cat")  # no images that the runs have learned
    for head in ("lda", "cosine", "mahalanobis"):
        lw2g.run(out=tmp_path / head, baseline="simple-cil", **SMALL, **{"baseline.head": head})
        lw2g.export(tmp_path / head, tmp_path / f"{head}-model", learnable=True)
    caplog.clear()
    lw2g.export(tmp_path / "cosine", tmp_path / "plain")
    assert "probabilities are uncalibrated; learnable calibrates them" in caplog.text
    name = lw2g.load(tmp_path / "cosine-model").classes[1]
    with pytest.raises(ConfigError, match="in sums that it shares with other classes; only heads cosine"):
        lw2g.unlearn(tmp_path / "lda-model", name)
    for head in ("cosine", "mahalanobis"):
        less, report = lw2g.unlearn(tmp_path / f"{head}-model", name, device="cpu")
        assert report["out"].endswith(f"{head}-model-2")
        before, image = lw2g.load(tmp_path / f"{head}-model", device="cpu"), torch.randn(5, 3, 32, 32)
        kept = [place for place in range(len(before.classes)) if place != 1]
        assert torch.equal(less(image)[:, kept], before(image)[:, kept])
        learned, _ = lw2g.learn(tmp_path / f"{head}-model-2", tmp_path / "new", device="cpu")
        assert learned.classes[-1] == "cat"
        learned.test(tmp_path / "new")
    assert "if the run trained on these images" not in caplog.text  # of which it keeps features


def test_nothing_is_written_by_a_learner_that_dies(
    models: dict[str, Path], glyphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old model stays as it was, and there is no new one, not even in part."""
    before = {path.name: path.read_bytes() for path in models["first"].iterdir()}

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exported, "seal_json", killed)
    with pytest.raises(KeyboardInterrupt):
        lw2g.learn(models["first"], glyphs / "cat", out=tmp_path / "model", device="cpu")
    monkeypatch.undo()
    monkeypatch.setattr(places, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        lw2g.learn(models["first"], glyphs / "cat", out=tmp_path / "model", device="cpu")
    assert list(tmp_path.iterdir()) == []
    assert {path.name: path.read_bytes() for path in models["first"].iterdir()} == before


def test_a_stopped_command_says_what_it_has_left(
    models: dict[str, Path], glyphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C before the new folder has its name, after it, and where nothing is ever written."""
    first, new = models["first"], tmp_path / "new"
    before = {path.name: path.read_bytes() for path in first.iterdir()}

    def stop(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    def stopped(*words: object) -> str:
        done = command(*words, "--device", "cpu")
        assert (done.exit_code, done.stdout) == (130, "")
        return str(done.stderr).splitlines()[-1]

    kept = f"error: interrupted; nothing was written; {first} is as it was"
    with monkeypatch.context() as patched:
        patched.setattr(places, "write_atomically", stop)
        assert stopped("start", glyphs / "first", new) == "error: interrupted; nothing was written"
        assert stopped("learn", first, glyphs / "cat", "--out", new) == kept
        assert stopped("unlearn", first, "bee") == kept
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as patched:
        patched.setattr("lw2g_photos.photographs._at_home", stop)
        written = stopped("learn", first, glyphs / "cat", "--out", new)
        assert written == f"error: interrupted; {new} was written, whole; {first} is as it was"
    assert lw2g.load(new).classes == ("ant", "bee", "cat")
    with monkeypatch.context() as patched:
        patched.setattr("lw2g_photos.photographs._source", stop)
        assert stopped("test", first, glyphs / "first") == "error: interrupted; nothing was written"
    assert {path.name: path.read_bytes() for path in first.iterdir()} == before


def picture(path: Path, seed: int, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (20, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


@pytest.mark.slow
def test_a_killed_learner_blocks_nothing(models: dict[str, Path], glyphs: Path, tmp_path: Path) -> None:
    """SIGKILL while the new folder is written: the old model is whole, and the same call works at once."""
    shutil.copytree(models["first"], tmp_path / "model")
    before = {path.name: path.read_bytes() for path in models["first"].iterdir()}
    code = (
        "import os, signal, sys, lw2g\n"
        "from lw2g.model import places\n"
        "write = places.write_atomically\n"
        "def die(path, text):\n"
        "    write(path, text)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "places.write_atomically = die\n"
        "lw2g.learn(sys.argv[1], sys.argv[2], device='cpu')\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "model"), str(glyphs / "cat")]
    assert subprocess.run(words, capture_output=True, check=False).returncode == -signal.SIGKILL
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
    assert not (tmp_path / "model-2").exists()
    lw2g.learn(tmp_path / "model", glyphs / "cat", device="cpu")
    assert same(tmp_path / "model-2", models["cat"])


def test_wrong_folders_are_one_line(models: dict[str, Path], glyphs: Path, tmp_path: Path) -> None:
    """Files that are no images, empty classes, equal images, unprintable names: exit code 2 and a remedy."""
    picture(tmp_path / "twice/ant/0.png", 0)
    picture(tmp_path / "twice/bat/0.png", 0)
    for number in range(3):
        picture(tmp_path / f"thrice/ant/{number}.png", number)
        picture(tmp_path / f"thrice/bat/{number}.png", number)
    picture(tmp_path / "escape/\x1b[31mbad/0.png", 0)
    picture(tmp_path / "loose/0.png", 0)
    (tmp_path / "empty/bat").mkdir(parents=True)
    (tmp_path / "text/bat").mkdir(parents=True)
    (tmp_path / "text/bat/0.png").write_text("no image")
    for number in range(2):
        picture(tmp_path / f"several/bat/{number}.png", number)
        (tmp_path / f"several/cat{number}").mkdir()
        (tmp_path / f"several/cat{number}/bad.png").write_text("no image")
    picture(tmp_path / "splits/train/ant/0.png", 0)
    picture(tmp_path / "splits/test/ant/0.png", 1)
    for folder, told in (
        (
            "twice",
            r"1 image lies in two classes, '.*twice/ant/0.png' and '.*twice/bat/0.png'; keep it in one$",
        ),
        ("thrice", r"3 images lie in two classes, first '.*ant/0.png' and '.*bat/0.png'; keep each in one$"),
        ("escape", r"no class can be called '\\x1b\[31mbad'; rename"),
        ("loose", "the image '0.png' lies in no class; make a folder for each class: .*loose/CLASS/IMAGE$"),
        ("empty", r"1 of 1 class in .* holds no image, first 'bat'"),
        ("text", "is no image of the formats"),
        (
            "several",
            r"no image of class 'cat0' and 1 more can be used: 2 .*cat0.*; also .*cat1.*; replace",
        ),
        ("gone", "no folder"),
        (
            "splits",
            "holds train/ and test/ and no classes; the class folders are in .*train: give that$",
        ),
    ):
        done = command("learn", models["first"], tmp_path / folder, "--out", tmp_path / "out")
        assert done.exit_code == 2, folder
        assert re.search(told, done.stderr), done.stderr
        assert done.stderr.count("\n") == 1
        assert not (tmp_path / "out").exists()
    for words, told in (
        (("unlearn", models["first"], "eel"), "no class is called 'eel'"),
        (("unlearn", models["first"]), "give a class or --last"),
        (("unlearn", models["first"], "last"), f"taken back by: lw2g unlearn {models['first']} --last\n"),
        (("unlearn", models["first"], "a", "b"), "one class at a time, or in quotes: 'a b'"),
        (
            ("predict", image := next(glyphs.glob("cat/*/*"))),
            f"the model comes first: lw2g predict MODEL {image}\n",
        ),
        (
            ("predict", glyphs / "cat"),
            f"is no model and no run; the model comes first: lw2g predict MODEL {glyphs / 'cat'}\n",
        ),
        (("predict", models["first"]), "missing argument 'IMAGES...'"),
        (("learn", glyphs, models["first"]), f"the model comes first: lw2g learn {models['first']} {glyphs}"),
        (("unlearn", "cat", models["first"]), f"the model comes first: lw2g unlearn {models['first']} cat"),
        (("test", glyphs, models["first"]), f"the model comes first: lw2g test {models['first']} {glyphs}"),
        (
            ("predict", next(glyphs.glob("cat/*/*")), models["first"]),
            f"lw2g predict {models['first']} {glyphs}",
        ),
        (("start", models["first"], glyphs), f"is a model: lw2g learn {models['first']} {glyphs}"),
        (
            ("start", "m2", glyphs / "first"),
            f"no folder 'm2'; the photos come first: lw2g start {glyphs / 'first'} m2\n",
        ),
        (("start", glyphs / "first", tmp_path / "out", "--device", "gpu"), "error: --device: must be auto"),
        (
            ("start", glyphs / "first", tmp_path / "out", "--weights", "/nope"),
            "error: --weights: no file '/nope'",
        ),
        (("predict", models["first"], "http://x.y/z.jpg"), "'http://x.y/z.jpg' is an address; download it"),
        # a lock, which nobody has named, would be what has too long a name
        (("start", glyphs / "first", tmp_path / ("x" * 250)), f"{'x' * 250}': File name too long"),
        # before any weights are looked for, which are nowhere
        (("start", glyphs, models["first"], "--weights", tmp_path / "no.pt"), "is there already"),
        (("learn", glyphs, glyphs / "cat"), "make one: lw2g start FOLDER MODEL, or of a run: lw2g"),
        (("learn", glyphs / "gone", glyphs / "cat"), "give the folder of a model"),
        (("predict", glyphs / "gone", glyphs / "cat"), "give the folder of a run or a model"),
        (("test", glyphs / "gone", glyphs / "cat"), "give the folder of a run or a model"),
        (("learn", models["first"], glyphs / "cat", "--out", models["cat"]), "is there already"),
        (("learn", models["first"], glyphs / "cat", "--test", glyphs / "dog"), "no class is called 'dog'"),
        (
            ("start", glyphs / "first", tmp_path / "out", "--head", "ridge", "--set", RUNNING),
            "the scores of 'ridge' may depend on how images are cut into tasks",
        ),
        (("start", glyphs / "first", tmp_path / "out", "--head", "ldaa"), "(did you mean 'lda'?)"),
        # before the weights are looked for, which are nowhere
        (
            ("start", glyphs / "frist", tmp_path / "out", "--weights", tmp_path / "no.pt"),
            f"no folder '{glyphs / 'frist'}' (did you mean",
        ),
    ):
        done = command(*words)
        assert (done.exit_code, told in done.stderr) == (2, True), done.stderr


def test_weights_that_moved_are_named_once(glyphs: Path, tmp_path: Path) -> None:
    """The next model records the file that was used, and an error says the one way to give it."""
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    shutil.copy(files("lw2g_backbones").joinpath("micro.safetensors"), old)
    words = ("--backbone", "micro", "--weights", old)
    assert command("start", glyphs / "first", tmp_path / "model", *words).exit_code == 0
    old.rename(new)
    lost = command("learn", tmp_path / "model", glyphs / "cat")
    assert re.search(r"no weights file .*old\.safetensors'; give .* --weights FILE, or", lost.stderr)
    assert command("learn", tmp_path / "model", glyphs / "cat", "--weights", new).exit_code == 0
    assert command("unlearn", tmp_path / "model-2", "cat").exit_code == 0
    assert command("predict", tmp_path / "model-3", glyphs / "test/ant").exit_code == 0
    old.hardlink_to(new)
    less = command("unlearn", tmp_path / "model-2", "--last", "--weights", old)
    assert less.exit_code == 0
    assert json.loads((tmp_path / "model-4/model.json").read_text())["backbone"]["weights"] == str(old)


def test_show_says_what_a_model_knows(models: dict[str, Path], glyphs: Path, tmp_path: Path) -> None:
    """Whoever finds a model learns its classes, when it learned what, and by what it answers."""
    done = command("learn", models["first"], glyphs / "cat", "--out", tmp_path / "more")
    assert done.exit_code == 0
    more = f"{tmp_path}/more"
    following = f"next: lw2g predict {more} PHOTO --reject 0.05; back again: lw2g unlearn {more} --last"
    assert done.stdout.splitlines()[-1] == following
    lines = command("show", tmp_path / "more").stdout.splitlines()
    assert lines[0] == "3 classes: ant, bee, cat"
    assert lines[2].endswith(": learned 24 images of cat from cat")
    # of the model as it is, and not of the step
    assert re.fullmatch(
        r"accuracy: [\d.]+ % of 60 images, each left out in turn \(.*\); these images.*", lines[3]
    )
    assert lines[4:] == ["formula lda, backbone micro at 32 pixels"]
    whole = command("show", tmp_path / "more", "--all").stdout.splitlines()
    assert whole[:5] == lines
    assert whole[5].startswith("head: lda ")
    assert whole[6] == "baseline simple-cil"
    assert whole[7].startswith("weights: ")
    assert whole[8] == "the model now, each image left out in turn:"
    rows = [line.split() for line in whole[9:] if line.split()[:1] in (["ant"], ["bee"], ["cat"])]
    assert [row[0] for row in rows] == ["ant", "bee", "cat"]
    assert not [line for line in whole if "images set apart" in line], "of four images: no second accuracy"
    content = json.loads(command("show", tmp_path / "more", "--json").stdout)
    for further in ((), ("--all",)):  # numbers of a model are explained nowhere
        refused = command("show", tmp_path / "more", "--explain", *further)
        assert refused.exit_code == 2
        assert "--explain is of a run; of a model there is --all" in refused.stderr
    assert content["learning"]["names"] == ["ant", "bee", "cat"]


def test_show_says_from_which_folders_it_was_learned_and_tested(glyphs: Path, tmp_path: Path) -> None:
    """By the folders' names alone, of a split with that above it; old models and images of a program, too."""
    shutil.copytree(glyphs / "first", tmp_path / "photos/train")
    for name in ("ant", "bee"):
        shutil.copytree(glyphs / "test" / name, tmp_path / "photos/test" / name)
    model = tmp_path / "model"
    report = lw2g.start(tmp_path / "photos/train", model, test=tmp_path / "photos/test", device="cpu")[1]
    lines = command("show", model).stdout.splitlines()
    assert lines[1].endswith(": learned 36 images of ant, bee from photos/train")
    assert re.match(r"accuracy: [\d.]+ % of 12 images from photos/test \(", lines[2])
    assert "step 1, images set apart" in command("show", model, "--all").stdout
    assert (report["learned_from"], report["tested_on"]) == ("photos/train", "photos/test")
    described = f"{lw2g.start.__doc__}{lw2g.learn.__doc__}"
    assert not [key for key in (*report, *report["classes"][0]) if f"``{key}``" not in described]
    assert str(tmp_path) not in command("show", model, "--json").stdout
    given = [(Image.open(path), path.parent.name) for path in sorted((glyphs / "cat").rglob("*.png"))]
    lw2g.learn(model, given, out=tmp_path / "more", test=tmp_path / "photos/test", device="cpu")
    assert "images of cat from a program\n" in command("show", tmp_path / "more").stdout


def test_what_takes_long_says_how_far_it_has_come(
    models: dict[str, Path], glyphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stderr, so that --json stays JSON; what is done at once says nothing."""
    words = ("predict", models["first"], glyphs / "test", "--batch-size", "4", "--json")
    assert "of" not in command(*words).stderr
    monkeypatch.setattr("lw2g.runtime.telling._SECONDS", 0.0)
    done = command(*words)
    counts = [line.partition(" images, ")[0] for line in done.stderr.splitlines()]
    assert counts[:2] == ["predicting: 4 of 24", "predicting: 8 of 24"]
    assert len(json.loads(done.stdout)) == 24
    done = command("start", glyphs / "first", tmp_path / "model")
    told = re.findall(r"reading: (\d+) of 36 images", done.stderr)
    assert told == sorted(told, key=int)
    assert told


def test_from_python_all_bad_files_are_named_before_an_answer(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad file among thousands would lose the answers for the others."""
    for number in range(3):
        picture(tmp_path / f"{number}.png", number)
    for name in ("x.png", "y.png"):
        (tmp_path / name).write_text("no image")
    monkeypatch.setattr(
        "lw2g.model.trained.TrainedModel._answers", lambda *_, **__: pytest.fail("it answers")
    )
    with pytest.raises(DataError, match=r"2 images cannot be used, first .*y\.png'; replace or remove them"):
        lw2g.load(models["first"], device="cpu").predict(tmp_path)


def test_a_bad_file_loses_no_other_answer(models: dict[str, Path], glyphs: Path, tmp_path: Path) -> None:
    """The others have their own bits and places; the bad ones are named, and the exit code is 1."""
    shutil.copytree(glyphs / "test/ant", tmp_path / "ant")
    alone = json.loads(command("predict", models["first"], tmp_path / "ant", "--json").stdout)
    whole = (tmp_path / "ant/00.png").read_bytes()
    (tmp_path / "ant/01a.png").write_bytes(whole[: len(whole) // 2])
    # its checksums hold, so that it looks whole until it is decoded
    (tmp_path / "ant/99.png").write_bytes(png_without_pixels())
    done = command("predict", models["first"], tmp_path / "ant", "--json")
    assert done.exit_code == 1
    entries = json.loads(done.stdout)
    assert [entry for entry in entries if "error" not in entry] == alone
    assert [Path(entry["path"]).name for entry in entries if "error" in entry] == ["01a.png", "99.png"]
    assert [entries[place]["top"] for place in (2, -1)] == [[], []]
    assert [line.count(": it is damaged and") for line in done.stderr.splitlines()] == [1, 1]
    done = command("predict", models["first"], tmp_path / "ant", "--reject", 0.05)
    assert (done.exit_code, done.stdout.count("cannot be used")) == (1, 2)


def test_one_bad_file_or_bad_files_alone_are_errors(models: dict[str, Path], tmp_path: Path) -> None:
    """Where there is no answer at all, the command fails as for any other mistake."""
    for name in ("x.png", "y.png"):
        (tmp_path / name).write_text("no image")
        done = command("predict", models["first"], tmp_path)
        assert (done.exit_code, done.stdout) == (2, "")
    assert "2 images cannot be used, first" in done.stderr


@pytest.mark.usefixtures("without_heic")
@pytest.mark.parametrize("name", ["predict", "test"])
def test_what_a_folder_holds_besides_images_is_told(
    name: str, models: dict[str, Path], glyphs: Path, tmp_path: Path
) -> None:
    """A photograph in a format that is not read has no answer, and says so; what is read has one."""
    shutil.copytree(glyphs / "test/ant", tmp_path / "ant")
    (tmp_path / "ant/photo.HEIC").touch()
    Image.new("L", (32, 32)).save(tmp_path / "ant/grey.pgm")
    done = command(name, models["first"], tmp_path, "--json")
    assert done.exit_code == 0
    assert "passed over: 1 .heic; convert HEIC" in done.stderr
    assert done.stderr.startswith("note: ")
    assert len(json.loads(done.stdout)) == 7 or json.loads(done.stdout)["images"] == 7


def test_a_class_has_one_name_in_either_unicode_form(glyphs: Path, tmp_path: Path) -> None:
    """A folder that a Mac has unpacked adds to the class, tests it, and names it to be forgotten."""
    cafe, decomposed = "caf\u00e9", "cafe\u0301"
    shutil.copytree(glyphs / "first/ant", tmp_path / "first" / cafe)
    shutil.copytree(glyphs / "first/bee", tmp_path / "first/bee")
    shutil.copytree(glyphs / "bee/bee", tmp_path / "more" / decomposed)
    shutil.copytree(glyphs / "test/ant", tmp_path / "test" / decomposed)
    lw2g.start(tmp_path / "first", tmp_path / "model", device="cpu")
    learned = command("learn", tmp_path / "model", tmp_path / "more", "--out", tmp_path / "two", "--json")
    (entry,) = json.loads(learned.stdout)["classes"]
    assert (entry["class"], entry["new"]) == (cafe, False)
    tested = command("test", tmp_path / "model", tmp_path / "test", "--json")
    assert [row["class"] for row in json.loads(tested.stdout)["classes"]] == [cafe]
    done = command("unlearn", tmp_path / "two", decomposed, "--out", tmp_path / "three", "--json")
    assert json.loads(done.stdout)["forgotten"] == [cafe]


def test_an_image_counts_once_however_often_it_is_learned(
    models: dict[str, Path], glyphs: Path, tmp_path: Path
) -> None:
    """Features tell: what was learned before is left out or refused, and no check asks for it."""
    new = tmp_path / "new"
    shutil.copytree(glyphs / "first/ant", new / "ant")
    alone = command("learn", models["cat"], new)
    assert (alone.exit_code, alone.stdout) == (2, "")
    assert "there is nothing new to learn: 24 images learned before; give others" in alone.stderr
    shutil.copytree(glyphs / "dog/dog", new / "dog")
    shutil.copytree(glyphs / "first/bee", new / "bee")
    shutil.copytree(glyphs / "bee/bee", new / "bee", dirs_exist_ok=True)
    for path in (new / "bee").glob("*.png"):  # in another encoding it is the same image
        Image.open(path).save(path.with_suffix(".bmp"))
        path.unlink()
    told = command("learn", models["cat"], new, "--test", glyphs / "first")
    assert "test: all of its images (36) are among those that are learned, now or before" in told.stderr
    shutil.copytree(glyphs / "first", tmp_path / "ask")
    shutil.copy(min((glyphs / "test/ant").iterdir()), tmp_path / "ask/ant/new.png")
    done = command("learn", models["cat"], new, "--test", tmp_path / "ask", "--out", tmp_path / "out")
    assert "% of 37 images from ask" in done.stdout
    assert "note: 36 images learned before, and left out" in done.stderr
    assert "test: shares 36 images with what is learned" in done.stderr
    assert "learned 36 images of 1 new class and 1 known class" in done.stdout
    for name in ("bee", "dog"):
        lw2g.learn(models["cat"] if name == "bee" else tmp_path / "bee", glyphs / name, out=tmp_path / name)
    image = torch.randn(3, 3, 32, 32)
    one, other = (lw2g.load(tmp_path / name, device="cpu")(image) for name in ("out", "dog"))
    assert torch.allclose(one, other)  # as if the copies had not been there
    shutil.move(new / "ant/00.png", new / "dog/ant00.png")
    twice = command("learn", models["cat"], new)
    assert twice.exit_code == 2
    assert (
        f"1 image learned before as another class, first '{new}/dog/ant00.png' as 'ant'; keep" in twice.stderr
    )
    assert (
        "learned before"
        not in command("learn", models["cat"], glyphs / "dog", "--out", tmp_path / "no").stderr
    )


def test_a_root_one_level_too_high_is_told(glyphs: Path, tmp_path: Path) -> None:
    """The folders of two domains share their names: both commands are named, and the model is made."""
    for domain, cut in (("Art", slice(0, 6)), ("Real", slice(6, 12))):
        for name in ("ant", "bee"):
            (tmp_path / "root" / domain / name).mkdir(parents=True)
            for path in sorted((glyphs / "first" / name).iterdir())[cut]:
                shutil.copy(path, tmp_path / "root" / domain / name)
    done = command("start", tmp_path / "root", tmp_path / "model")
    assert done.exit_code == 0
    run = f"lw2g run --recommended --backbone micro --benchmark folder --set benchmark.root={tmp_path}/root"
    assert f"give {tmp_path}/root/Art for one domain, or for all of them: {run} " in done.stderr
    assert "--set benchmark.stream=domains" in done.stderr
    assert "images of subfolders" not in done.stderr, "the same once more"
    domains, learned = "these look like domains, as ", "model: learned "
    assert 0 < done.output.index(domains) < done.output.index(learned), "it comes first"
    assert "lw2g run --trained" not in done.stdout, "no advice on classes that nobody meant"
    done = command("learn", tmp_path / "model", tmp_path / "root", "--test", tmp_path / "root")
    assert done.exit_code == 2  # the same images
    for domain, name in (("Art", "ant"), ("Real", "bee")):
        shutil.copy(min((glyphs / "test" / name).iterdir()), tmp_path / "root" / domain / name / "new.png")
    done = command("learn", tmp_path / "model", tmp_path / "root", "--out", tmp_path / "more")
    learned = f"more (from {tmp_path}/model): learned 2 images"
    again = "note: 24 images learned before, and left out"
    assert 0 < done.output.index(domains) < done.output.index(learned) < done.output.index(again)
    assert done.output.count(domains) == 1
    scored = command("test", tmp_path / "model", tmp_path / "root")
    assert "root/Art for one domain\n" in scored.stderr, "a test of a model is no place for a run"


def test_a_file_that_is_no_image_is_as_if_it_were_not_there(
    models: dict[str, Path], glyphs: Path, tmp_path: Path
) -> None:
    """One damaged photograph among many stops nobody: a line names it, and the model has the same bits."""
    shutil.copytree(glyphs / "cat", tmp_path / "new")
    whole = (tmp_path / "new/cat/00.png").read_bytes()
    (tmp_path / "new/cat/00a.png").write_bytes(whole[: len(whole) // 2])
    for number in range(4):
        (tmp_path / f"new/cat/z{number}.png").write_bytes(b"")
    # its checksums hold, so that it looks whole until it is decoded
    (tmp_path / "new/cat/z4.png").write_bytes(png_without_pixels())
    done = command("learn", models["first"], tmp_path / "new", "--out", tmp_path / "out")
    first = f"note: left out 6 of 30 images, first '{tmp_path}/new/cat/00a.png': it is damaged and cannot be"
    assert done.stderr.count(first) == 1
    assert "z0.png', '" in done.stderr
    assert done.stderr.count("z4.png'\n") == 1
    assert same(tmp_path / "out", models["cat"])
    scored = command("test", tmp_path / "out", tmp_path / "new")
    assert scored.stdout.count("of 24 images, of which it has learned all, of 1 class\n") == 1
    assert scored.stderr.count("left out 5 of 30 images, first") == 1
    assert f"left out 1 of 25 images, first '{tmp_path}/new/cat/z4.png'" in scored.stderr
    # where the head is chosen, too
    shutil.copytree(glyphs / "first", tmp_path / "both")
    (tmp_path / "both/ant/z.png").write_bytes(png_without_pixels())
    done = command("start", tmp_path / "both", tmp_path / "begun", "--device", "cpu")
    assert f"left out 1 of 37 images, first '{tmp_path}/both/ant/z.png'" in done.stderr
    lw2g.start(glyphs / "first", tmp_path / "clean", device="cpu")
    assert same(tmp_path / "begun", tmp_path / "clean")


@pytest.mark.usefixtures("without_heic")
def test_files_that_are_passed_over_are_told(models: dict[str, Path], glyphs: Path, tmp_path: Path) -> None:
    """A photograph in a format that is not read would else be missed by nobody."""
    shutil.copytree(glyphs / "cat", tmp_path / "new")
    for name in ("a.HEIC", "b.heic", "notes.txt", ".hidden"):
        (tmp_path / "new/cat" / name).write_text("no image")
    done = command("learn", models["first"], tmp_path / "new", "--out", tmp_path / "out")
    assert (
        "files of no known image format were passed over: 2 .heic, 1 .txt; convert HEIC to JPEG"
        in done.stderr
    )


def test_a_model_is_named_as_the_next_command_names_it(
    models: dict[str, Path], glyphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative where the user was relative."""
    shutil.copytree(models["first"], tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    assert command("learn", "model", glyphs / "cat").stdout.startswith("model-2 (from model): learned ")
    assert command("unlearn", "model-2", "--last").stdout.startswith("model-3 (from model-2): 2 classes")


def test_who_begins_at_an_old_model_again_is_told_of_the_later_one(
    models: dict[str, Path], glyphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of classes that it knows besides, or of the same images; nothing where one goes on from the newest."""
    shutil.copytree(models["first"], tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    notes = []
    for model, name in (("model", "cat"), ("model", "cat"), ("model-2", "dog"), ("model", "dog")):
        done = command("learn", model, glyphs / name)
        assert done.exit_code == 0, done.output
        notes.append([line for line in done.stderr.splitlines() if "learn model" in line or "go on" in line])
    assert notes == [
        [],
        ["note: model-2 has learned these images already: go on from it, and remove model-3"],
        [],
        ["note: model-4 has learned these images already: go on from it, and remove model-5"],
    ]
    more = command("learn", "model", glyphs / "bee").stderr
    assert f"note: model-4 also knows cat, dog; to add to it: lw2g learn model-4 {glyphs / 'bee'}\n" in more
    # the later model would warn of this name as well
    shutil.copytree(glyphs / "dog" / "dog", tmp_path / "slip" / "Cat")
    slip = command("learn", "model", "slip").stderr
    assert "note: model-4 also knows cat, dog\n" in slip


def test_every_command_names_a_model_to_give_in_place_of_their_folder(
    models: dict[str, Path], glyphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a session of the page holds several; none of the commands advises to make another."""
    monkeypatch.chdir(tmp_path)
    for number in ("1", "2"):
        shutil.copytree(models["first"], tmp_path / "model-taught" / number)
    folder = glyphs / "cat"
    for words in (
        ["learn", "model-taught", folder],
        ["unlearn", "model-taught", "--last"],
        ["unlearn", "model-taught", "ant"],
        ["teach", "model-taught"],
        ["test", "model-taught", folder],
        ["predict", "model-taught", next(folder.rglob("*.png"))],
        ["show", "model-taught"],
        ["export", "model-taught", "out"],
    ):
        done = command(*words)
        assert done.exit_code == 2, words
        told = "error: 'model-taught' holds 2 models; the latest: model-taught/2\n"
        assert done.stderr == told, words


def test_what_is_taken_back_leaves_one_accuracy(
    models: dict[str, Path], glyphs: Path, tmp_path: Path
) -> None:
    """`unlearn` tells what `show` tells: images of --test were asked of a model that knew the class, too."""
    test = tmp_path / "test"
    for name in ("ant", "bee"):
        shutil.copytree(glyphs / "test" / name, test / name)
    lw2g.learn(models["first"], glyphs / "cat", tmp_path / "cat", test=test, device="cpu")
    lw2g.learn(tmp_path / "cat", glyphs / "dog", tmp_path / "dog", device="cpu")
    led = []
    for model, *words in (
        *(("cat", "cat"), ("dog", "cat"), ("cat", "bee"), ("dog", "--last")),
        *(("dog", "bee"), ("dog-bee", "--last")),  # the step before has asked of the bee, too
        ("dog", "dog"),  # but never of the dog
    ):
        out = tmp_path / "-".join([model, *words])
        said = command("unlearn", tmp_path / model, *words, "--out", out).stdout
        (accuracy,) = (line for line in said.splitlines() if line.startswith("accuracy: "))
        assert accuracy in command("show", out).stdout.splitlines()
        led.append("each left out" if "each left out in turn" in accuracy else "test")
    assert led == [*["each left out"] * 3, "test", *["each left out"] * 2, "test"]


def test_the_accuracy_is_that_of_the_images_that_are_counted(glyphs: Path, tmp_path: Path) -> None:
    """What is printed beside a number of images is their share; kept images have a figure of their own."""
    for report in (
        lw2g.start(glyphs / "first", tmp_path / "model", device="cpu")[1],
        lw2g.learn(tmp_path / "model", glyphs / "cat", out=tmp_path / "more", device="cpu")[1],
    ):
        checked = sum(entry["checked"] for entry in report["classes"])
        right = sum(
            entry["checked"] * entry["recall"] / 100 for entry in report["classes"] if entry["checked"]
        )
        assert report["accuracy"] == pytest.approx(100 * right / checked)
        assert report["left_out"] > checked
        assert report["left_out_accuracy"] is not None


def test_photos_need_a_backbone_that_knows_them(tmp_path: Path) -> None:
    """Nobody gets the embedded backbone for large images unasked; by name it is taken, with a note."""
    for name, red in (("photos/cat", 0), ("photos/dog", 250), ("more/cow", 120)):
        (tmp_path / name).mkdir(parents=True)
        for number in range(5):
            picture = np.random.default_rng(number).integers(0, 256, (40, 60, 3), dtype=np.uint8)
            picture[..., 0] = red
            Image.fromarray(picture).save(tmp_path / name / f"{number}.png")
    refused = command("start", tmp_path / "photos", tmp_path / "model")
    assert refused.exit_code == 2
    assert "has 60 x 40 pixels" in refused.stderr
    assert "--backbone vit-tiny" in refused.stderr
    assert not (tmp_path / "model").exists()
    taken = command(
        "start", tmp_path / "photos", tmp_path / "model", "--backbone", "micro", "--device", "cpu"
    )
    assert taken.exit_code == 0, taken.output
    for word, images in (("learn", "more"), ("predict", "more/cow"), ("predict", "more/cow/0.png")):
        tell_note_once.cache_clear()
        told = command(word, tmp_path / "model", tmp_path / images, "--device", "cpu").stderr
        assert told.count("pixels, and the embedded backbone knows drawings of up to 32 x 32 alone") == 1


def test_a_batch_is_smaller_where_an_image_has_many_tokens(glyphs: Path, tmp_path: Path) -> None:
    """One photo is answered by a forward of few, with the bits that it has in any company."""
    lw2g.start(glyphs / "first", tmp_path / "model", image_size=128, device="cpu")
    model = lw2g.load(tmp_path / "model", device="cpu")
    assert model.batch_size == 1600 // 257
    images = sorted((glyphs / "cat" / "cat").iterdir())
    together = model.answer(images).logits
    for place, image in enumerate(images[:3]):
        assert torch.equal(model.answer([image]).logits[0], together[place])
    small = lw2g.start(glyphs / "first", tmp_path / "small", device="cpu")[0]
    assert small.batch_size == 32


def test_few_and_odd_images_are_learned_and_told(models: dict[str, Path], tmp_path: Path) -> None:
    """One image, 16 bits, copies, a name in capitals: learned, with a word on each; classes can go then."""
    wide = np.arange(400, dtype=np.uint16).reshape(20, 20) * 100
    (tmp_path / "new/eel").mkdir(parents=True)
    Image.fromarray(wide).save(tmp_path / "new/eel/0.png")
    shutil.copy(tmp_path / "new/eel/0.png", tmp_path / "new/eel/1.png")
    for number in range(5):
        picture(tmp_path / f"new/Bee {number // 4}/{number}.png", number)
    (tmp_path / "new/Bee 0").rename(tmp_path / "new/Be-e")
    done = command("learn", models["first"], tmp_path / "new", "--out", tmp_path / "out", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "not checked, as a single image cannot be left out: Bee 1, eel\n" in done.stderr
    assert done.stderr.count("if both are one") == 1
    assert (
        "note: 'Be-e' is a new class beside 'bee': if both are one, go back to the model before "
        "and teach it these as 'bee'\n"
    ) in done.stderr
    assert "1 copy of other images, counted once, in " in done.stderr
    assert command("predict", tmp_path / "out", tmp_path / "new/eel/0.png").stdout.count("eel") == 2
    done = command("unlearn", tmp_path / "out", "ant", "--out", tmp_path / "less", "--device", "cpu")
    made, accuracy, following = done.stdout.splitlines()
    assert made == f"{tmp_path / 'less'} (from {tmp_path / 'out'}): 4 classes; gone: ant"
    assert re.match(r"accuracy: .* images?, each left out in turn", accuracy)
    assert following.startswith(f"next: lw2g predict {tmp_path / 'less'} PHOTO")
    assert "remove that folder" in done.stderr
    done = command("unlearn", tmp_path / "out", "--last", "--out", tmp_path / "before", "--device", "cpu")
    assert "stays as it is, and still knows them\n" in done.stderr


def test_a_twin_is_told_and_a_loss_refused(glyphs: Path, tmp_path: Path) -> None:
    """Other images of ant under a new name cannot be told from it."""
    shutil.copytree(glyphs / "test/ant", tmp_path / "new/aunt")
    first = tmp_path / "first"
    lw2g.start(glyphs / "first", first, head="lda", device="cpu")
    _, report = lw2g.learn(first, tmp_path / "new", out=tmp_path / "out", device="cpu")
    assert report["twins"][0]["like"] == "ant"
    assert report["losing"][0]["class"] == "ant"
    assert report["loss"] > 5
    with pytest.raises(ConfigError, match="max_loss: the loss of the old classes is"):
        lw2g.learn(first, tmp_path / "new", out=tmp_path / "no", max_loss=1, device="cpu")
    assert not (tmp_path / "no").exists()


def _right_of_old(checks: dict[str, Any]) -> dict[str, float]:
    """Return of each class how many of its images are found, each left out in turn."""
    rows = checks["left_out_classes"]
    return {row["class"]: row["recall"] * row["left_out"] / 100 for row in rows}


@pytest.mark.parametrize("head", ["auto", "lda", "ridge"])
def test_the_loss_is_between_the_model_of_before_and_the_new_one(
    head: str, glyphs: Path, tmp_path: Path
) -> None:
    """Whether the head is chosen again or stays: both models are asked for the same images."""
    _, before = lw2g.start(glyphs / "first", tmp_path / "1", head=head, device="cpu")
    shutil.copytree(glyphs / "test/ant", tmp_path / "new/aunt")
    shutil.copytree(glyphs / "cat/cat", tmp_path / "new/cat")
    _, after = lw2g.learn(tmp_path / "1", tmp_path / "new", out=tmp_path / "2", device="cpu")
    old, now = _right_of_old(before), _right_of_old(after)
    images = before["left_out"]
    right = 100 * sum(old.values()) / images
    still = 100 * sum(now[name] for name in old) / images
    assert after["old_classes"] == {
        "images": images,
        "before": pytest.approx(right),
        "now": pytest.approx(still),
    }
    assert after["loss"] == pytest.approx(right - still)
    assert before["old_classes"] is None


def test_images_of_a_known_class_cost_the_others_what_they_cost(glyphs: Path, tmp_path: Path) -> None:
    """No class is new, and yet old images may be lost: ants that are taught as bees draw ants to bee."""
    _, before = lw2g.start(glyphs / "first", tmp_path / "1", head="lda", device="cpu")
    shutil.copytree(glyphs / "test/ant", tmp_path / "new/bee")
    _, after = lw2g.learn(tmp_path / "1", tmp_path / "new", out=tmp_path / "2", device="cpu")
    old, now = _right_of_old(before), _right_of_old(after)
    assert now["ant"] < old["ant"]
    assert after["loss"] > 0
    with pytest.raises(ConfigError, match="max_loss: the loss of the old classes is"):
        lw2g.learn(tmp_path / "1", tmp_path / "new", out=tmp_path / "no", max_loss=0, device="cpu")


@pytest.mark.parametrize(
    ("loss", "estimated", "most", "told"),
    [
        (2.0, None, 1.0, "is 2.0 points, above 1: nothing was written; raise max_loss to accept it"),
        (None, 3.0, 2.0, "is 3.0 points, above 2: "),
        (0.0, 3.0, 2.0, "is 3.0 points, above 2: "),
        (3.0, 0.0, 2.0, "is 3.0 points, above 2: "),
        (None, None, 100.0, "cannot be estimated for this head: nothing was written; leave max_loss out"),
        (0.1, 0.0, 0.0, "is 0.1 points, above 0: "),
        (0.0, 0.0, 0.0, ""),
        (-1.0, None, 0.0, ""),
        (2.0, 1.0, 2.0, ""),
        (None, None, None, ""),
        (90.0, 90.0, None, ""),
    ],
)
def test_the_larger_loss_decides_and_no_more_than_allowed_passes(
    loss: float | None,
    estimated: float | None,
    most: float | None,
    told: str,
    models: dict[str, Path],
    glyphs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what was measured and what was estimated; nothing is written where it is more, or not known."""
    look = learning.look_alikes
    found = None if loss is None else {"images": 100, "before": 50.0, "now": 50.0 - loss}
    monkeypatch.setattr(learning, "old_images_found", lambda *given: found)
    monkeypatch.setattr(learning, "look_alikes", lambda *given: look(*given) | {"estimated_loss": estimated})
    out = tmp_path / "out"
    if told:
        with pytest.raises(ConfigError, match=f"max_loss: the loss of the old classes {told}"):
            lw2g.learn(models["first"], glyphs / "cat", out=out, max_loss=most, device="cpu")
        assert not out.exists()
        return
    _, report = lw2g.learn(models["first"], glyphs / "cat", out=out, max_loss=most, device="cpu")
    assert (report["loss"], report["estimated_loss"]) == (loss, estimated)
    assert lw2g.load(out, device="cpu").classes == ("ant", "bee", "cat")


def test_unknown_images_are_rejected_on_request_alone(models: dict[str, Path], glyphs: Path) -> None:
    """Without the option answers are as before; with it, noise is unknown and the rate is kept to."""
    model = lw2g.load(models["dog"], device="cpu")
    images = sorted((glyphs / "test").rglob("*.png"))
    plain = model.predict(images)
    assert not plain[0].keys() & {"score", "threshold", "rejected", "best"}
    found = model.predict(images, reject=0.05)
    assert [row["best"] for row in found] == [row["class"] for row in plain]
    assert all(
        (row["class"] is None) == row["rejected"] == (row["score"] < row["threshold"]) for row in found
    )
    assert all((row["class_index"] is None) == row["rejected"] for row in found), (
        "no number of a class, either"
    )
    assert np.mean([row["rejected"] for row in found]) < 0.4
    noise = torch.randint(
        0, 255, (8, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    assert np.mean([row["rejected"] for row in model.predict(list(noise), reject=0.2)]) > 0.7
    done = command("predict", models["dog"], images[0], "--reject", "0.001")
    assert done.exit_code == 2
    assert re.search(r"a rate of 0.001 needs 999 learned images .*the model has \d+; raise", done.stderr)
    Image.fromarray(noise[0].permute(1, 2, 0).numpy()).save(glyphs / "noise.png")
    words = ("predict", models["dog"], glyphs / "noise.png", "--top-k", "3", "--reject", "0.2")
    told = command(*words).stdout
    assert told.count("unknown (nearest: ") == 1
    assert told.rstrip().splitlines()[-1].count("unknown") == 1  # other known classes tell nothing of it
    assert "%" not in told  # a share of the known classes is none of what is no known class
    told = json.loads(command("predict", models["dog"], images[0], "--reject", "0.1", "--json").stdout)
    assert told[0].keys() >= {"score", "threshold", "rejected", "best"}


def test_a_model_that_cannot_learn_says_so(tmp_path: Path) -> None:
    """A trained head has no sums, and a history from elsewhere has to fit."""
    lw2g.run(out=tmp_path / "run", baseline="no-prompt", **SMALL, **{"baseline.epochs": 1})
    with pytest.raises(ConfigError, match="the head of baseline 'no-prompt' is trained"):
        lw2g.export(tmp_path / "run", tmp_path / "out", learnable=True)
    with pytest.raises(DataError, match=r"holds a run and no exported model; make one: lw2g\.export"):
        lw2g.load(tmp_path / "run").learn(tmp_path)


def test_a_method_with_tensors_for_each_task_learns_and_forgets(
    glyphs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A trained head beside the closed form gets tensors with every task, which go when the task does.

    The model keeps no features of the images that trained it, and `test` says that it cannot tell them.
    """
    options = {"baseline.head": "lda", "baseline.epochs": 1}
    lw2g.run(out=tmp_path / "run", baseline="slca-plus-plus", **SMALL, **options)
    lw2g.export(tmp_path / "run", tmp_path / "model", learnable=True)
    learned, _ = lw2g.load(tmp_path / "model", device="cpu").learn(glyphs / "cat")
    learned.test(glyphs / "cat")
    assert "if the run trained on these images, which its model cannot tell" in caplog.text
    lw2g.unlearn(tmp_path / "model-2", "cat", device="cpu")
    before, after = sums(tmp_path / "model"), sums(tmp_path / "model-3")
    assert all(torch.equal(before[name], after[name]) for name in before.keys() | after.keys())


@pytest.mark.parametrize("expert", ["frozen", "auto"])
def test_head_and_expert_learn_and_forget_alike(expert: str, glyphs: Path, tmp_path: Path) -> None:
    """Sums of both grow by the new images and lose them again; a class of the base is in sums of all."""
    options = {"baseline.head": "lda", "baseline.head_carry": "gated", "routing.expert": expert}
    lw2g.run(out=tmp_path / "run", baseline="slca-plus-plus", **SMALL, **options, **{"baseline.epochs": 1})
    lw2g.export(tmp_path / "run", tmp_path / "model", learnable=True)
    model, report = lw2g.load(tmp_path / "model", device="cpu").learn(glyphs / "cat")
    classifier = model.baseline.frozen_expert.classifier
    counts = (model.baseline.closed_form.count, classifier.count)
    # the head's temperature beside `auto` is fitted to one image of each class in the run
    learned = 5 if expert == "auto" else 6
    assert counts[0].tolist() == counts[1].tolist() == [learned] * 5 + [24]
    images = sorted((glyphs / "cat" / "cat").iterdir())
    pixels = torch.stack([model.transform(str(path)) for path in images])
    queries = model.backbone.features(pixels).double()
    mean = classifier.mean[5] if expert == "frozen" else classifier.sums.cross[5] / 24
    torch.testing.assert_close(mean, queries.mean(0), rtol=1e-4, atol=1e-4)
    assert report["classes"][0]["recall"] is not None
    assert report["temperature"] > 0
    reopened = lw2g.load(tmp_path / "model-2", device="cpu")
    assert torch.equal(reopened.answer(images).logits, model.answer(images).logits)
    rejecting = reopened.predict(images, reject=0.2)
    assert all(row["best"] and row["score"] is not None for row in rejecting)
    lw2g.unlearn(tmp_path / "model-2", "cat", device="cpu")
    assert same(tmp_path / "model-3", tmp_path / "model")
    done = command("unlearn", tmp_path / "model", lw2g.load(tmp_path / "model").classes[0])
    assert done.exit_code == 2
    assert "in sums that it shares with other classes" in done.stderr


def test_a_history_from_elsewhere_has_to_fit(models: dict[str, Path], tmp_path: Path) -> None:
    """Of a forged model, features without a step or of another width end in one line."""
    saved = exported.read_export(models["cat"], whole=True)
    forged = {
        "'features/9/0' is of no step": {"features/9/0": torch.ones(1, 2)},
        "'kept/../../x' is of no class": {"kept/../../x": torch.ones(1, 2)},
    }
    for number, (words, change) in enumerate(forged.items()):
        exported.write_export(attrs.evolve(saved, learned=saved.learned | change), tmp_path / str(number))
        done = command("unlearn", tmp_path / str(number), "--last")
        assert done.exit_code == 2
        assert f"does not fit its tasks: {words}" in done.stderr


def test_the_commands_of_the_page_work(glyphs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`docs/howto/learn.md`, first block: a model, a class, an image, the step back, and the class."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(glyphs / "first", "photos")
    shutil.copytree(glyphs / "cat", "new")
    shutil.copy(next((glyphs / "test/cat").iterdir()), "image.png")
    page = Path(__file__).resolve().parents[3] / "docs/howto/learn.md"
    if not page.exists():
        pytest.skip("needs the source tree")
    lines = [line for line in page.read_text().splitlines() if line.startswith("    lw2g ")][:6]
    assert "--backbone vit-tiny" in lines[0]  # whose weights are not here; the images are drawings
    for line in lines:
        of_drawings = line.replace("vit-tiny", "micro").replace(" cup ", " cat ")
        done = command(*shlex.split(of_drawings, comments=True)[1:])
        assert done.exit_code == 0, done.output
    assert lw2g.load("model-2").classes == ("ant", "bee", "cat")
    assert same(Path("model-3"), Path("model"))
    assert lw2g.load("model-4").known == ("ant", "bee")


class _Nearest(ClosedForm):
    """A stranger's head: the nearest class mean."""

    exact = True

    def __init__(self, config: Any, context: HeadContext) -> None:
        super().__init__(context.num_classes)
        self.register_buffer("total", torch.zeros(context.num_classes, context.dim, dtype=torch.float64))

    def add(self, features: torch.Tensor, labels: torch.Tensor, owner: int) -> None:
        """Add to the sums."""
        self.get_buffer("total").index_add_(0, labels, features)

    def solve(self, seen: int) -> tuple[torch.Tensor, ...]:
        """Return the means."""
        means: torch.Tensor = self.pooled(self.get_buffer("total")[:seen])
        return (means / self.pooled(self.count[:seen])[:, None],)

    def score(self, features: torch.Tensor, *solution: torch.Tensor) -> torch.Tensor:
        """Return negative distances."""
        return -torch.cdist(features, *solution)


class _ByTask(_Nearest):
    """One that declares nothing."""

    exact = False


def test_a_head_of_ones_own_makes_a_first_model(glyphs: Path, tmp_path: Path) -> None:
    """What a head declares decides, not its name: one that is exact is taken, another is refused truly."""
    local = {"head": _Nearest}
    model, report = lw2g.start(
        glyphs / "first", tmp_path / "own", head="local-nearest", local=local, device="cpu"
    )
    assert report["accuracy"] > 60
    (row,) = model.predict([glyphs / "test" / "ant" / "00.png"])
    assert row["class"] in ("ant", "bee")
    told = "the scores of 'local-by-task' may depend on how images are cut into tasks"
    with pytest.raises(ConfigError, match=told):
        lw2g.start(
            glyphs / "first", tmp_path / "no", head="local-by-task", local={"head": _ByTask}, device="cpu"
        )
    assert not (tmp_path / "no").exists()
