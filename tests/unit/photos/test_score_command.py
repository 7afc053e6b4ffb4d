"""``lw2g test``, and the totals that ``start`` and ``learn`` print."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import lw2g
from lw2g.api.models import predict
from lw2g.cli.main import main
from lw2g.errors import ConfigError, DataError
from lw2g.model.exported import read_export
from lw2g.results.leading_check import ClassCheck, leading_check
from lw2g.results.summaries import wilson
from lw2g_photos.class_folders import ClassImages
from lw2g_photos.learn_commands import _print
from lw2g_photos.step_checks import missed_words, warnings_of
from lw2g_photos.step_words import lowest_classes, step_lines


def write_images(folder: Path, colour: tuple[int, int, int], count: int, seed: int) -> None:
    """Write noisy images of a colour."""
    draw = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = np.clip(np.array(colour) + draw.normal(0, 8, (32, 32, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A model of red and blue images, and what `start` printed."""
    place = tmp_path_factory.mktemp("score")
    write_images(place / "photos" / "red", (200, 30, 30), 10, 0)
    write_images(place / "photos" / "blue", (30, 30, 200), 10, 1)
    arguments = ["start", str(place / "photos"), str(place / "model"), "--backbone", "micro"]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return place / "model", done.stdout


def test_start_prints_a_total(model: tuple[Path, str]) -> None:
    """Of all images, each left out in turn, as four that were held out tell little; no other is printed."""
    said = "accuracy: 100.0 % of 20 images, each left out in turn (95 % interval 83.9 to 100.0)"
    said += "; these images also chose the formula, so new ones may do a little worse"
    assert f"{said}\n" in model[1]
    assert "not yet learned from" not in model[1]
    assert "old classes" not in model[1]  # a first model has none
    assert len(model[1].splitlines()) <= 10
    shown = CliRunner().invoke(main, ["show", str(model[0]), "--all"]).stdout.splitlines()
    assert said in shown
    assert [line.split() for line in shown if line.split()[:1] == ["red"]] == [["red", "10", "100"]]


def test_what_is_said_of_many_classes_is_one_line() -> None:
    """Of a hundred classes a note names some, says how many it does not, and which command shows all."""
    names = [f"c{number:02d}" for number in range(100)]
    report = {
        "classes": [{"class": name, "images": 4, "checked": 0} for name in names],
        "tested_on": "",
        "twins": [{"class": name, "like": "x", "error": int(name[1:]), "images": 100} for name in names[:7]]
        + [{"class": "x", "like": "c06", "error": 6, "images": 100}]
        + [{"class": "X", "like": "x", "error": 50, "images": 100}],  # likely one class, of which it is said
        "losing": [
            {"class": "x", "loss": 12.3, "images": None},
            {"class": "y", "loss": 11.0, "images": None},
            {"class": "z", "loss": 50.0, "images": 8},
        ],
    }
    images = {name: ClassImages(paths=("a",), digests=("a",), copies=2) for name in names[:6]}
    manifest = SimpleNamespace(
        backbone=SimpleNamespace(name="micro-vit", options={}, weights=None),
        class_map=SimpleNamespace(target_names=("x", "y")),
        history=SimpleNamespace(names=("x", "c01")),
    )
    all_of = "(lw2g show MODEL --all prints all)"
    first = "c00, c01, c02, c03, c04"
    assert list(warnings_of(report, images, manifest)) == [
        f"not checked, as none is set apart of fewer than 5 images: {first} and 95 more {all_of}",
        "a class of this name was forgotten, and it gets a new number: c01",
        "12 copies of other images, counted once, in 6 classes",
        "c06 and x (6 % confused), c05 and x (5 % "
        "confused), c04 and x (4 % confused), c03 and x (3 % confused), c02 and x (2 % confused) and 2 more "
        f"{all_of} look alike: more images of both may tell them apart",
        "may lose images to the new classes: 11 % of y, 4 of 8 of z",  # of x it is said already
    ]
    found = [ClassCheck(f"c{number}", 200, float(number), ["x"]) for number in range(90, 101)]
    assert lowest_classes([*found, ClassCheck("d", 0, None, [])]) == "lowest: " + ", ".join(
        f"c{share} {share} % right (others taken for x)" for share in (90, 91, 92)
    )


