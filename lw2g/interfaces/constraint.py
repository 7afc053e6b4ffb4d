"""The contract of a constraint: a rule on sites, and optionally an additional loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.phase import StepOutput
from lw2g.interfaces.site import Restriction, Site
from lw2g.maths.moments import SecondMoment

__all__ = ["Constraint", "Target"]

Target = Literal["gradient", "update"]
"""What a rule acts on: the gradient before the optimizer step, or the update that the step made."""


class Constraint:
    """A rule that restricts how parameters may move at sites; it never sees the method.

    The framework applies the rules: soft constraints first, then the union of all hard ones once.

    Attributes:
        on: ``"update"`` restricts the parameter's displacement after the optimizer step; ``"gradient"`` the
            gradient after clipping, before the step (the LW2G paper's literal form, from which Adam leaks).
        hard: Whether the restricted component must vanish.
        needs_memory: Whether it reads ``context.memory``; the framework then keeps the spaces of old tasks.
        absorbs: Whether it keeps spaces of its own; the framework then calls :meth:`absorb`.
    """

    on: Target = "update"
    hard: bool = True
    needs_memory: bool = True
    absorbs: bool = False

    def begin_task(self, context: TaskContext) -> None:
        """Prepare for a task whose set has just been chosen."""

    def restriction(self, site: Site, context: TaskContext) -> Restriction | None:
        """Return the rule at one site for this task; None leaves the site free."""
        return None

    def holds(self, context: TaskContext) -> bool:
        """Return whether the task's set stays frozen."""
        return False

    def extra_loss(self, batch: Batch, output: StepOutput, context: TaskContext) -> Tensor | None:
        """Return a scalar to add to the loss of the host phase; None for no such term.

        Random numbers must come from torch's global generator. It is seeded before every step and the host
        draws first, so that a resumed run draws the same numbers.
        """
        return None

    def absorb(self, site: Site, moment: SecondMoment, context: TaskContext) -> None:
        """Absorb the finished task's activations at one of its sites; called if :attr:`absorbs` is set."""

    @property
    def basis_vectors(self) -> int:
        """Number of basis vectors in the constraint's own spaces."""
        return 0

    def state_dict(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
