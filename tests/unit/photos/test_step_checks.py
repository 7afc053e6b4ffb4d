"""What is checked after a step: recall without the checked images, look-alikes, and what kept images say."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import lw2g
from lw2g.blocks.discriminants import Discriminant
from lw2g.blocks.expert import FrozenExpert
from lw2g.blocks.ridge import Ridge
from lw2g.config.resolve import resolve
from lw2g.errors import ConfigError
from lw2g.interfaces.calibration import least_loss
from lw2g.lifecycle.run_opening import reopen
from lw2g.lifecycle.runner import start
from lw2g.model.exported import Saved, read_export
from lw2g.model.learnable_export import export_learnable
from lw2g.model.left_out import calibration_of
from lw2g.model.manifest import BackboneSection, Learning, Manifest, Section, TaskNote
from lw2g.model.rejection import moments_of
from lw2g.model.saved import open_model
from lw2g.model.solved import Solved
from lw2g.registry.catalogue import Catalogue
from lw2g_photos.class_folders import read_class_folders
from lw2g_photos.step_checks import left_out_classes, look_alikes
from lw2g_testing.tiny import tiny_backbone
from written_images import write_images

SIZES = {"ant": 4, "bee": 27, "cow": 12, "dog": 60}
"""Images of each class; a fifth of them is set apart, none of four and ten of sixty."""


SHORT: dict[str, Any] = {
    "backbone.spread": 0.1,
    "benchmark.train": 12,
    "benchmark.test": 3,
    "routing.expert": "frozen",
    "run.device": "cpu",
    "run.evaluation_batch": 12,
    "run.precision": "32-true",
}


def noise(folder: Path, count: int, seed: int, shade: int) -> None:
    """Write pictures that can hardly be told from those of another shade."""
    draw = np.random.default_rng(seed)
    write_images(folder, (draw.integers(0, 200, (32, 32, 3)) + shade for _ in range(count)))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unequal classes below `whole`; those images that are set apart below `apart`, the others in `rest`."""
    root = tmp_path_factory.mktemp("pictures")
    for seed, (name, count) in enumerate(SIZES.items()):
        noise(root / "whole" / name, count, seed, 2 * seed)
    for name, images in read_class_folders(root / "whole").items():
        for path, is_apart in zip(images.paths, images.held_out, strict=True):
            folder = root / ("apart" if is_apart else "rest") / name
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder)
    return root


def told_by(model: Any, folder: Path) -> dict[str, tuple[int, float, list[str]]]:
    """What the report says of each class, by a model's own answers for the images below a folder."""
    found = {}
    for name in sorted(path.name for path in folder.iterdir()):
        answers = [row["class"] for row in model.predict(sorted((folder / name).iterdir()))]
        wrong = [answer for answer in answers if answer != name]
        order = sorted(set(wrong), key=lambda other: (-wrong.count(other), other))
        found[name] = (len(answers), 100 * (1 - len(wrong) / len(answers)), order[:5])
    return found


def require_recall(report: dict[str, Any], expected: dict[str, tuple[int, float, list[str]]]) -> None:
    """Compare a report with what a model says that never saw the images; some of them it gets wrong."""
    told = {}
    for entry in report["classes"]:
        if entry["checked"]:
            told[entry["class"]] = (entry["checked"], entry["recall"], entry["taken_for"])
    assert told == expected
    assert [count for count, _, _ in told.values()] == [5, 2, 10]
    right = sum(count * recall for count, recall, _ in told.values())
    assert report["set_apart"]["accuracy"] == pytest.approx(right / 17)
    assert 0 < report["set_apart"]["accuracy"] < 100


def test_the_accuracy_of_a_start_is_that_of_a_model_without_the_images(
    pictures: Path, tmp_path: Path
) -> None:
    """Those that are set apart are learned afterwards alone."""
    report = lw2g.start(pictures / "whole", tmp_path / "whole", device="cpu")[1]
    rest = lw2g.start(pictures / "rest", tmp_path / "rest", device="cpu")[0]
    require_recall(report, told_by(rest, pictures / "apart"))


