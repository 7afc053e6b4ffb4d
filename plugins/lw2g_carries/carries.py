"""Builds the carries from the candidates of :mod:`lw2g.blocks.carrying`."""

from __future__ import annotations

from torch import Tensor

from lw2g.plugin import CARRIES, Carry, CarryContext, ConfigError, Motion, gated
from lw2g_carries.options import NoOptions

__all__ = ["Gated", "candidates"]


def candidates(config: NoOptions, context: CarryContext, *, name: str) -> Carry:
    """Build the carry of this name that chooses among candidates."""
    return CARRIES[name]


class Gated(Carry):
    """The motion of another carry, of which a class takes less the farther it lies from the new ones.

    Raises:
        ConfigError: No carry is named that moves something.
    """

    gate = True

    def __init__(self, config: NoOptions, context: CarryContext) -> None:
        # a gate lets a share of a motion through: without a motion it has nothing to do
        if context.inner is None or not context.inner.moves:
            raise ConfigError(
                "baseline.head_gated: there is no motion to gate", "name a carry that moves, such as 'affine'"
            )
        self.inner = context.inner

    @property
    def candidates(self) -> tuple[str, ...]:
        """Names of the other carry's candidates."""
        return self.inner.candidates

    def fit(
        self, before: Tensor, after: Tensor, labels: Tensor, *, residual: bool = False
    ) -> tuple[Motion, str]:
        """Return the other carry's motion with a gate."""
        # without the residual, which is for covariances: a gated motion leaves them as they are
        motion, choice = self.inner.fit(before, after, labels)
        # how far a class lies from the new ones is measured where all of them were before the drift
        return gated(motion, before.double(), labels), choice
