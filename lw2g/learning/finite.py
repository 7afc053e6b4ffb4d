"""Losses and parameters that are not finite: where they arose, and what to do.

Every step checks its loss. On the CPU a bad loss ends the run before the optimizer moves. On an accelerator,
where reading a number would make every step wait, the device keeps the first bad step, and the run reports
it before it saves anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError, ContractError, as_word
from lw2g.interfaces.phase import ComputePhase, TrainingPhase

__all__ = ["Diverged", "LossWatch", "refusing_nan"]

_NO_RATE = "look at how it is computed (logits that `mask_logits` masks are -inf), and at --precision"
_METHODS = {"constraint": "extra_loss", "retrieval": "loss"}
"""What returns the loss of a component by its kind; of a baseline it is the step of a phase."""


class Diverged(ConfigError):
    """A loss or a parameter is not finite."""

    def of_run(self, baseline: Any, config: Path) -> ConfigError:
        """Return the error with what to do about it in one run.

        Args:
            baseline: The options of its baseline, of which those that help are named.
            config: The file of its configuration.
        """
        names = {field.name for field in attrs.fields(type(baseline))}
        has_rate = "lr" in names
        remedy = "lower baseline.lr" if has_rate else "lower the method's learning rate"
        if "clip_norm" in names:
            remedy += " or clip with baseline.clip_norm"
        example = " --set baseline.lr=..." if has_rate else ""
        return ConfigError(self.what, f"{remedy}, in a new run: lw2g run {as_word(config)}{example}")


class LossWatch:
    """Watches the losses of one epoch.

    Args:
        phase: The phase that trains.
        where: The epoch, for the message.
        device: The losses' device.
        untrained: Whether nothing has been trained before the first step.
    """

    def __init__(
        self, phase: TrainingPhase, where: str, device: torch.device, *, untrained: bool = False
    ) -> None:
        self._phase = phase
        self._where = where
        self._device = device
        self._untrained = untrained
        self._at_once = device.type == "cpu"
        self._names: tuple[str, ...] = ()
        self._first = torch.full((), -1, dtype=torch.int64, device=device)

    def see(self, step: int, losses: Mapping[str, Tensor]) -> None:
        """Check the losses of a step (from 0), by the component that gave them.

        Raises:
            Diverged: On the CPU, if one is not finite.
            ContractError: Likewise (:meth:`require_sound`).
        """
        self._names = tuple(losses)
        values = torch.stack([loss.detach().float().to(self._device).reshape(()) for loss in losses.values()])
        bad = ~torch.isfinite(values)
        # step and place in one number, which stays on the device until somebody asks
        code = torch.where(bad.any(), bad.int().argmax() + step * len(losses), -1)
        self._first = torch.where(self._first < 0, code, self._first)
        if self._at_once:
            self.require_sound()

    def require_sound(self) -> None:
        """Report the first bad loss; wait for the device.

        Raises:
            Diverged: There was one.
            ContractError: It is the loss of a first step, before any update.
        """
        first = int(self._first)
        if first >= 0:
            step, number = divmod(first, len(self._names))
            whose = self._names[number]
            place = f"not finite in step {step + 1} of {self._where}"
            if self._untrained and step == 0:
                method = _METHODS.get(whose.partition(" ")[0], "step")
                raise ContractError(
                    f"{whose}, {method}: the loss is {place}, before any update", _NO_RATE, whose
                )
            self._refuse(f"the loss of {whose} is {place}")

    def require_sound_parameters(self) -> None:
        """Report parameters that are not finite although every loss was; wait for the device.

        Raises:
            Diverged: There are some.
        """
        self.require_sound()
        sound = [torch.isfinite(parameter).all() for parameter in self._phase.trained]
        if sound and not bool(torch.stack(sound).all()):
            self._refuse(f"parameters are not finite after {self._where}, although every loss was")

    def _refuse(self, what: str) -> None:
        raise Diverged(f"training diverged: {what}", "lower the learning rate, in a new run")


@contextmanager
def refusing_nan(modules: Sequence[nn.Module], owner: str, phase: ComputePhase, task: int) -> Iterator[None]:
    """Refuse a phase, run within the context, that writes NaN where there was none.

    An evaluation would find logits that are not finite, and not say which phase they come from. An infinite
    number may be meant, as of a class that is masked; NaN in a buffer may stand for what is unknown.

    Args:
        modules: Those that the phase may write into.
        owner: The component whose phase it is, for the message.
        phase: The phase.
        task: The number of the task.

    Raises:
        ContractError: It does.
    """
    named = [pair for module in modules for pair in module.named_parameters()]
    sound = [(name, parameter) for name, parameter in named if not bool(parameter.isnan().any())]
    yield
    for name, parameter in sound:
        if bool(parameter.isnan().any()):
            raise ContractError(
                f"{owner}, phases: phase {phase.name!r} of task {task + 1} writes NaN into {name!r}",
                "a mean over no images is NaN: labels are numbers of the stream's classes, those of the task "
                "stand in context.task.classes",
                owner,
            )
