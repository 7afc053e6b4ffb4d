"""Phases: what a baseline does with a task, in order, each with its own optimizer and schedule."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal, get_args

import attrs
import torch
from torch import Tensor, nn

from lw2g.errors import ContractError
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.choices import is_one_of

__all__ = ["ComputePhase", "ParameterGroup", "Phase", "Schedule", "StepOutput", "TrainingPhase", "constant"]

Optimizer = Literal["adam", "adamw", "sgd"]

Schedule = Callable[[float, int, int], float]
"""``lr = schedule(base, epoch, epochs)``: the learning rate of an epoch, given the group's; epochs from 0."""


_FUSED = frozenset({"cpu", "cuda"})
"""Devices with fused optimizers in every torch release that lw2g supports."""


def _always() -> bool:
    return True


def constant(base: float, epoch: int, epochs: int) -> float:
    """Return the group's learning rate unchanged."""
    return base


@attrs.frozen(kw_only=True, eq=False)
class StepOutput:
    """The result of one training step.

    Attributes:
        loss: Scalar to minimise.
        features: Input of the head, ``[B, F]`` with gradient, for losses that other components add.
        keys: The baseline's own learned keys that each image selects, ``[B, K, dim]`` with gradient, for such
            losses; None without keys (a retrieval strategy has its own).
        parts: The terms of the total loss by component. The framework fills it; a phase leaves it empty.
    """

    loss: Tensor
    features: Tensor | None = None
    keys: Tensor | None = None
    parts: Mapping[str, Tensor] = attrs.field(factory=dict)


def _as_tuple(parameters: Iterable[nn.Parameter]) -> tuple[nn.Parameter, ...]:
    """Return parameters that can be read again: a generator, as ``module.parameters()`` is, can be only once.

    Raises:
        ContractError: It is something else.
    """
    remedy = "write parameters=(one, other), (one,) or module.parameters()"
    # a parameter can be iterated as well, over its rows
    if isinstance(parameters, Tensor) or not isinstance(parameters, Iterable):
        raise ContractError(
            f"ParameterGroup: expected several parameters but got a {type(parameters).__name__}", remedy
        )
    listed = tuple(parameters)
    for one in listed:
        if not isinstance(one, Tensor):
            raise ContractError(
                f"ParameterGroup: expected parameters but got a {type(one).__name__} among them", remedy
            )
    return listed


@attrs.frozen(kw_only=True, eq=False)
class ParameterGroup:
    """Parameters trained at one learning rate.

    Attributes:
        parameters: The parameters.
        lr: Learning rate, before the schedule.
        weight_decay: L2 coefficient as torch's optimizers understand it.

    Raises:
        ContractError: ``parameters`` is one parameter, or holds something else.
    """

    parameters: tuple[nn.Parameter, ...] = attrs.field(converter=_as_tuple)
    lr: float
    weight_decay: float = 0.0


def _as_groups(groups: Iterable[ParameterGroup]) -> tuple[ParameterGroup, ...]:
    """Return groups as a tuple.

    Raises:
        ContractError: It is one group alone.
    """
    if isinstance(groups, ParameterGroup):
        raise ContractError(
            "TrainingPhase: expected several groups but got a ParameterGroup",
            "write groups=(ParameterGroup(...),)",
        )
    return tuple(groups)


def _called_with(*arguments: str) -> Callable[[Any, Any, Any], None]:
    """Return a validator of a function that lw2g calls with some arguments, given by position.

    A call that does not fit would fail later, in lw2g's own code, and name no line of the plugin.
    """

    def require_fit(phase: Phase, field: Any, function: Any) -> None:
        whose = f"{field.name} of phase {phase.name!r}"
        asked = f"({', '.join(arguments)})"
        if not callable(function):
            raise ContractError(
                f"{whose} is a {type(function).__name__}, and lw2g calls it", f"give a function of {asked}"
            )
        try:
            taken = inspect.signature(function)
        except (TypeError, ValueError):  # some functions that are written in C tell none
            return
        try:
            taken.bind(*arguments)
        except TypeError:
            names = f"({', '.join(taken.parameters)})"
            raise ContractError(
                f"{whose} takes {names}, lw2g calls {field.name}{asked}",
                _remedy(field.name, arguments, function, names),
            ) from None

    return require_fit


