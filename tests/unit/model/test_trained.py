"""A trained model from Python: images of every kind in, all that the run knows of them out."""

from __future__ import annotations

import copy
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import lw2g
from installed import load_instead
from lw2g.disk.record import RunDirectory
from lw2g.errors import ConfigError, DataError
from lw2g.lifecycle.run_opening import reopen
from lw2g.lifecycle.runner import start
from lw2g.model.exporting import export_run
from lw2g.model.saved import open_model
from lw2g.model.unlabelled import unlabelled
from lw2g_testing.tiny import TinyBenchmark, TinyBenchmarkConfig

Finished = tuple[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def model(finished, catalogue):
    return open_model(finished[0], catalogue)


@pytest.fixture(scope="module")
def pixels():
    """All test images of the stream, task after task."""
    return [
        task.test.source.image(int(index))
        for task in TinyBenchmark(TinyBenchmarkConfig()).stream().tasks
        for index in task.test.indices
    ]


@pytest.mark.parametrize("policy", ["one", "always"])
def test_features_are_those_that_the_answers_rest_on(policy, catalogue, quick, pixels, tmp_path):
    """Under retrieval, too: those of the set that an image gets, one set or several."""
    chosen = quick(baseline="dual-prompt", policy=policy, overrides={"baseline.head": "lda"})
    start(chosen, catalogue, tmp_path / "run")
    model = open_model(tmp_path / "run", catalogue)
    features = model.features(pixels)
    torch.testing.assert_close(features, model.answer(pixels).features)


def test_unusable_images_without_a_file_are_named_by_their_number(model):
    """Where nothing of what was given can be used, one line says which are meant, and shows no pixels."""
    bad = [torch.zeros(3, 5, 5), torch.zeros(1, 5, 5)]
    with pytest.raises(
        DataError, match=r"^2 images cannot be used, first 'image 1': expected .*; also 'image 2'; replace"
    ):
        model.predict(bad, partial=True)


@pytest.mark.parametrize(
    "chosen",
    [
        {"baseline": "dual-prompt"},
        {"baseline": "hide-prompt", "overrides": {"routing.mix": 2}},
        {"baseline": "coda-prompt"},
        {"baseline": "tuna"},
        {
            "baseline": "slca-plus-plus",
            "overrides": {
                "baseline.head": "lda",
                "baseline.head_carry": "gated",
                "routing.expert": "frozen",
            },
        },
        {"baseline": "dual-prompt", "overrides": {"benchmark.train": 15, "routing.expert": "frozen"}},
        {"baseline": "hide-prompt", "overrides": {"routing.mix": 2, "routing.expert": "frozen"}},
    ],
    ids=lambda chosen: "-".join([chosen["baseline"], *chosen.get("overrides", {})]),
)
def test_the_runs_own_test_images_get_the_stored_predictions(chosen, catalogue, quick, tmp_path):
    """After any task: classes, retrieved tasks and sets of raw pixels equal those stored by the run.

    What an export answers has the same bits, though it holds nothing that only learning reads.
    """
    start(quick(**chosen), catalogue, tmp_path / "run")
    for task in (0, 2):
        model = open_model(tmp_path / "run", catalogue, task + 1)
        stored = RunDirectory(tmp_path / "run").read_predictions(task)
        tests = [one.test for one in reopen(tmp_path / "run", catalogue).data.stream.tasks[: task + 1]]
        answers = model.answer([test.source.image(int(index)) for test in tests for index in test.indices])
        nothing = torch.full((len(stored.true),), -1)
        assert answers.classes.tolist() == stored.predicted.tolist()
        assert (nothing if answers.tasks is None else answers.tasks).tolist() == stored.retrieved.tolist()
        assert (nothing if answers.sets is None else answers.sets).tolist() == stored.set.tolist()
        assert answers.logits.shape == (len(stored.true), (2, 5, 7)[task])
        out = tmp_path / f"export-{task}"
        export_run(tmp_path / "run", catalogue, out, None if task == 2 else task + 1)
        assert b"statistics" not in (out / "model.safetensors").read_bytes()
        exported = open_model(out, catalogue, device="cpu")
        again = exported.answer([test.source.image(int(index)) for test in tests for index in test.indices])
        assert torch.equal(again.logits, answers.logits)
        assert torch.equal(again.features, answers.features)
        assert again.sets is None or torch.equal(again.sets, answers.sets)
        assert exported.classes == model.classes
        assert exported.task_to_set == model.task_to_set


def test_one_set_is_not_looked_for(catalogue, quick, tmp_path, monkeypatch):
    """Logits of a model with one set take no query, and are those of an answer that names tasks, too."""
    asked = []
    for policy in ("one", "always"):
        start(quick(baseline="s-prompt-plus-plus", policy=policy), catalogue, tmp_path / policy)
        model = open_model(tmp_path / policy, catalogue)
        images = torch.randn(5, 3, model.backbone.image_size, model.backbone.image_size)
        answers = model.answer(images)
        assert answers.tasks is not None
        retrieval: Any = model.retrieval
        query = retrieval.query

        def noted(batch: Any, query: Any = query, policy: str = policy) -> Tensor:
            asked.append(policy)
            found: Tensor = query(batch)
            return found

        monkeypatch.setattr(retrieval, "query", noted)
        assert torch.equal(model(images), answers.logits)
    assert set(asked) == {"always"}


def test_every_kind_of_image_gives_the_same_answer(model, pixels, tmp_path):
    """Files, bytes, open files, PIL images, raw and transformed tensors, alone, in lists and in one batch."""
    pictures = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in pixels[:3]]
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    expected = model(pixels[:3])
    assert expected.shape == (3, 7)
    transformed = torch.stack([model.transform(path) for path in paths])
    for images in (
        paths,
        [str(path) for path in paths],
        pictures,
        tuple(pictures),
        torch.stack(pixels[:3]),
        transformed,
        [paths[0], pictures[1], pixels[2]],
        [path.read_bytes() for path in paths],
        [BytesIO(path.read_bytes()) for path in paths],
    ):
        assert torch.equal(model(images), expected)
    one = model(pixels[0])
    torch.testing.assert_close(one, expected[:1])
    content = paths[0].read_bytes()
    with paths[0].open("rb") as opened:
        opened.read(4)  # somebody has looked what it is
        kinds = (paths[0], str(paths[0]), pictures[0], transformed[0], content, bytearray(content), opened)
        for alone in kinds:
            assert torch.equal(model(alone), one)


