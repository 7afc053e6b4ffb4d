"""Device, precision and determinism: Lightning Fabric does the work, this module keeps it in one place."""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager
from typing import Any

import attrs
import timm
import torch
import torchvision
from lightning_fabric import Fabric

from lw2g.errors import ConfigError

__all__ = ["Engine", "environment", "open_engine"]

PRECISIONS = ("32-true", "bf16-mixed")


@attrs.frozen(kw_only=True, eq=False)
class Engine:
    """Where tensors live and in which precision forwards run.

    Attributes:
        fabric: The launched Fabric object.
        precision: ``"32-true"`` or ``"bf16-mixed"``.
    """

    fabric: Fabric
    precision: str

    @property
    def device(self) -> torch.device:
        """The run's device."""
        return self.fabric.device

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context that forwards run in."""
        context: AbstractContextManager[Any] = self.fabric.autocast()
        return context

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass of a loss."""
        self.fabric.backward(loss)

    def synchronize(self) -> None:
        """Wait for the device, so that a clock reading means something."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def open_engine(device: str, precision: str) -> Engine:
    """Return the engine for a device (``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``) and a precision.

    Raises:
        ConfigError: The device is not there, or the precision is not one of ours.
    """
    accelerator, _, index = device.partition(":")
    accelerator = "gpu" if accelerator == "cuda" else accelerator
    if index and not index.isdigit():
        raise ConfigError(f"run.device: {device!r} is no device; use auto, cpu, cuda, cuda:N or mps")
    if precision not in PRECISIONS:
        raise ConfigError(f"run.precision: {precision!r} is unknown; use one of {', '.join(PRECISIONS)}")
    devices: int | list[int] = [int(index)] if index else 1
    try:
        fabric = Fabric(accelerator=accelerator, devices=devices, precision=precision)  # type: ignore[arg-type]
    except (ValueError, RuntimeError) as error:
        first = str(error).splitlines()[0]
        raise ConfigError(f"run.device: {device!r} cannot be used ({first}); try --device cpu") from error
    fabric.launch()
    if fabric.device.type == "cuda":
        torch.backends.cudnn.benchmark = False
        torch.backends.cuda.matmul.allow_tf32 = False
    return Engine(fabric=fabric, precision=precision)


def environment(engine: Engine) -> dict[str, Any]:
    """Return what a record says of the machine and the libraries."""
    device = engine.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "timm": timm.__version__,
        "device": str(device),
        "device_name": name,
        "precision": engine.precision,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }
