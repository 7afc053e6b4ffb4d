"""Building block: drift compensation, which carries the statistics of old classes along with their features.

If a task trains a set that old tasks share, or parameters that all sets share, the features of old classes
drift, and no image is left to measure them again. The new task's images show the drift: a motion is fitted to
their features under the old set, before and after the task, and applied to the statistics of that set's
classes. Held-out classes of the task choose among a carry's candidates, so no test data enters:

- ``none``: features stay where they were.
- ``shift``: SDC (Yu et al., "Semantic Drift Compensation for Class-Incremental Learning", CVPR 2020), which
  moves a class mean by the drift of the images near it, and leaves covariances. Near is measured in median
  distances between the images, instead of a constant per backbone.
- ``affine``: the linear map of LDC (Gomez-Villa et al., "Exemplar-free Continual Representation Learning via
  Learnable Drift Compensation", ECCV 2024) in closed form, as in DPCR (He et al., ICML 2025), and shrunk
  towards the identity. It moves means and covariances.
- ``auto``: the candidates of all of them.
- ``gated`` (ours): one of these motions, of which an old class takes less the farther it lies from the new
  ones (:func:`gated`). A motion is fitted where the new images are; where kinds of images take turns, the
  others have it carry the wrong *length*: new classes move several times as far as old ones. Scatters stay.

Not here: ADC (CVPR 2024), which attacks new images until they look like old classes and needs the old set
for it; AdaGauss (NeurIPS 2024), EFC (ICLR 2024) and SLDC (AAAI 2026), which train a map or a penalty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from lw2g.interfaces.carry import Carry, Motion

__all__ = [
    "CARRIES",
    "Before",
    "CandidateCarry",
    "Motion",
    "affine",
    "gated",
    "median_apart",
    "shift",
    "stay",
    "take_shape",
]

_HELD = 5
"""Every fifth class (image, if there is one class) is held out to choose among the candidates."""
_ROWS = 1024
"""Largest number of rows whose distances are taken: there are half as many distances as their square."""
_REACH = 1.0
"""Squared distance up to which a gate is open, in those between neighbours among the new classes.