def test_pixels_that_were_not_normalised_are_refused(model, pixels, caplog):
    """Floats from 0 to 1 are what `ToTensor` makes, of any size; what `transform` makes is taken."""
    size = model.backbone.image_size
    model(torch.zeros(3, size, size))
    model(model.transform(pixels[0]))
    assert caplog.text == ""
    as_bytes = r"pass uint8 \[3, H, W\] \(from 0 to 1 that is .*\), a path or a PIL image$"
    for image in (torch.rand(3, size, size), torch.rand(3, size, 2 * size)):
        with pytest.raises(DataError, match=as_bytes):
            model(image)


def test_an_answer_does_not_depend_on_its_company(finished, catalogue, pixels):
    """In batches of a size that was given: alone, reversed, in long lists, the same logits bit for bit."""
    model = open_model(finished[0], catalogue, batch_size=8)
    everyone = model.answer(pixels)
    assert len(pixels) > 2 * model.batch_size
    backwards = model.answer(pixels[::-1])
    assert torch.equal(backwards.logits.flip(0), everyone.logits)
    assert torch.equal(backwards.features.flip(0), everyone.features)
    for number in (0, 17, 35):
        assert torch.equal(model(pixels[number]), everyone.logits[number : number + 1])


def test_one_image_costs_one(finished, catalogue, pixels, monkeypatch):
    """Forwards are as large as what is asked, at most a batch, unless a size was given; answers agree."""
    sizes = []

    def noted(images: Tensor, *of: Any) -> Any:
        sizes.append(len(images))
        return unlabelled(images, *of)

    monkeypatch.setattr("lw2g.model.trained.unlabelled", noted)
    for size, expected in ((None, [1, 3, 16, 16, 16]), (8, [8, 8, *[8] * 6])):
        model = open_model(finished[0], catalogue, batch_size=size)
        sizes.clear()
        one = model(pixels[0])
        three = model(pixels[:3])
        everyone = model(pixels)
        assert sizes == expected
        torch.testing.assert_close(one, everyone[:1])
        torch.testing.assert_close(three, everyone[:3])


@pytest.mark.parametrize(
    "chosen",
    [
        {"baseline": "dual-prompt", "policy": "always"},
        pytest.param(
            {"baseline": "hide-prompt", "policy": "always", "overrides": {"routing.mix": 2}},
            marks=pytest.mark.slow,
        ),
        {
            "baseline": "slca-plus-plus",
            "overrides": {"baseline.head": "lda", "baseline.epochs": 1, "routing.expert": "frozen"},
        },
    ],
    ids=lambda chosen: chosen["baseline"],
)
def test_threads_get_the_answers_of_one(chosen, catalogue, quick, pixels, tmp_path):
    """Four at once, each of them with everything that computes; and what is printed goes where it went."""
    start(quick(**chosen), catalogue, tmp_path / "run")
    model = open_model(tmp_path / "run", catalogue, batch_size=2)
    calls = (model, model.features, model.predict, lambda images: model.answer(images).logits)
    parts = [pixels[place : place + 3] for place in range(0, 12, 3)]
    expected = [[call(part) for part in parts] for call in calls]
    asked = [(kind, place) for _ in range(4) for kind in range(4) for place in range(4)]
    before = sys.stdout
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda one: calls[one[0]](parts[one[1]]), asked))
    for (kind, place), answer in zip(asked, found, strict=True):
        wanted = expected[kind][place]
        assert torch.equal(answer, wanted) if isinstance(wanted, Tensor) else answer == wanted
    assert sys.stdout is before
    assert torch.equal(copy.deepcopy(model)(parts[0]), expected[0][0])  # a copy has a turn of its own


def test_a_temperature_is_part_of_every_probability_and_of_no_choice(model, pixels):
    """Once one was fitted: in answers and entries, the order of classes as without it."""
    plain = model.answer(pixels)
    named = [entry["top"] for entry in model.predict(pixels, top_k=7)]
    warm = copy.deepcopy(model)
    warm.calibration = {"temperature": torch.tensor(8.0)}
    answers = warm.answer(pixels)
    assert (plain.temperature, answers.temperature) == (None, 8.0)
    assert torch.equal(answers.logits, plain.logits)
    torch.testing.assert_close(answers.probabilities, (plain.logits / 8).softmax(1))
    for entry, before, own in zip(warm.predict(pixels, top_k=7), named, answers.probabilities, strict=True):
        assert [one["class_index"] for one in entry["top"]] == [one["class_index"] for one in before]
        assert [one["probability"] for one in entry["top"]] == own.sort(descending=True).values.tolist()
        assert entry["probability"] == float(own.max()) < before[0]["probability"]
        assert entry["calibrated"] is True
    assert model.predict(pixels)[0]["calibrated"] is False


def test_answers_hang_together(model, pixels):
    """Probabilities sum to one, the best classes come first, sets belong to the retrieved tasks."""
    answers = model.answer(pixels)
    assert answers.features.shape == (48, model.backbone.dim)
    assert torch.allclose(answers.probabilities.sum(1), torch.ones(48))
    values, indices = answers.top(3)
    assert torch.equal(indices[:, 0], answers.classes)
    assert bool((values.diff(dim=1) <= 0).all())
    assert answers.top(99)[1].shape == (48, 7)
    assert [model.task_to_set[task] for task in answers.tasks.tolist()] == answers.sets.tolist()


