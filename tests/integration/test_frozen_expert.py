"""A gated carry and a frozen expert in whole runs: what they answer, cost, survive and refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from listening import At
from lw2g.blocks import motions
from lw2g.blocks.discriminants import Discriminant
from lw2g.errors import ConfigError
from lw2g.interfaces.tracker import EpochEnded, Event, Warned
from lw2g.lifecycle.run_opening import reopen
from lw2g.lifecycle.runner import resume, start
from lw2g.model.frozen_expert import expert_of
from lw2g.model.saved import open_model
from lw2g.pixels.image_set import ImageSet
from lw2g.registry.catalogue import Catalogue
from runs import different, shortest, tensors, untimed

GATED = {"baseline.head": "lda", "baseline.head_carry": "gated", "routing.expert": "frozen"}
CHOSEN = {**GATED, "routing.expert": "auto", "backbone.layers": 2, "benchmark.train": 24}
TRAINED = {"routing.expert": "frozen", "benchmark.train": 24}


class CrashError(Exception):
    """Stands for a power cut."""


def crash() -> None:
    raise CrashError


def test_answers_are_the_product_of_the_head_and_of_lda_on_frozen_features(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    """LDA over all training images, none held back; the record tells the price, and one forward an image."""
    record = start(shortest(catalogue, "slca-plus-plus", GATED), catalogue, tmp_path / "run")
    model = open_model(tmp_path / "run", catalogue)
    stream = reopen(tmp_path / "run", catalogue).data.stream
    lda = Discriminant(model.backbone.dim, len(model.classes))
    for task in stream.tasks:
        images = [task.train.source.image(int(row)) for row in task.train.indices]
        rows = torch.stack([model.transform(image) for image in images])
        lda.update(model.backbone.features(rows), torch.tensor(task.train.labels.tolist()))
    tests = [task.test.source.image(int(row)) for task in stream.tasks for row in task.test.indices]
    answers = model.answer(tests)
    pixels = torch.stack([model.transform(image) for image in tests])
    beside = lda.scores(model.backbone.features(pixels), len(model.classes)).log_softmax(1)
    own = model.baseline.logits(answers.features).double().log_softmax(1)
    torch.testing.assert_close(answers.logits, (own + beside).log_softmax(1).float(), rtol=1e-3, atol=1e-3)
    dim, classes = model.backbone.dim, len(model.classes)
    expert = {"kind": "frozen", "forwards_per_image": 1, "numbers": classes * dim + dim**2, "temperature": 1}
    assert record["expert"] == expert
    assert record["flops"]["expert_per_image"] > 0
    assert [entry["task"] for entry in record["findings"]["motions"]] == [1, 2]
    assert {entry["option"] for entry in record["deviations"]} >= {"routing.expert"}


def test_answers_beside_the_frozen_answer_are_a_product_at_a_temperature_each(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    """The expert is `auto` on frozen features of two layers, the head is `lda`, which has none else."""
    record = start(shortest(catalogue, "slca-plus-plus", CHOSEN), catalogue, tmp_path / "run")
    model = open_model(tmp_path / "run", catalogue)
    expert = expert_of(model.baseline)
    assert expert is not None
    assert expert.lda is None
    stream = reopen(tmp_path / "run", catalogue).data.stream
    tests = [task.test.source.image(int(row)) for task in stream.tasks for row in task.test.indices]
    answers = model.answer(tests)
    pixels = torch.stack([model.transform(image) for image in tests])
    classes, fitted = len(model.classes), expert.classifier.temperature
    assert fitted is not None
    assert expert.temperature is not None
    assert bool((fitted.loss > 0).any())
    assert bool((expert.temperature.loss > 0).any())
    assert (fitted.value, expert.warmth) != (1, 1)
    with model.backbone.joining():
        scores = expert.classifier.scores(model.backbone.features(pixels), classes)
    of_expert = (scores / fitted.value).log_softmax(1)
    of_head = (model.baseline.logits(answers.features).double() / expert.warmth).log_softmax(1)
    product = (of_head + of_expert).log_softmax(1)
    torch.testing.assert_close(answers.logits, product.float(), rtol=1e-3, atol=1e-3)
    seen = sum(len(task.train) for task in stream.tasks)
    assert int(expert.classifier.count.sum()) == seen
    told = record["expert"]
    assert told["kind"] == "auto"
    assert told["temperature"] == expert.warmth
    assert told["numbers"] == (classes + model.backbone.width) * model.backbone.width
    assert {entry["images"] for entry in told["choice"]["tried"]} == {seen}


def test_a_trained_head_gets_a_temperature_by_images_that_nothing_was_trained_on(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    """A fifth of each class at most; of all scores of held-back images the temperature has the least loss."""
    record = start(shortest(catalogue, "dual-prompt", TRAINED, policy="one"), catalogue, tmp_path / "run")
    session = reopen(tmp_path / "run", catalogue)
    expert = expert_of(session.parts.baseline)
    assert expert is not None
    assert expert.temperature is not None
    seen = expert.lda.count.tolist()
    held = [data for data in session.data.held_back if data is not None]
    assert len(held) == 3
    sizes = np.bincount(np.concatenate([data.labels for data in held])).tolist()
    assert all(size == (kept + size) // 5 for size, kept in zip(sizes, seen, strict=True))
    assert bool((expert.temperature.loss > 0).all())
    assert record["expert"]["temperature"] == expert.warmth
    assert record["expert"]["forwards_per_image"] == 0  # retrieval has asked for the query


@pytest.mark.parametrize(
    ("baseline", "chosen", "more"),
    [("dual-prompt", TRAINED, 0), ("slca-plus-plus", GATED, 1)],
    ids=["queries known", "queries asked for"],
)
def test_an_image_takes_at_most_one_bare_forward_in_the_whole_run(
    baseline: str,
    chosen: dict[str, Any],
    more: int,
    catalogue: Catalogue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted with the expert and without: none where retrieval has asked already."""
    made: list[int] = []
    features = ImageSet._features

    def counted(images: ImageSet, pixels: torch.Tensor) -> torch.Tensor:
        made.append(len(pixels))
        return features(images, pixels)

    monkeypatch.setattr(ImageSet, "_features", counted)
    policy = "one" if baseline == "dual-prompt" else None
    totals = []
    for kind in ("frozen", "none"):
        made.clear()
        # as few training images with an expert as without
        settings = {**chosen, "routing.expert": kind, "routing.mix": 1}
        resolved = shortest(catalogue, baseline, settings, policy=policy)
        start(resolved, catalogue, tmp_path / kind)
        session = reopen(tmp_path / kind, catalogue)
        totals.append(sum(made))
        held = sum(len(data) for data in session.data.held_back if data is not None)
        if kind == "frozen":
            images = sum(len(task.train) + len(task.test) for task in session.data.stream.tasks) + held
    batch = 12
    if more:
        assert totals[1] == 0
        assert images <= totals[0] <= images + 6 * batch  # padded batches, task by task
    else:
        assert totals[0] <= totals[1] + 3 * batch  # held-back images ask in batches of their own


