"""Checks of a carry: it sees a task's images before and after, and moves what it must."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lw2g.errors import counted
from lw2g.interfaces.carry import Carry, CarryContext, Motion
from lw2g.interfaces.defaults import CARRIED_HOST, DEFAULT_HEAD, DEFAULT_MOTION
from lw2g_testing.cases import ContractViolation, Subject, check, methods_of
from lw2g_testing.guards import available, seeded
from lw2g_testing.small_run import require_run

_DIM = 8
_CLASSES = 10
_IMAGES = 12
"""Width of features, number of classes, images of each."""


def made(subject: Subject) -> Carry:
    """Return the carry, built for features of a small width."""
    inner = None
    if subject.component.wraps:
        other = subject.catalogue.get("carry", DEFAULT_MOTION)
        inner = other.build(other.config(), CarryContext(dim=_DIM))
    context = CarryContext(dim=_DIM, inner=inner)
    carry: Any = available(lambda: subject.component.build(subject.config, context))
    if not isinstance(carry, Carry):
        raise ContractViolation(f"build returns {type(carry).__name__}; return a lw2g.plugin.Carry")
    return carry


def images_of(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return features of images before and after a drift, ``[n, dim]``, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(_CLASSES).repeat_interleave(_IMAGES)
    means = 3 * torch.randn(_CLASSES, _DIM, generator=generator)
    before = means[labels] + torch.randn(len(labels), _DIM, generator=generator)
    turn = torch.eye(_DIM) + 0.1 * torch.randn(_DIM, _DIM, generator=generator)
    return before, before @ turn + 1, labels


def _fitted(carry: Carry, *images: Tensor) -> Motion:
    """Return the motion, and refuse what is none."""
    found = carry.fit(*images)
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Motion)):
        raise ContractViolation("fit must return a lw2g.plugin.Motion and the name of its candidate")
    if found[1] not in carry.candidates:
        raise ContractViolation(f"fit names {found[1]!r}, which is none of candidates {carry.candidates}")
    return found[0]


def _same(one: Motion, other: Motion, rows: Tensor) -> bool:
    return torch.allclose(one(rows), other(rows), rtol=1e-8, atol=1e-8)


@check("carry")
def check_fits_a_motion(subject: Subject) -> None:
    """It returns a motion of float64 rows and one of its candidates' names; it changes no feature."""
    carry = made(subject)
    images = images_of()
    names = carry.candidates
    if not names or len(set(names)) != len(names) or not all(isinstance(name, str) for name in names):
        raise ContractViolation(f"candidates must be distinct names, but are {names!r}")
    given = [one.clone() for one in images]
    motion = _fitted(carry, *images)
    if not all(map(torch.equal, given, images)):
        raise ContractViolation("fit changes the features that it is given; copy them first")
    rows = images_of(1)[0].double()
    moved = motion(rows)
    fit = methods_of(carry, "fit")
    if moved.shape != rows.shape or moved.dtype != torch.float64 or not moved.isfinite().all():
        raise ContractViolation(
            f"its motion maps rows {tuple(rows.shape)} float64 to {tuple(moved.shape)} {moved.dtype}; let "
            f"{fit} return one that maps them to finite float64 rows of the same shape"
        )
    if motion.share is None:
        return
    shares = motion.share(rows)
    if not bool(((shares >= 0) & (shares <= 1)).all()):
        raise ContractViolation(
            f"shares of its motion leave 0 to 1; let {fit} return a share clamped to them"
        )


@check("carry")
def check_moves_nothing_without_drift(subject: Subject) -> None:
    """Where features stay, rows and scatters stay."""
    before, _, labels = images_of()
    # a copy: a carry must not tell that nothing moved by the tensor being the same one
    carry = made(subject)
    motion = _fitted(carry, before, before.clone(), labels)
    remedy = f"let {methods_of(carry, 'fit')} return the identity where before and after are equal"
    rows = images_of(1)[0].double()
    scatter = rows.T @ rows
    if not torch.allclose(motion(rows), rows, rtol=1e-7, atol=1e-7):
        raise ContractViolation(f"features stayed, but its motion moves rows; {remedy}")
    if not torch.allclose(motion.scatter(scatter, len(rows)), scatter, rtol=1e-6, atol=1e-6):
        raise ContractViolation(f"features stayed, but its motion changes scatters; {remedy}")


@check("carry")
def check_says_whether_it_moves(subject: Subject) -> None:
    """A carry that says ``moves = False`` moves nothing, and any other one follows a drift."""
    carry = made(subject)
    before, _, labels = images_of()
    drift = 1.0
    motion = _fitted(carry, before, before + drift, labels)
    rows = before.double()
    moved = motion(rows)
    missing = float((moved - (rows + drift)).abs().mean())
    if carry.moves and missing > drift / 2:
        raise ContractViolation(
            f"all features went 1 further, and its motion misses {missing:.2g} of it; let "
            f"{methods_of(carry, 'fit')} map the features before to those after, or declare moves = False"
        )
    if not carry.moves and not torch.equal(moved, rows):
        raise ContractViolation("it moves rows; leave out moves = False")


@check("carry")
def check_order_does_not_matter(subject: Subject) -> None:
    """Neither the order of the images matters, nor which number a class has."""
    carry = made(subject)
    before, after, labels = images_of()
    rows = images_of(1)[0].double()
    motion = _fitted(carry, before, after, labels)
    fit = methods_of(carry, "fit")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(5))
    # images and labels are permuted together: each image keeps its class
    if not _same(motion, _fitted(carry, before[order], after[order], labels[order]), rows):
        raise ContractViolation(
            f"images in another order give another motion; let {fit} take sums or means over images"
        )
    # 90 more for every class: the numbers of a later task
    if not _same(motion, _fitted(carry, before, after, labels + 90), rows):
        raise ContractViolation(
            f"classes with other numbers give another motion; let {fit} ask of labels alone which are equal"
        )


@check("carry")
def check_sees_this_task_alone(subject: Subject) -> None:
    """A task's motion does not depend on other tasks, on earlier fits, or on any generator."""
    carry = made(subject)
    images = images_of()
    rows = images_of(1)[0].double()
    with seeded(1) as generators:
        first = _fitted(carry, *images)(rows)
        generators.refuse_draws("it", "; draw from a generator with a fixed seed")
    _fitted(carry, *images_of(2))
    if not torch.equal(first, _fitted(carry, *images)(rows)):
        raise ContractViolation("the same images give another motion after another task; keep no state")


@check("carry")
def check_takes_few_images(subject: Subject) -> None:
    """One class, and one image, give a finite motion."""
    before, after, _ = images_of()
    rows = images_of(1)[0].double()
    for count in (1, _IMAGES):
        carry = made(subject)
        motion = _fitted(carry, before[:count], after[:count], torch.zeros(count, dtype=torch.long))
        if not motion(rows).isfinite().all():
            raise ContractViolation(
                f"{counted(count, 'image')} of one class give a motion that is not finite; let "
                f"{methods_of(carry, 'fit')} divide by no spread, and shrink what it inverts"
            )


@check("carry")
def check_serves_a_run(subject: Subject) -> None:
    """Runs whose tasks train one set are carried by it, under a head and under replay."""
    carried = {"baseline.head_carry": subject.component.name}
    require_run(subject, {"baseline.head": DEFAULT_HEAD, **carried}, CARRIED_HOST)
    if made(subject).moves:
        require_run(subject, carried, CARRIED_HOST)