def test_entries_name_classes_and_probabilities(model, pixels):
    """What the command prints as JSON: the best class, the best few, and what was retrieved."""
    (entry,) = model.predict(pixels[0], top_k=2)
    answers = model.answer(pixels[0])
    assert (entry["name"], entry["path"]) == ("image 1", None)
    assert entry["class"] == model.classes[entry["class_index"]]
    assert [one["class_index"] for one in entry["top"]] == answers.top(2)[1][0].tolist()
    assert entry["probability"] == entry["top"][0]["probability"] == float(answers.probabilities.max())
    assert (entry["task"], entry["set"]) == (int(answers.tasks[0]), int(answers.sets[0]))
    with pytest.raises(ConfigError, match="top_k names at least one class, not 0; give 1 or more"):
        model.predict(pixels[0], top_k=0)
    with pytest.raises(ConfigError, match="top_k: expected a whole number but got '3'"):
        model.predict(pixels[0], top_k="3")
    with pytest.raises(AttributeError, match=r"a model has no 'save'; it lies in '.*': copy that folder"):
        model.save  # noqa: B018
    with pytest.raises(
        AttributeError, match=r"no 'predict_proba'; predict\(IMAGES, top_k=len\(model.known\)"
    ):
        model.predict_proba  # noqa: B018
    assert not hasattr(model, "no_such_thing")


def test_entries_have_the_names_of_files_and_uploads(model, pixels, tmp_path):
    """Of an upload, whose own `read` is to be awaited, as it was sent; else the file's, or a number."""
    for number in range(2):
        Image.fromarray(pixels[number].permute(1, 2, 0).numpy()).save(tmp_path / f"{number}.png")

    class Upload:
        filename = "cat/tom.png"
        file = BytesIO((tmp_path / "0.png").read_bytes())

        async def read(self):
            raise AssertionError

    with Image.open(tmp_path / "1.png") as opened, (tmp_path / "0.png").open("rb") as file:
        images = [Upload(), tmp_path, pixels[0], opened, file, b"no image", None]
        entries = model.predict(images, partial=True)
    names = ["cat/tom.png", "0.png", "1.png", "image 4", "1.png", "0.png", "image 7", "image 8"]
    assert [entry["name"] for entry in entries] == names
    assert [entry["path"] is None for entry in entries] == [True, False, False, *[True] * 5]
    assert entries[0]["top"] == entries[1]["top"] == entries[5]["top"]
    assert entries[6]["error"].startswith("'image 7': it is no image of the formats")
    assert entries[7]["error"].startswith("'image 8': an object of type NoneType is no image; give paths")
    assert [entry["name"] for entry in model.predict(tmp_path.glob("1.*"))] == ["1.png"]
    see_through = torch.cat([pixels[0], pixels[0][:1]]).permute(1, 2, 0).numpy()  # RGBA
    assert torch.equal(model.transform(see_through), model.transform(pixels[0]))


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (b"no image", "'image 2': it is no image of the formats"),
        ("https://x.org/dog.jpg", "'https://x.org/dog.jpg' is an address; download it first"),
        (torch.rand(3, 5, 6), r"'image 2': expected uint8 .*; pass uint8 \[3, H, W\] \(from 0 to 1 that is"),
        ("", "'image 2': the path is empty; give the path"),
        ("A" * 300, r"'image 2': 'A+\.\.\. .* is too long for a path; .* decode it and give the bytes"),
        ("a\0b.png", r"'image 2': no path can be called 'a\\x00b.png'; leave the NUL"),
        (BytesIO(), "'image 2': an open file cannot be read .*; open it to read bytes"),
        (Image.new("RGB", (8, 8)), "'image 2': a PIL image cannot be read .*; open it anew"),
    ],
)
def test_an_image_that_cannot_be_used_is_told_by_its_name(model, pixels, bad, told):
    """Where it ends the call, and in part as the entry of its own: the others have their answers."""
    if isinstance(bad, BytesIO | Image.Image):
        bad.close()
    images = [pixels[0], bad, pixels[1]]
    for call in (model, model.features, model.predict):
        with pytest.raises(DataError, match=f"^{told}"):
            call(images)
    entries = model.predict(images, partial=True)
    assert re.match(told, entries[1]["error"])
    assert [entry["class"] is None for entry in entries] == [False, True, False]
    with pytest.raises(DataError, match=f"^{told.replace('image 2', 'image 1')}"):
        model.predict([bad], partial=True)


