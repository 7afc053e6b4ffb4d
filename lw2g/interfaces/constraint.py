"""The contract of a constraint: a rule on sites, and optionally a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import attrs
from torch import Tensor

from lw2g.geometry.moments import SecondMoment
from lw2g.geometry.subspace import Subspace
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.memory import SubspaceMemory
from lw2g.interfaces.phase import StepOutput
from lw2g.interfaces.site import Restriction, Site

__all__ = ["Constraint", "ConstraintContext"]


@attrs.frozen(kw_only=True, eq=False)
class ConstraintContext:
    """What a constraint works with during one task.

    Attributes:
        task: The task and its set.
        memory: The spaces of old tasks.
        pretrained_space: The space of the un-prompted backbone's activations on the new task, at a site.
    """

    task: TaskContext
    memory: SubspaceMemory
    pretrained_space: Callable[[Site], Subspace]


class Constraint:
    """A rule on (site, tensor), applied by the core at one of two moments.

    Soft constraints come first, then the union of the hard ones once. A constraint never sees a method.

    Attributes:
        on: ``"update"``: on the parameter's displacement after the optimizer step; ``"gradient"``: after
            clipping, before the step (the paper's literal form, from which Adam leaks).
        hard: Whether the restricted component must vanish.
        needs_memory: Whether it reads ``context.memory``, so that spaces of old tasks must be kept there.
        absorbs: Whether it keeps spaces of its own, so that :meth:`absorb` must be called.
    """

    on: Literal["update", "gradient"] = "update"
    hard: bool = True
    needs_memory: bool = True
    absorbs: bool = False

    def begin_task(self, context: ConstraintContext) -> None:
        """Prepare for a task that has just got its set."""

    def restriction(self, site: Site, context: ConstraintContext) -> Restriction | None:
        """Return the rule at one site for this task, None for none."""
        return None

    def holds(self, context: TaskContext) -> bool:
        """Return whether the task's set is not trained at all."""
        return False

    def extra_loss(self, batch: Batch, output: StepOutput, context: TaskContext) -> Tensor | None:
        """Return a loss to add in the host's phase, None for none.

        What it draws must come from torch's global generator, which is seeded before every step: the host has
        then drawn already, and a run that continues draws the same.
        """
        return None

    def absorb(self, site: Site, moment: SecondMoment, context: ConstraintContext) -> None:
        """Take in the finished task's activations at one of its sites; called if :attr:`absorbs` is set."""

    @property
    def basis_vectors(self) -> int:
        """Number of basis vectors in spaces of its own."""
        return 0

    def state_dict(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
