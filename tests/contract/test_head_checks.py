"""Checks of heads and carries: what breaks a promise fails the check of that promise."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor

from lw2g.blocks.carrying import CARRIES
from lw2g.blocks.closed_form import Cosine
from lw2g.blocks.discriminants import Discriminant
from lw2g.blocks.mahalanobis import Mahalanobis
from lw2g.interfaces.carry import Carry, CarryContext, Motion
from lw2g.interfaces.component import CarryComponent, Component, HeadComponent, NoOptions
from lw2g.interfaces.head import ClosedForm, HeadContext
from lw2g.registry.catalogue import load_catalogue
from lw2g_testing import contract_cases


class OfTheLastTask(Cosine):
    """Says that it is exact, and weighs a task by the number of its images."""

    def learn(self, features: Tensor, labels: Tensor, generator: torch.Generator, owner: int = 0) -> None:
        super().learn(features, labels, generator, owner)
        self.total[labels.unique()] += len(labels)


class Sure(Cosine):
    """Says that cosines are posteriors."""

    likelihood = True


class Ungaussian(Cosine):
    """Says that it predicts the nearest Gaussian, and keeps none."""

    nearest_gaussian = True


class OwnCovariance(Mahalanobis):
    """Says that it predicts the nearest of Gaussians with one covariance, and has one per class."""

    nearest_gaussian = True


class WithCovariance(Discriminant):
    """Returns a covariance where the scatter is asked for."""

    def class_gaussians(self, classes: int, widest: int) -> tuple[Tensor, Tensor]:
        means, scatter = super().class_gaussians(classes, widest)
        return means, scatter / (self.count.sum() - classes)


class CovarianceAlone(WithCovariance):
    """Does so for rejection alone: its scores are not said to be distances."""

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__(dim, num_classes)
        self.nearest_gaussian = False


class OwnMeans(Discriminant):
    """Returns the sums of classes where their means are asked for."""

    def class_gaussians(self, classes: int, widest: int) -> tuple[Tensor, Tensor]:
        means, scatter = super().class_gaussians(classes, widest)
        return means * self.count[:classes, None], scatter


class Hundredth(Discriminant):
    """Says that its scores are halves of distances, and divides them by 100."""

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        return 0.01 * super().score(features, *solution)


class Shrinking(Discriminant):
    """Says that its scores are by the covariance of lw2g's distances, and shrinks its own further."""

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__(dim, num_classes, shrinkage=0.1)
        self.nearest_gaussian = True


class Mixed(Cosine):
    """Says that a class can be forgotten, and centres features on the mean of all."""

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        return (super().solve(seen)[0] - self.first,)

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__(dim, num_classes)
        self.first: Tensor
        self.register_buffer("first", torch.zeros(num_classes, 1, dtype=torch.float64)[:1, 0])

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        super().add(features, labels, owner)
        self.first += features.sum() / 1000


class Global(Cosine):
    """Draws from the global generator."""

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        super().add(features + torch.rand(1), labels, owner)


class Stuck(Cosine):
    """Says that it can be carried, and stays."""

    def move(self, motion: Motion, classes: Tensor, owner: int) -> None:
        return


class Spread(Cosine):
    """Divides by the deviation within classes, which is 0 where all classes have one image."""

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__(dim, num_classes)
        self.square: Tensor
        self.register_buffer("square", torch.zeros(num_classes, dim, dtype=torch.float64))

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        self.total.index_add_(0, labels, features)
        self.square.index_add_(0, labels, features.square())

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        count = self.count[:seen, None]
        mean = self.total[:seen] / count
        within = (self.square[:seen] - count * mean.square()).clamp(min=0).sum(0)
        return mean, (within / count.sum()).sqrt()

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        mean, deviation = solution
        return -torch.cdist(features / deviation, mean / deviation)


class OfItsBatch(Cosine):
    """Subtracts the mean of the batch."""

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        return super().score(features - features.mean(0), *solution)


class Flipped(Cosine):
    """Scores by distance, the least of which is that of an image's class."""

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        return -super().score(features, *solution)


class Unregistered(Cosine):
    """Keeps its sums outside its state, and says that a class can be forgotten."""

    class_rows = True

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__(dim, num_classes)
        sums = self._buffers.pop("total")
        self.total = sums


class Assigning(Cosine):
    """Keeps the last image of a class in place of the sum."""

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        self.total[labels] = features


class Nameless(ClosedForm):
    """Lacks a method, and has one of nearly its name."""

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__(num_classes)

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None: ...

    def solv(self, seen: int) -> tuple[Tensor, ...]:
        return ()

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        return features