def test_a_class_that_is_not_checked_is_told_why(tmp_path: Path) -> None:
    """It has one image, as all others may have, or the images of ``--test`` are of other classes."""
    for seed, name in enumerate(("ant", "bee")):
        write_images(tmp_path / "ones" / name, (90 * seed, 80, 80), 1, seed)
        write_images(tmp_path / "many" / name, (90 * seed, 80, 80), 6, 10 + seed)
    write_images(tmp_path / "more" / "bee", (90, 80, 80), 2, 20)
    ones = lw2g.start(tmp_path / "ones", tmp_path / "first")[1]
    assert "not checked, as a single image cannot be left out: ant, bee" in ones["warnings"]
    many = lw2g.start(tmp_path / "many", tmp_path / "second", test=tmp_path / "more")[1]
    assert f"not checked, as {many['tested_on']} holds no image of these: ant" in many["warnings"]


def step(checked: int, left_out: int, tested_on: str = "") -> dict[str, Any]:
    """Return what a step reports of images that were set apart and of those that were left out in turn."""
    row = {"class": "x", "images": 140, "new": True, "checked": checked, "recall": 80.0, "taken_for": ["y"]}
    other = {"class": "x", "left_out": left_out, "recall": 90.0, "taken_for": [["z", 3]]}
    whole = {"class": "w", "left_out": left_out, "recall": 100.0, "taken_for": []}
    return {
        **{
            "classes": [row],
            "out": "model",
            "seconds": 1.0,
            "ece": None,
            "loss": None,
            "old_classes": None,
            "estimated_loss": None,
        },
        **{"accuracy": 80.0, "checked": checked, "interval": wilson(80.0, max(checked, 1))},
        **{"left_out": left_out, "left_out_accuracy": 90.0 if left_out else None},
        **{"left_out_classes": [other, whole] if left_out else [], "tested_on": tested_on},
    }


@pytest.mark.parametrize(
    ("report", "accuracy", "lowest"),
    [
        (step(5, 140), "90.0 % of 140 images, each left out in turn (95 % interval 83.9 to 93.9)", "90 %"),
        (step(0, 8), "7 of 8 images, each left out in turn: too few to tell much", "7 of 8"),
        (step(60, 140), "80.0 % of 60 images of this step, not yet learned from (95 % interval ", "80 %"),
        (step(5, 0), "4 of 5 images of this step, not yet learned from: too few to tell much", "4 of 5"),
        (
            step(20, 140, "more"),
            "80.0 % of 20 images from more (95 % interval 58.4 to 91.9): too few",
            "80 %",
        ),
        # once a class is forgotten, what was asked before leads only where nothing else tells
        (step(20, 140, "more") | {"forgotten_since": True}, "90.0 % of 140 images, each left out", "90 %"),
        (
            step(60, 0) | {"forgotten_since": True},
            "80.0 % of 60 images of this step, not yet learned from, asked before a class was forgotten (",
            "80 %",
        ),
    ],
)
def test_one_accuracy_leads(report: dict[str, Any], accuracy: str, lowest: str) -> None:
    """Of few that were set apart, images that are left out in turn say it; those of --test always do."""
    lines = [line for line in step_lines(report, Path("before")) if line.startswith(("accuracy", "lowest"))]
    assert lines[0].startswith(f"accuracy: {accuracy}")
    assert lines[1] == f"lowest: x {lowest} right; each class: lw2g show model --all"
    assert len(lines) == 2