def test_it_is_a_module_that_is_not_trained(model, pixels):
    """It holds backbone, baseline, sets and retrieval, stays in evaluation mode, and takes no gradient."""
    owners = {name.split(".")[0] for name, _ in model.named_parameters()}
    assert {"backbone", "baseline", "sets"} <= owners
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not any(module.training for module in model.train().modules())
    assert model.to("cpu").device == torch.device("cpu")
    image = model.transform(pixels[0]).requires_grad_(True)
    model(image).max().backward()
    assert image.grad is not None
    assert bool(image.grad.any())


def test_device_batch_size_and_task_are_chosen_on_loading(finished, catalogue):
    """A device that is not there is refused; the model after an earlier task knows its classes alone."""
    early = open_model(finished[0], catalogue, 1, device="cpu", batch_size=3)
    assert (early.batch_size, early.task, early.classes) == (3, 1, ("pattern 0", "pattern 1"))
    assert early(torch.zeros(5, 3, 16, 16)).shape == (5, 2)
    with pytest.raises(ConfigError, match=r"^device: 'cuda:77'"):
        open_model(finished[0], catalogue, device="cuda:77")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([], "no image was given"),
        (7, "an object of type int is no image; give paths, bytes or open files, PIL images"),
        ([[1, 2]], "an object of type list is no image"),
        ({"a.png": 1}, "an object of type dict is no image"),
        (np.zeros((3, 16, 20), np.uint8), r"may be one image .*, or 3 grey images; .* last, \[16, 20, 3\]"),
        (np.zeros((4, 8, 9)), r"channels first, or 4 grey images; put channels last, \[8, 9, 4\], or give a"),
        (torch.zeros(2, 16, 16), r"expected a tensor \[3, H, W\] but got \[2, 16, 16\]; put channels first"),
        (
            torch.zeros(3, 17, 16),
            r"images \[3, 16, 16\] of floating numbers, but got torch.float32",
        ),
        (torch.zeros(3, 16, 16, dtype=torch.int64), "got torch.int64"),
        (torch.full((3, 16, 16), torch.nan), "no finite numbers"),
        ("nowhere.png", "'nowhere.png': there is no such image or folder; check the path"),
        (b"a text", "^'image 1': it is no image of the formats BMP"),
        (StringIO("a text"), r"an open file gives a str and no bytes; open it as open\(path, 'rb'\)"),
    ],
)
def test_what_is_no_image_is_refused(model, images, message):
    """One line says what was given and what to give."""
    with pytest.raises(DataError, match=message):
        model(images)


def test_a_run_that_is_told_the_task_cannot_be_used(catalogue, quick, tmp_path):
    """The oracle's control row has no way to know the task of a new image."""
    start(quick(baseline="s-prompt-plus-plus", retrieval="oracle"), catalogue, tmp_path / "run")
    with pytest.raises(DataError, match="can only be evaluated, not used"):
        open_model(tmp_path / "run", catalogue)(torch.zeros(3, 16, 16))


def test_load_opens_a_run(finished, monkeypatch, catalogue):
    """``lw2g.load`` takes a directory as text and everything that a model is opened with."""
    load_instead(monkeypatch, lambda **_: catalogue)
    model = lw2g.load(str(finished[0]), task=2, batch_size=4)
    assert (model.task, model.batch_size, len(model.classes)) == (2, 4, 5)