From 1 to 2 nothing was seen to change; so it is no option.
"""


Fit = Callable[[Tensor, Tensor], Motion]
"""Fits a motion to features ``[n, dim]`` float64 of the same images before and after a task."""


def stay(before: Tensor, after: Tensor) -> Motion:
    """Return the motion that moves nothing."""
    return Motion(rows=lambda rows: rows, still=True)


def shift(before: Tensor, after: Tensor, share: float) -> Motion:
    """Return the motion by the drift of nearby images, weighted by a Gaussian kernel (SDC, Eq. 5).

    Args:
        before: Features before the drift, ``[n, dim]`` float64.
        after: Features of the same images after it.
        share: Squared width of the kernel as a multiple of the median squared distance between images;
            infinity weighs all images alike.
    """
    drift = after - before
    if share == float("inf"):
        return Motion(rows=lambda rows: rows + drift.mean(0))
    # images that are all equal have no distance: any width weighs them alike
    width = share * (median_apart(before) or 1.0)

    def moved(rows: Tensor) -> Tensor:
        """Return rows ``[n, dim]``, each moved by the mean drift of the images near it."""
        nearness = -_squared_distances(rows, before) / (2 * width)
        return rows + nearness.softmax(dim=1) @ drift

    return Motion(rows=moved)


def affine(before: Tensor, after: Tensor, strength: float) -> Motion:
    """Return the map ``x A + b`` by ridge regression towards the identity (LDC's map in closed form).

    Args:
        before: Features before the drift, ``[n, dim]`` float64.
        after: Features of the same images after it.
        strength: Shrinkage of A towards the identity, in mean variances of the features.
    """
    centre = before.mean(0)
    moved = after.mean(0)
    rows = before - centre
    scatter = rows.T @ rows
    # identical images determine the shift alone: a tiny level keeps the system solvable
    held = (strength * scatter.diagonal().mean()).clamp(min=torch.finfo(scatter.dtype).tiny)
    held = held * torch.eye(len(scatter), dtype=scatter.dtype, device=scatter.device)
    # added on both sides: directions that the images do not have stay as they are, and do not shrink
    matrix = torch.linalg.solve(scatter + held, rows.T @ (after - moved) + held)
    offset = moved - centre @ matrix
    return Motion(rows=lambda rows: rows @ matrix + offset, linear=matrix)


def gated(motion: Motion, before: Tensor, labels: Tensor) -> Motion:
    """Return the motion with a gate: a row takes less of it the farther it lies from the new classes.

    With means ``m_k`` of the new classes before the drift and r the median squared distance of a mean to its
    nearest other one, a row z takes the share ``min(1, r / min_k |z - m_k|^2)``. One new class has no other
    one: r is then the median squared distance of its images to their mean (of one image 0: nothing moves).
    Only rows move. A scatter stays, since carrying it gained nothing measurable.

    Args:
        motion: The motion.
        before: Features of the task's images before the drift, ``[n, dim]`` float64.
        labels: Their classes, ``[n]``.
    """
    means = torch.stack([before[labels == label].mean(0) for label in torch.unique(labels)])
    if len(means) > 1:
        squares = _squared_distances(means, means)
        squares.fill_diagonal_(float("inf"))  # no mean is its own neighbour
        reach = _REACH * _median(squares.amin(1))
    else:
        reach = _REACH * _median((before - means).square().sum(1))

    def share(rows: Tensor) -> Tensor:
        """Return how much of the motion each row takes, ``[n]`` from 0 to 1."""
        nearest = _squared_distances(rows, means).amin(1)
        return torch.where(nearest > reach, reach / nearest, torch.ones_like(nearest))

    def moved(rows: Tensor) -> Tensor:
        """Return rows ``[n, dim]`` that went their share of the way."""
        return rows + share(rows)[:, None] * (motion(rows) - rows)

    return Motion(rows=moved, still=motion.still, share=share)


def median_apart(rows: Tensor) -> float:
    """Return the median squared distance between different rows ``[n, dim]``; 0 where all are equal."""
    stride = -(-len(rows) // _ROWS)  # rounded up, so that no more rows are left
    squares = torch.pdist(rows[::stride].double()).square()
    ranked = squares[squares > 0].sort().values  # torch.median is not deterministic on every device
    if not len(ranked):
        return 0.0
    return float(ranked[(len(ranked) - 1) // 2])


def _squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    """Return squared distances ``[n, m]`` of rows ``[n, dim]`` to others ``[m, dim]``."""
    # taken by differences: the product form loses the digits of distances far smaller than the lengths
    return torch.cdist(rows, others, compute_mode="donot_use_mm_for_euclid_dist").square()


def _median(values: Tensor) -> float:
    """Return the median, of an even number the mean of the two in the middle."""
    ranked = values.sort().values  # torch.median is not deterministic on every device
    return float(ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2


@attrs.frozen(kw_only=True)
class CandidateCarry(Carry):
    """A carry that fits several motions and lets held-out classes choose.

    Attributes:
        fits: The candidates by name; the last one serves where no image can be held out.
        moves: Whether any candidate moves anything.
    """

    fits: Mapping[str, Fit]
    moves: bool = True

    @property
    def candidates(self) -> tuple[str, ...]:
        """Names of the candidates."""
        return tuple(self.fits)

    def fit(
        self, before: Tensor, after: Tensor, labels: Tensor, *, residual: bool = False
    ) -> tuple[Motion, str]:
        """Return the motion of images' features, and the name of the candidate that held-out classes chose.

        Every fifth class judges fits to the others. If there is one class, every fifth image does.

        Args:
            before: Features before the drift, ``[n, dim]``.
            after: Those of the same images after it.
            labels: Their classes, ``[n]``.
            residual: Whether the motion shall tell the covariance of what it misses, ``left``.

        >>> rows = torch.eye(4, dtype=torch.float64)
        >>> moved, _ = CARRIES["affine"].fit(rows, rows + 2, torch.tensor([0, 0, 1, 1]))
        >>> bool(torch.allclose(moved(rows), rows + 2))
        True
        """
        before = before.double()
        after = after.double()
        classes, places = torch.unique(labels, return_inverse=True)
        groups = places
        if len(classes) == 1:
            groups = torch.arange(len(labels), device=labels.device)
        held = groups % _HELD == 0
        choice = list(self.fits)[-1]  # serves where nobody judges
        left = None
        # a single candidate is judged only where its misses are asked for
        is_judged = len(self.fits) > 1 or residual
        if is_judged and not bool(held.all()):
            misses = {}
            for name, fit in self.fits.items():
                motion = fit(before[~held], after[~held])
                misses[name] = motion(before[held]) - after[held]
            choice = min(misses, key=lambda name: float(misses[name].square().sum()))
            if residual:
                left = _within(misses[choice], places[held])
        # fitted again, to the images that were held out as well
        chosen = self.fits[choice](before, after)
        return attrs.evolve(chosen, left=left), choice


def _within(rows: Tensor, places: Tensor) -> Tensor:
    """Return the covariance ``[dim, dim]`` of rows about the means of their classes."""
    member = torch.nn.functional.one_hot(places).to(rows)
    # 0 for a class of which nothing was held out
    count = member.sum(0)
    means = member.T @ rows / count.clamp(min=1)[:, None]
    deviations = rows - member @ means
    return deviations.T @ deviations / max(len(rows) - int((count > 0).sum()), 1)


_STAY: dict[str, Fit] = {"none": stay}
_SHIFTS: dict[str, Fit] = {f"shift {share:g}": partial(shift, share=share) for share in (0.05, 0.25, 1.0)}
_SHIFTS["translation"] = partial(shift, share=float("inf"))
_MAPS: dict[str, Fit] = {
    f"affine {pull:g}": partial(affine, strength=pull) for pull in (0.01, 0.1, 1.0, 10.0)
}

CARRIES: Mapping[str, Carry] = {
    "none": CandidateCarry(fits=_STAY, moves=False),
    "shift": CandidateCarry(fits=_SHIFTS),
    "affine": CandidateCarry(fits=_MAPS),
    "auto": CandidateCarry(fits=_STAY | _MAPS | _SHIFTS),
}
"""The carries by name that choose among these candidates; ``gated`` gates one of them."""


class Before(nn.Module):
    """Features of a task's images from its beginning, kept until it ends, and what carrying took so far.

    Attributes:
        rows: ``[views, n, dim]`` float32, one view per set under which features may drift; empty between
            tasks.
        forwards: Number of images that the run has passed through the backbone for carrying.
        choices: Number of motions so far by each candidate of the carry, ``[candidates]`` int64.
    """

    rows: Tensor
    forwards: Tensor
    choices: Tensor

    def __init__(self, dim: int, candidates: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(0, 0, dim))
        self.register_buffer("forwards", torch.zeros((), dtype=torch.int64))
        self.register_buffer("choices", torch.zeros(candidates, dtype=torch.int64))

    def put(self, rows: Sequence[Tensor]) -> None:
        """Store the features ``[n, dim]`` of each view."""
        self.rows = torch.stack([view.detach().to(self.rows) for view in rows])

    def take(self) -> Tensor:
        """Return the stored features, and drop them."""
        rows = self.rows
        self.rows = self.rows[:0, :0]
        return rows

    def count(self, choice: int, images: int) -> None:
        """Count a motion.

        Args:
            choice: Position of the motion among the carry's candidates.
            images: Number of images passed through the backbone for it.
        """
        self.choices[choice] += 1
        self.forwards += images

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *others: Any) -> None:
        take_shape(self, "rows", state, prefix)
        super()._load_from_state_dict(state, prefix, *others)


def take_shape(module: nn.Module, name: str, state: Mapping[str, Any], prefix: str) -> None:
    """Give a buffer the shape that it has in a state about to be loaded.

    Sums of another width are refused: an empty stack of them may claim any.
    """
    value = state.get(prefix + name)
    if value is not None and (value.numel() or value.shape[1:] == module.get_buffer(name).shape[1:]):
        # torch refuses a state whose shape is not that of the buffer
        setattr(module, name, torch.empty_like(value, device=module.get_buffer(name).device))