def test_the_accuracy_of_a_step_is_that_of_head_and_expert_without_the_images(
    pictures: Path, tmp_path: Path
) -> None:
    """More images of known classes, an expert beside the head: as the model's own answers are."""
    noise(tmp_path / "data/train/cow", 20, 100, 4)
    noise(tmp_path / "data/train/eel", 20, 101, 55)
    shutil.copytree(tmp_path / "data/train", tmp_path / "data/test")
    for path in (tmp_path / "data/test").rglob("*.png"):
        Image.open(path).rotate(90).save(path)
    options: dict[str, Any] = {"baseline": "slca-plus-plus", "benchmark": "folder", "device": "cpu"}
    options |= {"precision": "32-true", "progress": False, "benchmark.root": str(tmp_path / "data")}
    options |= {"baseline.head": "lda", "routing.expert": "frozen", "benchmark.increment": 2}
    lw2g.run(out=tmp_path / "run", **options)
    lw2g.export(tmp_path / "run", tmp_path / "model")
    report = lw2g.learn(tmp_path / "model", pictures / "whole", out=tmp_path / "whole", device="cpu")[1]
    rest = lw2g.learn(tmp_path / "model", pictures / "rest", out=tmp_path / "rest", device="cpu")[0]
    require_recall(report, told_by(rest, pictures / "apart"))
    # both speak: neither alone gives these answers
    images = sorted((pictures / "apart").rglob("*.png"))
    rows = rest.features(images, queries=True).double()
    head, expert = rest.baseline.closed_form, rest.baseline.frozen_expert
    features, queries = Solved(head=head, expert=expert).split(rows)
    seen = [head.scores(features, 6)[:, :5].argmax(1), expert.log_posterior(queries, head.targets).argmax(1)]
    together = rest.answer(images).classes
    assert not torch.equal(seen[0], together)
    assert not torch.equal(seen[1], together)


# -- what kept images say ------------------------------------------------------------------------------------


def model_of(*tasks: list[str], before: int = 1) -> Manifest:
    """A model that has learned these classes; those of the first tasks before its first step."""
    names = list(dict.fromkeys(name for task in tasks for name in task))
    notes = []
    for task in tasks:
        targets = [names.index(name) for name in task]
        notes.append(TaskNote(class_names=task, num_images=len(task), targets=targets))
    history = Learning(
        tasks=before,
        num_tasks=before,
        num_classes=sum(map(len, tasks[:before])),
        names=names,
        numbers=list(range(len(names))),
    )
    return Manifest(
        baseline=Section(name="simple-cil", options={}),
        backbone=BackboneSection(name="tiny", options={}),
        routing={},
        run={},
        num_tasks=len(tasks),
        num_classes=sum(map(len, tasks)),
        tasks=notes,
        task_to_set=[0] * len(tasks),
        preprocessing=None,
        weights_name="tiny",
        fingerprint=tiny_backbone(depth=1).fingerprint,
        learning=history,
    )


