"""Building block: drift compensation, which carries the statistics of old classes along with their features.

If a task trains a set that old tasks share, or parameters that all sets share, the features of old classes
drift, and no image is left to measure them again. The new task's images show the drift: an affine map is
fitted to their features under the old set, before and after the task, and applied to the statistics of that
set's classes. This is the linear map of LDC (Gomez-Villa et al., "Exemplar-free Continual Representation
Learning via Learnable Drift Compensation", ECCV 2024), solved in closed form instead of trained, and shrunk
towards the identity by the strength that suits held-out classes best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor, nn

__all__ = ["STRENGTHS", "Before", "Motion", "motion", "take_shape"]

STRENGTHS = (0.01, 0.1, 1.0, 10.0)
"""Candidates for the shrinkage towards the identity, in mean variances of the features."""

_HELD = 5
"""Every fifth class (image, if there is one class) is held out to choose among the candidates."""


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
        """Return features ``[..., dim]`` after the drift."""
        return rows @ self.matrix + self.shift


def motion(before: Tensor, after: Tensor, labels: Tensor, strengths: Sequence[float] = STRENGTHS) -> Motion:
    """Return the map that fits the drift of images' features.

    Args:
        before: Features before the drift, ``[n, dim]``, n >= 1.
        after: Features of the same images after it.
        labels: Their classes, ``[n]``: every fifth class chooses the strength of a fit to the others.
        strengths: Candidates for the shrinkage of the matrix towards the identity.

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
    motions = [_solved(before[~held], after[~held], strength) for strength in strengths]
    errors = [float((fitted(before[held]) - after[held]).square().sum()) for fitted in motions]
    return _solved(before, after, strengths[errors.index(min(errors))])


def _solved(before: Tensor, after: Tensor, strength: float) -> Motion:
    centre, moved = before.mean(0), after.mean(0)
    rows = before - centre
    scatter = rows.T @ rows
    # identical images determine the shift alone
    held = (strength * scatter.diagonal().mean()).clamp(min=torch.finfo(scatter.dtype).tiny)
    held = held * torch.eye(len(scatter), dtype=scatter.dtype, device=scatter.device)
    matrix = torch.linalg.solve(scatter + held, rows.T @ (after - moved) + held)
    return Motion(matrix=matrix, shift=moved - centre @ matrix)


class Before(nn.Module):
    """Features of a task's images from its beginning, kept until it ends.

    Attributes:
        rows: ``[views, n, dim]`` float32, one view per set under which features may drift; empty between
            tasks.
        forwards: Number of images that the run has passed through the backbone for carrying.
    """

    rows: Tensor
    forwards: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(0, 0, dim))
        self.register_buffer("forwards", torch.zeros((), dtype=torch.int64))

    def put(self, rows: Sequence[Tensor]) -> None:
        """Store the features ``[n, dim]`` of each view."""
        self.rows = torch.stack([view.detach().to(self.rows) for view in rows])

    def take(self) -> Tensor:
        """Return the stored features, and drop them."""
        rows, self.rows = self.rows, self.rows[:0, :0]
        return rows

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *others: Any) -> None:
        take_shape(self, "rows", state, prefix)
        super()._load_from_state_dict(state, prefix, *others)


def take_shape(module: nn.Module, name: str, state: Mapping[str, Any], prefix: str) -> None:
    """Give a buffer the shape that it has in a state about to be loaded."""
    if (value := state.get(prefix + name)) is not None:
        setattr(module, name, torch.empty_like(value, device=module.get_buffer(name).device))