def test_classes_that_are_mostly_missed_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The line on the lowest classes names them, or their number where they are many; no note repeats it."""
    rows = [{"class": f"c{n}", "left_out": 8, "recall": 12.5 * n, "taken_for": []} for n in range(8)]
    report = step(0, 64) | {"left_out_classes": rows, "domains": ""}
    check = leading_check(report, has_old_classes=False)
    assert check is not None
    report["warnings"] = [missed_words(check), "something else"]
    _print(report, as_json=False)
    told = capsys.readouterr()
    lowest = "c0 0 of 8 right, c1 1 of 8 right, c2 2 of 8 right; fewer than half of 4 classes"
    assert f"lowest: {lowest}; each class: lw2g show model --all" in told.out
    assert told.err == "note: something else\n"


def test_a_model_in_the_wrong_place_is_told_in_python(model: tuple[Path, str]) -> None:
    """As the commands tell it, in the spelling of the functions."""
    first, photos = str(model[0]), str(model[0].parent / "photos")
    opened, behind = lw2g.load(first), f"{photos!r} is no model and no run; the model comes first: "
    for call, told in (
        (lambda: lw2g.start(first, photos), f"{first!r} is a model; lw2g.learn({first!r}, {photos!r})"),
        (lambda: lw2g.test(photos, first), f"the model comes first: lw2g.test({first!r}, {photos!r})"),
        (lambda: lw2g.learn(photos, first), f"the model comes first: lw2g.learn({first!r}, {photos!r})"),
        (lambda: lw2g.test(photos, opened), f"{behind}model.test({photos!r})"),
        (lambda: lw2g.learn(photos, opened), f"{behind}model.learn({photos!r})"),
        (lambda: predict(photos, first), f"{behind}lw2g.load({first!r}).predict({photos!r})"),
        (lambda: predict(first, []), "no image was given; give at least one"),
        (lambda: predict(first, f"{photos}-2"), f"-2' (did you mean {photos!r}?); check the paths"),
    ):
        with pytest.raises(lw2g.Lw2gError) as caught:
            call()
        assert str(caught.value).endswith(told)


def test_a_model_where_something_else_is_taken_is_told_with_its_command(model: tuple[Path, str]) -> None:
    """A study, a report and a folder's export take no model, and each names the command that does."""
    place = model[0]
    for words, told in (
        (["run", place], f"ask it: lw2g predict {place} IMAGES, or teach it more: lw2g learn {place} FOLDER"),
        (["report", place], f"it is a model: lw2g show {place}"),
        (["export", place, "a.onnx"], f"write one: lw2g export {place} --onnx a.onnx"),
    ):
        done = CliRunner().invoke(main, [str(word) for word in words])
        assert (done.exit_code, done.stderr.endswith(f"; {told}\n")) == (2, True), done.stderr


def test_the_accuracy_of_a_report_is_the_one_that_is_printed(tmp_path: Path) -> None:
    """Of few images that were set apart it is that of those left out, also as JSON; of one class none."""
    for seed, (name, colour) in enumerate((("red", (200, 30, 30)), ("blue", (30, 30, 200)))):
        write_images(tmp_path / "photos" / name, colour, 12, seed)
    report = lw2g.start(tmp_path / "photos", tmp_path / "model", backbone="micro")[1]
    shown = CliRunner().invoke(main, ["show", str(tmp_path / "model")]).stdout
    low, high = report["interval"]
    told = f"{report['accuracy']:.1f} % of 24 images, each left out in turn"
    told += f" (95 % interval {low:.1f} to {high:.1f})"
    assert f"accuracy: {told}" in shown
    assert (report["checked"], report["set_apart"]["checked"]) == (24, 4)
    write_images(tmp_path / "more" / "green", (30, 200, 30), 12, 2)
    done = CliRunner().invoke(main, ["learn", str(tmp_path / "model"), str(tmp_path / "more"), "--json"])
    assert json.loads(done.stdout)["checked"] == 36
    shutil.rmtree(tmp_path / "photos" / "red")
    one = lw2g.start(tmp_path / "photos", tmp_path / "one", backbone="micro")[1]
    assert (one["accuracy"], one["checked"]) == (None, 0)


