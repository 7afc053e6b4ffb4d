"""Device, precision and determinism of a process: torch does the work, this module keeps it in one place."""

from __future__ import annotations

import os
import platform
import shutil
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Literal, get_args

import attrs
import torch

from lw2g.errors import ConfigError
from lw2g.runtime import ranks
from lw2g.runtime.allocator import keep_memory

__all__ = [
    "BF16",
    "FP32",
    "Engine",
    "Precision",
    "environment",
    "find_device",
    "open_engine",
    "require_compiler",
    "suited_device",
]

Precision = Literal["32-true", "bf16-mixed"]

FP32: Precision = "32-true"
BF16: Precision = "bf16-mixed"


@attrs.frozen(kw_only=True, eq=False)
class Engine:
    """Where tensors live and in which precision forwards run.

    Attributes:
        device: The run's device.
        precision: ``"32-true"`` or ``"bf16-mixed"``.
        deterministic: Whether kernels that give other bits from call to call are refused.
        keeps_memory: Whether the process keeps the memory of large buffers from step to step.
    """

    device: torch.device
    precision: str
    deterministic: bool = False
    keeps_memory: bool = False

    @property
    def device_name(self) -> str:
        """What the device is, for a record."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return platform.processor() or self.device.type

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context that forwards run in."""
        if self.precision != BF16:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def seed(self, seed: int) -> None:
        """Seed torch's generators on the CPU and the run's device.

        ``torch.manual_seed`` seeds every kind of device that torch knows, and formats a stack for each that
        is not open: 2 ms, a fifth of a small step.
        """
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def synchronize(self) -> None:
        """Wait for the device, so that a clock reading means something."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def open_engine(device: str, precision: str, *, deterministic: bool = False) -> Engine:
    """Return the engine for a device (``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps``) and a precision.

    Raises:
        ConfigError: The device is not there, or the precision is not one of ours.
    """
    if precision not in get_args(Precision):
        raise ConfigError(
            f"run.precision: {precision!r} is unknown", f"use one of {', '.join(get_args(Precision))}"
        )
    # before the device is opened: cuBLAS reads its variable then
    _choose_kernels(deterministic=deterministic)
    opened = _opened(find_device(device), device)
    keeps = opened.type == "cpu" and keep_memory()
    return Engine(device=opened, precision=precision, deterministic=deterministic, keeps_memory=keeps)


def find_device(name: str) -> torch.device:
    """Return a device by name (as for :func:`open_engine`), and do not open it.

    Raises:
        ConfigError: There is no such device.
    """
    kind, _, index = name.partition(":")
    counts = {
        "mps": int(torch.backends.mps.is_available()),
        "cuda": torch.cuda.device_count(),
        "cpu": 1,
    }
    if kind == "auto":  # the first kind that is there: the CPU always is
        kind = next(other for other, count in counts.items() if count)
    if kind not in counts or (index and not index.isdigit()):
        raise ConfigError(f"run.device: {name!r} is no device", "use auto, cpu, cuda, cuda:N or mps")
    number = int(index or 0)
    if number >= counts[kind]:
        found = [f"mps:{at}" for at in range(counts["mps"])] + [f"cuda:{at}" for at in range(counts["cuda"])]
        raise ConfigError(
            f"run.device: {name!r} cannot be used (torch sees {', '.join(found) or 'no GPU'})",
            "try --device cpu",
        )
    return torch.device("cpu") if kind == "cpu" else torch.device(kind, number)


def suited_device(asked: str, *, small: bool) -> torch.device:
    """Return a device by name, as :func:`find_device`; ``auto`` is the CPU for a small network.

    A GPU computes each operation of a small network in less time than it takes to launch it: of the embedded
    benchmark, which takes a quiet CPU 41 s, an H200 took 62 s.

    Args:
        asked: The device that is asked for; one that is named is obeyed.
        small: Whether the network's products are small (:func:`lw2g.runtime.threads.has_small_products`).
    """
    found = find_device(asked)
    return torch.device("cpu") if asked == "auto" and small else found


def _opened(device: torch.device, name: str) -> torch.device:
    """Make a device the process's current one, on CUDA, and return it.

    Args:
        device: The device.
        name: What the user calls it.

    Raises:
        ConfigError: It cannot be used.
    """
    if device.type == "cuda":
        try:
            torch.cuda.set_device(device)
        except RuntimeError as error:  # a driver that is too old, a GPU that another process has to itself
            first = str(error).splitlines()[0]
            raise ConfigError(f"run.device: {name!r} cannot be used ({first})", "try --device cpu") from error
    return device


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
        # eight buffers of 4096 KiB, one of the two settings with which cuBLAS promises equal bits
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # not where nothing changes: the call imports torch's compiler, to tell it too
    if deterministic or torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(deterministic)


def require_compiler(device: torch.device) -> None:
    """Refuse to compile where torch has nothing to compile with.

    Raises:
        ConfigError: There is no C++ compiler (CPU), or no triton (CUDA).
    """
    if device.type == "cuda":
        missing = "the package triton"
        is_there = find_spec("triton") is not None
    else:
        missing = "a C++ compiler"
        is_there = any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++")))
    if not is_there:
        raise ConfigError(f"run.compile: {missing} is not found", "install it or set run.compile to false")


def environment(engine: Engine) -> dict[str, Any]:
    """Return what a record says of the machine and the libraries."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "torchvision": version("torchvision"),
        "timm": version("timm"),
        "device": str(engine.device),
        "device_name": engine.device_name,
        "precision": engine.precision,
        "deterministic": engine.deterministic,
        "keeps_memory": engine.keeps_memory,
        "processes": ranks.size(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }
