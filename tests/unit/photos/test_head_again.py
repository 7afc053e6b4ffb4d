"""A head that is chosen again: whatever steps the images come in, the model is that of all images at once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

import lw2g
from lw2g.cli.main import main
from lw2g.errors import ConfigError, DataError
from lw2g.maths import few_rows
from lw2g.model.exported import Saved, read_export, write_export
from lw2g.model.left_out import calibration_of
from lw2g.model.solved import solved_of
from lw2g.registry.catalogue import load_catalogue
from lw2g_photos import starting
from lw2g_photos.classroom import Classroom
from lw2g_photos.head_choice import old_images_found
from lw2g_photos.uploads import Upload

NAMES = ("ant", "bee", "cat", "dog", "eel")
BY_ONE = tuple((name,) for name in NAMES)
_IMAGES = 8


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Join two layers of the embedded backbone, whose sums are small."""
    monkeypatch.setattr(starting, "WIDEST", 600)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noisy glyphs, `CLASS/CLASS/*`: ridge is chosen for all of them, and other heads for some."""
    root = tmp_path_factory.mktemp("drawn")
    draw = np.random.default_rng(0)
    stream = load_catalogue().get("benchmark", "glyphs")
    tasks = stream.build(stream.config(train_per_class=_IMAGES, test_per_class=4)).stream().tasks
    for number, name in enumerate(NAMES):
        data = tasks[number].train
        rows = data.indices[data.labels == data.labels.min()]
        folder = root / name / name
        folder.mkdir(parents=True)
        for place, row in enumerate(rows.tolist()):
            pixels = data.source.image(row).permute(1, 2, 0).numpy()
            noisy = np.clip(pixels + draw.normal(0, 20, pixels.shape), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(folder / f"{place}.png")
    return root


@pytest.fixture(scope="module")
def whole(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of all classes at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting, "WIDEST", 600)
        return _learned(drawn, (NAMES,), tmp_path_factory.mktemp("whole"))[0]


@pytest.fixture(scope="module")
def ones(drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Models `0` to `4`, each of a class more, in a folder; and the reports of their steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(starting, "WIDEST", 600)
        model, reports = _learned(drawn, BY_ONE, tmp_path_factory.mktemp("ones"))
    return model.parent, reports


def _folder(drawn: Path, names: Sequence[str], at: Path) -> Path:
    at.mkdir(parents=True)
    for name in names:
        (at / name).symlink_to(drawn / name / name)
    return at


def _learned(
    drawn: Path, split: Sequence[Sequence[str]], at: Path, **options: Any
) -> tuple[Path, list[dict[str, Any]]]:
    """Return the model that begins with the first classes and learns the others, and all reports."""
    reports = []
    model = at / "0"
    for number, names in enumerate(split):
        folder = _folder(drawn, names, at / f"images-{number}")
        if number == 0:
            report = lw2g.start(folder, model, backbone="micro", device="cpu", **options)[1]
        else:
            report = lw2g.learn(model, folder, out=at / str(number), device="cpu")[1]
            model = at / str(number)
        reports.append(report)
    return model, reports


def _require_that_of(whole: Path, model: Path, drawn: Path) -> None:
    """Require one model to be another, up to rounding and the order of classes."""
    one, other = (read_export(path).manifest for path in (model, whole))
    assert (one.baseline, one.head, one.backbone) == (other.baseline, other.head, other.backbone)
    assert one.fingerprint == other.fingerprint
    assert one.components == other.components
    scored = []
    images = sorted(drawn.rglob("*.png"))
    for path in (whole, model):
        opened = lw2g.load(path, device="cpu")
        scores = opened.baseline.closed_form.scores(opened.features(images).double(), len(opened.classes))
        scored.append(scores[:, [opened.classes.index(name) for name in sorted(opened.classes)]])
    torch.testing.assert_close(scored[0], scored[1], rtol=1e-8, atol=1e-8)


def test_classes_in_steps_give_the_model_of_all_at_once(
    ones: tuple[Path, list[dict[str, Any]]], drawn: Path, whole: Path, tmp_path: Path
) -> None:
    """Head, layers and scores are the same, though another head answered on the way."""
    some = _learned(drawn, (("eel", "cat"), ("ant", "bee", "dog")), tmp_path)
    for model, reports in ((ones[0] / "4", ones[1]), some):
        heads = [(report["choice"]["head"], report["choice"]["layers"]) for report in reports]
        assert heads[0] == ("lda", 1)
        assert heads[-1] == ("ridge", 2)
        _require_that_of(whole, model, drawn)


def test_images_that_check_a_step_are_compared_with_what_was_learned(
    ones: tuple[Path, list[dict[str, Any]]], drawn: Path, tmp_path: Path
) -> None:
    """By features of one kind, whichever layers the head reads that is chosen then."""
    (tmp_path / "test/ant").mkdir(parents=True)
    shutil.copy(drawn / "ant/ant/0.png", tmp_path / "test/ant/learned.png")
    with Image.open(drawn / "ant/ant/1.png") as image:
        image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "test/ant/new.png")
    report = lw2g.learn(
        ones[0] / "3", drawn / "eel", out=tmp_path / "more", test=tmp_path / "test", device="cpu"
    )[1]
    assert report["choice"]["layers"] == 2
    assert report["checked"] == 2
    assert "test: shares 1 image with what is learned" in report["warnings"]


@st.composite
def _splits(draw: st.DrawFn) -> tuple[tuple[str, ...], ...]:
    names = draw(st.permutations(NAMES))
    ends = sorted({len(names), *draw(st.sets(st.integers(1, len(names) - 1)))})
    return tuple(tuple(names[first:last]) for first, last in zip([0, *ends], ends, strict=False))


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(split=_splits(), gone=st.sampled_from(NAMES))
def test_any_steps_give_that_model_and_forget_to_the_bit(
    split: tuple[tuple[str, ...], ...],
    gone: str,
    drawn: Path,
    whole: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever the split; without a class both files have the bytes of a model that never met it."""
    root = tmp_path_factory.mktemp("split")
    model, _ = _learned(drawn, split, root / "all")
    _require_that_of(whole, model, drawn)
    rest = [[name for name in names if name != gone] for names in split]
    never, _ = _learned(drawn, [names for names in rest if names], root / "never")
    lw2g.unlearn(model, gone, out=root / "without", device="cpu")
    files = [read_export(path).manifest.files for path in (root / "without", never)]
    assert files[0] == files[1]


def test_a_forgotten_class_has_no_part_in_the_choice(
    ones: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """The head is that of the others, to the bit, and nothing remains; a line names both heads."""
    root, _ = ones
    done = CliRunner().invoke(main, ["unlearn", str(root / "4"), "eel", "--out", str(tmp_path / "less")])
    assert done.exit_code == 0, done.output
    better = "smaller and within a standard error of ridge on 2 layers 93.8 %"
    assert f"\nformula chosen anew: lda 90.6 %, {better}; before: ridge on 2 layers\n" in done.stdout
    shown = CliRunner().invoke(main, ["show", str(tmp_path / "less"), "--all"]).stdout
    assert "head: lda 90.6 % (also tried: ridge on 2 layers 93.8 %, lda on 2 layers 90.6 %) of 32" in shown
    assert "not taken back" not in done.output
    less = read_export(tmp_path / "less", whole=True).manifest
    assert less.files == read_export(root / "3").manifest.files
    assert less.history.steps[-1].checks["choice"]["images"] == 4 * _IMAGES


def test_learn_says_that_the_head_has_changed_and_what_old_classes_lose(
    ones: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """A line where it has, none where it has not; the loss is between the old model and the new one."""
    root, reports = ones
    found = []
    for path in (root / "1", root / "2"):
        opened = lw2g.load(path, device="cpu")
        found.append(calibration_of(solved_of(opened.parts), read_export(path, whole=True))[1]["right"])
    old = found[1][: 2 * _IMAGES]
    assert reports[2]["loss"] == pytest.approx(100 * float(found[0].mean() - old.mean()))
    assert reports[2]["loss"] != 0
    assert reports[2]["choice"]["before"] == {"head": "ridge", "layers": 2}
    assert repr(reports[2]).endswith("; formula chosen anew: lda; before: ridge on 2 layers>")
    assert "formula" not in repr(reports[3])
    lines = []
    for before, images in (("1", "images-2"), ("2", "images-3")):
        out = tmp_path / images
        learn = ["learn", str(root / before), str(root / images), "--out", str(out), "--device", "cpu"]
        done = CliRunner().invoke(main, learn, catch_exceptions=False)
        lines.append([line for line in done.stdout.splitlines() if line.startswith("formula")])
    assert lines == [["formula chosen anew: lda; before: ridge on 2 layers"], []]


def test_the_page_says_that_the_head_has_changed(
    ones: tuple[Path, list[dict[str, Any]]], drawn: Path, tmp_path: Path
) -> None:
    """Beside the warnings of the step."""
    shutil.copytree(ones[0] / "1", tmp_path / "model")
    classroom = Classroom(tmp_path / "model", load_catalogue(), device="cpu")
    files = {path.name: path.read_bytes() for path in sorted((drawn / "cat" / "cat").iterdir())}
    uploads = [Upload(folders=["cat"], name=name, size=len(content)) for name, content in files.items()]
    classroom.learn(uploads, BytesIO(b"".join(files.values())))
    classroom.close()
    *_, last = classroom.state()["check"]["warnings"]
    assert last == "formula chosen anew: lda; before: ridge on 2 layers"


def test_old_images_are_those_that_both_models_say_something_of() -> None:
    """An image alone in its class says nothing; without any nothing is said."""
    before = torch.tensor([1.0, torch.nan, 1.0, 0.0, 1.0])
    after = torch.tensor([1.0, 1.0, 0.0, 1.0, torch.nan, 0.0])
    assert old_images_found(before[:4], after) == {
        "images": 3,
        "before": pytest.approx(200 / 3),
        "now": pytest.approx(200 / 3),
    }
    assert old_images_found(before[:3], after) == {"images": 2, "before": 100.0, "now": 50.0}
    assert old_images_found(before[1:2], after[1:]) is None
    assert old_images_found(None, after) is None


def test_a_head_that_was_named_stays(drawn: Path, tmp_path: Path) -> None:
    """Nothing is chosen, nothing is kept for a choice, and no line asks for one."""
    model, reports = _learned(drawn, BY_ONE[:3], tmp_path, head="lda")
    saved = read_export(model, whole=True)
    assert (saved.manifest.fingerprint.layers, saved.manifest.baseline.options["head"]) == (1, "lda")
    assert not any("choice" in report for report in reports)
    assert saved.manifest.history.candidates == []
    assert not any(name.startswith("tried/") for name in saved.learned)
    assert not any("chosen" in warning for report in reports for warning in report["warnings"])


def _as_an_earlier_lw2g(model: Path, out: Path) -> Path:
    """Write a model as it was before models kept what a choice needs."""
    saved = read_export(model, whole=True)
    history = attrs.evolve(saved.manifest.history, candidates=[])
    learned = {name: rows for name, rows in saved.learned.items() if not name.startswith("tried/")}
    manifest = attrs.evolve(saved.manifest, learning=history)
    write_export(Saved(manifest=manifest, tensors=saved.tensors, learned=learned), out)
    return out


@pytest.mark.parametrize(("classes", "told"), [(1, "1 class"), (2, "2 classes"), (3, "")])
def test_a_model_that_cannot_choose_keeps_its_head_and_says_so(
    classes: int, told: str, drawn: Path, tmp_path: Path
) -> None:
    """One of an earlier lw2g learns and forgets as it did; what to do about few classes is told."""
    model, _ = _learned(drawn, (NAMES[:classes],), tmp_path / "new")
    model = _as_an_earlier_lw2g(model, tmp_path / "old")
    before = read_export(model).manifest
    folder = _folder(drawn, ["dog", "eel"], tmp_path / "more")
    _, report = lw2g.learn(model, folder, out=tmp_path / "out", device="cpu")
    assert "choice" not in report
    after = read_export(tmp_path / "out").manifest
    assert (after.baseline, after.fingerprint) == (before.baseline, before.fingerprint)
    lines = [warning for warning in report["warnings"] if "was chosen on" in warning]
    if told:
        assert lines == [
            f"the formula was chosen on {told} and stays, as the model keeps not all that a choice "
            "needs; lw2g start on the photos of all classes chooses again"
        ]
    else:
        assert lines == []
    _, forgotten = lw2g.unlearn(tmp_path / "out", last=True, out=tmp_path / "back", device="cpu")
    assert "choice" not in forgotten
    files = [read_export(path).tensors for path in (tmp_path / "back", model)]
    assert all(torch.equal(value, files[1][name]) for name, value in files[0].items())


def test_more_images_than_stand_in_place_of_sums_keep_the_head(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step beyond the bound chooses no more, keeps features of the head's own layers alone, and says so."""
    monkeypatch.setattr(few_rows, "_WIDE", 100)
    monkeypatch.setattr(few_rows, "_FEW", 600 / 20)  # 16 images are few, 24 are not
    model, reports = _learned(drawn, BY_ONE[:3], tmp_path)
    assert ["choice" in report for report in reports] == [True, True, False]
    assert "the formula was chosen on 2 classes" in " ".join(reports[2]["warnings"])
    saved = read_export(model, whole=True)
    assert saved.manifest.history.candidates == []
    assert {name.partition("/")[0] for name in saved.learned} <= {"features", "base", "new", "zero"}
    begun, _ = _learned(drawn, (NAMES[:3],), tmp_path / "at once")
    assert read_export(begun).manifest.history.candidates == []


def test_stored_features_choose_again_between_heads(tmp_path: Path) -> None:
    """A file of a class more: both heads are asked again on the file's own numbers."""
    draw = np.random.default_rng(1)
    rows = draw.normal(size=(30, 6)).astype(np.float32)
    labels = np.arange(30) % 3
    rows[np.arange(30), labels] += 4
    for name, chosen in (("first", labels < 2), ("more", labels == 2)):
        names = ["a", "b"] if name == "first" else ["c"]
        stored = {
            "train_x": rows[chosen],
            "train_y": labels[chosen] % 2 if name == "first" else labels[chosen] - 2,
        }
        np.savez(tmp_path / f"{name}.npz", test_x=rows[:1], test_y=[0], class_names=names, **stored)
    lw2g.start(tmp_path / "first.npz", tmp_path / "model", device="cpu")
    model, report = lw2g.learn(tmp_path / "model", tmp_path / "more.npz", out=tmp_path / "out", device="cpu")
    assert [entry["head"] for entry in report["choice"]["tried"]] == ["lda", "ridge"]
    assert report["choice"]["images"] == 30
    assert model.classes == ("a", "b", "c")


FORGED: dict[str, tuple[dict[str, Any], dict[str, Tensor | None], str]] = {
    "no candidates": ({"candidates": []}, {}, "layers that no head may read"),
    "layers of no candidate": ({}, {"tried/x/0/0": torch.ones(8, 3)}, "layers that no head may read"),
    "features are missing": ({}, {"tried/2/0/0": None}, "features are missing"),
    "fewer images": ({}, {"tried/2/0/0": torch.ones(3, 512)}, "of another number of images"),
    "base sums": (
        {"tasks": 1, "steps": []},
        {"features/0/0": None, "tried/2/0/0": None},
        "before the first step",
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_forged_candidates_are_refused_in_a_line(what: str, drawn: Path, tmp_path: Path) -> None:
    """What a model may choose among fits the features that it keeps, or nothing is opened."""
    changes, rows, told = FORGED[what]
    model, _ = _learned(drawn, (["ant"],), tmp_path / "model")
    saved = read_export(model, whole=True)
    manifest = attrs.evolve(saved.manifest, learning=attrs.evolve(saved.manifest.history, **changes))
    learned = {name: value for name, value in {**saved.learned, **rows}.items() if value is not None}
    write_export(Saved(manifest=manifest, tensors=saved.tensors, learned=learned), tmp_path / "forged")
    with pytest.raises(DataError, match=told):
        read_export(tmp_path / "forged", whole=True)


def test_forged_sizes_are_refused_before_a_step(drawn: Path, tmp_path: Path) -> None:
    """More layers than the backbone has, or rows of another width, end in one line."""
    model, _ = _learned(drawn, (["ant"],), tmp_path / "model")
    folder = _folder(drawn, ["bee"], tmp_path / "bee")
    saved = read_export(model, whole=True)
    first, *others = saved.manifest.history.candidates
    many = [first, *(attrs.evolve(one, layers=99) for one in others)]
    learned = {name.replace("tried/2", "tried/99"): rows for name, rows in saved.learned.items()}
    manifest = attrs.evolve(saved.manifest, learning=attrs.evolve(saved.manifest.history, candidates=many))
    write_export(Saved(manifest=manifest, tensors=saved.tensors, learned=learned), tmp_path / "many")
    with pytest.raises(ConfigError, match=r"99 is not within 1 to"):
        lw2g.learn(tmp_path / "many", folder, out=tmp_path / "no", device="cpu")
    narrow = {**saved.learned, "tried/2/0/0": torch.ones(_IMAGES, 7)}
    write_export(attrs.evolve(saved, learned=narrow), tmp_path / "narrow")
    with pytest.raises(DataError, match="of other widths than 512"):
        lw2g.learn(tmp_path / "narrow", folder, out=tmp_path / "no", device="cpu")
    assert not (tmp_path / "no").exists()


def test_a_model_takes_its_backbone_along_whichever_head_is_chosen(
    ones: tuple[Path, list[dict[str, Any]]], drawn: Path, tmp_path: Path
) -> None:
    """`export --with-backbone` of a model: it learns and unlearns as before, and the weights stay inside."""
    before = ones[0] / "1"
    done = CliRunner().invoke(main, ["export", str(before), str(tmp_path / "whole"), "--with-backbone"])
    assert done.exit_code == 0, done.output
    assert ", with its backbone\n" in done.stdout
    new = _folder(drawn, NAMES[2:], tmp_path / "new")
    lw2g.learn(tmp_path / "whole", new, out=tmp_path / "more", device="cpu")
    _, step = lw2g.learn(before, new, out=tmp_path / "plain", device="cpu")
    lw2g.unlearn(tmp_path / "more", last=True, out=tmp_path / "back", device="cpu")
    assert "choice" in step  # models of all candidates are made anew
    for one, other in (("whole", before), ("more", tmp_path / "plain"), ("back", before)):
        inside, outside = (read_export(path).tensors for path in (tmp_path / one, other))
        weights = {name for name in inside if name.startswith("backbone/")}
        assert weights
        assert inside.keys() - weights == outside.keys()
        assert all(torch.equal(inside[name], value) for name, value in outside.items())
    for wrong in ({}, {"with_backbone": True, "task": 1}, {"with_backbone": True, "learnable": True}):
        with pytest.raises(
            ConfigError, match="an exported model and no run; copy the folder, or give with_backb"
        ):
            lw2g.export(before, tmp_path / "no", **wrong)