def test_one_class_has_no_accuracy(tmp_path: Path) -> None:
    """Every image is called by its name: no figure, no choice and no training is told, by `show` neither."""
    write_images(tmp_path / "photos" / "red", (200, 30, 30), 10, 0)
    arguments = ["start", str(tmp_path / "photos"), str(tmp_path / "model"), "--backbone", "micro"]
    started = CliRunner().invoke(main, arguments, catch_exceptions=False).stdout.splitlines()
    shown = CliRunner().invoke(main, ["show", str(tmp_path / "model")]).stdout.splitlines()
    for lines in (started, shown):
        assert "accuracy: none yet, as the model knows one class" in lines
        assert not any("%" in line for line in lines)
    assert not any(line.startswith(("head:", "training:")) for line in started)


def test_what_follows_one_class_costs_it_no_accuracy(tmp_path: Path) -> None:
    """It could not be wrong: what is found of it beside others is told as such, and is no loss to refuse."""
    for seed, name in enumerate(("red/red", "again/red", "same/rose", "same/ruby")):
        write_images(tmp_path / name, (200, 30, 30), 12, seed)
    one = tmp_path / "one"
    lw2g.start(tmp_path / "red", one, backbone="micro", head="lda")
    learn = ["learn", str(one)]
    again = [*learn, str(tmp_path / "again"), "--out", str(tmp_path / "still")]
    still = CliRunner().invoke(main, again, catch_exceptions=False).stdout
    assert "old class" not in still
    same = [*learn, str(tmp_path / "same"), "--out", str(tmp_path / "more"), "--max-loss", "0"]
    done = CliRunner().invoke(main, same, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    checks = read_export(tmp_path / "more").manifest.history.steps[-1].checks
    now = checks["old_classes"]["now"]
    assert now < 100
    told = f"old class: {now:.1f} % now (before, it was the only class), each image left out in turn"
    assert told in done.stdout.splitlines()
    assert "lose" not in done.output
    assert (checks["old_classes"]["before"], checks["loss"], checks["estimated_loss"]) == (None, None, None)
    assert checks["losing"] == []


def test_right_answers_are_counted(model: tuple[Path, str], tmp_path: Path) -> None:
    """Over images, not over classes: a folder of three reds and one blue that is called red."""
    write_images(tmp_path / "more" / "red", (200, 30, 30), 3, 2)
    Image.new("RGB", (32, 32), (30, 30, 200)).save(tmp_path / "more" / "red" / "blue.png")
    write_images(tmp_path / "more" / "blue", (30, 30, 200), 1, 3)
    done = CliRunner().invoke(main, ["test", str(model[0]), str(tmp_path / "more")])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "accuracy: 4 of 5 images of 2 classes: too few to tell much",
        "lowest: red 3 of 4 right (others taken for blue); each class: --all",
    ]
    whole = CliRunner().invoke(main, ["test", str(model[0]), str(tmp_path / "more"), "--all"]).stdout
    assert "blue (1)" in whole
    assert "lowest" not in whole
    told = CliRunner().invoke(main, ["test", str(model[0]), str(tmp_path / "more"), "--json"])
    scored = json.loads(told.stdout)
    assert (scored["accuracy"], scored["images"]) == (80.0, 5)
    assert [(row["class"], row["images"], row["recall"]) for row in scored["classes"]] == [
        ("blue", 1, 100.0),
        ("red", 4, 75.0),
    ]
    assert scored["classes"][1]["taken_for"] == [["blue", 1]]


