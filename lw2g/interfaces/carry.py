"""The contract of a carry: where a task takes the features of old classes, judged by its own images.

If a task trains a set that old tasks share, or parameters that all sets share, the features of old classes
drift, and no image is left to measure them again. A carry sees the new task's images before and after, and
returns a :class:`Motion`, which moves what heads and replay keep of old classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import attrs
from torch import Tensor

__all__ = ["Carry", "CarryContext", "Motion"]


@attrs.frozen(eq=False, kw_only=True)
class Motion:
    """Where a task takes the features of old classes.

    Attributes:
        rows: Maps features ``[n, dim]`` float64 to those after the drift.
        linear: The linear part A of the map, ``[dim, dim]`` float64; None for the identity.
        left: Covariance ``[dim, dim]`` within held-out classes of what the map leaves unexplained, by which a
            carried scatter is too small; None where it is not wanted.
        still: Whether nothing moves.
        share: Returns the share of a fitted motion that each row ``[n, dim]`` takes, ``[n]`` from 0 to 1;
            None where all rows take the whole of it.
    """

    rows: Callable[[Tensor], Tensor]
    linear: Tensor | None = None
    left: Tensor | None = None
    still: bool = False
    share: Callable[[Tensor], Tensor] | None = None

    def __call__(self, rows: Tensor) -> Tensor:
        """Return features ``[n, dim]`` after the drift."""
        return self.rows(rows)

    def scatter(self, scatter: Tensor, count: Tensor | int) -> Tensor:
        """Return the scatter ``[..., dim, dim]`` of ``count`` features about their means after the drift."""
        moved = scatter if self.linear is None else self.linear.mT @ scatter @ self.linear
        return moved if self.left is None else moved + count * self.left


class Carry(ABC):
    """Fits motions. It keeps no state between tasks and draws no random number.

    Attributes:
        moves: Whether it ever moves anything; no image is passed twice for a carry that does not.
        gate: Whether classes far from the new ones take less of a motion (:attr:`Motion.share`).
    """

    moves: bool = True
    gate: bool = False

    @property
    @abstractmethod
    def candidates(self) -> tuple[str, ...]:
        """Names of the motions among which it chooses, in a fixed order: the record counts them."""

    @abstractmethod
    def fit(
        self, before: Tensor, after: Tensor, labels: Tensor, *, residual: bool = False
    ) -> tuple[Motion, str]:
        """Return the motion of images' features, and the name of the candidate that it is.

        It sees this and nothing else: no test image, no image of old classes. Where nothing moved, it moves
        nothing. Labels count by their order alone, by which a carry may choose the classes that it holds out;
        the order of images does not matter where there are several classes.

        Args:
            before: Features of the new task's images before the drift, ``[n, dim]``, n >= 1.
            after: Features of the same images after it.
            labels: Their classes, ``[n]``.
            residual: Whether the motion gets :attr:`Motion.left`.
        """


@attrs.frozen(kw_only=True)
class CarryContext:
    """What a carry knows when it is built.

    Attributes:
        dim: Width of the features.
        inner: The carry that it wraps; None unless its component says ``wraps=True``.
    """

    dim: int
    inner: Carry | None = None