def head(kind: Callable[[int, int], ClosedForm]) -> HeadComponent:
    def build(config: Any, context: HeadContext) -> ClosedForm:
        return kind(context.dim, context.num_classes)

    return HeadComponent(name="broken", config=NoOptions, summary="for tests", build=build)


class Remembers(Carry):
    """Moves by the drift of all tasks so far."""

    candidates = ("sum",)

    def __init__(self) -> None:
        self.total: Any = 0.0

    def fit(
        self, before: Tensor, after: Tensor, labels: Tensor, *, residual: bool = False
    ) -> tuple[Motion, str]:
        self.total = self.total + (after.double() - before.double()).mean(0)
        drift = self.total
        return Motion(rows=lambda rows: rows + drift), "sum"


class Still(Remembers):
    """Says that it moves, and does not."""

    def fit(
        self, before: Tensor, after: Tensor, labels: Tensor, *, residual: bool = False
    ) -> tuple[Motion, str]:
        return CARRIES["none"].fit(before, after, labels)[0], "sum"


class ByFirst(Remembers):
    """Moves by the drift of the first image."""

    def fit(
        self, before: Tensor, after: Tensor, labels: Tensor, *, residual: bool = False
    ) -> tuple[Motion, str]:
        drift = (after.double() - before.double())[0]
        return Motion(rows=lambda rows: rows + drift), "sum"


def carry(kind: type[Remembers]) -> CarryComponent:
    def build(config: Any, context: CarryContext) -> Carry:
        return kind()

    return CarryComponent(name="broken", config=NoOptions, summary="for tests", build=build)


