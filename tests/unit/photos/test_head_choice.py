"""`start --head auto`: one forward for all candidates, the model of the chosen head, and what is said."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import lw2g
from lw2g.cli.main import main
from lw2g.errors import ConfigError
from lw2g.maths import few_rows
from lw2g.maths.choosing import first_within_error, words_of_choice
from lw2g.model.exported import read_export
from lw2g.model.trained import TrainedModel
from lw2g.results.summaries import wilson
from lw2g_photos import head_choice, starting, step_taking
from lw2g_photos.training_gains import TrainingGain
from written_images import write_images


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Join two layers of the embedded backbone, whose sums are small."""
    monkeypatch.setattr(starting, "WIDEST", 600)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noisy images of three colours to learn, `more` of a fourth, and some to test with."""
    root = tmp_path_factory.mktemp("colours")
    draw = np.random.default_rng(0)
    for name, colour in {"red": (180, 90, 90), "green": (90, 150, 90), "blue": (90, 90, 170)}.items():
        for folder, count in (("photos", 8), ("test", 3)):
            _write(root / folder / name, colour, count, draw)
    _write(root / "more" / "grey", (120, 120, 120), 6, draw)
    return root


def _write(folder: Path, colour: tuple[int, int, int], count: int, draw: np.random.Generator) -> None:
    write_images(folder, (np.array(colour) + draw.normal(0, 40, (32, 32, 3)) for _ in range(count)))


def _with_a_wrong_label(photos: Path, folder: Path) -> Path:
    """Copy the images to learn into a folder, one of them into a wrong class, and return the folder."""
    shutil.copytree(photos / "photos", folder)
    (folder / "red" / "0.png").rename(folder / "blue" / "red.png")
    return folder


def _start(photos: Path, out: Path, **options: Any) -> dict[str, Any]:
    return lw2g.start(photos / "photos", out, backbone="micro", device="cpu", **options)[1]


def _require_same(one: Path, other: Path, *, to_the_bit: bool) -> None:
    found, expected = (read_export(model, whole=True) for model in (one, other))
    assert found.manifest.baseline == expected.manifest.baseline
    assert found.manifest.fingerprint == expected.manifest.fingerprint
    for kind in ("tensors", "learned"):
        theirs = getattr(expected, kind)
        # what another head may read later, a head that was named does not keep
        ours = {name: value for name, value in getattr(found, kind).items() if not name.startswith("tried/")}
        assert ours.keys() == theirs.keys()
        for name, value in ours.items():
            close = 0.0 if to_the_bit else 1e-4
            torch.testing.assert_close(value, theirs[name], rtol=close, atol=close)


@pytest.mark.parametrize(
    ("taken", "head", "several"), [(0, "lda", False), (1, "ridge", True), (2, "lda", True)]
)
def test_the_chosen_model_is_the_one_that_starts_by_name(
    taken: int, head: str, several: bool, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever candidate is taken: sums, features and checks are the same, each image goes forward once."""
    monkeypatch.setattr(head_choice, "first_within_error", lambda found, images: taken)
    images = []
    features = TrainedModel._features

    def counting(model: TrainedModel, predictor: Any, rows: torch.Tensor, *, queries: bool) -> torch.Tensor:
        images.append(len(rows))
        return features(model, predictor, rows, queries=queries)

    with monkeypatch.context() as patch:
        patch.setattr(TrainedModel, "_features", counting)
        report = _start(photos, tmp_path / "auto", head="auto", test=photos / "test")
    assert sum(images) == 24 + 9
    choice = report["choice"]
    assert (choice["head"], choice["layers"] > 1) == (head, several)
    settings = {"backbone.layers": choice["layers"]} if several else {}
    if head == "ridge":
        settings["baseline.head_features"] = 0
    expected = _start(photos, tmp_path / "named", head=head, settings=settings, test=photos / "test")
    # the last block may compute its class token alone, which has other last bits
    _require_same(tmp_path / "auto", tmp_path / "named", to_the_bit=several)
    assert report["accuracy"] == expected["accuracy"]
    assert choice["accuracy"] == expected["left_out_accuracy"]


