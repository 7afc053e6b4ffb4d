"""The gate of a carry: far classes stay, near ones follow, and nothing but means moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lw2g.blocks.carrying import CARRIES, Motion, gated
from lw2g.blocks.closed_form import ClosedForm, Cosine
from lw2g.blocks.discriminants import Discriminant, KernelDiscriminant
from lw2g.blocks.heads import carry_of
from lw2g.blocks.mahalanobis import Mahalanobis
from lw2g.blocks.motions import Motions
from lw2g.blocks.options import HeadOptions
from lw2g.blocks.ridge import Ridge
from lw2g.blocks.statistics import ClassStatistics
from lw2g.errors import ConfigError
from lw2g.interfaces.carry import Carry, CarryContext
from lw2g_carries.carries import Gated
from lw2g_carries.options import NoOptions
from tasks import build_of

DIM, CLASSES = 4, 3
UP = Motion(rows=lambda rows: rows + torch.tensor([0.0, 3.0], dtype=rows.dtype))
"""Everything goes three up."""


def table(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def gate_of(carry: Carry) -> Gated:
    """The carry with a gate."""
    return Gated(NoOptions(), CarryContext(dim=DIM, inner=carry))


def going(seed: int) -> Motion:
    """Some affine map of the features."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(DIM, DIM, generator=generator, dtype=torch.float64)
    offset = torch.randn(DIM, generator=generator, dtype=torch.float64)
    return Motion(rows=lambda rows: rows @ matrix + offset, linear=matrix, left=torch.eye(DIM).double())


