"""Drift compensation: what a carry fits, and that statistics follow as if features had been seen moved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from lw2g.blocks.carrying import CARRIES, CandidateCarry, Motion, affine, shift
from lw2g.blocks.closed_form import ClosedForm, Cosine
from lw2g.blocks.discriminants import Discriminant, KernelDiscriminant
from lw2g.blocks.mahalanobis import Mahalanobis
from lw2g.blocks.ridge import Ridge
from lw2g.blocks.statistics import ClassStatistics

DIM, CLASSES = 5, 4


def klda(carried: bool = True) -> KernelDiscriminant:
    """One whose bandwidth is given, for else the first task chooses it."""
    made = KernelDiscriminant(DIM, CLASSES, 30, 3, carried=carried)
    made.bandwidth.fill_(0.01)
    return made


EXACT: dict[str, Callable[[], ClosedForm]] = {
    "cosine": lambda: Cosine(DIM, CLASSES),
    "lda": lambda: Discriminant(DIM, CLASSES, 0.1),
    "ridge": lambda: Ridge(DIM, CLASSES, 0, 0, 0.5),
}


def drawn(seed: int, per_class: int = 6) -> tuple[Tensor, Tensor]:
    """Features about four means far from the origin, and their labels, class after class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat_interleave(per_class)
    means = 4 * torch.randn(CLASSES, DIM, generator=generator) + 30
    noise = torch.randn(len(labels), DIM, generator=generator)
    return (means[labels] + noise).double(), labels


def turned(seed: int) -> Motion:
    """Some affine map of the features."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(DIM, DIM, generator=generator, dtype=torch.float64)
    offset = torch.randn(DIM, generator=generator, dtype=torch.float64)
    return Motion(rows=lambda rows: rows @ matrix + offset, linear=matrix)


@pytest.mark.parametrize("kind", EXACT)
@given(seed=st.integers(0, 99))
def test_classes_of_one_set_are_carried_as_if_their_images_had_been_seen_anew(kind: str, seed: int) -> None:
    """An affine drift of one set's features: classes of another set stay, common sums are of both."""
    (features, labels), moves = drawn(seed), turned(seed)
    going = (labels == 1) | (labels == 3)
    moved = torch.where(going[:, None], moves(features), features)
    carried, fresh = EXACT[kind](), EXACT[kind]()
    for head, rows in ((carried, features), (fresh, moved)):
        for owner, own in enumerate((~going, going)):
            head.update(rows[own], labels[own], owner)
    carried.scores(features, CLASSES)  # what was solved before is solved anew
    state = carried.state_dict()
    carried = EXACT[kind]()
    carried.load_state_dict(state)
    carried.carry(moves, [1, 3], 1)
    torch.testing.assert_close(
        carried.scores(moved, CLASSES), fresh.scores(moved, CLASSES), rtol=1e-6, atol=1e-7
    )


