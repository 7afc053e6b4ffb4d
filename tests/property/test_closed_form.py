"""Closed-form classifiers: any order and batching gives the classifier of all features at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge as SklearnRidge
from torch import nn
from torch.nn import functional

from lw2g.blocks.carrying import Motion
from lw2g.blocks.closed_form import ClosedForm, Cosine
from lw2g.blocks.discriminants import Discriminant, KernelDiscriminant
from lw2g.blocks.expert import FrozenExpert, of_targets
from lw2g.blocks.mahalanobis import Mahalanobis
from lw2g.blocks.ridge import PENALTIES, Ridge, held_out_errors
from lw2g.interfaces.calibration import Temperature, best_of_task, least_loss
from lw2g.interfaces.context import TaskInfo
from lw2g.interfaces.head import heads_within
from lw2g.pixels.text_vectors import TextVectors
from lw2g_heads.anacp import AnaCP
from lw2g_heads.text_head import TextHead

DIM, CLASSES = 5, 4


def klda(classes: int = CLASSES) -> KernelDiscriminant:
    """One whose bandwidth is given, for else the first task chooses it."""
    made = KernelDiscriminant(DIM, classes, 30, 3)
    made.bandwidth.fill_(0.01)
    return made


VECTORS = TextVectors(
    path=Path("text"),
    option="head.text",
    vectors=torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(9)),
    sentences=tuple(map(str, range(CLASSES))),
    classes=tuple(map(str, range(CLASSES))),
)


class Texts(TextHead):
    """A head of text vectors that were read already."""

    def _opened(self) -> TextVectors:
        return VECTORS


class Beside(nn.Module):
    """A head and a frozen expert on the same features, which answer together as a model lets them."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = Cosine(DIM, classes)
        self.expert = FrozenExpert(DIM, classes, fitted=False)

    def begin_task(self, task: TaskInfo) -> None:
        for head in heads_within(self):
            head.begin_task(task)

    def update(self, features: torch.Tensor, labels: torch.Tensor, owner: int = 0) -> None:
        for head in heads_within(self):
            head.update(features, labels)

    def scores(self, features: torch.Tensor, seen: int) -> torch.Tensor:
        targets = self.head.targets[:seen]
        logits = of_targets(self.head.scores(features, seen), targets)
        answers = self.expert.product(logits, self.expert.log_posterior(features, targets))
        return answers[:, list(targets)].double()


MADE = {
    "cosine": lambda classes=CLASSES: Cosine(DIM, classes),
    "klda": klda,
    "lda": lambda classes=CLASSES: Discriminant(DIM, classes, 0.1),
    "mahalanobis": lambda classes=CLASSES: Mahalanobis(DIM, classes, 1.0),
    "ridge": lambda classes=CLASSES: Ridge(DIM, classes, 0, 0, 0.5),
    "random features": lambda classes=CLASSES: Ridge(DIM, classes, 9, 3, 0.5),
    "gcv": lambda classes=CLASSES: Ridge(DIM, classes, 9, 3, choice="gcv"),
    "cut": lambda classes=CLASSES: Ridge(DIM, classes, 9, 3, 0.5, choice="fixed", cut=0.25),
    "top-k": lambda classes=CLASSES: Ridge(DIM, classes, 9, 3, 0.5, lift="top-k", row_nonzeros=3),
    "fecam (10, 10)": lambda classes=CLASSES: Mahalanobis(DIM, classes, 10.0, 10.0),
    "text": lambda classes=CLASSES: Texts(DIM, classes, DIM, None, ""),
    "text and lda": lambda classes=CLASSES: Texts(
        DIM, classes, DIM, None, "", Discriminant(DIM, classes, 0.1), 0.5
    ),
    "anacp": lambda classes=CLASSES: AnaCP(DIM, classes, 9, 3, members=2, penalty=1.0, draws=5),
}
BESIDE = {"expert": lambda classes=CLASSES: Beside(classes)}
NOT_CARRIED = ("klda", "random features", "gcv", "cut", "top-k", "text", "text and lda", "expert", "anacp")
"""Heads that follow in law alone, or not at all."""