def drawn(seed: int, counts: tuple[int, ...], width: int = 4, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Rows about means that lie two apart, and their classes."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    means = 2 * torch.eye(len(counts), width, dtype=torch.float64)
    rows = means[labels] + spread * torch.randn(len(labels), width, generator=draw, dtype=torch.float64)
    return rows, labels


def lda(rows: Tensor, labels: Tensor, classes: int) -> Discriminant:
    head = Discriminant(rows.shape[1], classes)
    head.update(rows, labels)
    return head


def kept(rows: Tensor, labels: Tensor) -> dict[str, Tensor]:
    return {f"kept/{label}": rows[labels == label].float() for label in labels.unique().tolist()}


def test_images_that_a_trained_run_has_not_learned_are_scored_as_they_are() -> None:
    """Sums that were carried along hold none of them; what steps have added they hold, and it is left out."""
    rows, labels = drawn(0, (20, 30, 40), 24)
    others, own = drawn(1, (15, 10), 24, 3.0)
    head = lda(rows, labels, 4)
    new = drawn(2, (12,), 24)[0] + 4
    head.update(new.float(), torch.full((12,), 3))
    learned = kept(others, own) | {"features/0/0": new.float()}
    saved = Saved(manifest=model_of(["a", "b", "c"], ["d"]), tensors={}, learned=learned)
    gaussians = moments_of(head, 4)
    assert gaussians is not None
    apart = gaussians.scores(others.float().double())
    found, report, _ = calibration_of(Solved(head=head, trained=True), saved)
    assert report["left_out"] == 37
    known = found.tensors()["known"].tolist()
    assert known == sorted(known)
    assert all(min(abs(score - one) for one in known) < 1e-6 for score in apart.tolist())
    # as if sums held them, their covariance would be none without one of them: the worst score means nothing
    wrong, _, _ = calibration_of(Solved(head=head), saved)
    assert float(wrong.tensors()["known"][0]) < 1000 * known[0]
    rest = lda(torch.cat([rows, new[1:].float()]), torch.cat([labels, torch.full((11,), 3)]), 4)
    without = moments_of(rest, 4)
    assert without is not None
    first = float(without.scores(new[:1].float().double()))
    assert min(abs(first - one) for one in known) < 0.05 * abs(first)


@pytest.mark.parametrize("warm", [False, True])
def test_the_temperature_is_that_of_head_and_expert_without_each_image(warm: bool) -> None:
    """Fitted to the product of posteriors that both give when they are solved again without the image."""
    counts = (12, 16, 24)
    rows, labels = drawn(3, counts, 4)
    queries, _ = drawn(4, counts, 4, 1.5)
    expert = FrozenExpert(4, 3, fitted=True)
    expert.lda.update(queries, labels)
    if warm:
        expert.observe(
            30 * torch.randn(200, 3, generator=torch.Generator().manual_seed(5)), labels[:1].repeat(200)
        )
        assert expert.warmth > 10
    head = lda(rows, labels, 3)
    both = torch.cat([rows, queries], 1)
    saved = Saved(manifest=model_of(["a", "b", "c"]), tensors={}, learned=kept(both, labels))
    found, report, _ = calibration_of(Solved(head=head, expert=expert), saved)
    apart = []
    for place in range(len(labels)):
        rest = torch.arange(len(labels)) != place
        alone = FrozenExpert(4, 3, fitted=True)
        alone.lda.update(queries[rest], labels[rest])
        own = lda(rows[rest], labels[rest], 3).scores(rows[place : place + 1], 3) / expert.warmth
        apart.append(own.log_softmax(1) + alone.log_posterior(queries[place : place + 1], range(3)))
    logits = torch.cat(apart)
    fitted = least_loss(logits, labels, doubt=1 / (len(labels) + 2))
    right = (logits.argmax(1) == labels).double().mean()
    assert report["temperature"] == float(found.tensors()["temperature"]) == pytest.approx(fitted, rel=0.01)
    assert report["left_out_accuracy"] == pytest.approx(100 * float(right))
    assert 60 < report["left_out_accuracy"] < 100


@pytest.mark.parametrize(
    ("baseline", "options"),
    [
        ("slca-plus-plus", {"baseline.head": "lda", "baseline.head_carry": "gated", "baseline.epochs": 1}),
        ("simple-cil", {"baseline.head": "lda"}),
        ("simple-cil", {"baseline.head": "ridge", "baseline.head_features": 30}),
    ],
)
def test_an_export_keeps_images_that_tell_of_new_ones(
    baseline: str, options: dict[str, Any], catalogue: Catalogue, tmp_path: Path
) -> None:
    """Test images where features were trained; else training images that its sums hold, none held back."""
    names = {"baseline": baseline, "benchmark": "tiny", "backbone": "tiny"}
    start(resolve(catalogue, overrides=SHORT | options, **names), catalogue, tmp_path / "run")
    export_learnable(tmp_path / "run", catalogue, tmp_path / "model")
    learned = read_export(tmp_path / "model", whole=True).learned
    model = open_model(tmp_path / "model", catalogue, device="cpu")
    counts = model.baseline.closed_form.count.tolist()
    for task in reopen(tmp_path / "run", catalogue).data.stream.tasks:
        data = task.train if baseline == "simple-cil" else task.test
        for label in task.classes:
            places = data.indices[data.labels == label]
            images = [data.source.image(int(place)) for place in places]
            expected = model.features(images, queries=True)
            torch.testing.assert_close(learned[f"kept/{label}"], expected)
            assert baseline != "simple-cil" or len(images) == counts[label]


# -- look-alikes ---------------------------------------------------------------------------------------------


COUNTED = [
    [6, 0, 0, 2, 2, 0],  # a: of two new classes together four in ten
    [0, 18, 0, 0, 2, 0],  # b: one in ten, which is not more than that
    [0, 0, 3, 1, 0, 0],  # c: a single image may be an accident
    [0, 0, 0, 10, 0, 0],  # d: found, and yet others pass for it
    [0, 2, 0, 0, 2, 0],  # e
    [0, 0, 2, 0, 0, 18],  # f: one in ten
]
"""How often images of six classes, of which the last three are new, are taken for each one."""


class Told:
    """Gaussians whose errors are given."""

    def __init__(self, rates: list[list[float]]) -> None:
        self.rates = torch.tensor(rates, dtype=torch.float64)

    def errors(self) -> Tensor:
        """Return them."""
        return self.rates


def test_look_alikes_are_told_in_either_direction() -> None:
    """A new class is like the one that it is taken for, or that is taken for it, above one case in ten."""
    manifest = model_of(["a", "b", "c"], ["d", "e", "f"])
    told = look_alikes(None, torch.tensor(COUNTED, dtype=torch.float64), manifest)
    assert told["twins"] == [
        {"class": "d", "like": "a", "error": 20.0, "images": 10},
        {"class": "e", "like": "b", "error": 50.0, "images": 4},
    ]
    assert told["losing"] == [{"class": "a", "loss": 40.0, "images": 10}]
    assert told["estimated_loss"] is None


def test_what_was_seen_needs_no_estimate() -> None:
    """Counts of left-out images say what is confused; without them estimates do, of no images."""
    rates = [[0.0] * 6 for _ in range(6)]
    rates[0][3] = 0.3
    rates[1][3], rates[1][4] = 0.9, 0.4
    rates[3][2] = 0.3
    rates[4][4] = 0.7  # nobody is taken for oneself
    gaussians: Any = Told(rates)
    manifest = model_of(["a", "b", "c"], ["d", "e", "f"])
    counted = torch.tensor(COUNTED, dtype=torch.float64)
    told = look_alikes(gaussians, counted, manifest)
    assert told["twins"] == look_alikes(None, counted, manifest)["twins"]
    assert told["estimated_loss"] == pytest.approx(100 * (0.3 + 1) / 3)
    alone = look_alikes(gaussians, None, manifest)
    assert [(twin["class"], twin["like"]) for twin in alone["twins"]] == [("d", "b"), ("e", "b")]
    losing = [(entry["class"], round(entry["loss"]), entry["images"]) for entry in alone["losing"]]
    assert losing == [("b", 100, None), ("a", 30, None)]
    assert gaussians.rates[4, 4] == 0.7  # what was estimated stays as it is


def test_left_out_images_tell_of_each_class() -> None:
    """How many are found, and what the others are taken for, the most frequent first, with counts."""
    rows = left_out_classes(
        torch.tensor(COUNTED, dtype=torch.float64), model_of(["a", "b", "c"], ["d", "e", "f"])
    )
    assert rows[0] == {"class": "a", "left_out": 10, "recall": 60.0, "taken_for": [["d", 2], ["e", 2]]}
    assert rows[3] == {"class": "d", "left_out": 10, "recall": 100.0, "taken_for": []}
    assert left_out_classes(None, model_of(["a"], ["b"])) == []


@pytest.mark.parametrize("most", [-0.1, float("nan"), float("inf")])
def test_a_loss_that_is_none_is_refused_before_anything_is_read(most: float, tmp_path: Path) -> None:
    """Points of accuracy from 0, without an end of their own; the model need not be there."""
    with pytest.raises(ConfigError, match="max_loss: expected points of accuracy from 0 but got"):
        lw2g.learn(tmp_path / "model", tmp_path, max_loss=most)


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"baseline": "simple-cil", "head": "lda"}, "keeps features of 0 images; .* RUN MODEL --learnable"),
        (
            {"baseline": "simple-cil", "head": "cosine"},
            "keeps no covariance; start without head",
        ),
        ({"baseline": "dual-prompt", "head": "linear"}, "the head of baseline 'dual-prompt' is trained"),
    ],
    ids=lambda chosen: chosen["head"] if isinstance(chosen, dict) else "",
)
def test_why_a_model_cannot_tell_unknown_images(
    chosen: dict[str, str], told: str, catalogue: Catalogue, tmp_path: Path
) -> None:
    """What is missing is named: kept images, a covariance, or sums at all."""
    overrides = SHORT | {"routing.expert": "none", "baseline.head": chosen["head"]}
    if chosen["baseline"] == "dual-prompt":
        overrides["baseline.epochs"] = 1
    names = {"baseline": chosen["baseline"], "benchmark": "tiny", "backbone": "tiny"}
    start(resolve(catalogue, overrides=overrides, **names), catalogue, tmp_path / "run")
    model = open_model(tmp_path / "run", catalogue)
    with pytest.raises(ConfigError, match=f"cannot tell unknown images: .*{told}"):
        model.predict(model.backbone.blank(), reject=0.1)