def seen(seed: int, count: int = 24) -> tuple[Tensor, Tensor]:
    """Features of a task of four classes, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 4 + 7
    return torch.randn(count, DIM, generator=generator, dtype=torch.float64) + labels[:, None] % 3, labels


def test_a_far_class_hardly_moves_and_a_near_one_moves_as_the_motion_says() -> None:
    """New classes at (0, 0) and (2, 0): r = 4. At distance 18 a class takes 4 / 324 of the motion."""
    before = table((-1, 0), (1, 0), (0, 0), (2, 0))  # three images of one class, one of the other
    motion = gated(UP, before, torch.tensor([5, 5, 5, 8]))
    old = table((0, 1), (4, 0), (20, 0), (1002, 0))
    shares = table((1, 1, 4 / 18**2, 4 / 10**6))[0]
    assert motion.share is not None
    torch.testing.assert_close(motion.share(old), shares)
    torch.testing.assert_close(motion(old) - old, torch.stack([torch.zeros(4).double(), 3 * shares], 1))


def test_the_reach_is_the_median_distance_to_the_nearest_other_class() -> None:
    """Means at 0, 1 and 4 on a line: nearest others at 1, 1 and 3, so that r = 1, and not their mean."""
    motion = gated(UP, table((0, 0), (1, 0), (4, 0)), torch.tensor([0, 1, 2]))
    assert motion.share is not None
    torch.testing.assert_close(motion.share(table((-2, 0), (5, 0), (6, 0))), table((0.25, 1, 0.25))[0])
    # of an even number, halfway between the two in the middle: 1 and 9
    four = gated(UP, table((0, 0), (1, 0), (20, 0), (23, 0)), torch.arange(4))
    assert four.share is not None
    torch.testing.assert_close(four.share(table((-10, 0))), table((5 / 100,))[0])


def test_one_new_class_reaches_as_far_as_its_images() -> None:
    """Images at distances 1, 1 and 2, 2 of their mean: r is 2.5; identical images move no other class."""
    images = table((-1, 0), (1, 0), (0, -2), (0, 2))
    motion = gated(UP, images, torch.zeros(4, dtype=torch.int64))
    assert motion.share is not None
    torch.testing.assert_close(motion.share(table((1.5, 0), (5, 0))), table((1, 0.1))[0])
    point = gated(UP, table((1, 1), (1, 1)), torch.zeros(2, dtype=torch.int64))
    assert point.share is not None
    assert point.share(table((1, 1), (1, 1.001))).tolist() == [1, 0]


def test_the_gate_is_measured_where_images_lay_before_the_drift() -> None:
    """Old classes lie where they were: a task that went far away still moves those that lay near it."""
    before, labels = table((0, 0), (2, 0)), torch.tensor([5, 8])
    old = table((1, 0), (18, 0))
    motion, _ = gate_of(CARRIES["shift"]).fit(before, before + 1000, labels)
    near, far = 1, 4 / 16**2
    assert motion.share is not None
    torch.testing.assert_close(motion.share(old), table((near, far))[0])
    torch.testing.assert_close(motion(old) - old, 1000 * table((near, near), (far, far)))


@given(seed=st.integers(0, 99), carry=st.sampled_from(["affine", "shift", "auto"]))
def test_a_gated_row_ends_between_where_it_was_and_where_the_motion_takes_it(seed: int, carry: str) -> None:
    """On the line between both, at the share, whatever the motion; the choice of the motion is the same."""
    before, labels = seen(seed)
    after = going(seed)(before)
    plain, name = CARRIES[carry].fit(before, after, labels)
    motion, same = gate_of(CARRIES[carry]).fit(before, after, labels)
    rows = 3 * seen(seed + 1)[0]
    assert name == same
    assert motion.share is not None
    share = motion.share(rows)
    assert bool(((share >= 0) & (share <= 1)).all())
    torch.testing.assert_close(motion(rows), (1 - share)[:, None] * rows + share[:, None] * plain(rows))


@given(seed=st.integers(0, 99))
def test_neither_the_order_of_images_nor_that_of_classes_matters(seed: int) -> None:
    """Labels exchanged and rows shuffled: the same gate."""
    before, labels = seen(seed)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(before), generator=generator)
    exchanged = torch.tensor([3, 0, 40, 1])[labels - 7]
    rows = 3 * seen(seed + 1)[0]
    first = gated(going(seed), before, labels)
    second = gated(going(seed), before[order], exchanged[order])
    torch.testing.assert_close(second(rows), first(rows), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_features_of_any_precision_have_the_gate_of_their_values(dtype: torch.dtype) -> None:
    """Rounding happens before, and never within."""
    whole, labels = seen(0)
    before, after = whole.to(dtype), going(0)(whole).to(dtype)
    carry, rows = gate_of(CARRIES["affine"]), 3 * seen(1)[0]
    found = carry.fit(before, after, labels)[0](rows)
    assert found.dtype is torch.float64
    assert torch.equal(found, carry.fit(before.double(), after.double(), labels)[0](rows))


def test_with_one_kind_of_images_a_gate_costs_little() -> None:
    """Forty classes of one cloud that go one way: a gate takes old classes most of the way of the motion."""
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(40, 16, generator=generator, dtype=torch.float64)
    images = means.repeat_interleave(20, 0)
    images = images + 0.3 * torch.randn(images.shape, generator=generator, dtype=torch.float64)
    moved = 1.1 * images + 0.5
    labels = torch.arange(40).repeat_interleave(20)
    new = labels >= 20
    left = {}
    for name, carry in (("affine", CARRIES["affine"]), ("gated", gate_of(CARRIES["affine"]))):
        motion, _ = carry.fit(images[new], moved[new], labels[new])
        left[name] = float((motion(means[:20]) - (1.1 * means[:20] + 0.5)).norm(dim=1).mean())
    went = float((0.1 * means[:20] + 0.5).norm(dim=1).mean())
    assert left["affine"] < 0.05 * went
    assert left["gated"] < 0.35 * went


def klda() -> KernelDiscriminant:
    made = KernelDiscriminant(DIM, CLASSES, 30, 3, carried=True)
    made.bandwidth.fill_(0.01)
    return made


def within(head: ClosedForm) -> Tensor:
    """Return what a head keeps of the scatter of features about their means."""
    if isinstance(head, Cosine):
        return torch.zeros(0)
    if isinstance(head, Mahalanobis):  # of normalised features, at their length
        return head.scatter * (head.length / head.count)[:, None, None].square()
    moments: Any = getattr(head, "raw", None) or head
    if isinstance(moments, Ridge):
        mean = moments.centres(torch.arange(CLASSES))
        return moments.gram.sum(0) - mean.T @ (moments.count[:, None].double() * mean)
    return moments.scatter.sum(0).clone()


@pytest.mark.parametrize(
    "made",
    [
        lambda: Cosine(DIM, CLASSES),
        lambda: Discriminant(DIM, CLASSES),
        lambda: Mahalanobis(DIM, CLASSES),
        lambda: Ridge(DIM, CLASSES, 0, 0),
        lambda: Ridge(DIM, CLASSES, 20, 0, carried=True),
        klda,
    ],
    ids=["cosine", "lda", "mahalanobis", "ridge", "ridge-random", "klda"],
)
@given(seed=st.integers(0, 20))
def test_of_a_head_the_means_alone_move(made: Callable[[], ClosedForm], seed: int) -> None:
    """Sums and Grams become those of moved means and the scatter of before, for classes of unequal size."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    features = torch.randn(len(labels), DIM, generator=generator, dtype=torch.float64) + 5
    head = made()
    head.update(features, labels, 0)
    motion = gated(going(seed), *seen(seed))
    every = torch.arange(CLASSES)
    centres, scatter = head.centres(every), within(head)
    head.carry(motion, range(CLASSES))
    torch.testing.assert_close(head.centres(every), motion(centres), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(within(head), scatter, rtol=1e-7, atol=1e-7)
    assert bool(torch.isfinite(head.scores(features, CLASSES)).all())


@pytest.mark.parametrize("mode", ["covariance", "variance", "multi-centroid"])
def test_of_gaussians_of_replay_the_means_alone_move(mode: Any) -> None:
    """Each cluster by its own distance to the new classes; spreads keep their bits."""
    features, labels = seen(0, 80)
    gaussians = ClassStatistics(CLASSES, DIM, mode, clusters=2)
    for label in range(CLASSES):
        gaussians.fit(label, features[labels == label + 7].float())
    mean, spread = gaussians.mean.clone().double(), gaussians.spread.clone()
    motion = gated(going(1), *seen(1))
    gaussians.carry(motion, [0, 2])
    torch.testing.assert_close(gaussians.mean[2].double(), motion(mean[2]), rtol=1e-5, atol=1e-5)
    assert torch.equal(gaussians.mean[1].double(), mean[1])
    assert torch.equal(gaussians.spread, spread)


def test_a_class_that_comes_again_takes_the_whole_motion() -> None:
    """Its old position lies where its new images are, and one in a domain far away stays."""
    before, labels = seen(3)
    centre = before[labels == 8].mean(0, keepdim=True)
    motion = gated(going(0), before, labels)
    assert motion.share is not None
    assert motion.share(torch.cat([centre, centre + 1e4])).tolist() == pytest.approx([1, 0], abs=1e-6)


def test_options_that_gate_nothing_are_refused_in_a_line() -> None:
    """A motion to gate without a gate, and a residual for a scatter that stays."""
    build = build_of()
    for name in ("affine", "shift"):
        carry = carry_of(HeadOptions(head_carry="gated", head_gated=name), build)
        assert isinstance(carry, Gated)
        assert carry.inner is CARRIES[name]
    with pytest.raises(ConfigError, match=r"'shift' has no gate while baseline.head_carry is 'affine'"):
        carry_of(HeadOptions(head_carry="affine", head_gated="shift"), build)
    with pytest.raises(ConfigError, match=r"head_residual: a gated carry .*set baseline.head_carry=affine"):
        carry_of(HeadOptions(head_carry="gated", head_residual=True), build)


def test_a_log_of_motions_warns_from_three_medians_on_and_survives_a_checkpoint() -> None:
    """New classes that move 1, 2, 3 and then 6: three times the median of before, 2; held below a half."""
    log, one = Motions(), torch.ones(1, dtype=torch.float64)
    for task, length in enumerate((1.0, 2.0, 3.0, 6.0), start=1):
        shares = torch.tensor([0.49, 0.5, 0.1], dtype=torch.float64)
        log.note(task, [(length * one, torch.tensor([0.0, 1.0, 5.0]).double(), shares)], [4, 5, 4])
    log.note(5, [(one, one, one), (5 * one, 3 * one, one)], [1, 2])  # two sets: the farthest
    again = Motions()
    again.load_state_dict(log.state_dict())
    entries = list(again.entries())
    assert [entry.new for entry in entries] == [1, 2, 3, 6, 5]
    assert [entry.old for entry in entries] == [2, 2, 2, 2, 2]
    assert [entry.times for entry in entries] == [None, 2, 2, 3, 2]
    assert [entry.alarming for entry in entries] == [False, False, False, True, False]
    assert [entry.held for entry in entries] == [(4,)] * 4 + [()]
    assert [entry.carried for entry in entries] == [3, 3, 3, 3, 2]
    older = Motions()
    older.load_state_dict({})  # a checkpoint of before there was a log
    assert older.as_findings() == []