def test_a_class_that_the_model_does_not_know_is_refused(model: tuple[Path, str], tmp_path: Path) -> None:
    """With the nearest name; it would count as wrong without a word."""
    write_images(tmp_path / "more" / "rad", (200, 30, 30), 1, 2)
    done = CliRunner().invoke(main, ["test", str(model[0]), str(tmp_path / "more")])
    assert done.exit_code == 2
    assert "the model knows no class 'rad' (did you mean 'red'?); rename its folder" in done.stderr
    assert "as the model calls it, learn it, or give unknown classes as --strangers FOLDER" in done.stderr
    # which may have been done, with the folder where it is
    strangers = str(tmp_path / "more" / "rad")
    done = CliRunner().invoke(main, ["test", str(model[0]), str(tmp_path / "more"), "--strangers", strangers])
    more = str(tmp_path / "more")
    said = "the model knows no class 'rad', which is given as strangers, too"
    assert done.stderr.endswith(f"{more!r}: {said}; move 'rad' out of {more!r}\n")
    for number, name in ((2, "rad"), (3, "other")):
        learned = tmp_path / name
        write_images(learned / name, (30, 200, 30), 6, number)
        lw2g.learn(model[0].with_name("model-2") if number > 2 else model[0], learned)
    lw2g.unlearn(model[0].with_name("model-3"), "red")  # model-4 knows the class, but not all of the folder
    lw2g.unlearn(model[0].with_name("model-3"), "other")  # model-5 is newer, and knows less
    write_images(tmp_path / "more" / "red", (200, 30, 30), 1, 9)
    done = CliRunner().invoke(main, ["test", str(model[0]), str(tmp_path / "more")])
    later = model[0].with_name("model-3")
    assert f"; {later} knows it: lw2g test {later} {tmp_path / 'more'}\n" in done.stderr
    lw2g.learn(later, tmp_path / "more")  # model-6 is newer still, and would find what it has learned
    assert CliRunner().invoke(main, ["test", str(model[0]), str(tmp_path / "more")]).stderr == done.stderr
    for number in (2, 3, 4, 5, 6):
        shutil.rmtree(model[0].with_name(f"model-{number}"))
    lw2g.unlearn(model[0], "blue", out=tmp_path / "red-alone")
    alone = ["predict", str(tmp_path / "red-alone"), str(tmp_path / "more")]
    assert "the model knows one class, and calls every image red" in CliRunner().invoke(main, alone).stderr
    done = CliRunner().invoke(main, [*alone, "--reject", "0.2"])
    assert done.exit_code == 2
    assert "cannot tell unknown images: it knows one class; teach it another: lw2g learn" in done.stderr
    for name, colour in (("red", (200, 30, 30)), ("blue", (30, 30, 200))):
        write_images(tmp_path / "single" / name, colour, 1, 4)
    single, _ = lw2g.start(tmp_path / "single", tmp_path / "one-of-each")
    with pytest.raises(ConfigError, match="it has learned 1 image of each class, and one is"):
        single.threshold(0.2)
    write_images(tmp_path / "forgotten" / "blue", (30, 30, 200), 1, 2)
    done = CliRunner().invoke(main, ["test", str(tmp_path / "red-alone"), str(tmp_path / "forgotten")])
    assert done.exit_code == 2
    assert "the model has forgotten the class 'blue'; leave its folder out, or teach it again" in done.stderr


def test_an_answer_has_a_hint_at_strangers(model: tuple[Path, str], tmp_path: Path) -> None:
    """One line on stderr where the model could refuse, and none where it was told to or for programs."""
    write_images(tmp_path / "more" / "red", (200, 30, 30), 3, 2)
    folder = str(tmp_path / "more")
    hint = (
        "note: each image gets a class of the model, whatever it shows (--reject 0.05 calls some unknown); "
        "probabilities are shares among its classes, too high for images that it has learned\n"
    )
    for words, said in (
        ([folder], hint),
        ([folder, "--reject", "0.1"], ""),
        ([folder, "--json"], ""),
        ([f"{folder}/red/0.png"], hint),
    ):
        done = CliRunner().invoke(main, ["predict", str(model[0]), *words])
        assert (done.exit_code, done.stderr, "unknown" in done.stdout) == (0, said, False), words
    gone = CliRunner().invoke(main, ["predict", str(model[0]), f"{folder}/red/0.png", f"{folder}/gone.png"])
    assert gone.exit_code == 1  # one that is missing has no answer, and the others do
    rows = [line.split()[1:] for line in gone.stdout.splitlines() if ".png" in line]
    assert [row[0] for row in rows] == ["red", "cannot"]
    assert f"error: '{folder}/gone.png': there is no such image" in gone.stderr