@pytest.mark.parametrize(
    ("baseline", "chosen", "policy"),
    [
        ("slca-plus-plus", GATED, None),
        pytest.param("slca-plus-plus", CHOSEN, None, marks=pytest.mark.slow),
        pytest.param("dual-prompt", TRAINED, "one", marks=pytest.mark.slow),
    ],
)
def test_a_crash_changes_no_bit(
    baseline: str, chosen: dict[str, Any], policy: str | None, catalogue: Catalogue, tmp_path: Path
) -> None:
    """Gate, log of motions, expert and temperature end as those of a quiet run."""
    resolved = shortest(catalogue, baseline, chosen, policy=policy)
    reference = start(resolved, catalogue, tmp_path / "quiet")
    cut = At(lambda event: isinstance(event, EpochEnded) and event.task == 2, crash)
    with pytest.raises(CrashError):
        start(resolved, catalogue, tmp_path / "cut", [cut])
    assert untimed(resume(tmp_path / "cut", catalogue)) == untimed(reference)
    held = tensors(tmp_path / "quiet")
    assert different(held, tensors(tmp_path / "cut")) == []
    kind = "chosen" if chosen["routing.expert"] == "auto" else "lda"
    assert any(f"frozen_expert.{kind}" in name for name in held)


def test_a_run_warns_once_new_classes_move_far(
    catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the third task on, for the second has nothing to be compared with; the gate says what it held."""
    monkeypatch.setattr(motions, "ALARMING", 0.0)
    told: list[str] = []

    class Ears:
        def on_event(self, event: Event) -> None:
            if isinstance(event, Warned) and "moved its classes" in event.message:
                told.append(event.message)

        def close(self) -> None:
            """Nothing to close."""

    for carry in ("gated", "affine"):
        settings = {"baseline.head": "lda", "baseline.head_carry": carry}
        start(shortest(catalogue, "slca-plus-plus", settings), catalogue, tmp_path / carry, [Ears()])
    assert [line.partition(" moved")[0] for line in told] == ["task 3", "task 3"]
    assert "its gate held" in told[0]
    assert "of 5 old classes" in told[0]
    assert "baseline.head_carry=gated would hold old classes" in told[1]


def test_what_cannot_be_a_posterior_is_refused_in_a_line(catalogue: Catalogue, tmp_path: Path) -> None:
    """A trained head, or one whose scores are no log likelihoods, without images to spare."""
    refused: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("dual-prompt", {"routing.held_back": 0}, "routing.held_back=0 leaves no images"),
        ("slca-plus-plus", {"baseline.head": "cosine", "routing.held_back": 0}, "use baseline.head=lda"),
        ("dual-prompt", {"benchmark.train": 2}, "no class can spare images"),
        ("slca-plus-plus", {**CHOSEN, "routing.held_back": 0}, "or use routing.expert=frozen|beside 'auto'"),
    )
    for number, (baseline, options, line) in enumerate(refused):
        policy = "one" if baseline == "dual-prompt" else None
        resolved = shortest(catalogue, baseline, {"routing.expert": "frozen", **options}, policy=policy)
        with pytest.raises(ConfigError, match=line):
            start(resolved, catalogue, tmp_path / str(number))


@pytest.mark.parametrize("baseline", ["ease", "simple-cil", "ssiat"])
def test_every_kind_of_head_can_have_an_expert(baseline: str, catalogue: Catalogue, tmp_path: Path) -> None:
    """One for each set, in closed form, trained: all answer beside it."""
    policy = "one" if catalogue.get("baseline", baseline).growth == "sets" else None
    record = start(shortest(catalogue, baseline, TRAINED, policy=policy), catalogue, tmp_path / "run")
    assert record["expert"]["temperature"] > 0
    assert record["flops"]["inference_per_image"] > 0  # where nothing is trained, too
    assert record["metrics"]["faa"] is not None
