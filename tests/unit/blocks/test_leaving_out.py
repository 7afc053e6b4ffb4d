"""Heads without one image: formulas against heads that have never seen it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lw2g.blocks import discriminants
from lw2g.blocks.closed_form import ClosedForm, Cosine
from lw2g.blocks.discriminants import Discriminant
from lw2g.blocks.mahalanobis import Mahalanobis
from lw2g.blocks.ridge import Ridge
from lw2g.interfaces.calibration import Temperature
from lw2g.interfaces.context import TaskInfo
from lw2g.maths import few_rows
from lw2g.maths.band import reduced
from lw2g.maths.normal_equations import add_products, best_penalty, penalised, weights_of
from lw2g.model.rejection import moments_of, scores_of

DIM, CLASSES, EACH = 5, 3, 12


def drawn(seed: int = 0, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Features of overlapping classes, and their labels."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat_interleave(EACH)
    means = torch.randn(CLASSES, DIM, generator=draw, dtype=torch.float64) + 1
    return means[labels] + spread * torch.randn(len(labels), DIM, generator=draw, dtype=torch.float64), labels


def ridge(features: int = 0, penalty: float = 0.7) -> Ridge:
    """A ridge whose penalty stays what it is without an image."""
    return Ridge(DIM, CLASSES, features, 4, penalty, choice="fixed")


class Apart(Discriminant):
    """Linear discriminant analysis that scores by distances, as leaving an image out does."""

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        means, covariance = self.within(int((self.count > 0).sum()))
        inverse = torch.linalg.inv(covariance)
        away = features[:, None] - means
        return -torch.einsum("ncd,de,nce->nc", away, inverse, away) / 2


HEADS: dict[str, tuple[Callable[[], ClosedForm], float]] = {
    "ridge": (ridge, 1e-9),
    "random features": (lambda: ridge(40, 3.0), 1e-9),
    "cosine": (lambda: Cosine(DIM, CLASSES), 1e-12),
    "lda": (lambda: Apart(DIM, CLASSES, 1e-9), 1e-6),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_without_an_image_is_one_that_never_saw_it(name: str) -> None:
    """The formula gives the scores of refitting without each image in turn."""
    build, tolerance = HEADS[name]
    rows, labels = drawn()
    whole = build()
    whole.update(rows, labels)
    found = whole.without_each(rows, labels, CLASSES)
    assert found is not None
    moved = False
    for place in range(len(rows)):
        others = torch.arange(len(rows)) != place
        rest = build()
        rest.update(rows[others], labels[others])
        alone = rest.scores(rows[place : place + 1], CLASSES)[0]
        torch.testing.assert_close(found[place], alone, rtol=tolerance, atol=tolerance)
        moved |= not torch.allclose(alone, whole.scores(rows[place : place + 1], CLASSES)[0], rtol=0.05)
    assert moved  # the head that has seen it says something else


@pytest.mark.parametrize("name", HEADS)
def test_a_class_of_two_tasks_loses_the_image_from_both(name: str) -> None:
    """Sums of one target are solved together, and so is what they are without an image."""
    build, tolerance = HEADS[name]
    rows, labels = drawn(1)

    def of_two_targets() -> ClosedForm:
        head = build()
        head.begin_task(
            TaskInfo(
                index=0,
                classes=tuple(range(CLASSES)),
                class_names=("a", "b", "a"),
                targets=(0, 1, 0),
                seen=CLASSES,
                num_images=len(rows),
            )
        )
        return head

    whole = of_two_targets()
    whole.update(rows, labels)
    found = whole.without_each(rows, labels, CLASSES)
    assert found is not None
    assert found.shape == (len(rows), 2)
    for place in (0, 15, 35):
        others = torch.arange(len(rows)) != place
        rest = of_two_targets()
        rest.update(rows[others], labels[others])
        alone = rest.scores(rows[place : place + 1], CLASSES)[0, :2]
        torch.testing.assert_close(found[place], alone, rtol=tolerance, atol=tolerance)


def test_a_covariance_of_each_class_loses_most_of_an_image() -> None:
    """Its added diagonal and its scale stay, so that the distance is near that of refitting, not equal."""
    rows, labels = drawn()
    whole = Mahalanobis(DIM, CLASSES)
    whole.update(rows, labels)
    found = whole.without_each(rows, labels, CLASSES)
    seen = whole.scores(rows, CLASSES)
    alone = []
    for place in range(len(rows)):
        others = torch.arange(len(rows)) != place
        rest = Mahalanobis(DIM, CLASSES)
        rest.update(rows[others], labels[others])
        alone.append(rest.scores(rows[place : place + 1], CLASSES)[0])
    wanted = torch.stack(alone)
    of_others = torch.ones_like(wanted).scatter_(1, labels[:, None], 0).bool()
    torch.testing.assert_close(found[of_others], wanted[of_others])
    error = (found / wanted - 1)[~of_others].abs().mean()
    assert error < 0.4 * (seen / wanted - 1)[~of_others].abs().mean()


def test_what_has_no_formula_says_so() -> None:
    """A cut spectrum leaves no image out, and fits no temperature."""
    rows, labels = drawn(2)
    head = Ridge(DIM, CLASSES, 20, 4, 1.0, choice="fixed", cut=0.25)
    head.update(rows, labels)
    assert head.without_each(rows, labels, CLASSES) is None
    head.fit_temperature()
    head.observe(rows, labels)
    assert head.temperature is not None
    assert not head.temperature.loss.any()


def test_a_temperature_is_fitted_to_images_without_themselves() -> None:
    """Task by task, among the classes that are known: sums of losses, and no image that is alone."""
    rows, labels = drawn(4)
    head = ridge()
    head.fit_temperature()
    wanted = Temperature(1.0)
    known = Ridge(DIM, CLASSES, 0, 4, 0.7, choice="fixed")
    for own in ([0, 1], [2]):
        some = torch.isin(labels, torch.tensor(own))
        if own == [2]:
            some[EACH * 2 + 1 :] = False  # one image alone says nothing
        head.learn(rows[some], labels[some], torch.Generator())
        head.observe(rows[some], labels[some])
        known.update(rows[some], labels[some])
        if own == [0, 1]:
            scores = known.without_each(rows[some], labels[some], 2)
            assert scores is not None
            wanted.observe(scores, labels[some])
    assert head.temperature is not None
    torch.testing.assert_close(head.temperature.loss, wanted.loss)
    assert head.temperature.value != 1.0


@pytest.mark.parametrize("width", [3, 512, 1100])
def test_half_of_the_products_are_all_of_them(width: int) -> None:
    """Sums by their lower half equal the whole product, whatever was there before."""
    draw = torch.Generator().manual_seed(width)
    rows = torch.randn(40, width, generator=draw, dtype=torch.float64)
    gram = torch.eye(width, dtype=torch.float64)
    add_products(gram, rows.split(25))
    torch.testing.assert_close(gram, rows.T @ rows + torch.eye(width, dtype=torch.float64))
    torch.testing.assert_close(gram, gram.T)


def test_wide_sums_are_those_of_narrow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression of wide features has the weights of its rows, however these are cut into tasks."""
    monkeypatch.setattr(few_rows, "_FEW", 100)  # no row is few
    draw = torch.Generator().manual_seed(5)
    rows = torch.randn(30, 2100, generator=draw, dtype=torch.float64)
    labels = torch.arange(30) % CLASSES
    head, other = (Ridge(2100, CLASSES, 0, 0, 50.0, choice="fixed") for _ in range(2))
    head.update(rows, labels)
    for part, own in zip(rows.split([7, 23]), labels.split([7, 23]), strict=True):
        other.update(part, own)
    assert head.rows_in_range() is None
    torch.testing.assert_close(other.gram, head.gram, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(other.cross, head.cross, rtol=1e-11, atol=1e-11)
    # fewer rows than features: the same weights from the matrix of inner products of rows
    inner = rows @ rows.T + 50 * torch.eye(30, dtype=torch.float64)
    wanted = rows @ rows.T @ torch.linalg.solve(inner, torch.eye(CLASSES, dtype=torch.float64)[labels])
    torch.testing.assert_close(head.scores(rows, CLASSES), wanted, rtol=1e-9, atol=1e-9)


def test_a_wide_scatter_is_that_of_each_class_about_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """All classes at once give what one after the other does, however the rows are cut."""
    monkeypatch.setattr(few_rows, "_WIDE", 59)
    monkeypatch.setattr(few_rows, "_FEW", 60)  # no row is few
    rows, labels = wide(20)
    apart = Discriminant(60, CLASSES)
    apart.update(rows, labels)
    monkeypatch.setattr(discriminants, "WIDE_SUMS", 59)
    for cut in ([20], [7, 6, 7]):
        head = Discriminant(60, CLASSES)
        for part, own in zip(rows.split(cut), labels.split(cut), strict=True):
            head.update(part, own)
        torch.testing.assert_close(head.scatter, apart.scatter, rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(head.mean, apart.mean)


def test_a_penalty_and_its_weights_leave_the_sums_alone() -> None:
    """Factors are made in place of a copy, never of the sums."""
    rows, labels = drawn(3)
    gram = rows.T @ rows
    cross = rows.T @ torch.eye(CLASSES, dtype=torch.float64)[labels]
    before = gram.clone()
    penalty = best_penalty(gram, cross, len(rows), float(len(rows)))
    weights = weights_of(gram, cross, penalty)
    assert torch.equal(gram, before)
    eye = torch.eye(DIM, dtype=torch.float64)
    torch.testing.assert_close(weights, torch.linalg.solve(gram + penalty * eye, cross))
    assert penalised(-gram, 0.0)[1] is False


@pytest.mark.parametrize("width", [5, 97, 1150])
def test_a_band_is_solved_at_a_penalty_as_its_sums_are(width: int) -> None:
    """Trace of the inverse, explained and squared weights at each penalty; none where nothing is definite."""
    draw = torch.Generator().manual_seed(width)
    rows = torch.randn(width // 2 + 4, width, generator=draw, dtype=torch.float64)
    rows /= torch.arange(1, width + 1)
    rows[:, 2] = 0  # a column of zeros is not turned
    gram = rows.T @ rows
    cross = torch.randn(width, 3, generator=draw, dtype=torch.float64)
    before = gram.clone(), cross.clone()
    band = reduced(gram, cross)
    assert torch.equal(gram, before[0])
    assert torch.equal(cross, before[1])
    for penalty in (1e-3, 1.0):
        inverse = torch.linalg.inv(gram + penalty * torch.eye(width, dtype=torch.float64))
        weights = inverse @ cross
        wanted = (float(inverse.trace()), float((weights * cross).sum()), float(weights.square().sum()))
        assert band.at(penalty) == pytest.approx(wanted, rel=1e-9)
    assert band.at(-1.0) is None


@pytest.mark.parametrize("choice", ["gcv", "fixed"])
def test_few_rows_give_the_regression_of_their_sums(choice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Penalty, scores, and those without each row; rows that are no longer few become the sums."""
    monkeypatch.setattr(few_rows, "_WIDE", 59)
    monkeypatch.setattr(few_rows, "_FEW", 1.5)
    rows, labels = wide(40)
    few = Ridge(60, CLASSES, 0, 0, 0.3, choice=choice)
    few.update(rows[:9], labels[:9])
    few.update(rows[9:], labels[9:])
    monkeypatch.setattr(few_rows, "_WIDE", 60)
    many = Ridge(60, CLASSES, 0, 0, 0.3, choice=choice)
    many.update(rows, labels)
    assert few.gram.shape == (0, 60, 60)
    assert few.chosen_penalty(CLASSES) == pytest.approx(many.chosen_penalty(CLASSES), rel=1e-12)
    others = torch.randn(5, 60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    _require_alike(few, many, rows, labels, others)
    # the 41st row is too many
    for head in (few, many):
        head.update(others, torch.arange(5) % CLASSES)
    assert few.rows_in_range() is None
    torch.testing.assert_close(few.gram, many.gram)
    assert few.chosen_penalty(CLASSES) == pytest.approx(many.chosen_penalty(CLASSES), rel=1e-9)


def test_few_rows_give_the_discriminant_of_their_scatter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores, those without each row, and how known images are; of two sets each has a scatter of its own."""
    monkeypatch.setattr(few_rows, "_WIDE", 59)
    rows, labels = wide(20)
    few = Discriminant(60, CLASSES)
    few.update(rows[:9], labels[:9])
    few.update(rows[9:], labels[9:])
    monkeypatch.setattr(few_rows, "_WIDE", 60)
    many = Discriminant(60, CLASSES)
    many.update(rows, labels)
    others = torch.randn(5, 60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    _require_alike(few, many, rows, labels, others)
    ours, theirs = (moments_of(head, CLASSES) for head in (few, many))
    assert ours is not None
    assert theirs is not None
    assert ours.means.shape == (CLASSES, 20)
    torch.testing.assert_close(ours.scores(others), theirs.scores(others))
    held = torch.arange(20) != 3
    mine, yours = (scores_of(gaussians, rows, labels, held) for gaussians in (ours, theirs))
    torch.testing.assert_close(mine.distances, yours.distances)
    torch.testing.assert_close(mine.scores(), yours.scores())
    # all of them, whose coordinates are known
    for one in (mine, yours):
        assert one.which.tolist() == [3, *range(3), *range(4, 20)]
    every = torch.ones(20, dtype=torch.bool)
    mine, yours = (scores_of(gaussians, rows, labels, every) for gaussians in (ours, theirs))
    torch.testing.assert_close(mine.scores(), yours.scores())
    for head in (few, many):
        head.update(others, torch.arange(5) % CLASSES, owner=1)
    torch.testing.assert_close(few.scatter, many.scatter)


def test_a_state_with_sums_goes_on_with_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier lw2g wrote has no rows, and opens; rows open to the bit; empty sums claim no width."""
    monkeypatch.setattr(few_rows, "_WIDE", 60)
    rows, labels = wide(20)
    many = Ridge(60, CLASSES, 0, 0, choice="gcv")
    many.update(rows[:15], labels[:15])
    monkeypatch.setattr(few_rows, "_WIDE", 59)
    opened = Ridge(60, CLASSES, 0, 0, choice="gcv")
    opened.load_state_dict(many.state_dict())
    for head in (opened, many):
        head.update(rows[15:], labels[15:])
    torch.testing.assert_close(opened.scores(rows, CLASSES), many.scores(rows, CLASSES))
    few = Ridge(60, CLASSES, 0, 0, choice="gcv")
    few.update(rows, labels)
    again = Ridge(60, CLASSES, 0, 0, choice="gcv")
    again.load_state_dict(few.state_dict())
    assert torch.equal(again.scores(rows, CLASSES), few.scores(rows, CLASSES))
    forged = few.state_dict() | {"gram": torch.zeros(0, 10**6, 10**6, dtype=torch.float64)}
    with pytest.raises(RuntimeError, match="size mismatch for gram"):
        again.load_state_dict(forged)


def test_the_same_rows_have_their_range_computed_once() -> None:
    """Within the context alone, and only where the rows are the same."""
    rows, labels = wide(20)
    kept = []
    for shift in (0, 0, 1):
        kept.append(few_rows.FewRows(60))
        kept[-1].add(rows + shift, labels)
    with few_rows.sharing_ranges():
        first, second, third = (one.range() for one in kept)
    assert second is first
    assert third is not first
    assert first.coordinates(rows.clone()) is first.inner


@pytest.mark.parametrize("alike", [False, True])
def test_coordinates_turn_rows_and_lose_nothing_in_their_range(alike: bool) -> None:
    """Products of rows are those of coordinates; two images that are nearly one have a range like others."""
    rows, _ = wide(20)
    if alike:
        rows[7] = rows[3] * (1 + 1e-9)
    known = few_rows.Range(rows)
    assert (known._directions[1] is not None) == alike
    torch.testing.assert_close(known.inner @ known.inner.T, rows @ rows.T)
    torch.testing.assert_close(known.spread(known.inner.T), rows.T, rtol=1e-10, atol=1e-10)
    others = torch.randn(4, 60, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    within = known.coordinates(others)
    torch.testing.assert_close(within @ known.inner.T, others @ rows.T, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(known.coordinates(known.spread(within.T).T), within, rtol=1e-9, atol=1e-9)


def wide(count: int) -> tuple[Tensor, Tensor]:
    """Fewer rows than numbers, of falling spread, and their labels."""
    draw = torch.Generator().manual_seed(8)
    labels = torch.arange(count) % CLASSES
    rows = torch.randn(count, 60, generator=draw, dtype=torch.float64) / torch.arange(1, 61)
    rows[:, 20:24] += 0.05 * torch.eye(CLASSES, 4, dtype=torch.float64)[labels]
    return rows, labels


def _require_alike(few: ClosedForm, many: ClosedForm, rows: Tensor, labels: Tensor, others: Tensor) -> None:
    for one, other in (
        (few.scores(others, CLASSES), many.scores(others, CLASSES)),
        (
            few.without_each(rows[3:7], labels[3:7], CLASSES),
            many.without_each(rows[3:7], labels[3:7], CLASSES),
        ),
    ):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)