@pytest.mark.parametrize(
    ("large", "wide"),
    [(2**20, 1024), (2**12, 1024), (2**20, 100)],
    ids=["small sums", "large sums", "rows become sums"],
)
def test_a_chosen_model_learns_and_forgets_exactly(
    large: int, wide: int, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class more, and back to the bit, also where sums that began with zeros are not written down twice."""
    monkeypatch.setattr(step_taking, "_LARGE", large)
    monkeypatch.setattr(few_rows, "_WIDE", wide)
    monkeypatch.setattr(few_rows, "_FEW", 20)  # 24 images are few, 30 are not
    monkeypatch.setattr(head_choice, "first_within_error", lambda found, images: 1)
    _start(photos, tmp_path / "first", head="auto")
    more, _ = lw2g.learn(tmp_path / "first", photos / "more", out=tmp_path / "more", device="cpu")
    assert more.predict(photos / "more")[0]["class"] == "grey"
    assert {"rejected", "calibrated"} <= more.predict(photos / "more", reject=0.1)[0].keys()
    gram = read_export(tmp_path / "more").tensors["baseline/closed_form.gram"]
    assert len(gram) == 1
    lw2g.unlearn(tmp_path / "more", last=True, out=tmp_path / "back", device="cpu")
    back, first = (read_export(tmp_path / name).tensors for name in ("back", "first"))
    learned = read_export(tmp_path / "back", whole=True).learned
    kept = {key.partition("/")[0] for key in learned if key.endswith("closed_form.gram")}
    if wide == 100:
        assert not kept, "rows stand in place of sums again"
    else:
        assert kept == ({"zero"} if large < 2**20 else {"base"})
    assert (wide == 100) == (len(first["baseline/closed_form.gram"]) == 0)
    assert back.keys() == first.keys()
    assert all(torch.equal(back[name], first[name]) for name in first)


@pytest.mark.parametrize(
    ("found", "images", "taken"),
    [
        ((80.0, 90.0, 91.0), 100, 1),
        ((80.0, 88.5, 91.0), 100, 1),
        ((80.0, 87.5, 91.0), 100, 2),
        ((100.0, 100.0, 100.0), 30, 0),
        ((None, None, None), 0, 0),
    ],
)
def test_the_first_within_a_standard_error_of_the_best_is_taken(
    found: tuple[float | None, ...], images: int, taken: int
) -> None:
    """The error of 91 % of 100 images is 2.9 points; where nothing could be left out, the smallest."""
    assert first_within_error(found, images) == taken


def test_who_sets_the_features_has_the_head_alone_chosen(photos: Path, tmp_path: Path) -> None:
    """Each candidate takes its own options, and options of others or too many layers are refused."""
    settings = {"backbone.layers": 2, "head.ridge.penalty": "fixed", "head.lda.shrinkage": 0.5}
    report = _start(photos, tmp_path / "two", head="auto", settings=settings)
    tried = [(entry["head"], entry["layers"]) for entry in report["choice"]["tried"]]
    assert tried == [("lda", 2), ("ridge", 2)]
    with pytest.raises(ConfigError, match=r"backbone\.layers: 99 is not within"):
        _start(photos, tmp_path / "no", head="auto", settings={"backbone.layers": 99})
    with pytest.raises(ConfigError, match=r"head\.cosine"):
        _start(photos, tmp_path / "no", head="auto", settings={"head.cosine.penalty": 1})
    assert not (tmp_path / "no").exists()


def test_stored_features_have_their_own_layers_alone(photos: Path, tmp_path: Path) -> None:
    """Of a file of two layers both heads are tried on these, and the model answers for its vectors."""
    lw2g.start(photos / "photos", tmp_path / "model", backbone="micro", device="cpu")
    rows = np.random.default_rng(1).normal(size=(20, 6)).astype(np.float32)
    labels = np.arange(20) % 2
    rows[:, 0] += 4 * labels
    np.savez(
        tmp_path / "stored.npz",
        train_x=rows,
        train_y=labels,
        test_x=rows + 0.01,
        test_y=labels,
        class_names=["a", "b"],
    )
    model, report = lw2g.start(tmp_path / "stored.npz", tmp_path / "vectors", head="auto", device="cpu")
    assert [(entry["head"], entry["layers"]) for entry in report["choice"]["tried"]] == [
        ("lda", 1),
        ("ridge", 1),
    ]
    found = [entry["class"] == "ab"[label] for entry, label in zip(model.predict(rows), labels, strict=True)]
    assert sum(found) >= 18
    run, copy = tmp_path / "run", tmp_path / "copy"
    lw2g.run(
        out=run,
        benchmark="features",
        baseline="simple-cil",
        device="cpu",
        progress=False,
        **{"benchmark.file": tmp_path / "stored.npz", "benchmark.increment": 1},
    )
    done = CliRunner().invoke(main, ["export", str(run), str(copy), "--learnable"])
    assert done.stdout.endswith(f"next: lw2g predict {copy} FILE, or lw2g learn {copy} FILE\n")


def test_a_single_image_takes_the_smallest(photos: Path, tmp_path: Path) -> None:
    """There is nothing to choose by, and the line says so."""
    one = tmp_path / "one" / "red"
    one.mkdir(parents=True)
    (one / "0.png").write_bytes((photos / "photos/red/0.png").read_bytes())
    done = CliRunner().invoke(
        main, ["start", str(tmp_path / "one"), str(tmp_path / "model"), "--head", "auto"]
    )
    assert done.exit_code == 0, done.output
    whole = CliRunner().invoke(main, ["show", str(tmp_path / "model"), "--all"]).stdout
    assert "head: lda (also tried: ridge on " in whole
    assert "the smallest head, as there are too few images to compare them" in whole
    assert " PHOTO, lw2g test " in done.stdout  # it cannot reject, and no command that fails is advised


def test_start_says_what_was_tried_and_what_comes_next(photos: Path, tmp_path: Path) -> None:
    """A line each; the accuracy has its interval."""
    images = _with_a_wrong_label(photos, tmp_path / "images")
    arguments = ["start", str(images), str(tmp_path / "my model"), "--head", "auto"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    few = r"\naccuracy: [\d.]+ % of 24 images, each left out in turn \(.*\).*; these images also chose "
    assert re.search(few, done.stdout)
    assert done.stdout.count("accuracy: ") == 2, "a second one, beside that of the line 'more accuracy'"
    assert f"next: lw2g predict '{tmp_path}/my model' PHOTO --reject 0.05, lw2g test" in done.stdout
    assert "more accuracy: more images of each class" in done.stdout
    assert not re.search(r"\b(head|layers?)\b", done.stdout), "words of whoever compares methods"
    shown = CliRunner().invoke(main, ["show", str(tmp_path / "my model"), "--all"]).stdout
    assert re.search(r"\nhead: .* \(also tried: .*\) of 24 images, each left out in turn", shown)


def test_start_says_what_training_added_on_streams_like_the_images(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks by images a class; the command follows more gains than losses; unknowns are not said.

    Where no image that was asked is named wrongly, nothing is said to be better.
    """
    asked = []
    images = _with_a_wrong_label(photos, tmp_path / "images")

    def started(name: str, known: TrainingGain | None) -> str:
        monkeypatch.setattr(head_choice, "training_gain", lambda images: asked.append(images) or known)
        return CliRunner().invoke(main, ["start", str(images), str(tmp_path / name)]).stdout

    mixed = TrainingGain(least=-1.0, most=2.5, streams=2, above=1)
    said = started("mixed", mixed)
    assert asked == [8.0]
    advice = f"{mixed.words}; to try it:\n  lw2g run --trained "
    assert f"more accuracy: more images of each class\n{advice}" in said
    for name, above in (("worse", 0), ("undecided", 1)):
        no_advice = TrainingGain(least=-1.0, most=2.5, streams=2, above=above, below=1)
        said = started(name, no_advice)
        assert said.endswith(f"\n{no_advice.words}\n")
    assert started("unknown", None).endswith("more accuracy: more images of each class\n")
    images = photos / "photos"
    said = started("all right", mixed)
    assert "accuracy: 100.0 % of 24 images" in said
    assert not re.search("more accuracy|training the backbone", said)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["photos", "my photos/train"])