@given(seed=st.integers(0, 99))
def test_mahalanobis_follows_a_drift_that_turns_and_scales(seed: int) -> None:
    """Normalised features turn along; their scale, and a carry that moves nothing, change nothing."""
    features, labels = drawn(seed)
    generator = torch.Generator().manual_seed(seed)
    rotation = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator, dtype=torch.float64))[0]
    turn = Motion(rows=lambda rows: 3 * rows @ rotation, linear=3 * rotation)
    carried, fresh = Mahalanobis(DIM, CLASSES), Mahalanobis(DIM, CLASSES)
    carried.update(features, labels)
    fresh.update(turn(features), labels)
    carried.carry(turn, range(CLASSES))
    found, wanted = (head.scores(turn(features), CLASSES) for head in (carried, fresh))
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "made", [klda, lambda: Ridge(DIM, CLASSES, 40, 3, 0.5, carried=True)], ids=["klda", "ridge"]
)
def test_random_features_follow_in_law(made: Callable[[], ClosedForm]) -> None:
    """Gaussian classes: sums after an affine drift are near those of moved features, unlike stale ones."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat_interleave(5_000)
    means = 3 * torch.randn(CLASSES, DIM, generator=generator)
    features = (means[labels] + torch.randn(len(labels), DIM, generator=generator)).double()
    moves = turned(2)
    stale, carried, fresh = made(), made(), made()
    for head in (stale, carried):
        head.update(features, labels)
    fresh.update(moves(features), labels)
    carried.carry(moves, range(CLASSES))
    for name in ("mean", "scatter") if isinstance(fresh, KernelDiscriminant) else ("cross", "gram"):
        truth = fresh.get_buffer(name)
        missed = [float((head.get_buffer(name) - truth).norm() / truth.norm()) for head in (carried, stale)]
        assert missed[0] < 0.1 < missed[1], (name, missed)
    bare = klda(carried=False) if made is klda else Ridge(DIM, CLASSES, 40, 3)
    with pytest.raises(TypeError, match="make it with carried=True"):
        bare.carry(moves, [0])


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2), (1, 6, 2, 3)])
@pytest.mark.parametrize("owner", [0, 2])
def test_the_scatter_of_few_images_is_that_about_their_own_means(owner: int, sizes: tuple[int, ...]) -> None:
    """A map that moves nothing leaves it: n images of C classes have n - C degrees of freedom."""
    labels = torch.arange(CLASSES).repeat_interleave(torch.tensor(sizes))
    means = torch.randn(CLASSES, DIM, generator=torch.Generator().manual_seed(7))
    noise = torch.randn(len(labels), DIM, generator=torch.Generator().manual_seed(8))
    features = (means[labels] + 0.2 * noise).double()
    head = klda()
    head.bandwidth.fill_(1e-6)  # so small a kernel makes random features nearly linear
    head.update(features, labels, owner)
    before = head.get_buffer("scatter").clone()
    still = Motion(rows=lambda rows: rows, linear=torch.eye(DIM, dtype=torch.float64))
    head.carry(still, range(CLASSES), owner)
    after = head.get_buffer("scatter")
    assert float((after[owner] - before[owner]).norm() / before[owner].norm()) < 0.01
    assert not after[:owner].any()


@pytest.mark.parametrize("mode", ["covariance", "variance", "multi-centroid"])
def test_gaussians_of_replay_follow(mode: str) -> None:
    """Means go through the map; covariances, or what is kept of them, through its linear part."""
    features, labels = drawn(0, per_class=40)
    moves, gaussians = turned(1), ClassStatistics(CLASSES, DIM, mode, clusters=2)
    for label in range(CLASSES):
        gaussians.fit(label, features[labels == label].float())
    mean, spread = gaussians.mean.clone().double(), gaussians.spread.clone().double()
    gaussians.carry(moves, [0, 2])
    moved = moves(mean[2])
    torch.testing.assert_close(gaussians.mean[2].double(), moved, rtol=1e-4, atol=1e-3)
    assert torch.equal(gaussians.mean[1].double(), mean[1])
    assert moves.linear is not None
    if mode == "covariance":
        wanted = moves.linear.T @ spread[2, 0] @ spread[2, 0].T @ moves.linear
        found = gaussians.spread[2, 0].double() @ gaussians.spread[2, 0].double().T
    else:
        wanted, found = spread[2] @ moves.linear.square(), gaussians.spread[2].double()
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", CARRIES)
@given(seed=st.integers(0, 20))
def test_nothing_moves_where_nothing_drifts_and_a_translation_is_found(name: str, seed: int) -> None:
    """The identity to 1e-9; a common translation exactly, save by ``none``."""
    rows, labels = drawn(seed)
    other = rows.flip(0) + 0.1
    for offset in (0.0, 2.5):
        motion, _ = CARRIES[name].fit(rows, rows + offset, labels)
        wanted = other + (0.0 if name == "none" else offset)
        torch.testing.assert_close(motion(other), wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", CARRIES)
def test_a_motion_turns_with_its_features_and_knows_no_order(name: str) -> None:
    """Equivariant under rotations, blind to the order of pairs; other pairs give another motion."""
    rows, labels = drawn(3)
    generator = torch.Generator().manual_seed(1)
    after = rows + torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator, dtype=torch.float64))[0]
    motion, chosen = CARRIES[name].fit(rows, after, labels)
    turn, _ = CARRIES[name].fit(rows @ rotation, after @ rotation, labels)
    torch.testing.assert_close(turn(rows[:3] @ rotation), motion(rows[:3]) @ rotation)
    order = torch.randperm(len(rows), generator=generator)
    again, rechosen = CARRIES[name].fit(rows[order], after[order], labels[order])
    assert rechosen == chosen
    torch.testing.assert_close(again(rows[:3]), motion(rows[:3]))
    if name != "none":
        assert not torch.allclose(
            CARRIES[name].fit(rows, after[order], labels)[0](rows[:3]), motion(rows[:3])
        )


def test_auto_is_never_worse_on_held_out_classes_than_doing_nothing() -> None:
    """Where classes jitter at random, nothing is moved; where all move alike, something is."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(100, 30, generator=generator, dtype=torch.float64)
    labels = torch.arange(100) // 5
    noise = torch.randn(20, 30, generator=generator, dtype=torch.float64)
    assert CARRIES["auto"].fit(rows, rows + noise[labels], labels)[1] == "none"
    assert CARRIES["auto"].fit(rows, rows + 2 + 0.1 * noise[labels], labels)[1] != "none"