def _remedy(name: str, arguments: tuple[str, ...], function: Any, taken: str) -> str:
    """Return how to give a function that takes other arguments than lw2g has."""
    called = getattr(function, "__name__", "<lambda>")
    asked = ", ".join(arguments)
    if called.startswith("<"):  # it stands where it is given
        return f"let it take ({asked})"
    owner = "self." if inspect.ismethod(function) else ""
    return f"write `{name}=lambda{' ' * bool(asked)}{asked}: {owner}{called}{taken}`"


@attrs.frozen(kw_only=True, eq=False)
class TrainingPhase:
    """Gradient descent on the task's training images; a checkpoint is taken after every epoch.

    Attributes:
        name: Shown in the progress and stored in checkpoints; unique within a task.
        groups: The trained parameters. All others are frozen during the phase.
        step: Returns the loss of a batch. It must not depend on state that a checkpoint does not hold.
        epochs: Number of passes over the task's images.
        batch_size: Images per step.
        optimizer: ``"adam"``, ``"adamw"`` or ``"sgd"``; every phase has a fresh one.
        betas: The betas of Adam.
        momentum: The momentum of SGD.
        schedule: Returns the learning rate of each group for each epoch.
        clip_norm: Bound of the gradient norm over all groups; None for no clipping.
        host: True for the phase that trains the task's set: the retrieval strategy adds its loss and
            parameters to it, and constraints act on it.
        drop_last: Whether to skip a last, smaller batch (never the only one).
        wanted: Returns whether the phase runs. The framework calls it when the phase is due, and again after
            a resume within it, so that the result of an earlier phase can decide.
        adjust: Called without gradients after every optimizer step, for a change that is no gradient step
            (a pull towards other sets); constraints on updates restrict it too.

    Raises:
        ContractError: A function cannot be called with what lw2g gives it, or the optimizer is none of these.
    """

    name: str
    groups: tuple[ParameterGroup, ...] = attrs.field(converter=_as_groups)
    step: Callable[[Batch], StepOutput] = attrs.field(validator=_called_with("batch"))
    epochs: int = attrs.field(validator=attrs.validators.ge(0))
    batch_size: int = attrs.field(validator=attrs.validators.ge(1))
    optimizer: Optimizer = attrs.field(
        default="adam", validator=is_one_of(get_args(Optimizer), ContractError)
    )
    betas: tuple[float, float] = (0.9, 0.999)
    momentum: float = 0.0
    schedule: Schedule = attrs.field(default=constant, validator=_called_with("base", "epoch", "epochs"))
    clip_norm: float | None = None
    host: bool = False
    drop_last: bool = False
    wanted: Callable[[], bool] = attrs.field(default=_always, validator=_called_with())
    adjust: Callable[[], None] | None = attrs.field(
        default=None, validator=attrs.validators.optional(_called_with())
    )

    def build_optimizer(self) -> torch.optim.Optimizer:
        """Return a fresh optimizer over the groups."""
        groups = [
            {"params": list(group.parameters), "lr": group.lr, "weight_decay": group.weight_decay}
            for group in self.groups
        ]
        # one kernel for all parameters instead of several per parameter
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
    """Any other work: statistics, replay on stored features, a prompt merge. A resume repeats all of it.

    No parameter requires a gradient then.

    Attributes:
        name: Shown in the progress.
        run: Does the work, and calls its argument ``progress(done, total)``. Random numbers must come from
            ``TaskContext.generator``.
        counts: What ``done`` and ``total`` count, where that is no images.
        epochs: 0: it counts by itself.

    Raises:
        ContractError: ``run`` cannot be called with what lw2g gives it.
    """

    epochs: ClassVar[int] = 0

    name: str
    run: Callable[[Callable[[int, int], None]], None] = attrs.field(validator=_called_with("progress"))
    counts: str = "images"


Phase = TrainingPhase | ComputePhase
"""What :meth:`Baseline.phases` lists."""
