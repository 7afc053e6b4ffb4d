"""Phases: what a baseline does with a task, in order, each with its own optimizer and schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import attrs
import torch
from torch import Tensor, nn

from lw2g.interfaces.batch import Batch

__all__ = ["ComputePhase", "ParameterGroup", "Phase", "Schedule", "StepOutput", "TrainingPhase", "constant"]

Schedule = Callable[[float, int, int], float]
"""``lr = schedule(base, epoch, epochs)``: an epoch's learning rate from the group's own; epochs from 0."""


_FUSED = frozenset({"cpu", "cuda"})
"""Devices for which every torch release that lw2g runs with has fused optimizers."""


def _always() -> bool:
    return True


def constant(base: float, epoch: int, epochs: int) -> float:
    """Return the group's own learning rate."""
    return base


@attrs.frozen(kw_only=True, eq=False)
class StepOutput:
    """What one training step gives.

    Attributes:
        loss: Scalar to minimise.
        features: What the head was fed, ``[B, F]`` with gradient, for losses that others add.
        keys: The learned keys of the baseline's own that each image selects, ``[B, K, dim]`` with gradient,
            likewise; None where it has none (a retrieval strategy gives its own).
        parts: What the framework has added the loss up from, by component; a phase's step leaves it empty.
    """

    loss: Tensor
    features: Tensor | None = None
    keys: Tensor | None = None
    parts: Mapping[str, Tensor] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True, eq=False)
class ParameterGroup:
    """Parameters trained at one learning rate.

    Attributes:
        parameters: The parameters.
        lr: Learning rate, before the schedule.
        weight_decay: L2 coefficient as torch's optimizers understand it.
    """

    parameters: tuple[nn.Parameter, ...]
    lr: float
    weight_decay: float = 0.0


@attrs.frozen(kw_only=True, eq=False)
class TrainingPhase:
    """Gradient descent over the task's training images; a checkpoint is taken after every epoch.

    Attributes:
        name: Shown in the progress and stored in checkpoints; unique within a task.
        groups: What is trained. Everything else is frozen during the phase.
        step: The loss of a batch. It must not depend on anything that a checkpoint does not hold.
        epochs: Number of passes over the task's images.
        batch_size: Images per step.
        optimizer: ``"adam"``, ``"adamw"`` or ``"sgd"``; made anew for the phase.
        betas: Of Adam.
        momentum: Of SGD.
        schedule: Gives the learning rate of each group, epoch by epoch.
        clip_norm: Bound of the gradient norm over all groups; None: no clipping.
        host: True for the phase that trains the task's set: the retrieval strategy's loss and parameters
            join it, and constraints act on it.
        drop_last: Whether a last, smaller batch is left out (never the only one).
        wanted: Whether it takes place, asked when its turn comes, and again after a resume within it: what a
            phase before has found may decide (a scan that finds nothing new).
        adjust: What follows every optimizer step and is no gradient (a pull towards other sets), without
            gradients; constraints on updates bend it too.
    """

    name: str
    groups: tuple[ParameterGroup, ...]
    step: Callable[[Batch], StepOutput]
    epochs: int = attrs.field(validator=attrs.validators.ge(0))
    batch_size: int = attrs.field(validator=attrs.validators.ge(1))
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    betas: tuple[float, float] = (0.9, 0.999)
    momentum: float = 0.0
    schedule: Schedule = constant
    clip_norm: float | None = None
    host: bool = False
    drop_last: bool = False
    wanted: Callable[[], bool] = _always
    adjust: Callable[[], None] | None = None

    def build_optimizer(self) -> torch.optim.Optimizer:
        """Return a fresh optimizer over the groups."""
        groups = [
            {"params": list(group.parameters), "lr": group.lr, "weight_decay": group.weight_decay}
            for group in self.groups
        ]
        # one kernel over all parameters, where torch has it, in place of several for each
        fused = {parameter.device.type for parameter in self.trained} <= _FUSED
        if self.optimizer == "sgd":
            return torch.optim.SGD(groups, momentum=self.momentum, fused=fused)
        kind = torch.optim.AdamW if self.optimizer == "adamw" else torch.optim.Adam
        return kind(groups, betas=self.betas, fused=fused)

    @property
    def trained(self) -> tuple[nn.Parameter, ...]:
        """All parameters of all groups."""
        return tuple(parameter for group in self.groups for parameter in group.parameters)


@attrs.frozen(kw_only=True, eq=False)
class ComputePhase:
    """Anything else: statistics, replay on stored features, a prompt merge. Restarts whole on resume.

    Attributes:
        name: Shown in the progress.
        run: Does the work; takes a callback ``progress(done, total)``. Its randomness must come from
            ``TaskContext.generator``.
    """

    name: str
    run: Callable[[Callable[[int, int], None]], None]


Phase = TrainingPhase | ComputePhase