def test_a_shift_is_local() -> None:
    """Two groups that go different ways: each old class goes with its neighbours."""
    rows = torch.tensor([[0.0, 0.0], [0.1, 0.0], [9.0, 0.0], [9.1, 0.0]], dtype=torch.float64)
    after = rows + torch.tensor([[0.0, 1.0]] * 2 + [[0.0, -2.0]] * 2, dtype=torch.float64)
    found = shift(rows, after, share=0.01)(torch.tensor([[0.05, 0.0], [8.9, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(found[:, 1], torch.tensor([1.0, -2.0], dtype=torch.float64))
    alike = shift(rows, after, share=float("inf"))(rows)
    torch.testing.assert_close(alike, rows + torch.tensor([0.0, -0.5], dtype=torch.float64))


@pytest.mark.parametrize("name", ["shift 0.05", "shift 0.25", "shift 1"])
def test_images_count_by_a_gaussian_of_their_distance(name: str) -> None:
    """SDC, Eq. 5: exp(-d^2 / 2 sigma^2), sigma^2 a share of the median squared distance between images."""
    rows, _ = drawn(4)
    drift = torch.randn(rows.shape, generator=torch.Generator().manual_seed(2)).double()
    pairs = sorted(float((rows[i] - rows[j]).square().sum()) for i in range(len(rows)) for j in range(i))
    variance = float(name.removeprefix("shift ")) * pairs[(len(pairs) - 1) // 2]
    other = rows.flip(0)[:5] + 0.3
    found = CARRIES["shift"].fits[name](rows, rows + drift)(other)
    for row, moved in zip(other, found, strict=True):
        weight = (-(rows - row).square().sum(1) / (2 * variance)).exp()
        torch.testing.assert_close(moved, row + (weight[:, None] * drift).sum(0) / weight.sum())


@pytest.mark.parametrize(
    "sizes",
    [(2, 1, 1, 1, 1, 3), (1, 5, 5, 5, 5, 4, 1, 1, 1, 1, 2), (1, 2, 2), (15,), (1, 1, 1, 1, 1, 1)],
)
def test_what_is_left_is_unbiased_for_few_images(sizes: tuple[int, ...]) -> None:
    """Each held-out class takes one degree of freedom; classes that are not held out take none."""
    generator = torch.Generator().manual_seed(5)
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    rows = torch.randn(len(labels), DIM, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(labels), DIM, generator=generator, dtype=torch.float64)
    motion, _ = CARRIES["none"].fit(rows, rows + noise, labels, residual=True)
    held = [noise[labels == label] for label in range(0, len(sizes), 5)]
    if len(sizes) == 1:
        held = [noise[::5]]
    freedom = sum(len(own) - 1 for own in held)
    within = sum((own - own.mean(0)).T @ (own - own.mean(0)) for own in held)
    assert motion.left is not None
    torch.testing.assert_close(motion.left, within / max(freedom, 1))


DRIFTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": lambda rows, noise: 0 * noise,
    "affine": lambda rows, noise: rows @ torch.diag(torch.linspace(-1, 2, DIM).double()) + 0.01 * noise,
    "shift": lambda rows, noise: 9 * rows[:, :1].sign() * rows[:, 1:2].sign() + 0.01 * noise,
}


@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("carry", CARRIES)
def test_auto_takes_the_kind_of_motion_that_there_was(carry: str, drift: str) -> None:
    """Nothing, a map, groups that go their own ways; a carry of one kind stays with its kind."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60).repeat_interleave(5)
    means = 4 * torch.randn(60, DIM, generator=generator).double()
    rows = means[labels] + 0.1 * torch.randn(300, DIM, generator=generator).double()
    noise = torch.randn(60, DIM, generator=generator).double()[labels]
    _, chosen = CARRIES[carry].fit(rows, rows + DRIFTS[drift](rows, noise), labels)
    assert chosen in CARRIES[carry].fits
    if carry == "auto":
        assert chosen.split()[0] == drift


def test_auto_has_the_candidates_of_all_carries_and_in_doubt_the_simplest() -> None:
    """Counts in a checkpoint go by this order; of equals the first is taken, unjudged the last."""
    auto = CARRIES["auto"].fits
    others = [CARRIES[name].fits for name in ("none", "affine", "shift")]
    assert list(auto) == [name for fits in others for name in fits]
    assert all(auto[name] is fit for fits in others for name, fit in fits.items())
    rows, labels = drawn(0)
    assert CARRIES["auto"].fit(rows, rows, labels)[1] == "none"
    assert CARRIES["auto"].fit(rows[:1], rows[:1] + 1, labels[:1])[1] == "translation"


@given(seed=st.integers(0, 99))
def test_an_affine_motion_is_found_from_images_of_other_classes(seed: int) -> None:
    """What moved two hundred rows moves others, too."""
    generator, moves = torch.Generator().manual_seed(seed), turned(seed)
    rows = torch.randn(200, DIM, generator=generator, dtype=torch.float64)
    other = torch.randn(7, DIM, generator=generator, dtype=torch.float64)
    carry = CandidateCarry(
        fits={str(strength): partial(affine, strength=strength) for strength in (1e-9, 10.0)}
    )
    found, _ = carry.fit(rows, moves(rows), torch.arange(200) % 10)
    torch.testing.assert_close(found(other), moves(other), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [(3, 1, 4, 2, 5, 3, 2), (7, 4), (13,)])
def test_every_fifth_class_chooses_the_pull_to_the_identity(sizes: tuple[int, ...]) -> None:
    """By their place among the task's classes, whatever the labels; of a single class, every fifth image."""
    labels = torch.cat([torch.full((size,), 3 * place + 11) for place, size in enumerate(sizes)])
    classes, chosen = labels.unique().tolist(), set()
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        before = torch.randn(len(labels), DIM, generator=generator, dtype=torch.float64)
        after = before @ (torch.eye(DIM) + 0.3 * torch.randn(DIM, DIM, generator=generator)).double()
        after += 0.5 * torch.randn(len(labels), DIM, generator=generator, dtype=torch.float64)
        held = torch.isin(labels, torch.tensor(classes[::5]))
        if len(classes) == 1:
            held = torch.tensor([place % 5 == 0 for place in range(len(labels))])
        errors = {}
        for name, fit in CARRIES["affine"].fits.items():
            errors[name] = float(
                (fit(before[~held], after[~held])(before[held]) - after[held]).square().sum()
            )
        best = min(errors, key=lambda name: errors[name])
        chosen.add(best)
        found, name = CARRIES["affine"].fit(before, after, labels)
        assert name == best
        assert torch.equal(found.linear, CARRIES["affine"].fits[best](before, after).linear)
    assert len(chosen) > 1


def test_what_a_map_leaves_is_the_covariance_within_held_out_classes() -> None:
    """Noise that no map explains comes back in the scatter, a drift of whole classes does not."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40).repeat_interleave(100)
    rows = torch.randn(len(labels), 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(labels), 3, generator=generator, dtype=torch.float64) * torch.tensor(
        [2.0, 1.0, 0.0]
    )
    jumps = 3 * functional.one_hot(labels % 3).double()
    motion, _ = CARRIES["affine"].fit(rows, rows + noise + jumps, labels, residual=True)
    assert motion.left is not None
    torch.testing.assert_close(
        motion.left.diagonal(), torch.tensor([4.0, 1.0, 0.0]).double(), rtol=0.1, atol=0.05
    )
    scatter = torch.eye(3, dtype=torch.float64)
    bare = attrs.evolve(motion, left=None)
    torch.testing.assert_close(motion.scatter(scatter, 7), bare.scatter(scatter, 7) + 7 * motion.left)
    assert CARRIES["affine"].fit(rows, rows + noise, labels)[0].left is None


@pytest.mark.parametrize("name", CARRIES)
def test_one_image_gives_its_shift(name: str) -> None:
    """From a single image nothing but the shift is known."""
    found, _ = CARRIES[name].fit(
        torch.ones(1, DIM), torch.full((1, DIM), 3.0), torch.zeros(1, dtype=torch.int64)
    )
    wanted = torch.full((1, DIM), 0.0 if name == "none" else 2.0).double()
    torch.testing.assert_close(found(torch.zeros(1, DIM, dtype=torch.float64)), wanted)