def test_strangers_are_counted_where_they_are_called_unknown(model: tuple[Path, str], tmp_path: Path) -> None:
    """By the answers of `predict --reject`, which names a nearest class all the same."""
    write_images(tmp_path / "more" / "red", (200, 30, 30), 4, 2)
    write_images(tmp_path / "others" / "deep" / "green", (30, 200, 30), 5, 3)
    write_images(tmp_path / "others" / "reddish", (200, 30, 30), 2, 4)
    folders = [str(tmp_path / "more"), "--strangers", str(tmp_path / "others")]
    done = CliRunner().invoke(main, ["test", str(model[0]), *folders, "--reject", "0.1", "--json"])
    assert done.exit_code == 0, done.output
    scored = json.loads(done.stdout)
    asked = lw2g.load(model[0]).predict(tmp_path / "others", reject=0.1)
    (tmp_path / "others" / "no.png").write_text("no image")  # is left out, as among known images
    again = CliRunner().invoke(main, ["test", str(model[0]), *folders, "--reject", "0.1", "--json"])
    assert json.loads(again.stdout) == scored
    assert "note: strangers: left out 1 of 8 images, first '" in again.stderr
    refused = sum(entry["rejected"] for entry in asked)
    assert refused == 5  # the green ones
    assert scored["strangers"] == {
        "images": 7,
        "reject": 0.1,
        "refused": 100 * refused / 7,
        "known_refused": 0.0,
        "taken_for": [["red", 2]],
    }
    assert (scored["accuracy"], scored["calibrated"], scored["ece"]) == (100.0, True, None)
    told = CliRunner().invoke(main, ["test", str(model[0]), *folders]).stdout
    assert "5 of 7 strangers called unknown, and 0 of 4 images above (--reject 0.05)" in told
    assert "ECE" not in told  # four images say nothing of it


def test_the_calibration_error_is_that_of_the_probabilities(tmp_path: Path) -> None:
    """From 200 images on: of the best class, in 15 bins, against numpy."""
    for seed, name in enumerate(("one", "two", "three")):
        # colours that can hardly be told
        write_images(tmp_path / "photos" / name, (100 + seed, 100, 100), 25, seed)
        write_images(tmp_path / "more" / name, (100 + seed, 100, 100), 70, 10 + seed)
    opened, _ = lw2g.start(tmp_path / "photos", tmp_path / "model")
    scored = lw2g.test(tmp_path / "model", tmp_path / "more")
    sure, right = [], []
    for name in ("one", "two", "three"):
        for entry in opened.predict(tmp_path / "more" / name):
            sure.append(entry["probability"])
            right.append(entry["class"] == name)
    bins = np.minimum((15 * np.array(sure)).astype(int), 14)
    gaps = [abs(np.sum(np.array(sure)[bins == one] - np.array(right)[bins == one])) for one in range(15)]
    # in bf16 a probability depends in its last digits on the images beside it
    assert scored["ece"] == pytest.approx(100 * sum(gaps) / 210, abs=0.01)
    done = CliRunner().invoke(main, ["test", str(tmp_path / "model"), str(tmp_path / "more")])
    assert f"probabilities are off by {scored['ece']:.1f} points on average (calibration" in done.stdout


