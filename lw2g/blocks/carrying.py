"""Building block: statistics of old classes that move along when what makes their features goes on learning.

Where a task trains a set that older tasks share, or parts that all sets share, features of old classes move,
and no image of theirs is left to measure them again. The new task's own images show the motion: an affine map
is fitted to their features under the old set, before and after the task, and applied to what is known of the
classes of that set. This is the linear map of LDC (Gomez-Villa et al., "Exemplar-free Continual
Representation Learning via Learnable Drift Compensation", ECCV 2024), solved for in closed form instead of
trained, and shrunk towards the identity by as much as classes that were left out of the fit ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor, nn

__all__ = ["STRENGTHS", "Before", "Motion", "motion", "take_shape"]

STRENGTHS = (0.01, 0.1, 1.0, 10.0)
"""Candidates of the pull towards the identity, in mean variances of the features."""

_HELD = 5
"""One class (image, if there is one class) of so many chooses among them."""


@attrs.frozen(eq=False)
class Motion:
    """An affine map of features, ``x A + b``.

    Attributes:
        matrix: A, ``[dim, dim]`` float64.
        shift: b, ``[dim]`` float64.
    """

    matrix: Tensor
    shift: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Return where features ``[..., dim]`` have moved."""
        return rows @ self.matrix + self.shift


def motion(before: Tensor, after: Tensor, labels: Tensor, strengths: Sequence[float] = STRENGTHS) -> Motion:
    """Return the map that takes features of images to where they have moved.

    Args:
        before: ``[n, dim]``, n >= 1.
        after: Of the same images.
        labels: Their classes, ``[n]``: every fifth class chooses the strength, fitted to the others.
        strengths: How far the matrix is drawn towards the identity; all of them are tried.

    >>> rows = torch.eye(4, dtype=torch.float64)
    >>> moved = motion(rows, rows + 2, torch.tensor([0, 0, 1, 1]))
    >>> bool(torch.allclose(moved(rows), rows + 2))
    True
    """
    before, after = before.double(), after.double()
    classes, places = torch.unique(labels, return_inverse=True)
    held = (places if len(classes) > 1 else torch.arange(len(labels), device=labels.device)) % _HELD == 0
    if len(strengths) == 1 or bool(held.all()):
        return _solved(before, after, strengths[-1])
    tried = [_solved(before[~held], after[~held], one) for one in strengths]
    errors = [float((one(before[held]) - after[held]).square().sum()) for one in tried]
    return _solved(before, after, strengths[errors.index(min(errors))])


def _solved(before: Tensor, after: Tensor, strength: float) -> Motion:
    centre, moved = before.mean(0), after.mean(0)
    rows = before - centre
    scatter = rows.T @ rows
    # of images that are all alike nothing but the shift is known
    held = (strength * scatter.diagonal().mean()).clamp(min=torch.finfo(scatter.dtype).tiny)
    held = held * torch.eye(len(scatter), dtype=scatter.dtype, device=scatter.device)
    matrix = torch.linalg.solve(scatter + held, rows.T @ (after - moved) + held)
    return Motion(matrix=matrix, shift=moved - centre @ matrix)


class Before(nn.Module):
    """Features of a task's images as they were when it began, until it ends.

    Attributes:
        rows: ``[views, n, dim]`` float32, under each set whose classes the task may move; none between tasks.
        forwards: Images that were passed through the backbone for carrying, so far in the run.
    """

    rows: Tensor
    forwards: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(0, 0, dim))
        self.register_buffer("forwards", torch.zeros((), dtype=torch.int64))

    def put(self, rows: Sequence[Tensor]) -> None:
        """Remember features ``[n, dim]`` of each view."""
        self.rows = torch.stack([one.detach().to(self.rows) for one in rows])

    def take(self) -> Tensor:
        """Return what was remembered, and forget it."""
        rows, self.rows = self.rows, self.rows[:0, :0]
        return rows

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *others: Any) -> None:
        take_shape(self, "rows", state, prefix)
        super()._load_from_state_dict(state, prefix, *others)


def take_shape(module: nn.Module, name: str, state: Mapping[str, Any], prefix: str) -> None:
    """Give a buffer the shape that it has in a state about to be loaded."""
    if (known := state.get(prefix + name)) is not None:
        setattr(module, name, torch.empty_like(known, device=module.get_buffer(name).device))