@pytest.mark.parametrize(
    ("component", "check"),
    [
        (head(OfTheLastTask), "is_exact"),
        (head(Sure), "scores_are_posteriors"),
        (head(Ungaussian), "predicts_the_nearest_gaussian"),
        (head(OwnCovariance), "predicts_the_nearest_gaussian"),
        (head(WithCovariance), "gaussians_are_those_of_the_sums"),
        (head(CovarianceAlone), "gaussians_are_those_of_the_sums"),
        (head(OwnMeans), "gaussians_are_those_of_the_sums"),
        (head(Hundredth), "predicts_the_nearest_gaussian"),
        (head(Shrinking), "predicts_the_nearest_gaussian"),
        (head(Mixed), "forgets_a_class"),
        (head(Spread), "takes_one_image"),
        (head(OfItsBatch), "prediction_belongs_to_its_sample"),
        (head(Global), "draws_from_its_seed"),
        (head(Stuck), "can_be_carried"),
        (carry(Remembers), "sees_this_task_alone"),
        (carry(Still), "says_whether_it_moves"),
        (carry(ByFirst), "order_does_not_matter"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_promise_is_found(component: Component, check: str) -> None:
    """The check of the promise fails, with a line that says what to do."""
    (case,) = (case for case in contract_cases(component) if case.check.name == check)
    result = case.result()
    assert result.status == "failed"
    assert result.message


@pytest.mark.parametrize(
    ("build", "check", "told"),
    [
        (
            CovarianceAlone,
            "gaussians_are_those_of_the_sums",
            r"returns is that divided by 234; return the sum",
        ),
        (Hundredth, "predicts_the_nearest_gaussian", r"they are 0\.01 times that: .* or leave out"),
        (Shrinking, "predicts_the_nearest_gaussian", r"they differ from that by \d+%: .* or leave out"),
    ],
)
def test_a_scale_is_told_with_its_remedy(build: type[Discriminant], check: str, told: str) -> None:
    """What rejection and probabilities rest on is compared by its value, not by the class that wins."""
    (case,) = (case for case in contract_cases(head(build)) if case.check.name == check)
    assert re.search(told, case.result().message)


@pytest.mark.parametrize("shrinkage", [0.01, 0.3])
@pytest.mark.parametrize("name", ["lda", "klda"])
def test_a_shrinkage_of_ones_own_breaks_no_promise(name: str, shrinkage: float) -> None:
    """Its scores are not called the distances that lw2g computes by its own share."""
    cases = contract_cases(load_catalogue().get("head", name), options={"shrinkage": shrinkage})
    results = {case.check.name: case.result() for case in cases if "gaussian" in case.check.name}
    assert ("predicts_the_nearest_gaussian" in results) == (shrinkage == 0.01)
    assert {result.status for result in results.values()} == {"passed"}


def test_a_state_that_loses_sums_is_told_once() -> None:
    """Checks that give a state to another head do not say that a promise is broken which is kept."""
    results = {case.check.name: case.result() for case in contract_cases(head(Unregistered))}
    failed = [name for name, result in results.items() if result.status == "failed"]
    assert failed == ["state_is_complete"]
    assert results["state_is_complete"].message.startswith("its state does not hold 'self.total'; let ")
    for name in ("takes_more_classes", "forgets_a_class", "serves_a_run_and_its_export"):
        assert results[name].message.endswith("see the check 'state_is_complete'")


def test_sums_that_are_assigned_are_told_with_the_methods_to_look_at() -> None:
    """Each message says what to do, with the line of the author's method."""
    results = {case.check.name: case.result() for case in contract_cases(head(Assigning))}
    for name in ("is_exact", "can_be_carried"):
        assert re.search(r"; .*let add \(.*test_head_checks\.py:\d+\) ", results[name].message)


class Named(Cosine):
    """Names what its own ``solve`` returns; a class is its build, so that its methods are looked at."""

    def __init__(self, config: Any, context: HeadContext) -> None:
        super().__init__(context.dim, context.num_classes)

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        (directions,) = super().solve(seen)
        return directions, torch.ones(len(directions), dtype=torch.float64)

    def score(self, features: Tensor, mean: Tensor, var: Tensor) -> Tensor:  # type: ignore[override]
        return super().score(features, mean) / var


class TakesNone(Named):
    """Has no place for the features."""

    def score(self) -> Tensor:  # type: ignore[override]
        raise NotImplementedError


def test_a_score_may_name_what_its_solve_returns() -> None:
    """A run passes these by their places: the check judges no name, and the others are tried."""
    named, takes_none = (attrs.evolve(head(Cosine), build=build) for build in (Named, TakesNone))
    results = {case.check.name: case.result() for case in contract_cases(named)}
    assert results["overrides_what_it_means"].status == "passed"
    assert not [result.message for result in results.values() if result.status == "failed"]
    results = {case.check.name: case.result() for case in contract_cases(takes_none)}
    assert "let it take (self, features, *solution)" in results["overrides_what_it_means"].message


class Unpooled(Cosine):
    """Has a row for each position, where classes come again."""

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        return (torch.nn.functional.normalize(self.total[:seen], dim=1),)


def test_positions_that_are_not_pooled_are_told_with_the_remedy() -> None:
    """What torch says of the sizes does not say how to sum a class that comes again."""
    results = [case.result() for case in contract_cases(head(Unpooled))]
    (message,) = [result.message for result in results if result.check == "positions_of_one_class"]
    assert re.search(r"comes again .*let solve \(.*test_head_checks\.py:\d+\) .* pooled", message)


def test_a_score_of_the_wrong_sign_is_told_with_its_line() -> None:
    """The sums are as they should be: nothing is said of the method that adds to them."""
    (case,) = [case for case in contract_cases(head(Flipped)) if case.check.name == "learns"]
    message = case.result().message
    assert re.search(r"smallest for .*; let score \(.*test_head_checks\.py:\d+\) change the sign", message)
    assert "add" not in message


class Rough(Cosine):
    """Scores in float32, by a method that is wrapped."""

    def __init__(self, config: Any, context: HeadContext) -> None:
        super().__init__(context.dim, context.num_classes)

    @torch.no_grad()
    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        return super().score(features, *solution).float()


class Narrow(Rough):
    """Scores one class too few."""

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        return super().score(features, *solution)[:, 1:]


@pytest.mark.parametrize(
    ("build", "told"), [(Rough, "score returns .*float32"), (Narrow, "TypeError: .* from score, one per")]
)
def test_a_method_that_a_message_names_is_told_with_its_line(build: type[ClosedForm], told: str) -> None:
    """Whether the check says so itself or lw2g refuses what the method returns."""
    component = HeadComponent(name="broken", config=NoOptions, summary="for tests", build=build)
    (case,) = [case for case in contract_cases(component) if case.check.name == "scores_classes"]
    place = rf"test_head_checks\.py:{inspect.unwrap(build.score).__code__.co_firstlineno}"
    assert re.search(rf"{told}.*; see score \(.*{place}\)$", case.result().message)


def test_a_method_with_a_wrong_name_is_told_with_its_line() -> None:
    """Where a class cannot be built for it, the line is that of the method with the wrong name."""
    case = next(case for case in contract_cases(head(Nameless)) if case.check.name == "scores_classes")  # type: ignore[type-abstract]
    message = case.result().message
    assert "it has 'solv' (did you mean 'solve'?)" in message
    assert re.search(r"test_head_checks\.py:\d+: def solv\(", message)


def test_a_check_of_an_export_tells_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has asked for the export: a note on it would stand behind the results."""
    component = load_catalogue().get("head", "cosine")
    (case,) = (case for case in contract_cases(component) if case.check.name == "serves_a_run_and_its_export")
    assert case.result().status == "passed"
    assert "uncalibrated" not in caplog.text