def test_strangers_that_say_nothing_are_one_line(model: tuple[Path, str], tmp_path: Path) -> None:
    """A class of the model, no folder, and a model that cannot tell: before any image is read."""
    write_images(tmp_path / "others" / "red", (200, 30, 30), 1, 2)
    unread = tmp_path / "unread"
    (unread / "red").mkdir(parents=True)
    (unread / "red" / "0.png").write_text("no image")
    lw2g.start(model[0].parent / "photos", tmp_path / "means", head="cosine")
    for made, strangers, told in (
        (model[0], tmp_path / "others", "strangers: the model knows the class 'red'"),
        (model[0], tmp_path / "nothing", "strangers: there is nothing at"),
        (tmp_path / "means", tmp_path / "others", "its head keeps no covariance"),
    ):
        done = CliRunner().invoke(main, ["test", str(made), str(unread), "--strangers", str(strangers)])
        assert done.exit_code == 2
        assert told in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_model_in_python_learns_forgets_and_is_tested_as_by_the_commands(
    model: tuple[Path, str], tmp_path: Path
) -> None:
    """Methods and functions share what the commands do; errors name arguments, and no option."""
    folder = model[0]
    write_images(tmp_path / "new" / "green", (30, 200, 30), 6, 4)
    write_images(tmp_path / "more" / "red", (200, 30, 30), 3, 2)
    Image.new("RGB", (32, 32), (30, 30, 200)).save(tmp_path / "more" / "red" / "blue.png")
    opened = lw2g.load(folder, device="cpu")
    scored = opened.test(tmp_path / "more")
    assert (scored["accuracy"], scored["classes"][0]["taken_for"]) == (75.0, [("blue", 1)])
    assert scored == lw2g.test(opened, tmp_path / "more") == lw2g.test(folder, tmp_path / "more")
    grown, _ = opened.learn(tmp_path / "new", out=tmp_path / "grown")
    assert scored["learned"] == 0
    again = grown.test(tmp_path / "new")
    assert (again["accuracy"], again["learned"]) == (100.0, 6)
    shutil.copy(tmp_path / "new/green/0.png", tmp_path / "more" / "red")
    done = CliRunner().invoke(main, ["test", str(tmp_path / "grown"), str(tmp_path / "more")])
    assert "accuracy: 2 of 4 images, of which it has learned 1, of 1 class: " in done.stdout
    assert "note: of images that the model has not learned, fewer may be right" in done.stderr
    done = CliRunner().invoke(main, ["test", str(tmp_path / "grown"), str(tmp_path / "new")])
    assert "accuracy: 6 of 6 images, of which it has learned all, of 1 class\n" in done.stdout
    less, report = grown.unlearn("green", out=tmp_path / "less")
    assert (report["forgotten"], report["classes"]) == (["green"], ["blue", "red"])
    assert (tmp_path / "less" / "model.safetensors").read_bytes() == (
        folder / "model.safetensors"
    ).read_bytes()
    back, report = grown.unlearn(last=True, out=tmp_path / "back")
    assert report["forgotten"] == ["green"]
    assert str(back).splitlines()[1] == str(less).splitlines()[1] == "  2 classes: blue, red"
    with pytest.raises(DataError, match="or give unknown classes as strangers=FOLDER"):
        back.test(tmp_path / "new")
    with pytest.raises(DataError, match=r"no class is called 'gren' \(did you mean 'green'"):
        grown.unlearn("gren")
    with pytest.raises(DataError, match="no class is called '3'"):
        grown.unlearn(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"\['red'\] is no name of a class; unlearn one class after"):
        grown.unlearn(["red"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="neither a class nor last; name a class, or give last=True for"):
        grown.unlearn()
    with pytest.raises(ConfigError, match=r"expected a folder but got a TrainedModel; .*: model.unlearn\("):
        lw2g.unlearn(opened, "red")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="max_loss: expected points of accuracy from 0 but got -1"):
        opened.learn(tmp_path / "new", max_loss=-1)