def test_the_command_that_trains_runs_as_it_is_printed(
    folder: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typed as it stands there, on class folders and on a split beside the other."""
    gain = TrainingGain(least=1.0, most=2.0, streams=1, above=1)
    monkeypatch.setattr(head_choice, "training_gain", lambda images: gain)
    _with_a_wrong_label(photos, tmp_path / folder)
    shutil.copytree(photos / "test", tmp_path / "my photos" / "test")
    done = CliRunner().invoke(main, ["start", str(tmp_path / folder), str(tmp_path / "model")])
    command = re.search("\n  lw2g (run .*)", done.stdout)
    assert command is not None, done.output
    planned = CliRunner().invoke(main, [*shlex.split(command[1]), "--dry-run"])
    assert planned.exit_code == 0, planned.output


def test_units_are_a_candidate_where_they_are_asked_for(photos: Path, tmp_path: Path) -> None:
    """Beside half of the layers, with a line of their own; a number below zero is refused."""
    report = _start(photos, tmp_path / "model", head="auto", settings={"head.auto.units": 32})
    *_, last = report["choice"]["tried"]
    assert (last["head"], last["layers"], last["units"]) == ("ridge", 1, 32)
    assert "ridge beside 32 units" in words_of_choice(report["choice"])
    with pytest.raises(ConfigError, match=r"head\.auto\.units"):
        _start(photos, tmp_path / "no", head="auto", settings={"head.auto.units": -1})


def test_the_line_names_a_smaller_one_within_the_error() -> None:
    """The figures of all, and why not the best was taken."""
    tried = [
        {"head": "lda", "layers": 1, "accuracy": 90.0, "images": 50},
        {"head": "ridge", "layers": 4, "accuracy": 92.0, "images": 50},
    ]
    words = words_of_choice({**tried[0], "standard_error": 4.2, "tried": tried})
    assert words == (
        "head: lda 90.0 % (also tried: ridge on 4 layers 92.0 %) of 50 images, each left out in turn; the "
        "smallest head within a standard error (4.2 points) of the best"
    )


def test_an_interval_holds_what_wilson_says() -> None:
    """Eight of ten (Newcombe, 1998, gives such tables), and the ends stay within 0 and 100."""
    assert wilson(80.0, 10) == pytest.approx([49.0, 94.3], abs=0.05)
    for images in range(1, 100):
        assert wilson(0.0, images)[0] == 0.0
        assert wilson(100.0, images)[1] == 100.0