def vectors(path: Path, classes: list[str], seed: int, each: int = 12, width: int = 6) -> Path:
    """Stored features of overlapping classes, as a file."""
    draw = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(classes)), each)
    means = np.stack([np.random.default_rng(len(name)).normal(size=width) for name in classes])
    x = (means[y] + draw.normal(size=(len(y), width))).astype(np.float32)
    splits = {"train_x": x, "train_y": y, "test_x": x[::6] + 1, "test_y": y[::6]}
    np.savez(path, class_names=np.array(classes), **splits)
    return path


@pytest.mark.parametrize("head", ["ridge", "cosine", "mahalanobis"])
def test_an_exact_head_answers_at_the_temperature_of_its_left_out_images(head: str, tmp_path: Path) -> None:
    """The least log loss of scores without each image; it is forgotten to the bit, too."""
    first = vectors(tmp_path / "first.npz", ["a", "bb", "ccc"], 0)
    more = vectors(tmp_path / "more.npz", ["dddd"], 1)
    settings = {"baseline.head_features": 0}
    _, report = lw2g.start(first, tmp_path / "one", head=head, settings=settings)
    saved = read_export(tmp_path / "one", whole=True)
    kept = [saved.learned[f"features/0/{place}"] for place in range(3)]
    labels = torch.arange(3).repeat_interleave(12)
    built = lw2g.load(tmp_path / "one").baseline.closed_form
    assert built is not None
    scores = built.without_each(torch.cat(kept).double(), labels, 3)
    assert scores is not None
    assert report["temperature"] == least_loss(scores, labels, doubt=1 / 38)
    assert report["left_out_accuracy"] == 100 * float((scores.argmax(1) == labels).double().mean())
    assert lw2g.load(tmp_path / "one").temperature == report["temperature"]
    lw2g.learn(tmp_path / "one", more, out=tmp_path / "two")
    lw2g.unlearn(tmp_path / "two", "dddd", out=tmp_path / "three")
    again = read_export(tmp_path / "three", whole=True).tensors
    assert again.keys() == saved.tensors.keys()
    for name, value in saved.tensors.items():
        assert torch.equal(again[name], value), name
    assert read_export(tmp_path / "two", whole=True).tensors["calibration/temperature"] > 0


def test_a_penalty_is_kept_until_the_sums_change(tmp_path: Path) -> None:
    """A model that is opened answers at the penalty of its file, and learning chooses another."""
    first = vectors(tmp_path / "first.npz", ["a", "bb", "ccc"], 0)
    lw2g.start(first, tmp_path / "one", head="ridge", settings={"baseline.head_features": 0})
    head = lw2g.load(tmp_path / "one").baseline.closed_form
    assert isinstance(head, Ridge)
    assert int(head.chosen_at) == 36
    kept = float(head.penalty)
    head.chosen_at.zero_()
    assert head.chosen_penalty(3) == pytest.approx(kept)
    head.update(torch.randn(8, 6, generator=torch.Generator().manual_seed(0)), torch.zeros(8).long())
    assert int(head.chosen_at) == 0
    assert head.chosen_penalty(3) != kept
