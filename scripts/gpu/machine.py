"""What the machine is, and the rates that everything else is a share of."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import timm
import torch

from gpu.lab import Lab, Measurement, timed


def measurements(lab: Lab) -> Iterator[tuple[str, Measurement]]:
    """Yield names and versions, the rate of large products by precision, and the memory's bandwidth."""
    yield "names", partial(_names, lab)
    for mode, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        yield f"{mode} matmul", partial(_rate, lab, dtype)
    yield "copy", partial(_copy, lab)


def _names(lab: Lab) -> dict[str, Any]:
    found = {"torch": torch.__version__, "timm": timm.__version__, "python": platform.python_version()}
    found |= {"cores": os.cpu_count(), "name": lab.device_name}
    if lab.on_cuda:
        found["memory_mib"] = torch.cuda.get_device_properties(lab.device).total_memory // 2**20
        query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,power.limit", "--format=csv,noheader"]
        found["driver"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return found


def _rate(lab: Lab, dtype: torch.dtype) -> dict[str, float]:
    # without TF32, as lw2g's runs
    torch.set_float32_matmul_precision("highest")
    side = 128 if lab.toy else 8192
    one, other = (torch.randn(side, side, device=lab.device, dtype=dtype) for _ in range(2))
    return {"tflops": 2 * side**3 / timed(lambda: one @ other, lab.device) / 1e12, "side": side}


def _copy(lab: Lab) -> dict[str, float]:
    source = torch.zeros(2**20 if lab.toy else 2**30, device=lab.device, dtype=torch.uint8)
    target = torch.empty_like(source)
    return {"gb_per_second": 2 * len(source) / timed(lambda: target.copy_(source), lab.device) / 1e9}


def rate_of(lab: Lab, mode: str) -> float | None:
    """Return the measured FLOPs per second of large products under a mode, None where not measured."""
    found = lab.results.get("machine", {}).get(f"{'fp32' if mode == 'fp32' else 'bf16'} matmul", {})
    return found["tflops"] * 1e12 if "tflops" in found else None
