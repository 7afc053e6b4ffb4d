"""Devices that torch can use, and whether bfloat16 is worth using on them."""

from __future__ import annotations

import shutil
import subprocess
import time
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lw2g.doctor.finding import Finding, note, ok, problem
from lw2g.doctor.machine import GIB

if TYPE_CHECKING:
    import torch

__all__ = ["device_findings", "judge_products", "precision_findings"]

_MODEL, _SIDE = "vit_tiny_patch16_224", 96
_TOLERANCE = 0.02
"""Relative error of a bfloat16 product; a right one has some 0.004."""


def device_findings() -> Iterator[Finding]:
    """Yield the devices by name, memory and driver."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        there = torch.cuda.is_available()
    if there:
        for index in range(torch.cuda.device_count()):
            yield _cuda(index)
    elif driver := _driver():
        reason = f": {caught[0].message}" if caught else ""
        yield problem(
            "devices",
            f"driver {driver} is there, but torch {torch.__version__} sees no GPU{reason}",
            "install builds of torch and torchvision for the CUDA release that nvidia-smi shows, or update "
            "the driver; check CUDA_VISIBLE_DEVICES",
        )
    if torch.backends.mps.is_available():
        size = torch.mps.recommended_max_memory() / GIB
        yield ok("devices", f"mps: Apple GPU, {size:.0f} GiB for torch")
    elif not there:
        yield ok("devices", "no GPU for torch: runs use the CPU")
    yield ok("devices", f"cpu: {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")


def _cuda(index: int) -> Finding:
    import torch

    about = torch.cuda.get_device_properties(index)
    free, size = torch.cuda.mem_get_info(index)
    text = (
        f"cuda:{index}: {about.name}, {size / GIB:.0f} GiB memory, {free / GIB:.0f} GiB of it free, compute "
        f"capability {about.major}.{about.minor}, driver {_driver() or 'unknown'}, CUDA {torch.version.cuda}"
    )
    if free >= size / 2:
        return ok("devices", text)
    return note("devices", text, "somebody else uses it: wait, or name another one with --device cuda:N")


def _driver() -> str | None:
    """Return the version of the NVIDIA driver, None where there is none that works."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].strip() if done.stdout.strip() else None


def precision_findings() -> Iterator[Finding]:
    """Yield for the CPU and the first GPU whether bfloat16 works, how fast it is, and what auto takes."""
    import torch

    names = ["cpu", *(["cuda:0"] if torch.cuda.is_available() else [])]
    for name in names:
        try:
            seconds, error = _measure(torch.device(name))
        except RuntimeError as failure:
            text = f"bf16 cannot be used on {name}: {failure}"
            yield note("precision", text, "set run.precision = 32-true")
            continue
        yield judge_products(name, seconds["float32"] / seconds["bfloat16"], error)
        yield _automatic(name)


def judge_products(device: str, ratio: float, error: float) -> Finding:
    """Judge bfloat16 on a device.

    Args:
        device: Its name.
        ratio: Speed of bfloat16 products over that of float32 ones.
        error: Relative error of a product.
    """
    if not error < _TOLERANCE:
        text = f"{device}: bf16 products are wrong (relative error {error:.2g})"
        return problem("precision", text, "set run.precision = 32-true, and update torch")
    return ok("precision", f"{device}: bf16 products work at {ratio:.2g} times the speed of fp32")


def _automatic(device: str) -> Finding:
    """Say what ``run.precision = "auto"`` takes on a device for a ViT-Tiny of random weights."""
    from lw2g.training.devices.precision import choose_precision
    from lw2g.vit.backbone import load_backbone

    backbone = load_backbone(_MODEL, random_seed=0, image_size=_SIDE, device=device)
    return ok(
        "precision", f"{device}: auto takes {choose_precision(backbone)} for {_MODEL} at {_SIDE} pixels"
    )


def _measure(device: torch.device) -> tuple[dict[str, float], float]:
    """Return the least seconds of a square product by dtype, and the relative error of the short one."""
    import torch

    size = 4096 if device.type == "cuda" else 384
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator).to(device) for _ in range(2))
    seconds, products = {}, []
    for dtype in (torch.float32, torch.bfloat16):
        a, b = left.to(dtype), right.to(dtype)
        taken = []
        for _ in range(6):  # the first ones warm up
            began = time.perf_counter()
            product = a @ b
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            taken.append(time.perf_counter() - began)
        seconds[str(dtype).removeprefix("torch.")] = min(taken)
        products.append(product.float())
    return seconds, float((products[1] - products[0]).norm() / products[0].norm())
