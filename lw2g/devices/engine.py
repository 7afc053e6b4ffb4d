"""Device, precision and determinism: Lightning Fabric does the work, this module keeps it in one place."""

from __future__ import annotations

import logging
import os
import platform
import shutil
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any, Literal, get_args

import attrs
import timm
import torch
import torchvision
from lightning_fabric import Fabric

from lw2g.base import ranks
from lw2g.devices.allocator import keep_memory
from lw2g.errors import ConfigError

__all__ = [
    "BF16",
    "FP32",
    "Engine",
    "Precision",
    "environment",
    "open_engine",
    "require_compiler",
]

Precision = Literal["32-true", "bf16-mixed"]

FP32: Precision = "32-true"
BF16: Precision = "bf16-mixed"


@attrs.frozen(kw_only=True, eq=False)
class Engine:
    """Where tensors live and in which precision forwards run.

    Attributes:
        fabric: The launched Fabric object.
        precision: ``"32-true"`` or ``"bf16-mixed"``.
        deterministic: Whether kernels that give other bits from call to call are refused.
        keeps_memory: Whether the process keeps the memory of large buffers from step to step.
    """

    fabric: Fabric
    precision: str
    deterministic: bool = False
    keeps_memory: bool = False

    @property
    def device(self) -> torch.device:
        """The run's device."""
        return self.fabric.device

    @property
    def device_name(self) -> str:
        """What the device is, for a record."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return platform.processor() or self.device.type

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context that forwards run in."""
        context: AbstractContextManager[Any] = self.fabric.autocast()
        return context

    def seed(self, seed: int) -> None:
        """Seed torch's generators on the CPU and the run's device.

        ``torch.manual_seed`` seeds every kind of device that torch knows, and formats a stack for each that
        is not open: 2 ms, a fifth of a small step.
        """
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def backward(self, loss: torch.Tensor) -> None:
        """Run the backward pass of a loss."""
        self.fabric.backward(loss)

    def synchronize(self) -> None:
        """Wait for the device, so that a clock reading means something."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def open_engine(device: str, precision: str, *, deterministic: bool = False) -> Engine:
    """Return the engine for a device (``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``) and a precision.

    Raises:
        ConfigError: The device is not there, or the precision is not one of ours.
    """
    accelerator, _, index = device.partition(":")
    accelerator = "gpu" if accelerator == "cuda" else accelerator
    if index and not index.isdigit():
        raise ConfigError(f"run.device: {device!r} is no device", "use auto, cpu, cuda, cuda:N or mps")
    if precision not in get_args(Precision):
        raise ConfigError(
            f"run.precision: {precision!r} is unknown", f"use one of {', '.join(get_args(Precision))}"
        )
    devices: int | list[int] = [int(index)] if index else 1
    _choose_kernels(
        deterministic=deterministic
    )  # before the device is opened: cuBLAS reads its variable then
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # else a line for every engine in bf16
    try:
        fabric = Fabric(accelerator=accelerator, devices=devices, precision=precision)  # type: ignore[arg-type]
    except (ValueError, RuntimeError, ImportError) as error:
        first = str(error).splitlines()[0]
        raise ConfigError(f"run.device: {device!r} cannot be used ({first})", "try --device cpu") from error
    fabric.launch()
    keeps = fabric.device.type == "cpu" and keep_memory()
    return Engine(fabric=fabric, precision=precision, deterministic=deterministic, keeps_memory=keeps)


def _choose_kernels(*, deterministic: bool) -> None:
    """Let float32 be float32 (no TF32, neither in products nor in convolutions), and choose kernels.

    torch keeps these choices for the whole process. Without ``deterministic`` kernels may add up in any
    order, which on CUDA gives other last bits from call to call; with it they are refused, by an error that
    names the operation.
    """
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(deterministic)


def require_compiler(device: torch.device) -> None:
    """Refuse to compile where torch has nothing to compile with.

    Raises:
        ConfigError: There is no C++ compiler (CPU), or no triton (CUDA).
    """
    if device.type == "cuda":
        missing = "the package triton" if find_spec("triton") is None else None
    else:
        compilers = (os.environ.get("CXX", "g++"), "clang++")
        missing = "a C++ compiler" if not any(map(shutil.which, compilers)) else None
    if missing is not None:
        raise ConfigError(f"run.compile: {missing} is not found", "install it or set run.compile to false")


def environment(engine: Engine) -> dict[str, Any]:
    """Return what a record says of the machine and the libraries."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "timm": timm.__version__,
        "device": str(engine.device),
        "device_name": engine.device_name,
        "precision": engine.precision,
        "deterministic": engine.deterministic,
        "keeps_memory": engine.keeps_memory,
        "processes": ranks.size(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }
