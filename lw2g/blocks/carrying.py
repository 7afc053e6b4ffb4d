"""Building block: statistics of old classes that move along when what makes their features goes on learning.

Where a task trains a set that older tasks share, features of old classes move, and no image of theirs is left
to take them anew. The new task's own images show the motion: their features before and after the task are
fitted by an affine map, which is then applied to what is known of the old classes. This is the linear map of
LDC (Gomez-Villa et al., "Exemplar-free Continual Representation Learning via Learnable Drift Compensation",
ECCV 2024), solved for instead of trained, and drawn towards the identity as far as classes that the fit did
not see ask for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor, nn

__all__ = ["STRENGTHS", "Before", "Motion", "motion"]

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
        rows: ``[n, dim]`` float32; none between tasks.
    """

    rows: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(0, dim))

    def put(self, rows: Tensor) -> None:
        """Remember features ``[n, dim]``."""
        self.rows = rows.detach().to(self.rows)

    def take(self) -> Tensor:
        """Return what was remembered, and forget it."""
        rows, self.rows = self.rows, self.rows[:0]
        return rows

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *others: Any) -> None:
        if (known := state.get(f"{prefix}rows")) is not None:
            self.rows = torch.empty_like(known, device=self.rows.device)
        super()._load_from_state_dict(state, prefix, *others)