def drawn(seed: int, per_class: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features about four means far from the origin, and their labels, class after class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat_interleave(per_class)
    means = 4 * torch.randn(CLASSES, DIM, generator=generator) + 30
    return means[labels] + torch.randn(len(labels), DIM, generator=generator), labels


def fitted(classifier: ClosedForm, features: torch.Tensor, labels: torch.Tensor) -> ClosedForm:
    classifier.update(features, labels)
    return classifier


@pytest.mark.parametrize("kind", MADE)
@given(seed=st.integers(0, 99), cuts=st.lists(st.integers(1, 23), max_size=5), order=st.randoms())
def test_order_and_batches_do_not_matter(kind: str, seed: int, cuts: list[int], order) -> None:
    """Shuffled, and in pieces of any size, the scores are those of one batch to 1e-8."""
    features, labels = drawn(seed)
    whole = fitted(MADE[kind](), features, labels)
    mixed = list(range(len(labels)))
    order.shuffle(mixed)
    pieces = MADE[kind]()
    for part in np.split(np.array(mixed), sorted(cuts)):
        pieces.update(features[part], labels[part])
    expected, found = whole.scores(features, CLASSES), pieces.scores(features, CLASSES)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", MADE | BESIDE)
@given(seed=st.integers(0, 99), of_task=st.lists(st.integers(0, 3), min_size=24, max_size=24))
def test_classes_that_come_again_are_solved_as_one(kind: str, seed: int, of_task: list[int]) -> None:
    """Any cut of the images into tasks gives the head of all at once, also where old sums stay by a carry."""
    features, labels = drawn(seed)
    tasks = torch.tensor(of_task)
    cuts = [(tasks == task).nonzero()[:, 0] for task in sorted(set(of_task))]
    own = [sorted(set(labels[rows].tolist())) for rows in cuts]
    raw = [label for classes in own for label in classes]
    targets = {label: target for target, label in enumerate(dict.fromkeys(raw))}
    made = (MADE | BESIDE)[kind]
    pieces, first = made(len(raw)), 0
    still = Motion(rows=lambda rows: rows, linear=torch.eye(DIM, dtype=torch.float64))
    for owner, (rows, classes) in enumerate(zip(cuts, own, strict=True)):
        positions = tuple(range(first, first := first + len(classes)))
        pieces.begin_task(
            TaskInfo(
                index=owner,
                classes=positions,
                class_names=tuple(map(str, classes)),
                seen=first,
                num_images=len(rows),
                targets=tuple(targets[label] for label in classes),
            )
        )
        place = torch.tensor([positions[classes.index(label)] for label in labels[rows].tolist()])
        pieces.update(features[rows], place, owner)
        if kind not in NOT_CARRIED:
            pieces.carry(still, positions, owner)
    whole = fitted(made(), features, labels).scores(features, CLASSES)
    bound = 1e-4 if kind in BESIDE else 1e-8  # what speaks together is told in float32
    torch.testing.assert_close(pieces.scores(features, len(raw)), whole[:, raw], rtol=bound, atol=bound)


@given(seed=st.integers(0, 999), spread=st.sampled_from([0.0, 1e-5, 0.01, 1.0, 30, 1e6]), right=st.booleans())
def test_a_fit_at_once_is_the_fit_of_all_observations(seed: int, spread: float, right: bool) -> None:
    """The grid need not be gone through: also at its ends, where all are right, and where nothing tells."""
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(30, 4, generator=generator, dtype=torch.float64)
    labels = scores.argmax(1) if right else torch.randint(0, 4, (30,), generator=generator)
    fitted = Temperature(1.0)
    fitted.observe(scores, labels)
    assert least_loss(scores, labels) == fitted.value


@given(seed=st.integers(0, 999), doubt=st.sampled_from([0.01, 0.1, 0.5]), right=st.booleans())
def test_a_doubt_is_the_runner_up_observed_as_often(seed: int, doubt: float, right: bool) -> None:
    """A weighted fit is that of samples whose truth is so often the best other column."""
    generator = torch.Generator().manual_seed(seed)
    scores = 30 * torch.randn(30, 4, generator=generator, dtype=torch.float64)
    labels = scores.argmax(1) if right else torch.randint(0, 4, (30,), generator=generator)
    others = scores.clone()
    others[torch.arange(30), labels] = -torch.inf
    fitted, doubted = Temperature(1.0), Temperature(1.0)
    fitted.observe(scores, labels)
    doubted.observe(scores, others.argmax(1))
    fitted.loss = (1 - doubt) * fitted.loss + doubt * doubted.loss
    assert least_loss(scores, labels, doubt=doubt) == fitted.value


def test_lda_is_sklearns() -> None:
    """Log probabilities equal those of scikit-learn's discriminant at equal priors."""
    features, labels = drawn(1, 20)
    ours = fitted(Discriminant(DIM, CLASSES, 0.0), features, labels).scores(features, CLASSES)
    # its solver "svd" divides the scatter differently from release to release, "lsqr" by N in all of them
    theirs = LinearDiscriminantAnalysis(solver="lsqr", priors=[0.25] * 4)
    theirs.fit(features.double().numpy(), labels.numpy())
    # not its log probabilities: older releases keep these away from zero by a constant
    expected = log_softmax(theirs.decision_function(features.double().numpy()), axis=1)
    # theirs divides the scatter by N, ours by N - C
    factor = (len(labels) - CLASSES) / len(labels)
    means = torch.as_tensor(theirs.means_)
    assert torch.allclose(fitted(Discriminant(DIM, CLASSES), features, labels).mean, means)
    scaled = (ours / factor).log_softmax(1)
    assert np.allclose(scaled.numpy(), expected, atol=1e-6)


def test_ridge_is_sklearns() -> None:
    """The scores are those of scikit-learn's ridge regression of one-hot labels without intercept."""
    features, labels = drawn(2)
    ours = fitted(Ridge(DIM, CLASSES, 0, 0, 0.7), features, labels).scores(features, CLASSES)
    wanted = np.eye(CLASSES)[labels.numpy()]
    theirs = SklearnRidge(alpha=0.7, fit_intercept=False, solver="cholesky")
    theirs.fit(features.double().numpy(), wanted)
    assert np.allclose(ours.numpy(), theirs.predict(features.double().numpy()), atol=1e-8)


def test_mahalanobis_by_hand() -> None:
    """Scores equal minus the distance under the shrunk correlation matrix of each class, in numpy."""
    features, labels = drawn(3)
    found = fitted(Mahalanobis(DIM, CLASSES, 2.0), features, labels).scores(features, CLASSES)
    rows = features.double().numpy()
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for label in range(CLASSES):
        own = rows[labels.numpy() == label]
        covariance = np.cov(own.T)
        covariance = covariance + 2.0 * np.diag(covariance).mean() * np.eye(DIM)
        scale = np.sqrt(np.diag(covariance))
        inverse = np.linalg.inv(covariance / np.outer(scale, scale))
        away = rows - own.mean(0)
        expected = -np.einsum("ni,ij,nj->n", away, inverse, away)
        assert np.allclose(found[:, label].numpy(), expected, rtol=1e-8)


@pytest.mark.parametrize("kind", MADE)
def test_state_survives_a_checkpoint_and_one_image_is_legal(kind: str) -> None:
    """A loaded state scores the same bits; a class of one image is no error; a class of none is."""
    features, labels = drawn(4)
    first = fitted(MADE[kind](), features[labels < 2], labels[labels < 2])
    first.update(features[12:13], labels[12:13])
    second = MADE[kind]()
    second.load_state_dict(first.state_dict())
    found = first.scores(features, 3)
    assert torch.isfinite(found).all()
    assert torch.equal(second.scores(features, 3), found)
    with pytest.raises(ValueError, match="expected features of class 3 but got none"):
        first.scores(features, 4)


def test_cosine_is_the_nearest_mean_by_angle() -> None:
    """Scores are cosines to the means of the features as they are."""
    features, labels = drawn(8)
    found = fitted(Cosine(DIM, CLASSES), features, labels).scores(features, CLASSES)
    means = torch.stack([features[labels == label].double().mean(0) for label in range(CLASSES)])
    expected = torch.cosine_similarity(features[:, None].double(), means[None], dim=2)
    torch.testing.assert_close(found, expected)


def test_random_fourier_features_make_the_kernel() -> None:
    """Inner products tend to exp(-s d^2), s being one over the median squared distance in the first task."""
    features, labels = drawn(6)
    errors = []
    for width in (30, 3_000):
        classifier = KernelDiscriminant(DIM, CLASSES, width, 0)
        with pytest.raises(ValueError, match="expected a bandwidth but got none"):
            classifier.update(features[:5], labels[:5])  # a part of the task would choose
        classifier.learn(features[:20], labels[:20], torch.Generator())
        bandwidth = float(classifier.bandwidth)
        classifier.update(7 * features[20:], labels[20:])
        rows = features.double()
        apart = torch.cdist(rows, rows).square()
        assert bandwidth == float(classifier.bandwidth)
        assert bandwidth == pytest.approx(1 / float(torch.pdist(rows[:20]).square().median()))
        lifted = classifier.lifted(rows)
        errors.append(float((lifted @ lifted.T - torch.exp(-bandwidth * apart)).abs().mean()))
    assert errors[1] < 0.02 < errors[0]


@pytest.mark.parametrize(("images", "stride"), [(1024, 1), (1025, 2), (2100, 3)])
def test_of_a_large_task_every_few_images_choose_the_bandwidth(images: int, stride: int) -> None:
    """At most 1024 of them; copies of an image, which are at no distance, do not count."""
    rows = torch.randn(images, DIM, generator=torch.Generator().manual_seed(1)).cumsum(0)
    rows[: images // 2] = rows[0]
    classifier = KernelDiscriminant(DIM, CLASSES, 3, 0)
    classifier.learn(rows, torch.zeros(images, dtype=torch.int64), torch.Generator())
    apart = torch.pdist(rows[::stride].double()).square()
    assert float(classifier.bandwidth) == pytest.approx(1 / float(apart[apart > 0].median()))


@pytest.mark.parametrize("kind", MADE)
def test_what_was_solved_is_solved_anew_for_another_state(kind: str) -> None:
    """For more classes, and for another's sums: copied into the same memory, or taken over as they are."""
    (features, labels), (other, _) = drawn(10), drawn(11)
    ours, theirs = (fitted(MADE[kind](), rows, labels) for rows in (features, other))
    assert ours.scores(features, 2).shape == (len(features), 2)
    before = ours.scores(features, CLASSES)
    assert before.shape == (len(features), CLASSES)
    for assign in (False, True):
        found = fitted(MADE[kind](), features, labels)
        assert torch.equal(found.scores(features, CLASSES), before)
        found.load_state_dict(theirs.state_dict(), assign=assign)
        assert torch.equal(found.scores(features, CLASSES), theirs.scores(features, CLASSES))


@pytest.mark.parametrize("width", [4, 60])
def test_one_decomposition_gives_the_error_of_every_penalty(width: int) -> None:
    """With more rows than features and with fewer, errors equal those of one solve per penalty."""
    rows = torch.randn(30, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wanted = torch.eye(3, dtype=torch.float64)[torch.arange(30) % 3]
    penalties = (1e-3, 1.0, 1e3)
    expected = []
    for one in penalties:
        own, given = rows[:24], wanted[:24]
        weight = torch.linalg.solve(own.T @ own + one * torch.eye(width, dtype=torch.float64), own.T @ given)
        expected.append((rows[24:] @ weight - wanted[24:]).square().sum())
    torch.testing.assert_close(held_out_errors(rows, wanted, 24, penalties), torch.stack(expected))


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_ridge_task_by_task_is_ridge_on_all(order: tuple[int, int], running: bool) -> None:
    """The penalty is that of least held-out error, of the last task or of all; the weights, of all rows."""
    features, labels = drawn(7, 12)
    ridge = Ridge(DIM, CLASSES, 40, 1, choice="running" if running else "task")
    errors = torch.zeros(2, len(PENALTIES), dtype=torch.float64)
    for task in order:
        own = labels // 2 == task
        ridge.learn(features[own], labels[own], torch.Generator().manual_seed(task))
        shuffled = torch.randperm(24, generator=torch.Generator().manual_seed(task))
        rows = ridge.lifted(features[own].double())[shuffled]
        wanted = torch.eye(CLASSES, dtype=torch.float64)[labels[own][shuffled]]
        errors[task] = held_out_errors(rows, wanted, 19, PENALTIES)
    total = errors.sum(0) if running else errors[order[-1]]
    best = PENALTIES[int(total[4:].argmin()) + 4]
    assert float(ridge.penalty) == best
    lifted = ridge.lifted(features.double())
    theirs = SklearnRidge(alpha=best, fit_intercept=False).fit(
        lifted.numpy(), np.eye(CLASSES)[labels.numpy()]
    )
    found = ridge.scores(features, CLASSES)
    assert np.allclose(found.numpy(), theirs.predict(lifted.numpy()), rtol=1e-6, atol=1e-9)


def test_a_penalty_that_rounding_would_lose_is_not_chosen() -> None:
    """Labels that are a linear map want none: the least above eps times the trace wins, or the largest."""
    rows = torch.randn(40, DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    labels = (rows[:, 0] > 0).long()
    rows[:, :2] = functional.one_hot(labels, 2).double()
    for scale in (1e-3, 1e3, 1e5, 1e7, 1e13):
        ridge = Ridge(DIM, CLASSES, 0, 0)
        ridge.learn(scale * rows, labels, torch.Generator().manual_seed(0))
        lost = torch.finfo(torch.float64).eps * float((scale * rows).square().sum())
        assert float(ridge.penalty) == min([one for one in PENALTIES if one > lost], default=PENALTIES[-1])


@pytest.mark.parametrize("running", [False, True])
def test_a_task_of_one_class_chooses_no_penalty(running: bool) -> None:
    """Its labels are all alike: the penalty stays what several classes have chosen, or as it was given."""
    features, labels = drawn(12, 12)
    ridge = Ridge(DIM, CLASSES, 40, 1, 3.0, choice="running" if running else "task")
    own = labels == 0
    ridge.learn(features[own], labels[own], torch.Generator())
    assert float(ridge.penalty) == 3.0
    own = labels > 1
    ridge.learn(features[own], labels[own], torch.Generator())
    chosen, errors = float(ridge.penalty), ridge.errors
    assert chosen != 3.0
    before = None if errors is None else errors.clone()
    own = labels == 1
    ridge.learn(features[own], labels[own], torch.Generator())
    assert float(ridge.penalty) == chosen
    assert before is None or torch.equal(ridge.errors, before)
    assert ridge.count.tolist() == [12] * 4


@pytest.mark.parametrize("kind", MADE)
def test_classes_to_come_score_zero(kind: str) -> None:
    """Logits have a column for every class of the stream, and old ones do not wait for the others."""
    features, labels = drawn(9)
    classifier = MADE[kind]()
    assert classifier.logits(features).tolist() == [[0.0] * CLASSES] * len(features)
    classifier.learn(features[labels < 2], labels[labels < 2], torch.Generator())
    found = classifier.logits(features)
    assert not found[:, 2:].any()
    torch.testing.assert_close(found[:, :2], classifier.scores(features, 2).float())


def test_a_temperature_undoes_a_scale() -> None:
    """Scores whose labels are drawn from their softmax, times 50, need a temperature near 50."""
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(scores.softmax(1), 1, generator=generator)[:, 0]
    temperature = Temperature(1.0)
    assert temperature.value == pytest.approx(1.0)
    for part in range(2):  # as they come
        temperature.observe(50 * scores[part::2], labels[part::2])
    assert temperature.value == pytest.approx(50, rel=0.2)
    temperature.reset()
    assert temperature.value == pytest.approx(1.0)


def test_the_best_class_speaks_for_its_task() -> None:
    """The best task is that of the best class; classes of tasks that are not asked for do not count."""
    scores = torch.tensor([[0.0, 3.0, 2.0, 2.9]])
    of_class = torch.tensor([0, 0, 1, 2])
    assert best_of_task(scores, of_class, [0, 1, 2]).tolist() == [[3.0, 2.0, pytest.approx(2.9)]]
    assert best_of_task(scores, of_class, [2, 1]).argmax().item() == 0
